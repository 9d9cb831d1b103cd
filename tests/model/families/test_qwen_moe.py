"""Qwen2-MoE and Qwen3-MoE: which layers have experts, active parameters, caches, refusals."""

from __future__ import annotations

import pytest

from planner.errors import ConfigError, UnsupportedArchitecture
from planner.model.kinds.feed_forward import Mlp, Moe
from planner.model.tensors import active_parameters, parameters
from tests.model.families.reading import cache_bytes, spec_of

A3B, QWEN2, LARGE = "Qwen/Qwen3-30B-A3B", "Qwen/Qwen1.5-MoE-A2.7B-Chat", "Qwen/Qwen3-235B-A22B"


def test_qwen3_30b_a3b():
    spec = spec_of(A3B)
    # 48 layers of 128 experts of 3 x 2048 x 768, of which a token uses 8
    experts = 48 * 128 * 3 * 2048 * 768
    assert parameters(spec) == 30_532_122_624
    assert active_parameters(spec) == 30_532_122_624 - experts + experts // 128 * 8 == 3_353_032_704
    # 48 x 2 x 4 heads x 128 x 2 B
    assert cache_bytes(spec, 8_192) == 48 * 2 * 4 * 128 * 2 * 8_192 == 805_306_368
    assert cache_bytes(spec, 131_072) == 98_304 * 131_072
    assert len({id(layer) for layer in spec.layers}) == 1


def test_qwen3_235b_active():
    experts = 94 * 128 * 3 * 4096 * 1536
    assert active_parameters(spec_of(LARGE)) == 235_093_634_560 - experts + experts // 128 * 8


def test_shared_expert_behind_its_gate():
    spec = spec_of(QWEN2)
    shapes = {tensor.name: tensor.shape for tensor in spec.layers[0].tensors(2048)}
    assert shapes["mlp.shared_expert.gate_proj.weight"] == (5632, 2048)
    assert shapes["mlp.shared_expert_gate.weight"] == (1, 2048)
    assert shapes["self_attn.q_proj.bias"] == (2048,)
    assert "self_attn.o_proj.bias" not in shapes
    assert "self_attn.q_norm.weight" not in shapes
    experts = 24 * 60 * 3 * 2048 * 1408
    assert active_parameters(spec) == 14_315_784_192 - experts + experts // 60 * 4 == 2_689_173_504


def test_dense_layers_where_the_config_says_so():
    spec = spec_of(A3B, decoder_sparse_step=2, mlp_only_layers=[1])
    kinds = [type(layer.feed_forward) for layer in spec.layers[:6]]
    assert kinds == [Mlp, Mlp, Mlp, Moe, Mlp, Moe]
    assert len({id(layer) for layer in spec.layers}) == 2


@pytest.mark.parametrize(
    ("changes", "error", "field"),
    [
        ({"use_sliding_window": True}, UnsupportedArchitecture, "use_sliding_window"),
        ({"decoder_sparse_step": 0}, ConfigError, "decoder_sparse_step"),
        ({"mlp_only_layers": [-1]}, ConfigError, "mlp_only_layers"),
        ({"num_experts_per_tok": 129}, ConfigError, "num_experts_per_tok"),
    ],
)
def test_refusals_name_the_field(changes, error, field):
    with pytest.raises(error) as caught:
        spec_of(A3B, **changes)
    assert caught.value.field == field
