"""What vLLM holds after loading, where it differs from the file."""

from __future__ import annotations

from dataclasses import replace

import pytest

from planner.engines.vllm.model.storage import as_loaded
from planner.errors import UnsupportedQuantization
from planner.memory.parallel.sharding import Parallelism
from planner.memory.quantisation import plain_scheme, scheme_from_config, scheme_from_name
from planner.memory.weights import stage_weights
from planner.model.load import load_model
from planner.model.spec import ModelSpec
from planner.model.tensor import Role, Tensor
from planner.model.tensors import tensors
from planner.units import GIB

NEW = (0, 19, 0)
MATRIX = Tensor("model.layers.0.mlp.down_proj.weight", (4096, 11008), Role.MLP, linear=True)


@pytest.fixture(scope="module")
def llama() -> ModelSpec:
    return load_model("meta-llama/Llama-3.1-8B-Instruct").spec


@pytest.fixture(scope="module")
def gpt_oss() -> ModelSpec:
    return load_model("openai/gpt-oss-20b").spec


def held(spec: ModelSpec, config: dict[str, object], capability: tuple[int, int] = (9, 0), **options: object) -> int:
    scheme = scheme_from_config(replace(spec, quantization_config=config))
    version = options.pop("version", NEW)
    loaded = as_loaded(scheme, version, compute_capability=capability, **options)  # type: ignore[arg-type]
    return loaded.format_of(MATRIX).bytes(MATRIX.shape)


def test_gptq(llama: ModelSpec) -> None:
    config: dict[str, object] = {"quant_method": "gptq", "bits": 4, "group_size": 128}
    # 22,544,384 values + 4096 x 86 x 2 scales; exllama keeps 86 x 512 x 4 zero points and 11008 x 4 indices
    assert held(llama, config) == 23_248_896
    assert held(llama, config, capability=(7, 0)) == 23_469_056
    assert held(llama, {**config, "sym": False}) == 23_469_056
    assert held(llama, {**config, "desc_act": True}) == 23_248_896 + 2 * 4 * 11008


def test_awq_keeps_its_zero_points(llama: ModelSpec) -> None:
    assert held(llama, {"quant_method": "awq", "bits": 4, "group_size": 128}) == 23_425_024


def test_fp8_without_fp8_units_has_a_scale_per_row(llama: ModelSpec) -> None:
    assert held(llama, {"quant_method": "fp8"}) == 45_088_772
    assert held(llama, {"quant_method": "fp8"}, capability=(8, 6)) == 45_088_768 + 4096 * 2


def test_double_quantisation_is_undone_since_0_9_2(llama: ModelSpec) -> None:
    config: dict[str, object] = {
        "quant_method": "bitsandbytes",
        "load_in_4bit": True,
        "bnb_4bit_quant_type": "nf4",
        "bnb_4bit_use_double_quant": True,
    }
    assert held(llama, config, version=(0, 9, 2)) == 25_362_496  # 22,544,384 + 704,512 x 4 + 64
    assert held(llama, config, version=(0, 8, 5)) == 23_260_996


def test_absorbed_copies() -> None:
    kv_b = Tensor("model.layers.0.self_attn.kv_b_proj.weight", (128 * 256, 512), Role.ATTENTION, linear=True)
    # 128 heads x (128 + 128) x 512 x 2 B; W_UK and W_UV are views of it
    plain = plain_scheme("bfloat16")
    assert as_loaded(plain, NEW).format_of(kv_b).bytes(kv_b.shape) == 33_554_432
    # stored as fp8 with a scale for each 128 x 128, and dequantised to 16 bit beside it
    values = {"quant_method": "fp8", "weight_block_size": [128, 128], "activation_scheme": "dynamic"}
    spec = replace(load_model("deepseek-ai/DeepSeek-V3").spec, quantization_config=values)
    stored = 16_777_216 + (32_768 // 128) * (512 // 128) * 4
    assert as_loaded(scheme_from_config(spec), NEW).format_of(kv_b).bytes(kv_b.shape) == stored + 33_554_432
    # MLA came with 0.7: before, only what the file has
    assert as_loaded(scheme_from_config(spec), (0, 6, 6)).format_of(kv_b).bytes(kv_b.shape) == stored


def test_gpt_oss_checkpoint(gpt_oss: ModelSpec) -> None:
    scheme = scheme_from_config(gpt_oss)
    sizes = {True: 0, False: 0}
    for tensor in tensors(gpt_oss):
        sizes[tensor.linear and tensor.num_experts > 0] += scheme.format_of(tensor).bytes(
            tensor.shape, tensor.input_dim
        )
    # 24 layers x 32 experts x (5760 + 2880) x 2880 x 17/32 B
    assert sizes[True] == 10_152_345_600
    assert round(sizes[False] / 1e9, 3) == 3.609
    assert round(sum(sizes.values()) / 1e9, 3) == 13.761


@pytest.mark.parametrize(
    ("backend", "tensor_parallel_size", "logged_gib"),
    [
        ("triton", 1, 13.64),  # vLLM 0.19.0, H100
        ("triton", 2, 7.01),
        ("triton-strided", 1, 12.8848),  # RTX 3090
        ("marlin", 4, 3.5799),
    ],
)
def test_gpt_oss_loaded(gpt_oss: ModelSpec, backend: str, tensor_parallel_size: int, logged_gib: float) -> None:
    loaded = as_loaded(scheme_from_config(gpt_oss), NEW, backend=backend)
    parallelism = Parallelism(tensor_parallel_size=tensor_parallel_size)
    weights = stage_weights(gpt_oss, loaded, parallelism, rope_element_bytes=4)
    assert abs(weights.total_bytes / GIB / logged_gib - 1) <= 0.004


def test_formats_that_vllm_does_not_read(llama: ModelSpec) -> None:
    gguf = scheme_from_name("Q4_K_M", llama)
    assert as_loaded(gguf, (0, 22, 1)).format_of(MATRIX) == gguf.format_of(MATRIX)
    with pytest.raises(UnsupportedQuantization, match="no longer reads GGUF"):
        as_loaded(gguf, (0, 24, 0))
    with pytest.raises(UnsupportedQuantization, match="ExLlama"):
        as_loaded(scheme_from_name("exl2-4.0bpw", llama), NEW)
    with pytest.raises(UnsupportedQuantization, match="backend"):
        as_loaded(gguf, NEW, backend="cuda")
