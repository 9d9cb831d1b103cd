"""`vram-planner train`: exit status, JSON contract, and the other formats."""

from __future__ import annotations

import json
import subprocess
import sys

_BASE = ["train", "Qwen/Qwen2.5-0.5B", "--gpu", "4090"]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "planner.cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_json_contract() -> None:
    done = run(*_BASE, "--method", "qlora", "--lora-target-modules", "all-linear", "--format", "json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    for key in (
        "schema", "model", "recipe", "ranks", "peak", "phases", "largest_that_fits", "verdict", "shortfall_bytes",
        "levers", "plans", "notes",
    ):  # fmt: skip
        assert key in found
    assert set(found["peak"]) == {"allocated_bytes", "reserved_bytes", "device_bytes", "phase", "bands", "replayed"}
    assert set(found["largest_that_fits"]) >= {"per_device_train_batch_size", "max_seq_length", "lora_rank", "num_gpus"}
    assert found["recipe"]["base_quantization"] == "nf4"
    assert found["peak"]["allocated_bytes"] <= found["peak"]["reserved_bytes"] <= found["peak"]["device_bytes"]


def test_exit_status() -> None:
    assert run(*_BASE).returncode == 0
    too_long = run("train", "Qwen/Qwen2.5-7B-Instruct", "--gpu", "4090", "--method", "full", "--no-largest")
    assert too_long.returncode == 1
    assert too_long.stdout.startswith("does not fit")
    wrong = run(*_BASE, "--sharding", "zero2")
    assert wrong.returncode == 2
    assert wrong.stderr.count("\n") == 1


def test_other_formats() -> None:
    assert run(*_BASE, "--format", "csv").stdout.startswith("rank,component,low_bytes")
    assert "| phase" in run(*_BASE, "--format", "markdown", "--no-largest").stdout
    assert "source:" in run(*_BASE, "--explain", "--no-largest").stdout
