"""From the rest of the budget to the pools: states first, then tokens, then how many requests run.

    rest    free after loading - free before loading x (1 - fraction) - what is kept for images
    tokens  (rest - states) / bytes of a token, in whole pages, at most --max-total-tokens

Source: SGLang 0.5.23 mem_cache/kv_cache_configurator.py _profile_available_bytes, config_from_budget; 0.4.6
model_runner.py profile_max_num_token, init_memory_pool.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from planner.engines.sglang.budget.requests import RunningRequests, running_requests
from planner.engines.sglang.pool.cells import Cell
from planner.engines.sglang.pool.states import StatePool, StateWish, state_pool
from planner.engines.sglang.pool.windows import WindowedCell, request_cap, split_by_ratio, split_by_requests
from planner.engines.sglang.tables.releases import Release, rules_at

_DRAFT_ROWS: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolInputs:
    """What the pools of one card follow from; sizes are those of one data-parallel rank.

    Args:
        cell: a token in all layers (the states' layers aside).
        draft_cell: a token in the draft's layers.
        windowed: the cells by kind of layer, where the pool is split.
        full_token_bytes: DeepSeek-V4's cost of a token; None for others.
        slot_bytes: a sequence's states; 0 without.
        window_ratio: --swa-full-tokens-ratio.
        draft_steps, draft_topk: of the speculation, for the head room of older releases.
    """

    release: Release
    cell: Cell
    draft_cell: Cell | None = None
    windowed: WindowedCell | None = None
    full_token_bytes: Fraction | None = None
    slot_bytes: int = 0
    states: StateWish | None = None
    window_ratio: float = 0.8
    page_size: int = 1
    max_total_tokens: int | None = None
    max_running_requests: int | None = None
    context_length: int = 1
    chunked_prefill_size: int = 8192
    radix_cache: bool = True
    overlap: bool = True
    draft_steps: int = 0
    draft_topk: int = 0
    draft_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Pools:
    """The pools of one card, in bytes and tokens.

    Args:
        tokens: max_total_num_tokens as printed.
        windowed_tokens: of the windows' own pool, None where there is none.
        sized_bytes, allocated_bytes: of the token pools, as they were sized and as they are.
        draft_bytes: the draft's own rows.
        states: None for a model without states.
        requests: what runs at once.
        capped: --max-total-tokens is what limits the pool.
    """

    tokens: int
    windowed_tokens: int | None
    sized_bytes: int
    allocated_bytes: int
    draft_bytes: int
    states: StatePool | None
    requests: RunningRequests
    capped: bool

    @property
    def total_bytes(self) -> int:
        """Everything that the pools take."""
        states = self.states.allocated_bytes + self.states.draft_bytes if self.states is not None else 0
        return self.allocated_bytes + self.draft_bytes + states


def make_pools(rest_bytes: int, inputs: PoolInputs) -> Pools:
    """The pools that a card makes of what weights leave of its budget."""
    states = None
    left = rest_bytes
    if inputs.states is not None and inputs.slot_bytes:
        states = state_pool(max(0, rest_bytes), inputs.slot_bytes, inputs.states, inputs.release)
        left -= states.charged_bytes
    tokens, windowed, cap = _tokens(max(0, left), inputs)
    requests = running_requests(
        inputs.release,
        tokens=tokens,
        context_length=inputs.context_length,
        asked=inputs.max_running_requests,
        slots=states.slots if states is not None else None,
        slots_per_request=inputs.states.per_request if inputs.states is not None else 1,
    )
    page, cell = inputs.page_size, inputs.cell
    drafts = inputs.draft_cell.allocated_bytes if inputs.draft_cell is not None else 0
    if inputs.full_token_bytes is not None:
        sized = allocated = int(tokens * inputs.full_token_bytes)
    elif inputs.windowed is not None and windowed is not None:
        sized = inputs.windowed.bytes(tokens if inputs.windowed.full_layers else 0, windowed)
        allocated = sized + inputs.windowed.bytes(page if inputs.windowed.full_layers else 0, page)
    else:
        sized, allocated = tokens * cell.sized_bytes, (tokens + page) * cell.allocated_bytes
    return Pools(
        tokens=tokens,
        windowed_tokens=windowed,
        sized_bytes=sized,
        allocated_bytes=allocated if tokens else 0,
        draft_bytes=(tokens + page) * drafts if tokens else 0,
        states=states,
        requests=requests,
        capped=cap,
    )


def _tokens(left_bytes: int, inputs: PoolInputs) -> tuple[int, int | None, bool]:
    """(tokens, tokens of the windows, whether --max-total-tokens decides)."""
    rules, page, limit = rules_at(inputs.release), inputs.page_size, inputs.max_total_tokens
    if inputs.full_token_bytes is not None:
        tokens = int(left_bytes / inputs.full_token_bytes) // page * page
        return _capped(tokens, limit, page), None, limit is not None and limit < tokens
    if inputs.windowed is not None:
        return _windowed_tokens(left_bytes, inputs, inputs.windowed)
    size = inputs.cell.sized_bytes
    if inputs.draft_cell is not None and rules["draft_in_cell"] == "yes":
        size += inputs.draft_cell.sized_bytes
    if not size:
        return limit or inputs.context_length, None, limit is not None
    tokens = left_bytes // size
    if inputs.draft_cell is not None and rules["draft_headroom"] == "yes" and tokens > 0:
        requests = inputs.max_running_requests or 0
        tokens += requests * (inputs.draft_steps * inputs.draft_topk + inputs.draft_tokens) + _DRAFT_ROWS
    return _capped(tokens, limit, page), None, limit is not None and limit < tokens


def _windowed_tokens(left_bytes: int, inputs: PoolInputs, cell: WindowedCell) -> tuple[int, int | None, bool]:
    rules, page, limit = rules_at(inputs.release), inputs.page_size, inputs.max_total_tokens
    by_requests = (
        rules["window_request_cap"] == "yes"
        and not inputs.radix_cache
        and inputs.max_running_requests is not None
        and inputs.chunked_prefill_size > 0
        and cell.full_layers > 0
    )
    if by_requests:
        windowed = request_cap(
            window=cell.window,
            page_size=page,
            requests=inputs.max_running_requests or 1,
            chunked_prefill_size=inputs.chunked_prefill_size,
            overlap=inputs.overlap,
            draft_tokens=inputs.draft_tokens,
        )
        full = split_by_requests(left_bytes, cell, windowed, page_size=page)
        tokens = _capped(full, limit, page)
        return tokens, min(windowed, tokens) if tokens < full else windowed, tokens < full
    counts = rules["windows"] == "tokens"
    full, windowed = split_by_ratio(left_bytes, cell, ratio=inputs.window_ratio, page_size=page, counts_tokens=counts)
    whole = full if cell.full_layers else windowed
    tokens = _capped(whole, limit, page)
    if tokens < whole:
        windowed = int(tokens * (inputs.window_ratio if cell.full_layers else 1)) // page * page
    return tokens, windowed, tokens < whole


def _capped(tokens: int, limit: int | None, page_size: int) -> int:
    return max(0, min(tokens, limit) if limit is not None else tokens) // page_size * page_size


def requests_held(pools: Pools, inputs: PoolInputs, length: int) -> int:
    """Requests of this many tokens that one attention rank runs at once."""
    page = inputs.page_size
    whole = -(-length // page) * page
    held = pools.requests.count
    if inputs.windowed is not None and pools.windowed_tokens is not None:
        kept = -(-min(length, inputs.windowed.window + page) // page) * page
        held = min(held, pools.windowed_tokens // kept)
        if not inputs.windowed.full_layers:
            return held
    if inputs.cell.layers or inputs.full_token_bytes is not None:
        held = min(held, pools.tokens // whole)
    return held


def request_bytes(inputs: PoolInputs, length: int) -> int:
    """Bytes of the pools that one request of this length takes."""
    page = inputs.page_size
    whole = -(-length // page) * page
    states = inputs.slot_bytes * (inputs.states.per_request if inputs.states is not None else 0)
    if inputs.full_token_bytes is not None:
        return int(whole * inputs.full_token_bytes)
    if inputs.windowed is not None:
        kept = -(-min(length, inputs.windowed.window + page) // page) * page
        return inputs.windowed.bytes(whole if inputs.windowed.full_layers else 0, kept)
    drafts = inputs.draft_cell.allocated_bytes if inputs.draft_cell is not None else 0
    return whole * (inputs.cell.allocated_bytes + drafts) + states
