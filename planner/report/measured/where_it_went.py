"""Why a cache is as small as it is: where a card's memory went, line by line, and what would give some back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from planner.contract.lever import Effect
from planner.contract.plan import ServingPlan
from planner.report.printer import Heading, printed, table
from planner.units import gib

_MOST_LEVERS = 10


def shares(plan: ServingPlan, measured: Mapping[str, float]) -> list[dict[str, object]]:
    """Each share of the first card, in bytes as planned, in GiB as the log prints it where it does."""
    device = plan.devices[0]
    rows: list[dict[str, object]] = [
        {"share": part.name, "planned_bytes": part.best, "printed_gib": _printed(part.name, measured)}
        for part in device.components
    ]
    rows.append({"share": "kv_cache", "planned_bytes": device.cache_bytes, "printed_gib": measured.get("kv_cache_gib")})
    rows.append({"share": "left free", "planned_bytes": device.free_bytes, "printed_gib": None})
    return rows


def gives_back(effects: Sequence[Effect]) -> list[dict[str, object]]:
    """The levers that leave most to the cache, each alone, the largest first."""
    most = sorted((one for one in effects if one.saves_bytes > 0), key=lambda one: -one.saves_bytes)[:_MOST_LEVERS]
    return [
        {"flag": one.setting.flag, "bytes": one.saves_bytes, "cost": one.setting.kind.cost, "verdict": one.verdict}
        for one in most
    ]


def where_it_went(plan: ServingPlan, measured: Mapping[str, float], effects: Sequence[Effect]) -> list[str]:
    """Both tables for people."""
    device = plan.devices[0]
    rows = [
        (str(row["share"]).replace("_", " "), gib(int(str(row["planned_bytes"]))), _text(row["printed_gib"]))
        for row in shares(plan, measured)
    ]
    columns = (
        Heading(title=f"of {gib(device.total_bytes)} GiB on {device.name}"),
        Heading(title="planned", right=True),
        Heading(title="printed", right=True),
    )
    lines = ["where the card went, in GiB per GPU:", table(rows, columns)]
    back = [(str(row["flag"]), gib(int(str(row["bytes"]))), str(row["cost"])) for row in gives_back(effects)]
    if back:
        headings = (
            Heading(title="what would give some back"),
            Heading(title="GiB per GPU", right=True),
            Heading(title="costs"),
        )
        lines += ["", table(back, headings)]
    return [printed(lines)]


def _printed(name: str, measured: Mapping[str, float]) -> float | None:
    return measured.get(f"{name}_gib", measured.get(f"{name.removesuffix('s')}_gib"))


def _text(value: object) -> str:
    return f"{value:.2f}" if isinstance(value, float) else ""
