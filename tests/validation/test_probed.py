"""The bundled records of the probe, of an H200 and of real widths on the CPU, planned again."""

from __future__ import annotations

from pathlib import Path

import pytest

from planner.validation.probe_page import RECORDS, accuracy_page, records
from planner.validation.probed import PROBE
from planner.validation.scoring import score

# what the probe judges; peaks of a single phase are shown and not judged
JUDGED = ("weights", "kv_cache", "prefill_peak", "gradients", "optimizer", "saved_activations", "peak_allocated")
EXACT = ("weights", "gradients", "optimizer")


@pytest.mark.parametrize("name", RECORDS)
def test_every_record_is_scored_and_within_five_percent(name: str) -> None:
    cases = records(name)
    rows, unscored = score(cases)
    assert not unscored and {row.case.id for row in rows} == {case.id for case in cases}
    assert {row.mode for row in rows} == {PROBE}
    judged = [row for row in rows if row.component in JUDGED]
    assert len({row.case.config for row in judged}) == 4
    assert not [(row.case.id, row.component, row.error) for row in judged if abs(row.error) > 0.05]


@pytest.mark.parametrize("name", RECORDS)
def test_states_are_exact(name: str) -> None:
    rows, _ = score(records(name))
    assert not [(row.case.id, row.component, row.error) for row in rows if row.component in EXACT and row.error]


def test_every_configuration_ran_on_the_h200() -> None:
    """12 of serving, and 24 of training: full, LoRA, QLoRA; checkpointed and not; eager and SDPA; two lengths."""
    cases = records("probe_h200.jsonl")
    kinds = [case.given("probe") for case in cases]
    assert (kinds.count("serve"), kinds.count("train")) == (12, 24)
    runs = [case.given("workload") for case in cases if case.given("probe") == "train"]
    for name, values in {
        "method": {"full", "lora", "qlora"},
        "gradient_checkpointing": {True, False},
        "attn_implementation": {"eager", "sdpa"},
        "max_seq_length": {512, 2048},
    }.items():
        assert {run[name] for run in runs if isinstance(run, dict)} == values


def test_peaks_of_the_h200() -> None:
    rows, _ = score(records("probe_h200.jsonl"))
    peaks = [abs(row.error) for row in rows if row.component in ("prefill_peak", "peak_allocated")]
    assert len(peaks) == 36
    assert max(peaks) <= 0.02
    assert sum(peaks) / len(peaks) <= 0.005


def test_the_page_in_docs_is_current() -> None:
    assert (Path(__file__).resolve().parents[2] / "docs" / "accuracy_probe.md").read_text("utf-8") == accuracy_page()
