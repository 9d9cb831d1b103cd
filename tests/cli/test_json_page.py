"""docs/json.md names every key that the commands print, and its example of a measured case is scored."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path

import pytest

from planner import Deployment
from planner.contract.inputs import inputs_of
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


def section(name: str) -> str:
    """The part of the page under the heading of a command."""
    found = re.search(rf"^## `{re.escape(name)}`\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert found is not None, f"no section for {name}"
    return found[1]


def undescribed(keys: Iterable[str], name: str) -> list[str]:
    return [key for key in dict.fromkeys(keys) if f"`{key}`" not in section(name)]


ROWS = [
    ("size", ("Qwen/Qwen3-8B", "--gpu", "H100", "--gpu", "T4", "--users", "10", "--price", "2")),
    ("compare", ("Qwen/Qwen3-8B", "--gpu", "H100", "-q", "none,fp8")),
    ("gpus", ("h100",)),
    ("gpus", ("apple",)),
    ("models", ("qwen3-8b",)),
    ("formats", ()),
    ("formats", ("Qwen/Qwen3-8B",)),
    ("validate", ()),
    ("validate", ("--by", "model")),
    ("validate", ("--by", "version")),
    ("validate", ("--by", "gpu")),
]


@pytest.mark.parametrize(("command", "arguments"), ROWS, ids=lambda value: "-".join(value) or "alone")
def test_every_field_of_a_row_is_described_in_the_commands_own_section(
    command: str, arguments: tuple[str, ...], capsys: Capture, monkeypatch: Patch
) -> None:
    found = json.loads(run(capsys, monkeypatch, command, *arguments, "--format", "json").out)
    assert found["rows"]
    assert not undescribed(found, command)
    for part in ("rows", "rejected", "unscored"):
        assert not undescribed((key for row in found.get(part, ()) for key in row), command)


def test_components_and_modes_of_validate_are_described(capsys: Capture, monkeypatch: Patch) -> None:
    found = json.loads(run(capsys, monkeypatch, "validate", "--format", "json").out)
    assert not undescribed((row["component"] for row in found["rows"]), "validate")
    assert not undescribed((row["mode"] for row in [*found["rows"], *found["unscored"]]), "validate")


LOG = """\
INFO 10-02 12:00:20 [core.py:77] Initializing a V1 LLM engine (v0.19.0) with config: model='Qwen/Qwen3-8B', \
max_seq_len=8192
(Worker_TP0 pid=1) INFO 10-02 12:00:40 [gpu_model_runner.py:3600] Model loading took 15.27 GiB memory and 3.2 seconds
(Worker_TP1 pid=2) INFO 10-02 12:00:40 [gpu_model_runner.py:3600] Model loading took 15.28 GiB memory and 3.2 seconds
INFO 10-02 12:01:10 [gpu_worker.py:298] Available KV cache memory: 53.54 GiB
ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing the \
engine.
"""


def test_every_key_of_a_log_is_described_and_its_case_is_one(
    capsys: Capture, monkeypatch: Patch, tmp_path: Path
) -> None:
    path = tmp_path / "serve.log"
    path.write_text(LOG)
    found = json.loads(
        run(capsys, monkeypatch, "validate", "--log", str(path), "--gpu", "H100", "--format", "json").out
    )
    name = "validate --log"
    assert not undescribed((key for key in found if key != "schema"), name)
    for part in (found["query"], found["errors"][0], found["rows"][0]):
        assert not undescribed(part, name)
    assert set(found["by_rank"]) == {"weights_gib"}
    assert found["case"]["deployment"]["gpu"] == "H100"
    (tmp_path / "mine.jsonl").write_text(json.dumps(found["case"]))
    scored = run(capsys, monkeypatch, "validate", "--cases", str(tmp_path / "mine.jsonl"), "--format", "json")
    assert {row["component"] for row in json.loads(scored.out)["rows"]} >= {"weights", "kv_cache"}


def test_a_log_without_a_card_gives_a_case_without_one(capsys: Capture, monkeypatch: Patch, tmp_path: Path) -> None:
    """As the page says: the card has to be named."""
    path = tmp_path / "serve.log"
    path.write_text(LOG)
    found = json.loads(run(capsys, monkeypatch, "validate", "--log", str(path), "--format", "json").out)
    assert "gpu" not in found["case"]["deployment"]
    assert [row["figure"] for row in found["rows"]] == ["weights"]
    assert found["not_compared"] == ["command line: not known: total memory"]


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
    declared = {one.name for one in inputs_of(Deployment)}
    assert set(found) == declared | {"engine", "concurrency", "other_options", "weight_format"}
    asked = {
        "cpu_offload_bytes": 4 << 30, "max_loras": 4, "max_lora_rank": 64, "already_used_bytes": 5 << 30,
        "limit_mm_per_prompt": '{"image": 1}', "gpu": "NVIDIA H100 80GB HBM3", "dtype": "bfloat16",
        "max_num_seqs": 1024, "gpu_memory_utilization": 0.92, "block_size": 16, "enable_prefix_caching": True,
        "swap_space_bytes": None,
    }  # fmt: skip
    assert {name: found[name] for name in asked} == asked
    assert any("5.00 GiB" in note and "--already-used" in note for note in document["notes"])
