"""MiniMax-M3: caches of indexed layers, experts, its tower; Llama 4's tower."""

from __future__ import annotations

import pytest

from planner.errors import ConfigError, UnsupportedArchitecture
from planner.memory.parallel.sharding import Parallelism, local_shape
from planner.model.caches import IndexerCache, KeyValueCache
from planner.model.kinds.feed_forward import Mlp
from planner.model.tensors import active_parameters, parameters, tensors
from tests.model.families.reading import config_of, spec_of

M3, SCOUT = "MiniMaxAI/MiniMax-M3", "meta-llama/Llama-4-Scout-17B-16E-Instruct"


def changed(**changes):
    return spec_of(M3, text_config={**config_of(M3)["text_config"], **changes})


def test_all_but_three_layers_keep_an_indexer_key():
    spec = spec_of(M3)
    kinds = [tuple(map(type, layer.caches())) for layer in spec.layers]
    assert kinds == [(KeyValueCache,)] * 3 + [(KeyValueCache, IndexerCache)] * 57
    assert [isinstance(layer.feed_forward, Mlp) for layer in spec.layers] == [True] * 3 + [False] * 57


@pytest.mark.parametrize("length", [8_192, 131_072])
def test_elements_of_one_sequence(length):
    # 60 layers x 2 x 4 heads x 128, and 57 keys of 128
    elements = 0
    for layer in spec_of(M3).layers:
        for cache in layer.caches():
            if isinstance(cache, IndexerCache):
                elements += cache.slots(length) * cache.index_head_dim
            else:
                elements += cache.slots(length) * cache.num_key_value_heads * 256
    assert elements == (60 * 2 * 4 * 128 + 57 * 128) * length


def test_parameters():
    spec = spec_of(M3)
    experts = 57 * 128 * 3 * 3072 * 6144
    assert parameters(spec) == 427_040_132_864
    assert active_parameters(spec) == 427_040_132_864 - experts + experts // 128 * 4


def test_an_image_is_576_tokens():
    (stack,) = spec_of(M3).stacks
    # 451,584 pixels = 576 x 28 x 28
    assert (stack.tokens_per_item, stack.patches_per_item) == (576, 4 * 576)
    names = {t.name for t in stack.tensors}
    assert "model.multi_modal_projector.merge_linear_1.weight" in names


def test_the_indexer_is_whole_on_every_gpu():
    shapes = {t.name: local_shape(t, Parallelism(tensor_parallel_size=4)) for t in tensors(spec_of(M3))}
    layer = "model.language_model.layers.3"
    assert shapes[f"{layer}.self_attn.indexer.q_proj.weight"] == (4 * 128, 6144)
    assert shapes[f"{layer}.self_attn.k_proj.weight"] == (128, 6144)
    assert shapes[f"{layer}.mlp.shared_experts.gate_up_proj.weight"] == (2 * 768, 6144)


@pytest.mark.parametrize(
    ("changes", "error", "field"),
    [
        ({"attention_output_gate": True}, UnsupportedArchitecture, "attention_output_gate"),
        ({"qk_norm_type": "per_layer"}, UnsupportedArchitecture, "qk_norm_type"),
        ({"moe_layer_freq": [1, 1]}, ConfigError, "moe_layer_freq"),
        ({"layer_types": ["chunked"] * 60}, UnsupportedArchitecture, "layer_types"),
        ({"num_experts_per_tok": 129}, ConfigError, "num_experts_per_tok"),
        ({"rotary_dim": 129}, ConfigError, "rotary_dim"),
    ],
)
def test_refusals_name_the_field(changes, error, field):
    with pytest.raises(error) as caught:
        changed(**changes)
    assert caught.value.field == field


def test_llama4_shows_sixteen_tiles_and_an_overview():
    spec = spec_of(SCOUT)
    (stack,) = spec.stacks
    # 336 / 14 = 24; 24 x 24 folded 2 x 2 is 144
    assert stack.tokens_per_item == 17 * 144
    assert stack.patches_per_item == 17 * (24 * 24 + 1)
    assert spec.layer_prefix == "language_model.model.layers"
    assert "language_model.lm_head.weight" in {t.name for t in tensors(spec)}


def test_llama4_weights_match_the_log():
    # vLLM 0.19, four H100: 53.12 GiB on each, 2.5 GiB of it the rotary table of 10,485,760 positions
    elements = 10_485_760 * 128
    for tensor in tensors(spec_of(SCOUT)):
        size = 1
        for extent in local_shape(tensor, Parallelism(tensor_parallel_size=4)):
            size *= extent
        elements += size
    assert elements * 2 / 2**30 == pytest.approx(53.12, rel=0.003)


def test_llama4_refuses_a_ratio_that_is_none():
    vision = {**config_of(SCOUT)["vision_config"], "pixel_shuffle_ratio": 0}
    with pytest.raises(ConfigError, match="pixel_shuffle_ratio"):
        spec_of(SCOUT, vision_config=vision)
