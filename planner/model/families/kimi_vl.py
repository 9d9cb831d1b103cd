"""Kimi-VL and Kimi K2.5: MoonViT, images of any size, patches merged 2 x 2, a DeepSeek-V3 decoder.

Sources: transformers 5.24 models/kimi_k25; the Kimi-VL report (arXiv 2504.07491). vLLM 0.19 models/kimi_k25_vit.py cuts
the tower's linear layers; the projector is whole on every GPU.
"""

from __future__ import annotations

from planner.model.config import RawConfig
from planner.model.families.decoder import refuse
from planner.model.families.nested import multimodal, text_spec
from planner.model.families.vision import LARGEST_WIDTH, read_vision_section
from planner.model.kinds.attention import AttentionNames
from planner.model.kinds.tower import convolution, encoder_layer, parameter, projector
from planner.model.spec import ModelSpec, Stack
from planner.model.tensor import layer_norm

# Kimi_K25ImageProcessor.max_patches, as published (in_patch_limit); Kimi-VL publishes 4,096
_MAX_PATCHES = {"kimi_k25": 16_384, "kimi_vl": 4_096}


def build(raw: RawConfig) -> ModelSpec:
    """The spec of a kimi_k25 or kimi_vl config.

    Raises:
        ConfigError: a field that is missing or makes no sense.
    """
    text = text_spec(raw, text_type="deepseek_v3", tie_default=True)
    vision = read_vision_section(raw)
    limit = _MAX_PATCHES.get(raw.text("model_type", default="kimi_k25"), 16_384)
    return multimodal(raw, text, (_tower(vision, text.hidden_size, limit),), vision)


def _tower(vision: RawConfig, text_size: int, limit: int) -> Stack:
    def size(*names: str, default: int) -> int:
        return vision.integer(*names, default=default, minimum=1, maximum=LARGEST_WIDTH)

    hidden = size("hidden_size", "vt_hidden_size", default=1152)
    heads = size("num_attention_heads", "vt_num_attention_heads", default=16)
    if hidden % heads:
        raise vision.error("num_attention_heads", f"is {heads}, which does not divide hidden_size {hidden}")
    count = vision.integer("num_hidden_layers", "vt_num_hidden_layers", default=27, minimum=1, maximum=2000)
    patch = vision.integer("patch_size", default=14, minimum=1, maximum=1024)
    height = vision.integer("pos_emb_height", "init_pos_emb_height", default=64, minimum=1, maximum=1 << 12)
    width = vision.integer("pos_emb_width", "init_pos_emb_width", default=64, minimum=1, maximum=1 << 12)
    vision.has("init_pos_emb_time", "pos_emb_time", "text_hidden_size")
    if vision.integer("mm_hidden_size", default=hidden, minimum=1) != hidden:
        raise refuse(vision, "mm_hidden_size", f"is not the tower's hidden_size {hidden}")
    kernel = vision.integers("merge_kernel_size", length=2, minimum=1) or [2, 2]
    if max(kernel) > 16:
        raise vision.error("merge_kernel_size", f"is {kernel[0]} x {kernel[1]}; expected at most 16 x 16")
    fold = kernel[0] * kernel[1]
    tower = "model.vision_tower"
    tensors = (
        *convolution(f"{tower}.patch_embed.proj", hidden, 3, patch, patch, bias=True),
        parameter(f"{tower}.patch_embed.pos_emb.position_embeddings", height, width, hidden),
        *layer_norm(f"{tower}.final_layernorm", hidden).tensors(),
        *layer_norm("model.mm_projector.pre_norm", hidden).tensors(),
        *projector(
            "model.mm_projector",
            (hidden * fold, hidden * fold, text_size),
            sharded=False,
            names=("in_proj", "out_proj"),
        ),
    )
    layer = encoder_layer(
        hidden_size=hidden,
        num_heads=heads,
        intermediate_size=size("intermediate_size", "vt_intermediate_size", default=4304),
        activation=vision.text("hidden_act", default="gelu_pytorch_tanh"),
        norms=(layer_norm("norm1", hidden), layer_norm("norm2", hidden)),
        attention_names=AttentionNames(block="attn", output="proj"),
        rotary=True,
    )
    return Stack(
        name="vision",
        hidden_size=hidden,
        tensors=tensors,
        layers=(layer,) * count,
        layer_prefix=f"{tower}.layers",
        tokens_per_item=limit // fold,
        patches_per_item=limit,
        input_elements_per_item=limit * 3 * patch**2,
        detail=f"at most {limit:,} patches of {patch} x {patch} an image (published preprocessor_config.json), merged"
        f" {kernel[0]} x {kernel[1]} into {limit // fold:,} tokens",
    )
