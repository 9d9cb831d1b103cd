"""What a file of weights says of one tensor."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import prod


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """One tensor of a file, by its header.

    Args:
        name: as the file calls it.
        dtype: as the file calls it: "BF16", "F8_E4M3", "Q4_K", ...
        shape: elements by dimension, slowest first (GGUF's own order is the reverse).
        nbytes: bytes of its data, padding between tensors not counted.
        file: name of the file that holds it, relative to the folder when there is one.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    nbytes: int
    file: str

    @property
    def numel(self) -> int:
        """Elements; of a packed format, elements of the packed array."""
        return prod(self.shape)


def total_bytes(tensors: Iterable[StoredTensor]) -> int:
    """Bytes of the data of these tensors."""
    return sum(tensor.nbytes for tensor in tensors)
