"""What `--fit` chooses: context first, then layers, then experts, by the engine's own dry runs.

    1  keep what is given if every card keeps its target free (1024 MiB)
    2  a context that was not given shrinks, by a straight line between two measurements, to no less than --fit-ctx
    3  dense: as many whole layers as fit; mixtures: all dense parts, and experts of as many layers as fit
       not if layers, split or overrides were given: then the engine loads as asked

Source: llama.cpp v0.5.0 `common/fit.cpp`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from planner.engines.llama_cpp.buffers import Buffers, buffers_of, cache_by_device, weight_bytes
from planner.engines.llama_cpp.deployment import Deployment
from planner.engines.llama_cpp.resolve import Run, on_length
from planner.model.kinds.feed_forward import Moe
from planner.model.model import Model
from planner.units import MIB

TARGET_MIB: Final = 1024
LEAST_CONTEXT: Final = 4096
_STEP: Final = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """A run that fits as the engine sees it, or the one that was asked for, and what was changed."""

    run: Run
    buffers: Buffers
    notes: tuple[str, ...] = ()


def fitted(model: Model, deployment: Deployment, run: Run, free: tuple[int, ...]) -> Fitted:
    """The run after `--fit`.

    Args:
        free: bytes of each card before anything is loaded, its context taken off.
    """
    buffers = buffers_of(model, run)
    targets = deployment.fit_target or (TARGET_MIB,)
    room = tuple(
        size - (targets[index] if index < len(targets) else targets[-1]) * MIB for index, size in enumerate(free)
    )
    dry = replace(run, dry=True)

    def holds(some: Buffers) -> bool:
        return all(some.on(device) <= room[device] for device in range(len(room)))

    if holds(buffers if run.placement.devices < 2 else buffers_of(model, dry)):
        return Fitted(run=run, buffers=buffers)
    notes: list[str] = []
    if deployment.ctx_size is None and run.geometry.n_ctx > LEAST_CONTEXT:
        run, shrunk = _shorter(model, deployment, run, room)
        notes += shrunk
        buffers = buffers_of(model, run)
        if holds(buffers):
            return Fitted(run=run, buffers=buffers, notes=tuple(notes))
    given = [
        name for name in ("n_gpu_layers", "tensor_split", "override_tensor", "n_cpu_moe") if getattr(deployment, name)
    ]
    if given or deployment.cpu_moe:
        notes.append(f"--fit changes no layers, since {', '.join(given) or 'cpu_moe'} was given: it loads as asked")
        return Fitted(run=run, buffers=buffers, notes=tuple(notes))
    found = _fewer_layers(model, run, room)
    if found is None:
        return Fitted(run=run, buffers=buffers, notes=(*notes, "--fit finds no split that keeps its target free"))
    run, said = found
    return Fitted(run=run, buffers=buffers_of(model, run), notes=(*notes, said))


def _shorter(model: Model, deployment: Deployment, run: Run, room: tuple[int, ...]) -> tuple[Run, list[str]]:
    least = on_length(run, (deployment.fit_ctx or LEAST_CONTEXT) * run.geometry.streams, model)
    small, large = buffers_of(model, least), buffers_of(model, run)
    used, wanted = (sum(some.on(device) for device in range(len(room))) for some in (small, large))
    total = sum(room)
    if len(room) > 1:  # held back for the uneven ends of layers
        held = (len(room) + 1) * max(small.model) // max(1, len(model.spec.layers)) // (6 if _experts(model) else 2)
        total -= held
    low, high = least.geometry.n_ctx, run.geometry.n_ctx
    more = max(0, total - used) * (high - low) // max(1, wanted - used)
    length = min(high, low + more) // (_STEP * run.geometry.streams) * _STEP * run.geometry.streams
    return on_length(run, length, model), [f"--fit: context {high:,} -> {length:,} tokens"]


def _experts(model: Model) -> bool:
    return any(isinstance(layer.feed_forward, Moe) for layer in model.spec.layers)


def _fewer_layers(model: Model, run: Run, room: tuple[int, ...]) -> tuple[Run, str] | None:
    layers = len(model.spec.layers)
    if _experts(model):
        count = most_that_fits(lambda kept: _fits(model, _hosted(run, layers - kept), room), layers)
        if count is not None:
            return _hosted(run, layers - count), f"--fit: experts of the first {layers - count} layers in host memory"
        run = _hosted(run, layers)
    count = most_that_fits(lambda kept: _fits(model, _offloaded(run, kept), room), layers + 1)
    if count is None:
        return None
    return _offloaded(run, count), f"--fit: {count} of {layers + 1} layers on cards"


def _hosted(run: Run, count: int) -> Run:
    return replace(run, placement=replace(run.placement, experts_on_host=count))


def _offloaded(run: Run, count: int) -> Run:
    return replace(run, placement=replace(run.placement, offloaded=count))


def _fits(model: Model, run: Run, room: tuple[int, ...]) -> bool:
    return all(size <= room[device] for device, size in enumerate(quick_needs(model, run)))


def quick_needs(model: Model, run: Run) -> tuple[int, ...]:
    """Bytes on each card, with the compute buffer of one placement of its kind.

    Of a partial offload the compute buffers do not depend on how many layers are on a card, as long as there is one.
    """
    placement = run.placement
    layers = placement.layers
    typical = replace(
        placement,
        offloaded=placement.offloaded if placement.complete or not placement.offloaded else max(1, layers // 2),
        experts_on_host=layers // 2 if placement.experts_on_host > 0 else 0,
    )
    sample = buffers_of(model, replace(run, placement=typical))
    caches = cache_bytes(model, run)
    weights = weight_bytes(model, run)
    return tuple(weights[device] + caches[device] + sample.compute[device] for device in range(placement.devices))


def cache_bytes(model: Model, run: Run) -> tuple[int, ...]:
    """Keys, values and states on each device."""
    full, window, state = cache_by_device(model, run)
    return tuple(sum(sizes) for sizes in zip(full, window, state, strict=True))


def most_that_fits(fits: Callable[[int], bool], most: int) -> int | None:
    """The largest number up to `most` that fits; None if even 0 does not."""
    if fits(most):
        return most
    if not fits(0):
        return None
    low, high = 0, most
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low
