"""Weight bytes on one GPU: every tensor's local share, in its storage format."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from planner.memory.allocator import allocated_bytes
from planner.memory.quantisation import WeightScheme
from planner.memory.sharding import Parallelism, local_shape
from planner.model.spec import Layer, ModelSpec
from planner.model.tensor import Role, Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class StageWeights:
    """Weight bytes of the fullest GPU of one pipeline stage.

    Args:
        by_role: bytes by what the tensors are for.
        rope_bytes: rotary tables, which engines count as weights.
        rounding_bytes: what torch's allocator counts beyond the tensors' own bytes.
        numel: elements stored here.
        largest_layer_bytes: the biggest single layer, for loading peaks and offload.
    """

    by_role: tuple[tuple[Role, int], ...]
    rope_bytes: int
    rounding_bytes: int
    numel: int
    largest_layer_bytes: int

    @property
    def total_bytes(self) -> int:
        """All of it."""
        return sum(size for _, size in self.by_role) + self.rope_bytes + self.rounding_bytes

    def role_bytes(self, *roles: Role) -> int:
        """Bytes of these roles."""
        return sum(size for role, size in self.by_role if role in roles)


# Projections of one block that vLLM keeps as one matrix (QKVParallelLinear, MergedColumnParallelLinear and the
# fused MLA projection; vLLM 0.19.1 models' packed_modules_mapping).
_MERGED = {
    "q_proj": "qkv", "k_proj": "qkv", "v_proj": "qkv", "gate_proj": "gate_up", "up_proj": "gate_up",
    "q_a_proj": "qkv_a", "kv_a_proj_with_mqa": "qkv_a",
}  # fmt: skip


def engine_tensor(name: str) -> str:
    """The name of the engine's tensor that this one is part of."""
    module, _, kind = name.rpartition(".")
    parent, _, last = module.rpartition(".")
    merged = _MERGED.get(last)
    return f"{parent}.{merged}.{kind}" if merged else name


def stage_weights(
    spec: ModelSpec,
    scheme: WeightScheme,
    parallelism: Parallelism,
    *,
    layers: slice = slice(None),
    first: bool = True,
    last: bool = True,
    with_drafts: bool = False,
    with_towers: bool = True,
    rope_element_bytes: int = 2,
) -> StageWeights:
    """Weights that the fullest GPU of one pipeline stage holds.

    Args:
        layers: the stage's layers.
        first: holds the embeddings and towers.
        last: holds the final norm and the head; with tied embeddings and a later stage, a copy of the embedding.
        with_drafts: draft (MTP) layers are loaded, on the last stage.
        rope_element_bytes: bytes of one rotary table element.

    Raises:
        UsageError: a tensor does not divide over the GPUs; names it.
    """
    totals: dict[Role, int] = {}
    numel = rounding = 0

    def add(tensors: Iterable[Tensor], times: int = 1) -> int:
        nonlocal numel, rounding
        added = 0
        stored: dict[str, int] = {}
        for tensor in tensors:
            shape = local_shape(tensor, parallelism)
            size = scheme.format_of(tensor).bytes(shape, tensor.input_dim)
            elements = 1
            for extent in shape:
                elements *= extent
            numel += elements * times
            totals[tensor.role] = totals.get(tensor.role, 0) + size * times
            added += size
            merged = engine_tensor(tensor.name)
            stored[merged] = stored.get(merged, 0) + size
        rounding += times * sum(allocated_bytes(size) - size for size in stored.values())
        return added

    largest = 0

    def add_layers(run: tuple[Layer, ...], hidden_size: int, prefix: str, start: int) -> None:
        nonlocal largest
        for index, layer in enumerate(run, start=start):
            named = (tensor.named(f"{prefix}.{index}") for tensor in layer.tensors(hidden_size))
            largest = max(largest, add(named))

    def add_layers_by_kind(run: tuple[Layer, ...], hidden_size: int, prefix: str, start: int) -> None:
        # A scheme that treats every layer of a kind alike needs one look at each kind.
        nonlocal largest
        counts: dict[int, tuple[int, Layer, int]] = {}
        for index, layer in enumerate(run, start=start):
            seen = counts.get(id(layer))
            counts[id(layer)] = (index, layer, 1) if seen is None else (seen[0], layer, seen[2] + 1)
        for index, layer, times in counts.values():
            named = (tensor.named(f"{prefix}.{index}") for tensor in layer.tensors(hidden_size))
            largest = max(largest, add(named, times))

    add_run = add_layers_by_kind if scheme.same_for_every_layer else add_layers
    if first:
        add(spec.embeddings)
        if with_towers:
            for stack in spec.stacks:
                add(stack.tensors)
                add_run(stack.layers, stack.hidden_size, stack.layer_prefix, 0)
    start = layers.indices(len(spec.layers))[0]
    add_run(spec.layers[layers], spec.hidden_size, spec.layer_prefix, start)
    if last:
        add(spec.head)
        if spec.tie_word_embeddings and not first:
            add(tensor for tensor in spec.embeddings if tensor.role is Role.EMBEDDING)
        if with_drafts:
            add(spec.draft_tensors)
            add_layers(spec.draft_layers, spec.hidden_size, spec.layer_prefix, len(spec.layers))
    rope = sum(table.numel for table in spec.rope_tables) * rope_element_bytes
    return StageWeights(
        by_role=tuple(totals.items()),
        rope_bytes=rope,
        rounding_bytes=rounding,
        numel=numel,
        largest_layer_bytes=largest,
    )
