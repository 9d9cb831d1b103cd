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

from planner.contract.engine import MeasuredStart
from planner.contract.inputs import inputs_of
from planner.engines.sglang.deployment import Deployment

_LONGEST_LINE: Final = 65_536
_MOST_LINES: Final = 2_000_000
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
    error: str | None = None
    for number, raw in enumerate(lines):
        if number >= _MOST_LINES:
            break
        line = raw[:_LONGEST_LINE]
        if not words and "ServerArgs(" in line:
            words = tuple(_words(line))
        if version is None and "sglang" in line.lower():
            found = _VERSION.search(line)
            version = found[1] if found else None
        for needle, pattern, is_error in _patterns():
            if needle not in line:
                continue
            match = pattern.search(line)
            if match is None:
                continue
            if is_error:
                error = error or " ".join(line[match.start() :].split())[:300]
            _keep(by_rank, _RANK.search(line[: match.start()]), match.groupdict())
            break
    return MeasuredStart(version=version, words=words, measured=dict(_merged(by_rank)), error=error)


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
        if name == "model_path":
            yield from ("--model-path", plain)
            continue
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
