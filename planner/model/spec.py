"""ModelSpec: what a model is, after the raw config has been understood.

A spec is resolved once by a family module and trusted afterwards: nothing downstream reads raw keys. It is a
stack of layers, each made of mixers (attention, recurrent), a feed-forward and norms, between an embedding and
a head, beside optional towers, an encoder and draft layers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from planner.model.caches import CacheLayer
from planner.model.dropout import NO_DROPOUT, Dropout
from planner.model.kinds.feed_forward import FeedForward
from planner.model.rope import RopeTable
from planner.model.tensor import Norm, Tensor


class Mixer(Protocol):
    """What moves information between tokens: attention, a recurrent layer, a convolution."""

    def tensors(self, hidden_size: int) -> tuple[Tensor, ...]:
        """Every weight, for a residual stream of `hidden_size`."""
        ...

    def caches(self) -> tuple[CacheLayer, ...]:
        """What it keeps of a sequence."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """One layer of a stack.

    Args:
        mixers: usually one; two where they run side by side (Falcon-H1) or a decoder also attends to an encoder.
        feed_forward: None where the layer has none (Mamba).
        norms: the layer's own norms, names relative to the layer.
        extra: tensors no kind describes (per-layer embeddings, residual scales), names relative to the layer.
    """

    mixers: tuple[Mixer, ...]
    feed_forward: FeedForward | None
    norms: tuple[Norm, ...]
    extra: tuple[Tensor, ...] = ()

    def tensors(self, hidden_size: int) -> tuple[Tensor, ...]:
        """Every weight of the layer, names relative to it."""
        found: list[Tensor] = []
        for norm in self.norms:
            found += norm.tensors()
        for mixer in self.mixers:
            found += mixer.tensors(hidden_size)
        if self.feed_forward is not None:
            found += self.feed_forward.tensors(hidden_size)
        found += self.extra
        return tuple(found)

    def caches(self) -> tuple[CacheLayer, ...]:
        """What the layer keeps of a sequence."""
        return tuple(cache for mixer in self.mixers for cache in mixer.caches())


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """An encoder or tower: layers on a residual stream of their own width.

    Args:
        name: "encoder", "vision", "audio": how reports call it.
        hidden_size: its residual width.
        tensors: everything outside the layers (patch embedding, positions, norms, projector), full names.
        layers: its layers.
        layer_prefix: name of its list of layers.
        tokens_per_item: language-model tokens that one image, clip or second-long window takes at most
            (None: not known or not applicable).
        patches_per_item: positions its own attention sees for that item.
        input_elements_per_item: elements of the processed input (pixel values, mel frames) of that item.
        detail: how those follow from the config, in a sentence, for `explain`.
        kept_states: outputs of layers that stay beside the last one's until the tower is done (mllama: five).
        output_widths: language-model widths that each of its tokens has (deepstack: one more for each merger).
        unread_layers: last layers whose output nothing reads, the features being taken before them (LLaVA-1.5: one).
    """

    name: str
    hidden_size: int
    tensors: tuple[Tensor, ...]
    layers: tuple[Layer, ...]
    layer_prefix: str
    tokens_per_item: int | None = None
    patches_per_item: int | None = None
    input_elements_per_item: int | None = None
    detail: str = ""
    kept_states: int = 0
    output_widths: int = 1
    unread_layers: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    """A whole model.

    Args:
        model_type, architecture: as the config names them.
        dtype: storage type of the checkpoint ("bfloat16", "float16", "float32"), None when not stated.
        vocab_size: rows of the embedding, unpadded.
        max_position_embeddings: the longest sequence the model was made for.
        embeddings: input side tensors (token and position embeddings, their norms), full names.
        layers: the decoder stack (or the encoder stack of an encoder-only model).
        head: output side tensors (final norm, lm_head unless tied), full names.
        layer_prefix: name of the list of layers.
        decoder: generates tokens, so keeps a cache and has a sampler.
        stacks: encoders and towers beside the stack.
        draft_layers: MTP or other draft layers, counted only with speculative decoding; full layers.
        draft_tensors: what the drafts have besides, full names.
        rope_tables: distinct rotary tables an engine allocates.
        dropout: what training drops out.
        notes: what a reader should know (ignored keys, choices made).
        assumed: what was assumed on the user's explicit wish.
        quantization_config: the config's own, unread, with `expert_dtype` where that lies beside it; None when the
            checkpoint is plain.
    """

    model_type: str
    architecture: str
    hidden_size: int
    vocab_size: int
    max_position_embeddings: int
    dtype: str | None
    tie_word_embeddings: bool
    embeddings: tuple[Tensor, ...]
    layers: tuple[Layer, ...]
    head: tuple[Tensor, ...]
    layer_prefix: str = "model.layers"
    decoder: bool = True
    stacks: tuple[Stack, ...] = ()
    draft_layers: tuple[Layer, ...] = ()
    draft_tensors: tuple[Tensor, ...] = ()
    rope_tables: tuple[RopeTable, ...] = ()
    dropout: Dropout = NO_DROPOUT
    notes: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()
    quantization_config: Mapping[str, object] | None = field(default=None, hash=False, compare=False)

    @property
    def stated_kv_cache_dtype(self) -> str | None:
        """The cache type that the checkpoint's quantisation states: "fp8", "int8", "nvfp4"; None where it states none.

        `kv_cache_scheme` (compressed-tensors, ModelOpt) is an object of num_bits and type, `kv_cache_quant_algo`
        (ModelOpt's hf_quant_config.json) a name. Which release of an engine follows it is the engine's to know.
        """
        config = self.quantization_config or {}
        inner = config.get("quantization")
        for place in (config, inner if isinstance(inner, Mapping) else {}):
            scheme = place.get("kv_cache_scheme")
            if isinstance(scheme, Mapping):
                bits, kind = scheme.get("num_bits", 8), scheme.get("type", "float")
                if bits == 8:
                    return "fp8" if kind == "float" else "int8"
                return "nvfp4" if bits == 4 and kind == "float" else None
            name = scheme if isinstance(scheme, str) else place.get("kv_cache_quant_algo")
            if isinstance(name, str):
                return name.lower()
        return None
