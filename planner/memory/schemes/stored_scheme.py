"""The storage scheme of a GGUF file, tensor by tensor as the file says.

What the file is made of need not be one of llama.cpp's named mixes (hand-made and dynamic recipes are not), so the
types are looked up, not derived. A tensor that the file holds under another shape (fused, split) takes the type of
its nearest namesake.

Source of the names: llama.cpp `gguf-py/gguf/constants.py`, TENSOR_NAMES.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from planner.memory.format_table import format_rows, plain_format, weight_format
from planner.memory.formats import WeightFormat
from planner.memory.ggml.tensors import Kind, kind_of, layer_index
from planner.memory.schemes.scheme import WeightScheme
from planner.model.model import Model
from planner.model.sources.gguf.ggml_types import ggml_types
from planner.model.tensor import Role, Tensor

# Types of matrices that the kinds do not tell apart, by the last word of our name.
_OTHERS: Final[Mapping[str, tuple[str, ...]]] = {
    "q_a_proj": ("attn_q_a",),
    "q_b_proj": ("attn_q_b",),
    "kv_a_proj_with_mqa": ("attn_kv_a_mqa",),
    "kv_b_proj": ("attn_kv_b", "attn_v_b", "attn_k_b"),
}
_SUFFIX: Final = {Role.EXPERT: "_exps", Role.SHARED_EXPERT: "_shexp"}
# Where a file keeps what we count as one matrix in several, or the other way round.
_NAMESAKES: Final[Mapping[str, tuple[str, ...]]] = {
    "attn_qkv": ("attn_v", "attn_q"),
    "attn_q": ("attn_qkv",),
    "attn_k": ("attn_qkv",),
    "attn_v": ("attn_qkv",),
    "ffn_gate": ("ffn_up",),
    "ffn_up": ("ffn_gate",),
    "output": ("token_embd",),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTypes:
    """The ggml types of one file.

    Args:
        types: type of each of its tensors, by name without ".weight".
        usual: the type of most bytes, for matrices that the file does not have under any known name.
    """

    # a scheme is a key of memos: equal mappings are equal, but a mapping has no hash
    types: Mapping[str, str] = field(hash=False)
    usual: str

    @property
    def formats(self) -> tuple[WeightFormat, ...]:
        """The types of the file's matrices, most bytes first."""
        rest = sorted(set(self.types.values()) - {self.usual, "F32"})
        return tuple(weight_format(name) for name in (self.usual, *rest) if name in format_rows())

    @property
    def same_for_every_layer(self) -> bool:
        """False: every tensor is looked up."""
        return False

    def format_of(self, tensor: Tensor) -> WeightFormat | None:
        """The type that the file has the tensor in."""
        return weight_format(self.type_of(tensor))

    def type_of(self, tensor: Tensor) -> str:
        """The name of that type."""
        kind = kind_of(tensor)
        if kind is Kind.FIXED:
            return "F32"
        for name in _names(tensor, kind):
            found = self.types.get(name)
            if found is not None:
                return found
        return self.usual


def scheme_from_stored(model: Model) -> WeightScheme | None:
    """How the model's GGUF file stores it; None when it was not read from one."""
    known = {kind.id for kind in ggml_types().values()}
    gguf = bool(model.stored) and all(tensor.file.endswith(".gguf") for tensor in model.stored)
    if not gguf or not all(tensor.dtype in known for tensor in model.stored):
        return None
    sizes: Counter[str] = Counter()
    for tensor in model.stored:
        if len(tensor.shape) > 1:
            sizes[tensor.dtype] += tensor.nbytes
    usual = next((name for name, _ in sizes.most_common() if name in format_rows()), "F32")
    types = {
        tensor.name.removesuffix(".weight"): tensor.dtype for tensor in model.stored if tensor.dtype in format_rows()
    }
    note = f"weights as the file stores them: {', '.join(name for name, _ in sizes.most_common())}"
    return WeightScheme(
        label=f"GGUF, mostly {usual}",
        plain=plain_format("float32"),
        assignment=StoredTypes(types=types, usual=usual),
        notes=(note,),
    )


def _names(tensor: Tensor, kind: Kind) -> list[str]:
    """What the file may call the tensor, likeliest first."""
    if kind in (Kind.TOKEN_EMBEDDING, Kind.OUTPUT):
        names = (kind.value, *_NAMESAKES.get(kind.value, ()))
        return list(names)
    prefix = f"blk.{layer_index(tensor)}."
    if kind is Kind.OTHER:
        last = tensor.name.removesuffix(".weight").rpartition(".")[2]
        return [prefix + name for name in _OTHERS.get(last, ())]
    suffix = _SUFFIX.get(tensor.role, "")
    return [prefix + name + suffix for name in (kind.value, *_NAMESAKES.get(kind.value, ()))]
