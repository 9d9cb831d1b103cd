"""Which device computes which operation, and what is copied between devices: ggml's scheduler.

Weights and caches pull their operations to their device; results spread from there to their neighbours; a run of
operations on one device is a split, and what a split reads from elsewhere is copied to it when it begins. With
pipeline parallelism every such copy, and every input, is there four times and is never given back.

Source: ggml 0.25.3 `src/ggml-backend.cpp` (ggml_backend_sched_split_graph; GGML_SCHED_MAX_COPIES 4).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from planner.engines.llama_cpp.graph.allocator import Arena, reserve
from planner.engines.llama_cpp.graph.tensor import VIEWS, Graph, Tensor

PIPELINE_COPIES = 4
# ggml-cuda.cu op_offload_min_batch_size: rows from which a host weight is copied to the device for one operation.
OFFLOAD_ROWS = 32


@dataclass(slots=True)
class _Split:
    backend: int
    nodes: list[Tensor] = field(default_factory=list)
    inputs: list[tuple[Tensor, list[Tensor]]] = field(default_factory=list)


def reserved_bytes(
    graph: Graph, alignments: Sequence[int], *, copies: int = 1, op_offload: bool = True
) -> tuple[int, ...]:
    """Bytes of each device's compute buffer; the last device is the host.

    Args:
        alignments: of each device's buffer, the host's last.
        copies: 1, or 4 with pipeline parallelism.
        op_offload: whether large batches copy host weights to the first device.
    """
    host = len(alignments) - 1
    _assign(graph, host, op_offload=op_offload)
    splits, read = _splits(graph, copies)
    arenas = [Arena(alignment) for alignment in alignments]
    nodes, leaves = _scheduled(graph, splits, read, copies)
    reserve(nodes, leaves, arenas)
    return tuple(arena.peak_bytes for arena in arenas)


def _assign(graph: Graph, host: int, *, op_offload: bool) -> None:
    """Passes 1, 2 and 4: the backend of every tensor. Every device is taken to support every operation."""
    for leaf in graph.leaves:
        leaf.backend = leaf.home if leaf.home >= 0 else host if leaf.input else -1
    working = []
    for node in graph.nodes:
        if node.backend < 0:
            node.backend = _from_sources(node, host, op_offload=op_offload)
        if node.op not in VIEWS:
            working.append(node)
    backwards = working[::-1]
    for ordered, skip_host in ((working, True), (backwards, True), (working, False), (backwards, False)):
        current = -1
        for node in ordered:
            backend = node.backend
            if backend >= 0:
                current = -1 if skip_host and backend == host else backend
            elif current >= 0:
                node.backend = current
    for node in graph.nodes:
        if node.backend < 0:
            node.backend = node.view_of.backend if node.view_of is not None else 0
        for source in node.sources:
            if source.backend < 0:
                source.backend = source.view_of.backend if source.view_of is not None else node.backend


def _from_sources(node: Tensor, host: int, *, op_offload: bool) -> int:
    viewed = node.view_of
    if viewed is not None and viewed.home >= 0:
        return viewed.home
    if node.op in ("rope", "flash_attn"):
        return -1
    for source in node.sources:
        if source.weight:
            if op_offload and source.home == host and host and node.operand_rows >= OFFLOAD_ROWS:
                return 0
            return source.home
    return -1


def _splits(graph: Graph, copies: int) -> tuple[list[_Split], list[Tensor]]:
    """Pass 5: runs of one backend, with what each reads from others (copied once to each backend); inputs read."""
    used: dict[int, Tensor] = {}
    splits: list[_Split] = []
    copied: dict[tuple[int, int], list[Tensor]] = {}
    current: _Split | None = None
    for node in graph.nodes:
        if node.op in VIEWS:
            # a view belongs to the split that stands open; before the first it opens that
            if current is None:
                current = _Split(-1)
                splits.append(current)
            current.nodes.append(node)
            continue
        backend = node.backend
        if current is None:
            current = _Split(backend)
            splits.append(current)
        elif current.backend < 0:
            current.backend = backend
        elif backend != current.backend or (
            current.inputs and any(s.weight and s.backend != backend for s in node.sources)
        ):
            current = _Split(backend)
            splits.append(current)
        current.nodes.append(node)
        for place, source in enumerate(node.sources):
            if source.input and copies > 1:
                used.setdefault(id(source), source)
            if source.backend == backend:
                continue
            key = (id(source), backend)
            found = copied.get(key)
            if found is None:
                found = copied[key] = [_copy_of(source, backend, pinned=copies > 1) for _ in range(copies)]
                current.inputs.append((source, found))
            node.sources[place] = found[0]
    return splits, list(used.values())


def _copy_of(source: Tensor, backend: int, *, pinned: bool) -> Tensor:
    """A tensor of the same layout on another device."""
    copy = Tensor("none", source.ne, item=source.item, nb=source.nb)
    copy.nbytes = source.nbytes
    copy.backend = backend
    copy.input = copy.output = pinned
    return copy


def _scheduled(
    graph: Graph, splits: list[_Split], read: list[Tensor], copies: int
) -> tuple[list[Tensor], list[Tensor]]:
    """The graph with its copies, in the order in which the allocator meets it."""
    nodes: list[Tensor] = []
    for split in splits:
        for source, found in split.inputs:
            dependency = Tensor("none", source.ne, (source,), item=source.item, nb=source.nb, view_of=source)
            dependency.backend = source.backend
            nodes += (dependency, found[0])
        nodes += split.nodes
    leaves: list[Tensor] = []
    if copies > 1:
        for leaf in read:
            leaf.output = True
            leaves += (leaf, *(_copy_of(leaf, leaf.backend, pinned=True) for _ in range(copies - 1)))
        for split in splits:
            for _, found in split.inputs:
                leaves += found
    return nodes, leaves + graph.leaves
