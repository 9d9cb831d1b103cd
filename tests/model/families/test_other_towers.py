"""InternVL, GLM-V, Kimi and Phi-3 Vision: tokens of an image, what is cut, refusals."""

from __future__ import annotations

import pytest

from planner.errors import ConfigError, UnsupportedArchitecture
from planner.memory.parallel.sharding import Parallelism, local_shape
from planner.model.tensors import parameters, tensors
from tests.model.families.reading import cache_bytes, config_of, spec_of

INTERN, INTERN_RMS = "OpenGVLab/InternVL3-8B-hf", "OpenGVLab/InternVL3_5-38B-HF"
GLM, KIMI, PHI = "zai-org/GLM-4.1V-9B-Thinking", "moonshotai/Kimi-K2.5", "microsoft/Phi-3.5-vision-instruct"


def stack_of(model, **changes):
    (stack,) = spec_of(model, **changes).stacks
    return stack


def test_internvl_shows_twelve_tiles_and_an_overview():
    stack = stack_of(INTERN)
    # 448 / 14 = 32; 32 x 32 folded 2 x 2
    assert stack.tokens_per_item == 13 * 16 * 16
    assert stack.patches_per_item == 13 * (32 * 32 + 1)
    assert stack.input_elements_per_item == 13 * 3 * 448 * 448


def test_internvit_6b_divides_where_its_25_heads_do_not():
    spec = spec_of(INTERN_RMS)
    shapes = {t.name: local_shape(t, Parallelism(tensor_parallel_size=2)) for t in tensors(spec)}
    layer = "model.vision_tower.encoder.layer.0"
    assert shapes[f"{layer}.attention.q_proj.weight"] == (3200, 3200)  # vLLM keeps the attention whole
    assert shapes[f"{layer}.mlp.fc1.weight"] == (6400, 3200)
    assert shapes[f"{layer}.attention.q_norm.weight"] == (3200,)
    assert f"{layer}.attention.q_norm.weight" not in {t.name for t in tensors(spec_of(INTERN))}


def test_glm_merges_after_a_strided_convolution():
    stack = stack_of(GLM)
    # 9,633,792 pixels over a pair of frames: 4,816,896 = 6,144 x 28 x 28
    assert (stack.tokens_per_item, stack.patches_per_item) == (6_144, 4 * 6_144)
    assert stack.input_elements_per_item == 4 * 6_144 * 3 * 2 * 14 * 14
    named = {t.name: t for t in stack.tensors}
    assert named["model.visual.downsample.weight"].shape == (4096, 1536, 2, 2)
    assert named["model.visual.merger.gate_proj.weight"].shape == (13_696, 4096)
    assert stack.layers[0].feed_forward.intermediate_size == 4096  # out_hidden_size, not intermediate_size
    # 40 layers x 2 x 2 heads x 128
    assert cache_bytes(spec_of(GLM), 8_192) == 40 * 2 * 2 * 128 * 2 * 8_192


def test_kimi_keeps_one_latent_a_token():
    stack = stack_of(KIMI)
    assert (stack.tokens_per_item, stack.patches_per_item) == (16_384 // 4, 16_384)
    # 61 layers of 512 + 64
    assert cache_bytes(spec_of(KIMI), 8_192) == 61 * 576 * 2 * 8_192 == 575_668_224
    assert cache_bytes(spec_of(KIMI), 131_072) == 61 * 576 * 2 * 131_072


def test_kimi_reads_both_spellings():
    old = config_of(KIMI)["vision_config"]
    new = {key.removeprefix("vt_").removeprefix("init_"): value for key, value in old.items()}
    assert stack_of(KIMI, vision_config=new) == stack_of(KIMI)


def test_kimi_vl_shows_fewer_patches():
    assert stack_of(KIMI, model_type="kimi_vl").tokens_per_item == 4_096 // 4


def test_phi3_vision_is_the_published_total():
    spec, stack = spec_of(PHI), stack_of(PHI)
    assert parameters(spec) == 4_146_621_440
    # 17 tiles of 12 x 12, 12 ends of row each, one separator
    assert stack.tokens_per_item == 17 * 144 + 17 * 12 + 1
    assert stack.patches_per_item == 17 * 577
    assert cache_bytes(spec, 8_192) == 32 * 2 * 32 * 96 * 2 * 8_192
    assert spec.layer_prefix == "model.layers"


@pytest.mark.parametrize(
    ("model", "section", "changes", "error", "field"),
    [
        (INTERN, "vision_config", {"norm_type": "batch_norm"}, UnsupportedArchitecture, "norm_type"),
        (INTERN, "vision_config", {"image_size": [448, 224]}, UnsupportedArchitecture, "image_size"),
        (GLM, "vision_config", {"num_heads": 7}, ConfigError, "num_heads"),
        (GLM, "vision_config", {"spatial_merge_size": 17}, ConfigError, "spatial_merge_size"),
        (KIMI, "vision_config", {"merge_kernel_size": [2]}, ConfigError, "merge_kernel_size"),
        (KIMI, "vision_config", {"merge_kernel_size": [17, 2]}, ConfigError, "merge_kernel_size"),
        (KIMI, "vision_config", {"mm_hidden_size": 2048}, UnsupportedArchitecture, "mm_hidden_size"),
        (KIMI, "vision_config", {"vt_num_attention_heads": 7}, ConfigError, "num_attention_heads"),
        (PHI, "embd_layer", {"projection_cls": "linear"}, UnsupportedArchitecture, "embd_layer"),
        (PHI, "img_processor", {"name": "siglip"}, UnsupportedArchitecture, "img_processor"),
    ],
)
def test_refusals_name_the_field(model, section, changes, error, field):
    with pytest.raises(error) as caught:
        spec_of(model, **{section: {**config_of(model)[section], **changes}})
    assert caught.value.field == field


@pytest.mark.parametrize("ratio", [0, 2, 0.3, -1])
def test_internvl_folds_by_whole_numbers(ratio):
    with pytest.raises(ConfigError) as caught:
        spec_of(INTERN, downsample_ratio=ratio)
    assert caught.value.field == "downsample_ratio"
