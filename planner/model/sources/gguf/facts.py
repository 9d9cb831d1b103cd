"""Metadata of a GGUF file, read under its architecture's name, with what the tensor list says besides."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from planner.errors import ConfigError, UnsupportedArchitecture
from planner.model.sources.gguf.reader import Value
from planner.model.sources.stored import StoredTensor

_LARGEST: Final = 1 << 40
_LAYER: Final = re.compile(r"^blk\.\d+\.")


@dataclass(frozen=True, slots=True)
class GgufFacts:
    """The metadata of one file, read under its architecture's name.

    Args:
        architecture: general.architecture.
        metadata: every key of the file.
        tensors: the first of its tensors of each name, layers left out of the names.
        origin: the file, for messages.
    """

    architecture: str
    metadata: Mapping[str, Value]
    tensors: Mapping[str, StoredTensor]
    origin: str

    def raw(self, key: str) -> Value | None:
        """The value of "<architecture>.<key>"."""
        return self.metadata.get(f"{self.architecture}.{key}")

    def optional(self, key: str) -> int | None:
        """A whole number; of an array with one for each layer, the one that all layers (with any) share.

        Raises:
            ConfigError: not a whole number of an ordinary size.
            UnsupportedArchitecture: layers of different sizes.
        """
        value = self.raw(key)
        if isinstance(value, tuple):
            sizes = {size for size in value if size}
            if len(sizes) > 1:
                raise UnsupportedArchitecture(
                    f"{self.origin}: {self.architecture}.{key} differs between layers, which is not read from GGUF"
                    " files; pass the model's config.json",
                    field=key,
                )
            value = sizes.pop() if sizes else 0
        if value is None:
            return None
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < _LARGEST:
            raise ConfigError(
                f"{self.origin}: {self.architecture}.{key} is no whole number of ordinary size", field=key
            )
        return value

    def size(self, key: str) -> int:
        """A whole number that must be there.

        Raises:
            ConfigError: absent, or as `optional`.
        """
        value = self.optional(key)
        if value is None:
            raise ConfigError(
                f"{self.origin}: {self.architecture}.{key} is missing; it is needed to size it", field=key
            )
        return value

    def has(self, name: str) -> bool:
        """Whether the model or any layer has a tensor of that name ("output.weight", "attn_q.bias")."""
        return name in self.tensors

    def width(self, name: str, dimension: int) -> int | None:
        """Elements along one dimension of the first tensor of that name; None: no such tensor."""
        found = self.tensors.get(name)
        return found.shape[dimension] if found is not None and len(found.shape) > dimension else None


def by_kind(tensors: Iterable[StoredTensor]) -> dict[str, StoredTensor]:
    """The first tensor of each name, "blk.<layer>." left out."""
    found: dict[str, StoredTensor] = {}
    for tensor in tensors:
        found.setdefault(_LAYER.sub("", tensor.name, count=1), tensor)
    return found
