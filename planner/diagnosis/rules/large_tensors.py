"""Shapes that the size of a request could have."""

from __future__ import annotations

from dataclasses import dataclass
from math import isqrt, prod


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """What of a model decides the size of its largest tensors; 0 heads where it has no attention."""

    vocab_size: int
    num_attention_heads: int
    hidden_size: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LargeTensor:
    """A tensor that would have the size of a request: its name, its shape and the product written out."""

    name: str
    shape: tuple[int, ...]
    element_bytes: int
    formula: str

    @property
    def size_bytes(self) -> int:
        """Product of the shape and the bytes of an element."""
        return prod(self.shape) * self.element_bytes


# What a sentence without a model assumes, and says that it does.
_USUAL_HEADS = 32


def shape_sentence(size_bytes: int) -> str:
    """What a large request would be as logits or as attention scores, for any vocabulary and 32 heads."""
    full, half = size_bytes // 4, size_bytes // 2
    side = isqrt(half // _USUAL_HEADS)
    return (
        f"as logits in fp32 it is tokens x vocabulary = {full:,} elements; as attention scores in 16 bit heads x S x S "
        f"= {half:,}, so S = {side:,} for {_USUAL_HEADS} heads of one sequence"
    )


def could_be(size_bytes: int, margin_bytes: int, model: ModelShape) -> tuple[LargeTensor, ...]:
    """The logits [tokens, V] and the attention scores [heads, S, S] of `model` that fill a request, in fp32 and 16 bit.

    A request is rounded up to 2 MiB and printed with two decimals: a tensor counts if its size lies within
    `margin_bytes` plus 2 MiB below or above `size_bytes`. The number of tokens is the largest that fits in it.
    """
    slack = margin_bytes + (2 << 20)
    found = []
    for width, dtype in ((4, "fp32"), (2, "16 bit")):
        tokens = (size_bytes + margin_bytes) // (model.vocab_size * width)
        if tokens > 0:
            found.append(
                LargeTensor(
                    name=f"logits in {dtype}",
                    shape=(tokens, model.vocab_size),
                    element_bytes=width,
                    formula=f"{tokens} tokens x {model.vocab_size} vocabulary x {width} B",
                )
            )
        heads = model.num_attention_heads
        side = isqrt((size_bytes + margin_bytes) // (heads * width)) if heads else 0
        if side > 0:
            found.append(
                LargeTensor(
                    name=f"attention scores in {dtype}",
                    shape=(model.num_attention_heads, side, side),
                    element_bytes=width,
                    formula=f"{model.num_attention_heads} heads x {side} x {side} x {width} B",
                )
            )
    return tuple(t for t in found if abs(t.size_bytes - size_bytes) <= max(slack, size_bytes // 200))
