"""The wheel carries everything: installed into an empty environment, it plans from another folder."""

from __future__ import annotations

import json
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--wheel-dir", str(folder), str(ROOT)], check=True
    )
    (built,) = folder.glob("vram_planner-*.whl")
    return built


def test_the_wheel_carries_the_data(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    configs = [name for name in names if name.startswith("planner/model_configs/") and name.endswith(".json")]
    assert len(configs) == len(list((ROOT / "model_configs").glob("*.json")))
    data = [path for path in (ROOT / "planner").rglob("*") if path.suffix in (".csv", ".json", ".jsonl", ".typed")]
    assert {str(path.relative_to(ROOT)) for path in data} <= names
    assert not any(name.startswith("tests/") for name in names)


def test_it_plans_in_an_empty_environment(wheel: Path, tmp_path: Path) -> None:
    environment = tmp_path / "venv"
    venv.create(environment, with_pip=True)
    binaries = environment / "bin"
    subprocess.run([str(binaries / "python"), "-m", "pip", "install", "-q", str(wheel)], check=True)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    done = subprocess.run(
        [str(binaries / "vram-planner"), "serve", "Qwen/Qwen3-8B", "--gpu", "H100", "--max-model-len", "8192",
         "--format", "json"],
        cwd=elsewhere, capture_output=True, text=True, check=True, env={"PATH": "/usr/bin:/bin", "HF_HUB_OFFLINE": "1"},
    )  # fmt: skip
    assert json.loads(done.stdout)["model"]["parameters"] == 8_190_735_360
    assert done.stderr == ""
