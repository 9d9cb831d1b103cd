"""Jamba: which layers attend and which have experts, cache bytes, refusals."""

from __future__ import annotations

import pytest

from planner.errors import ConfigError
from planner.model.kinds.feed_forward import Moe
from planner.model.tensors import active_parameters, parameters
from tests.model.families.reading import attention_layers, cache_bytes, kinds_of_state, spec_of

MODEL = "ai21labs/Jamba-v0.1"


def test_layers():
    spec = spec_of(MODEL)
    assert attention_layers(spec) == [4, 12, 20, 28]
    assert kinds_of_state(spec) == {"mamba1": 28}
    assert [i for i, layer in enumerate(spec.layers) if isinstance(layer.feed_forward, Moe)] == list(range(1, 32, 2))
    assert spec.rope_tables == ()


def test_cache_of_one_sequence():
    spec = spec_of(MODEL)
    state = 28 * 8192 * (3 + 16) * 2
    assert cache_bytes(spec, 8_192) == 4 * 2 * 8 * 128 * 2 * 8_192 + state == 142_934_016
    assert cache_bytes(spec, 131_072) == 4 * 2 * 8 * 128 * 2 * 131_072 + state == 2_156_199_936


def test_active_parameters():
    spec = spec_of(MODEL)
    experts = 16 * 16 * 3 * 14_336 * 4096
    assert parameters(spec) == 51_570_323_328
    assert active_parameters(spec) == 51_570_323_328 - experts + experts // 16 * 2 == 12_110_311_296


def test_one_expert_is_a_plain_mlp():
    spec = spec_of(MODEL, num_experts=1)
    assert not any(isinstance(layer.feed_forward, Moe) for layer in spec.layers)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"attn_layer_offset": 8}, "attn_layer_offset"),
        ({"expert_layer_offset": 2}, "expert_layer_offset"),
        ({"num_experts_per_tok": 17}, "num_experts_per_tok"),
        ({"mamba_d_state": 0}, "mamba_d_state"),
    ],
)
def test_refusals_name_the_field(changes, field):
    with pytest.raises(ConfigError) as caught:
        spec_of(MODEL, **changes)
    assert caught.value.field == field
