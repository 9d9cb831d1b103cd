"""Which tensors a quantization_config covers, in every dialect, and what the usual exports leave alone."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace

import pytest

from planner.errors import ConfigError, UnsupportedQuantization
from planner.memory.exports import EXPORTS
from planner.memory.module_names import module_patterns
from planner.memory.quantisation import WeightScheme, plain_scheme, scheme_from_config, scheme_from_name
from planner.model.load import load_model
from planner.model.spec import ModelSpec
from planner.model.tensor import Role, Tensor
from planner.model.tensors import tensors

GROUP = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128, "symmetric": True}


def linear(name: str, role: Role = Role.ATTENTION, experts: int = 0) -> Tensor:
    shape = (experts, 256, 256) if experts else (256, 256)
    return Tensor(f"{name}.weight" if not experts else name, shape, role, linear=True, num_experts=experts)


QUERY = linear("model.layers.3.self_attn.q_proj")
FUSED = linear("model.layers.3.self_attn.qkv_proj")
GATE = linear("model.layers.3.mlp.gate_proj", Role.MLP)
DOWN = linear("model.layers.10.mlp.down_proj", Role.MLP)
EXPERTS = linear("model.layers.3.mlp.experts.gate_up_proj", Role.EXPERT, 8)
SHARED = linear("model.layers.3.mlp.shared_experts.up_proj", Role.SHARED_EXPERT)
ROUTER = linear("model.layers.3.mlp.gate", Role.ROUTER)
HEAD = linear("lm_head", Role.LM_HEAD)
TOWER = linear("visual.blocks.0.attn.qkv", Role.VISION)
ALL = {
    "query": QUERY, "fused": FUSED, "gate": GATE, "down": DOWN, "experts": EXPERTS, "shared": SHARED,
    "router": ROUTER, "head": HEAD, "tower": TOWER,
}  # fmt: skip


@pytest.fixture(scope="module")
def spec() -> ModelSpec:
    return load_model("meta-llama/Llama-3.1-8B-Instruct").spec


def read(spec: ModelSpec, config: Mapping[str, object]) -> WeightScheme:
    return scheme_from_config(replace(spec, quantization_config=config))


def plain_ones(scheme: WeightScheme) -> set[str]:
    return {name for name, tensor in ALL.items() if scheme.format_of(tensor) == scheme.plain}


NEVER = {"router", "head"}


@pytest.mark.parametrize(
    ("config", "label", "plain"),
    [
        ({"quant_method": "gptq", "bits": 4, "group_size": 128}, "gptq_4bit g128", NEVER | {"tower"}),
        ({"quant_method": "gptq", "bits": 8, "group_size": -1, "desc_act": True, "lm_head": True},
         "gptq_8bit per channel desc_act", {"router", "tower"}),
        ({"quant_method": "gptq", "bits": 4, "group_size": 64, "dynamic": {"-:.*shared_experts.*": {}}},
         "gptq_4bit g64", NEVER | {"tower", "shared"}),
        ({"quant_method": "awq", "bits": 4, "group_size": 64, "modules_to_not_convert": ["self_attn.q_proj"]},
         "awq_4bit g64", NEVER | {"tower", "query", "fused"}),
        ({"quant_method": "fp8", "weight_block_size": [128, 128], "modules_to_not_convert": ["model.visual", "visual"]},
         "fp8_block", NEVER | {"tower"}),
        ({"quant_method": "fp8", "ignored_layers": ["model.layers.1", "re:.*mlp\\.gate_proj"]}, "fp8",
         NEVER | {"gate"}),
        ({"quant_method": "fbgemm_fp8", "modules_to_not_convert": ["model.layers.3.self_attn"]}, "fbgemm fp8",
         NEVER | {"query", "fused"}),
        ({"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn", "lm_head"]}, "mxfp4",
         set(ALL) - {"experts"}),
        ({"quant_method": "compressed-tensors", "format": "pack-quantized", "ignore": ["lm_head", "re:visual.*"],
          "config_groups": {"group_0": {"targets": ["Linear"], "weights": GROUP}}},
         "compressed-tensors w4a16 g128", NEVER | {"tower"}),
        ({"quant_method": "compressed-tensors", "format": "pack-quantized",
          "config_groups": {"group_0": {"targets": ["re:.*experts.0.gate_proj.*"], "weights": GROUP}}},
         "compressed-tensors w4a16 g128", set(ALL) - {"experts"}),
        ({"quantization": {"quant_algo": "NVFP4", "exclude_modules": ["lm_head", "model.layers.3.mlp.shared*"]}},
         "modelopt nvfp4", NEVER | {"shared"}),
        ({"quant_method": "modelopt", "producer": {"name": "modelopt"}, "quant_algo": "MIXED_PRECISION",
          "quantized_layers": {
              "lm_head": {"quant_algo": "FP8"},
              **{f"model.language_model.layers.{n}.block_sparse_moe.experts": {"quant_algo": "NVFP4"}
                 for n in range(32)}}},
         "modelopt fp8 + nvfp4", set(ALL) - {"head", "experts"}),
        ({"load_in_4bit": True, "bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": True,
          "llm_int8_skip_modules": ["lm_head", "visual", "model.layers.10.mlp"]}, "bnb_nf4_dq",
         NEVER | {"tower", "down"}),
        ({"quant_method": "quark", "exclude": ["lm_head", "*self_attn*"],
          "global_quant_config": {"weight": {"dtype": "fp8_e4m3", "qscheme": "per_tensor"}}},
         "quark fp8", NEVER | {"query", "fused"}),
        ({"quant_method": "auto-round", "bits": 4, "group_size": 128,
          "extra_config": {"model.layers.3.mlp.gate_proj": {"bits": 16}}},
         "auto-round 4-bit g128", NEVER | {"tower", "gate"}),
        ({"quant_method": "torchao", "quant_type": "int4_weight_only", "quant_type_kwargs": {"group_size": 64}},
         "torchao torchao_int4 g64", NEVER | {"tower"}),
        ({"quant_method": "hqq", "quant_config": {"weight_quant_params": {"nbits": 4, "group_size": 64}}},
         "hqq_4bit g64", NEVER | {"tower"}),
        ({"quant_method": "exl2", "bits": 4.25}, "exl2 4.25bpw", {"router", "tower"}),
    ],
)  # fmt: skip
def test_dialects(spec: ModelSpec, config: Mapping[str, object], label: str, plain: set[str]) -> None:
    scheme = read(spec, config)
    assert (scheme.label, plain_ones(scheme)) == (label, plain)
    assert hash(scheme) == hash(read(spec, config))


@pytest.mark.parametrize(
    ("config", "field"),
    [
        ({"quant_method": "ternary"}, "quant_method"),
        ({}, "quant_method"),
        ({"quant_method": "gptq", "bits": 5}, "bits"),
        ({"quant_method": "awq", "group_size": -7}, "group_size"),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf5"}, "bnb_4bit_quant_type"),
        ({"quant_method": "compressed-tensors"}, "config_groups"),
        ({"quantization": {"quant_algo": "FP3"}}, "quant_algo"),
        ({"quant_method": "fp8", "ignore": ["re:(a+)+b"]}, "modules_to_not_convert"),
        ({"quant_method": "fp8", "ignore": ["re:("]}, "modules_to_not_convert"),
        ({"quant_method": "torchao", "quant_type": "autoquant"}, "quant_type"),
    ],
)
def test_what_is_not_understood_names_its_field(spec: ModelSpec, config: Mapping[str, object], field: str) -> None:
    with pytest.raises(UnsupportedQuantization) as caught:
        read(spec, config)
    assert caught.value.field == field


def test_a_list_that_was_cut_short_is_refused(spec: ModelSpec) -> None:
    listed = {f"model.layers.{layer}.self_attn.q_proj": {"quant_algo": "FP8"} for layer in range(6)}
    config = {"producer": {"name": "modelopt"}, "quant_algo": "MIXED_PRECISION", "quantized_layers": listed}
    with pytest.raises(UnsupportedQuantization, match="6 of 32"):
        read(spec, config)


def test_wrong_types_are_config_errors(spec: ModelSpec) -> None:
    with pytest.raises(ConfigError, match="bits"):
        read(spec, {"quant_method": "gptq", "bits": "four"})


def test_patterns() -> None:
    def fits(pattern: str, name: str) -> bool:
        return module_patterns([pattern], where="ignore").match(name)

    assert fits("model.layers.1", "model.layers.1.mlp.up_proj.weight")
    assert not fits("model.layers.1", "model.layers.10.mlp.up_proj.weight")
    assert fits("language_model.model.layers.1.mlp", "model.language_model.layers.1.mlp.up_proj.weight")
    assert not fits("mlp.gate", "model.layers.1.mlp.gate_proj.weight")
    assert fits("model.layers.*.self_attn", "model.layers.7.self_attn.q_proj.weight")
    assert fits("*.mlp.shared_expert.*", "model.layers.7.mlp.shared_expert.up_proj.weight")
    assert fits("re:.*w3.*", "model.layers.7.block_sparse_moe.experts.gate_up_proj")
    assert fits("*.attn.*", "model.layers.7.self_attn.q_proj.weight")
    assert fits("layers.0.ffn.experts", "model.layers.0.mlp.experts.down_proj")
    assert not fits("model.layers.0.self_attn", "visual.layers.0.self_attn.q_proj.weight")


def test_exports_state_what_they_leave(spec: ModelSpec) -> None:
    for name in EXPORTS:
        scheme = scheme_from_name(name, spec)
        assert plain_ones(scheme) >= NEVER | {"tower"}, name
        assert scheme.notes and "lm_head" in " ".join(scheme.notes), name
    assert "head" not in plain_ones(scheme_from_name("awq", spec, quantize_lm_head=True))


def test_group_size_is_a_choice_where_there_are_groups(spec: ModelSpec) -> None:
    # 256 x 256 x 4 bits + 8 groups x 256 x 2 B + 8 x 32 x 4 B
    assert scheme_from_name("awq", spec, group_size=32).format_of(QUERY).bytes((256, 256)) == 32768 + 4096 + 1024
    for name in ("fp8", "Q4_K_M"):
        with pytest.raises(UnsupportedQuantization, match="group"):
            scheme_from_name(name, spec, group_size=32)


def test_names_that_are_not_known(spec: ModelSpec) -> None:
    with pytest.raises(UnsupportedQuantization, match="awq"):
        scheme_from_name("q17", spec)


def test_plain_scheme_honours_a_tensors_own_type() -> None:
    scheme = plain_scheme("float16")
    assert scheme.format_of(QUERY).bytes((4, 4)) == 32
    assert scheme.format_of(replace(QUERY, dtype="float32")).bytes((4, 4)) == 64
    assert scheme.same_for_every_layer


def test_a_long_list_of_exceptions_is_read_quickly(spec: ModelSpec) -> None:
    names = [f"model.layers.{layer}.{part}" for layer in range(200) for part in ("a_norm", "mlp.gate", "self_attn*")]
    everything = list(tensors(load_model("meta-llama/Llama-3.1-405B-Instruct").spec))
    start = time.perf_counter()
    scheme = read(spec, {"quant_method": "fp8", "modules_to_not_convert": names})
    for tensor in everything:
        scheme.format_of(tensor)
    assert time.perf_counter() - start < 0.2  # 10 to 20 ms on an idle core
