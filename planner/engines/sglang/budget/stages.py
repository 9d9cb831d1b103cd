"""The budget of one pipeline stage's cards: what is there before the pools, and what the pools are made with."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from planner.contract.assumed import labelled
from planner.contract.component import Component, Side
from planner.engines.sglang.budget.adapters import adapter_slots
from planner.engines.sglang.budget.drafts import draft_weights, separate_draft
from planner.engines.sglang.budget.free_memory import communicators, others
from planner.engines.sglang.budget.weights import absorbed_bytes, weights_component, weights_of
from planner.engines.sglang.pool.cells import Cell, cell_of
from planner.engines.sglang.pool.compressed import compressed_layers, full_token_bytes
from planner.engines.sglang.pool.pools import PoolInputs, Pools, make_pools
from planner.engines.sglang.pool.states import StateWish, slot_bytes, slots_per_request
from planner.engines.sglang.pool.windows import WindowedCell, windowed_cell
from planner.engines.sglang.resolve import Resolved
from planner.engines.sglang.tables.releases import rows_at, rules_at
from planner.memory.context import context_component
from planner.memory.parallel.sharding import stage_layer_counts, stage_slices
from planner.memory.quantisation import WeightScheme
from planner.model.model import Model
from planner.model.spec import Layer
from planner.units import MIB, format_size


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One distinct card; sizes in bytes.

    Args:
        index: of the pipeline stage.
        total_bytes: what the driver reports.
        before: what is held before weights are loaded.
        static: what is held when the pools are sized: weights, drafts, adapters.
        reservation_bytes: what is kept for images out of the budget.
        pool_inputs: what the pools are made with.
        fraction: the share that the budget takes.
    """

    index: int
    total_bytes: int
    before: tuple[Component, ...]
    static: tuple[Component, ...]
    reservation_bytes: int
    pool_inputs: PoolInputs
    fraction: float

    def free_before(self, side: Side = "best") -> int:
        """Free memory when loading begins."""
        return self.total_bytes - sum(part.at(side) for part in self.before)

    def free_after(self, side: Side = "best") -> int:
        """Free memory when the pools are sized."""
        return self.free_before(side) - sum(part.at(side) for part in self.static)

    def rest(self, side: Side = "best", fraction: float | None = None) -> int:
        """What the budget leaves for the pools: after - before x (1 - fraction); may be negative."""
        share = self.fraction if fraction is None else fraction
        return self.free_after(side) - round(self.free_before(side) * (1 - share)) - self.reservation_bytes

    def pools(self, side: Side = "best", fraction: float | None = None) -> Pools:
        """The pools that the rest makes."""
        return make_pools(self.rest(side, fraction), self.pool_inputs)


def stages_of(model: Model, resolved: Resolved, scheme: WeightScheme) -> tuple[Stage, ...]:
    """Every pipeline stage, in order.

    Raises:
        UsageError: heads or tensors that the cards cannot share, more stages than layers.
    """
    asked = resolved.asked
    counts = stage_layer_counts(len(model.spec.layers), asked.pp_size)
    cards = asked.tp_size * asked.pp_size
    before = [context_component(resolved.gpu), communicators(resolved.gpu, cards)]
    held = others(resolved.gpu, asked.already_used_bytes)
    if held is not None:
        before.append(held)
    vision = any(stack.name == "vision" for stack in model.spec.stacks) and not asked.language_only
    reservation = int(rules_at(resolved.release)["vision_reservation_mib"]) * MIB if vision else 0
    found = []
    for index, run in enumerate(stage_slices(counts)):
        last = index == asked.pp_size - 1
        found.append(
            Stage(
                index=index,
                total_bytes=asked.total_bytes,
                before=tuple(before),
                static=labelled(_static(model, resolved, scheme, run, first=index == 0, last=last), model.spec.assumed),
                reservation_bytes=reservation,
                pool_inputs=_pool_inputs(model, resolved, run),
                fraction=resolved.fraction,
            )
        )
    return tuple(found)


def _static(
    model: Model, resolved: Resolved, scheme: WeightScheme, run: slice, *, first: bool, last: bool
) -> tuple[Component, ...]:
    asked = resolved.asked
    stage = weights_of(
        model, scheme, resolved.spread, layers=run, first=first, last=last, with_towers=not asked.language_only
    )
    weights = weights_component(stage, absorbed_bytes(model, resolved.spread, run), scheme.label)
    parts = [_offloaded(weights, asked.cpu_offload_bytes) if asked.cpu_offload_bytes else weights, _loading(resolved)]
    if last and resolved.drafts is not None and rules_at(resolved.release)["draft_before_pool"] == "yes":
        drafts = draft_weights(model, resolved, scheme)
        if drafts is not None:
            parts.append(drafts)
    if asked.enable_lora:
        parts.append(adapter_slots(model, resolved, run))
    return tuple(parts)


def _offloaded(weights: Component, offload_bytes: int) -> Component:
    size = max(0, weights.best - offload_bytes)
    return Component(
        name="weights",
        low=size,
        best=size,
        high=size,
        evidence="derived",
        formula=f"{weights.formula}, less {format_size(offload_bytes)} in host memory",
        source=weights.source,
    )


def _loading(resolved: Resolved) -> Component:
    row = rows_at("loading.csv", resolved.release)[0]
    low, best, high = (int(row[f"{side}_mib"]) * MIB for side in ("low", "best", "high"))
    return Component(
        name="loading_remainder",
        low=low,
        best=best,
        high=high,
        evidence="measured",
        formula=f"kernels and segments that loading leaves: {format_size(best)} (n={row['count']})",
        source=row["source"],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Geometry:
    """What the pools follow from that neither memory nor requests change."""

    cell: Cell
    draft_cell: Cell | None
    windowed: WindowedCell | None
    full_token_bytes: Fraction | None
    slot_bytes: int


def _geometry(model: Model, resolved: Resolved, run: slice) -> _Geometry:
    """The cells of a stage, remembered with the model."""
    asked, form, release = resolved.asked, resolved.cache_format, resolved.release
    parallel, drafts = resolved.spread.attention_parallel_size, resolved.drafts
    key = (
        "sglang geometry",
        run.start,
        run.stop,
        form.name,
        release,
        parallel,
        drafts,
        asked.speculative_draft_model_path,
        asked.mamba_ssm_dtype,
        resolved.split_windows,
        resolved.window_ratio,
        resolved.sparse_backend,
    )
    found = model.memo.get(key)
    if isinstance(found, _Geometry):
        return found
    layers = model.spec.layers[run]

    def cell(own: tuple[Layer, ...], *, recurrent: bool) -> Cell:
        return cell_of(
            own,
            form,
            release=release,
            attention_parallel_size=parallel,
            recurrent=recurrent,
            sparse_backend=resolved.sparse_backend,
        )

    compressed = compressed_layers(model.spec)
    drafted = drafts is not None and drafts.algorithm != "NGRAM" and not compressed
    separate = separate_draft(model, resolved)
    own_rows = separate.layers if separate is not None and separate.method == "draft_model" else ()
    rows = own_rows or model.spec.draft_layers or _one_attention_layer(layers)
    made = _Geometry(
        cell=cell(layers, recurrent=model.is_recurrent),
        draft_cell=cell(rows, recurrent=False) if drafted else None,
        windowed=windowed_cell(layers, form, parallel) if resolved.split_windows else None,
        full_token_bytes=full_token_bytes(
            compressed, window_ratio=resolved.window_ratio, speculative=drafts is not None
        )
        if compressed
        else None,
        slot_bytes=sum(slot_bytes(layers, release=release, parallel_size=parallel, dtype=asked.mamba_ssm_dtype)),
    )
    model.memo[key] = made
    return made


def _pool_inputs(model: Model, resolved: Resolved, run: slice) -> PoolInputs:
    asked, release, drafts = resolved.asked, resolved.release, resolved.drafts
    geometry = _geometry(model, resolved, run)
    wish = None
    if geometry.slot_bytes:
        ranks, lazy = resolved.spread.attention_ranks, asked.mamba_radix_cache_strategy == "extra_buffer_lazy"
        wish = StateWish(
            max_mamba_cache_size=asked.max_mamba_cache_size // ranks if asked.max_mamba_cache_size else None,
            max_running_requests=resolved.requests_asked,
            ratio=asked.mamba_full_memory_ratio,
            radix_cache=not asked.disable_radix_cache,
            per_request=slots_per_request(
                release=release,
                radix_cache=not asked.disable_radix_cache,
                extra_buffer=resolved.extra_state_buffer,
                overlap=not (asked.disable_overlap_schedule or lazy),
                drafts=drafts is not None,
            ),
            draft_tokens=drafts.tokens if drafts is not None else 0,
        )
    return PoolInputs(
        release=release,
        cell=geometry.cell,
        draft_cell=geometry.draft_cell,
        windowed=geometry.windowed,
        full_token_bytes=geometry.full_token_bytes,
        slot_bytes=geometry.slot_bytes,
        states=wish,
        window_ratio=resolved.window_ratio,
        page_size=resolved.page_size,
        max_total_tokens=asked.max_total_tokens,
        max_running_requests=resolved.requests_asked,
        context_length=resolved.context_length,
        chunked_prefill_size=resolved.chunked_prefill_size,
        radix_cache=not asked.disable_radix_cache,
        overlap=not asked.disable_overlap_schedule,
        draft_steps=drafts.steps if drafts else 0,
        draft_topk=drafts.topk if drafts else 0,
        draft_tokens=drafts.tokens if drafts else 0,
    )


def _one_attention_layer(layers: tuple[Layer, ...]) -> tuple[Layer, ...]:
    """A draft like the target's last attention layer, which is what the engine assumes of EAGLE drafts."""
    return next(((layer,) for layer in reversed(layers) if layer.caches()), ())
