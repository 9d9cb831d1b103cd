"""Logs of any size and line length: bounded memory, nothing lost, nothing twice."""

from __future__ import annotations

import io
import time
import tracemalloc
from collections.abc import Iterator

import pytest

from planner.diagnosis import diagnose_text
from planner.diagnosis.diagnosis import _from_chunks
from planner.diagnosis.messages.anchors import anchors
from planner.diagnosis.messages.assembly import read_passages
from planner.diagnosis.messages.passages import CHUNK_BYTES, EDGE_CHARS, decode, scan
from planner.diagnosis.messages.wordings import families
from planner.errors import NotRecognised

MESSAGE = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 136.00 MiB. GPU 0 has a total capacity of 22.36 GiB "
    "of which 120.88 MiB is free."
)
LINE = "2026-01-01 12:00:00 INFO step 1234 loss 0.1374 gpu memory 20.1 GiB tokens/s 3456 grad norm 1.23\n"


def test_every_wording_is_found_by_the_quick_search() -> None:
    for family in families():
        for pattern in family.patterns:
            assert pattern.needles and all(n == n.lower() for n in pattern.needles), pattern.kind
            if not pattern.attach_only:
                assert all(any(a in needle for a in anchors()) for needle in pattern.needles), pattern.kind


@pytest.mark.parametrize("at", [0, 1, CHUNK_BYTES - 60, CHUNK_BYTES, CHUNK_BYTES - EDGE_CHARS, 2 * CHUNK_BYTES + 17])
def test_a_message_across_the_edge_of_a_chunk_is_found_once(at: int) -> None:
    text = "x" * at + "\n" + MESSAGE + "\n" + "y" * (CHUNK_BYTES + 3)
    findings = diagnose_text(text).findings
    assert len(findings) == 1
    assert findings[0].message.repeated == 1
    assert findings[0].message.line == 2
    assert findings[0].figures["free_bytes"] == round(120.88 * 2**20)


def test_repeated_messages_are_counted_wherever_they_stand() -> None:
    text = (LINE * 9_000 + MESSAGE + "\n") * 7
    findings = diagnose_text(text).findings
    assert [f.message.repeated for f in findings] == [7]
    assert findings[0].message.line == 9_001


def test_a_hundred_megabytes_in_one_line() -> None:
    """In bounded memory: the line is never held whole."""

    def chunks() -> Iterator[str]:
        for number in range(100):
            yield ("0123456789 abcdef" * 62_000)[:CHUNK_BYTES] + (f" {MESSAGE} " if number == 50 else "")

    tracemalloc.start()
    try:
        findings = _from_chunks(chunks(), "log").findings
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(findings) == 1
    assert peak < 40 << 20


def test_a_long_log_is_read_at_a_rate_of_megabytes_a_second() -> None:
    data = (LINE * 400_000 + MESSAGE).encode()  # 40 MB; a log of 1 GB takes 25 times as long
    start = time.perf_counter()
    result = scan(decode(io.BytesIO(data)))
    assert len(result.passages) == 1
    assert result.lines == 400_001
    assert time.perf_counter() - start < 20


def test_a_log_of_nothing_but_errors_is_bounded_and_keeps_first_and_last() -> None:
    count = 60_000
    text = "".join(
        f"CUDA out of memory. Tried to allocate {n}.00 MiB (GPU 0; 9.00 GiB free)\n" for n in range(1, 4_001)
    )
    chunks = [text] * (count // 4_000)
    start = time.perf_counter()
    result = scan(iter(chunks))
    assert sum(len(p.text) for p in result.passages) < 20 << 20
    messages, uncounted = read_passages(result.passages, "log")
    assert len(messages) == 1_000
    assert sum(m.repeated for m in messages) + uncounted == count
    assert time.perf_counter() - start < 120


@pytest.mark.parametrize(
    "junk",
    [
        b"\x1b]" * 300_000,
        b"\x00" * 300_000,
        b"tried to allocate" + b" " * 300_000,
        b"tried to allocate " + b"1" * 300_000,
        b"out of memory " + b"1.1,1." * 50_000,
        b"(pid=1 " * 40_000,
        b"Process 1 has " * 20_000,
        b"max seq len (" * 20_000,
        b"|" * 300_000 + b"nvidia-smi",
        b"killed by signal: " * 20_000,
        "İİİ CUDA OUT OF MEMORY".encode() * 5_000,
        bytes(range(256)) * 1_000,
    ],
    ids=range(12),
)
def test_junk_takes_no_time(junk: bytes) -> None:
    start = time.perf_counter()
    read_passages(scan(decode(io.BytesIO(junk))).passages, "junk")
    assert time.perf_counter() - start < 15


def test_patterns_are_linear() -> None:
    """Each wording's own beginning, repeated, is the worst input for it: twice the length must not take four times."""
    for family in families():
        for pattern in family.patterns:
            piece = " ".join(pattern.needles) + " 12.34 GiB (1, "
            for text in (piece * 2_000, pattern.needles[0] + " " * 60_000, pattern.needles[0] + "9" * 60_000):
                start = time.perf_counter()
                pattern.compiled.findall(text)
                assert time.perf_counter() - start < 2, pattern.kind


def test_utf_16_as_powershell_writes_it() -> None:
    data = ("\r\n".join(["step 1", MESSAGE]) + "\r\n").encode("utf-16")
    messages, _ = read_passages(scan(decode(io.BytesIO(data))).passages, "log")
    assert len(messages) == 1


def test_escape_cut_by_the_end_of_a_chunk() -> None:
    cut = CHUNK_BYTES + 4 - 2
    data = (b"x" * cut + b"\x1b[31m" + MESSAGE.encode().replace(b"out of", b"out\x1b[0m of")) + b"\n"
    messages, _ = read_passages(scan(decode(io.BytesIO(data))).passages, "log")
    assert len(messages) == 1


@pytest.mark.parametrize("text", ["hello world", "all is well, memory 3 GiB", "\x00\x01\x02 \n", "process killed it"])
def test_text_without_an_error_says_what_was_looked_for(text: str) -> None:
    with pytest.raises(NotRecognised, match=r"nothing was recognised.*looked for memory failures of PyTorch"):
        diagnose_text(text)
