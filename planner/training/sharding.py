"""What one GPU of several holds: states divided over data-parallel ranks, and the buffers that sharing them needs.

N ranks, bytes of weights w, gradients g, optimizer states and master copies o:

ddp            w + g + o, and the reducer's buckets (a second g unless gradients are views of them)
zero1          w + g + o/N
zero2          w + g/N + o/N, and a reduce bucket
zero3          (w + g + o)/N, two gathered units and buckets (DeepSpeed may keep up to stage3_max_live_parameters)
fsdp, fsdp2    (w + g + o)/N, two gathered units (one in use, one prefetched), the gradient of one or two units, and the
               root unit (embedding, head) from its forward to its backward; hsdp: N is the shard group

Sources: ZeRO (arXiv 1910.02054) sections 3 and 5; deepspeed runtime/zero/config.py and HF's "auto" values (reduce
bucket h^2, prefetch 0.9 h^2); torch FSDP; accelerate utils/fsdp_utils.py (fp32 parameters under mixed precision).
"""

from __future__ import annotations

from dataclasses import dataclass

from planner.training.recipe import AUTOCASTS, Recipe, kernels
from planner.training.states import States
from planner.training.trainable import Inventory, TrainTensor

_FULLY = frozenset({"zero3", "fsdp", "fsdp2", "hsdp"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharded:
    """The states of one rank, in bytes.

    Args:
        weights, gradients, optimizer: what stays. `gradients` is what is alive at the optimizer's step.
        buckets: alive from the first backward on.
        gathered: alive during forward and backward.
        unit_gradients: alive during backward.
        step_temporary: of the optimizer's step.
        host: bytes in host memory for this rank.
        shards_gradients: gradients leave the rank as they are made.
        loading: peak while the model is loaded and cut.
    """

    weights: int
    gradients: int
    optimizer: int
    buckets: int
    gathered: int
    unit_gradients: int
    step_temporary: int
    host: int
    loading: int
    shards_gradients: bool
    notes: tuple[str, ...] = ()


def data_ranks(recipe: Recipe) -> int:
    """Ranks that the states are divided over."""
    ranks = recipe.num_gpus // (recipe.tensor_parallel_size * recipe.pipeline_parallel_size)
    if recipe.sharding == "hsdp":
        return min(ranks, recipe.shard_group or 8)
    return ranks


def shard(states: States, found: Inventory, recipe: Recipe, *, hidden_size: int) -> Sharded:
    """The share of one rank under the (resolved) recipe's sharding."""
    ranks, kind = data_ranks(recipe), recipe.sharding or "none"
    upcast = _accelerate_upcasts(recipe)
    weights = states.frozen_bytes + states.trained_weight_bytes + states.weight_rounding_bytes
    gradients, optimizer = states.gradient_bytes, states.optimizer_bytes + states.master_bytes - states.paged_bytes
    temporary = states.step_temporary_bytes()
    if upcast:
        scale = 4 * states.trained_numel
        weights += scale - states.trained_weight_bytes
        gradients, temporary = scale, scale if temporary else 0
        if states.optimizer.states[:1] == ("param",):
            optimizer *= 2
    # A matrix arrives in 16 bit and is packed on the GPU, one after the other.
    arriving = max((2 * t.numel for t, _ in found.all() if t.storage == "dequantised"), default=0)
    loading, buckets, gathered, unit_gradients, host = weights + arriving, 0, 0, 0, 0
    notes: tuple[str, ...] = ()
    if kind == "ddp" and ranks > 1:
        buckets = gradients
    if kind in ("zero1", "zero2", "zero3"):
        optimizer, temporary = -(-optimizer // ranks), -(-temporary // ranks)
        buckets = min(2 * hidden_size * hidden_size, gradients)
    if kind in ("zero2", "zero3"):
        # a unit's gradients before they are reduced; never more than dividing them saves
        unit_gradients = min(_unit_gradients(found, recipe, root=False), gradients - -(-gradients // ranks))
        gradients = -(-gradients // ranks)
    if kind in ("fsdp", "fsdp2", "hsdp"):
        optimizer, gradients, temporary = (-(-size // ranks) for size in (optimizer, gradients, temporary))
    if kind in _FULLY:
        units = _units(found, recipe)
        root = _root(found, recipe)
        loading = -(-weights // ranks) + max(units)
        whole = weights if kernels(recipe).get("keeps_whole_weights") and kind != "zero3" else 0
        share = -(-weights // ranks)
        gathered = max(units) * (1 if kind == "fsdp" else 2) + root
        if kind == "zero3":
            gathered = min(gathered, weights - share)  # all gathered is what the stage before holds
        else:
            unit_gradients = _unit_gradients(found, recipe)
        weights = share + whole
    if recipe.offload_optimizer:
        host += optimizer
        optimizer = temporary = 0
        notes += ("the optimizer's states and step are in host memory",)
    if recipe.offload_parameters:
        host += weights + gradients
        weights = gradients = 0
    return Sharded(
        weights=weights, gradients=gradients, optimizer=optimizer, buckets=buckets, gathered=gathered,
        unit_gradients=unit_gradients, step_temporary=temporary, host=host, loading=loading,
        shards_gradients=kind in _FULLY or kind == "zero2", notes=notes,
    )  # fmt: skip


def _accelerate_upcasts(recipe: Recipe) -> bool:
    """Accelerate keeps trained parameters of an FSDP model in fp32 when mixed precision is on."""
    return (
        recipe.sharding in ("fsdp", "fsdp2", "hsdp")
        and bool(AUTOCASTS[recipe.autocast or "none"])
        and recipe.dtype != "float32"
        and not recipe.adapters
        and recipe.framework in ("transformers", "trl", "fms", "axolotl", "llamafactory")
        and not kernels(recipe).get("keeps_low_precision")
    )


def holds_backward(recipe: Recipe) -> bool:
    """FSDP1 around frozen weights holds every checkpointed input, and its gradient, until backward ends.

    Measured: all FSDP runs with adapters of fms-acceleration grow by 2 x 2 h a token and layer in backward and by 2 h
    in forward; full fine-tunes do not, and neither do litgpt's runs, which wrap checkpoints themselves. FSDP1 registers
    its reshard hook for frozen parameters on the unit's inputs.
    """
    applies = recipe.sharding in ("fsdp", "hsdp") and recipe.adapters and bool(recipe.gradient_checkpointing)
    return applies and not kernels(recipe).get("own_modules")


def _bytes_gathered(tensor: TrainTensor, recipe: Recipe) -> int:
    """One tensor unsharded: packed as it is stored, or in the type that it computes in."""
    if tensor.storage != "plain":
        return tensor.format.bytes(tensor.shape, tensor.tensor.input_dim)
    return tensor.numel * min(tensor.width, AUTOCASTS[recipe.autocast or "none"] or tensor.width)


def _units(found: Inventory, recipe: Recipe) -> list[int]:
    units: list[int] = []
    for group in found.layers:
        units += [sum(_bytes_gathered(t, recipe) for t in group.tensors)] * len(group.indices)
    return units


def _root(found: Inventory, recipe: Recipe) -> int:
    return sum(_bytes_gathered(t, recipe) for t in (*found.embeddings, *found.head))


def _unit_gradients(found: Inventory, recipe: Recipe, *, root: bool = True) -> int:
    """Gradients of the largest unit (a layer, or with `root` the embedding and head) before they are reduced."""
    layers = [sum(_bytes_gathered(t, recipe) for t in group.tensors if t.trainable) for group in found.layers]
    outer = sum(_bytes_gathered(t, recipe) for t in (*found.embeddings, *found.head) if t.trainable)
    return max([outer if root else 0, *layers])
