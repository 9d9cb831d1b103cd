"""Picks as a table, JSON, CSV or Markdown."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from planner.contract.plan import VERDICTS
from planner.errors import PlannerError
from planner.memory.quality.evidence import band_rows, kept_in_short, sentences
from planner.report.printer import Width, command, printed
from planner.report.rows import JSON_SCHEMA, Column, render_rows
from planner.serving.pick.candidates import Pick
from planner.serving.pick.fine_tunes import FineTunePick
from planner.serving.prices import Prices, price_of, usd_per_million
from planner.serving.throughput import decode_step
from planner.units import gib

_SIDES = ("low", "best", "high")
_LEGEND = "published (least to median to most; tasks: share of the score that is kept):"


def render_picks(
    picks: Sequence[Pick],
    *,
    prices: Prices,
    notes: Sequence[str],
    query: Mapping[str, object],
    format: str,
    width: Width,
) -> str:
    """Cards, counts and formats that hold a model."""
    rows = [_row(pick, prices) for pick in picks]
    return _rendered(
        rows,
        _CARD_COLUMNS,
        picks,
        notes=notes,
        query=query,
        format=format,
        width=width,
        empty="no card, count and format holds it",
    )


def render_models(
    picks: Sequence[Pick], *, total: int, query: Mapping[str, object], format: str, width: Width, why_none: str = ""
) -> str:
    """Models that run on a card; where none does, why."""
    rows = [{"model": pick.plan.model.id, "parameters": pick.plan.model.parameters, **_row(pick, {})} for pick in picks]
    notes = ["sorted by parameters, which is no measure of quality"]
    if total > len(picks):
        notes.append(f"{len(picks)} of {total:,} shown: --limit, or --format json for all")
    if why_none:
        notes.append(why_none)
    return _rendered(
        rows,
        _MODEL_COLUMNS,
        picks,
        notes=notes,
        query=query,
        format=format,
        width=width,
        empty=f"no bundled model runs there{f': {why_none}' if why_none else ''}",
    )


def render_runs(
    picks: Sequence[FineTunePick], *, prices: Prices, query: Mapping[str, object], format: str, width: Width
) -> str:
    """Cards that hold a fine-tune."""
    rows: list[dict[str, object]] = []
    for pick in picks:
        price = price_of(prices, pick.gpu.id)
        rows.append(
            {
                "gpu": pick.gpu.name,
                "gpu_id": pick.gpu.id,
                "gpus": pick.cards,
                "total_bytes": pick.total_bytes,
                "needed_bytes": pick.plan.needed_best,
                "sharding": pick.plan.recipe.sharding,
                "verdict": pick.plan.verdict,
                "usd_per_hour": pick.usd_per_hour,
                "price": None if price is None else price.in_words(pick.cards),
            }
        )
    columns = [
        *_CARD_COLUMNS[:3],
        Column(field="needed_bytes", heading="needs GiB each", right=True, text=_gib),
        Column(field="sharding", heading="sharding", importance=2),
        _VERDICT,
        _PRICE,
    ]
    return _rendered(
        rows, columns, (), notes=[], query=query, format=format, width=width, empty="no card and count holds this run"
    )


def _rendered(
    rows: list[dict[str, object]],
    columns: Sequence[Column],
    picks: Sequence[Pick],
    *,
    notes: Sequence[str],
    query: Mapping[str, object],
    format: str,
    width: Width,
    empty: str,
) -> str:
    if format == "json":
        document = {"schema": JSON_SCHEMA, "query": dict(query), "rows": rows, "notes": list(notes)}
        return json.dumps(document, indent=1, ensure_ascii=False)
    shown = [column for column in columns if column not in (_PRICE, _COST) or any(row.get("price") for row in rows)]
    text = render_rows(rows, columns=shown, format=format, query=query, width=width, title="Pick")
    if format in ("csv", "html"):
        return text
    if not rows:
        return empty
    published = dict.fromkeys(
        sentences(pick.quantization, "weights", pick.plan.model.parameters)
        for pick in picks
        if pick.quantization is not None and len({one.plan.model.id for one in picks}) == 1
    )
    legend = [_LEGEND, *(f"  {one}" for one in published)] if published else []
    blocks = [legend, *([f"note: {note}"] for note in notes)]
    parts = [text, *(printed(block, width) for block in blocks if block)]
    if picks:
        parts.append(command(picks[0].command, width))
    return "\n\n".join(parts)


def _row(pick: Pick, prices: Prices) -> dict[str, object]:
    plan, price = pick.plan, price_of(prices, pick.gpu.id)
    speeds = _speeds(pick)
    return {
        "gpu": pick.gpu.name,
        "gpu_id": pick.gpu.id,
        "gpus": pick.cards,
        "total_bytes": pick.total_bytes,
        "format": pick.quantization or "as stored",
        "weight_bits": round(pick.weight_bits, 2),
        "quality": kept_in_short(pick.quantization, "weights", plan.model.parameters),
        "quality_bands": band_rows(pick.quantization, "weights", plan.model.parameters),
        "evidence_enough": pick.proven,
        "max_model_len": plan.max_model_len,
        "max_model_len_that_fits": plan.cache.longest,
        "concurrency": int(plan.cache.max_concurrency),
        **{f"tokens_per_second_{side}": speeds.get(side) for side in _SIDES},
        "host_bytes": plan.load.host_bytes,
        "verdict": plan.verdict,
        "usd_per_hour": pick.usd_per_hour,
        **{f"usd_per_million_{side}": cost for side, cost in _costs(pick).items()},
        "price": None if price is None else price.in_words(pick.cards),
        "command": pick.command,
    }


def _speeds(pick: Pick) -> dict[str, float]:
    """Tokens a second of a single request at the asked length; empty where the table has no rates of the card."""
    try:
        step = decode_step(pick.plan, sequences=1, context=pick.plan.max_model_len // 2)
    except (PlannerError, AttributeError):
        return {}
    return {side: round(1 / step.at(side), 1) for side in _SIDES}


def _costs(pick: Pick) -> dict[str, float | None]:
    """Dollars of a million output tokens with all requests running; None without a price or a speed."""
    plan, running = pick.plan, max(1, int(pick.plan.cache.max_concurrency))
    if pick.usd_per_hour is None:
        return dict.fromkeys(_SIDES)
    try:
        step = decode_step(plan, sequences=running, context=plan.max_model_len // 2)
    except PlannerError:
        return dict.fromkeys(_SIDES)
    return {side: round(usd_per_million(pick.usd_per_hour, running / step.at(side)), 4) for side in _SIDES}


def _gib(value: object) -> str:
    return gib(value) if isinstance(value, int) else "-"


def _card(value: object) -> str:
    return str(value).removeprefix("NVIDIA ").removeprefix("GeForce ")


def _billions(value: object) -> str:
    return f"{value / 1e9:.1f} B" if isinstance(value, int) else "-"


def _speed(value: object) -> str:
    return f"{value:.0f}" if isinstance(value, float) else "-"


def _usd(value: object) -> str:
    return f"{value:.2f}" if isinstance(value, float) else "-"


def _verdict(value: object) -> str:
    return VERDICTS[str(value)]


_VERDICT = Column(field="verdict", heading="verdict", text=_verdict)
_PRICE = Column(field="price", heading="price")
_COST = Column(field="usd_per_million_best", heading="$/M tok", right=True, text=_usd, importance=1)
_CARD_COLUMNS = (
    Column(field="gpu", heading="card", text=_card),
    Column(field="gpus", heading="GPUs", right=True),
    Column(field="total_bytes", heading="GiB", right=True, text=_gib, importance=5),
    Column(field="format", heading="format"),
    Column(field="quality", heading="kept", importance=4),
    Column(field="max_model_len_that_fits", heading="context", right=True, importance=2),
    Column(field="concurrency", heading="at once", right=True),
    Column(field="tokens_per_second_best", heading="tok/s", right=True, text=_speed, importance=3),
    _VERDICT,
    _COST,
    _PRICE,
)
_MODEL_COLUMNS = (
    Column(field="model", heading="model"),
    Column(field="parameters", heading="size", right=True, text=_billions),
    *_CARD_COLUMNS[3:-2],
)
