"""What vLLM's profile counts beside torch's allocator: context, communicators, what comes after the profile."""

from __future__ import annotations

from typing import Final

from planner.contract.component import Component
from planner.engines.vllm.budget.runner import Term, samples, situation_of, uses_v2_runner
from planner.engines.vllm.resolve import Resolved
from planner.engines.vllm.tables.overhead import overhead
from planner.engines.vllm.tables.profile import parse_version
from planner.hardware.gpus import unnamed_gpu
from planner.memory.context import context_component
from planner.model.model import Model
from planner.units import format_size

# vLLM's own all-reduce reads the other cards' memory
_PEERS: Final = ("nvlink", "xgmi", "peer")
PENALTIES_SOURCE: Final = "vLLM 0.33.0 v1/worker/gpu/sample/penalties.py"


def _table(model: Model, resolved: Resolved, quantity: str, what: str) -> Component:
    row = overhead(quantity, situation_of(model, resolved))
    where = "non_torch" if resolved.profile.nccl_in_non_torch else "nccl_outside"
    saved = _all_reduce_saved(model, resolved) if quantity == where else 0
    if saved:
        what += f", without the custom all-reduce's {format_size(saved)}"
    return Component(
        name=quantity,
        low=row.low - saved,
        best=row.best - saved,
        high=row.high - saved,
        evidence="measured" if row.n else "assumed",
        formula=f"{what}: {format_size(row.best)} ({format_size(row.low)} to {format_size(row.high)}, n={row.n})",
        source=row.source,
    )


def non_torch(model: Model, resolved: Resolved) -> Component:
    """Driver memory that comes during loading and profiling; in 0.6.3 to 0.6.5 the context counts with it."""
    found = _table(model, resolved, "non_torch", "driver memory beyond torch")
    if resolved.profile.accounting != "context":
        return found
    context = driver_context(resolved)
    return Component(
        name="non_torch",
        low=found.low + context.low,
        best=found.best + context.best,
        high=found.high + context.high,
        evidence=context.evidence,
        formula=f"{found.formula} + {context.formula}",
        source=f"{found.source}; {context.source}",
    )


def communicators(model: Model, resolved: Resolved) -> Component:
    """NCCL and the all-reduce kernels, less what a link saves."""
    return _table(model, resolved, "nccl_outside", "communicators set up before the first snapshot")


def _all_reduce_saved(model: Model, resolved: Resolved) -> int:
    """Bytes of vLLM's own all-reduce, which exists with peer access only, when it is switched off."""
    where = situation_of(model, resolved)
    own = where.gpus > 1 and where.link in _PEERS
    return overhead("custom_all_reduce", where).best if own and resolved.asked.disable_custom_all_reduce else 0


def driver_context(resolved: Resolved) -> Component:
    """The CUDA context and what the driver loads beside it."""
    return context_component(resolved.asked.gpu or unnamed_gpu(resolved.gpu_memory_bytes))


def post_profile(model: Model, resolved: Resolved) -> Component:
    """What is taken after the profile, beside the pool: kernels, communicators, buffers made late."""
    config = model.spec.quantization_config
    card = resolved.asked.gpu
    if (
        config is not None
        and config.get("quant_method") == "mxfp4"
        and card is not None
        and card.architecture == "Hopper"
    ):
        version = parse_version(resolved.profile.version)
        if version[:2] == (0, 19):
            row = overhead("post_profile_mxfp4", situation_of(model, resolved))
            ways = resolved.asked.tensor_parallel_size
            return Component(
                name="post_profile",
                low=row.low // ways,
                best=row.best // ways,
                high=row.high // ways,
                evidence="measured",
                formula=f"warm-up of the MXFP4 expert kernels: {format_size(row.best)} / {ways} GPUs (n={row.n})",
                source=row.source,
            )
    return _table(model, resolved, "post_profile", "buffers made after profiling")


def penalty_buffers(model: Model, resolved: Resolved) -> tuple[int, str]:
    """The V2 runner's penalty counters: int32 and one bit for every request and word."""
    cells = resolved.max_num_seqs * model.spec.vocab_size
    return 4 * cells + cells // 8, f"{resolved.max_num_seqs:,} x {model.spec.vocab_size:,} x (4 + 1/8)"


def consumed_extra(model: Model, resolved: Resolved, kept: tuple[Term, ...]) -> Component:
    """What "consumed" accounting counts beside weights and driver memory (0.27 on).

    Buffers that the profile run leaves, the V2 runner's penalties, and rounding of segments.
    """
    extra = overhead("consumed_extra", situation_of(model, resolved))
    size = sum(term.size for term in kept)
    parts = [f"{term} GiB" for term in kept]
    if uses_v2_runner(model, resolved) and samples(model, resolved):
        penalties, counted = penalty_buffers(model, resolved)
        size += penalties
        parts.append(f"penalties {counted}")
    parts.append(f"segment rounding {format_size(extra.best)}")
    return Component(
        name="persistent_buffers",
        low=size + extra.low,
        best=size + extra.best,
        high=size + extra.high,
        evidence="derived",
        formula=" + ".join(parts),
        source=f"vLLM 0.28.0 utils/mem_utils.py; {PENALTIES_SOURCE}; {extra.source}",
    )
