"""Several engines side by side: a row for each, and why they differ."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from planner.contract.plan import VERDICTS
from planner.report.printer import Width, printed
from planner.report.rows import Column, render_rows
from planner.serving.across import Account, why
from planner.units import gib


def render_across(accounts: Sequence[Account], *, format: str, query: dict[str, object], width: Width) -> str:
    """The accounts in a format; for people followed by the reasons and the commands."""
    rows = [_row(account) for account in accounts]
    if format in ("json", "csv"):
        return render_rows(rows, columns=[], format=format, query=query | {"why": list(why(accounts))})
    columns = [
        Column(field="engine", heading="engine"),
        Column(field="verdict", heading="verdict", text=lambda value: VERDICTS.get(str(value), str(value))),
        _gib("weights_bytes", "weights"),
        _gib("step_bytes", "step", importance=2),
        _gib("other_bytes", "other", importance=3),
        _gib("cache_bytes", "cache"),
        _gib("free_bytes", "free", importance=1),
        Column(field="tokens", heading="tokens", right=True),
        Column(field="concurrency", heading="at once", right=True),
    ]
    table = render_rows(rows, columns=columns, format=format, query=query, width=width)
    commands = [str(row["command"]) for row in rows if row["command"]]
    return printed(["GiB on the fullest card", table, "", *why(accounts), "", *commands], width)


def _gib(field: str, heading: str, *, importance: int = 0) -> Column:
    return Column(
        field=field,
        heading=heading,
        right=True,
        importance=importance,
        text=lambda value: gib(value) if isinstance(value, int) else "-",
    )


def _row(account: Account) -> dict[str, object]:
    plan = account.plan
    figures = ("weights_bytes", "step_bytes", "other_bytes", "cache_bytes", "free_bytes", "bytes_per_token", "tokens")
    row: dict[str, object] = {
        "engine": account.engine.name,
        "engine_version": plan.engine_version if plan is not None else None,
        "verdict": account.verdict,
    }
    row |= {name: getattr(account, name) if plan is not None else None for name in (*figures, "concurrency")}
    row["reason"] = account.reason or (plan.startup_error.message if plan is not None and plan.startup_error else "")
    row["command"] = shlex.join(account.engine.command(plan)) if plan is not None else ""
    return row
