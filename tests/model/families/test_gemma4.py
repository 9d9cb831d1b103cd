"""Gemma 4: heads of two sizes, values from keys, shared caches, experts beside the MLP, towers or none."""

from __future__ import annotations

import pytest

from planner.errors import ConfigError, UnsupportedArchitecture
from planner.model.kinds.feed_forward import Mlp, Moe
from planner.model.tensors import active_parameters, parameters, tensors
from tests.model.families.reading import cache_bytes, config_of, spec_of

E2B, LARGE = "google/gemma-4-E2B-it", "google/gemma-4-31B-it"
MOE, UNIFIED = "google/gemma-4-26B-A4B-it", "google/gemma-4-12B-it"


def changed(model, section, **changes):
    return spec_of(model, **{section: {**config_of(model)[section], **changes}})


def test_full_layers_have_wider_heads():
    spec = spec_of(LARGE)
    caches = [layer.caches()[0] for layer in spec.layers]
    assert [index for index, cache in enumerate(caches) if cache.sliding_window is None] == list(range(5, 60, 6))
    assert {(c.num_key_value_heads, c.key_head_dim, c.sliding_window) for c in caches} == {
        (16, 256, 1024),
        (4, 512, None),
    }


def test_cache_of_one_sequence_31b():
    # 10 full layers of 4 heads x 512, 50 windows of 1,024 with 16 heads x 256; keys and values both kept
    full, window = 2 * 4 * 512 * 2, 2 * 16 * 256 * 2
    assert cache_bytes(spec_of(LARGE), 8_192) == 10 * 8_192 * full + 50 * 1_024 * window == 1_509_949_440
    assert cache_bytes(spec_of(LARGE), 131_072) == 10 * 131_072 * full + 50 * 1_024 * window == 11_576_279_040


def test_cache_of_one_sequence_e2b():
    # 35 layers, the last 20 share: 3 full and 12 windows of 512 are left, one head each
    spec = spec_of(E2B)
    assert [index for index, layer in enumerate(spec.layers) if layer.caches()] == list(range(15))
    full, window = 2 * 512 * 2, 2 * 256 * 2
    assert cache_bytes(spec, 8_192) == 3 * 8_192 * full + 12 * 512 * window == 56_623_104
    assert cache_bytes(spec, 131_072) == 3 * 131_072 * full + 12 * 512 * window == 811_597_824


def test_values_from_keys_have_no_matrix():
    names = {t.name for t in tensors(spec_of(LARGE))}
    assert "model.language_model.layers.4.self_attn.v_proj.weight" in names
    assert "model.language_model.layers.5.self_attn.v_proj.weight" not in names
    assert "model.language_model.layers.5.self_attn.k_proj.weight" in names


def test_sharing_layers_have_an_mlp_of_double_width():
    widths = [layer.feed_forward.intermediate_size for layer in spec_of(E2B).layers]
    assert widths == [6_144] * 15 + [12_288] * 20


def test_rotary_tables_span_whole_heads():
    spec = spec_of(E2B)
    assert {(table.positions, table.rotary_dim) for table in spec.rope_tables} == {(131_072, 256), (131_072, 512)}
    assert {layer.mixers[0].rotary_dim for layer in spec.layers} == {256, 128}  # 512 x 0.25


def test_experts_stand_beside_the_mlp():
    spec = spec_of(MOE)
    feed_forward = spec.layers[0].feed_forward
    assert isinstance(feed_forward, Moe) and isinstance(feed_forward.shared, Mlp)
    assert (feed_forward.num_experts, feed_forward.num_experts_per_tok) == (128, 8)
    experts = 30 * 128 * 3 * 704 * 2816
    assert parameters(spec) == 25_805_933_872
    assert active_parameters(spec) == 25_805_933_872 - experts + experts // 128 * 8


def test_towers():
    vision, audio = spec_of(E2B).stacks
    # 280 tokens of 3 x 3 patches of 16 x 16 pixels
    assert (vision.tokens_per_item, vision.patches_per_item) == (280, 2_520)
    assert vision.input_elements_per_item == 2_520 * 768
    assert (audio.tokens_per_item, audio.input_elements_per_item) == (750, 3_000 * 128)
    assert [stack.name for stack in spec_of(LARGE).stacks] == ["vision"]
    for tensor in tensors(spec_of(E2B)):
        assert tensor.split is None or "language_model" in tensor.name, tensor.name


def test_a_text_alone_deployment_matches_the_log():
    # vLLM 0.21, L4, --language-model-only: 8.89 GiB. Keys and values of the 20 sharing layers are allocated too.
    spec = spec_of(E2B)
    text = sum(t.numel for t in tensors(spec) if "language_model" in t.name)
    rope = sum(table.numel for table in spec.rope_tables)
    engine_only = 16 * 2 * 256 * 1536 + 4 * 2 * 512 * 1536
    assert (text + rope + engine_only) * 2 / 2**30 == pytest.approx(8.89, rel=0.006)


def test_unified_has_no_layers_in_its_towers():
    spec = spec_of(UNIFIED)
    vision, audio = spec.stacks
    assert vision.layers == audio.layers == ()
    assert vision.input_elements_per_item == 280 * 48 * 48 * 3
    assert audio.input_elements_per_item == 750 * 640
    assert {layer.caches()[0].sliding_window for layer in spec.layers} == {1024, None}


def test_window_reaches_both_ways_when_asked():
    spec = changed(E2B, "text_config", use_bidirectional_attention="all")
    assert spec.layers[0].caches()[0].sliding_window == 512 // 2 + 1


def test_the_last_layer_is_always_full():
    types = [*config_of(E2B)["text_config"]["layer_types"][:-1], "sliding_attention"]
    assert changed(E2B, "text_config", layer_types=types) == spec_of(E2B)


@pytest.mark.parametrize(
    ("model", "section", "changes", "error", "field"),
    [
        (E2B, "text_config", {"num_kv_shared_layers": 34}, ConfigError, "num_kv_shared_layers"),
        (E2B, "text_config", {"layer_types": ["linear"] * 35}, UnsupportedArchitecture, "layer_types"),
        (LARGE, "text_config", {"num_global_key_value_heads": 5}, ConfigError, "num_global_key_value_heads"),
        (MOE, "text_config", {"num_experts": None}, ConfigError, "num_experts"),
        (MOE, "text_config", {"top_k_experts": 129}, ConfigError, "top_k_experts"),
        (E2B, "vision_config", {"head_dim": 32}, UnsupportedArchitecture, "head_dim"),
        (E2B, "vision_config", {"num_key_value_heads": 4}, UnsupportedArchitecture, "num_key_value_heads"),
        (E2B, "vision_config", {"attention_bias": True}, UnsupportedArchitecture, "attention_bias"),
        (E2B, "audio_config", {"num_attention_heads": 7}, ConfigError, "num_attention_heads"),
        (E2B, "audio_config", {"subsampling_conv_channels": [128]}, ConfigError, "subsampling_conv_channels"),
        (UNIFIED, "vision_config", {"output_proj_dims": 1024}, UnsupportedArchitecture, "output_proj_dims"),
    ],
)  # fmt: skip
def test_refusals_name_the_field(model, section, changes, error, field):
    with pytest.raises(error) as caught:
        changed(model, section, **changes)
    assert caught.value.field == field


def test_unknown_direction_is_refused():
    with pytest.raises(UnsupportedArchitecture, match="use_bidirectional_attention 'left'"):
        changed(E2B, "text_config", use_bidirectional_attention="left")


def test_unknown_rope_type_is_refused():
    rope = {"full_attention": {"rope_type": "yarn"}, "sliding_attention": {"rope_type": "default"}}
    with pytest.raises(UnsupportedArchitecture, match="rope_type 'yarn'"):
        changed(E2B, "text_config", rope_parameters=rope)
