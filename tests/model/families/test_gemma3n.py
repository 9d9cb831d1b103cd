"""Gemma 3n: shared caches, per-layer embeddings, AltUp and Laurel, its towers."""

from __future__ import annotations

import pytest

from planner.errors import ConfigError, UnsupportedArchitecture
from planner.memory.parallel.sharding import Parallelism, local_shape
from planner.model.tensors import parameters, tensors
from tests.model.families.reading import cache_bytes, config_of, spec_of

E2B, E4B = "google/gemma-3n-E2B-it", "google/gemma-3n-E4B-it"


def changed(model, section, **changes):
    return spec_of(model, **{section: {**config_of(model)[section], **changes}})


def test_the_last_layers_read_an_earlier_cache():
    spec = spec_of(E2B)
    keepers = [index for index, layer in enumerate(spec.layers) if layer.caches()]
    assert keepers == list(range(20))  # 30 layers, the last ten share
    names = {t.name for t in tensors(spec)}
    assert "model.language_model.layers.19.self_attn.k_proj.weight" in names
    assert "model.language_model.layers.20.self_attn.k_proj.weight" not in names
    assert "model.language_model.layers.20.self_attn.q_norm.weight" in names


def test_cache_of_one_sequence():
    # E4B: 35 layers, 20 with a cache: every fifth full (4), 16 windows of 512; 2 heads of 256
    token = 2 * 2 * 256 * 2
    assert cache_bytes(spec_of(E4B), 8_192) == (4 * 8_192 + 16 * 512) * token == 83_886_080
    assert cache_bytes(spec_of(E4B), 131_072) == (4 * 131_072 + 16 * 512) * token == 1_090_519_040


def test_parameters_of_each_part():
    spec = spec_of(E2B)
    assert parameters(spec) == 5_418_464_192
    by_part = {}
    for tensor in tensors(spec):
        part = tensor.name.split(".")[1]
        by_part[part] = by_part.get(part, 0) + tensor.numel
    assert by_part["vision_tower"] == 294_126_912  # MobileNet-V5 300M
    assert by_part["embed_vision"] == 128 * 2048 + 2 * 2048 + 2048 * 2048
    assert by_part["embed_audio"] == 128 * 1536 + 2 * 1536 + 2048 * 1536
    # the checkpoint keeps keys and values of the sharing layers too: 5,439,438,272 published
    assert 5_439_438_272 - 5_418_464_192 == 10 * (2 * 512 * 2048 + 256)


def test_per_layer_embeddings():
    named = {t.name: t for t in tensors(spec_of(E2B))}
    table = named["model.language_model.embed_tokens_per_layer.weight"]
    assert table.shape == (262_144, 30 * 256)
    two = Parallelism(tensor_parallel_size=2)
    assert local_shape(table, two) == (131_072, 7680)
    assert local_shape(named["model.language_model.layers.0.per_layer_input_gate.weight"], two) == (256, 2048)
    assert local_shape(named["model.language_model.layers.0.laurel.linear_left.weight"], two) == (32, 2048)
    assert local_shape(named["model.language_model.layers.0.altup.prediction_coefs.weight"], two) == (16, 4)


def test_towers_are_whole_on_every_gpu():
    for tensor in tensors(spec_of(E2B)):
        if "_tower" in tensor.name or ".embed_vision" in tensor.name or ".embed_audio" in tensor.name:
            assert tensor.split is None, tensor.name


def test_items():
    vision, audio = spec_of(E2B).stacks
    assert (vision.tokens_per_item, vision.input_elements_per_item) == (256, 3 * 768 * 768)
    # 188 tokens of four positions of four mel frames: 30.08 s
    assert (audio.tokens_per_item, audio.patches_per_item) == (188, 752)
    assert audio.input_elements_per_item == 4 * 752 * 128


def test_without_towers():
    assert spec_of(E2B, vision_config=None, audio_config=None).stacks == ()


def test_text_alone():
    text = config_of(E2B)["text_config"]
    spec = spec_of(E2B, **text, text_config=None, architectures=["Gemma3nForCausalLM"])
    assert parameters(spec) == 4_435_182_688
    assert spec.layer_prefix == "model.layers"


@pytest.mark.parametrize(
    ("section", "changes", "error", "field"),
    [
        ("text_config", {"num_kv_shared_layers": 31}, ConfigError, "num_kv_shared_layers"),
        ("text_config", {"num_kv_shared_layers": 27}, ConfigError, "num_kv_shared_layers"),
        ("text_config", {"intermediate_size": [8192]}, ConfigError, "intermediate_size"),
        ("text_config", {"layer_types": ["chunked_attention"] * 30}, UnsupportedArchitecture, "layer_types"),
        ("text_config", {"altup_num_inputs": 0}, ConfigError, "altup_num_inputs"),
        ("vision_config", {"architecture": "resnet50"}, UnsupportedArchitecture, "architecture"),
        ("vision_config", {"hidden_size": 1024}, UnsupportedArchitecture, "hidden_size"),
        ("audio_config", {"conf_num_attention_heads": 7}, ConfigError, "conf_num_attention_heads"),
    ],
)
def test_refusals_name_the_field(section, changes, error, field):
    with pytest.raises(error) as caught:
        changed(E2B, section, **changes)
    assert caught.value.field == field
