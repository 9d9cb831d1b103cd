"""How many requests run at once, and the table that maps them to their tokens.

    estimate  clamp(512 x tokens / context, 2048, 4096); from 0.5.7 at most half the tokens
    states    at most slots // k
    table     requests x (context + 4 + draft tokens) x 4 B; one more row up to 0.4.6, and from 0.5.10

Source: SGLang 0.4.6 model_runner.py init_memory_pool; 0.5.12 model_runner_kv_cache_mixin.py _resolve_max_num_reqs;
0.5.23 kv_cache_configurator.py resolve_max_num_reqs, memory_pool.py ReqToTokenPool.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from planner.engines.sglang.tables.releases import Release, rules_at

_LEAST: Final = 2048
_MOST: Final = 4096
_EXTRA_CONTEXT: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningRequests:
    """Requests of one data-parallel rank.

    Args:
        count: those that can run.
        printed: what the log says of them (max_running_requests).
        capped_by: "asked", "tokens", "states" or "estimate".
    """

    count: int
    printed: int
    capped_by: str


def running_requests(
    release: Release,
    *,
    tokens: int,
    context_length: int,
    asked: int | None,
    slots: int | None,
    slots_per_request: int,
) -> RunningRequests:
    """The running requests of a pool.

    Args:
        asked: --max-running-requests over the data-parallel ranks, or None.
        slots: state slots, None for a model without states.
    """
    rules = rules_at(release)
    estimate = max(min(512 * tokens // context_length, _MOST), _LEAST)
    count, capped_by = estimate, "estimate"
    if asked is not None:
        count, capped_by = asked, "asked"
        limit = {"none": asked, "estimate": estimate, "half_tokens": tokens // 2}[rules["asked_requests_cap"]]
        if limit < count:
            count, capped_by = limit, "tokens"
    if (asked is None or rules["asked_requests_cap"] == "none") and rules["requests_half_tokens"] == "yes":
        half = tokens // 2
        if half < count:
            count, capped_by = half, "tokens"
    if slots is not None and slots // slots_per_request < count:
        count, capped_by = slots // slots_per_request, "states"
    count = max(0, count)
    more = 1 if asked is None and rules["running_requests_printed"] == "one_more" else 0
    return RunningRequests(count=count, printed=count + more, capped_by=capped_by)


def request_table_bytes(requests: int, context_length: int, *, draft_tokens: int = 0) -> int:
    """int32 entries of every running request and the padding one."""
    return (requests + 1) * (context_length + _EXTRA_CONTEXT + draft_tokens) * 4
