"""Published quality: bands by size, what may stand in for what, and who gets the star of a comparison."""

from __future__ import annotations

import json

import pytest

from planner.memory.quality.evidence import bands, no_worse, rows_of, sentences
from tests.cli.running import run

EIGHT = 8_000_000_000


def test_bands_are_those_of_the_rows_of_the_size() -> None:
    """awq, 3-14B, perplexity: 4.09, 4.33 and 10.57% of three rows from two sources."""
    band = next(one for one in bands(rows_of("awq", "weights", EIGHT)) if one.metric == "perplexity")
    assert (band.least, band.median, band.most, band.n, band.sources) == (4.09, 4.33, 10.57, 3, 2)
    assert "no evidence" in sentences("exl3-8.0bpw", "weights", 500_000_000)


def test_only_a_shared_metric_compares() -> None:
    assert no_worse(None, "awq", "weights", EIGHT) and not no_worse("awq", None, "weights", EIGHT)
    assert no_worse("Q8_0", "Q2_K", "weights", EIGHT) and not no_worse("Q2_K", "Q8_0", "weights", EIGHT)
    assert not no_worse("hqq", "nf4", "weights", 500_000_000)  # nothing is published of either at this size


def test_a_star_needs_evidence_and_formats_list_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = "compare Qwen/Qwen3-8B --gpu 4090 -q none,Q2_K,awq --kv-cache-dtype auto,turboquant_3bit_nc"
    result = run(capsys, monkeypatch, *asked.split(), "--max-model-len", "8K", "--format", "json")
    rows = json.loads(result.out)["rows"]
    assert any(row["pareto"] for row in rows)
    assert not any(row["pareto"] for row in rows if row["cache_type"] == "turboquant_3bit_nc")
    listed = run(capsys, monkeypatch, "formats", "--evidence", "awq", "--format", "json")
    assert len(json.loads(listed.out)["rows"]) == 52
    unknown = run(capsys, monkeypatch, "formats", "--evidence", "awk")
    assert (unknown.status, unknown.err.count("\n")) == (2, 1)


def test_without_lists_compare_compares_what_people_compare(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a B200 with NVFP4, on a 4090 without, on llama.cpp the mixes; within 80 columns with prices."""
    for card, engine, expected in (
        ("b200", "vllm", {None, "fp8", "awq", "gptq", "nvfp4"}),
        ("4090", "vllm", {None, "fp8", "awq", "gptq"}),
        ("4090", "llama.cpp", {None, "Q8_0", "Q6_K", "Q5_K_M", "Q4_K_M", "Q3_K_M"}),
    ):
        asked = ("compare", "Qwen/Qwen3-8B", "--gpu", card, "--engine", engine, "--price", "2")
        rows = json.loads(run(capsys, monkeypatch, *asked, "--format", "json").out)["rows"]
        assert {row["weight_format"] for row in rows} == expected
        assert all(row["tokens_per_second_best"] for row in rows if row["verdict"] == "fits")
        text = run(capsys, monkeypatch, *asked).out
        assert "tok/s" in text and "$/M" in text and "kept" in text
        assert max(len(line) for line in text.splitlines()) <= 80
