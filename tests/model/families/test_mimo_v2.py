"""MiMo-V2-Flash: windows with more key heads and sinks, unequal key and value heads, drafts, refusals."""

from __future__ import annotations

import pytest

from planner.errors import ConfigError, UnsupportedArchitecture
from planner.model.caches import KeyValueCache
from planner.model.tensors import active_parameters, parameters
from tests.model.families.reading import cache_bytes, draft_parameters, expert_layers, shares, spec_of, windows

FLASH = "XiaomiMiMo/MiMo-V2-Flash"


def test_five_windowed_layers_to_one_that_sees_everything() -> None:
    spec = spec_of(FLASH)
    full = [index for index, window in enumerate(windows(spec)) if window is None]
    assert full == [0, 5, 11, 17, 23, 29, 35, 41, 47]
    assert expert_layers(spec) == list(range(1, 48))
    # the class's own pattern is the same
    assert windows(spec_of(FLASH, hybrid_layer_pattern=None)) == windows(spec)
    assert expert_layers(spec_of(FLASH, moe_layer_freq=None)) == list(range(1, 48))


def test_caches() -> None:
    spec = spec_of(FLASH)
    assert spec.layers[0].caches() == (KeyValueCache(num_key_value_heads=4, key_head_dim=192, value_head_dim=128),)
    assert spec.layers[1].caches() == (
        KeyValueCache(num_key_value_heads=8, key_head_dim=192, value_head_dim=128, sliding_window=128),
    )
    # 9 layers of 4 heads, 39 of 8 heads that keep 128 tokens; keys of 192 and values of 128
    for length in (8_192, 131_072):
        assert cache_bytes(spec, length) == (9 * 4 * length + 39 * 8 * 128) * (192 + 128) * 2


def test_sinks_where_layers_are_windowed() -> None:
    spec = spec_of(FLASH)
    names = [{tensor.name for tensor in layer.tensors(4096)} for layer in spec.layers]
    assert ["self_attn.sinks" in found for found in names] == [window is not None for window in windows(spec)]


def test_parameters() -> None:
    spec = spec_of(FLASH)
    assert parameters(spec) == 308_778_768_832
    experts = 47 * 256 * 3 * 4096 * 2048
    assert active_parameters(spec) == 308_778_768_832 - experts + experts // 256 * 8


def test_draft_layer_is_dense_and_windowed() -> None:
    spec = spec_of(FLASH)
    (draft,) = spec.draft_layers
    assert draft.caches() == spec.layers[1].caches()
    attention = 4096 * (64 * 192 + 8 * 192 + 8 * 128) + 4096 * 64 * 128 + 64
    assert draft_parameters(spec) == attention + 3 * 4096 * 16_384 + 2 * 4096 * 4096 + 5 * 4096


def test_router_is_fp32_unless_stated() -> None:
    def router(spec):
        return next(t for t in spec.layers[1].tensors(4096) if t.name == "mlp.gate.weight").dtype

    assert router(spec_of(FLASH)) == "float32"
    assert router(spec_of(FLASH, moe_router_dtype="bfloat16")) is None


def test_a_third_of_a_head_turns_at_two_base_frequencies() -> None:
    tables = spec_of(FLASH).rope_tables
    assert [(table.positions, table.rotary_dim) for table in tables] == [(262_144, 64)] * 2  # int(0.334 x 192)


def test_shares_at_tensor_parallel_eight() -> None:
    share = shares(spec_of(FLASH), tensor_parallel_size=8)
    assert share["model.layers.0.self_attn.k_proj.weight"] == (192, 4096)  # 4 heads on 8 GPUs
    assert share["model.layers.0.self_attn.v_proj.weight"] == (128, 4096)
    assert share["model.layers.1.self_attn.k_proj.weight"] == (192, 4096)
    assert share["model.layers.1.self_attn.sinks"] == (8,)
    assert share["model.layers.1.self_attn.o_proj.weight"] == (4096, 64 * 128 // 8)


@pytest.mark.parametrize(
    ("changes", "error", "field"),
    [
        ({"add_full_attention_sink_bias": True}, UnsupportedArchitecture, "add_full_attention_sink_bias"),
        ({"add_swa_attention_sink_bias": False}, UnsupportedArchitecture, "add_swa_attention_sink_bias"),
        ({"n_shared_experts": 1}, UnsupportedArchitecture, "n_shared_experts"),
        ({"swa_num_key_value_heads": 7}, ConfigError, "swa_num_key_value_heads"),
        ({"hybrid_layer_pattern": [0, 1]}, ConfigError, "hybrid_layer_pattern"),
        ({"moe_layer_freq": [0, 1]}, ConfigError, "moe_layer_freq"),
    ],
)
def test_refusals_name_the_field(changes: dict[str, object], error: type[Exception], field: str) -> None:
    with pytest.raises(error) as caught:
        spec_of(FLASH, **changes)
    assert getattr(caught.value, "field", None) == field
