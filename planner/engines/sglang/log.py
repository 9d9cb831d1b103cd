"""A start-up log of SGLang: the version, the arguments it states, what it measured, and what it stopped with.

Of several ranks the poorest counts for what limits the pool, the largest for everything else. A second load on a rank
is the draft's.

Source: format strings of SGLang 0.4.1 to 0.5.23 (model_executor/model_runner.py, mem_cache/memory_pool.py,
managers/scheduler.py); `tables/log_lines.csv`.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.resources import files
from typing import Final

from planner.contract.inputs import inputs_of
from planner.contract.start_log import LoggedError, MeasuredStart
from planner.engines.sglang.deployment import Deployment
from planner.engines.sglang.tables.dates import release_of_day

_LONGEST_LINE: Final = 65_536
_MOST_LINES: Final = 2_000_000
_MOST_ERRORS: Final = 50
_MODEL: Final = re.compile(r"\bmodel_path='([^']{1,400})'")
_DAY: Final = re.compile(r"20\d\d-\d\d-\d\d")
_RANK: Final = re.compile(r"(?:TP|DP)(\d{1,5})\b")
_VERSION: Final = re.compile(
    r"(?:sglang[ =v]*|version[=:' ]+)(\d{1,2}\.\d{1,3}\.\d{1,3}(?:\.post\d{1,3})?)", re.IGNORECASE
)
_PAIR: Final = re.compile(r"(?<![\w.])([a-z][a-z0-9_]{1,60})=('[^']{0,400}'|\"[^\"]{0,400}\"|[^\s,()\[\]{}'\"]{1,100})")
# figures of which the smallest rank's counts
_SMALLEST: Final = ("avail", "kv_tokens", "available_end", "full_tokens", "window_tokens", "mamba_slots", "max_running")
_RENAMED: Final = {"cpu_offload_gb": "cpu_offload_bytes", "hicache_size": "hicache_size_bytes"}


def read_log(lines: Iterable[str]) -> MeasuredStart:
    """What the lines say; figures under the names of measured cases, sizes in GiB as printed."""
    by_rank: dict[str, dict[str, float]] = {}
    words: tuple[str, ...] = ()
    version: str | None = None
    day: str | None = None
    model: str | None = None
    errors: list[LoggedError] = []
    recognised = 0
    for number, raw in enumerate(lines):
        if number >= _MOST_LINES:
            break
        line = raw[:_LONGEST_LINE]
        if day is None and (found := _DAY.search(line[:40])):
            day = found[0]
        if not words and "ServerArgs(" in line:
            words = tuple(_words(line))
            named = _MODEL.search(line)
            model = named[1] if named else None
            recognised += 1
        if version is None and "sglang" in line.lower():
            found = _VERSION.search(line)
            version = found[1] if found else None
        for needle, pattern, is_error in _patterns():
            if needle not in line:
                continue
            match = pattern.search(line)
            if match is None:
                continue
            recognised += 1
            if is_error and len(errors) < _MOST_ERRORS:
                errors.append(LoggedError("start", " ".join(line[match.start() :].split())[:300], number + 1))
            _keep(by_rank, _RANK.search(line[: match.start()]), match.groupdict())
            break
    if version is None and day is not None:
        version = release_of_day(day)
    stated = dict(_pairs(words))
    if model is not None:
        stated["model"] = model
    return MeasuredStart(
        version=version,
        words=words,
        stated=stated,
        measured=dict(_merged(by_rank)),
        by_rank=_turned(by_rank),
        errors=tuple(errors),
        recognised=recognised,
    )


def _turned(by_rank: dict[str, dict[str, float]]) -> dict[str, dict[str, float]]:
    """Figures by name, then by rank."""
    found: dict[str, dict[str, float]] = {}
    for rank, figures in by_rank.items():
        for name, value in figures.items():
            found.setdefault(name, {})[rank] = value
    return found


def _pairs(words: tuple[str, ...]) -> Iterator[tuple[str, object]]:
    """The words under the names that measured cases use: the engine's own."""
    for index, word in enumerate(words):
        if word.startswith("--"):
            following = words[index + 1] if index + 1 < len(words) else "--"
            yield word[2:].replace("-", "_"), True if following.startswith("--") else following


def _keep(by_rank: dict[str, dict[str, float]], rank: re.Match[str] | None, figures: dict[str, str | None]) -> None:
    own = by_rank.setdefault(rank[0] if rank else "", {})
    draft = "weights_gib" in own and figures.get("weights_gib") is not None
    pool = "avail_after_pool_gib" in own and figures.get("k_size_gib") is not None
    for name, text in figures.items():
        if text is None:
            continue
        value = float(text.replace(",", ""))
        if draft:
            name = {"weights_gib": "draft_weights_gib", "avail_after_load_gib": "avail_after_draft_load_gib"}.get(
                name, name
            )
        if pool:
            name = {"k_size_gib": "draft_k_size_gib", "v_size_gib": "draft_v_size_gib"}.get(name, name)
            if name == "kv_tokens":
                continue
        if name == "avail_before_load_gib" and name in own:
            continue  # the draft's load begins where the pool ended
        own[name] = value


def _merged(by_rank: dict[str, dict[str, float]]) -> Iterator[tuple[str, float]]:
    names = dict.fromkeys(name for figures in by_rank.values() for name in figures)
    for name in names:
        values = [figures[name] for figures in by_rank.values() if name in figures]
        yield name, min(values) if name.startswith(_SMALLEST) else max(values)


def _words(line: str) -> Iterator[str]:
    """The arguments of a printed ServerArgs as the command line has them."""
    inputs = {one.name: one for one in inputs_of(Deployment) if not one.option.ours}
    seen: set[str] = set()
    for name, text in _PAIR.findall(line[line.index("ServerArgs(") :]):
        plain = text.strip("'\"")
        one = inputs.get(_RENAMED.get(name, name))
        if one is None or plain in ("None", "") or name in seen:
            continue
        seen.add(name)
        if one.is_switch:
            if plain == "True":
                yield one.spelling
        else:
            yield from (one.spelling, plain)


@cache
def _patterns() -> tuple[tuple[str, re.Pattern[str], bool], ...]:
    text = files("planner.engines.sglang.tables").joinpath("log_lines.csv").read_text("utf-8")
    return tuple(
        (row["needle"], _compiled(row["pattern"]), row["error"] == "yes") for row in csv.DictReader(text.splitlines())
    )


def _compiled(text: str) -> re.Pattern[str]:
    text = re.sub(r">N\)", lambda _: r">-?\d{1,9}(?:\.\d{1,6})?)", text)
    return re.compile(re.sub(r">I\)", lambda _: r">\d[\d,]{0,15})", text))
