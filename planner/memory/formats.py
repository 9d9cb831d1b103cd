"""How a weight matrix is stored: bytes of one GPU's share of it, in each format.

Every format answers `bytes(shape, input_dim)` for a matrix [out, in] or a stack [experts, out, in] (or with the
input first: `input_dim` says which dimension it is). N is the output side, K the input side, g the group size.

    Plain          K*N*e
    Scaled         K*N*e + scales per tensor, per output row or per tile of rows x columns
    Grouped        packed values + scale (and zero point) per g inputs of every output row (+ 4*K for act-order)
    Microscaled    packed values + one scale byte per block of inputs, both padded to what a kernel wants
    FlatBlocks     packed values + scales per block of the flattened matrix, themselves quantised or not
    RowBlocks      rows of packed blocks, scales inside (ggml)
    BitsPerWeight  K*N*bits/8 + vectors along both sides (EXL2, EXL3)
    WithCopy       another format, and a 16-bit copy beside it

The parameters of every named format, with sources, are in `formats.csv` (see `planner.memory.format_table`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from math import prod


def up(value: int, multiple: int) -> int:
    """`value` rounded up to a multiple."""
    return -(-value // multiple) * multiple


def sides(shape: tuple[int, ...], input_dim: int) -> tuple[int, int, int]:
    """(matrices, N, K) of a matrix or a stack of matrices; a vector is one row of its elements."""
    if len(shape) < 2:
        return 1, 1, prod(shape)
    dim = input_dim % len(shape)
    inner = shape[dim]
    if dim < len(shape) - 2:  # stored with more dimensions than a matrix: everything else is output
        return 1, prod(shape) // max(inner, 1), inner
    return prod(shape[:-2]), shape[-2] if dim == len(shape) - 1 else shape[-1], inner


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightFormat(ABC):
    """One way to store a matrix.

    Args:
        name: short name for reports ("gptq 4-bit g128").
    """

    name: str

    @abstractmethod
    def bytes(self, shape: tuple[int, ...], input_dim: int = -1) -> int:
        """Bytes of a matrix or stack of this local shape, scales and padding included."""

    def pieces(self, shape: tuple[int, ...], input_dim: int = -1) -> tuple[int, ...]:
        """The same bytes, a tensor at a time: values, scales, zero points and the rest are allocated one by one."""
        return (self.bytes(shape, input_dim),)

    def bits_per_weight(self, shape: tuple[int, ...], input_dim: int = -1) -> float:
        """Bits of one element, everything included."""
        return self.bytes(shape, input_dim) * 8 / max(1, prod(shape))


@dataclass(frozen=True, slots=True, kw_only=True)
class Plain(WeightFormat):
    """A floating point type, nothing else."""

    element_bytes: int

    def bytes(self, shape: tuple[int, ...], input_dim: int = -1) -> int:
        """Elements times their width."""
        del input_dim
        return prod(shape) * self.element_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaled(WeightFormat):
    """8-bit values with scales: one per tensor, one per output row, or one per tile.

    Args:
        element_bytes: bytes of a value.
        scale_bytes: bytes of a scale.
        tile: rows x columns that share a scale; 0 means the whole side: (0, 0) per tensor, (1, 0) per output row.
    """

    element_bytes: int = 1
    scale_bytes: int = 4
    tile: tuple[int, int] = (0, 0)

    def bytes(self, shape: tuple[int, ...], input_dim: int = -1) -> int:
        """Values and scales; a partial tile costs a whole scale."""
        return sum(self.pieces(shape, input_dim))

    def pieces(self, shape: tuple[int, ...], input_dim: int = -1) -> tuple[int, ...]:
        """Values, scales."""
        matrices, out, inner = sides(shape, input_dim)
        rows, columns = self.tile
        scales = (-(-out // rows) if rows else 1) * (-(-inner // columns) if columns else 1)
        return matrices * out * inner * self.element_bytes, matrices * scales * self.scale_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Grouped(WeightFormat):
    """Integers of a few bits packed in 32-bit words, with scale and zero point per group of inputs.

    Args:
        bits: bits of a value.
        group_size: inputs that share a scale; 0: the whole row.
        scale_bytes: bytes of a scale.
        zero_bits: bits of a zero point, packed in 32-bit words along the outputs; 0: none stored.
        index_bytes: bytes per input for act-order (GPTQ's g_idx), 0: none.
        word_values: values in one 32-bit word when they do not fill it (HQQ's 3-bit: 10); 0: they fill it.
        packing: whose layout it is ("gptq", "awq", "compressed-tensors", ...); engines repack by it.
        symmetric: the zero points stored, if any, are all the middle value.
        ordered: columns were quantised in order of activation (GPTQ's desc_act).
    """

    bits: int
    group_size: int
    scale_bytes: int = 2
    zero_bits: int = 0
    index_bytes: int = 0
    word_values: int = 0
    packing: str = ""
    symmetric: bool = True
    ordered: bool = False

    def bytes(self, shape: tuple[int, ...], input_dim: int = -1) -> int:
        """Packed values, scales, zero points and act-order indices."""
        return sum(self.pieces(shape, input_dim))

    def pieces(self, shape: tuple[int, ...], input_dim: int = -1) -> tuple[int, ...]:
        """Packed values, scales, act-order indices, zero points (the last two may be 0)."""
        matrices, out, inner = sides(shape, input_dim)
        groups = -(-inner // self.group_size) if self.group_size else 1
        row = -(-inner // self.word_values) if self.word_values else -(-inner * self.bits // 32)
        zeros = groups * -(-out * self.zero_bits // 32) * 4
        sizes = (row * 4 * out, groups * out * self.scale_bytes, inner * self.index_bytes, zeros)
        return tuple(matrices * size for size in sizes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Microscaled(WeightFormat):
    """Small floats with one scale byte per block of inputs (MXFP4, MXFP8, NVFP4).

    Args:
        bits: bits of a value.
        block: inputs that share a scale byte.
        tensor_bytes: scalars per matrix.
        out_multiple, in_multiple: the matrix is padded to these.
        value_in_multiple: the packed values alone are padded to this many inputs besides.
        scale_tile: rows x columns that the scale matrix alone is padded to.
    """

    bits: int
    block: int
    tensor_bytes: int = 0
    out_multiple: int = 1
    in_multiple: int = 1
    value_in_multiple: int = 1
    scale_tile: tuple[int, int] = (1, 1)

    def bytes(self, shape: tuple[int, ...], input_dim: int = -1) -> int:
        """Packed values and scales of the padded matrix."""
        return sum(self.pieces(shape, input_dim))

    def pieces(self, shape: tuple[int, ...], input_dim: int = -1) -> tuple[int, ...]:
        """Packed values, scales, scalars (may be 0)."""
        matrices, out, inner = sides(shape, input_dim)
        out, inner = up(out, self.out_multiple), up(inner, self.in_multiple)
        values = -(-up(inner, self.value_in_multiple) * self.bits // 8) * out
        scales = up(out, self.scale_tile[0]) * up(-(-inner // self.block), self.scale_tile[1])
        return tuple(matrices * size for size in (values, scales, self.tensor_bytes))


@dataclass(frozen=True, slots=True, kw_only=True)
class FlatBlocks(WeightFormat):
    """bitsandbytes 4-bit: blocks run over the flattened matrix, whatever its rows.

    Args:
        bits: bits of a value.
        block: elements that share a scale (absmax).
        nested_block: scales that share a second-level fp32 scale and are 8-bit themselves; 0: fp32 scales.
        tensor_bytes: code books and offset per matrix.
    """

    bits: int = 4
    block: int = 64
    nested_block: int = 0
    tensor_bytes: int = 0

    def bytes(self, shape: tuple[int, ...], input_dim: int = -1) -> int:
        """Packed values, scales, nested scales and code books of every matrix in the stack."""
        return sum(self.pieces(shape, input_dim))

    def pieces(self, shape: tuple[int, ...], input_dim: int = -1) -> tuple[int, ...]:
        """Packed values, scales, nested scales, code books (of the last two, the first may be 0)."""
        matrices, out, inner = sides(shape, input_dim)
        elements = out * inner
        blocks = -(-elements // self.block)
        nested = -(-blocks // self.nested_block) * 4 if self.nested_block else 0
        scales = blocks if self.nested_block else blocks * 4
        sizes = (-(-elements * self.bits // 8), scales, nested, self.tensor_bytes)
        return tuple(matrices * size for size in sizes)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowBlocks(WeightFormat):
    """A ggml type: every row is a run of blocks that hold their own scales.

    Args:
        block: elements of a block.
        block_bytes: bytes of a block.
        row_bytes: bytes that each row has besides.
    """

    block: int
    block_bytes: int
    row_bytes: int = 0

    def bytes(self, shape: tuple[int, ...], input_dim: int = -1) -> int:
        """Rows of whole blocks."""
        matrices, out, inner = sides(shape, input_dim)
        return matrices * out * (-(-inner // self.block) * self.block_bytes + self.row_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class BitsPerWeight(WeightFormat):
    """A target average, for formats that choose bits matrix by matrix.

    Args:
        millibits: thousandths of a bit per weight.
        side_bytes: bytes per input and per output beside the values (EXL3's sign vectors).
    """

    millibits: int
    side_bytes: int = 0

    def bytes(self, shape: tuple[int, ...], input_dim: int = -1) -> int:
        """Elements times bits, rounded up to a byte, and the side vectors."""
        matrices, out, inner = sides(shape, input_dim)
        return matrices * (-(-out * inner * self.millibits // 8000) + (out + inner) * self.side_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class WithCopy(WeightFormat):
    """A matrix in one format, and a second copy of its elements in a plain type (MLA's absorbed projections).

    Args:
        stored: the matrix itself.
        copy_element_bytes: width of the copy's elements.
    """

    stored: WeightFormat
    copy_element_bytes: int = 2

    def bytes(self, shape: tuple[int, ...], input_dim: int = -1) -> int:
        """Both."""
        return self.stored.bytes(shape, input_dim) + prod(shape) * self.copy_element_bytes
