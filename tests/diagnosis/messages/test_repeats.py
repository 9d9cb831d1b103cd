"""Repeated messages: counted exactly, never cut, in time that grows with the text and not faster."""

from __future__ import annotations

import random
import time
from collections import Counter

import pytest

from planner.diagnosis import diagnose_text
from planner.diagnosis.diagnosis import _from_chunks
from planner.diagnosis.messages import passages
from planner.diagnosis.messages.assembly import read_passages
from planner.diagnosis.messages.cleaning import clean
from planner.diagnosis.messages.matches import MatchGroup, match_groups
from planner.diagnosis.messages.wordings import families
from tests.diagnosis.accuracy import messages

MESSAGE = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 136.00 MiB. GPU 0 has a total capacity of 22.36 GiB "
    "of which 120.88 MiB is free. Process 77 has 22.23 GiB memory in use. Of the allocated memory 21.50 GiB is "
    "allocated by PyTorch, and 300.00 MiB is reserved by PyTorch but unallocated."
)


@pytest.mark.parametrize("count", [2, 300, 20_000])
@pytest.mark.parametrize("end", ["\n", " ", "\nstep 17 loss 0.3\n"], ids=["lines", "one line", "between steps"])
def test_one_message_again_and_again_is_one_finding(count: int, end: str) -> None:
    start = time.process_time()
    (finding,) = diagnose_text((MESSAGE + end) * count).findings
    # 7 MB in about a second; the allowance is for a slow machine, ten times less than what grew with its square
    assert time.process_time() - start < 8
    assert finding.message.repeated == count
    assert finding.message.text.startswith("CUDA out of memory. Tried") and finding.message.text.endswith(
        "PyTorch but "
    )
    assert finding.figures["tried_bytes"] == 136 << 20
    assert finding.figures["other_process_bytes"] == round(22.23 * 2**30)


def test_words_alone() -> None:
    start = time.process_time()
    (finding,) = diagnose_text("CUDA out of memory " * 100_000).findings
    assert time.process_time() - start < 8
    assert finding.message.repeated == 100_000


def test_a_crash_loop_with_times_and_tracebacks() -> None:
    frame = '  File "/site-packages/x/{0}.py", line {0}, in forward\n    return self.layer(x, {1})\n'
    text = "".join(
        f"2026-01-01 12:00:00.{n:06} start {n}\nTraceback (most recent call last):\n"
        + "".join(frame.format(k, n) for k in range(20))
        + MESSAGE
        + "\n"
        for n in range(4_000)
    )
    assert len(text) > 6_500_000
    start = time.process_time()
    (finding,) = diagnose_text(text).findings
    assert time.process_time() - start < 10
    assert finding.message.repeated == 4_000


def key(group: MatchGroup) -> tuple[object, ...]:
    return (group.family.program, group.kind, *((n, f.value) for n, f in group.figures.items()))


@pytest.mark.parametrize("seed", range(6))
def test_a_text_in_pieces_has_the_messages_of_the_whole_text(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pieces and chunks are made small, so that their edges fall everywhere in messages of all programs."""
    monkeypatch.setattr(passages, "PASSAGE_CHARS", 3_000)
    chance = random.Random(seed)
    rows = [str(row["text"])[:2_000] for row in messages()]
    filler = ["step 1 loss 0.3\n" * n for n in (0, 0, 0, 1, 3, 40, 600)]
    text = "".join(chance.choice(rows) + chance.choice("\n ") + chance.choice(filler) for _ in range(400))
    chunks = [text[at : at + 40_000] for at in range(0, len(text), 40_000)]
    found, uncounted = read_passages(passages.scan(iter(chunks)).passages, "log")
    whole = Counter(key(group) for group in match_groups(clean(text).text))
    assert uncounted == 0
    assert sum(m.repeated for m in found) == sum(whole.values())
    assert sorted(m.repeated for m in found) == sorted(whole.values())


def test_a_crash_loop_larger_than_what_is_kept_is_counted_whole() -> None:
    """The same passage is held once, so that its number does not count against the memory that is allowed."""
    block = (MESSAGE + "\n") * 10_000
    result = passages.scan(block for _ in range(12))
    assert sum(len(p.text) for p in result.passages) > 2 * passages.KEPT_CHARS
    assert result.skipped == 0
    ((message,), uncounted) = read_passages(result.passages, "log")
    assert (message.repeated, uncounted) == (120_000, 0)


def test_what_was_not_read_of_a_long_log_of_errors_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passages, "KEPT_CHARS", 1 << 20)
    chunks = ("".join(f"step {part * 2_500 + n}\n{MESSAGE}\n" for n in range(2_500)) for part in range(6))
    read = _from_chunks(chunks, "log")
    findings, (note,) = read.findings, read.notes
    assert [f.message.kind for f in findings] == ["torch_tried"]
    assert 5_000 < findings[0].message.repeated < 15_000
    assert note.startswith("log: ") and note.endswith("is not counted")


def test_no_wording_is_longer_than_its_pattern_says() -> None:
    """The search around a needle goes no further; the width is that of the compiled expression."""
    parser = pytest.importorskip("re._parser")
    for family in families():
        for pattern in family.patterns:
            assert parser.parse(pattern.regex).getwidth()[1] <= pattern.reach, pattern.kind
