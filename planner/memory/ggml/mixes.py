"""llama.cpp's named mixes: which ggml type each tensor of a Q4_K_M (or Q3_K_L, IQ4_XS, ...) gets.

A mix has a base type and gives some tensors more bits, by what they are and by where their layer stands. Rows that
the type's block does not divide fall back to another type. Vectors, norms, routers and convolutions stay in F32.

Source: llama.cpp `src/llama-quant.cpp` llama_tensor_get_type_impl and tensor_type_fallback as vendored in
llama-cpp-python 0.3.36. The expectations in the tests are sizes that llama.cpp printed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from planner.errors import UnsupportedQuantization
from planner.memory.format_table import weight_format
from planner.memory.formats import RowBlocks, WeightFormat
from planner.memory.ggml.mix_tables import (
    ATTENTION_OUTPUT,
    BASES,
    DYNAMIC,
    DYNAMIC_SPREAD,
    EMBEDDING,
    FALLBACK,
    FUSED_QKV,
    GROUPED_VALUE,
    LARGE_ENDS,
    OTHER_NAMES,
    PLAIN,
    SMALL_IQ,
)
from planner.memory.ggml.tensors import Kind, kind_of, layer_index
from planner.model.caches import KeyValueCache
from planner.model.spec import ModelSpec
from planner.model.tensor import Tensor

_IQ2_LARGE: Final = frozenset({"IQ2_S", "IQ2_M"})
# With exactly 8 experts attention is small beside them and keeps more bits.
_ATTENTION_OUTPUT_OF_8_EXPERTS: Final = (
    frozenset(
        {
            "Q2_K",
            "IQ3_XS",
            "IQ3_XXS",
            "Q3_K_S",
            "Q3_K_M",
            "IQ4_NL",
            "Q4_K_S",
            "Q4_K_M",
            "IQ3_S",
            "IQ3_M",
            "IQ4_XS",
        }
    )
    | SMALL_IQ
)
_LAYERS_OF_70B: Final = 80


def more_bits(layer: int, layers: int) -> bool:
    """The half of the layers that the _M mixes favour: the first and last eighth, and every third between."""
    return layer < layers // 8 or layer >= 7 * layers // 8 or (layer - layers // 8) % 3 == 2


@dataclass(frozen=True, slots=True, kw_only=True)
class GgmlMix:
    """A named mix, for one model.

    Args:
        name: "Q4_K_M".
        layers: layers of the model.
        value_ordinals: for each layer, how many layers with a value projection stand before it.
        value_layers: how many there are.
        heads_per_key_value: query heads that share a key-value head.
        experts: routed experts of a layer, 0 for none.
        tied: the embedding is the output matrix too.
        falcon: the architecture that has rules of its own.
        large: the 70B class.
        imatrix: quantised with an importance matrix.
        ends: type of the embedding and the output matrix where the file does not keep to the mix; "": it does.
        spread: thousandths below and above that the file's own recipe leaves open.
    """

    name: str
    layers: int
    value_ordinals: tuple[int, ...]
    value_layers: int
    heads_per_key_value: int
    experts: int
    tied: bool
    falcon: bool
    large: bool
    imatrix: bool
    ends: str = ""
    spread: tuple[int, int] = (0, 0)

    @property
    def formats(self) -> tuple[WeightFormat, ...]:
        """The base type; what else a tensor gets depends on its layer."""
        return (weight_format(BASES[self.name]),)

    @property
    def same_for_every_layer(self) -> bool:
        """False: where a layer stands decides."""
        return self.name in PLAIN

    def format_of(self, tensor: Tensor) -> WeightFormat | None:
        """The ggml type of the tensor."""
        return weight_format(self.type_of(tensor))

    def type_of(self, tensor: Tensor) -> str:
        """The name of the ggml type of the tensor."""
        kind = kind_of(tensor)
        if kind is Kind.FIXED or tensor.dtype is not None:
            return "F32"
        if kind is Kind.TOWER:
            return "F16" if tensor.linear else "F32"
        base = BASES[self.name]
        if self.name in PLAIN:
            return base
        inner = tensor.shape[tensor.input_dim]
        return _fitting(self._wanted(kind, base, inner, tensor), inner)

    def _wanted(self, kind: Kind, base: str, inner: int, tensor: Tensor) -> str:
        if self.ends and kind in (Kind.OUTPUT, Kind.TOKEN_EMBEDDING):
            return self.ends
        if kind is Kind.OUTPUT or (kind is Kind.TOKEN_EMBEDDING and self.tied):
            return self._output(base, inner)
        if self.name == "MXFP4_MOE":
            return "MXFP4" if tensor.num_experts else "Q8_0"
        if kind is Kind.TOKEN_EMBEDDING:
            return EMBEDDING.get(self.name, base)
        if kind is Kind.VALUE:
            return self._value(base, layer_index(tensor))
        if kind is Kind.FUSED_QKV:
            return self._fused(base)
        if kind is Kind.FFN_DOWN:
            return self._down(base, layer_index(tensor))
        if kind is Kind.ATTENTION_OUTPUT:
            return self._attention_output(base)
        if kind is Kind.KEY and self.experts == 8:
            return "Q4_K" if self.name in SMALL_IQ else "Q8_0"
        if kind in (Kind.KEY, Kind.QUERY):
            return {"IQ3_XS": "IQ3_XXS", "IQ3_XXS": "IQ2_S"}.get(self.name, base)
        if kind in (Kind.FFN_UP, Kind.FFN_GATE) and self.name == "IQ3_XS":
            layer = layer_index(tensor)
            return "IQ3_XXS" if self.layers // 8 <= layer < 7 * self.layers // 8 else base
        return base

    def _output(self, base: str, inner: int) -> str:
        if self.name in ("MXFP4_MOE", "Q8_0") or self.falcon or inner % _blocks(base).block:
            return "Q8_0"
        return "Q5_K" if self.name in SMALL_IQ or self.name == "IQ3_XXS" else "Q6_K"

    def _value(self, base: str, layer: int) -> str:
        name, ordinal = self.name, self.value_ordinals[layer] if layer < self.layers else layer
        if name in SMALL_IQ:
            if self.heads_per_key_value >= 4 or self.experts >= 4:
                return "Q4_K"
            return "IQ3_S" if name in _IQ2_LARGE else "Q2_K"
        wanted = base
        if self.heads_per_key_value >= 4 and name in GROUPED_VALUE:
            wanted = GROUPED_VALUE[name]
        elif name == "Q2_K":
            wanted = "Q3_K"
        elif name == "IQ3_XXS":
            wanted = base if self.imatrix else "IQ3_S"
        elif name == "IQ3_M":
            wanted = "Q4_K"
        elif name == "Q3_K_M":
            wanted = "Q5_K" if ordinal < 2 else "Q4_K"
        elif name == "Q3_K_L" or (name == "Q4_K_S" and ordinal < 4):
            wanted = "Q5_K"
        elif name in ("Q4_K_M", "Q5_K_M") and more_bits(ordinal, self.value_layers):
            wanted = "Q6_K"
        if self.large and wanted in ("Q3_K", "Q4_K"):
            wanted = "Q5_K"
        return "Q8_0" if self.experts == 8 else wanted

    def _fused(self, base: str) -> str:
        return FUSED_QKV.get(self.name, base)

    def _down(self, base: str, layer: int) -> str:
        name, eighth = self.name, layer < self.layers // 8
        favoured = more_bits(layer, self.layers)
        if name in SMALL_IQ:
            return base if not eighth else "IQ3_S" if name in _IQ2_LARGE else "Q2_K"
        if name == "Q2_K":
            return "Q3_K"
        if name == "Q3_K_L":
            return "Q4_K" if self.falcon else "Q5_K"
        if name == "Q3_K_M":
            if layer < self.layers // 16:
                return "Q5_K"
            return "Q4_K" if not self.falcon or favoured else base
        if name == "Q4_K_M" and self.falcon:
            return "Q6_K" if layer < self.layers // 16 else "Q5_K" if favoured else base
        if name in ("Q4_K_M", "Q5_K_M"):
            return "Q6_K" if favoured else base
        if name == "IQ3_M":
            return "Q4_K" if eighth or (self.experts == 8 and favoured) else base
        if name == "IQ3_XXS" and not self.imatrix:
            return "Q4_K" if eighth else "Q3_K"
        if not eighth:
            return base
        if name == "Q4_K_S" and not self.falcon:
            return "Q5_K"
        if name in ("IQ4_NL", "IQ4_XS") and not self.imatrix:
            return "Q5_K"
        if name in ("Q4_0", "Q5_0") and self.imatrix:
            return "Q4_1" if name == "Q4_0" else "Q5_1"
        return "Q4_K" if name == "Q2_K_S" else base

    def _attention_output(self, base: str) -> str:
        if self.falcon:
            return "Q4_K" if self.name == "Q3_K_L" else base
        if self.experts == 8:
            return "Q5_K" if self.name in _ATTENTION_OUTPUT_OF_8_EXPERTS else base
        return ATTENTION_OUTPUT.get(self.name, base)


def mix_names() -> tuple[str, ...]:
    """The mixes, in no particular order of size."""
    return tuple(BASES)


def is_mix(name: str) -> bool:
    """Whether this names a mix; a "GGUF:" prefix and lower case are allowed."""
    return _mix_of(name)[0] in BASES


def _mix_of(name: str) -> tuple[str, str, tuple[int, int]]:
    """llama.cpp's mix that a name means, the type of the ends and the spread that it has beside it."""
    wanted = _canonical(name)
    if wanted.startswith("UD-"):
        rest = wanted.removeprefix("UD-")
        return DYNAMIC.get(rest, rest), "", DYNAMIC_SPREAD
    return LARGE_ENDS.get(wanted, wanted), "Q8_0" if wanted in LARGE_ENDS else "", (0, 0)


def ggml_mix(name: str, spec: ModelSpec, *, imatrix: bool | None = None) -> tuple[GgmlMix, tuple[str, ...]]:
    """The mix for this model, and notes on what was assumed.

    Args:
        imatrix: quantised with an importance matrix (None: as is usual, for the IQ types).

    Raises:
        UnsupportedQuantization: no such mix.
    """
    wanted, ends, spread = _mix_of(name)
    if wanted not in BASES:
        raise UnsupportedQuantization(f"no GGUF mix {name!r}; one of {', '.join(BASES)}", field="quantization")
    if imatrix is None:
        imatrix = wanted.startswith("IQ")
    ordinals, sharing, experts = _geometry(spec)
    mix = GgmlMix(
        name=wanted,
        layers=len(spec.layers),
        value_ordinals=ordinals[:-1],
        value_layers=ordinals[-1],
        heads_per_key_value=sharing,
        experts=experts,
        tied=spec.tie_word_embeddings,
        falcon=spec.model_type in ("falcon", "RefinedWeb", "RefinedWebModel"),
        large=len(spec.layers) == _LAYERS_OF_70B and sharing > 1 and spec.model_type in ("llama", "qwen2"),
        imatrix=imatrix,
        ends=ends,
        spread=spread,
    )
    notes = [f"quantization {wanted}: types by llama.cpp's own rules, {'with' if imatrix else 'without'} an imatrix"]
    notes.append("hand-made and UD- recipes differ; for those pass the .gguf file itself")
    if spec.stacks:
        notes.append("towers are counted in F16: llama.cpp keeps them in a file of their own (mmproj)")
    return mix, tuple(notes)


def _geometry(spec: ModelSpec) -> tuple[tuple[int, ...], int, int]:
    """Value projections before each layer and in all, query heads per key-value head, experts of a layer."""
    ordinals, before, sharing, experts = [], 0, 1, 0
    seen: dict[int, bool] = {}
    for layer in spec.layers:
        ordinals.append(before)
        if id(layer) not in seen:
            tensors = layer.tensors(spec.hidden_size)
            seen[id(layer)] = any(kind_of(tensor) in (Kind.VALUE, Kind.FUSED_QKV) for tensor in tensors)
            experts = max(experts, max((tensor.num_experts for tensor in tensors), default=0))
            for mixer in layer.mixers:
                heads = getattr(mixer, "num_attention_heads", 0)
                for cache in mixer.caches():
                    if isinstance(cache, KeyValueCache) and heads:
                        sharing = heads // cache.num_key_value_heads
        before += seen[id(layer)]
    return (*ordinals, before), sharing, experts


def _canonical(name: str) -> str:
    wanted = name.strip().upper().removeprefix("GGUF:").removeprefix("GGUF-")
    return OTHER_NAMES.get(wanted, wanted)


def _blocks(name: str) -> RowBlocks:
    found = weight_format(name)
    assert isinstance(found, RowBlocks)
    return found


def _fitting(name: str, inner: int) -> str:
    """The type itself, or the one that llama.cpp falls back to when its block does not divide the row."""
    if inner % _blocks(name).block == 0:
        return name
    fallback = FALLBACK.get(name, "F16")
    return fallback if inner % _blocks(fallback).block == 0 else "F16"
