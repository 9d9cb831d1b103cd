"""MiniMax-01 and M1: lightning layers, cache bytes, both spellings of the pattern, refusals."""

from __future__ import annotations

import pytest

from planner.errors import ConfigError, UnsupportedArchitecture
from planner.memory.parallel.sharding import Parallelism, local_shape
from planner.model.tensors import active_parameters, parameters
from tests.model.families.reading import attention_layers, cache_bytes, kinds_of_state, spec_of, state_caches

TEXT = "MiniMaxAI/MiniMax-Text-01-hf"
M1 = "MiniMaxAI/MiniMax-M1-80k"


@pytest.mark.parametrize("model", [TEXT, M1])
def test_one_layer_of_eight_attends(model):
    spec = spec_of(model)
    assert attention_layers(spec) == list(range(7, 80, 8))
    assert kinds_of_state(spec) == {"lightning": 70}
    # 10 layers x 2 x 8 heads x 128 x 2 B a token; 70 states of 64 x 128 x 128
    state = 70 * 64 * 128 * 128 * 2
    assert cache_bytes(spec, 8_192) == 10 * 2 * 8 * 128 * 2 * 8_192 + state == 482_344_960
    assert cache_bytes(spec, 131_072) == 10 * 2 * 8 * 128 * 2 * 131_072 + state == 5_515_509_760
    assert state_caches(spec)[0].elements(8) == 8 * 128 * 128
    assert parameters(spec) == 456_089_655_296
    experts = 80 * 32 * 3 * 9216 * 6144
    assert active_parameters(spec) == 456_089_655_296 - experts + experts // 32 * 2


def test_half_of_a_head_turns_in_m1():
    assert [(table.positions, table.rotary_dim) for table in spec_of(M1).rope_tables] == [(10_240_000, 64)]


def test_shares_of_lightning_attention():
    share = {t.name: local_shape(t, Parallelism(tensor_parallel_size=8)) for t in spec_of(TEXT).layers[0].tensors(6144)}
    assert share["self_attn.qkv_proj.weight"] == (3 * 8192 // 8, 6144)
    assert share["self_attn.output_gate.weight"] == (1024, 6144)
    assert share["self_attn.norm.weight"] == (1024,)
    assert share["self_attn.out_proj.weight"] == (6144, 1024)


@pytest.mark.parametrize(
    ("model", "changes", "error", "field"),
    [
        (M1, {"attn_type_list": None}, ConfigError, "attn_type_list"),
        (M1, {"attn_type_list": [2] * 80}, ConfigError, "attn_type_list"),
        (M1, {"shared_intermediate_size": 1024}, UnsupportedArchitecture, "shared_intermediate_size"),
        (M1, {"sliding_window": 4096}, UnsupportedArchitecture, "sliding_window"),
        (TEXT, {"layer_types": ["full_attention"] * 79 + ["kda"]}, UnsupportedArchitecture, "layer_types"),
    ],
)
def test_refusals_name_the_field(model, changes, error, field):
    with pytest.raises(error) as caught:
        spec_of(model, **changes)
    assert caught.value.field == field
