"""The notebooks run from top to bottom without a network, print what is committed, and say what each figure shows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
REFRESH = "the committed output is old: run `python tools/refresh_notebooks.py` and look at the figures"
TIMEOUT_SECONDS = 60


def printed(cell: Any) -> str:
    """What a cell wrote to stdout."""
    return "".join(output["text"] for output in cell.get("outputs", ()) if output.get("name") == "stdout")


def has_figure(cell: Any) -> bool:
    return any("image/png" in output.get("data", ()) for output in cell.get("outputs", ()))


def test_there_are_five() -> None:
    assert [path.name[:2] for path in NOTEBOOKS] == ["01", "02", "03", "04", "05"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_runs_and_prints_what_is_committed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MPLBACKEND", "module://matplotlib_inline.backend_inline")
    committed, fresh = nbformat.read(path, as_version=4), nbformat.read(path, as_version=4)
    resources = {"metadata": {"path": str(ROOT)}}
    NotebookClient(fresh, timeout=TIMEOUT_SECONDS, kernel_name="python3", resources=resources).execute()
    for before, after in zip(committed.cells, fresh.cells, strict=True):
        assert printed(after) == printed(before), REFRESH
        assert has_figure(after) == has_figure(before), REFRESH


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_every_figure_has_a_title_and_a_sentence(path: Path) -> None:
    cells = nbformat.read(path, as_version=4).cells
    figures = [index for index, cell in enumerate(cells) if has_figure(cell)]
    assert figures
    for index in figures:
        source = cells[index].source
        assert "title" in source or "draw(" in source
        assert "label" in source or "strips(" in source or "draw(" in source
        following = next(cell.source for cell in cells[index + 1 :] if cell.cell_type == "markdown")
        assert following.startswith("*The figure shows*")


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_nothing_of_the_writer_s_machine(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    assert all(cell.execution_count for cell in notebook.cells if cell.cell_type == "code")
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    assert not [output for output in outputs if output["output_type"] == "error" or output.get("name") == "stderr"]
    assert not [
        output for output in outputs if "/home/" in str(output.get("text")) or "/tmp" in str(output.get("text"))
    ]
