"""gpt-oss: windows in every other layer, sinks, biased experts, caches, refusals."""

from __future__ import annotations

import pytest

from planner.errors import ConfigError, UnsupportedArchitecture
from planner.memory.parallel.sharding import Parallelism, local_shape
from planner.model.config import RawConfig
from planner.model.families import build_spec
from planner.model.tensors import active_parameters, parameters
from tests.model.families.reading import cache_bytes, spec_of

SMALL, LARGE = "openai/gpt-oss-20b", "openai/gpt-oss-120b"


def windows(spec) -> list[int | None]:
    return [layer.mixers[0].sliding_window for layer in spec.layers]


def test_every_other_layer_is_windowed_from_the_first():
    assert windows(spec_of(SMALL)) == [128, None] * 12
    assert windows(spec_of(SMALL, layer_types=None)) == [128, None] * 12
    assert windows(spec_of(LARGE)) == [128, None] * 18
    assert windows(build_spec(RawConfig({"model_type": "gpt_oss", "sliding_window": None}))) == [None] * 36


def test_bytes_of_a_sequence():
    spec = spec_of(SMALL)
    # 8 heads x (64 + 64) x 2 B a token and layer: twelve layers keep all of them, twelve the last 128
    slot = 8 * 128 * 2
    assert cache_bytes(spec, 8_192) == 12 * slot * (8_192 + 128) == 204_472_320
    assert cache_bytes(spec, 131_072) == 12 * slot * (131_072 + 128) == 3_224_371_200


def test_parameters():
    spec = spec_of(SMALL)
    assert parameters(spec) == 20_914_757_184
    # an expert: gate and up [2880, 5760] with 5760 biases, down [2880, 2880] with 2880
    experts = 24 * 32 * (2880 * 5760 + 5760 + 2880 * 2880 + 2880)
    assert active_parameters(spec) == 20_914_757_184 - experts + experts // 32 * 4 == 4_187_440_704


def test_experts_are_stored_input_first_and_cut_by_width():
    layer = spec_of(SMALL).layers[0].tensors(2880)
    whole = {t.name: t.shape for t in layer}
    assert whole["mlp.experts.gate_up_proj"] == (32, 2880, 5760)
    share = {t.name: local_shape(t, Parallelism(tensor_parallel_size=4)) for t in layer}
    assert share["mlp.experts.gate_up_proj"] == (32, 2880, 1440)
    assert share["mlp.experts.gate_up_proj_bias"] == (32, 1440)
    assert share["mlp.experts.down_proj"] == (32, 720, 2880)
    assert share["mlp.experts.down_proj_bias"] == (32, 2880)
    assert share["mlp.router.weight"] == (32, 2880)
    assert share["self_attn.sinks"] == (16,)


def test_rope_table_by_the_config_and_by_the_class():
    declared = spec_of(SMALL).rope_tables
    assert [(table.positions, table.rotary_dim) for table in declared] == [(4096 * 32, 64)]
    assumed = spec_of(SMALL, rope_scaling=None).rope_tables
    assert [(table.positions, table.rotary_dim) for table in assumed] == [(4096 * 32, 64)]


@pytest.mark.parametrize(
    ("changes", "error", "field"),
    [
        ({"layer_types": ["chunked_attention"] * 24}, UnsupportedArchitecture, "layer_types"),
        ({"layer_types": ["full_attention"]}, ConfigError, "layer_types"),
        ({"sliding_window": 0}, ConfigError, "sliding_window"),
        ({"num_local_experts": 3}, ConfigError, "num_experts_per_tok"),
    ],
)
def test_refusals_name_the_field(changes, error, field):
    with pytest.raises(error) as caught:
        spec_of(SMALL, **changes)
    assert caught.value.field == field
