"""Counts the storages that are alive, by watching every operation: exact bytes on any device.

Every tensor that an operation returns has a storage; the first time it is seen its bytes are added, and when torch lets
go of it they are taken off. Views share a storage and count once. Scratch memory inside a kernel is never a tensor and
is not seen. Source of the method: torch 2.13 `torch/distributed/_tools/mem_tracker.py`.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any


class LiveStorage:
    """Bytes of the storages alive, and the most there were."""

    def __init__(self) -> None:
        self.live = self.peak = 0
        self._known: dict[int, tuple[weakref.ref[Any], int]] = {}

    def see(self, tensor: Any) -> None:
        """Count the tensor's storage unless it is counted already."""
        storage = tensor.untyped_storage()
        size = storage.nbytes()
        if not size or tensor.device.type == "meta":
            return
        key = storage._cdata
        known = self._known.get(key)
        if known is not None and known[0]() is not None:
            self.live += size - known[1]  # resized in place
            self._known[key] = (known[0], size)
        else:
            self._known[key] = (weakref.ref(storage, self._forget(key)), size)
            self.live += size
        self.peak = max(self.peak, self.live)

    def _forget(self, key: int) -> Callable[[Any], None]:
        def gone(reference: Any) -> None:
            known = self._known.get(key)
            if known is not None and known[0] is reference:
                self.live -= known[1]
                del self._known[key]

        return gone


def tracking_mode(torch: Any, count: LiveStorage) -> Any:
    """A context in which every operation's results are counted."""
    tree = torch.utils._pytree

    class _Mode(torch.utils._python_dispatch.TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(self, operation: Any, types: Any, arguments: Any = (), keywords: Any = None) -> Any:
            result = operation(*arguments, **(keywords or {}))
            for leaf in tree.tree_leaves(result):
                if isinstance(leaf, torch.Tensor):
                    count.see(leaf)
            return result

    return _Mode()
