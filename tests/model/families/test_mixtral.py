"""Mixtral, Phi-3.5-MoE, OLMoE, Granite MoE, MiniMax-M2: caches, active parameters, shares, refusals."""

from __future__ import annotations

import pytest

from planner.errors import ConfigError, UnsupportedArchitecture
from planner.memory.parallel.sharding import Parallelism, local_shape
from planner.model.kinds.attention import Attention
from planner.model.tensors import active_parameters, parameters, tensors
from tests.model.families.reading import cache_bytes, spec_of

MIXTRAL, M2 = "mistralai/Mixtral-8x7B-v0.1", "MiniMaxAI/MiniMax-M2"
PHI, OLMOE = "microsoft/Phi-3.5-MoE-instruct", "allenai/OLMoE-1B-7B-0924-Instruct"
GRANITE = "ibm-granite/granite-3.1-1b-a400m-instruct"


def attention(spec) -> Attention:
    (mixer,) = spec.layers[0].mixers
    assert isinstance(mixer, Attention)
    return mixer


def test_mixtral_keeps_what_llama_3_1_8b_keeps():
    spec = spec_of(MIXTRAL)
    # 32 layers x 2 x 8 heads x 128 x 2 B
    assert cache_bytes(spec, 1) == 32 * 2 * 8 * 128 * 2 == 131_072
    assert cache_bytes(spec, 8_192) == 1_073_741_824
    assert cache_bytes(spec, 131_072) == 16 << 30


def test_mixtral_parameters():
    spec = spec_of(MIXTRAL)
    # embedding and head; attention 2 x 4096 x 4096 + 2 x 4096 x 1024; router; norms; 8 experts of 3 x 4096 x 14336
    experts = 32 * 8 * 3 * 4096 * 14_336
    rest = 2 * 32_000 * 4096 + 4096 + 32 * (2 * 4096 * 4096 + 2 * 4096 * 1024 + 8 * 4096 + 2 * 4096)
    assert parameters(spec) == rest + experts == 46_702_792_704
    assert active_parameters(spec) == rest + experts // 8 * 2 == 12_879_925_248


def test_window_where_the_config_states_one():
    spec = spec_of(MIXTRAL, sliding_window=4096)
    assert {attention(spec).sliding_window} == {4096}
    assert cache_bytes(spec, 8_192) == 131_072 * 4096
    assert attention(spec_of(MIXTRAL)).sliding_window is None


def test_shares_of_experts_and_key_heads():
    layer = spec_of(MIXTRAL).layers[0].tensors(4096)
    share = {t.name: local_shape(t, Parallelism(tensor_parallel_size=16)) for t in layer}
    assert share["self_attn.q_proj.weight"] == (4096 // 16, 4096)
    assert share["self_attn.k_proj.weight"] == (128, 4096)  # 8 heads on 16 GPUs: one each, twice
    assert share["block_sparse_moe.experts.gate_up_proj"] == (8, 2 * 14_336 // 16, 4096)
    assert share["block_sparse_moe.experts.down_proj"] == (8, 4096, 14_336 // 16)
    assert share["block_sparse_moe.gate.weight"] == (8, 4096)
    dealt = Parallelism(tensor_parallel_size=4, enable_expert_parallel=True)
    share = {t.name: local_shape(t, dealt) for t in layer}
    assert share["block_sparse_moe.experts.gate_up_proj"] == (2, 2 * 14_336, 4096)


def test_minimax_m2():
    spec = spec_of(M2)
    # 62 layers x 2 x 8 heads x 128
    assert cache_bytes(spec, 8_192) == 62 * 2 * 8 * 128 * 2 * 8_192
    found = {tensor.name: tensor for tensor in spec.layers[0].tensors(3072)}
    assert found["self_attn.q_norm.weight"].shape == (48 * 128,)
    assert found["self_attn.k_norm.weight"].shape == (8 * 128,)
    assert found["block_sparse_moe.gate.weight"].dtype == "float32"
    assert found["block_sparse_moe.e_score_correction_bias"].buffer
    assert attention(spec).rotary_dim == 64
    # published: the model and 62 corrections of 256; no draft layer is shipped
    assert spec.draft_layers == ()
    assert parameters(spec) + 62 * 256 == 228_689_764_864
    experts = 62 * 256 * 3 * 3072 * 1536
    assert active_parameters(spec) == parameters(spec) - experts + experts // 256 * 8


def test_phi_moe_has_shifts_and_a_window_of_all_it_can_see():
    names = {tensor.name for tensor in tensors(spec_of(PHI))}
    assert {"model.norm.bias", "model.layers.0.input_layernorm.bias", "lm_head.bias"} <= names
    assert "model.layers.0.self_attn.q_proj.bias" in names
    assert active_parameters(spec_of(PHI)) == 41_873_153_344 - 32 * 14 * 3 * 4096 * 6400


def test_norms_over_all_heads():
    found = {tensor.name: tensor.shape for tensor in spec_of(OLMOE).layers[0].tensors(2048)}
    assert found["self_attn.q_norm.weight"] == (2048,)
    assert found["self_attn.k_norm.weight"] == (2048,)


def test_granite_ties_its_embedding():
    spec = spec_of(GRANITE)
    assert not any(tensor.name.startswith("lm_head") for tensor in tensors(spec))
    assert parameters(spec) == 1_334_628_352


@pytest.mark.parametrize(
    ("model", "changes", "error", "field"),
    [
        (MIXTRAL, {"num_experts_per_tok": 9}, ConfigError, "num_experts_per_tok"),
        (MIXTRAL, {"num_local_experts": 0}, ConfigError, "num_local_experts"),
        (MIXTRAL, {"intermediate_size": -1}, ConfigError, "intermediate_size"),
        (M2, {"qk_norm_type": "per_head"}, UnsupportedArchitecture, "qk_norm_type"),
        (M2, {"use_qk_norm": False}, UnsupportedArchitecture, "use_qk_norm"),
        (M2, {"shared_intermediate_size": 512}, UnsupportedArchitecture, "shared_intermediate_size"),
        (M2, {"use_routing_bias": False}, UnsupportedArchitecture, "use_routing_bias"),
        (M2, {"rotary_dim": 129}, ConfigError, "rotary_dim"),
    ],
)
def test_refusals_name_the_field(model, changes, error, field):
    with pytest.raises(error) as caught:
        spec_of(model, **changes)
    assert caught.value.field == field
