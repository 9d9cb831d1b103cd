"""CUDA graphs: which batch sizes are captured, how many graphs that makes, and what they take.

Sources: vLLM `config/compilation.py`, `config/vllm.py` (_set_cudagraph_sizes) 0.8.5 to 0.33.0; `worker/model_runner.py`
for V0. What a graph takes is measured (planner/engines/vllm/tables/overhead.csv).
"""

from __future__ import annotations

from typing import Final

from planner.contract.component import Component
from planner.engines.vllm.budget.runner import distinct, situation_of
from planner.engines.vllm.resolve import Resolved
from planner.engines.vllm.tables.overhead import Situation, overhead
from planner.engines.vllm.tables.profile import parse_version
from planner.model.kinds.feed_forward import Moe
from planner.model.model import Model
from planner.units import format_size

FIRST_GRAPH_PROBE: Final = (0, 18, 0)
_LARGEST: Final = 512
_LARGEST_GPT_OSS: Final = 1024


def capture_sizes(model: Model, resolved: Resolved) -> tuple[int, ...]:
    """The batch sizes that this version captures, in tokens; empty with --enforce-eager."""
    asked = resolved.asked
    if asked.enforce_eager or not model.spec.decoder:
        return ()
    if asked.cudagraph_capture_sizes is not None:
        return asked.cudagraph_capture_sizes
    sequences, rule = resolved.max_num_seqs, resolved.profile.graph_sizes
    small = [1, 2, 4, *range(8, 256, 8)]
    if rule == "v0":
        return tuple(size for size in [*small, 256] if size <= sequences)
    if rule.startswith("v1_67"):
        largest = _LARGEST if rule == "v1_67" else min(2 * sequences, _LARGEST)
        return tuple(size for size in [1, 2, 4, *range(8, _LARGEST + 1, 8)] if size <= largest)
    limit = _LARGEST_GPT_OSS if model.spec.model_type == "gpt_oss" or _is_blackwell(resolved, rule) else _LARGEST
    largest = asked.max_cudagraph_capture_size or min(2 * sequences * (1 + asked.draft_tokens), limit)
    largest = min(largest, resolved.max_num_batched_tokens)
    return tuple(size for size in [*small, *range(256, largest + 1, 16)] if size <= largest)


def graph_count(model: Model, resolved: Resolved) -> int:
    """Graphs captured: one a size, and a second set of full graphs for decode batches from 0.11.

    With LoRA slots every graph is captured once with and once without adapters (cudagraph_specialize_lora, 0.11 on).
    """
    sizes = capture_sizes(model, resolved)
    if resolved.profile.graph_mode != "full_and_piecewise":
        return len(sizes)
    sets = 2 if resolved.asked.lora_slots else 1
    return sets * (len(sizes) + sum(1 for size in sizes if size <= resolved.max_num_seqs))


def graph_components(model: Model, resolved: Resolved, layers: slice) -> tuple[Component, Component] | None:
    """(the engine's estimate, what graphs really take) on one GPU, or None without graphs.

    A base and a share for each layer, in proportion to the number of graphs.
    """
    count = graph_count(model, resolved)
    if not count:
        return None
    moe = any(isinstance(layer.feed_forward, Moe) for layer in distinct(model.spec.layers[layers]))
    version = parse_version(resolved.profile.version)
    where = situation_of(model, resolved)
    actual = _component(where, "graph", count, len(model.spec.layers[layers]), moe=moe and version >= (0, 11, 0))
    if version < FIRST_GRAPH_PROBE:
        return actual, actual
    estimate = _component(where, "graph_estimate", count, len(model.spec.layers[layers]), moe=moe)
    return estimate, actual


def _component(where: Situation, kind: str, count: int, layers: int, *, moe: bool) -> Component:
    base = overhead(f"{kind}_base", where)
    each = overhead(f"{kind}_layer_moe" if moe else f"{kind}_layer", where)
    nominal = base.per

    def size(fixed: int, share: int) -> int:
        return (fixed + layers * share) * count // nominal

    return Component(
        name="cuda_graphs",
        low=size(base.low, each.low),
        best=size(base.best, each.best),
        high=size(base.high, each.high),
        evidence="measured",
        formula=f"({format_size(base.best)} + {layers} layers x {format_size(each.best)}) x {count} / {nominal} graphs",
        source=f"{each.source} (n={each.n})",
    )


def _is_blackwell(resolved: Resolved, rule: str) -> bool:
    card = resolved.asked.gpu
    capability = card.capability if card else None
    return rule == "v2" and capability is not None and capability[0] == 10
