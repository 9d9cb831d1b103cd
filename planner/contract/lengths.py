"""Request lengths as a user knows them: one number, a mean, percentiles."""

from __future__ import annotations

import re
from dataclasses import dataclass

from planner.errors import UsageError

_PART = re.compile(r"(?:(mean|avg|max|p\d{1,2}(?:\.\d+)?)=)?([0-9][0-9_]*)(k?)", re.IGNORECASE)
_LONGEST = 1 << 40


@dataclass(frozen=True, slots=True)
class Lengths:
    """Token counts by statistic, in order of size: ("mean", 600), ("p95", 4000), ("p99", 12000).

    A single number is ("all", n): every request has that length.
    """

    points: tuple[tuple[str, int], ...]

    def at(self, statistic: str) -> int | None:
        """The length at this statistic; a fixed length answers every one."""
        for name, value in self.points:
            if name in (statistic, "all"):
                return value
        return None


def parse_lengths(text: str, option: str = "--input-len") -> Lengths:
    """Lengths from "600", "mean=600" or "p50=600,p95=4000,p99=12000".

    Raises:
        UsageError: not of that form, a length of zero, or percentiles that fall.
    """
    text = str(text)  # a caller's 600 is a length too
    points: list[tuple[str, int]] = []
    for part in text.split(",") if len(text) < 400 else [text[:40]]:
        match = _PART.fullmatch(part.strip())
        if match is None:
            raise UsageError(
                f"{option}: {part[:40]!r} is not a length; write 600, mean=600 or p50=600,p95=4000,p99=12000",
                field=option,
            )
        name, number, thousand = match.groups()
        value = int(number.replace("_", "")) * (1024 if thousand else 1)
        if not 1 <= value <= _LONGEST:
            raise UsageError(f"{option}: a length of {value} makes no request; expected 1 or more", field=option)
        points.append(((name or "all").lower().replace("avg", "mean"), value))
    if len({name for name, _ in points}) != len(points) or (len(points) > 1 and any(n == "all" for n, _ in points)):
        raise UsageError(f"{option}: {text[:60]!r} states a statistic twice; name each (p50=, p95=)", field=option)
    ranked = sorted(points, key=lambda point: _rank(point[0]))
    percentiles = [value for name, value in ranked if name.startswith("p") or name == "max"]
    if percentiles != sorted(percentiles):
        raise UsageError(f"{option}: a higher percentile is shorter than a lower one in {text[:60]!r}", field=option)
    return Lengths(tuple(ranked))


def write_lengths(lengths: Lengths) -> str:
    """The text that `parse_lengths` reads back."""
    return ",".join(str(value) if name == "all" else f"{name}={value}" for name, value in lengths.points)


def _rank(statistic: str) -> float:
    if statistic == "max":
        return 100.0
    return float(statistic[1:]) if statistic.startswith("p") else -1.0


def request_lengths(input_lengths: Lengths | None, output_lengths: Lengths | None) -> list[tuple[str, int]]:
    """Tokens of a whole request at each statistic that both sides state, shortest statistic first.

    Input and output are added at the same statistic, which is an upper bound unless the two rise together.

    Raises:
        UsageError: the two sides share no statistic, or are no `Lengths`.
    """
    sides = [side for side in (input_lengths, output_lengths) if side is not None]
    for side in sides:
        if not isinstance(side, Lengths):
            raise UsageError(f"lengths are {str(side)[:40]!r}; expected what parse_lengths gives", field="input_len")
    if not sides:
        return []
    names = [name for side in sides for name, _ in side.points if name != "all"] or ["all"]
    found = []
    for name in sorted(set(names), key=_rank):
        values = [side.at(name) for side in sides]
        if all(value is not None for value in values):
            found.append((name, sum(value for value in values if value is not None)))
    if not found:
        raise UsageError(
            "--input-len and --output-len share no statistic; give both as a number, a mean, or the same percentiles",
            field="input_len",
        )
    return found


def refused_note(points: list[tuple[str, int]], max_model_len: int, positions: int) -> str | None:
    """Which stated requests the server refuses because they are longer than max_model_len, and what would do."""
    over = [(name, length) for name, length in points if length > max_model_len and name != "mean"]
    if not over:
        return None
    said = ", ".join(f"{length:,} tokens" + ("" if name == "all" else f" ({name})") for name, length in over)
    most = over[-1][1]
    remedy = f"raise it to {most}" if most <= positions else f"the model has {positions:,} positions"
    return f"the server refuses requests of {said}: they are longer than --max-model-len {max_model_len:,}; {remedy}"


def admission_point(points: list[tuple[str, int]]) -> tuple[str, int] | None:
    """The statistic that admission is planned at: the highest percentile given; a mean is no admission limit."""
    limits = [point for point in points if point[0] != "mean"]
    return limits[-1] if limits else None
