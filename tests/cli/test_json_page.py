"""docs/json.md names every key that the commands print, and its example of a measured case is scored."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from pathlib import Path

import pytest

from planner import Deployment
from tests.cli.running import run

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "json.md").read_text()
CRASH = "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 23.64 GiB total capacity)"

Capture = pytest.CaptureFixture[str]
Patch = pytest.MonkeyPatch


def named(key: str) -> bool:
    return f"`{key}`" in PAGE


@pytest.mark.parametrize(
    "arguments",
    [
        ("serve", "Qwen/Qwen3-8B", "--gpu", "H100"),
        ("serve", "meta-llama/Llama-3.3-70B-Instruct", "--gpu", "L40S", "-tp", "2", "--goal", "gpus"),
        ("train", "Qwen/Qwen3-8B", "--gpu", "4090"),
        ("size", "Qwen/Qwen3-8B", "--gpu", "H100", "--users", "10"),
        ("compare", "Qwen/Qwen3-8B", "--gpu", "H100"),
        ("gpus", "h100"),
    ],
)
def test_every_key_at_the_top_is_described(arguments: tuple[str, ...], capsys: Capture, monkeypatch: Patch) -> None:
    got = run(capsys, monkeypatch, *arguments, "--format", "json")
    missing = [key for key in json.loads(got.out) if not named(key)]
    assert not missing


def test_every_key_of_a_finding_is_described(capsys: Capture, monkeypatch: Patch, tmp_path: Path) -> None:
    (tmp_path / "crash.log").write_text(CRASH)
    found = json.loads(run(capsys, monkeypatch, "diagnose", str(tmp_path / "crash.log"), "--format", "json").out)
    missing = [key for key in [*found, *found["findings"][0], *found["findings"][0]["actions"][0]] if not named(key)]
    assert not missing


def test_the_example_case_is_scored(capsys: Capture, monkeypatch: Patch, tmp_path: Path) -> None:
    (example,) = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "mine.jsonl").write_text(example)
    got = run(capsys, monkeypatch, "validate", "--cases", str(tmp_path / "mine.jsonl"), "--format", "json")
    assert {row["component"] for row in json.loads(got.out)["rows"]} >= {"weights", "kv_cache", "tokens"}


def test_the_deployment_has_every_input(capsys: Capture, monkeypatch: Patch) -> None:
    got = run(
        capsys, monkeypatch, "serve", "Qwen/Qwen2.5-VL-7B-Instruct", "--gpu", "H100", "--max-model-len", "8192",
        "--cpu-offload-gb", "4", "--enable-lora", "--max-loras", "4", "--max-lora-rank", "64", "--already-used", "5GiB",
        "--limit-mm-per-prompt", "image=1", "--format", "json",
    )  # fmt: skip
    document = json.loads(got.out)
    found = document["deployment"]
    assert set(found) == {field.name for field in fields(Deployment)} | {"weight_format"}
    asked = {
        "cpu_offload_bytes": 4 << 30, "max_loras": 4, "max_lora_rank": 64, "already_used_bytes": 5 << 30,
        "limit_images": 1, "gpu": "NVIDIA H100 80GB HBM3", "dtype": "bfloat16", "max_num_seqs": 1024,
        "gpu_memory_utilization": 0.9, "block_size": 16, "enable_prefix_caching": True, "swap_space_bytes": None,
    }  # fmt: skip
    assert {name: found[name] for name in asked} == asked
    assert any("5.00 GiB" in note and "--already-used" in note for note in document["notes"])
