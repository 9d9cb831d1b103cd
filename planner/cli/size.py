"""`vram-planner size`: how many GPUs for how many users."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Final

from annotated_types import Ge, Gt, Le

from planner.cli.words.questions import FORMATS, Asking, questioned
from planner.contract.inputs import option
from planner.contract.lengths import Lengths, parse_lengths, write_lengths
from planner.errors import UsageError
from planner.hardware.gpus import find_gpu
from planner.model.load import load_model
from planner.report.printer import Width
from planner.report.size import curve_chart, curve_csv, render_fleet
from planner.serving.curves import CurvePoint, context_curve, user_curve
from planner.serving.fleet import Candidate, Demand, size_fleet
from planner.serving.prices import PRICE, PRICE_FILE, all_prices
from planner.serving.redundancy import Redundancy, parse_redundancy

# assumed where the user names no card: what clouds rent most
_USUAL_CARDS: Final = ("l4", "l40s", "a100-sxm-80gb", "h100-sxm-80gb", "h200-sxm", "b200")
# assumed where no lengths are given
_USUAL_INPUT: Final = Lengths((("all", 1024),))
_USUAL_OUTPUT: Final = Lengths((("all", 256),))
_LISTS: Final = frozenset({"gpu", "tensor_parallel_size"})
LOAD: Final = "Load"
FLEET: Final = "Fleet"


def _share(text: str, spelled: str) -> float:
    """A share such as 30% or 0.3.

    Raises:
        UsageError: neither.
    """
    try:
        return float(text[:-1]) / 100 if text.endswith("%") else float(text)
    except ValueError:
        raise UsageError(f"{spelled} is {text[:20]!r}; expected a share such as 30%", field="growth") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """The user load, and how the fleet that carries it is to be."""

    users: Annotated[int, Ge(0), option("Users at the peak.", panel=LOAD, ours=True, common=True)] = 0
    requests_per_second: Annotated[
        float,
        Ge(0),
        option("Load, instead.", "--requests-per-second", "--rps", panel=LOAD, ours=True, common=True),
    ] = 0.0
    input_len: Annotated[
        Lengths,
        option(
            "600, or p50=600,p95=4000.", panel=LOAD, ours=True, common=True, read=parse_lengths, write=write_lengths
        ),
    ] = _USUAL_INPUT
    output_len: Annotated[
        Lengths,
        option("As --input-len.", panel=LOAD, ours=True, common=True, read=parse_lengths, write=write_lengths),
    ] = _USUAL_OUTPUT
    duty_cycle: Annotated[
        float,
        Gt(0),
        Le(1),
        option("Share of the time that a user has a request running.", panel=LOAD, ours=True, common=True),
    ] = 1.0
    tokens_per_second: Annotated[
        float | None, Gt(0), option("Decode speed each user wants at least.", panel=LOAD, ours=True, common=True)
    ] = None
    time_to_first_token: Annotated[
        float | None, Gt(0), option("Seconds to the first token at most.", panel=LOAD, ours=True, common=True)
    ] = None
    redundancy: Annotated[str, option("0, N+1, N+2, 20% or zones=3.", panel=FLEET, ours=True, common=True)] = "0"
    growth: Annotated[
        float, Ge(0), option("How much the load may grow: 30%.", panel=FLEET, ours=True, common=True, read=_share)
    ] = 0.0
    gpus_per_node: Annotated[
        int, Ge(1), Le(1024), option("GPUs of one machine.", panel=FLEET, ours=True, common=True)
    ] = 8
    price: Annotated[tuple[str, ...], PRICE] = ()
    prices: Annotated[str | None, PRICE_FILE] = None
    curve: Annotated[
        str | None,
        option(
            "context: requests at once by context; gpus: users by GPUs.",
            panel=FLEET,
            ours=True,
            common=True,
            choices=("context", "gpus"),
        ),
    ] = None
    format: Annotated[
        str,
        option("How to print.", panel=FLEET, ours=True, common=True, choices=FORMATS),
    ] = "table"
    wide: Annotated[bool, option("Print all columns, however wide.", panel=FLEET, ours=True)] = False


def size(words: Sequence[str]) -> int:
    """Size a fleet: replicas, GPUs, nodes and what a failure leaves, for a user load. Speeds are derived, not measured.

    --gpu takes several cards; every option of the engine is as for serve. Exit status: 0 some card carries the load,
    1 none does, 2 wrong usage.

    Example: vram-planner size meta-llama/Llama-3.1-8B-Instruct --users 200 --gpu H100 --gpu L40S --input-len
    p50=600,p95=4000 --output-len p50=200,p95=800 --redundancy N+1
    """
    asked = questioned(words, Load, about=size.__doc__ or "", name="size", lists=_LISTS)
    if asked is None:
        return 0
    engine, parsed = asked
    load = parsed.record(Load)
    if not parsed.positional:
        raise UsageError("no MODEL: give a bundled name, a folder, a file or a Hub id", field="model")
    redundancy = parse_redundancy(load.redundancy)
    cards = [find_gpu(name) for name in parsed.given.get("gpu", ()) or _USUAL_CARDS]
    single = {name: value for name, value in parsed.given.items() if name not in _LISTS}
    base = engine.deployment(replace(parsed, given={**single, "gpu": cards[0].id}))
    if getattr(base, "max_model_len", None) == -1:
        raise UsageError("--max-model-len must be a number of tokens here", field="max_model_len")
    prices = all_prices(load.prices, load.price)
    candidates, rejected = size_fleet(
        engine,
        load_model(parsed.positional[0], assume_family=parsed.record(Asking).assume_family),
        base,
        _demand(load, redundancy),
        cards=cards,
        gpus_per_node=load.gpus_per_node,
        sizes=parsed.given.get("tensor_parallel_size", ()),
    )
    if load.curve is not None and load.format == "csv":
        points = [point for candidate in candidates for point in _points(candidate, load.curve)]
        names = ("max_model_len", "concurrency") if load.curve == "context" else ("gpus", "users")
        print(curve_csv(points, at=names[0], value=names[1]))
    else:
        query: dict[str, object] = {
            "model": parsed.positional[0],
            "users": load.users or None,
            "requests_per_second": load.requests_per_second or None,
            "input_len": write_lengths(load.input_len),
            "output_len": write_lengths(load.output_len),
            "duty_cycle": load.duty_cycle,
            "tokens_per_second": load.tokens_per_second,
            "time_to_first_token": load.time_to_first_token,
            "redundancy": load.redundancy,
            "growth": f"{load.growth:.0%}",
            "gpus": [card.name for card in cards],
            "gpus_per_node": load.gpus_per_node,
            "prices": {name or "every card": one.usd_per_hour for name, one in prices.items()},
            "engine": engine.name,
            "engine_version": base.engine_version,
        }
        width: Width = None if load.wide else "terminal"
        charts = [_chart(candidate, load.curve) for candidate in candidates] if load.curve else []
        print(render_fleet(candidates, rejected, charts, prices=prices, query=query, format=load.format, width=width))
    return 0 if candidates else 1


def _demand(load: Load, redundancy: Redundancy) -> Demand:
    return Demand(
        users=load.users,
        requests_per_second=load.requests_per_second,
        input_lengths=load.input_len,
        output_lengths=load.output_len,
        duty_cycle=load.duty_cycle,
        tokens_per_second=load.tokens_per_second,
        time_to_first_token=load.time_to_first_token,
        redundancy=redundancy,
        growth=load.growth,
    )


def _points(candidate: Candidate, curve: str) -> list[CurvePoint]:
    return list(context_curve(candidate) if curve == "context" else user_curve(candidate))


def _chart(candidate: Candidate, curve: str) -> str:
    what = "requests at once by max_model_len" if curve == "context" else "users by GPUs"
    title = f"{what}: {candidate.tensor_parallel_size} x {candidate.gpu.name} a replica"
    return curve_chart(_points(candidate, curve), title=title)
