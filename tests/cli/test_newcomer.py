"""What a newcomer types first: no command, -h, lengths with a suffix, half a name."""

from __future__ import annotations

import json
import math
import re

import pytest

from planner.engines.vllm.outcome.tightness import why_tight
from planner.units import format_size
from tests.cli.running import run

Capture = pytest.CaptureFixture[str]
Patch = pytest.MonkeyPatch


@pytest.mark.parametrize("arguments", [(), ("probe",)])
def test_without_a_command_the_help_keeps_its_lines(
    arguments: tuple[str, ...], capsys: Capture, monkeypatch: Patch
) -> None:
    got = run(capsys, monkeypatch, *arguments)
    assert (got.status, got.err) == (2, "")
    assert got.out.startswith("Usage: vram-planner")
    assert "\n  serve " in got.out


@pytest.mark.parametrize("arguments", [("-h",), ("serve", "-h"), ("explain", "-h"), ("train", "-h"), ("probe", "-h")])
def test_h_is_help(arguments: tuple[str, ...], capsys: Capture, monkeypatch: Patch) -> None:
    got = run(capsys, monkeypatch, *arguments)
    assert got.status == 0
    assert got.out.startswith("Usage: vram-planner")


def test_a_length_of_training_has_the_same_suffixes(capsys: Capture, monkeypatch: Patch) -> None:
    common = ("train", "Qwen/Qwen3-8B", "--gpu", "H100", "--no-largest", "--format", "json", "--max-seq-length")
    for text, tokens in (("4K", 4096), ("4k", 4000), ("512", 512)):
        assert json.loads(run(capsys, monkeypatch, *common, text).out)["recipe"]["max_seq_length"] == tokens
    for wrong in ("4x", "0", "-1"):
        got = run(capsys, monkeypatch, *common, wrong)
        assert got.status == 2
        assert "max-seq-length" in got.err


def test_half_a_name_finds_its_family(capsys: Capture, monkeypatch: Patch) -> None:
    got = run(capsys, monkeypatch, "serve", "qwen3-30b", "--gpu", "H100")
    assert got.status == 2
    assert re.search(r"nearest bundled model: Qwen/Qwen3-\S+$", got.err.strip())


def test_a_tight_plan_says_why(capsys: Capture, monkeypatch: Patch) -> None:
    options = ("--gpu", "4090", "--max-model-len", "16K", "--gpu-memory-utilization", "0.93", "--format", "json")
    options += ("--engine-version", "0.19.0")
    found = json.loads(run(capsys, monkeypatch, "serve", "Qwen/Qwen3-8B", *options).out)
    assert found["verdict"] == "tight"
    outside = ("context", "communicators", "cuda_graphs", "post_profile")
    room = found["deployment"]["gpu_memory_bytes"] - found["budget"]["requested_bytes"]
    parts = [part for part in found["ranks"][0]["components"] if part["name"] in outside]
    # high ends of independent terms do not all come together: their spreads are added in quadrature
    spread = math.isqrt(sum((part["high"] - part["best"]) ** 2 for part in parts))
    lacking = sum(part["best"] for part in parts) + spread - room
    assert lacking > 0
    size = format_size(lacking)
    assert f"tight: with every term at its high end what lives outside the fraction lacks {size}" in found["notes"]


def test_both_reasons_are_said() -> None:
    said = why_tight(-512 * 1024**2, requests=7, wanted=8)
    assert said.endswith("the cache holds 7 of 8 requests and what lives outside the fraction lacks 512.0 MiB")


def test_the_columns_of_a_training_plan_add_up(capsys: Capture, monkeypatch: Patch) -> None:
    options = ("--gpu", "4090", "--method", "qlora", "--no-largest", "--format", "json")
    found = json.loads(run(capsys, monkeypatch, "train", "meta-llama/Llama-3.1-8B", *options).out)
    for side in ("low", "best", "high"):
        total = sum(part[side] for part in found["ranks"][0]["components"])
        assert abs(total - found["needed"][f"{side}_bytes"]) <= 1  # one rounding down of the share
