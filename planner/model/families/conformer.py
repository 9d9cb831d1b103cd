"""The audio encoders of Gemma 3n and Gemma 4: mel frames, two strided convolutions, conformer layers, one projection.

A conformer layer has attention with relative positions between two MLPs of four times the width, and a convolution.
`Layer` has one feed-forward: the first MLP is it, the second and the convolution are among the layer's extra tensors.

Sources: the Universal Speech Model (arXiv 2303.01037); transformers 5.24 gemma3n and gemma4 (configuration_, modeling_,
processing_). vLLM 0.19 runs transformers' modules (gemma3n_mm.py, gemma4_mm.py): whole on every GPU.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from planner.model.config import LARGEST_LAYER_COUNT, RawConfig
from planner.model.families.vision import LARGEST_WIDTH
from planner.model.kinds.attention import AttentionNames
from planner.model.kinds.feed_forward import MlpNames
from planner.model.kinds.tower import convolution, encoder_layer, parameter, projector
from planner.model.spec import Layer, Stack
from planner.model.tensor import Norm, Role, Tensor, layer_norm, linear

_TOWER = "model.audio_tower"
_MEL_BINS = 128
# Two convolutions of stride 2 in time: one position for four mel frames of 10 ms
_FRAMES_PER_POSITION = 4


@dataclass(frozen=True, slots=True)
class _Names:
    """Module names of one layout; `linear` follows the name of every clippable linear layer."""

    attention: AttentionNames
    first: str
    last: str
    attention_norms: tuple[str, str]
    output_norm: str
    relative: str
    scale: str
    linear: str


_GEMMA3N = _Names(
    AttentionNames(block="attention", query="attn.q_proj", key="attn.k_proj", value="attn.v_proj", output="post"),
    "ffw_layer_start",
    "ffw_layer_end",
    ("attention.pre_attn_norm", "attention.post_norm"),
    "norm",
    "attention.attn.relative_position_embedding.pos_proj",
    "attention.attn.per_dim_scale",
    "",
)
_GEMMA4 = _Names(
    AttentionNames(query="q_proj.linear", key="k_proj.linear", value="v_proj.linear", output="post.linear"),
    "feed_forward1",
    "feed_forward2",
    ("norm_pre_attn", "norm_post_attn"),
    "norm_out",
    "self_attn.relative_k_proj",
    "self_attn.per_dim_scale",
    ".linear",
)


def gemma3n_audio(audio: RawConfig, text_size: int, tokens: int) -> Stack:
    """Gemma 3n's audio tower; every fourth of its positions becomes a token.

    Raises:
        ConfigError: a field that makes no sense.
    """
    hidden = audio.integer("hidden_size", default=1536, minimum=1, maximum=LARGEST_WIDTH)
    vocab = audio.integer("vocab_size", default=128, minimum=1, maximum=1 << 20)
    mel = audio.integer("input_feat_size", default=_MEL_BINS, minimum=4, maximum=1 << 12)
    channels = audio.integers("sscp_conv_channel_size", length=2, minimum=1) or [128, 32]
    audio.has("sscp_conv_kernel_size", "sscp_conv_stride_size")  # 3 x 3 by 2 x 2 in every published config
    embed = "model.embed_audio"
    tensors = (
        *_subsampling(hidden, channels, mel, names=("conv_0", "conv_1"), layer_norms=False),
        parameter(f"{embed}.embedding.weight", vocab, hidden, role=Role.AUDIO),
        *Norm(f"{embed}.hard_embedding_norm", hidden).tensors(),
        *Norm(f"{embed}.soft_embedding_norm", hidden).tensors(),
        *projector(embed, (hidden, text_size), bias=False, sharded=False, names=("embedding_projection",)),
    )
    layer = _layer(audio, hidden, "conf_num_attention_heads", "conf_conv_kernel_size", _GEMMA3N, "silu")
    reduction = audio.integer("conf_reduction_factor", default=4, minimum=1, maximum=64)
    count = audio.integer("conf_num_hidden_layers", default=12, minimum=1, maximum=LARGEST_LAYER_COUNT)
    return replace(
        _stack(hidden, tensors, layer, count, tokens, tokens * reduction, mel),
        layer_prefix=f"{_TOWER}.conformer",
    )


def gemma4_audio(audio: RawConfig, text_size: int, tokens: int) -> Stack:
    """Gemma 4's audio tower; each of its positions is a token.

    Raises:
        ConfigError: a field that makes no sense.
    """
    hidden = audio.integer("hidden_size", default=1024, minimum=1, maximum=LARGEST_WIDTH)
    output = audio.integer("output_proj_dims", default=1536, minimum=1, maximum=LARGEST_WIDTH)
    channels = audio.integers("subsampling_conv_channels", length=2, minimum=1) or [128, 32]
    tensors = (
        *_subsampling(hidden, channels, channels[0], names=("layer0", "layer1"), layer_norms=True),
        *linear(f"{_TOWER}.output_proj", output, hidden, Role.AUDIO, bias=True),
        *projector(
            "model.embed_audio", (output, text_size), bias=False, sharded=False, names=("embedding_projection",)
        ),
    )
    activation = audio.text("hidden_act", default="silu")
    layer = _layer(audio, hidden, "num_attention_heads", "conv_kernel_size", _GEMMA4, activation)
    count = audio.integer("num_hidden_layers", default=12, minimum=1, maximum=LARGEST_LAYER_COUNT)
    audio.has("attention_chunk_size")
    return _stack(hidden, tensors, layer, count, tokens, tokens, _MEL_BINS)


def _stack(
    hidden: int, tensors: tuple[Tensor, ...], layer: Layer, count: int, tokens: int, positions: int, mel: int
) -> Stack:
    frames = positions * _FRAMES_PER_POSITION
    return Stack(
        name="audio",
        hidden_size=hidden,
        tensors=tensors,
        layers=(layer,) * count,
        layer_prefix=f"{_TOWER}.layers",
        tokens_per_item=tokens,
        patches_per_item=positions,
        input_elements_per_item=frames * mel,
        detail=f"a clip takes at most {tokens} tokens ({frames / 100:.0f} s: {frames:,} mel frames of 10 ms,"
        f" {positions:,} positions; the processor's audio_seq_length)",
    )


def _subsampling(
    hidden: int, channels: list[int], mel: int, *, names: tuple[str, str], layer_norms: bool
) -> tuple[Tensor, ...]:
    """Two 3 x 3 convolutions that halve time and frequency, and a linear layer over what is left of the spectrum."""
    found: list[Tensor] = []
    before = 1
    for name, width in zip(names, channels, strict=True):
        module = f"{_TOWER}.subsample_conv_projection.{name}"
        found += convolution(f"{module}.conv", width, before, 3, 3, role=Role.AUDIO)
        norm = layer_norm(f"{module}.norm", width, bias=False) if layer_norms else Norm(f"{module}.norm", width)
        found += norm.tensors()
        before = width
    left = -(-mel // 4) if not layer_norms else channels[0] // 4
    name = f"{_TOWER}.subsample_conv_projection.input_proj_linear"
    found += linear(name, hidden, left * channels[1], Role.AUDIO)
    return tuple(found)


def _layer(audio: RawConfig, hidden: int, heads_key: str, kernel_key: str, names: _Names, activation: str) -> Layer:
    heads = audio.integer(heads_key, default=8, minimum=1, maximum=1 << 12)
    if hidden % heads:
        raise audio.error(heads_key, f"is {heads}, which does not divide hidden_size {hidden}")
    kernel = audio.integer(kernel_key, default=5, minimum=1, maximum=1 << 10)
    up, down = f"ffw_layer_1{names.linear}", f"ffw_layer_2{names.linear}"
    last, inner = names.last, 4 * hidden
    norms = (
        f"{names.first}.pre_layer_norm",
        f"{names.first}.post_layer_norm",
        *names.attention_norms,
        "lconv1d.pre_layer_norm",
        "lconv1d.conv_norm",
        f"{last}.pre_layer_norm",
        f"{last}.post_layer_norm",
        names.output_norm,
    )
    extra = (
        parameter(names.scale, hidden // heads, role=Role.AUDIO),
        *linear(names.relative, hidden, hidden, Role.AUDIO),
        *linear(f"lconv1d.linear_start{names.linear}", 2 * hidden, hidden, Role.AUDIO),
        *convolution("lconv1d.depthwise_conv1d", hidden, 1, kernel, role=Role.AUDIO),
        *linear(f"lconv1d.linear_end{names.linear}", hidden, hidden, Role.AUDIO),
        *linear(f"{last}.{up}", inner, hidden, Role.AUDIO),
        *linear(f"{last}.{down}", hidden, inner, Role.AUDIO),
    )
    return encoder_layer(
        hidden_size=hidden,
        num_heads=heads,
        intermediate_size=inner,
        activation=activation,
        norms=tuple(Norm(name, hidden) for name in norms),
        attention_names=names.attention,
        mlp_names=MlpNames(block=names.first, up=up, down=down),
        attention_bias=False,
        mlp_bias=False,
        attention_replicated=True,
        mlp_replicated=True,
        role=Role.AUDIO,
        extra=extra,
    )
