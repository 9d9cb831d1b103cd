"""What part of each tensor one GPU holds.

Sources: vLLM 0.19.1 `model_executor/layers/linear.py`, `vocab_parallel_embedding.py`, `fused_moe/config.py`,
`distributed/utils.py` (get_pp_indices).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from planner.errors import UsageError
from planner.model.tensor import Part, Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Parallelism:
    """How many GPUs share a model, and how.

    Args:
        tensor_parallel_size: GPUs that cut every matrix between them.
        pipeline_parallel_size: stages, each with a run of layers.
        data_parallel_size: engines with the same attention weights; experts are spread over them too.
        enable_expert_parallel: experts are dealt out whole instead of cut.
        vocabulary_multiple: rows of the embedding are padded to a multiple of this before they are cut.
    """

    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    data_parallel_size: int = 1
    enable_expert_parallel: bool = False
    vocabulary_multiple: int = 64

    @property
    def expert_parallel_size(self) -> int:
        """GPUs that the experts are spread over."""
        return self.tensor_parallel_size * self.data_parallel_size


def local_part(part: Part, ways: int) -> int:
    """Elements of one part on each of `ways` GPUs.

    Raises:
        UsageError: its units do not divide by `ways`, and cannot be replicated.
    """
    return part.local(ways)


def local_shape(tensor: Tensor, parallelism: Parallelism) -> tuple[int, ...]:
    """The shape of the fullest GPU's share of a tensor.

    Raises:
        UsageError: the tensor does not divide; names it.
    """
    shape = list(tensor.shape)
    ways = parallelism.tensor_parallel_size
    if tensor.num_experts:
        ways = parallelism.expert_parallel_size
        if parallelism.enable_expert_parallel:
            shape[0] = -(-shape[0] // ways)
            return tuple(shape)
    split = tensor.split
    if split is None or (ways == 1 and not split.vocabulary):
        return tuple(shape)
    try:
        if split.vocabulary:
            multiple = parallelism.vocabulary_multiple
            rows = -(-shape[split.dim] // multiple) * multiple
            shape[split.dim] = local_part(Part(rows, rows), ways)
        else:
            shape[split.dim] = sum(local_part(part, ways) for part in split.parts)
    except UsageError as error:
        raise UsageError(f"{tensor.name}: {error}", field="tensor_parallel_size") from None
    return tuple(shape)


def divides(tensors: Iterable[Tensor], parallelism: Parallelism) -> str | None:
    """None if every tensor can be shared like this, else the reason why not."""
    try:
        for tensor in tensors:
            local_shape(tensor, parallelism)
    except UsageError as error:
        return str(error)
    return None


def stage_layer_counts(
    num_hidden_layers: int, pipeline_parallel_size: int, *, remainder_to_last: bool = False
) -> tuple[int, ...]:
    """Layers of each pipeline stage.

    vLLM 0.8.5 and later give the remainder one by one to the stages before the last, counting backwards; up to
    0.7.3 (`remainder_to_last`) all of it goes to the last stage.

    Raises:
        UsageError: more stages than layers.
    """
    stages = pipeline_parallel_size
    if stages > num_hidden_layers:
        raise UsageError(
            f"pipeline_parallel_size {stages} is more than the model's {num_hidden_layers} layers",
            field="pipeline_parallel_size",
        )
    each, remainder = divmod(num_hidden_layers, stages)
    counts = [each] * stages
    if remainder_to_last:
        counts[-1] += remainder
    else:
        for back in range(2, remainder + 2):
            counts[-back] += 1
    return tuple(counts)


def stage_slices(counts: Sequence[int]) -> tuple[slice, ...]:
    """The run of layer indices of each stage."""
    slices, start = [], 0
    for count in counts:
        slices.append(slice(start, start + count))
        start += count
    return tuple(slices)
