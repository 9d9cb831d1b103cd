"""What one GPU of several holds: states divided over data-parallel ranks, and the buffers that sharing them needs.

N ranks, bytes of weights w, gradients g, optimizer states and master copies o:

ddp            w + g + o, and the reducer's buckets (a second g unless gradients are views of them)
zero1, 2, 3    DeepSpeed's engines: see `deepspeed`
fsdp, fsdp2    (w + g + o)/N, one gathered unit (and one that is fetched ahead), its gradients until it is through, and
               the root unit (embedding, head) from its forward to its backward; hsdp: N is the shard group

What is not a parameter is not divided: a quantised matrix's scales are whole on every rank.

Sources: ZeRO (arXiv 1910.02054) sections 3 and 5; torch FSDP; accelerate utils/fsdp_utils.py (fp32 parameters under
mixed precision).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from planner.training.recipe import AUTOCASTS, DEEPSPEED, Recipe, kernels
from planner.training.sharding import deepspeed
from planner.training.states.inventory import Inventory, TrainTensor
from planner.training.states.states import States, adapter_tensors

FSDP = frozenset({"fsdp", "fsdp2", "hsdp"})
_FULLY = FSDP | {"zero3"}
# Stacks whose trainer is the HF Trainer, with accelerate under it.
_ACCELERATE = ("transformers", "trl", "fms", "axolotl", "llamafactory")
# Which pieces of a quantised matrix are parameters: packed values; of a GPTQ matrix the zero points too
# (fms_acceleration_peft autogptq_utils.py PATCH_FOR_FSDP_TRITON_V2).
_PARAMETERS = {"fused": (0, 3)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharded:
    """The states of one rank, in bytes.

    Args:
        weights, gradients, optimizer: what stays. `gradients` is what is alive at the optimizer's step.
        waiting: gradients of earlier micro-batches beside the next one.
        buckets: alive from the first backward on.
        gathered: alive during forward and backward.
        gathered_layers: besides these, in forward, at the start of the loss's backward, in the backward of the layers.
        unit_gradients: alive during backward (of FSDP's units, the step has them).
        step_buckets: those of the buckets that the optimizer's step still has.
        step_temporary: of the optimizer's step.
        host: bytes in host memory for this rank.
        shards_gradients: gradients leave the rank as they are made.
        loading: peak while the model is loaded and cut.
    """

    weights: int
    gradients: int
    waiting: int
    optimizer: int
    buckets: int
    step_buckets: int
    gathered: int
    gathered_layers: tuple[int, int, int]
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


def shard(
    states: States, found: Inventory, recipe: Recipe, *, hidden_size: int, whole: States | None = None
) -> Sharded:
    """The share of one rank under the (resolved) recipe's sharding.

    Args:
        states, found: what a rank computes with (under expert parallelism its own experts).
        whole: the same with all experts, which is what is divided over all ranks.
    """
    whole = whole or states
    ranks, kind = data_ranks(recipe), recipe.sharding or "none"
    own, all_ranks = _totals(states, recipe), _totals(whole, recipe)
    weights, gradients, optimizer, temporary = own
    each = tuple(-(-size // ranks) for size in all_ranks)
    # A matrix arrives in 16 bit and is packed on the GPU, one after the other.
    arriving = max((2 * t.numel for t, _ in found.all() if t.storage == "dequantised"), default=0)
    loading, buckets, gathered, unit_gradients, host = weights + arriving, 0, 0, 0, 0
    gathered_layers = (0, 0, 0)
    notes: tuple[str, ...] = ()
    if kind == "ddp" and ranks > 1:
        buckets = gradients
    step_buckets = buckets
    if kind == "zero1" and recipe.framework == "megatron":
        optimizer = each[2]  # its distributed optimizer: gradients stay whole in one fp32 buffer
    elif kind in DEEPSPEED:
        optimizer = each[2]
        buckets = deepspeed.bucket_bytes(recipe, hidden_size)
        step_buckets = buckets if kind == "zero3" else 0
        temporary = deepspeed.step_bytes(recipe, -(-whole.trained_numel // ranks), narrow=recipe.dtype != "float32")
    if kind in ("zero2", "zero3"):
        # a unit's gradients before they are reduced; never more than dividing them saves
        unit_gradients = min(_unit_gradients(found, recipe), gradients - each[1])
        gradients = each[1]
    if kind in FSDP:
        gradients, optimizer, temporary = each[1:]
    waiting = _waiting(found, recipe, gradients)
    if kind in _FULLY:
        units, root, constants = unit_bytes(found, recipe), root_bytes(found, recipe), _constants(found)
        share = -(-(all_ranks[0] - constants) // ranks) + constants
        loading = max(units) if recipe.offload_parameters else share + max(units)
        if recipe.offload_parameters:
            notes += ("rank 0 reads the whole checkpoint into host memory; the card gets a layer at a time",)
        if kind == "zero3":
            gathered = min(deepspeed.live_bytes(recipe, max(*units, root)), weights - share)
        else:
            forward, loss, backward = _gathered_units(recipe)
            gathered, gathered_layers = root, (max(units) * forward, max(units) * loss, max(units) * backward)
        if kernels(recipe).get("keeps_whole_weights") and kind != "zero3":
            gathered_layers, weights = (max(units),) * 3, weights + share
        else:
            weights = share
    if recipe.offload_optimizer and kind in DEEPSPEED:
        host += deepspeed.offloaded_bytes(recipe, -(-whole.trained_numel // ranks), optimizer)
        largest = max((t.numel for t, _ in found.all() if t.trainable), default=0)
        buckets, step_buckets = buckets + 2 * largest, 0
        optimizer = temporary = gradients = waiting = 0
        notes += ("the optimizer's states, gradients and step are in host memory",)
    elif recipe.offload_optimizer:
        host += optimizer
        optimizer = temporary = 0
        notes += ("the optimizer's states and step are in host memory",)
    if recipe.offload_parameters:
        host += weights + gradients
        weights = gradients = 0
    return Sharded(
        weights=weights,
        gradients=gradients,
        waiting=waiting,
        optimizer=optimizer,
        buckets=buckets,
        gathered=gathered,
        step_buckets=step_buckets,
        gathered_layers=gathered_layers,
        unit_gradients=unit_gradients,
        step_temporary=temporary,
        host=host,
        loading=loading,
        shards_gradients=kind in _FULLY or kind == "zero2",
        notes=notes,
    )


def _totals(states: States, recipe: Recipe) -> tuple[int, int, int, int]:
    """Bytes of weights, gradients, optimizer states, and of the step besides, before they are divided."""
    weights = states.frozen_bytes + states.trained_weight_bytes
    if recipe.sharding not in DEEPSPEED or recipe.adapters:  # DeepSpeed lays what is trained out in one tensor
        weights += states.weight_rounding_bytes
    gradients, optimizer = states.gradient_bytes, states.optimizer_bytes + states.master_bytes - states.paged_bytes
    temporary = states.step_temporary_bytes()
    if accelerate_upcasts(recipe):
        scale = 4 * states.trained_numel
        weights += scale - states.trained_weight_bytes
        gradients, temporary = scale, scale if temporary else 0
        if states.optimizer.states[:1] == ("param",):
            optimizer *= 2
    return weights, gradients, optimizer, temporary


def _waiting(found: Inventory, recipe: Recipe, gradients: int) -> int:
    """Gradients of earlier micro-batches: as they are divided, or whole where accelerate does not reduce them yet.

    Source: accelerate 1.15 accelerator.py no_sync (FSDP: no_sync; FSDP2: set_requires_gradient_sync(False)), which
    transformers 5.24 trainer.py enters for all but the last micro-batch.
    """
    if recipe.sharding not in FSDP or recipe.gradient_accumulation_steps == 1 or recipe.framework not in _ACCELERATE:
        return gradients
    width = AUTOCASTS[recipe.autocast or "none"]
    size = 0
    for tensor, count in found.all():
        own = tensor.numel * min(tensor.width, width or tensor.width) if tensor.trainable else 0
        adapters = sum(prod(shape) * min(wide, width or wide) for _, shape, wide in adapter_tensors(tensor))
        size += count * (own + adapters)
    return size


def _gathered_units(recipe: Recipe) -> tuple[int, int, int]:
    """Layers that are gathered in forward, at the start of the loss's backward, and in the backward of the layers.

    FSDP1 fetches the unit that backward needs next before it runs one (BACKWARD_PRE, its default), but none whose
    forward ran without a graph, as that of a reentrant checkpoint does. FSDP2 fetches one ahead in both directions.
    Source: torch 2.13 distributed/fsdp/_runtime_utils.py _pre_backward_hook, _get_handle_to_prefetch
    (`_needs_pre_backward_unshard`), fully_shard/_fsdp_state.py.
    """
    if recipe.sharding != "fsdp" and recipe.sharding != "hsdp":
        return 2, 1, 2
    if recipe.gradient_checkpointing and kernels(recipe).get("reentrant"):
        return 1, 0, 1
    return 1, 1, 2


def accelerate_upcasts(recipe: Recipe) -> bool:
    """Accelerate keeps trained parameters of an FSDP model in fp32 when mixed precision is on."""
    return (
        recipe.sharding in FSDP
        and bool(AUTOCASTS[recipe.autocast or "none"])
        and recipe.dtype != "float32"
        and not recipe.adapters
        and recipe.framework in _ACCELERATE
        and not kernels(recipe).get("keeps_low_precision")
    )


def holds_backward(recipe: Recipe) -> bool:
    """FSDP1 around frozen weights holds every reentrant checkpoint's input, and its gradient, until backward ends.

    A unit with frozen parameters registers a hook on its inputs (`register_multi_grad_hook`), and keeps that hook's
    handle until backward is over. An input that a reentrant checkpoint detached is a leaf: the hook has its
    AccumulateGrad node, which has the tensor and its gradient. Other inputs have nodes that hold no tensor.
    Source: torch 2.13 distributed/fsdp/_runtime_utils.py _register_post_backward_reshard_only_hook,
    autograd/graph.py register_multi_grad_hook. Seen in the FSDP runs of fms-acceleration with adapters: 2 x 2 h more a
    token and layer in backward; full fine-tunes do not grow.
    """
    applies = recipe.sharding in ("fsdp", "hsdp") and recipe.adapters and bool(recipe.gradient_checkpointing)
    return applies and bool(kernels(recipe).get("reentrant"))


def _bytes_gathered(tensor: TrainTensor, recipe: Recipe) -> int:
    """One tensor unsharded: packed as it is stored, or in the type that it computes in."""
    if tensor.storage != "plain":
        return tensor.format.bytes(tensor.shape, tensor.tensor.input_dim)
    return tensor.numel * min(tensor.width, AUTOCASTS[recipe.autocast or "none"] or tensor.width)


def unit_bytes(found: Inventory, recipe: Recipe) -> list[int]:
    """Every layer gathered."""
    units: list[int] = []
    for group in found.layers:
        units += [sum(_bytes_gathered(t, recipe) for t in group.tensors)] * len(group.indices)
    return units


def root_bytes(found: Inventory, recipe: Recipe) -> int:
    """Embeddings and head gathered."""
    return sum(_bytes_gathered(t, recipe) for t in (*found.embeddings, *found.head))


def _constants(found: Inventory) -> int:
    """Scales, code books and the like of quantised matrices, which are no parameters."""
    size = 0
    for tensor, count in found.all():
        if tensor.storage == "plain":
            continue
        pieces = tensor.format.pieces(tensor.shape, tensor.tensor.input_dim)
        kept = _PARAMETERS.get(tensor.storage, (0,))
        size += count * sum(piece for at, piece in enumerate(pieces) if at not in kept)
    return size


def _unit_gradients(found: Inventory, recipe: Recipe) -> int:
    """Gradients of the largest layer before they are reduced."""
    return max(sum(_bytes_gathered(t, recipe) for t in group.tensors if t.trainable) for group in found.layers)
