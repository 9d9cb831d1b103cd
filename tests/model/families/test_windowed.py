"""Families that mix windowed and full layers: OLMo 3, Command, EXAONE 4; and Phi-3's and StarCoder2's single window."""

import pytest

from planner.errors import ConfigError, UnsupportedArchitecture
from planner.model.rope import RopeTable
from tests.model.families.dense import bundled, config, kv_bytes, named, rotary_dims, spec_of, windows, without


def test_olmo_3_7b() -> None:
    spec = bundled("allenai/Olmo-3-1025-7B")
    assert windows(spec) == [4096, 4096, 4096, None] * 8
    # 32 heads x 256 x 2 B = 16,384 B a token and layer
    assert kv_bytes(spec, 8192) == 24 * 4096 * 16_384 + 8 * 8192 * 16_384 == 2_684_354_560
    assert kv_bytes(spec, 131_072) == 24 * 4096 * 16_384 + 8 * 131_072 * 16_384 == 18_790_481_920


def test_olmo_3_scales_the_rotation_of_full_layers_only() -> None:
    plain = config("allenai/Olmo-3-1025-7B", rope_scaling=None)
    assert spec_of(plain).rope_tables == (RopeTable(65_536, 128),)
    scaling = {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 8192}
    assert spec_of(plain | {"rope_scaling": scaling}).rope_tables == (RopeTable(8 * 8192, 128), RopeTable(65_536, 128))


def test_olmo_2_norms_all_queries_and_all_keys_and_gpus_hold_the_norms_whole() -> None:
    names = named(bundled("allenai/OLMo-2-0325-32B"))
    query, key = (names[f"model.layers.0.self_attn.{name}_norm.weight"] for name in "qk")
    assert (query.shape, key.shape) == ((40 * 128,), (8 * 128,))
    assert query.split is None
    assert key.split is None


def test_olmo_1_has_no_norm_weights() -> None:
    assert not any("norm" in name for name in named(bundled("allenai/OLMo-7B-hf")))


def test_command_r7b_rotates_only_where_it_is_windowed() -> None:
    spec = bundled("CohereLabs/c4ai-command-r7b-12-2024")
    assert windows(spec) == [4096, 4096, 4096, None] * 8
    assert rotary_dims(spec) == [128, 128, 128, 0] * 8
    # 8 heads x 256 x 2 B = 4,096 B a token and layer
    assert kv_bytes(spec, 8192) == 24 * 4096 * 4096 + 8 * 8192 * 4096 == 671_088_640
    assert kv_bytes(spec, 131_072) == 24 * 4096 * 4096 + 8 * 131_072 * 4096 == 4_697_620_480


def test_command_r_plus_norms_each_head_with_its_own_scale() -> None:
    names = named(bundled("CohereLabs/c4ai-command-r-plus"))
    query, key = (names[f"model.layers.0.self_attn.{name}_norm.weight"] for name in "qk")
    assert (query.shape, key.shape) == ((96, 128), (8, 128))
    assert key.split is not None
    assert [(part.units, part.replicable) for part in key.split.parts] == [(8, True)]


def test_exaone_4_32b_rotates_only_where_it_is_windowed() -> None:
    spec = bundled("LGAI-EXAONE/EXAONE-4.0-32B")
    assert windows(spec) == [4096, 4096, 4096, None] * 16
    assert rotary_dims(spec) == [128, 128, 128, 0] * 16
    assert kv_bytes(spec, 8192) == 48 * 4096 * 4096 + 16 * 8192 * 4096 == 1_342_177_280
    assert kv_bytes(spec, 131_072) == 48 * 4096 * 4096 + 16 * 131_072 * 4096 == 9_395_240_960


def test_exaone_4_1_2b_sees_everything_and_rotates_everywhere() -> None:
    spec = bundled("LGAI-EXAONE/EXAONE-4.0-1.2B")
    assert set(windows(spec)) == {None}
    assert set(rotary_dims(spec)) == {64}


def test_exaone_letters_end_in_a_full_layer() -> None:
    values = without(config("LGAI-EXAONE/EXAONE-4.0-32B", num_hidden_layers=6), "layer_types")
    assert windows(spec_of(values)) == [4096, 4096, 4096, None, 4096, None]
    assert windows(spec_of(values | {"sliding_window_pattern": 3})) == [4096, 4096, None] * 2


@pytest.mark.parametrize("pattern", ["LLX", "", 0])
def test_exaone_pattern_that_is_none_is_refused(pattern: object) -> None:
    values = without(config("LGAI-EXAONE/EXAONE-4.0-32B", sliding_window_pattern=pattern), "layer_types")
    with pytest.raises(ConfigError, match="sliding_window_pattern"):
        spec_of(values)


def test_a_layer_type_that_is_not_understood_is_refused() -> None:
    types = ["sliding_attention"] * 31 + ["chunked_attention"]
    with pytest.raises(UnsupportedArchitecture, match="chunked_attention") as caught:
        spec_of(config("CohereLabs/c4ai-command-r7b-12-2024", layer_types=types))
    assert caught.value.field == "layer_types"


def test_exaone_3_5_goes_by_gpt2_names() -> None:
    names = named(bundled("LGAI-EXAONE/EXAONE-3.5-2.4B-Instruct"))
    assert names["transformer.h.0.attn.attention.out_proj.weight"].shape == (2560, 2560)
    assert names["transformer.h.0.mlp.c_fc_1.weight"].shape == (7168, 2560)


def test_phi_3_mini_keeps_2047_tokens_in_every_layer() -> None:
    spec = bundled("microsoft/Phi-3-mini-4k-instruct")
    assert set(windows(spec)) == {2047}
    # 32 heads x (96 + 96) x 2 B = 12,288 B a token and layer
    assert kv_bytes(spec, 8192) == kv_bytes(spec, 131_072) == 32 * 2047 * 12_288 == 804_913_152


def test_phi_3_5_keeps_a_short_and_a_long_table() -> None:
    assert bundled("microsoft/Phi-3.5-mini-instruct").rope_tables == (RopeTable(4096 + 131_072, 96),)


def test_phi_3_matrices_are_cut_by_their_parts() -> None:
    names = named(bundled("microsoft/phi-4"))
    qkv = names["model.layers.0.self_attn.qkv_proj.weight"].split
    assert qkv is not None
    assert [(part.size, part.units, part.replicable) for part in qkv.parts] == [
        (5120, 40, False),
        (1280, 10, True),
        (1280, 10, True),
    ]
    gate_up = names["model.layers.0.mlp.gate_up_proj.weight"].split
    assert gate_up is not None
    assert [part.size for part in gate_up.parts] == [17_920, 17_920]


def test_starcoder2_3b() -> None:
    spec = bundled("bigcode/starcoder2-3b")
    assert set(windows(spec)) == {4096}
    # 30 layers x 2 heads x 256 x 2 B
    assert kv_bytes(spec, 8192) == 30 * 4096 * 1024 == 125_829_120
