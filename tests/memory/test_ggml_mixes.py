"""GGUF sizes by the mix rules against what llama.cpp printed (sum of all tensors, MiB)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from planner.errors import UnsupportedQuantization
from planner.memory.ggml.mixes import ggml_mix, is_mix, mix_names, more_bits
from planner.memory.quantisation import scheme_from_name
from planner.model.load import load_model
from planner.model.tensor import Role, Tensor
from planner.model.tensors import tensors
from planner.units import MIB


@pytest.mark.parametrize(
    ("model", "mix", "printed_mib"),
    [
        ("meta-llama/Llama-3.1-8B-Instruct", "Q3_K_L", 4114.27),
        ("meta-llama/Llama-2-13b-hf", "Q5_K_M", 8801.63),
        ("microsoft/phi-4", "Q4_K_M", 8630.32),
        ("zai-org/GLM-Z1-32B-0414", "IQ4_XS", 16775.23),
        ("meta-llama/Llama-2-7b-hf", "Q4_K_M", 3891.25),
    ],
)
def test_printed_sizes(model: str, mix: str, printed_mib: float) -> None:
    spec = load_model(model).spec
    scheme = scheme_from_name(mix, spec)
    total = sum(scheme.format_of(tensor).bytes(tensor.shape, tensor.input_dim) for tensor in tensors(spec))
    assert abs(total / MIB - printed_mib) <= 0.02


def test_half_of_the_layers_get_more_bits() -> None:
    # 32 layers: 0-3, then 6, 9, ... 27 (every third after 4), then 28-31
    chosen = [layer for layer in range(32) if more_bits(layer, 32)]
    assert chosen == [0, 1, 2, 3, 6, 9, 12, 15, 18, 21, 24, 27, 28, 29, 30, 31]


def linear(name: str, width: int, role: Role = Role.ATTENTION) -> Tensor:
    return Tensor(f"model.layers.9.self_attn.{name}.weight", (256, width), role, linear=True)


@pytest.mark.parametrize(
    ("mix", "width", "expected"),
    [
        ("Q4_K_M", 896, "Q5_0"),  # 896 = 3.5 x 256
        ("Q5_K_M", 896, "Q5_1"),
        ("Q6_K", 896, "Q8_0"),
        ("Q3_K_S", 896, "Q4_0"),
        ("IQ4_XS", 896, "IQ4_NL"),
        ("Q4_K_M", 1000, "F16"),  # not divisible by 32 either
        ("Q8_0", 896, "Q8_0"),
    ],
)
def test_rows_that_the_block_does_not_divide(mix: str, width: int, expected: str) -> None:
    found, _ = ggml_mix(mix, load_model("meta-llama/Llama-2-7b-hf").spec)
    assert found.type_of(linear("q_proj", width)) == expected


def test_eight_experts_keep_attention_in_eight_bits() -> None:
    found, _ = ggml_mix("Q4_K_M", load_model("meta-llama/Llama-2-7b-hf").spec)
    mixtral = replace(found, experts=8)
    kinds = [mixtral.type_of(linear(name, 4096)) for name in ("q_proj", "k_proj", "v_proj", "o_proj")]
    assert kinds == ["Q4_K", "Q8_0", "Q8_0", "Q5_K"]


def test_vectors_and_routers_stay_in_f32() -> None:
    found, _ = ggml_mix("Q2_K", load_model("meta-llama/Llama-2-7b-hf").spec)
    assert found.type_of(Tensor("model.norm.weight", (4096,), Role.NORM)) == "F32"
    assert found.type_of(linear("gate", 4096, Role.ROUTER)) == "F32"


def test_names() -> None:
    assert is_mix("q4_k_m") and is_mix("Q4_K") and is_mix("gguf:IQ2_XXS") and not is_mix("awq")
    assert {"Q2_K", "Q3_K_S", "IQ3_XS", "MXFP4_MOE", "TQ1_0", "BF16"} <= set(mix_names())
    with pytest.raises(UnsupportedQuantization, match="Q4_K_M"):
        ggml_mix("Q4_K_X", load_model("meta-llama/Llama-2-7b-hf").spec)
