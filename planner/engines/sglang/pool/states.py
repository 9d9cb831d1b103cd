"""Slots for recurrent states (Mamba, gated delta net, KDA, short convolutions): bytes of one, and how many there are.

    slot     layers x (convolution tail in 16 bit + state in fp32, or as --mamba-ssm-dtype says), per GPU
    budget   rest x r / (1 + r), r = --mamba-full-memory-ratio (0.9)
    k        slots a running request needs: 1 without the radix cache, else 3, with the extra buffer 3 + 2 (3 + 1)

Slots by release: `tables/rules.csv`, rule "states". One slot more than counted is always allocated, as padding.

Source: SGLang model_runner.py 0.5.4, model_runner_kv_cache_mixin.py 0.5.9 to 0.5.15, kv_cache_configurator.py 0.5.17
to 0.5.23 (handle_max_mamba_cache); configs/mamba_utils.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from planner.engines.sglang.tables.releases import Release, rules_at
from planner.model.caches import StateCache
from planner.model.spec import Layer

SLOTS_PER_REQUEST: Final = 3
_ELEMENT_BYTES: Final = {"float32": 4, "float16": 2, "bfloat16": 2}
_SLOTS_WITHOUT_RATIO: Final = 512  # up to 0.5.5, radix cache off and no --max-running-requests


@dataclass(frozen=True, slots=True, kw_only=True)
class StateWish:
    """What the command says about states; sizes are those of one data-parallel rank.

    Args:
        max_mamba_cache_size: slots as asked, or None.
        max_running_requests: requests as asked (or as speculation sets them), or None.
        ratio: --mamba-full-memory-ratio.
        radix_cache: the prefix cache is on.
        per_request: slots of one running request.
        draft_tokens: tokens that a draft proposes at once; 0 without speculation.
    """

    max_mamba_cache_size: int | None
    max_running_requests: int | None
    ratio: float
    radix_cache: bool
    per_request: int
    draft_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StatePool:
    """Slots and their bytes.

    Args:
        slots: as the engine prints them (max_mamba_cache_size).
        slot_bytes: of one.
        allocated_bytes: of all and the padding slot.
        draft_states: states kept for the tokens of drafts.
        draft_bytes: their bytes.
        charged_bytes: what the budget of the tokens is lowered by.
    """

    slots: int
    slot_bytes: int
    draft_states: int
    charged_bytes: int

    @property
    def allocated_bytes(self) -> int:
        """The slots and one more."""
        return (self.slots + 1) * self.slot_bytes

    @property
    def draft_bytes(self) -> int:
        """States of the tokens of drafts."""
        return self.draft_states * self.slot_bytes


def slot_bytes(
    layers: tuple[Layer, ...], *, release: Release, parallel_size: int, dtype: str | None
) -> tuple[int, int]:
    """Bytes of one sequence's states on one GPU: (convolution tails, recurrent states).

    Args:
        dtype: --mamba-ssm-dtype; None: as the release says.

    Raises:
        UsageError: heads or groups that the GPUs cannot share.
    """
    of_config = rules_at(release)["state_dtype"] == "config"
    seen: dict[int, tuple[int, int]] = {}
    tails = recurrent = 0
    for layer in layers:
        if id(layer) not in seen:
            seen[id(layer)] = _layer_bytes(layer, parallel_size, dtype, of_config=of_config)
        tail, state = seen[id(layer)]
        tails, recurrent = tails + tail, recurrent + state
    return tails, recurrent


def _layer_bytes(layer: Layer, parallel_size: int, dtype: str | None, *, of_config: bool) -> tuple[int, int]:
    tails = recurrent = 0
    for cache in layer.caches():
        for state in cache.states if isinstance(cache, StateCache) else ():
            elements = state.elements(parallel_size)
            if state.kind == "conv":
                tails += elements * 2
            else:
                recurrent += elements * _ELEMENT_BYTES[dtype or (state.dtype if of_config else None) or "float32"]
    return tails, recurrent


def slots_per_request(*, release: Release, radix_cache: bool, extra_buffer: bool, overlap: bool, drafts: bool) -> int:
    """k: slots that a running request needs."""
    if not radix_cache:
        return 1
    if not extra_buffer:
        return SLOTS_PER_REQUEST
    if drafts and rules_at(release)["extra_buffer_draft_slots"] == "1":
        return SLOTS_PER_REQUEST + 1
    return SLOTS_PER_REQUEST + (2 if overlap else 1)


def state_pool(rest_bytes: int, size: int, wish: StateWish, release: Release) -> StatePool:
    """The slots that are made of the rest of the budget.

    Args:
        rest_bytes: what weights leave of the budget.
        size: bytes of one slot.
    """
    rule = rules_at(release)["states"]
    ask, drafts = wish.max_mamba_cache_size, wish.draft_tokens
    padding = 1 if rule == "padded" else 0
    if rule == "before":
        return _before(rest_bytes, size, wish)
    requests = wish.max_running_requests or 0
    if rule == "requests_first":
        states = requests * drafts
        charged = states * size
        if ask is None:
            ask = requests if not wish.radix_cache and requests else None
        slots = ask if ask is not None else int(_budget(rest_bytes - charged, wish.ratio) // size)
        return StatePool(slots=slots, slot_bytes=size, draft_states=states, charged_bytes=charged + slots * size)
    if ask is None and not wish.radix_cache and requests:
        ask = requests
        states = (ask + padding) * drafts
    elif ask is not None:
        states = (min(requests, ask // wish.per_request) + padding) * drafts
    else:
        budget = _budget(rest_bytes, wish.ratio)
        if drafts:
            each = size * (1 + drafts / wish.per_request)
            ask = int((budget - padding * size * (1 + drafts)) // each)
        else:
            ask = int((budget - padding * size) // size)
        states = (min(requests, ask // wish.per_request) + padding) * drafts
    slots = max(0, ask)
    if not drafts:
        states = 0
    return StatePool(
        slots=slots,
        slot_bytes=size,
        draft_states=max(0, states),
        charged_bytes=(slots + padding + max(0, states)) * size,
    )


def _before(rest_bytes: int, size: int, wish: StateWish) -> StatePool:
    each = size * (1 + wish.draft_tokens)
    if not wish.radix_cache:
        slots = wish.max_mamba_cache_size or wish.max_running_requests or _SLOTS_WITHOUT_RATIO
    else:
        slots = max(0, int(_budget(rest_bytes, wish.ratio) // each))
    return StatePool(slots=slots, slot_bytes=size, draft_states=slots * wish.draft_tokens, charged_bytes=slots * each)


def _budget(rest_bytes: int, ratio: float) -> float:
    return rest_bytes * ratio / (1 + ratio)
