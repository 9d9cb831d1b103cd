"""Weight bytes on one GPU: every tensor's local share, in its storage format."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from math import prod

from planner.memory.allocator import occupancy
from planner.memory.parallel.sharding import Parallelism, local_shape
from planner.memory.quantisation import WeightScheme
from planner.model.spec import Layer, ModelSpec
from planner.model.tensor import Role, Tensor
from planner.model.tensors import draft_tensors


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
    "q_proj": "qkv",
    "k_proj": "qkv",
    "v_proj": "qkv",
    "gate_proj": "gate_up",
    "up_proj": "gate_up",
    "q_a_proj": "qkv_a",
    "kv_a_proj_with_mqa": "qkv_a",
}


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
    whole_towers: bool = False,
    rope_element_bytes: int = 2,
) -> StageWeights:
    """Weights that the fullest GPU of one pipeline stage holds.

    Args:
        layers: the stage's layers.
        first: holds the embeddings and towers.
        last: holds the final norm and the head; with tied embeddings and a later stage, a copy of the embedding.
        with_drafts: draft (MTP) layers are loaded, on the last stage.
        whole_towers: every GPU holds the towers whole (mm_encoder_tp_mode data).
        rope_element_bytes: bytes of one rotary table element.

    Raises:
        UsageError: a tensor does not divide over the GPUs; names it.
    """
    held = _Held(scheme, parallelism)
    if first:
        held.add(spec.embeddings)
        if with_towers:
            held.parallelism = Parallelism() if whole_towers else parallelism
            for stack in spec.stacks:
                held.add(stack.tensors)
                held.add_layers(stack.layers, stack.hidden_size, stack.layer_prefix, 0)
            held.parallelism = parallelism
    held.add_layers(spec.layers[layers], spec.hidden_size, spec.layer_prefix, layers.indices(len(spec.layers))[0])
    if last:
        held.add(spec.head)
        if spec.tie_word_embeddings and not first:
            held.add(tensor for tensor in spec.embeddings if tensor.role is Role.EMBEDDING)
        if with_drafts:
            held.add(draft_tensors(spec, buffers=True))
    return StageWeights(
        by_role=tuple(held.by_role.items()),
        rope_bytes=sum(
            table.numel * (4 if table.dtype == "float32" else rope_element_bytes) for table in spec.rope_tables
        ),
        rounding_bytes=occupancy(held.made).allocated_bytes - sum(held.made),
        numel=held.numel,
        largest_layer_bytes=held.largest_layer_bytes,
    )


class _Held:
    """What one GPU holds so far: bytes by role, elements, and the engine's tensors in the order they are made."""

    def __init__(self, scheme: WeightScheme, parallelism: Parallelism) -> None:
        self.scheme = scheme
        self.parallelism = parallelism
        self.by_role: dict[Role, int] = {}
        self.made: list[int] = []
        self.numel = 0
        self.largest_layer_bytes = 0

    def add(self, tensors: Iterable[Tensor]) -> None:
        found = self._look(tensors)
        self.made.extend(found.made)
        self._count(found, 1)

    def add_layers(self, run: tuple[Layer, ...], hidden_size: int, prefix: str, start: int) -> None:
        # A scheme that treats all layers of a kind alike needs one look at each kind.
        seen: dict[int, _Look] = {}
        places: Counter[int] = Counter()
        for index, layer in enumerate(run, start=start):
            key = id(layer) if self.scheme.same_for_every_layer else index
            if key not in seen:
                found = self._look(tensor.named(f"{prefix}.{index}") for tensor in layer.tensors(hidden_size))
                seen[key] = found
                self.largest_layer_bytes = max(self.largest_layer_bytes, sum(found.made))
            places[key] += 1
            self.made.extend(seen[key].made)
        for key, times in places.items():
            self._count(seen[key], times)

    def _look(self, tensors: Iterable[Tensor]) -> _Look:
        found = _Look({}, 0, [])
        stored: dict[tuple[str, int], int] = {}
        for tensor in tensors:
            shape = local_shape(tensor, self.parallelism)
            pieces = self.scheme.format_of(tensor).pieces(shape, tensor.input_dim)
            found.numel += prod(shape)
            found.by_role[tensor.role] = found.by_role.get(tensor.role, 0) + sum(pieces)
            merged = engine_tensor(tensor.name)
            for place, size in enumerate(pieces):
                stored[merged, place] = stored.get((merged, place), 0) + size
        found.made = list(stored.values())
        return found

    def _count(self, found: _Look, times: int) -> None:
        self.numel += found.numel * times
        for role, size in found.by_role.items():
            self.by_role[role] = self.by_role.get(role, 0) + size * times


@dataclass(slots=True)
class _Look:
    """What a run of tensors takes on one GPU."""

    by_role: dict[Role, int]
    numel: int
    made: list[int]
