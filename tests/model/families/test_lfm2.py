"""LFM2: convolution state, attention layers, adjusted width, experts, refusals."""

from __future__ import annotations

import pytest

from planner.errors import ConfigError, UnsupportedArchitecture
from planner.model.kinds.feed_forward import Mlp, Moe
from planner.model.tensors import active_parameters, parameters
from tests.model.families.reading import attention_layers, cache_bytes, kinds_of_state, spec_of, state_caches

MODEL = "LiquidAI/LFM2-1.2B"
EXPERTS = "LiquidAI/LFM2-8B-A1B"


def test_cache_of_one_sequence():
    spec = spec_of(MODEL)
    assert attention_layers(spec) == [2, 5, 8, 10, 12, 14]
    assert kinds_of_state(spec) == {"short_conv": 10}
    # 6 layers x 2 x 8 heads x 64 x 2 B a token; 10 states of (3 - 1) x 2048
    assert cache_bytes(spec, 8_192) == 6 * 2 * 8 * 64 * 2 * 8_192 + 10 * 2 * 2048 * 2 == 100_745_216
    assert cache_bytes(spec, 131_072) == 6 * 2 * 8 * 64 * 2 * 131_072 + 10 * 2 * 2048 * 2 == 1_610_694_656
    assert state_caches(spec)[0].elements(4, speculative_tokens=1) == 3 * 512


def test_width_is_cut_to_two_thirds_and_rounded():
    mlp = spec_of(MODEL).layers[0].feed_forward
    assert isinstance(mlp, Mlp)
    assert mlp.intermediate_size == 12_288 * 2 // 3
    rounded = spec_of("LiquidAI/LFM2-350M").layers[0].feed_forward
    assert isinstance(rounded, Mlp)
    assert rounded.intermediate_size == 4_608  # 6,656 x 2 / 3 = 4,437, up to a multiple of 256
    assert {t.name for t in mlp.tensors(2048)} == {
        "feed_forward.w1.weight",
        "feed_forward.w3.weight",
        "feed_forward.w2.weight",
    }


def test_experts_after_the_dense_layers():
    spec = spec_of(EXPERTS)
    assert [isinstance(layer.feed_forward, Moe) for layer in spec.layers] == [False] * 2 + [True] * 22
    experts = 22 * 32 * 3 * 1792 * 2048
    assert active_parameters(spec) == parameters(spec) - experts + experts // 32 * 4 == 1_557_740_288


def test_score_correction_is_stored_but_not_counted():
    layer = spec_of(EXPERTS).layers[2]
    (bias,) = (tensor for tensor in layer.tensors(2048) if tensor.buffer)
    assert (bias.name, bias.shape, bias.dtype) == ("feed_forward.expert_bias", (32,), "float32")


@pytest.mark.parametrize(
    ("model", "changes", "error", "field"),
    [
        (MODEL, {"conv_dim": 1024}, UnsupportedArchitecture, "conv_dim"),
        (MODEL, {"full_attn_idxs": [2, 16]}, ConfigError, "full_attn_idxs"),
        (MODEL, {"layer_types": ["conv"] * 15 + ["mamba"]}, UnsupportedArchitecture, "layer_types"),
        (MODEL, {"block_ffn_dim_multiplier": -1.0}, ConfigError, "block_ffn_dim_multiplier"),
        (EXPERTS, {"num_experts_per_tok": 33}, ConfigError, "num_experts_per_tok"),
    ],
)
def test_refusals_name_the_field(model, changes, error, field):
    with pytest.raises(error) as caught:
        spec_of(model, **changes)
    assert caught.value.field == field
