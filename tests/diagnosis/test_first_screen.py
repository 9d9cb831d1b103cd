"""The first screen: 18 lines of 80 columns, the remedy on top, one finding for what is one failure."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.diagnosis import Diagnosis, diagnose_text
from planner.report.diagnosis import render_diagnosis
from planner.report.diagnosis.first_screen import MOST_LINES, first_screen
from planner.units import GIB, MIB
from tests.diagnosis.accuracy import messages
from tests.diagnosis.messages.test_phases import CASES, MESSAGE
from tests.diagnosis.test_faults import FAULTS

TEXTS = {row["id"]: row["text"] for row in (*messages(), *FAULTS.values())}


def is_narrow(line: str) -> bool:
    """80 columns, one long word apart."""
    return len(line) <= 80 or len(line.split()) <= 1


@pytest.mark.parametrize("name", TEXTS)
def test_the_remedy_stands_on_the_first_screen(name: str) -> None:
    diagnosis = diagnose_text(TEXTS[name])
    lines = render_diagnosis(diagnosis, format="table").split("\n")
    assert len(lines) <= MOST_LINES == 18
    assert next(n for n, line in enumerate(lines, 1) if line.startswith("Do first: ")) <= 8
    more = render_diagnosis(diagnosis, format="table", more=True).split("\n")
    assert more[: len(lines) - 1] == lines[:-1], "the first screen stays where it is"
    assert all(map(is_narrow, [*lines, *more]))


def sizes(low: int, high: int) -> st.SearchStrategy[str]:
    return st.integers(low, high).map(lambda size: f"{size / GIB:.2f} GiB" if size > GIB else f"{size / MIB:.2f} MiB")


@given(
    tried=sizes(2 * MIB, 900 * GIB),
    total=sizes(2 * GIB, 300 * GIB),
    free=sizes(MIB, 300 * GIB),
    allocated=sizes(MIB, 300 * GIB),
    slack=sizes(MIB, 100 * GIB),
    processes=st.lists(st.tuples(st.integers(1, 4_194_304), sizes(MIB, 300 * GIB)), max_size=12),
    case=st.sampled_from([None, *CASES]),
)
def test_whatever_the_figures_it_fits_and_begins_with_the_remedy(
    tried: str, total: str, free: str, allocated: str, slack: str, processes: list[tuple[int, str]], case: str | None
) -> None:
    listed = "".join(f"Process {pid} has {size} memory in use. " for pid, size in processes)
    frames = "" if case is None else "Traceback (most recent call last):\n" + "".join(
        f'  File "{path}", line 10, in {function}\n    {code}\n' for path, function, code in CASES[case][0]
    )  # fmt: skip
    text = (
        f"{frames}torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {tried}. GPU 7 has a total capacity of "
        f"{total} of which {free} is free. {listed}Of the allocated memory {allocated} is allocated by PyTorch, and "
        f"{slack} is reserved by PyTorch but unallocated."
    )
    lines = first_screen(diagnose_text(text), more=False)
    assert len(lines) <= MOST_LINES and all(map(is_narrow, lines))
    assert next(n for n, line in enumerate(lines, 1) if line.startswith("Do first: ")) <= 8


def screen(diagnosis: Diagnosis) -> str:
    return " ".join(" ".join(first_screen(diagnosis, more=False)).split())


def test_eight_ranks_are_one_finding_with_a_count() -> None:
    ranks = [MESSAGE.replace("GPU 0", f"GPU {n}").replace("0.55 GiB", f"0.{50 + n} GiB") for n in range(8)]
    diagnosis = diagnose_text("\n".join(f"[rank{n}]: {text}" for n, text in enumerate(ranks)))
    (finding,) = diagnosis.findings
    assert (finding.message.repeated, finding.message.devices) == (8, tuple(range(8)))
    assert "8 GPUs, 8 messages" in screen(diagnosis)


def test_a_thousand_repeats_with_other_figures_are_one_finding() -> None:
    text = "\n".join(MESSAGE.replace("1.16 GiB", f"{1 + n % 7}.16 GiB") for n in range(1_000))
    (finding,) = diagnose_text(text).findings
    assert finding.message.repeated == 1_000


def test_what_only_follows_from_the_failure_does_not_hide_it() -> None:
    log = (
        f"(EngineCore_DP0 pid=9) ERROR {MESSAGE}\nRuntimeError: Engine core initialization failed. See root cause "
        "above.\nChildFailedError\n[rank1] Watchdog caught collective operation timeout\n"
    )
    first = diagnose_text(log).findings[0]
    assert first.message.program == "pytorch"
    assert all("root cause" not in f.headline for f in diagnose_text(log).findings)


def test_confidence_is_in_words() -> None:
    assert "How sure: quite sure." in screen(diagnose_text(TEXTS["oom-146"]))
    assert "How sure: a guess. Otherwise:" in screen(diagnose_text("RuntimeError: CUDA error: out of memory"))
