"""LLaVA, LLaVA-NeXT and Mistral 3: tokens of an image, projectors, shards, refusals."""

from __future__ import annotations

import pytest

from planner.errors import ConfigError, UnsupportedArchitecture
from planner.memory.parallel.sharding import Parallelism, local_shape
from planner.model.tensors import tensors
from tests.model.families.reading import cache_bytes, config_of, spec_of

LLAVA, NEXT = "llava-hf/llava-1.5-7b-hf", "llava-hf/llava-v1.6-mistral-7b-hf"
PIXTRAL, MISTRAL = "mistral-community/pixtral-12b", "mistralai/Mistral-Small-3.1-24B-Instruct-2503"


def sizes(model, **changes):
    (stack,) = spec_of(model, **changes).stacks
    return stack.tokens_per_item, stack.patches_per_item, stack.input_elements_per_item


def test_llava_sees_24_by_24_patches():
    # 336 / 14 = 24; the class token is seen and dropped
    assert sizes(LLAVA) == (24 * 24, 24 * 24 + 1, 3 * 336 * 336)
    assert sizes(LLAVA, vision_feature_select_strategy="full")[0] == 577


def test_llava_next_fills_four_tiles_and_an_overview():
    # 672 x 672: 48 x 48 features, an end for each of 48 rows, 576 of the overview
    assert sizes(NEXT) == (48 * 48 + 48 + 576, 5 * 577, 5 * 3 * 336 * 336)


def test_granite_vision_is_llava_next_with_siglip():
    vision = {
        "model_type": "siglip_vision_model", "hidden_size": 1152, "image_size": 384, "intermediate_size": 4304,
        "num_attention_heads": 16, "num_hidden_layers": 27, "patch_size": 14,
    }  # fmt: skip
    changes = {
        "vision_config": vision, "image_grid_pinpoints": [[384, 3840], [768, 1536]],
        "vision_feature_select_strategy": "full", "vision_feature_layer": [-24, -20, -12, -1],
    }  # fmt: skip
    # one row of ten tiles of 27 x 27, 27 ends of row, the overview
    assert sizes(NEXT, **changes)[0] == 10 * 27 * 27 + 27 + 27 * 27
    projector = next(t for t in tensors(spec_of(NEXT, **changes)) if t.name.endswith("projector.linear_1.weight"))
    assert projector.shape == (4096, 4 * 1152)


def test_pixtral_ends_each_row_with_a_token():
    # 1024 / 16 = 64 rows
    assert sizes(PIXTRAL) == (64 * 65, 64 * 64, 3 * 1024 * 1024)


def test_mistral_merges_two_by_two():
    # 1540 / 28 = 55 rows of merged patches
    assert sizes(MISTRAL) == (55 * 56, 110 * 110, 3 * 1540 * 1540)


def test_the_tower_adds_no_cache():
    # 40 layers x 2 x 8 heads x 128 x 2 bytes a token
    assert cache_bytes(spec_of(MISTRAL), 8_192) == 40 * 2 * 8 * 128 * 2 * 8_192
    assert cache_bytes(spec_of(MISTRAL), 131_072) == 40 * 2 * 8 * 128 * 2 * 131_072


def test_mistrals_own_repositories_keep_the_tower_whole():
    # vLLM 0.19, H100: 44.76 GiB on one GPU, 22.80 on each of two, 11.86 on each of four
    spec, gib = spec_of(MISTRAL), 2**30
    rope = 131_072 * 128 * 2

    def weights(ways):
        shapes = (local_shape(t, Parallelism(tensor_parallel_size=ways)) for t in tensors(spec))
        elements = 0
        for shape in shapes:
            size = 1
            for extent in shape:
                size *= extent
            elements += size
        return (elements * 2 + rope) / gib

    assert weights(1) == pytest.approx(44.76, rel=0.002)
    assert weights(2) == pytest.approx(22.80, rel=0.002)
    assert weights(4) == pytest.approx(11.86, rel=0.004)


@pytest.mark.parametrize(
    ("model", "changes", "error", "field"),
    [
        (LLAVA, {"vision_config": None}, ConfigError, "vision_config"),
        (LLAVA, {"vision_feature_select_strategy": "cls"}, UnsupportedArchitecture, "vision_feature_select_strategy"),
        (NEXT, {"image_grid_pinpoints": "all"}, ConfigError, "image_grid_pinpoints"),
        (NEXT, {"image_grid_pinpoints": [[336]]}, ConfigError, "image_grid_pinpoints"),
        (NEXT, {"image_grid_pinpoints": [[336, True]]}, ConfigError, "image_grid_pinpoints"),
        (NEXT, {"image_grid_pinpoints": [[65000, 65000]]}, ConfigError, "image_grid_pinpoints"),
        (MISTRAL, {"vision_config": config_of(LLAVA)["vision_config"]}, UnsupportedArchitecture, "vision_config"),
        (MISTRAL, {"spatial_merge_size": 0}, ConfigError, "spatial_merge_size"),
    ],
)
def test_refusals_name_the_field(model, changes, error, field):
    with pytest.raises(error) as caught:
        spec_of(model, **changes)
    assert caught.value.field == field
