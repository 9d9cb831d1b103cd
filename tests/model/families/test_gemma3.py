"""Gemma 3 with images: caches by window, tokens of an image, what is cut."""

from __future__ import annotations

import pytest

from planner.errors import ConfigError, UnsupportedArchitecture
from planner.memory.parallel.sharding import Parallelism, local_shape
from planner.model.tensor import Role
from planner.model.tensors import tensors
from tests.model.families.reading import cache_bytes, config_of, spec_of

MODEL = "google/gemma-3-27b-it"


@pytest.fixture(scope="module")
def spec():
    return spec_of(MODEL)


def test_five_windows_to_one_full_layer(spec):
    full = [index for index, layer in enumerate(spec.layers) if layer.caches()[0].sliding_window is None]
    assert full == [5, 11, 17, 23, 29, 35, 41, 47, 53, 59]
    assert {layer.caches()[0].sliding_window for layer in spec.layers} == {None, 1024}


def test_cache_of_one_sequence(spec):
    token = 2 * 16 * 128 * 2
    assert cache_bytes(spec, 8_192) == (10 * 8_192 + 52 * 1_024) * token == 1_107_296_256
    assert cache_bytes(spec, 131_072) == (10 * 131_072 + 52 * 1_024) * token == 11_173_625_856


def test_an_image_is_256_tokens(spec):
    (stack,) = spec.stacks
    assert (stack.tokens_per_item, stack.patches_per_item) == (256, 64 * 64)
    assert stack.input_elements_per_item == 3 * 896 * 896


def test_two_rotary_tables(spec):
    # full layers stretch 131,072 positions by 8
    assert [(table.positions, table.rotary_dim) for table in spec.rope_tables] == [(8 * 131_072, 128), (131_072, 128)]


def test_projection_is_whole_and_the_tower_is_cut(spec):
    shapes = {t.name: local_shape(t, Parallelism(tensor_parallel_size=2)) for t in tensors(spec)}
    assert shapes["model.multi_modal_projector.mm_input_projection_weight"] == (1152, 5376)
    assert shapes["model.vision_tower.encoder.layers.0.mlp.fc1.weight"] == (2152, 1152)
    assert sum(t.role is Role.PROJECTOR for t in tensors(spec)) == 1


def test_refusals():
    with pytest.raises(ConfigError, match="mm_tokens_per_image"):
        spec_of(MODEL, mm_tokens_per_image=5000)
    with pytest.raises(UnsupportedArchitecture, match="minicpm"):
        spec_of(MODEL, text_config={**config_of(MODEL)["text_config"], "model_type": "minicpm"})
