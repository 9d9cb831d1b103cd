"""What could be changed about a llama.cpp plan, in order of cost."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from planner.contract.lever import Kind, Lever, kinds
from planner.engines.llama_cpp.fit import most_that_fits, quick_needs
from planner.engines.llama_cpp.layout.cache import CACHE_TYPES
from planner.model.kinds.feed_forward import Moe

if TYPE_CHECKING:
    from planner.engines.llama_cpp.plan import LlamaPlan
    from planner.engines.llama_cpp.resolve import Run

TABLE: Final = "planner.engines.llama_cpp.tables:levers.csv"
_SHORTEST: Final = 1024
_SMALLEST_BATCH: Final = 128
_MIXES: Final = ("Q8_0", "Q6_K", "Q5_K_M", "Q4_K_M", "IQ4_XS", "Q3_K_M", "IQ3_XXS", "Q2_K")


def serving_levers(plan: LlamaPlan) -> Iterator[Lever]:
    """The levers that apply to a plan, cheapest first; values mildest first."""
    run = plan.run
    if run is None:
        return
    yield from _batch(run)
    yield from _cache(plan)
    yield from _experts(plan, run)
    yield from _layers(plan, run)
    yield from _context(plan, run)
    yield from _weights(plan)


def _kind(name: str) -> Kind:
    return kinds(TABLE)[name]


def _batch(run: Run) -> Iterator[Lever]:
    sizes = tuple(size for size in (1024, 512, 256, _SMALLEST_BATCH) if size < run.n_ubatch)
    if sizes:
        yield Lever(
            kind=_kind("ubatch-size"),
            before=str(run.n_ubatch),
            values=sizes,
            changes=lambda value: {"ubatch_size": value},
            flag=lambda value: f"-ub {value}",
        )


def _cache(plan: LlamaPlan) -> Iterator[Lever]:
    present = CACHE_TYPES[plan.deployment.cache_type_k]
    names = tuple(name for name in ("q8_0", "q5_1", "q4_0") if CACHE_TYPES[name] < present)
    run = plan.run
    if names and run is not None and run.flash_attention:
        yield Lever(
            kind=_kind("cache-type-k"),
            before=plan.deployment.cache_type_k,
            values=names,
            changes=lambda value: {"cache_type_k": value, "cache_type_v": value},
            flag=lambda value: f"-ctk {value} -ctv {value}",
        )


def room_of(plan: LlamaPlan, run: Run) -> tuple[int, ...]:
    """What each card has for buffers: its memory less what else lives on it, in the order of the placement."""
    by_name = {device.name: device for device in plan.devices if device.kind == "gpu"}
    cards = plan.deployment.cards[: run.placement.devices]
    names = [
        card.name if len(plan.deployment.cards) == 1 else f"{card.name} #{index}" for index, card in enumerate(cards)
    ]
    found = []
    for name in names:
        device = by_name[name]
        other = sum(part.best for part in device.components if part.name not in ("weights", "compute_buffer"))
        found.append(device.total_bytes - other)
    return tuple(found)


def most_layers(plan: LlamaPlan) -> int | None:
    """The largest -ngl that fits; None if not even none does."""
    run = plan.run
    if run is None:
        return None
    room = room_of(plan, run)

    def fits(count: int) -> bool:
        changed = replace(run, placement=replace(run.placement, offloaded=count))
        return all(need <= size for need, size in zip(quick_needs(plan.model, changed), room, strict=True))

    return most_that_fits(fits, run.placement.layers + 1)


def fewest_hosted(plan: LlamaPlan) -> int | None:
    """The smallest -ncmoe that fits; None if no number does, or there are no experts."""
    run = plan.run
    if run is None or not any(isinstance(layer.feed_forward, Moe) for layer in plan.model.spec.layers):
        return None
    room, layers = room_of(plan, run), run.placement.layers

    def fits(kept: int) -> bool:
        placement = replace(run.placement, offloaded=layers + 1, experts_on_host=layers - kept)
        changed = replace(run, placement=placement)
        return all(need <= size for need, size in zip(quick_needs(plan.model, changed), room, strict=True))

    kept = most_that_fits(fits, layers)
    return None if kept is None else layers - kept


def _experts(plan: LlamaPlan, run: Run) -> Iterator[Lever]:
    count = fewest_hosted(plan)
    if count is not None and count > run.placement.experts_on_host:
        yield Lever(
            kind=_kind("n-cpu-moe"),
            before=str(run.placement.experts_on_host),
            values=tuple(range(count, run.placement.layers + 1)),
            changes=lambda value: {"n_cpu_moe": value},
            flag=lambda value: f"-ncmoe {value}",
        )


def _layers(plan: LlamaPlan, run: Run) -> Iterator[Lever]:
    count = most_layers(plan)
    if count is not None and count < run.placement.offloaded:
        yield Lever(
            kind=_kind("n-gpu-layers"),
            before=str(run.placement.offloaded),
            values=tuple(range(count, -1, -1)),
            changes=lambda value: {"n_gpu_layers": str(value)},
            flag=lambda value: f"-ngl {value}",
        )


def _context(plan: LlamaPlan, run: Run) -> Iterator[Lever]:
    length, values = run.geometry.n_ctx, []
    while length // 2 >= _SHORTEST * run.geometry.streams:
        length = length // 2
        values.append(length)
    if values:
        yield Lever(
            kind=_kind("ctx-size"),
            before=str(run.geometry.n_ctx),
            values=tuple(values),
            changes=lambda value: {"ctx_size": value},
            flag=lambda value: f"-c {value}",
        )


def _weights(plan: LlamaPlan) -> Iterator[Lever]:
    if plan.model.stored and plan.deployment.quantization is None:
        return
    present = plan.deployment.quantization or "F16"
    later = _MIXES[_MIXES.index(present) + 1 :] if present in _MIXES else _MIXES
    if later:
        yield Lever(
            kind=_kind("quantization"),
            before=present,
            values=later,
            changes=lambda value: {"quantization": value},
            flag=lambda value: f"-q {value}",
        )
