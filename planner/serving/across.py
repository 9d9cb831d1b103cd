"""One question asked of several engines: the same model, card and load, and which terms make them differ.

    tokens = cache bytes / bytes of a token;  cache = card - what the engine holds beside it - what it leaves free

so a difference in tokens is one of bytes held, of bytes left free, or of what a token costs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from planner.contract.engine import Engine
from planner.contract.plan import ServingPlan
from planner.contract.workload import Workload
from planner.errors import PlannerError
from planner.model.model import Model
from planner.units import MIB, format_size

# an engine's spelling of a cache type that others spell differently; the first that it takes
_SPELLINGS: Final = {"fp8": ("fp8", "fp8_e4m3", "q8_0"), "8bit": ("fp8", "fp8_e4m3", "q8_0")}
_WEIGHTS: Final = ("weights", "draft_weights", "loading_remainder")
_STEP: Final = ("activation_peak", "attention_workspace", "cuda_graphs", "prefill_graphs", "compute_buffer")
# a difference below this is not worth a sentence
_SMALLEST: Final = 64 * MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """What one engine makes of the question; sizes in bytes on the fullest card.

    Args:
        plan: None where the engine refuses; `reason` then says why.
        weights_bytes, step_bytes, other_bytes: what it holds beside the cache: weights; activations, workspaces and
            graphs; everything else.
        cache_bytes, free_bytes: its cache there, and what it leaves free.
        elsewhere_bytes: cache on other cards and in RAM, where layers are shared out.
        bytes_per_token: of the cache, padding included.
        concurrency: requests at once, of the length that admission is planned at.
    """

    engine: Engine
    plan: ServingPlan | None
    reason: str = ""
    weights_bytes: int = 0
    step_bytes: int = 0
    other_bytes: int = 0
    cache_bytes: int = 0
    free_bytes: int = 0
    elsewhere_bytes: int = 0
    bytes_per_token: int = 0
    tokens: int = 0
    concurrency: int = 0

    @property
    def verdict(self) -> str:
        """The plan's verdict."""
        return self.plan.verdict if self.plan is not None else "refused"


def across(
    model: Model, engines: Sequence[Engine], card: dict[str, Any], axes: dict[str, Any], workload: Workload
) -> tuple[Account, ...]:
    """The account of every engine, in the order asked.

    Args:
        card: fields of the card that every deployment has.
        axes: values by the neutral names of `Axes` ("quantization", "cache", "ways", "length"); None leaves it out.
    """
    return tuple(_account(model, engine, card, axes, workload) for engine in engines)


def _account(model: Model, engine: Engine, card: dict[str, Any], axes: dict[str, Any], workload: Workload) -> Account:
    asked = {name: value for name, value in axes.items() if value is not None}
    missing = [name for name in asked if not getattr(engine.axes, name)]
    if missing:
        return Account(engine=engine, plan=None, reason=f"{engine.title} has no {', '.join(missing)} to set")
    reason = ""
    for cache in _SPELLINGS.get(str(asked.get("cache")), (asked.get("cache"),)):
        changes = {getattr(engine.axes, name): cache if name == "cache" else value for name, value in asked.items()}
        changes |= _slots(engine, asked.get("length"), workload)
        try:
            return _figures(engine, engine.plan(model, engine.Deployment(**card, **changes), workload))
        except PlannerError as error:
            reason = reason or str(error)
    return Account(engine=engine, plan=None, reason=reason)


def _slots(engine: Engine, length: Any, workload: Workload) -> dict[str, Any]:
    """The asked requests as slots, where the engine holds as many as its command says."""
    axes = engine.axes
    if not axes.slots or length is None or workload.concurrency < 2:
        return {}
    found: dict[str, Any] = {axes.slots: workload.concurrency}
    return found | ({axes.length: length * workload.concurrency} if axes.length_of_all else {})


def _figures(engine: Engine, plan: ServingPlan) -> Account:
    device, cache = plan.devices[0], plan.cache
    parts = [part for part in device.components if part.name != "kv_cache"]
    weights = sum(part.best for part in parts if part.name in _WEIGHTS)
    step = sum(part.best for part in parts if part.name in _STEP)
    held = sum(part.best for part in parts)
    admission = workload_point(plan)
    return Account(
        engine=engine,
        plan=plan,
        weights_bytes=weights,
        step_bytes=step,
        other_bytes=held - weights - step,
        cache_bytes=device.cache_bytes,
        free_bytes=device.total_bytes - held - device.cache_bytes,
        elsewhere_bytes=cache.reserved_bytes - device.cache_bytes,
        bytes_per_token=cache.reserved_bytes // cache.tokens if cache.tokens else 0,
        tokens=cache.tokens or 0,
        concurrency=admission,
    )


def workload_point(plan: ServingPlan) -> int:
    """Requests at once of the admission length."""
    asked = plan.workload.admission
    name = asked[0] if asked is not None else "max_model_len"
    return next((point.concurrency for point in plan.points if point.at == name), 0)


def why(accounts: Sequence[Account]) -> Iterator[str]:
    """Why each engine holds another number of tokens than the first that could be planned."""
    planned = [account for account in accounts if account.plan is not None]
    for account in accounts:
        if account.plan is None:
            yield f"{account.engine.title}: {account.reason}"
    if len(planned) < 2:
        return
    first = planned[0]
    for other in planned[1:]:
        yield _sentence(first, other)


def _sentence(first: Account, other: Account) -> str:
    title, base = other.engine.title, first.engine.title
    if not other.tokens or not first.tokens:
        empty = title if not other.tokens else base
        return f"{title}: no comparison of tokens, {empty} holds none"
    ratio = other.tokens / first.tokens
    said = f"{title} holds {ratio:.2f} x the tokens of {base}"
    reasons = [
        f"{label} {'+' if change > 0 else '-'}{format_size(abs(change))}"
        for label, change in _changes(first, other)
        if abs(change) >= _SMALLEST
    ]
    difference = other.cache_bytes - first.cache_bytes
    if abs(difference) >= _SMALLEST:
        more = "more" if difference > 0 else "less"
        said += f": {format_size(abs(difference))} {more} cache" + (f" ({'; '.join(reasons)})" if reasons else "")
    if other.elsewhere_bytes >= _SMALLEST:
        said += f"; {format_size(other.elsewhere_bytes)} of its cache lie in RAM or on other cards"
    if other.engine.axes.slots:
        said += "; its cache is what the command's slots take, never what is left"
    if abs(other.bytes_per_token - first.bytes_per_token) > first.bytes_per_token // 100:
        said += f"; a token takes {other.bytes_per_token:,} B instead of {first.bytes_per_token:,} B"
    return said


def _changes(first: Account, other: Account) -> Iterable[tuple[str, int]]:
    """What the other gains for its cache by each term, the largest first."""
    found = [
        ("left free", first.free_bytes - other.free_bytes),
        ("weights", first.weights_bytes - other.weights_bytes),
        ("activations and graphs", first.step_bytes - other.step_bytes),
        ("context, buffers and the rest", first.other_bytes - other.other_bytes),
    ]
    return sorted(found, key=lambda entry: -abs(entry[1]))
