"""Qwen's vision-language models: image tokens, tower layouts, caches of the text part, refusals."""

from __future__ import annotations

import pytest

from planner.errors import ConfigError
from planner.memory.parallel.sharding import Parallelism, local_shape
from planner.model.tensors import draft_tensors, layer_tensors, parameters, tensors
from tests.model.families.reading import cache_bytes, config_of, kinds_of_state, spec_of

QWEN2, QWEN25 = "Qwen/Qwen2-VL-7B-Instruct", "Qwen/Qwen2.5-VL-7B-Instruct"
QWEN3, QWEN35 = "Qwen/Qwen3-VL-8B-Instruct", "Qwen/Qwen3.5-4B"


def stack_of(model, **changes):
    (stack,) = spec_of(model, **changes).stacks
    return stack


@pytest.mark.parametrize(("model", "pixels"), [(QWEN2, 28), (QWEN25, 28), (QWEN3, 32), (QWEN35, 32)])
def test_one_image_takes_16384_tokens_at_most(model, pixels):
    stack = stack_of(model)
    assert (stack.tokens_per_item, stack.patches_per_item) == (16_384, 4 * 16_384)
    # each image counts as a pair of frames
    assert stack.input_elements_per_item == 16_384 * pixels * pixels * 3 * 2


def test_cache_is_the_text_parts():
    assert cache_bytes(spec_of(QWEN25), 8_192) == 28 * 2 * 4 * 128 * 2 * 8_192
    assert cache_bytes(spec_of(QWEN25), 131_072) == 28 * 2 * 4 * 128 * 2 * 131_072
    assert cache_bytes(spec_of(QWEN3), 8_192) == 36 * 2 * 8 * 128 * 2 * 8_192


def test_qwen2_5_tower():
    stack = stack_of(QWEN25)
    block = 3 * 1280 * 1280 + 3 * 1280 + 1280 * 1280 + 1280 + 3 * 1280 * 3420 + 2 * 3420 + 1280 + 2 * 1280
    merger = 1280 + 5120 * 5120 + 5120 + 3584 * 5120 + 3584
    total = sum(t.numel for t in stack.tensors) + 32 * sum(t.numel for t in stack.layers[0].tensors(1280))
    assert total == 32 * block + merger + 1280 * 3 * 2 * 14 * 14 == 676_550_144


def test_deepstack_is_one_merger_for_each_index():
    with_it = stack_of(QWEN3)
    vision = {**config_of(QWEN3)["vision_config"], "deepstack_visual_indexes": []}
    without = stack_of(QWEN3, vision_config=vision)
    merged = 4 * 1152
    one = 2 * merged + merged * merged + merged + 4096 * merged + 4096
    count = [sum(t.numel for t in s.tensors) for s in (with_it, without)]
    assert count[0] - count[1] == 3 * one


def test_qwen3_5_ignores_deepstack():
    vision = {**config_of(QWEN35)["vision_config"], "deepstack_visual_indexes": [5, 11]}
    assert stack_of(QWEN35, vision_config=vision).tensors == stack_of(QWEN35).tensors


def test_qwen3_5_text_part_keeps_its_states_and_drafts():
    spec = spec_of(QWEN35)
    assert kinds_of_state(spec) == {"gated_delta_net": 24}
    assert parameters(spec) == 4_539_265_536
    # published 4,659,865,088: one draft layer besides
    assert sum(t.numel for t in draft_tensors(spec)) == 4_659_865_088 - 4_539_265_536
    assert {t.name.split(".")[0] for t in draft_tensors(spec)} == {"mtp", "model"}


def test_tower_is_cut_and_the_mergers_with_it():
    spec = spec_of(QWEN25)
    shapes = {t.name: local_shape(t, Parallelism(tensor_parallel_size=4)) for t in tensors(spec)}
    assert shapes["model.visual.blocks.0.attn.qkv.weight"] == (3 * 320, 1280)
    assert shapes["model.visual.blocks.0.mlp.gate_proj.weight"] == (855, 1280)
    assert shapes["model.visual.merger.mlp.0.weight"] == (1280, 5120)
    assert shapes["model.visual.merger.mlp.2.weight"] == (3584, 1280)
    assert shapes["model.visual.patch_embed.proj.weight"] == (1280, 3, 2, 14, 14)


def test_all_layers_of_the_tower_are_one_object():
    stack = stack_of(QWEN3)
    assert len({id(layer) for layer in stack.layers}) == 1
    assert len(list(layer_tensors(stack.layers, stack.hidden_size, stack.layer_prefix))) == 27 * 12


@pytest.mark.parametrize(
    ("model", "key", "value"),
    [
        (QWEN2, "mlp_ratio", 0),
        (QWEN2, "embed_dim", 1281),
        (QWEN25, "num_heads", 0),
        (QWEN3, "num_position_embeddings", -1),
        (QWEN3, "deepstack_visual_indexes", list(range(65))),
        (QWEN3, "spatial_merge_size", 100),
    ],
)
def test_refusals_name_the_field(model, key, value):
    vision = {**config_of(model)["vision_config"], key: value}
    with pytest.raises(ConfigError) as caught:
        spec_of(model, vision_config=vision)
    assert caught.value.field in (key, "num_heads")
