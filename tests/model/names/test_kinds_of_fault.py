"""Names that once misled the planner: of every kind one that was reported and one of the same kind elsewhere."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from planner import Deployment, find_gpu, load_model, plan_serving
from planner.engines.vllm.engine import VLLM
from planner.errors import SourceError
from planner.memory.quantisation import scheme_from_config
from planner.model.model import Model
from planner.model.names.bundled import bundled_config
from planner.model.names.resolve import nearest_to
from planner.model.tensors import draft_tensors, tensors
from planner.units import GIB


def stored_bytes(model: Model) -> int:
    scheme = scheme_from_config(model.spec)
    return sum(scheme.format_of(t).bytes(t.shape, t.input_dim) for t in tensors(model.spec) if not t.buffer)


@pytest.mark.parametrize(
    ("name", "base"),
    [
        ("mlx-community/Qwen3-8B-4bit", "Qwen/Qwen3-8B"),  # reported: pixtral-12b was proposed
        ("mlx-community/Mistral-Small-24B-Instruct-2501-6bit", "mistralai/Mistral-Small-24B-Instruct-2501"),
        ("llama3.1", "meta-llama/Llama-3.1-8B-Instruct"),  # reported: Llama-3.2-1B was proposed
        ("qwen3:32b", "Qwen/Qwen3-32B"),
    ],
)
def test_a_name_is_read_by_rule_and_says_so(name: str, base: str) -> None:
    model = load_model(name)
    assert model.base == base
    assert model.spec.assumed
    assert "read" in model.notes[0]


def test_where_no_rule_holds_the_nearest_is_nearest_by_base_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    for name, near in (
        ("someone/Qwen3-8B-Zebra-4bit", "Qwen/Qwen3-8B"),
        ("someone/phi-4-Zebra-AWQ", "microsoft/phi-4"),
    ):
        with pytest.raises(SourceError, match=near):
            load_model(name)
        assert near in nearest_to(name)


@pytest.mark.parametrize(
    ("name", "label", "cache"),
    [
        ("Qwen/Qwen2.5-3B-Instruct-GPTQ-Int8", "gptq_8bit g128", None),
        ("JunHowie/Qwen3-14B-GPTQ-Int8", "gptq_8bit g128", None),
        ("unsloth/gemma-2-9b-it-bnb-4bit", "bnb_nf4_dq", None),
        ("unsloth/Qwen3-32B-bnb-4bit", "bnb_nf4_dq", None),
        ("Qwen/Qwen3-4B-Instruct-2507-FP8", "fp8_block", None),
        ("RedHatAI/Qwen3-4B-FP8-dynamic", "compressed-tensors fp8_channel16", None),
        ("nvidia/Llama-3.1-70B-Instruct-NVFP4", "modelopt nvfp4", "fp8"),
        ("nvidia/Qwen3-32B-FP8", "modelopt fp8", "fp8"),
    ],
)
def test_the_format_is_the_exports(name: str, label: str, cache: str | None) -> None:
    spec = load_model(name).spec
    assert (scheme_from_config(spec).label, spec.stated_kv_cache_dtype) == (label, cache)


@pytest.mark.parametrize(
    ("name", "key", "text"),
    [
        ("nvidia/NVIDIA-Nemotron-Nano-9B-v2", "time_step_limit", "[0.0, Infinity]"),
        ("ibm-granite/granite-4.0-h-tiny", "time_step_limit", "[NaN, -Infinity]"),
    ],
)
def test_infinity_in_a_config_is_read(tmp_path: Path, name: str, key: str, text: str) -> None:
    written = json.dumps(bundled_config(name)).removesuffix("}") + f', "{key}": {text}}}'
    path = tmp_path / "released.json"
    path.write_text(written)
    assert load_model(path).parameters == load_model(name).parameters


@pytest.mark.parametrize(("name", "ways"), [("deepseek-ai/DeepSeek-V3", 8), ("deepseek-ai/DeepSeek-V3.1", 4)])
def test_an_export_of_a_release_in_fp8_is_planned_on_the_plain_shape(name: str, ways: int) -> None:
    model = load_model(name)
    asked = Deployment(
        gpu=find_gpu("H200"), tensor_parallel_size=ways, quantization="awq", engine_version="0.19.0", max_model_len=8192
    )
    plan = VLLM.plan(model, asked)
    # 4 bits, a 16-bit scale and 4 bits of zero point for 128: 4.16 bits of 671 billion, embedding and head in 16
    weights = plan.budget.weights
    held = (weights.total_bytes - weights.rounding_bytes) * ways  # what the allocator rounds away is another matter
    assert abs(held / (model.parameters * 4.156 / 8) - 1) < 0.03
    assert any("unquantised" in note for note in plan.notes)


@pytest.mark.parametrize(
    ("name", "size", "spread"),
    [
        ("Qwen/Qwen3.5-27B-GPTQ-Int4", 30_235_043_808, 0),  # the MLP alone is quantised
        ("QuantTrio/Qwen3.5-27B-AWQ", 21_852_854_240, 360),  # no set of whole kinds: a band
        ("QuantTrio/Qwen3.5-9B-AWQ", 12_376_374_240, 360),
    ],
)
def test_exports_that_keep_whole_kinds_of_block(name: str, size: int, spread: int) -> None:
    """The bytes that the files' indexes state, drafts included."""
    model = load_model(name)
    scheme = scheme_from_config(model.spec)
    below, above = scheme.spread
    found = stored_bytes(model) + sum(
        scheme.format_of(t).bytes(t.shape, t.input_dim) for t in draft_tensors(model.spec)
    )
    assert above == spread
    assert found * (0.9999 - below / 1000) <= size <= found * (1.0001 + above / 1000)
    kept = [t for t in tensors(model.spec) if "self_attn" in t.name and t.linear]
    assert {scheme.format_of(t).name for t in kept} == {"bfloat16"}


def test_padding_and_second_heads() -> None:
    # 80 layers x 3 x 8,192 x 128 more elements
    for name in ("Qwen/Qwen2-72B-Instruct-GPTQ-Int8", "Qwen/Qwen2.5-72B-Instruct-AWQ"):
        assert load_model(name).parameters - load_model("Qwen/Qwen2.5-72B").parameters == 251_658_240
    # a second output matrix is in the file and not loaded: Qwen2.5-1.5B-Instruct-AWQ printed 1.10 GiB, 1.50 with it
    for name, printed in (("Qwen/Qwen2.5-1.5B-Instruct-AWQ", 1.10),):
        plan = plan_serving(load_model(name), Deployment(gpu=find_gpu("H100"), engine_version="0.10.2"))
        weights = plan.budget.component("weights")
        assert weights is not None and abs(weights.best / GIB - printed) < 0.03
