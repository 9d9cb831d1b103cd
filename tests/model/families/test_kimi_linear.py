"""Kimi Linear and Kimi K3: cache bytes, states in fp32, published totals, shares of a GPU, refusals."""

from __future__ import annotations

import pytest

from planner.errors import ConfigError, UnsupportedArchitecture
from planner.memory.parallel.sharding import Parallelism, local_shape
from planner.model.kinds.feed_forward import Moe
from planner.model.spec import Layer
from planner.model.tensors import active_parameters, parameters
from tests.model.families.reading import attention_layers, cache_bytes, config_of, kinds_of_state, spec_of, state_caches

LINEAR = "moonshotai/Kimi-Linear-48B-A3B-Instruct"
K3 = "moonshotai/Kimi-K3"


def buffers(layers: tuple[Layer, ...], hidden_size: int) -> int:
    return sum(tensor.numel for layer in layers for tensor in layer.tensors(hidden_size) if tensor.buffer)


def test_layers():
    spec = spec_of(LINEAR)
    assert attention_layers(spec) == [3, 7, 11, 15, 19, 23, 26]
    assert kinds_of_state(spec) == {"kimi_delta": 20}
    assert [isinstance(layer.feed_forward, Moe) for layer in spec.layers] == [False] + [True] * 26
    assert spec.rope_tables == ()
    assert spec.max_position_embeddings == 1_048_576


def test_cache_of_one_sequence():
    spec = spec_of(LINEAR)
    # 7 latents of 512 + 64; 20 states: 3 x (3 x 32 x 128) in bf16 and 32 x 128 x 128 in fp32
    state = 20 * (3 * 12_288 * 2 + 32 * 128 * 128 * 4)
    assert cache_bytes(spec, 8_192) == 7 * 576 * 2 * 8_192 + state == 109_477_888
    assert cache_bytes(spec, 131_072) == 7 * 576 * 2 * 131_072 + state == 1_100_382_208
    # the state keeps its type whatever the user asks for
    assert cache_bytes(spec, 8_192, plain_state=True) == cache_bytes(spec, 8_192)
    assert state_caches(spec)[0].elements(2) == 3 * 3 * 16 * 128 + 16 * 128 * 128


def test_published_total_counts_score_corrections():
    spec = spec_of(LINEAR)
    assert parameters(spec) == 49_122_675_072
    assert parameters(spec) + buffers(spec.layers, 2304) == 49_122_681_728
    experts = 26 * 256 * 3 * 1024 * 2304
    assert active_parameters(spec) == 49_122_675_072 - experts + experts // 256 * 8


def test_shares_of_delta_attention_at_tensor_parallel_two():
    share = {
        t.name: local_shape(t, Parallelism(tensor_parallel_size=2)) for t in spec_of(LINEAR).layers[0].tensors(2304)
    }
    assert share["self_attn.q_proj.weight"] == (2048, 2304)
    assert share["self_attn.conv1d.weight"] == (6144, 1, 4)
    assert share["self_attn.f_a_proj.weight"] == (128, 2304)
    assert share["self_attn.f_b_proj.weight"] == (2048, 128)
    assert share["self_attn.dt_bias"] == (2048,)
    assert share["self_attn.o_proj.weight"] == (2304, 2048)


def test_kimi_k3():
    spec = spec_of(K3)
    assert kinds_of_state(spec) == {"kimi_delta": 69}
    assert len(attention_layers(spec)) == 24
    # published, all tensors and 92 x 896 score corrections
    assert parameters(spec) + buffers(spec.layers, 7168) == 2_779_931_837_184
    state = 69 * (3 * 3 * 96 * 128 * 2 + 96 * 128 * 128 * 4)
    assert cache_bytes(spec, 131_072) == 24 * 576 * 2 * 131_072 + state
    (tower,) = spec.stacks
    tower_size = sum(t.numel for t in tower.tensors) + sum(
        t.numel for layer in tower.layers for t in layer.tensors(tower.hidden_size)
    )
    assert tower_size == 447_358_976
    names = {t.name: t.shape for t in spec.layers[1].tensors(7168)}
    assert names["self_attn.g_proj.weight"] == (96 * 128, 7168)
    assert names["block_sparse_moe.routed_expert_down_proj.weight"] == (3584, 7168)
    assert names["block_sparse_moe.experts.down_proj"] == (896, 3584, 3072)


@pytest.mark.parametrize(
    ("changes", "error", "field"),
    [
        ({"mla_use_nope": False}, UnsupportedArchitecture, "mla_use_nope"),
        ({"moe_layer_freq": 2}, UnsupportedArchitecture, "moe_layer_freq"),
        ({"num_nextn_predict_layers": 1}, UnsupportedArchitecture, "num_nextn_predict_layers"),
        ({"linear_attn_config": {"full_attn_layers": [4], "kda_layers": [1, 2, 3]}}, ConfigError, "full_attn_layers"),
        ({"mlp_layer_types": ["sparse"] * 26 + ["mixed"]}, UnsupportedArchitecture, "mlp_layer_types"),
        ({"num_experts_per_token": 257}, ConfigError, "num_experts_per_token"),
    ],
)
def test_refusals_name_the_field(changes, error, field):
    with pytest.raises(error) as caught:
        spec_of(LINEAR, **changes)
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("changes", "error", "field"),
    [
        ({"norm_type": "layernorm"}, UnsupportedArchitecture, "norm_type"),
        ({"attn_bias": True}, UnsupportedArchitecture, "attn_bias"),
        ({"mm_projector_type": "patchmerger"}, UnsupportedArchitecture, "mm_projector_type"),
        ({"text_hidden_size": 4096}, ConfigError, "text_hidden_size"),
        ({"qkv_hidden_size": 1500, "vt_num_attention_heads": 11}, ConfigError, "qkv_hidden_size"),
    ],
)
def test_refusals_of_the_k3_tower_name_the_field(changes, error, field):
    vision = config_of(K3)["vision_config"]
    assert isinstance(vision, dict)
    with pytest.raises(error) as caught:
        spec_of(K3, vision_config=vision | changes)
    assert caught.value.field == field
