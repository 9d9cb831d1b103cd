"""Faults of serving plans once found by hand, each as its whole kind."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from planner import find_gpu, load_model
from planner.contract.engine import find_engine
from planner.contract.workload import Workload
from planner.validation.cases import Case
from planner.validation.starts import Start, read_start
from tests.cli.running import Run, run

LLAMA = "meta-llama/Llama-3.1-8B-Instruct"
SMALL = {
    "model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
    "num_attention_heads": 4, "vocab_size": 1000, "max_position_embeddings": 2048, "torch_dtype": "bfloat16",
}  # fmt: skip


@pytest.fixture
def ask(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Run]:
    return lambda *words: run(capsys, monkeypatch, *words)


def asked(ask: Callable[..., Run], *words: str) -> dict[str, Any]:
    return dict(json.loads(ask(*words, "--format", "json").out))


# One threshold for "it fits": levers, sets, goals and the largest accept what the exit status accepts


def test_the_fewest_gpus_of_a_fine_tune_and_its_lever_agree(ask: Callable[..., Run]) -> None:
    found = asked(
        ask, "train", "meta-llama/Llama-3.1-8B", "--gpu", "A100-80GB", "--method", "full", "--num-gpus", "8",
        "--sharding", "fsdp", "--max-seq-length", "8192",
    )  # fmt: skip
    (lever,) = [one for one in found["levers"] if one["name"] == "num-gpus"]
    assert lever["flag"].split()[1] == str(found["largest_that_fits"]["num_gpus"])
    assert lever["verdict"] in ("fits", "tight") and lever["fits_alone"]


def test_a_plan_that_the_exit_status_accepts_is_proposed(ask: Callable[..., Run]) -> None:
    """Four cards at 0.9 are tight, which is accepted: no eight cards, no lower fraction."""
    words = ("serve", "Qwen/Qwen3-32B", "--gpu", "4090")
    flags = {lever["flag"] for one in asked(ask, *words)["plans"] for lever in one["levers"]}
    assert "--tensor-parallel-size 4" in flags and "--tensor-parallel-size 8" not in flags
    assert ask(*words, "-tp", "4").status == 0
    assert ask(*words, "-tp", "4", "--accept", "fits").status == 1
    strict = asked(ask, *words, "--accept", "fits")
    assert {one["verdict"] for one in strict["plans"]} == {"fits"}


# Labels that promise no more than the number


@pytest.mark.parametrize(
    ("words", "positions"),
    [
        ((LLAMA, "--gpu", "H200", "--max-model-len", "8192"), 131_072),
        (("meta-llama/Llama-3.2-1B", "--gpu", "H100", "--engine", "transformers"), 131_072),
        (("Qwen/Qwen3-0.6B", "--gpu", "H100"), 40_960),
    ],
)
def test_no_context_is_longer_than_the_models_positions(
    ask: Callable[..., Run], words: tuple[str, ...], positions: int
) -> None:
    found = asked(ask, "serve", *words)
    assert found["kv_cache"]["max_model_len_that_fits"] == positions
    assert found.get("largest_that_fits", {}).get("input_len", positions) <= positions


def test_sizing_says_what_it_assumed(ask: Callable[..., Run]) -> None:
    words = ("size", LLAMA, "--users", "10", "--gpu", "H100")
    for text in (ask(*words).out, " ".join(asked(ask, *words)["notes"])):
        said = " ".join(text.split())
        assert "1024 tokens in and 256 out" in said and "with a request running all the time" in said
        assert "the time to the first token is the prefill alone" in said


# Options of one engine are not swallowed by another


@pytest.mark.parametrize(
    ("engine", "words", "message"),
    [
        ("transformers", ("--safety-margin", "70GiB"), "it is an option of --engine"),
        ("transformers", ("--instances", "8"), "it is an option of --engine"),
        ("transformers", ("-tp", "8"), "it is an option of --engine"),
        ("transformers", ("--nonsense-flag", "3"), "no such option: --nonsense-flag"),
        ("transformers", ("--engine-version", "banana"), "--engine-version"),
        ("transformers", ("--cache-implementation", "banana"), "--cache-implementation is 'banana'"),
        ("vllm", ("--cache-implementation", "banana"), "it is an option of --engine transformers"),
        ("vllm", ("--attn-implementation", "sdpa"), "it is an option of --engine transformers"),
    ],
)
def test_an_option_of_another_engine_is_refused(
    ask: Callable[..., Run], engine: str, words: tuple[str, ...], message: str
) -> None:
    result = ask("serve", "Qwen/Qwen3-0.6B", "--engine", engine, "--gpu", "H100", *words)
    assert (result.status, result.out, result.err.count("\n")) == (2, "", 1)
    assert message in result.err


@pytest.mark.parametrize("used", ["9.9GiB", "9.95GiB"])
def test_what_others_hold_counts_with_every_engine(ask: Callable[..., Run], tmp_path: Path, used: str) -> None:
    (tmp_path / "config.json").write_text(json.dumps(SMALL))
    words = ("serve", str(tmp_path), "--gpu-memory", "10GiB", "--max-model-len", "64")
    for engine in ("transformers", "vllm"):
        assert ask(*words, "--engine", engine).status == 0
        assert asked(ask, *words, "--engine", engine, "--already-used", used)["verdict"] == "does_not_fit"


# What a measured case can say, a command line can say, and both mean the same


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (
            {"kv_transfer_config": '{"kv_connector": "NixlConnector"}'},
            ("--kv-transfer-config", '{"kv_connector": "NixlConnector"}'),
        ),
        ({"disable_hybrid_kv_cache_manager": True}, ("--disable-hybrid-kv-cache-manager",)),
        ({"block_size": 32, "enable_lora": True}, ("--block-size", "32", "--enable-lora")),
        ({"cpu_offload_gb": 4}, ("--cpu-offload-gb", "4")),
    ],
)
def test_a_case_and_a_command_make_one_plan(
    ask: Callable[..., Run], flags: dict[str, Any], words: tuple[str, ...]
) -> None:
    name = "google/gemma-3-12b-it"
    deployment = {"engine_version": "0.19.0", "gpu": "H100", "max_model_len": 8192, "gpu_memory_utilization": 0.9}
    case = Case(id="x", source="", model=name, config=name, quality="A", deployment=deployment | {"other_flags": flags})
    start = read_start(case)
    assert isinstance(start, Start) and not start.unread
    found = asked(ask, "serve", name, "--gpu", "H100", "--engine-version", "0.19.0", "--max-model-len", "8192", *words)
    assert found["budget"]["kv_cache_bytes"] == start.plan().kv_cache_bytes
    assert found["kv_cache"]["tokens"] == start.plan().kv_tokens
    assert found["kv_cache"]["max_concurrency"] == round(start.plan().max_concurrency, 2)
    plain = find_engine("vllm").Deployment(gpu=find_gpu("H100"), max_model_len=8192)
    alone = find_engine("vllm").plan(load_model(name), plain, Workload())
    assert (alone.cache, alone.devices) != (start.plan().cache, start.plan().devices)
