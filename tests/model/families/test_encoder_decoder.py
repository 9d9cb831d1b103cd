"""T5, BART and Whisper: two caches a layer, one of them of the source."""

from __future__ import annotations

import pytest

from planner.errors import ConfigError, UnsupportedArchitecture
from planner.memory.parallel.sharding import Parallelism, local_shape
from planner.model.caches import CrossCache, KeyValueCache
from planner.model.tensors import layer_tensors, parameters, tensors
from tests.model.families.reading import spec_of

T5, FLAN, BART = "google-t5/t5-base", "google/flan-t5-small", "facebook/bart-large"
WHISPER = "openai/whisper-large-v3"


def bytes_of(spec, length):
    return sum(
        c.slots(length) * c.num_key_value_heads * (c.key_head_dim + c.value_head_dim) * 2
        for layer in spec.layers
        for c in layer.caches()
    )


@pytest.mark.parametrize("model", [T5, BART, WHISPER])
def test_each_decoder_layer_keeps_the_text_and_the_source(model):
    spec = spec_of(model)
    assert spec.decoder
    assert {tuple(map(type, layer.caches())) for layer in spec.layers} == {(KeyValueCache, CrossCache)}
    (encoder,) = spec.stacks
    assert all(layer.caches() == () for layer in encoder.layers)


def test_whisper_keeps_1500_positions_of_sound():
    spec = spec_of(WHISPER)
    token = 2 * 20 * 64 * 2
    assert bytes_of(spec, 448) == 32 * (448 + 1_500) * token
    assert bytes_of(spec, 8_192) == 32 * (8_192 + 1_500) * token == 1_587_937_280
    assert bytes_of(spec, 131_072) == 32 * (131_072 + 1_500) * token
    (encoder,) = spec.stacks
    assert (encoder.tokens_per_item, encoder.patches_per_item) == (1_500, 1_500)
    assert encoder.input_elements_per_item == 3_000 * 128
    assert spec.max_position_embeddings == 448


def test_t5_and_bart_keep_the_positions_they_were_trained_for():
    assert bytes_of(spec_of(T5), 8_192) == 12 * (8_192 + 512) * 2 * 12 * 64 * 2
    assert bytes_of(spec_of(BART), 8_192) == 12 * (8_192 + 1_024) * 2 * 16 * 64 * 2


def test_only_the_first_layer_of_each_t5_stack_has_the_table():
    spec = spec_of(T5)
    tables = [t.name for t in tensors(spec) if "relative_attention_bias" in t.name]
    assert tables == [
        "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight",
        "decoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight",
    ]


def test_t5_base_by_hand():
    attention, mlp = 4 * 768 * 768, 2 * 3072 * 768
    encoder = 12 * (attention + mlp + 2 * 768) + 768 + 32 * 12
    decoder = 12 * (2 * attention + mlp + 3 * 768) + 768 + 32 * 12
    assert parameters(spec_of(T5)) == 32_128 * 768 + encoder + decoder == 222_903_552


def test_flan_is_gated_and_tied_whatever_it_says():
    names = {t.name for t in tensors(spec_of(FLAN))}
    assert "decoder.block.0.layer.2.DenseReluDense.wi_1.weight" in names
    assert not any("lm_head" in name for name in names)


def test_whisper_has_no_bias_on_keys():
    (encoder,) = spec_of(WHISPER).stacks
    names = {t.name for t in layer_tensors(encoder.layers[:1], encoder.hidden_size, "l")}
    assert "l.0.self_attn.q_proj.bias" in names
    assert "l.0.self_attn.k_proj.bias" not in names


def test_both_sides_are_cut():
    shapes = {t.name: local_shape(t, Parallelism(tensor_parallel_size=4)) for t in tensors(spec_of(WHISPER))}
    assert shapes["model.encoder.layers.0.self_attn.q_proj.weight"] == (320, 1280)
    assert shapes["model.decoder.layers.0.encoder_attn.out_proj.weight"] == (1280, 320)
    assert shapes["model.decoder.layers.0.fc1.bias"] == (1280,)
    assert shapes["model.encoder.conv1.weight"] == (1280, 128, 3)


@pytest.mark.parametrize(
    ("model", "changes", "error", "field"),
    [
        (T5, {"architectures": ["T5EncoderModel"]}, UnsupportedArchitecture, "architectures"),
        (T5, {"feed_forward_proj": "gated-gelu-new"}, UnsupportedArchitecture, "feed_forward_proj"),
        (T5, {"num_heads": 0}, ConfigError, "num_heads"),
        (BART, {"encoder_attention_heads": 7}, ConfigError, "encoder_attention_heads"),
        (BART, {"tie_word_embeddings": False}, UnsupportedArchitecture, "tie_word_embeddings"),
        (BART, {"decoder_layers": "12"}, ConfigError, "decoder_layers"),
        (WHISPER, {"architectures": ["WhisperForAudioClassification"]}, UnsupportedArchitecture, "architectures"),
        (WHISPER, {"max_source_positions": -1}, ConfigError, "max_source_positions"),
    ],
)
def test_refusals_name_the_field(model, changes, error, field):
    with pytest.raises(error) as caught:
        spec_of(model, **changes)
    assert caught.value.field == field
