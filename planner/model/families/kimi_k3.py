"""Kimi K3: a MoonViT tower with RMSNorms and no biases, patches merged 2 x 2, a Kimi Linear decoder.

Sources: the Kimi K3 report (arXiv 2607.24653) and its config.json; vLLM models/kimi_k3.py (the projector is whole on
every GPU). The sum of all tensors and score corrections is the published 2,779,931,837,184.
"""

from __future__ import annotations

from planner.model.config import LARGEST_LAYER_COUNT, RawConfig
from planner.model.families.nested import multimodal, text_spec
from planner.model.families.recurrent import refuse_unless
from planner.model.families.vision import LARGEST_WIDTH, read_vision_section
from planner.model.kinds.attention import Attention, AttentionNames
from planner.model.kinds.feed_forward import Mlp, MlpNames
from planner.model.kinds.tower import convolution, parameter, projector
from planner.model.spec import Layer, ModelSpec, Stack
from planner.model.tensor import Norm, Role

_ONLY = {
    "norm_type": "rmsnorm",
    "mlp_type": "mlp2",
    "mm_projector_type": "patchmergerv2",
    "merge_type": "sd2_tpool",
    "pos_emb_type": "divided_fixed",
    "attn_bias": False,
    "linear_bias": False,
    "patch_embed_proj_bias": False,
}


def build(raw: RawConfig) -> ModelSpec:
    """The spec of a kimi_k3 config.

    Raises:
        ConfigError: a field that is missing or makes no sense.
        UnsupportedArchitecture: a value that selects a variant which is not modelled.
    """
    text = text_spec(raw, text_type="kimi_linear", prefix="language_model.model", head="language_model")
    vision = read_vision_section(raw)
    return multimodal(raw, text, (_tower(vision, text.hidden_size),), vision)


def _tower(vision: RawConfig, text_size: int) -> Stack:
    for field, understood in _ONLY.items():
        refuse_unless(vision, field, understood)

    def size(name: str, default: int, maximum: int = LARGEST_WIDTH) -> int:
        return vision.integer(name, default=default, minimum=1, maximum=maximum)

    hidden, heads = size("vt_hidden_size", 1024), size("vt_num_attention_heads", 12, 1 << 12)
    attention_size = size("qkv_hidden_size", 1536)
    if attention_size % heads:
        raise vision.error("qkv_hidden_size", f"is {attention_size}, not a multiple of vt_num_attention_heads {heads}")
    for field, expected in (("mm_hidden_size", hidden), ("text_hidden_size", text_size)):
        if size(field, expected) != expected:
            raise vision.error(field, f"does not agree with the {expected} that it must match")
    patch = size("patch_size", 14, 1 << 10)
    height, width = size("init_pos_emb_height", 64, 1 << 12), size("init_pos_emb_width", 64, 1 << 12)
    kernel = vision.integers("merge_kernel_size", length=2, minimum=1) or [2, 2]
    if max(kernel) > 16:
        raise vision.error("merge_kernel_size", f"is {kernel[0]} x {kernel[1]}; expected at most 16 x 16")
    merged = hidden * kernel[0] * kernel[1]
    layer = Layer(
        mixers=(
            Attention(
                num_attention_heads=heads,
                num_key_value_heads=heads,
                head_dim=attention_size // heads,
                rotary_dim=attention_size // heads,
                fused=True,
                causal=False,
                role=Role.VISION,
                names=AttentionNames(block="", fused="wqkv", output="wo"),
            ),
        ),
        feed_forward=Mlp(
            intermediate_size=size("vt_intermediate_size", 4096),
            gated=False,
            activation=vision.text("activation_func", default="gelu_pytorch_tanh"),
            role=Role.VISION,
            names=MlpNames(up="fc0", down="fc1"),
        ),
        norms=(Norm("norm0", hidden), Norm("norm1", hidden)),
    )
    tensors = (
        *convolution("vision_tower.patch_embed.proj", hidden, 3, patch, patch),
        parameter("vision_tower.patch_embed.pos_emb.weight", height, width, hidden),
        *Norm("vision_tower.encoder.final_layernorm", hidden).tensors(),
        *projector("mm_projector.proj", (merged, merged, text_size), bias=False, sharded=False, names=("0", "2")),
        *Norm("mm_projector.post_norm", text_size).tensors(),
    )
    vision.has("init_pos_emb_time")  # a fixed table, not a weight
    return Stack(
        name="vision",
        hidden_size=hidden,
        tensors=tensors,
        layers=(layer,) * size("vt_num_hidden_layers", 27, LARGEST_LAYER_COUNT),
        layer_prefix="vision_tower.encoder.blocks",
        detail=f"patches of {patch} x {patch}, merged {kernel[0]} x {kernel[1]}; no limit for an image is published",
    )
