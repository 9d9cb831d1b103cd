"""Gemma 3n's vision tower: MobileNet-V5 300M, a convolutional network of fixed layout (294,126,912 parameters).

Four stages: edge residuals, inverted bottlenecks, then in the last two blocks of multi-query attention over the feature
map alternating with bottlenecks; the last stages are fused to 16 x 16 features of 2,048. A convolution's weight is
[out, in, height, width]; there are no biases but the stem's.

Source: timm 1.0.31 `mobilenetv5_300m_enc` (the layout that transformers loads); transformers 5.24 gemma3n.
"""

from __future__ import annotations

from functools import cache

from planner.model.config import RawConfig
from planner.model.families.decoder import refuse
from planner.model.families.vision import LARGEST_WIDTH
from planner.model.kinds.tower import convolution, parameter, projector
from planner.model.spec import Stack
from planner.model.tensor import Norm, Role, Tensor

_ARCHITECTURE = "mobilenetv5_300m_enc"
_FEATURES = 2048
_IMAGE_SIZE = 768
_TOWER = "model.vision_tower.timm_model"


def mobilenet_v5(vision: RawConfig, text_size: int, tokens: int) -> Stack:
    """The tower with the embedder that turns its features, or one of 128 special tokens, into the decoder's width.

    Raises:
        UnsupportedArchitecture: another network, or other features.
    """
    architecture = vision.text("architecture", default=_ARCHITECTURE)
    if architecture != _ARCHITECTURE:
        raise refuse(vision, "architecture", f"{architecture[:40]!r} is not understood; only {_ARCHITECTURE} is")
    hidden = vision.integer("hidden_size", default=_FEATURES, minimum=1, maximum=LARGEST_WIDTH)
    if hidden != _FEATURES:
        raise refuse(vision, "hidden_size", f"is {hidden}; {_ARCHITECTURE} produces {_FEATURES} features")
    vocab = vision.integer("vocab_size", default=128, minimum=1, maximum=1 << 20)
    embed = "model.embed_vision"
    tensors = (
        *_network(),
        parameter(f"{embed}.embedding.weight", vocab, hidden),
        *Norm(f"{embed}.hard_embedding_norm", hidden).tensors(),
        *Norm(f"{embed}.soft_embedding_norm", hidden).tensors(),
        *projector(embed, (hidden, text_size), bias=False, sharded=False, names=("embedding_projection",)),
    )
    return Stack(
        name="vision",
        hidden_size=hidden,
        tensors=tensors,
        layers=(),
        layer_prefix=f"{_TOWER}.blocks",
        tokens_per_item=tokens,
        input_elements_per_item=3 * _IMAGE_SIZE**2,
        detail=f"every image is scaled to {_IMAGE_SIZE} x {_IMAGE_SIZE} and becomes {tokens} features (transformers"
        " Gemma3nProcessor, image_seq_length)",
    )


@cache
def _network() -> tuple[Tensor, ...]:
    found: list[Tensor] = [*convolution(f"{_TOWER}.conv_stem.conv", 64, 3, 3, 3, bias=True), _norm("conv_stem.bn", 64)]
    for index, (before, inner, out) in enumerate(((64, 256, 128), (128, 512, 128), (128, 512, 128))):
        found += _edge_residual(f"blocks.0.{index}", before, inner, out)
    found += _bottleneck("blocks.1.0", 128, 768, 256, start=3, middle=5)
    for index, kernel in enumerate((5, 3, 5, 3), start=1):
        found += _bottleneck(f"blocks.1.{index}", 256, 1024, 256, start=kernel)
    found += _bottleneck("blocks.2.0", 256, 1536, 640, start=5, middle=5)
    for index in range(1, 8):
        found += _bottleneck(f"blocks.2.{index}", 640, 2560, 640, start=5)
    found += _bottleneck("blocks.2.8", 640, 640, 640)
    for index in range(9, 37, 2):
        found += _attention(f"blocks.2.{index}", 640, 768, 64, downsampled=True)
        found += _bottleneck(f"blocks.2.{index + 1}", 640, 1280, 640)
    found += _bottleneck("blocks.3.0", 640, 3840, 1280, start=5, middle=5)
    for index in range(1, 39, 2):
        found += _attention(f"blocks.3.{index}", 1280, 1536, 96, downsampled=False)
        found += _bottleneck(f"blocks.3.{index + 1}", 1280, 2560, 1280)
    # fusion of the last two stages: 640 + 1280 channels
    found += [*_point("msfa.ffn.pw_exp", 1920, 3840), *_point("msfa.ffn.pw_proj", 3840, _FEATURES)]
    found.append(_norm("msfa.norm", _FEATURES))
    return tuple(found)


def _norm(name: str, width: int) -> Tensor:
    return Tensor(f"{_TOWER}.{name}.weight", (width,), Role.NORM)


def _point(name: str, before: int, out: int) -> tuple[Tensor, ...]:
    """A 1 x 1 convolution and its norm."""
    return (*convolution(f"{_TOWER}.{name}.conv", out, before, 1, 1), _norm(f"{name}.bn", out))


def _depth(name: str, width: int, kernel: int) -> tuple[Tensor, ...]:
    """A convolution within each channel and its norm."""
    return (*convolution(f"{_TOWER}.{name}.conv", width, 1, kernel, kernel), _norm(f"{name}.bn", width))


def _edge_residual(name: str, before: int, inner: int, out: int) -> tuple[Tensor, ...]:
    return (
        *convolution(f"{_TOWER}.{name}.conv_exp", inner, before, 3, 3),
        _norm(f"{name}.bn1", inner),
        *convolution(f"{_TOWER}.{name}.conv_pwl", out, inner, 1, 1),
        _norm(f"{name}.bn2", out),
    )


def _bottleneck(name: str, before: int, inner: int, out: int, *, start: int = 0, middle: int = 0) -> tuple[Tensor, ...]:
    """Expand, project, scale; with convolutions within channels of these kernels before and between (0: none)."""
    found: tuple[Tensor, ...] = ()
    if start:
        found += _depth(f"{name}.dw_start", before, start)
    found += _point(f"{name}.pw_exp", before, inner)
    if middle:
        found += _depth(f"{name}.dw_mid", inner, middle)
    found += _point(f"{name}.pw_proj", inner, out)
    return (*found, parameter(f"{_TOWER}.{name}.layer_scale.gamma", out))


def _attention(name: str, width: int, queries: int, head_dim: int, *, downsampled: bool) -> tuple[Tensor, ...]:
    """Multi-query attention over the feature map; keys and values from a map of half the side where `downsampled`."""
    found: list[Tensor] = [
        _norm(f"{name}.norm", width),
        *convolution(f"{_TOWER}.{name}.attn.query.proj", queries, width, 1, 1),
    ]
    for part in ("key", "value"):
        if downsampled:
            found += convolution(f"{_TOWER}.{name}.attn.{part}.down_conv", width, 1, 3, 3)
            found.append(_norm(f"{name}.attn.{part}.norm", width))
        found += convolution(f"{_TOWER}.{name}.attn.{part}.proj", head_dim, width, 1, 1)
    found += convolution(f"{_TOWER}.{name}.attn.output.proj", width, queries, 1, 1)
    return (*found, parameter(f"{_TOWER}.{name}.layer_scale.gamma", width))
