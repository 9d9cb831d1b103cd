"""What the plan of a workload expected where a program failed, beside what the text says, and where they differ."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from planner.contract.lever import Setting
from planner.diagnosis.expectation.comparison import Comparison, compare
from planner.diagnosis.expectation.workload import ServingWorkload, TrainingWorkload, Workload
from planner.diagnosis.expectation.workload_tensors import matching, shapes_instead, tensor_words
from planner.diagnosis.messages.programs import TRADES
from planner.diagnosis.messages.wordings.not_memory import KINDS as NOT_MEMORY
from planner.diagnosis.remedies.catalogue import action, catalogue
from planner.diagnosis.result import Action, Diagnosis, Finding
from planner.diagnosis.rules.large_tensors import LargeTensor
from planner.diagnosis.rules.thresholds import FREE_MARGIN_BYTES
from planner.diagnosis.rules.torch_figures import is_absurd
from planner.levers.advice import Advice
from planner.units import format_size

# ECC takes a sixteenth of GDDR memory (NVIDIA Ampere tuning guides; T4 15.8 to 14.8 GiB): no other card.
_SAME_CARD_PART: Final = 16
_MOST_SETS: Final = 3
# Classes for which the plan's levers are the remedy.
_LEVERS_FOR: Final = ("device_full", "single_huge", "engine_budget", "undecided", "fragmentation_clue")
_NO_DEVICE: Final = ("host_memory", "bug", "not_a_failure")
# What makes weights smaller on a card; all else is of no use when they alone exceed it.
_FOR_WEIGHTS: Final = (
    "quantize_or_split",
    "quantised_base",
    "shard",
    "smaller_weights",
    "device_map",
    "smaller_gguf",
    "ggml_less_offload",
    "ggml_split",
    "offload_pipeline",
    "smaller_diffusion",
    "look_at_card",
    "end_holder",
    "use_free_gpu",
)

_LIVE: Final = ("allocated_with_request_bytes", "peak_allocated_bytes", "allocated_bytes")
_IN_USE: Final = "process_in_use_with_request_bytes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """A plan beside one finding.

    Attributes:
        kind: "serve" or "train"; point: the moment that was compared.
        verdict, shortfall_bytes: the plan's own.
        needed_bytes, card_bytes: what it needs, and the card it is for.
        rows: planned and observed, figure by figure.
        tensors: tensors of this workload that have the size of the request.
        notes: where the difference is, and what the plan means for the reading.
        advice: the plan's levers.
        weights_bytes: the weights on one GPU.
    """

    kind: str
    point: str
    verdict: str
    shortfall_bytes: int
    needed_bytes: int
    card_bytes: int
    rows: tuple[Comparison, ...]
    tensors: tuple[LargeTensor, ...]
    notes: tuple[str, ...]
    advice: Advice
    weights_bytes: int = 0

    def to_json(self) -> dict[str, Any]:
        """The expectation under plain names, without the levers; sizes in bytes."""
        return {
            "kind": self.kind,
            "point": self.point,
            "verdict": self.verdict,
            "shortfall_bytes": self.shortfall_bytes,
            "needed_bytes": self.needed_bytes,
            "card_bytes": self.card_bytes,
            "weights_bytes": self.weights_bytes,
            "figures": [row.to_json() for row in self.rows],
            "tensors": [
                {"name": t.name, "shape": list(t.shape), "element_bytes": t.element_bytes, "size_bytes": t.size_bytes}
                for t in self.tensors
            ],
            "notes": list(self.notes),
        }


def with_plan(diagnosis: Diagnosis, workload: Workload) -> Diagnosis:
    """The diagnosis with the plan's expectation beside each finding, and the plan's levers as its first actions.

    Raises:
        PlannerError: as `plan_serving` and `plan_training`.
    """
    known: dict[tuple[str, ...], Workload] = {}
    findings = []
    for finding in diagnosis.findings:
        own = workload.of(finding.message)
        own = known.setdefault(own.taken, own)
        plan = expect(finding, own)
        findings.append(replace(finding, plan=plan, actions=_actions(finding, plan), headline=_headline(finding, plan)))
    return replace(diagnosis, findings=tuple(findings))


def _headline(finding: Finding, plan: Expectation) -> str:
    """The sentence of the finding; where the weights alone are too large, that."""
    if finding.failure in _NO_DEVICE or finding.message.kind in NOT_MEMORY or plan.weights_bytes <= plan.card_bytes:
        return finding.headline
    return (
        f"The weights alone ({format_size(plan.weights_bytes)}) exceed the card ({format_size(plan.card_bytes)}): "
        f"no batch"
        " or length helps."
    )


def expect(finding: Finding, workload: Workload) -> Expectation:
    """What the plan of `workload` expected at the moment of `finding`.

    Raises:
        PlannerError: as `plan_serving` and `plan_training`.
    """
    point = workload.point(finding.message)
    rows = tuple(compare(finding, workload, point))
    tensors = _tensors(finding, workload)
    notes = (
        *workload.taken,
        *(() if finding.failure in _NO_DEVICE else _weights_notes(workload)),
        *_verdict_notes(finding, workload),
        *(() if finding.failure == "host_memory" else _differences(rows, workload)),
        *_card_notes(rows),
        *_second_copy(rows, workload),
        *_first_step(rows, workload, point.name),
        *_tensor_notes(finding, workload, tensors),
        *_engine_notes(finding, workload),
    )
    return Expectation(
        kind=workload.kind,
        point=point.name,
        verdict=workload.plan.verdict,
        shortfall_bytes=workload.plan.shortfall_bytes,
        needed_bytes=workload.needed_bytes,
        card_bytes=workload.card_bytes,
        rows=rows,
        tensors=tensors,
        notes=notes,
        advice=workload.advice,
        weights_bytes=_weights(workload),
    )


def _weights(workload: Workload) -> int:
    """What the weights take on one GPU at the best estimate."""
    part = workload.component("weights")
    return 0 if part is None else part.best


def _weights_notes(workload: Workload) -> Iterator[str]:
    weights, card = _weights(workload), workload.card_bytes
    if weights > card:
        yield (
            f"the weights alone ({format_size(weights)}) exceed the card ({format_size(card)}): no batch, length or "
            f"cache"
            " setting helps; a smaller weight format, more GPUs or a larger card do"
        )


def _tensors(finding: Finding, workload: Workload) -> tuple[LargeTensor, ...]:
    tried = finding.message.bytes_of("tried_bytes")
    if tried is None or is_absurd(tried):
        return ()
    return matching(tried, finding.message.margin_of("tried_bytes"), workload)


def _verdict_notes(finding: Finding, workload: Workload) -> Iterator[str]:
    if finding.failure == "host_memory":
        weights = workload.component("weights")
        assert weights is not None
        yield (
            f"of host memory the plan knows {format_size(workload.host_bytes)} (offloading, swap, sleep); a checkpoint"
            f" read into RAM takes {format_size(weights.best)} for each process that reads one GPU's share, and the"
            " program, its libraries and data loaders come on top"
        )
    if finding.failure in _NO_DEVICE:
        words = {"fits": "fits", "tight": "is tight"}.get(workload.plan.verdict, "does not fit")
        yield f"the plan of the card {words}; it does not bear on this finding"
        return
    needed, card = format_size(workload.needed_bytes), format_size(workload.card_bytes)
    verdict = workload.plan.verdict
    if verdict == "does_not_fit":
        yield f"the plan does not fit by {format_size(workload.plan.shortfall_bytes)}: this failure was to be expected"
    elif verdict == "tight":
        yield f"the plan is tight: at best estimates {needed} of {card}, at the high end of every term it does not fit"
    else:
        yield (
            f"the plan fits ({needed} of {card}): the workload as stated does not explain this failure; something"
            " else is on the card, or what ran is not what was stated"
        )


def _differences(rows: Iterable[Comparison], workload: Workload) -> Iterator[str]:
    """Where the text leaves the plan's band by more than granularity, the largest difference first."""
    sizes = [row for row in rows if row.unit == "bytes" and row.observed is not None and row.name != "total_bytes"]
    off = [row for row in sizes if abs(row.beyond) >= FREE_MARGIN_BYTES]
    beyond_card = [row for row in off if row.beyond < 0 and row.low > workload.card_bytes]
    live = any(row.name in _LIVE for row in off)
    for row in sorted(off, key=lambda row: -abs(row.beyond))[:_MOST_SETS]:
        if row in beyond_card or (row.name == _IN_USE and (live or row.beyond < 0)):
            continue  # in use is allocated and more: told once, and never at its peak when a request fails
        assert row.observed is not None
        more = row.observed > row.planned
        gap = format_size(abs(int(row.observed - row.planned)))
        reason = catalogue()["differences"].get(row.name, {}).get("more" if more else "less")
        yield (
            f"{row.name}: {gap} {'more' if more else 'less'} than planned ({format_size(int(row.observed))} against"
            f" {format_size(int(row.planned))})" + (f": {reason}" if reason else "")
        )
    if beyond_card:
        yield "the plan's peak alone is larger than the card: no message can show it reached"
    if sizes and not off:
        yield (
            f"no size in the text lies {format_size(FREE_MARGIN_BYTES)} or more outside the plan's band: the plan and"
            " the program agree"
        )


def _card_notes(rows: Iterable[Comparison]) -> Iterator[str]:
    for row in rows:
        if row.name == "total_bytes" and row.observed is not None:
            gap = abs(row.observed - row.planned) - row.margin
            if gap * _SAME_CARD_PART > row.planned:
                yield (
                    f"the text is of another card: it reports {format_size(int(row.observed))}, the plan has"
                    f" {format_size(int(row.planned))}; pass --gpu-memory {int(row.observed)}"
                )


def _second_copy(rows: Iterable[Comparison], workload: Workload) -> Iterator[str]:
    device = workload.device()
    for row in rows:
        if row.name == "other_bytes" and row.observed is not None and device.low <= row.observed <= device.high:
            yield (
                f"what something else holds ({format_size(int(row.observed))}) is the size of this workload itself"
                f" ({format_size(device.low)} to {format_size(device.high)}): look for a second worker on this card"
            )


def _first_step(rows: Iterable[Comparison], workload: Workload, point: str) -> Iterator[str]:
    if not isinstance(workload, TrainingWorkload) or point in ("optimizer step", "loading"):
        return
    states = workload.component("optimizer")
    low = any(row.name in _LIVE and row.beyond < 0 for row in rows)
    if states is not None and low:
        yield f"before the first optimizer step its states ({format_size(states.best)}) do not exist yet"


def _tensor_notes(finding: Finding, workload: Workload, tensors: Iterable[LargeTensor]) -> Iterator[str]:
    named = [f"the request has the size of {tensor_words(tensor)}" for tensor in tensors]
    yield from named
    huge = "single_huge" in (finding.failure, finding.verdict.second)
    tried = finding.message.bytes_of("tried_bytes")
    if named or not huge or tried is None or is_absurd(tried):
        return
    yield "no tensor of the workload as stated has the size of the request; it would be"
    yield from shapes_instead(tried, finding.message.margin_of("tried_bytes"), workload)


def _engine_notes(finding: Finding, workload: Workload) -> Iterator[str]:
    program = finding.message.context.get("engine", finding.message.program)
    trade = TRADES.get(program, "")
    if isinstance(workload, ServingWorkload):
        planned = workload.question.engine
        if trade == "serve" and program != planned.name:
            yield (
                f"the plan is {planned.title}'s, the message {program}'s: the weights compare, pools and fractions only"
                " roughly"
            )
    elif trade == "serve":
        yield f"the plan is of a fine-tune, the message {program}'s: leave --train out to plan the server"


def _actions(finding: Finding, plan: Expectation) -> tuple[Action, ...]:
    """The levers of a plan that does not surely fit, or what to check of one that does, before the general ones."""
    if finding.failure in _NO_DEVICE or finding.message.kind in NOT_MEMORY:
        return finding.actions
    own: list[Action] = []
    rest = finding.actions
    if plan.weights_bytes > plan.card_bytes:
        own += _action("plan_weights", weights=format_size(plan.weights_bytes), card=format_size(plan.card_bytes))
        rest = tuple(one for one in rest if one.name in _FOR_WEIGHTS)
    if plan.verdict == "fits":
        own += _action("plan_fits")
    elif finding.failure in _LEVERS_FOR or finding.verdict.second in _LEVERS_FOR:
        own += _lever_actions(plan.advice, finding)
    # a server that something else crowds out is first a matter of that
    if finding.failure in ("other_process", "fragmentation_clue", "limit_not_capacity"):
        return (*rest, *own)
    # a plan that fits contradicts the usual remedies, but may not know all that ran
    return (*rest[:1], *own, *rest[1:]) if plan.verdict == "fits" else (*own, *rest)


def _lever_actions(advice: Advice, finding: Finding) -> Iterator[Action]:
    program = finding.message.context.get("engine", finding.message.program)
    for one in advice.plans[:_MOST_SETS]:
        flags = " ".join(_spelled(setting, program) for setting in one.settings)
        yield from _action("plan_levers", flags=flags, saves=format_size(one.saves_bytes), cost=one.cost)
    relief = advice.relief
    if advice.plans or relief is None:
        return
    if relief.gpu is not None:
        yield from _action("plan_card", what=f"{relief.gpu.name} ({relief.card_flag})")
    if relief.cards > 1:
        yield from _action("plan_card", what=f"{relief.cards} of this card ({relief.layout_flag})")


def _spelled(setting: Setting, program: str) -> str:
    """A setting as the program that failed writes it; the planner's own flag where its name is not known there."""
    form = catalogue()["spelling"].get(program)
    if form is None:
        return setting.flag
    same = setting.name.replace("-", "_") if form["names_in_underscores"] else None
    name: str | None = form["names"].get(setting.name, same)
    return setting.flag if name is None else str(form["form"].format(name=name, value=setting.after))


def _action(name: str, **words: str) -> tuple[Action, ...]:
    made = action(name, words)
    return () if made is None else (made,)
