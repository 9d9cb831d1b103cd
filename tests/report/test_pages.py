"""Pages of a diagnosis and of launch forms: whole, self-contained, in order, and with nothing raw in them; bars too."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path

import pytest

from planner.report.bar import Segment, bar
from tests.cli.running import run

_VOID = {"meta", "br"}
_OUT_OF_MEMORY = (
    "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 32.00 MiB. GPU 0 has a total capacity of"
    " 4.00 GiB of which 41.56 MiB is free. Including non-PyTorch memory, this process has 3.44 GiB memory in use. Of"
    " the allocated memory 2.58 GiB is allocated by PyTorch, and 1.90 MiB is reserved by PyTorch but unallocated.\n"
)
_H200 = Path(__file__).parent.parent / "diagnosis/data/h200/native"


class _Page(HTMLParser):
    """What a page has: its headings' levels, its text, what it would fetch; fails on tags that do not close."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.levels: list[int] = []
        self.open: list[str] = []
        self.words: list[str] = []
        self.tags: set[str] = set()
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        assert not {name for name, _ in attrs} & {"src", "href", "onclick", "onload", "onerror"}
        if tag[0] == "h" and tag[1:].isdigit():
            self.levels.append(int(tag[1:]))
        if tag not in _VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(self.words)


def _checked(out: str) -> _Page:
    page = _Page(out)
    assert not page.tags & {"script", "link", "img", "iframe", "object", "form"}
    assert page.levels[0] == 1 and page.levels.count(1) == 1
    assert all(after <= before + 1 for before, after in zip(page.levels, page.levels[1:], strict=False))
    return page


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "<script>alert(1)<" / "b>.log"
    path.parent.mkdir()
    path.write_text(_OUT_OF_MEMORY)
    return path


_QLORA = ("--model", "Qwen/Qwen3-8B", "--gpu", "4090", "--train", "--method", "qlora", "--max-seq-length", "2048")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), ("GPU 0 is full", "What to do, in order", "tried_bytes", "32.0 MiB", "The device: 3.96 of 4.00 GiB")),
        (_QLORA, ("Beside the plan", "Planned and in the text")),
        (("--lengths", "512x20,900"), ("tiers, waste", "padded tokens for")),
        (
            (str(_H200 / "messages.txt"), str(_H200 / "summary.txt"), str(_H200 / "snapshot.pickle")),
            ("1. ", "2. ", "Largest segments"),
        ),
    ],
    ids=["one", "beside a plan", "lengths", "several"],
)
def test_diagnosis_as_a_page(
    log: Path,
    words: tuple[str, ...],
    said: tuple[str, ...],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = run(capsys, monkeypatch, "diagnose", str(log), *words, "--format", "html")
    page = _checked(found.out)
    assert found.status == 0
    for part in said:
        assert part in page.text


@pytest.mark.parametrize(
    ("source", "card", "code", "said"),
    [
        (
            "vllm serve Qwen/Qwen3-8B --max-model-len 16K",
            "4090",
            0,
            ("16,384 tokens", "max-model-len", "weights 15.38"),
        ),
        ("vllm serve Qwen/Qwen3-32B --max-model-len 16K", "4090", 1, ("does not fit",)),
        ("vllm serve Qwen/Qwen3-8B", None, 2, ("no card is stated", "weights")),
        ("vllm serve '<script>alert(1)</script>/x'", "4090", 2, ("<script>",)),
    ],
    ids=["fits", "does not", "no card", "hostile"],
)
def test_launch_forms_as_a_page(
    source: str,
    card: str | None,
    code: int,
    said: tuple[str, ...],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    words = ["--gpu", card] if card else []
    found = run(capsys, monkeypatch, "plan", source, *words, "--format", "html")
    page = _checked(found.out)
    assert found.status == code
    for part in said:
        assert part in page.text


def test_no_two_parts_of_a_bar_look_alike() -> None:
    """W and w, two others that begin alike, and more parts than letters."""
    names = ["weights", "workspace", "window state", "workers", *(f"part {number}" for number in range(30))]
    drawn = bar([Segment(name, 1 << 30, name[0], 33) for name in names], len(names) << 30)
    letters = [word.split(" ")[0] for line in drawn.splitlines()[1:] for word in line.strip().split("  ")]
    assert len(letters) == len(names) == len({letter.lower() for letter in letters})
    assert letters[:4] == ["w", "o", "i", "r"]
