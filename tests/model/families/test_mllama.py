"""Llama 3.2 Vision: cross-attention layers keep the image and nothing of the text."""

from __future__ import annotations

import pytest

from planner.errors import ConfigError
from planner.model.caches import CrossCache, KeyValueCache
from planner.model.tensors import tensors
from tests.model.families.reading import config_of, spec_of

MODEL = "meta-llama/Llama-3.2-11B-Vision-Instruct"
CROSS = [3, 8, 13, 18, 23, 28, 33, 38]


@pytest.fixture(scope="module")
def spec():
    return spec_of(MODEL)


def bytes_of(spec, length):
    return sum(
        c.slots(length) * c.num_key_value_heads * (c.key_head_dim + c.value_head_dim) * 2
        for layer in spec.layers
        for c in layer.caches()
    )


def test_every_fifth_layer_attends_to_the_image(spec):
    kinds = [type(layer.caches()[0]) for layer in spec.layers]
    assert [index for index, kind in enumerate(kinds) if kind is CrossCache] == CROSS
    assert kinds.count(KeyValueCache) == 32
    names = {t.name for t in tensors(spec)}
    assert "model.language_model.layers.3.cross_attn.q_proj.weight" in names
    assert "model.language_model.layers.3.self_attn.q_proj.weight" not in names


def test_cache_of_one_sequence(spec):
    # 32 layers keep the text; 8 keep four tiles of 40 x 40 patches and a class token, whatever the text
    token, image = 2 * 8 * 128 * 2, 4 * (40 * 40 + 1)
    assert bytes_of(spec, 8_192) == (32 * 8_192 + 8 * image) * token == 1_283_588_096
    assert bytes_of(spec, 131_072) == (32 * 131_072 + 8 * image) * token == 17_389_715_456


def test_embedding_has_eight_rows_more_than_the_head(spec):
    named = {t.name: t for t in tensors(spec)}
    assert named["model.language_model.embed_tokens.weight"].shape == (128_264, 4096)
    assert named["lm_head.weight"].shape == (128_256, 4096)


def test_towers(spec):
    local, above = spec.stacks
    assert (len(local.layers), len(above.layers)) == (32, 8)
    assert (local.tokens_per_item, local.patches_per_item) == (1, 6_404)
    assert local.input_elements_per_item == 4 * 3 * 560 * 560


def test_refusals():
    with pytest.raises(ConfigError, match="cross_attention_layers names layer 40 of 40"):
        spec_of(MODEL, text_config={**config_of(MODEL)["text_config"], "cross_attention_layers": [3, 40]})
    with pytest.raises(ConfigError, match="attention_heads"):
        spec_of(MODEL, vision_config={**config_of(MODEL)["vision_config"], "attention_heads": 7})
    with pytest.raises(ConfigError, match="vision_config is missing"):
        spec_of(MODEL, vision_config=None)
