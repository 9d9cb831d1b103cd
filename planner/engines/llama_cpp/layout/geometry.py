"""Cells, streams and rows: what a context's settings come to.

Source: llama.cpp v0.5.0 `src/llama-context.cpp` (constructor), `src/llama-kv-cache-iswa.cpp`; before 2026-02 as in
llama-cpp-python 0.3.16 and 0.3.20.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from planner.engines.llama_cpp.tables.releases import Release

PAD: Final = 256


def padded(cells: int, multiple: int = PAD) -> int:
    """Up to a multiple."""
    return -(-cells // multiple) * multiple


@dataclass(frozen=True, slots=True, kw_only=True)
class Geometry:
    """A context's caches and its worst micro-batch.

    Args:
        cells: of a full layer in one stream; window_cells: of a windowed layer (0: none is).
        streams: caches side by side.
        tokens: of the worst micro-batch, a multiple of the slots.
        outputs: its rows of logits.
    """

    n_ctx: int
    slots: int
    cells: int
    window_cells: int
    streams: int
    tokens: int
    outputs: int

    @property
    def context_of_slot(self) -> int:
        """Tokens of the longest request."""
        return self.cells if self.streams > 1 or self.slots == 1 else self.n_ctx


def geometry_of(
    release: Release,
    *,
    n_ctx: int,
    n_batch: int,
    n_ubatch: int,
    slots: int,
    unified: bool,
    window: int,
    swa_full: bool,
    flash_attention: bool,
    outputs: int | None,
) -> Geometry:
    """The geometry of a context of `n_ctx` tokens.

    Args:
        window: the widest sliding window (0: none).
        outputs: rows of logits that the program asks for; None: all of a batch.
    """
    step = PAD if flash_attention else 32
    if release.has("padded_context"):
        n_ctx = padded(n_ctx)
    streams = 1 if unified or slots == 1 or not release.has("streams") else slots
    if streams == 1:
        cells = padded(n_ctx, step) if not release.has("padded_context") else n_ctx
    else:
        cells = padded(n_ctx // slots)
        n_ctx = cells * slots
    n_batch = min(n_batch, n_ctx)
    n_ubatch = min(n_ubatch, n_batch)
    window_cells = 0
    if window and (release.has("window_cache") or swa_full):
        wanted = window * (slots if streams == 1 else 1) + n_ubatch
        early = min(cells, padded(wanted, step))
        window_cells = padded(min(cells, wanted)) if release.has("padded_context") else early
        if swa_full:
            window_cells = cells
    tokens = padded(n_ubatch, slots)
    most = n_batch if outputs is None or not release.has("few_outputs") else outputs
    return Geometry(
        n_ctx=n_ctx,
        slots=slots,
        cells=cells,
        window_cells=window_cells,
        streams=streams,
        tokens=tokens,
        outputs=max(1, min(n_ubatch, most)),
    )
