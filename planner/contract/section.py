"""What an engine tells of its own plan, for reports: plain rows and lines, no layout."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from planner.contract.component import SIDES, Component, total
from planner.contract.inputs import echo
from planner.contract.plan import Device, ServingPlan
from planner.units import format_exact, format_size, gib


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A line of a breakdown; sizes in bytes, None where a column stays empty.

    Args:
        sign: "-" for a term that is taken off, "=" for what is left, "" for a heading.
    """

    label: str
    sign: str = ""
    low: int | None = None
    best: int | None
    high: int | None = None
    evidence: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Breakdown:
    """One device's rows under a title ("" where there is only one)."""

    title: str
    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """An engine's account of its plan.

    Args:
        headline: what follows verdict, model, card and engine in the first line.
        breakdowns: one for each distinct device.
        lines: the cache in the engine's words.
        arithmetic: every formula, as on paper.
        inputs: every input after defaults, under the engine's own names.
        extra: keys of the JSON object that only this engine has.
    """

    headline: str
    breakdowns: tuple[Breakdown, ...]
    lines: tuple[str, ...]
    arithmetic: tuple[str, ...]
    inputs: Mapping[str, object]
    extra: Mapping[str, object] = field(default_factory=dict)


LABELS: dict[str, str] = {
    "weights": "weights",
    "lora_adapters": "LoRA",
    "activation_peak": "activations",
    "non_torch": "non-torch",
    "persistent_buffers": "runner buffers",
    "unvalidated_version": "version's band",
    "kv_cache": "KV cache",
    "context": "context",
    "nccl_outside": "communicators",
    "cuda_graphs": "graphs",
    "post_profile": "warm-up",
    "other_processes": "others",
}
"""What people call a component; any other is called by its name."""


def label_of(name: str) -> str:
    """What people call a component."""
    return LABELS.get(name, name.replace("_", " "))


def default_section(plan: ServingPlan, **settings: Any) -> Section:
    """The account of a plan whose engine has nothing of its own to tell; `settings` replace parts of it."""
    device, cache = plan.devices[0], plan.cache
    holds = f"{gib(cache.reserved_bytes)} GiB for the cache"
    if cache.tokens is not None:
        holds += f" = {cache.tokens:,} tokens = {cache.max_concurrency:.2f} requests of {plan.max_model_len:,} tokens"
    if plan.verdict == "does_not_fit":
        holds = f"short by {format_size(plan.shortfall_bytes)} on {device.name}"
    parts: dict[str, Any] = {
        "headline": holds,
        "breakdowns": tuple(
            Breakdown(title=one.name if len(plan.devices) > 1 else "", rows=tuple(device_rows(one)))
            for one in plan.devices
        ),
        "lines": (
            f"a sequence: {format_exact(cache.bytes_per_token)} per token, {format_exact(cache.bytes_per_sequence)} at"
            f" {plan.max_model_len:,} tokens",
            f"longest context at {plan.workload.concurrency} request{'s' if plan.workload.concurrency != 1 else ''}:"
            f" {cache.longest:,} tokens",
        ),
        "arithmetic": tuple(line for one in plan.devices for part in one.components for line in on_paper(part)),
        "inputs": echo(plan.deployment),
    }
    return Section(**parts | settings)


def device_rows(device: Device) -> Iterator[Row]:
    """What a device has, what is taken off, and what is left; of one whose size is not known what it holds."""
    if device.total_bytes:
        yield Row(label="total", best=device.total_bytes)
    for part in device.components:
        yield component_row(part)
    if device.cache_bytes and not any(part.name == "kv_cache" for part in device.components):
        yield Row(label="KV cache", sign="-", best=device.cache_bytes)
    if not device.total_bytes:
        return
    left = {side: device.total_bytes - device.cache_bytes - total(device.components, side) for side in SIDES}
    yield Row(label="left", sign="=", low=left["high"], best=device.free_bytes, high=left["low"])


def component_row(part: Component) -> Row:
    """A component as a line that is taken off."""
    return Row(
        label=label_of(part.name), sign="-", low=part.low, best=part.best, high=part.high, evidence=part.evidence
    )


def on_paper(part: Component) -> Iterator[str]:
    """A component as on paper: result, formula, source."""
    yield f"{part.name} = {format_exact(part.best)} [{part.evidence}]"
    yield f"    {part.formula}"
    yield f"    source: {part.source}"


def component_json(part: Component) -> dict[str, object]:
    """A component as JSON values."""
    return {
        "name": part.name,
        "low": part.low,
        "best": part.best,
        "high": part.high,
        "evidence": part.evidence,
        "formula": part.formula,
        "source": part.source,
    }
