"""One decoder layer: how its mixers, feed-forward and norms hang on the residual stream.

sequential   x + mix(norm(x)), then x + ff(norm(x))                    Llama and most
sandwiched   the same, with a norm after each part too                 Gemma 2, 3, GLM-4
post         x + norm(mix(x)), x + norm(ff(x))                         OLMo 2, EXAONE 4
after        norm(x + mix(x)), norm(x + ff(x))                         BERT, BART
source       a third part between them that attends to an encoder      T5, BART, Whisper
parallel     x + mix(norm(x)) + ff(norm(x))                            Falcon, GPT-J, GPT-NeoX, Phi, Cohere
single       x + mix(norm(x)), or x + ff(norm(x))                      Mamba, Nemotron-H
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from planner.errors import UnsupportedArchitecture, UsageError
from planner.model.kinds.attention import Attention
from planner.model.kinds.delta import GatedDeltaNet
from planner.model.kinds.feed_forward import Mlp, Moe
from planner.model.kinds.latent import LatentAttention
from planner.model.kinds.mamba import Mamba1, Mamba2
from planner.model.kinds.short_conv import ShortConv
from planner.model.spec import Layer, Mixer
from planner.model.tensor import Norm
from planner.training.blocks import litgpt
from planner.training.blocks.attention import attention
from planner.training.blocks.block import Block
from planner.training.blocks.feed_forward import mlp
from planner.training.blocks.latent import latent_attention
from planner.training.blocks.moe import moe
from planner.training.blocks.norms import norm
from planner.training.blocks.recurrent import gated_delta_net, mamba1, mamba2, short_conv
from planner.training.tape import ops, row_ops
from planner.training.tape.tape import Value

_AFTER_BOTH: Final = (
    ("attention.output.LayerNorm", "output.LayerNorm"),
    ("attention.LayerNorm", "output.LayerNorm"),
    ("post_attention_layernorm", "post_mlp_layernorm"),
)
_AFTER_ADDING: Final = frozenset({"bart", "mbart"})
_POST_BOTH: Final = ("post_attention_layernorm", "post_feedforward_layernorm")
_OTHER_STREAMS: Final = frozenset({"gemma3n"})  # several residual streams (AltUp, Laurel)
_PARALLEL: Final = frozenset({"gpt_neox"})  # two norms, side by side all the same (use_parallel_residual)


@dataclass(frozen=True, slots=True)
class Norms:
    """A layer's norms by place; None where there is none."""

    before_mixer: Norm | None = None
    after_mixer: Norm | None = None
    before_feed_forward: Norm | None = None
    after_feed_forward: Norm | None = None
    parallel: bool = False
    on_stream: bool = False
    before_source: Norm | None = None
    after_source: Norm | None = None


def places(layer: Layer, model_type: str) -> Norms:
    """Where the layer's norms stand.

    Raises:
        UnsupportedArchitecture: an arrangement that is not modelled.
    """
    if model_type in _OTHER_STREAMS:
        raise UnsupportedArchitecture(f"the training memory of {model_type} layers is not modelled", field="model_type")
    named = {norm.name: norm for norm in layer.norms}
    names = tuple(named)
    norms = layer.norms
    if names in _AFTER_BOTH:
        return Norms(after_mixer=norms[0], after_feed_forward=norms[1], on_stream=True)
    if model_type in _AFTER_ADDING and len(names) > 1:
        source = norms[1] if len(names) > 2 else None
        return Norms(after_mixer=norms[0], after_feed_forward=norms[-1], after_source=source, on_stream=True)
    if len(names) == 3 and len(layer.mixers) > 1 and getattr(layer.mixers[1], "source_tokens", None) is not None:
        return Norms(before_mixer=norms[0], before_source=norms[1], before_feed_forward=norms[2])
    if names == _POST_BOTH:
        return Norms(after_mixer=norms[0], after_feed_forward=norms[1])
    if "pre_feedforward_layernorm" in named and len(names) == 4:
        return Norms(norms[0], norms[1], norms[2], norms[3])
    if "post_self_attn_layernorm" in named:
        return Norms(
            named["input_layernorm"],
            named["post_self_attn_layernorm"],
            named["post_attention_layernorm"],
            named["post_mlp_layernorm"],
        )
    if len(names) == 1 and layer.mixers and layer.feed_forward is not None:
        if names == ("mlp_norm",):
            return Norms(before_feed_forward=norms[0])
        return Norms(before_mixer=norms[0], parallel=True)
    if len(names) == 1:
        return Norms(before_mixer=norms[0]) if layer.mixers else Norms(before_feed_forward=norms[0])
    if len(names) == 2 and layer.mixers and layer.feed_forward is not None:
        parallel = model_type in _PARALLEL or names == ("ln_attn", "ln_mlp")
        return Norms(before_mixer=norms[0], before_feed_forward=norms[1], parallel=parallel)
    if not names and not layer.mixers and layer.feed_forward is None:
        return Norms()
    raise UnsupportedArchitecture(
        f"the training memory of {model_type} layers (norms {', '.join(names)}) is not modelled", field="model_type"
    )


def run_layer(block: Block, layer: Layer, hidden: Value) -> Value:
    """The residual stream after the layer."""
    where = places(layer, block.model_type)
    if where.parallel:
        return _parallel(block, layer, where, hidden)
    if where.before_source is not None or where.after_source is not None:
        return _with_source(block, layer, where, hidden)
    held: list[Value] = []
    if layer.mixers:
        hidden = _part(block, where, where.before_mixer, where.after_mixer, layer, hidden, held, mixes=True)
    if layer.feed_forward is not None:
        after = where.after_feed_forward
        hidden = _part(block, where, where.before_feed_forward, after, layer, hidden, held, mixes=False)
    return hidden


def _part(
    block: Block,
    where: Norms,
    before: Norm | None,
    after: Norm | None,
    layer: Layer,
    hidden: Value,
    held: list[Value],
    *,
    mixes: bool,
) -> Value:
    """One half of the layer. `held`: what the layer's forward has names for until it returns."""
    tape, ways, drops = block.tape, block.sequence_ways, block.kernels.dropout
    residual = hidden
    if before is not None:
        hidden = norm(block, before, hidden)
    if mixes and block.has_habit("holds_mixer_input"):
        held.append(hidden)
    hidden = row_ops.collect(tape, hidden, ways)
    hidden = _mix(block, layer, hidden) if mixes else _feed_forward(block, layer, hidden)
    if mixes and block.has_habit("holds_mixer_output"):
        held.append(hidden)
    hidden = row_ops.scatter(tape, hidden, ways)
    hidden = ops.dropout(tape, hidden, drops.mixer if mixes else drops.feed_forward)
    if after is not None and not where.on_stream:
        hidden = norm(block, after, hidden)
    if block.kernels.names_parts:
        held.append(hidden)
    hidden = ops.add(tape, residual, hidden)
    if after is not None and where.on_stream:
        hidden = norm(block, after, hidden)
    return hidden


def _with_source(block: Block, layer: Layer, where: Norms, hidden: Value) -> Value:
    """A decoder layer that attends to its own tokens, then to the encoder's output, then feeds forward."""
    own, across = layer.mixers
    assert isinstance(own, Attention) and isinstance(across, Attention) and block.source is not None
    tape, drops = block.tape, block.kernels.dropout
    source = block.source

    def step(before: Norm | None, after: Norm | None, run: Callable[[Value], Value], drop: float, x: Value) -> Value:
        out = run(norm(block, before, x) if before is not None else x)
        x = ops.add(tape, x, ops.dropout(tape, out, drop))
        return norm(block, after, x) if after is not None else x

    hidden = step(where.before_mixer, where.after_mixer, lambda x: attention(block, own, x), drops.mixer, hidden)
    hidden = step(
        where.before_source,
        where.after_source,
        lambda x: attention(block, across, x, source=source),
        drops.mixer,
        hidden,
    )
    return step(
        where.before_feed_forward,
        where.after_feed_forward,
        lambda x: _feed_forward(block, layer, x),
        drops.feed_forward,
        hidden,
    )


def _parallel(block: Block, layer: Layer, where: Norms, hidden: Value) -> Value:
    assert where.before_mixer is not None
    tape, residual, drops = block.tape, hidden, block.kernels.dropout
    if block.kernels.modules == "litgpt":
        return _parallel_in_order(block, layer, where, hidden)
    hidden = norm(block, where.before_mixer, hidden)
    second = where.before_feed_forward
    if second is None or not block.has_habit("norms_branch_by_branch"):
        other = hidden if second is None else norm(block, second, residual)
        mixed = ops.dropout(tape, _mix(block, layer, hidden), drops.mixer)
        del hidden
    else:
        mixed = ops.dropout(tape, _mix(block, layer, hidden), drops.mixer)
        del hidden
        other = norm(block, second, residual)
    fed = ops.dropout(tape, _feed_forward(block, layer, other), drops.feed_forward)
    del other
    return ops.add(tape, ops.dropout(tape, ops.add(tape, fed, mixed), drops.branches), residual)


def _parallel_in_order(block: Block, layer: Layer, where: Norms, hidden: Value) -> Value:
    """The attention's result goes onto the stream before the feed-forward runs.

    Source: litgpt 0.5.13 model.py Block.forward.
    """
    assert where.before_mixer is not None
    tape, residual = block.tape, hidden
    normed = norm(block, where.before_mixer, residual)
    mixed = _mix(block, layer, normed)
    if where.before_feed_forward is not None:
        normed = norm(block, where.before_feed_forward, residual)
    hidden = ops.add(tape, mixed, residual)
    return ops.add(tape, _feed_forward(block, layer, normed), hidden)


def _mix(block: Block, layer: Layer, x: Value) -> Value:
    """All mixers on the same input, summed."""
    out = _mixer(block, layer.mixers[0], x)
    for kind in layer.mixers[1:]:
        out = ops.add(block.tape, out, _mixer(block, kind, x))
    return out


def _mixer(block: Block, kind: Mixer, x: Value) -> Value:
    if isinstance(kind, Attention) and kind.source_tokens is None and kind.owns_weights:
        own = block.kernels.modules == "litgpt" and litgpt.has_attention_of(kind)
        return litgpt.attention(block, kind, x) if own else attention(block, kind, x)
    if isinstance(kind, LatentAttention) and kind.indexer is None:
        return latent_attention(block, kind, x)
    if isinstance(kind, Mamba1):
        return mamba1(block, kind, x)
    if isinstance(kind, Mamba2):
        return mamba2(block, kind, x)
    if isinstance(kind, GatedDeltaNet):
        return gated_delta_net(block, kind, x)
    if isinstance(kind, ShortConv):
        return short_conv(block, kind, x)
    raise UnsupportedArchitecture(
        f"the training memory of {type(kind).__name__} blocks ({block.model_type}) is not modelled", field="model_type"
    )


def _feed_forward(block: Block, layer: Layer, x: Value) -> Value:
    kind = layer.feed_forward
    if isinstance(kind, Mlp):
        return mlp(block, kind, x)
    if isinstance(kind, Moe):
        return moe(block, kind, x)
    raise UnsupportedArchitecture(
        f"the training memory of {type(kind).__name__} blocks ({block.model_type}) is not modelled", field="model_type"
    )


def local_layer(layer: Layer, ways: int) -> Layer:
    """The layer as one of `ways` tensor-parallel ranks runs it: its heads, its part of every inner width.

    Raises:
        UsageError: heads that do not divide, or a kind of block that is not cut.
    """
    if ways == 1:
        return layer
    mixers: list[Mixer] = []
    for kind in layer.mixers:
        if not isinstance(kind, Attention | LatentAttention):
            raise UsageError(
                f"--tensor-parallel-size {ways}: training with {type(kind).__name__} blocks is not cut",
                field="tensor_parallel_size",
            )
        if kind.num_attention_heads % ways:
            raise UsageError(
                f"--tensor-parallel-size {ways} does not divide {kind.num_attention_heads} heads",
                field="tensor_parallel_size",
            )
        heads = kind.num_attention_heads // ways
        if isinstance(kind, Attention):
            keys = max(1, kind.num_key_value_heads // ways)
            mixers.append(replace(kind, num_attention_heads=heads, num_key_value_heads=keys))
        else:
            mixers.append(replace(kind, num_attention_heads=heads))
    return replace(layer, mixers=tuple(mixers), feed_forward=_local_feed_forward(layer.feed_forward, ways))


def _local_feed_forward(kind: Mlp | Moe | None, ways: int) -> Mlp | Moe | None:
    if isinstance(kind, Mlp):
        return replace(kind, intermediate_size=kind.intermediate_size // ways)
    if isinstance(kind, Moe):
        shared = kind.shared and replace(kind.shared, intermediate_size=kind.shared.intermediate_size // ways)
        return replace(kind, moe_intermediate_size=kind.moe_intermediate_size // ways, shared=shared)
    return None
