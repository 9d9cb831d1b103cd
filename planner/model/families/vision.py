"""Vision towers that several families share: CLIP, SigLIP and Pixtral.

Sources: transformers 5.24 modeling_ and configuration_ clip, siglip, pixtral. vLLM 0.19 cuts their linear layers
over tensor parallel ranks (models/clip.py, siglip.py, pixtral.py: QKVParallelLinear, ColumnParallelLinear,
RowParallelLinear); patch embedding, positions and norms are whole on every GPU.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from planner.errors import UnsupportedArchitecture
from planner.model.config import LARGEST_LAYER_COUNT, RawConfig
from planner.model.families.decoder import refuse
from planner.model.kinds.attention import AttentionNames
from planner.model.kinds.feed_forward import MlpNames
from planner.model.kinds.tower import convolution, encoder_layer, parameter
from planner.model.spec import Stack
from planner.model.tensor import Norm, Role, layer_norm, linear

LARGEST_WIDTH = 1 << 20
LARGEST_IMAGE = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class TowerSizes:
    """Sizes of a vision transformer; `image_size` is one side in pixels (0: any)."""

    hidden_size: int
    num_layers: int
    num_heads: int
    intermediate_size: int
    channels: int
    patch_size: int
    image_size: int

    @property
    def patches(self) -> int:
        """Patches of one square image at the tower's own size."""
        return (self.image_size // self.patch_size) ** 2

    @property
    def pixels(self) -> int:
        """Elements of one processed image at the tower's own size."""
        return self.channels * self.image_size**2


def read_tower(
    vision: RawConfig,
    defaults: Mapping[str, int],
    *,
    hidden: str = "hidden_size",
    depth: str = "num_hidden_layers",
    heads: str = "num_attention_heads",
    intermediate: str = "intermediate_size",
    channels: str = "num_channels",
) -> TowerSizes:
    """The sizes of a vision config.

    Args:
        defaults: what the transformers class assumes for an absent key, by the names given here.

    Raises:
        ConfigError: a size out of range, or heads that do not divide the width.
    """
    width = vision.integer(hidden, default=defaults[hidden], minimum=1, maximum=LARGEST_WIDTH)
    count = vision.integer(heads, default=defaults[heads], minimum=1, maximum=1 << 12)
    if width % count:
        raise vision.error(heads, f"is {count}, which does not divide {hidden} {width}")
    patch = side(vision, "patch_size", default=defaults["patch_size"])
    image = side(vision, "image_size", default=defaults["image_size"]) if "image_size" in defaults else 0
    if image and image < patch:
        raise vision.error("image_size", f"is {image}, smaller than patch_size {patch}")
    return TowerSizes(
        hidden_size=width,
        num_layers=vision.integer(depth, default=defaults[depth], minimum=1, maximum=LARGEST_LAYER_COUNT),
        num_heads=count,
        intermediate_size=vision.integer(
            intermediate, default=defaults.get(intermediate, 1), minimum=1, maximum=LARGEST_WIDTH
        ),
        channels=vision.integer(channels, default=3, minimum=1, maximum=64),
        patch_size=patch,
        image_size=image,
    )


def side(raw: RawConfig, name: str, *, default: int) -> int:
    """One side of a square, given as a number or as [height, width].

    Raises:
        ConfigError: not a size.
        UnsupportedArchitecture: not a square.
    """
    if not isinstance(raw.raw(name), list):
        return raw.integer(name, default=default, minimum=1, maximum=LARGEST_IMAGE)
    height, width = raw.integers(name, length=2, minimum=1) or [default, default]
    if height != width:
        raise refuse(raw, name, f"is {height} x {width}; only squares are understood")
    if height > LARGEST_IMAGE:
        raise raw.error(name, f"is {height}; expected at most {LARGEST_IMAGE:,}")
    return height


def read_vision_section(raw: RawConfig, name: str = "vision_config") -> RawConfig:
    """The vision section.

    Raises:
        ConfigError: absent.
    """
    vision = raw.section(name)
    if vision is None:
        raise raw.error(name, "is missing; it is needed to size the vision tower")
    return vision


_CLIP = {
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "patch_size": 32,
    "image_size": 224,
}
_SIGLIP = {**_CLIP, "patch_size": 16}
_PIXTRAL = {
    "hidden_size": 1024,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "intermediate_size": 4096,
    "patch_size": 16,
    "image_size": 1024,
}
_OUT_PROJ = AttentionNames(output="out_proj")


@dataclass(frozen=True, slots=True)
class Tower:
    """A vision tower before its wrapper has said how many tokens an image takes.

    Args:
        stack: its tensors and layers.
        sizes: what was read.
        positions: positions its attention sees for one image at its own size (with a class token).
    """

    stack: Stack
    sizes: TowerSizes
    positions: int


def vision_tower(vision: RawConfig, prefix: str, *, replicated: bool = False) -> Tower:
    """The tower that a vision_config names by its model_type.

    Raises:
        UnsupportedArchitecture: not CLIP, SigLIP or Pixtral.
        ConfigError: as `read_tower`.
    """
    kind = vision.text("model_type", default="clip_vision_model")
    builders = {"clip_vision_model": clip, "siglip_vision_model": siglip, "pixtral": pixtral}
    if kind not in builders:
        raise UnsupportedArchitecture(
            f"{vision.path}: model_type {kind[:40]!r} is not understood; expected one of {', '.join(builders)}",
            field="vision_config",
        )
    return builders[kind](vision, prefix, replicated=replicated)


def clip(vision: RawConfig, prefix: str, *, replicated: bool = False) -> Tower:
    """CLIP's image encoder: a class token, learned positions, a norm before and after (arXiv 2103.00020)."""
    sizes = read_tower(vision, _CLIP)
    vision.has("projection_dim", "vocab_size")  # of the contrastive head, which no language model has
    hidden = sizes.hidden_size
    embeddings = f"{prefix}.embeddings"
    tensors = (
        parameter(f"{embeddings}.class_embedding", hidden),
        *convolution(f"{embeddings}.patch_embedding", hidden, sizes.channels, sizes.patch_size, sizes.patch_size),
        parameter(f"{embeddings}.position_embedding.weight", sizes.patches + 1, hidden),
        *layer_norm(f"{prefix}.pre_layrnorm", hidden).tensors(),
        *layer_norm(f"{prefix}.post_layernorm", hidden).tensors(),
    )
    layer = encoder_layer(
        hidden_size=hidden,
        num_heads=sizes.num_heads,
        intermediate_size=sizes.intermediate_size,
        activation=vision.text("hidden_act", default="quick_gelu"),
        norms=(layer_norm("layer_norm1", hidden), layer_norm("layer_norm2", hidden)),
        attention_names=_OUT_PROJ,
        attention_replicated=replicated,
        mlp_replicated=replicated,
    )
    stack = Stack(
        name="vision",
        hidden_size=hidden,
        tensors=tensors,
        layers=(layer,) * sizes.num_layers,
        layer_prefix=f"{prefix}.encoder.layers",
    )
    return Tower(stack, sizes, sizes.patches + 1)


def siglip(vision: RawConfig, prefix: str, *, replicated: bool = False) -> Tower:
    """SigLIP's image encoder: no class token; its pooling head only where the config keeps it (arXiv 2303.15343)."""
    sizes = read_tower(vision, _SIGLIP)
    hidden = sizes.hidden_size
    embeddings = f"{prefix}.embeddings"
    tensors = (
        *convolution(
            f"{embeddings}.patch_embedding", hidden, sizes.channels, sizes.patch_size, sizes.patch_size, bias=True
        ),
        parameter(f"{embeddings}.position_embedding.weight", sizes.patches, hidden),
        *layer_norm(f"{prefix}.post_layernorm", hidden).tensors(),
    )
    if vision.flag("vision_use_head", default=True):
        head = f"{prefix}.head"
        tensors += (
            parameter(f"{head}.probe", 1, 1, hidden),
            parameter(f"{head}.attention.in_proj_weight", 3 * hidden, hidden),
            parameter(f"{head}.attention.in_proj_bias", 3 * hidden),
            *linear(f"{head}.attention.out_proj", hidden, hidden, Role.VISION, bias=True),
            *layer_norm(f"{head}.layernorm", hidden).tensors(),
            *linear(f"{head}.mlp.fc1", sizes.intermediate_size, hidden, Role.VISION, bias=True),
            *linear(f"{head}.mlp.fc2", hidden, sizes.intermediate_size, Role.VISION, bias=True),
        )
    layer = encoder_layer(
        hidden_size=hidden,
        num_heads=sizes.num_heads,
        intermediate_size=sizes.intermediate_size,
        activation=vision.text("hidden_act", default="gelu_pytorch_tanh"),
        norms=(layer_norm("layer_norm1", hidden), layer_norm("layer_norm2", hidden)),
        attention_names=_OUT_PROJ,
        attention_replicated=replicated,
        mlp_replicated=replicated,
    )
    stack = Stack(
        name="vision",
        hidden_size=hidden,
        tensors=tensors,
        layers=(layer,) * sizes.num_layers,
        layer_prefix=f"{prefix}.encoder.layers",
    )
    return Tower(stack, sizes, sizes.patches)


def pixtral(vision: RawConfig, prefix: str, *, replicated: bool = False) -> Tower:
    """Pixtral's image encoder: any image up to `image_size` a side, 2D rotary positions (arXiv 2410.07073)."""
    sizes = read_tower(vision, _PIXTRAL)
    hidden = sizes.hidden_size
    head_dim = vision.integer("head_dim", default=hidden // sizes.num_heads, minimum=1)
    if head_dim * sizes.num_heads != hidden:
        raise refuse(vision, "head_dim", f"{head_dim} times {sizes.num_heads} heads is not hidden_size {hidden}")
    tensors = (
        *convolution(f"{prefix}.patch_conv", hidden, sizes.channels, sizes.patch_size, sizes.patch_size),
        *Norm(f"{prefix}.ln_pre", hidden).tensors(),
    )
    layer = encoder_layer(
        hidden_size=hidden,
        num_heads=sizes.num_heads,
        intermediate_size=sizes.intermediate_size,
        activation=vision.text("hidden_act", default="gelu"),
        norms=(Norm("attention_norm", hidden), Norm("ffn_norm", hidden)),
        attention_names=AttentionNames(block="attention"),
        mlp_names=MlpNames(block="feed_forward"),
        gated=True,
        attention_bias=False,
        mlp_bias=False,
        rotary=True,
        attention_replicated=replicated,
        mlp_replicated=replicated,
    )
    stack = Stack(
        name="vision",
        hidden_size=hidden,
        tensors=tensors,
        layers=(layer,) * sizes.num_layers,
        layer_prefix=f"{prefix}.transformer.layers",
    )
    return Tower(stack, sizes, sizes.patches)
