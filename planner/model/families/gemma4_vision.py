"""Gemma 4 with images and audio: a vision transformer pooled 3 x 3, a conformer; or, unified, no towers at all.

gemma4          images of any shape up to a budget of patches, positions from a table by row and column
gemma4_unified  patches of 48 x 48 pixels and frames of 640 audio samples go through one matrix each

Sources: transformers 5.24 gemma4, gemma4_unified (configuration_, modeling_, processing_). vLLM 0.19
models/gemma4_mm.py runs transformers' towers: whole on every GPU.
"""

from __future__ import annotations

from planner.model.config import RawConfig
from planner.model.families.conformer import gemma4_audio
from planner.model.families.decoder import refuse
from planner.model.families.nested import multimodal, text_spec
from planner.model.families.vision import LARGEST_WIDTH, read_tower
from planner.model.kinds.attention import AttentionNames
from planner.model.kinds.feed_forward import MlpNames
from planner.model.kinds.tower import encoder_layer, parameter, projector
from planner.model.spec import ModelSpec, Stack
from planner.model.tensor import Norm, Role, layer_norm, linear

_VISION = {
    "hidden_size": 768,
    "num_hidden_layers": 16,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "patch_size": 16,
}
_TOWER = "model.vision_tower"
_ATTENTION = AttentionNames(query="q_proj.linear", key="k_proj.linear", value="v_proj.linear", output="o_proj.linear")
_MLP = MlpNames(gate="gate_proj.linear", up="up_proj.linear", down="down_proj.linear")
# Gemma4Processor: image_seq_length and audio_seq_length
_IMAGE_TOKENS, _AUDIO_TOKENS = 280, 750


def build(raw: RawConfig) -> ModelSpec:
    """The spec of a gemma4 or gemma4_unified config.

    Raises:
        ConfigError: a field that is missing or makes no sense.
        UnsupportedArchitecture: a value that selects a variant which is not modelled.
    """
    unified = raw.text("model_type", default="gemma4") == "gemma4_unified"
    text = text_spec(raw, text_type="gemma4_unified_text" if unified else "gemma4_text", tie_default=True)
    vision, audio = raw.section("vision_config"), raw.section("audio_config")
    stacks: list[Stack] = []
    if vision is not None:
        tokens = raw.integer("vision_soft_tokens_per_image", default=_IMAGE_TOKENS, minimum=1, maximum=1 << 16)
        tower = _unified_vision if unified else _vision
        stacks.append(tower(vision, text.hidden_size, tokens))
    if audio is not None:
        sound = _unified_audio if unified else gemma4_audio
        stacks.append(sound(audio, text.hidden_size, _AUDIO_TOKENS))
    return multimodal(raw, text, tuple(stacks), vision, audio)


def _vision(vision: RawConfig, text_size: int, tokens: int) -> Stack:
    sizes = read_tower(vision, _VISION)
    hidden, heads = sizes.hidden_size, sizes.num_heads
    head_dim = vision.integer("head_dim", default=64, minimum=1, maximum=1 << 14)
    if head_dim * heads != hidden:
        raise refuse(vision, "head_dim", f"{head_dim} times {heads} heads is not hidden_size {hidden}")
    if vision.integer("num_key_value_heads", default=heads, minimum=1) != heads:
        raise refuse(vision, "num_key_value_heads", f"is not num_attention_heads {heads}")
    if vision.flag("attention_bias", default=False):
        raise refuse(vision, "attention_bias", "is true; only false is understood")
    vision.has("global_head_dim")  # the tower has one size of head
    tokens = vision.integer("default_output_length", default=tokens, minimum=1, maximum=1 << 16)
    pool = vision.integer("pooling_kernel_size", default=3, minimum=1, maximum=16)
    positions = vision.integer("position_embedding_size", default=10_240, minimum=1, maximum=1 << 24)
    patch_elements = sizes.channels * sizes.patch_size**2
    names = ("input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm")
    layer = encoder_layer(
        hidden_size=hidden,
        num_heads=heads,
        intermediate_size=sizes.intermediate_size,
        activation=vision.text("hidden_activation", default="gelu_pytorch_tanh"),
        norms=tuple(Norm(name, hidden) for name in names),
        attention_names=_ATTENTION,
        mlp_names=_MLP,
        gated=True,
        attention_bias=False,
        mlp_bias=False,
        query_norm=Norm("q_norm", head_dim),
        key_norm=Norm("k_norm", head_dim),
        rotary=True,
        attention_replicated=True,
        mlp_replicated=True,
    )
    patches = tokens * pool**2
    return Stack(
        name="vision",
        hidden_size=hidden,
        tensors=(
            parameter(f"{_TOWER}.patch_embedder.position_embedding_table", 2, positions, hidden),
            *linear(f"{_TOWER}.patch_embedder.input_proj", hidden, patch_elements, Role.VISION),
            *projector(
                "model.embed_vision", (hidden, text_size), bias=False, sharded=False, names=("embedding_projection",)
            ),
        ),
        layers=(layer,) * sizes.num_layers,
        layer_prefix=f"{_TOWER}.encoder.layers",
        tokens_per_item=tokens,
        patches_per_item=patches,
        input_elements_per_item=patches * patch_elements,
        detail=f"an image is scaled to at most {patches:,} patches of {sizes.patch_size}, pooled {pool} x {pool} into"
        f" {tokens} tokens (default_output_length; the processor's max_soft_tokens can raise it to 1,120)",
    )


def _unified_vision(vision: RawConfig, text_size: int, tokens: int) -> Stack:
    patch = vision.integer("patch_size", default=16, minimum=1, maximum=1024)
    pool = vision.integer("pooling_kernel_size", default=3, minimum=1, maximum=16)
    width = vision.integer("mm_embed_dim", default=3840, minimum=1, maximum=LARGEST_WIDTH)
    positions = vision.integer("mm_posemb_size", default=1120, minimum=1, maximum=1 << 24)
    output = vision.integer("output_proj_dims", default=3840, minimum=1, maximum=LARGEST_WIDTH)
    if output != width:
        raise refuse(vision, "output_proj_dims", f"is {output}, not mm_embed_dim {width}")
    elements = 3 * (patch * pool) ** 2
    embed = "model.embed_vision"
    return Stack(
        name="vision",
        hidden_size=width,
        tensors=(
            parameter(f"{embed}.pos_embedding", positions, 2, width),
            *layer_norm(f"{embed}.patch_ln1", elements).tensors(),
            *linear(f"{embed}.patch_dense", width, elements, Role.PROJECTOR, bias=True),
            *layer_norm(f"{embed}.patch_ln2", width).tensors(),
            *layer_norm(f"{embed}.pos_norm", width).tensors(),
            *projector(
                f"{embed}.multimodal_embedder",
                (output, text_size),
                bias=False,
                sharded=False,
                names=("embedding_projection",),
            ),
        ),
        layers=(),
        layer_prefix=embed,
        tokens_per_item=tokens,
        patches_per_item=tokens,
        input_elements_per_item=tokens * elements,
        detail=f"no tower: an image is at most {tokens} patches of {patch * pool} x {patch * pool} pixels, a token each"
        " (Gemma4UnifiedProcessor, image_seq_length)",
    )


def _unified_audio(audio: RawConfig, text_size: int, tokens: int) -> Stack:
    width = audio.integer("audio_embed_dim", default=640, minimum=1, maximum=LARGEST_WIDTH)
    return Stack(
        name="audio",
        hidden_size=width,
        tensors=projector(
            "model.embed_audio", (width, text_size), bias=False, sharded=False, names=("embedding_projection",)
        ),
        layers=(),
        layer_prefix="model.embed_audio",
        tokens_per_item=tokens,
        patches_per_item=tokens,
        input_elements_per_item=tokens * width,
        detail=f"no tower: a clip is at most {tokens} frames of {width} samples, a token each (Gemma4UnifiedProcessor,"
        " audio_seq_length)",
    )
