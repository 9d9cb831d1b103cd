"""Olmo Hybrid: layer pattern, cache bytes, defaults of the delta net, refusals."""

from __future__ import annotations

import pytest

from planner.errors import ConfigError, UnsupportedArchitecture
from tests.model.families.reading import attention_layers, cache_bytes, kinds_of_state, spec_of

MODEL = "allenai/Olmo-Hybrid-7B"


def test_cache_of_one_sequence():
    spec = spec_of(MODEL)
    assert attention_layers(spec) == list(range(3, 32, 4))
    assert kinds_of_state(spec) == {"gated_delta_net": 24}
    # keys 30 heads x 96 (three quarters of 3840 / 30), values 30 x 192
    state = 24 * (3 * (2 * 2880 + 5760) + 30 * 192 * 96) * 2
    assert cache_bytes(spec, 8_192) == 8 * 2 * 30 * 128 * 2 * 8_192 + state == 1_034_833_920
    assert cache_bytes(spec, 131_072) == 8 * 2 * 30 * 128 * 2 * 131_072 + state == 16_134_328_320


def test_no_positions_unless_a_base_is_stated():
    assert spec_of(MODEL).rope_tables == ()
    assert [table.rotary_dim for table in spec_of(MODEL, rope_theta=500_000).rope_tables] == [128]


def test_norms_differ_between_the_two_kinds_of_layer():
    spec = spec_of(MODEL)
    assert [norm.name for norm in spec.layers[0].norms] == ["input_layernorm", "post_attention_layernorm"]
    assert [norm.name for norm in spec.layers[3].norms] == ["post_attention_layernorm", "post_feedforward_layernorm"]
    names = {t.name: t.shape for t in spec.layers[3].tensors(3840)}
    assert names["self_attn.q_norm.weight"] == (3840,)


@pytest.mark.parametrize(
    ("changes", "error", "field"),
    [
        ({"layer_types": ["conv"] * 32}, UnsupportedArchitecture, "layer_types"),
        ({"linear_num_value_heads": 31}, ConfigError, "linear_num_value_heads"),
    ],
)
def test_refusals_name_the_field(changes, error, field):
    with pytest.raises(error) as caught:
        spec_of(MODEL, **changes)
    assert caught.value.field == field
