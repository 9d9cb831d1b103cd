"""A fleet for a user load: a table, JSON, CSV or Markdown, and capacity curves as CSV and as bars."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from planner.contract.engine import command_line
from planner.report.printer import Width, command, printed
from planner.report.rows import JSON_SCHEMA, Column, Format, render_rows
from planner.serving.curves import CurvePoint
from planner.serving.fleet import Candidate, Rejected
from planner.serving.prices import Prices, price_of, unused_notes

_HOURS_A_DAY: Final = 24
_BAR: Final = 48
_PRICED: Final = 3  # columns that need a price
DERIVED: Final = (
    "speeds are derived by roofline (bytes read over bandwidth, operations over peak), slow to fast side of a measured"
    " band: not a benchmark"
)


def _usd(value: object) -> str:
    return f"{value:,.2f}" if isinstance(value, float) else "-"


def _seconds(value: object) -> str:
    return f"{value:.2f} s" if isinstance(value, float) else "-"


def _card(value: object) -> str:
    return str(value).removeprefix("NVIDIA ").removeprefix("GeForce ")


COLUMNS: Final = (
    Column(field="gpu", heading="card", text=_card),
    Column(field="tensor_parallel_size", heading="tp", right=True),
    Column(field="pipeline_parallel_size", heading="pp", right=True, importance=9),
    Column(field="users_per_replica", heading="users", right=True, importance=1),
    Column(field="users_by_memory", heading="by memory", right=True, importance=6),
    Column(field="users_by_throughput", heading="by speed", right=True, importance=6),
    Column(field="binding", heading="bound by", importance=2),
    Column(field="replicas", heading="replicas", right=True, importance=4),
    Column(field="gpus", heading="GPUs", right=True),
    Column(field="total_gpus", heading="with spares", right=True, importance=5),
    Column(field="nodes", heading="nodes", right=True, importance=7),
    Column(field="users_after_failure", heading="after a failure", right=True, importance=8),
    Column(field="tokens_per_second_per_user", heading="tok/s a user"),
    Column(field="time_to_first_token_best", heading="first token", right=True, text=_seconds),
    Column(field="responses_per_day_best", heading="responses/day", right=True, importance=6),
    Column(field="cost_per_day", heading="$/day", right=True, text=_usd),
    Column(field="cost_per_million_output_tokens", heading="$/M tok", right=True, text=_usd, importance=2),
    Column(field="price", heading="price", importance=3),
)


def fleet_row(candidate: Candidate, prices: Prices) -> dict[str, object]:
    """One candidate as a row: plain values, rates a second, cost in the currency of the price."""
    price = price_of(prices, candidate.gpu.id)
    speeds = {side: 1 / candidate.step.at(side) for side in ("low", "best", "high")}
    cost = None if price is None else round(price.usd_per_hour * candidate.total_gpus * _HOURS_A_DAY, 2)
    tokens = {side: candidate.responses_per_day(side) * candidate.output_tokens for side in ("low", "best", "high")}
    return {
        "gpu": candidate.gpu.name,
        "tensor_parallel_size": candidate.tensor_parallel_size,
        "pipeline_parallel_size": candidate.pipeline_parallel_size,
        "users_per_replica": candidate.users_per_replica,
        "users_by_memory": candidate.users_by_memory,
        "users_by_throughput": candidate.users_by_throughput,
        "binding": candidate.binding,
        "replicas": candidate.replicas,
        "gpus": candidate.gpus,
        "total_replicas": candidate.total_replicas,
        "total_gpus": candidate.total_gpus,
        "nodes": candidate.nodes,
        "users_after_failure": candidate.users_after_failure,
        "tokens_per_second_per_user": "-".join(f"{speeds[side]:.0f}" for side in ("low", "best", "high")),
        "tokens_per_second_per_user_low": round(speeds["low"], 2),
        "tokens_per_second_per_user_best": round(speeds["best"], 2),
        "tokens_per_second_per_user_high": round(speeds["high"], 2),
        "time_to_first_token_low": round(candidate.first_token.low, 4),
        "time_to_first_token_best": round(candidate.first_token.best, 4),
        "time_to_first_token_high": round(candidate.first_token.high, 4),
        "responses_per_day_low": candidate.responses_per_day("low"),
        "responses_per_day_best": candidate.responses_per_day("best"),
        "responses_per_day_high": candidate.responses_per_day("high"),
        "output_tokens_per_day_low": tokens["low"],
        "output_tokens_per_day_best": tokens["best"],
        "output_tokens_per_day_high": tokens["high"],
        "price": None if price is None else price.in_words(candidate.total_gpus),
        "cost_per_day": cost,
        **{
            f"cost_per_million_output_tokens{name}": (
                None if cost is None or not tokens[side] else round(cost / tokens[side] * 10**6, 4)
            )
            for name, side in (("", "best"), ("_low", "low"), ("_high", "high"))
        },
        "verdict": candidate.plan.verdict,
        "evidence": "derived",
        "command": command_line(candidate.plan),
    }


def assumed(query: Mapping[str, object]) -> str:
    """What the sizes stand on: lengths, how busy a user is, growth, spares, and what the first token waits for."""
    duty = query["duty_cycle"]
    busy = "all the time" if duty == 1 else f"{duty:.0%} of the time"
    spares = "no spare replicas" if query["redundancy"] == "0" else f"redundancy {query['redundancy']}"
    return (
        f"planned for requests of {query['input_len']} tokens in and {query['output_len']} out, each user with a"
        f" request running {busy}, growth of {query['growth']} and {spares} (--input-len, --output-len, --duty-cycle,"
        " --growth, --redundancy); the time to the first token is the prefill alone, without a queue: prompts that come"
        " together wait for each other"
    )


def render_fleet(
    candidates: Sequence[Candidate],
    rejected: Sequence[Rejected],
    curves: Sequence[str],
    *,
    prices: Prices,
    query: Mapping[str, object],
    format: str,
    width: Width = "terminal",
) -> str:
    """The candidates in the format asked for; for people also those that cannot, curves and commands."""
    rows = [fleet_row(candidate, prices) for candidate in candidates]
    notes = [DERIVED, assumed(query), *unused_notes(prices, [candidate.gpu.id for candidate in candidates])]
    if format == Format.JSON:
        document = {
            "schema": JSON_SCHEMA,
            "query": dict(query),
            "rows": rows,
            "rejected": [{"gpu": one.gpu, "reason": one.reason} for one in rejected],
            "notes": notes,
        }
        return json.dumps(document, indent=1, ensure_ascii=False)
    shown = COLUMNS if prices else COLUMNS[:-_PRICED]
    text = render_rows(rows, columns=shown, format=format, query=query, width=width, title="Fleet")
    if format in (Format.CSV, Format.HTML):
        return text
    parts = [text] if rows else []
    if rejected:
        parts.append(printed([f"{one.gpu}: {one.reason}" for one in rejected], width))
    parts += curves
    parts.append(printed([f"note: {note}" for note in notes], width))
    parts += [command(command_line(candidate.plan), width) for candidate in candidates[:1]]
    return "\n\n".join(parts)


def curve_csv(points: Iterable[CurvePoint], *, at: str, value: str) -> str:
    """A capacity curve as CSV: gpu, tensor_parallel_size, and the two axes."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(("gpu", "tensor_parallel_size", at, value))
    for point in points:
        writer.writerow((point.gpu, point.tensor_parallel_size, point.at, point.value))
    return buffer.getvalue().rstrip("\n")


def curve_chart(points: Sequence[CurvePoint], *, title: str) -> str:
    """A capacity curve as bars of characters, a line for each point; the longest bar is the largest value."""
    largest = max((point.value for point in points), default=0)
    lines = [title]
    for point in points:
        length = round(point.value * _BAR / largest) if largest else 0
        bar = "#" * (max(1, length) if point.value else 0)
        lines.append(f"{point.at:>12,} {bar:<{_BAR}} {point.value:,}")
    return "\n".join(lines)
