"""What ggml's graph allocator reserves: the highest address it hands out while the graph runs.

Every result takes the smallest hole that holds it; the last hole has no end. A result whose operation can work in
place takes over a source that nobody else needs. A tensor's memory is free again once its last reader has run.

Source: ggml 0.25.3 `src/ggml-alloc.c` (ggml_dyn_tallocr_alloc, ggml_gallocr_alloc_graph_impl).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from planner.engines.llama_cpp.graph.tensor import IN_PLACE, Tensor

_ENDLESS: Final = 1 << 62


class Arena:
    """One device's buffer: its holes by address, and the highest address used."""

    __slots__ = ("alignment", "offsets", "peak_bytes", "sizes")

    def __init__(self, alignment: int) -> None:
        self.alignment = alignment
        self.offsets = [0]
        self.sizes = [_ENDLESS]
        self.peak_bytes = 0

    def aligned(self, size: int) -> int:
        """Bytes that a tensor of this size takes."""
        return -(-size // self.alignment) * self.alignment

    def take(self, size: int) -> int:
        """The address of `size` (aligned) bytes."""
        sizes, offsets = self.sizes, self.offsets
        last = len(sizes) - 1
        best, best_size = last, _ENDLESS
        for index in range(last):
            hole = sizes[index]
            if size <= hole <= best_size:
                best, best_size = index, hole
        address = offsets[best]
        end = address + size
        if sizes[best] == size:
            del sizes[best], offsets[best]
        else:
            sizes[best] -= size
            offsets[best] = end
        if end > self.peak_bytes:
            self.peak_bytes = end
        return address

    def give_back(self, address: int, size: int) -> None:
        """Makes `size` (aligned) bytes a hole, joined with its neighbours."""
        sizes, offsets = self.sizes, self.offsets
        end = address + size
        for index, offset in enumerate(offsets):
            if offset + sizes[index] == address:
                sizes[index] += size
                if index + 1 < len(offsets) and offsets[index + 1] == end:
                    sizes[index] += sizes[index + 1]
                    del sizes[index + 1], offsets[index + 1]
                return
            if offset == end:
                offsets[index] = address
                sizes[index] += size
                return
            if offset > end:
                offsets.insert(index, address)
                sizes.insert(index, size)
                return
        offsets.append(address)
        sizes.append(size)


def reserve(nodes: Sequence[Tensor], leaves: Sequence[Tensor], arenas: Sequence[Arena]) -> None:
    """Runs the allocator over a scheduled graph; each arena's `peak_bytes` is the result.

    Args:
        nodes: operations in order, with every copy that the scheduler added; `backend` of each is its arena.
        leaves: what is allocated before everything else.
    """

    def size_of(tensor: Tensor, arena: Arena) -> int:
        return arena.aligned(tensor.nbytes + tensor.extra_bytes)

    def allocate(tensor: Tensor, backend: int) -> None:
        if tensor.owned or tensor.home >= 0 or tensor.view_of is not None:
            return
        tensor.owned = True
        if tensor.op in IN_PLACE:
            for parent in tensor.sources:
                if parent.children != 1 or parent.views or parent.nb != tensor.nb or parent.ne != tensor.ne:
                    continue
                source = parent.view_of
                if source is None:
                    if not parent.owned or parent.output or parent.item != tensor.item:
                        continue
                    tensor.backend, tensor.address = parent.backend, parent.address
                    parent.owned = False
                    shrink(tensor, parent)
                    return
                # ggml compares whether a view is owned itself, which it never is
        tensor.backend = backend
        arena = arenas[backend]
        tensor.size = size_of(tensor, arena)
        tensor.address = arena.take(tensor.size)

    def shrink(tensor: Tensor, parent: Tensor) -> None:
        arena = arenas[parent.backend]
        before, after = size_of(parent, arena), size_of(tensor, arena)
        tensor.size = after
        if before > after:
            arena.give_back(parent.address + after, before - after)

    def release(tensor: Tensor) -> None:
        if tensor.output:
            return
        arenas[tensor.backend].give_back(tensor.address, tensor.size)
        tensor.owned = False

    for leaf in leaves:
        allocate(leaf, leaf.backend)
    for node in nodes:
        if node.view_of is not None and node.op != "none":
            node.view_of.views += 1
        if node.input:
            allocate(node, node.backend)
        for source in node.sources:
            source.children += 1
            if source.input:
                allocate(source, node.backend)
    for node in nodes:
        for source in node.sources:
            if source.view_of is None and source.home < 0 and not source.owned:
                allocate(source, node.backend)
        allocate(node, node.backend)
        for source in node.sources:
            source.children -= 1
            if source.children or source.views:
                continue
            viewed = source.view_of
            if viewed is not None:
                viewed.views -= 1
                if not viewed.views and not viewed.children and viewed.owned:
                    release(viewed)
            elif source.owned:
                release(source)
