"""Llama 4's decoder: chunks and positions by layer, interleaved experts, caches, active weights, shares, refusals."""

from __future__ import annotations

import pytest

from planner.errors import ConfigError, UnsupportedArchitecture
from planner.model.caches import KeyValueCache
from planner.model.config import RawConfig
from planner.model.families import build_spec
from planner.model.kinds.attention import Attention
from planner.model.spec import ModelSpec
from planner.model.tensors import active_parameters, parameters
from tests.model.families.reading import cache_bytes, config_of, expert_layers, shares

SCOUT, MAVERICK = "meta-llama/Llama-4-Scout-17B-16E-Instruct", "meta-llama/Llama-4-Maverick-17B-128E-Instruct"


def decoder(model: str, **changes: object) -> ModelSpec:
    """The text part alone, with some keys changed (None removes one)."""
    section = config_of(model)["text_config"]
    assert isinstance(section, dict)
    values = {key: value for key, value in section.items() if key not in changes}
    values |= {key: value for key, value in changes.items() if value is not None}
    return build_spec(RawConfig({"architectures": ["Llama4ForCausalLM"], **values}))


def chunks(spec: ModelSpec) -> list[int | None]:
    """What each layer sees."""
    found = []
    for layer in spec.layers:
        (cache,) = layer.caches()
        assert isinstance(cache, KeyValueCache)
        found.append(cache.attention_chunk_size)
    return found


def rotary_dims(spec: ModelSpec) -> list[int]:
    """Elements of a head that each layer rotates."""
    return [mixer.rotary_dim for layer in spec.layers for mixer in layer.mixers if isinstance(mixer, Attention)]


def test_every_fourth_layer_sees_everything_and_rotates_nothing() -> None:
    for model in (SCOUT, MAVERICK):
        spec = decoder(model)
        assert chunks(spec) == [8_192, 8_192, 8_192, None] * 12
        assert rotary_dims(spec) == [128, 128, 128, 0] * 12
    stated = decoder(SCOUT, no_rope_layers=[1, 0] * 24)
    assert rotary_dims(stated) == [128, 0] * 24
    assert chunks(stated) == [8_192, None] * 24
    types = decoder(SCOUT, layer_types=["full_attention"] * 48)
    assert chunks(types) == [None] * 48
    assert rotary_dims(types) == [128, 128, 128, 0] * 12


def test_cache_of_one_sequence() -> None:
    spec = decoder(SCOUT)
    # 2 x 8 heads x 128 x 2 B = 4,096 B a token and layer; 36 layers keep their chunk of 8,192 at most, 12 all
    assert cache_bytes(spec, 8_192) == 48 * 4_096 * 8_192 == 1_610_612_736
    assert cache_bytes(spec, 131_072) == 4_096 * (36 * 8_192 + 12 * 131_072) == 7_650_410_496


def test_experts_in_every_layer_or_every_other() -> None:
    assert expert_layers(decoder(SCOUT)) == list(range(48))
    assert expert_layers(decoder(MAVERICK)) == list(range(1, 48, 2))
    assert expert_layers(decoder(MAVERICK, moe_layers=[0, 47])) == [0, 47]


@pytest.mark.parametrize(
    ("model", "total", "active", "sparse", "experts"),
    [
        # "17B active of 109B" and "of 400B", towers apart
        (SCOUT, 107_769_861_120, 17_172_894_720, 48, 16),
        (MAVERICK, 400_711_848_960, 17_184_691_200, 24, 128),
    ],
)
def test_weights_that_one_token_uses(model: str, total: int, active: int, sparse: int, experts: int) -> None:
    spec = decoder(model)
    routed = sparse * experts * 3 * 8192 * 5120
    hidden = 5120
    attention = (40 + 8 + 8) * 128 * hidden + 40 * 128 * hidden
    rest = 2 * 202_048 * hidden + hidden + 48 * (attention + 2 * hidden)
    # beside the routed experts: a router and a shared expert, or a dense MLP of twice the width
    rest += sparse * (experts * hidden + 3 * 8192 * hidden) + (48 - sparse) * 3 * 16_384 * hidden
    assert parameters(spec) == rest + routed == total
    assert active_parameters(spec) == rest + routed // experts == active


def test_shares_at_tensor_parallel_eight() -> None:
    share = shares(decoder(MAVERICK), tensor_parallel_size=8)
    assert share["model.layers.0.self_attn.q_proj.weight"] == (5 * 128, 5120)
    assert share["model.layers.0.feed_forward.gate_proj.weight"] == (2048, 5120)
    assert share["model.layers.1.feed_forward.router.weight"] == (128, 5120)
    assert share["model.layers.1.feed_forward.experts.gate_up_proj"] == (128, 5120, 2048)
    assert share["model.layers.1.feed_forward.experts.down_proj"] == (128, 1024, 5120)
    assert share["model.layers.1.feed_forward.shared_expert.up_proj.weight"] == (1024, 5120)


@pytest.mark.parametrize(
    ("changes", "error", "field"),
    [
        ({"layer_types": ["sliding_attention"] * 48}, UnsupportedArchitecture, "layer_types"),
        ({"layer_types": ["full_attention"]}, ConfigError, "layer_types"),
        ({"no_rope_layers": [1, 0]}, ConfigError, "no_rope_layers"),
        ({"interleave_moe_layer_step": 0}, ConfigError, "interleave_moe_layer_step"),
        ({"attention_chunk_size": 0}, ConfigError, "attention_chunk_size"),
        ({"num_experts_per_tok": 17}, ConfigError, "num_experts_per_tok"),
        ({"moe_layers": ["all"]}, ConfigError, "moe_layers"),
    ],
)
def test_refusals_name_the_field(changes: dict[str, object], error: type[ConfigError], field: str) -> None:
    with pytest.raises(error) as caught:
        decoder(SCOUT, **changes)
    assert caught.value.field == field
