"""Planned and observed, figure by figure: what of a message's figures a plan has a number for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from planner.diagnosis.expectation.workload import Band, Point, ServingWorkload, TrainingWorkload, Workload, exactly
from planner.diagnosis.result import Finding, Message
from planner.diagnosis.rules.torch_figures import TorchFigures, is_absurd, torch_figures
from planner.diagnosis.sizes import is_sane, read_size


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One figure: the plan's number with its band, and the text's.

    Attributes:
        unit: "bytes", "tokens", "blocks" or "fraction".
        observed: None where the text does not say.
        margin: how far off the print may be, in the same unit.
        what: what is compared, in a phrase.
    """

    name: str
    unit: str
    planned: int | float
    low: int | float
    high: int | float
    observed: int | float | None
    margin: int = 0
    what: str = ""

    @property
    def difference(self) -> int | float | None:
        """Observed less planned."""
        return None if self.observed is None else round(self.observed - self.planned, 6)

    @property
    def beyond(self) -> int | float:
        """By how much the observed value lies above (or, negative, below) the band; 0 within it or unknown."""
        if self.observed is None:
            return 0
        return max(0, self.observed - self.margin - self.high) + min(0, self.observed + self.margin - self.low)

    def to_json(self) -> dict[str, Any]:
        """The row under plain names; numbers in `unit`."""
        return {
            "name": self.name,
            "unit": self.unit,
            "planned": self.planned,
            "planned_low": self.low,
            "planned_high": self.high,
            "observed": self.observed,
            "difference": self.difference,
            "within": None if self.observed is None else self.beyond == 0,
            "what": self.what,
        }


def compare(finding: Finding, workload: Workload, point: Point) -> Iterator[Comparison]:
    """The rows of one finding; those of which the text says nothing only where a reader needs the plan's number."""
    message = finding.message
    if finding.failure == "host_memory":
        yield _weights(message, workload)
        yield from _host(message, workload)
        return
    total = _sane(message, "total_bytes")
    if total is not None:
        yield _size("total_bytes", exactly(workload.card_bytes), total, _margin(message, "total_bytes"), "the card")
    yield _weights(message, workload)
    if message.program.startswith("pytorch"):
        yield from _torch(message, torch_figures(message), workload, point)
    elif message.program in ("memory summary", "memory snapshot"):
        yield from _states(message, workload, point)
    elif message.program == "nvidia-smi":
        yield _size(
            "in_use_bytes",
            _with_others(workload),
            _sane(message, "in_use_bytes"),
            _margin(message, "in_use_bytes"),
            "all processes on the card, this workload at its fullest",
        )
    if isinstance(workload, ServingWorkload):
        yield from _engine(finding, workload)


def _weights(message: Message, workload: Workload) -> Comparison:
    part = workload.component("weights")
    assert part is not None
    observed, margin = _printed_gib(message, "model_loading_gib")
    return _size(
        "weights_bytes", Band(low=part.low, best=part.best, high=part.high), observed, margin, "weights on one GPU"
    )


def _torch(message: Message, r: TorchFigures, workload: Workload, point: Point) -> Iterator[Comparison]:
    allocated, tried = r.allocated, 0 if r.tried is None or is_absurd(r.tried) else r.tried
    margin = _margin(message, "allocated_bytes") + _margin(message, "tried_bytes")
    yield _size(
        "allocated_with_request_bytes",
        point.allocated,
        None if allocated is None else allocated + tried,
        margin,
        f"live tensors with the request, against the peak of: {point.name}",
    )
    slack = workload.component("fragmentation")
    if r.slack is not None and slack is not None and isinstance(workload, TrainingWorkload):
        yield _size(
            "reserved_unallocated_bytes",
            Band(low=0, best=slack.best, high=slack.high),
            r.slack,
            _margin(message, "reserved_unallocated_bytes"),
            "the allocator's slack",
        )
    context = workload.component("context")
    if r.other is not None:
        stated = workload.stated_other_bytes
        own = context if context is not None and r.other_includes_context else None
        planned = Band(
            low=stated,
            best=stated + (own.best if own else 0),
            high=stated + (own.high if own else 0),
        )
        margin = sum(_margin(message, name) for name in message.figures if name != "tried_bytes")
        what = "neither free nor this allocator's: others" + (", and this process's context" if own else "")
        yield _size("other_bytes", planned, r.other, margin, what)
    if r.in_use is not None:
        margin = _margin(message, "process_in_use_bytes") + _margin(message, "tried_bytes")
        what = "this process on the device with the request, against its peak"
        yield _size("process_in_use_with_request_bytes", workload.device(), r.in_use + tried, margin, what)


def _states(message: Message, workload: Workload, point: Point) -> Iterator[Comparison]:
    name = "peak_allocated_bytes" if "peak_allocated_bytes" in message.figures else "allocated_bytes"
    tried = 0 if name.startswith("peak") else _sane(message, "tried_bytes") or 0
    observed = _sane(message, name)
    if observed is not None:
        what = f"live tensors, against the peak of: {point.name}"
        yield _size(name, point.allocated, observed + tried, _margin(message, name), what)


def _engine(finding: Finding, workload: ServingWorkload) -> Iterator[Comparison]:
    """An engine's own numbers, and those that follow from them by inversion, beside the plan's."""
    message, plan = finding.message, workload.plan
    requested = _sane(message, "requested_bytes")
    if requested is not None:
        what = "fraction x capacity"
        yield _size(
            "requested_bytes",
            exactly(plan.budget.requested_bytes),
            requested,
            _margin(message, "requested_bytes"),
            what,
        )
        free = workload.card_bytes - plan.outside.context_bytes - plan.outside.other_bytes
        context = workload.component("context")
        spread = (context.high - context.best, context.best - context.low) if context else (0, 0)
        planned = Band(low=free - spread[0], best=free, high=free + spread[1])
        what = "free when the engine starts"
        yield _size("free_at_start_bytes", planned, _sane(message, "free_bytes"), _margin(message, "free_bytes"), what)
    needed = _sane(message, "needed_kv_bytes")
    if needed is not None:
        what = f"cache of one request of {plan.resolved.max_model_len:,} tokens"
        yield _size("needed_kv_bytes", exactly(plan.needed_bytes), needed, _margin(message, "needed_kv_bytes"), what)
    observed, margin = _sane(message, "available_kv_bytes"), _margin(message, "available_kv_bytes")
    if observed is None:
        observed, margin = _printed_gib(message, "kv_cache_memory_gib")
    cache = Band(low=plan.kv_cache_low_bytes, best=plan.kv_cache_bytes, high=plan.kv_cache_high_bytes)
    yield _size("available_kv_bytes", cache, observed, margin, "what is left for the KV cache")
    yield from _counts(finding, workload)


def _counts(finding: Finding, workload: ServingWorkload) -> Iterator[Comparison]:
    message, plan, derived = finding.message, workload.plan, finding.verdict.derived
    tokens = message.bytes_of("kv_tokens")
    if tokens is not None:
        yield _count("kv_tokens", "tokens", plan.kv_tokens, tokens, "tokens that the KV cache holds")
    blocks = message.context.get("gpu_blocks")
    if blocks is not None:
        yield _count("gpu_blocks", "blocks", plan.num_blocks, int(blocks), "blocks of the KV cache")
    length = derived.get("fitting_max_model_len")
    if length is not None:
        what = "the longest context that fits: from the text's numbers, and of the plan"
        yield _count("fitting_max_model_len", "tokens", plan.longest, length, what)
    fraction = derived.get("fitting_gpu_memory_utilization")
    if fraction is not None:
        lever = _fraction_of(workload)
        what = "the fraction that would do: from the text's numbers, and the plan's"
        what += " lever" if lever is not None else " as asked, of which no other is better"
        planned = plan.utilization if lever is None else lever
        yield _count("fitting_gpu_memory_utilization", "fraction", planned, fraction, what)


def _fraction_of(workload: ServingWorkload) -> float | None:
    for effect in workload.advice.levers:
        if effect.setting.name == "gpu-memory-utilization":
            return float(effect.setting.after)
    return None


def _host(message: Message, workload: Workload) -> Iterator[Comparison]:
    for name in ("needed_host_bytes", "swap_space_bytes", "host_resident_bytes", "host_used_bytes"):
        observed = _sane(message, name)
        if observed is not None:
            break
    else:
        name, observed = "host_bytes", None
    what = "host memory that the plan knows of, which is not all"
    planned = exactly(workload.host_bytes)
    yield _size(name, planned, observed, 0 if observed is None else _margin(message, name), what)


def _with_others(workload: Workload) -> Band:
    device, others = workload.device(), workload.stated_other_bytes
    return Band(low=device.low + others, best=device.best + others, high=device.high + others)


def _printed_gib(message: Message, name: str) -> tuple[int | None, int]:
    """A number of GiB in the lines around, in bytes, with the margin of its print."""
    text = message.context.get(name)
    figure = read_size(f"{text} GiB") if text else None
    return (figure.value, figure.margin_bytes) if figure and isinstance(figure.value, int) else (None, 0)


def _sane(message: Message, name: str) -> int | None:
    value = message.bytes_of(name)
    return value if is_sane(value) else None


def _margin(message: Message, name: str) -> int:
    return message.margin_of(name)


def _size(name: str, planned: Band, observed: int | None, margin: int, what: str) -> Comparison:
    return Comparison(
        name=name,
        unit="bytes",
        planned=planned.best,
        low=planned.low,
        high=planned.high,
        observed=observed,
        margin=margin,
        what=what,
    )


def _count(name: str, unit: str, planned: int | float, observed: int | float, what: str) -> Comparison:
    return Comparison(name=name, unit=unit, planned=planned, low=planned, high=planned, observed=observed, what=what)
