"""The bundled records of the probe: real widths on the CPU, planned again."""

from __future__ import annotations

from pathlib import Path

import planner.validation
from planner.validation.cases import load_cases
from planner.validation.probed import PROBE
from planner.validation.scoring import score

RECORDS = Path(planner.validation.__file__).parent / "cases" / "probe_cpu.jsonl"
# what the probe judges; peaks of a single phase are shown and not judged
JUDGED = ("weights", "kv_cache", "prefill_peak", "gradients", "optimizer", "saved_activations", "peak_allocated")
EXACT = ("weights", "gradients", "optimizer")


def test_every_record_is_scored_and_within_five_percent() -> None:
    cases = load_cases(RECORDS)
    rows, unscored = score(cases)
    assert not unscored and {row.case.id for row in rows} == {case.id for case in cases}
    assert {row.mode for row in rows} == {PROBE}
    judged = [row for row in rows if row.component in JUDGED]
    assert len({row.case.config for row in judged}) == 4
    assert not [(row.case.id, row.component, row.error) for row in judged if abs(row.error) > 0.05]


def test_states_are_exact() -> None:
    rows, _ = score(load_cases(RECORDS))
    assert not [(row.case.id, row.component, row.error) for row in rows if row.component in EXACT and row.error]
