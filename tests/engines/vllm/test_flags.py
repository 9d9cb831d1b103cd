"""Every flag of vLLM is an input, or the table says what memory depends on it; no list, no claim of harmlessness."""

from __future__ import annotations

import csv
from importlib.resources import files

import pytest

from planner import Deployment, find_gpu, load_model, plan_serving
from planner.contract.inputs import inputs_of
from planner.engines.vllm.tables.flags import vllm_flags

TABLES = files("planner.engines.vllm.tables")
INPUTS = {spelling: one.option.memory for one in inputs_of(Deployment) for spelling in one.spellings}


def rows(name: str) -> list[dict[str, str]]:
    return list(csv.DictReader(TABLES.joinpath(name).read_text("utf-8").splitlines()))


def notes(*words: str, version: str = "0.33.0") -> tuple[str, ...]:
    deployment = Deployment(gpu=find_gpu("H100"), engine_version=version, max_model_len=8192, passed=words)
    return plan_serving(load_model("Qwen/Qwen3-8B"), deployment).notes


def test_every_flag_is_classified_and_what_it_changes_is_said() -> None:
    said = {row["flag"]: row["what"] for row in rows("flags_memory.csv")}
    assert all(said.values())
    touching = set()
    for row in rows("flags.csv"):
        assert row["memory"] in ("card", "host", "none", "unknown"), row
        if row["flag"] in INPUTS:
            assert row["memory"] == INPUTS[row["flag"]], row
        elif row["memory"] in ("card", "host"):
            touching.add(row["flag"])
    assert touching == set(said)


@pytest.mark.parametrize(
    ("flag", "value", "words"),
    [
        # host memory (config/cache.py kv_offloading_size, config/multimodal.py, config/lora.py of 0.33.0)
        ("--kv-offloading-size", "4", "host memory depends on it"),
        ("--mm-processor-cache-gb", "8", "host memory depends on it"),
        ("--max-cpu-loras", "8", "host memory depends on it"),
        # memory of the card
        ("--mm-ipc-gpu-memory-gb", "2", "though memory may depend on it"),
        ("--moe-backend", "triton", "though memory may depend on it"),
        # nobody has looked
        ("--watermark", "0.1", "not known whether memory depends on it"),
        ("--sparse-indexer-topk-backend", "x", "not known whether memory depends on it"),
        ("--api-key", "x", "no effect on memory here"),
        ("--port", "80", "no effect on memory here"),
    ],
)
def test_a_flag_is_noted_by_what_depends_on_it(flag: str, value: str, words: str) -> None:
    (note,) = [note for note in notes(flag, value) if flag in note]
    assert words in note


def test_only_what_the_table_says_is_called_harmless() -> None:
    flags = [
        name
        for name, flag in vllm_flags().items()
        if name not in INPUTS and flag.memory != "none" and flag.takes == "switch" and not flag.last_seen
    ]
    assert len(flags) > 20
    assert not any("no effect on memory" in note for note in notes(*flags))


def test_the_buffers_of_a_connector_are_said_not_to_be_planned() -> None:
    deployment = Deployment(gpu=find_gpu("H100"), max_model_len=8192, kv_transfer_config='{"kv_connector": "x"}')
    found = plan_serving(load_model("Qwen/Qwen3-8B"), deployment).notes
    assert any("--kv-transfer-config" in note and "not planned" in note for note in found)
