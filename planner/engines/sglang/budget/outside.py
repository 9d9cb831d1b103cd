"""What has to fit beside the static share: request table, graphs, workspaces, a step's activations, late drafts.

None of it is in the budget: it comes out of (1 - fraction) x free memory before loading.
"""

from __future__ import annotations

from planner.contract.component import Component
from planner.engines.sglang.budget.activations import activation_peak, attention_workspace
from planner.engines.sglang.budget.defaults import decode_graph_sizes, prefill_graph_sizes
from planner.engines.sglang.budget.drafts import draft_weights
from planner.engines.sglang.budget.graphs import decode_graphs, prefill_graphs
from planner.engines.sglang.budget.requests import request_table_bytes
from planner.engines.sglang.budget.stages import Stage
from planner.engines.sglang.pool.pools import Pools
from planner.engines.sglang.resolve import Resolved
from planner.engines.sglang.tables.releases import rules_at
from planner.memory.quantisation import WeightScheme
from planner.model.kinds.feed_forward import Moe
from planner.model.model import Model


def outside_of(
    model: Model, resolved: Resolved, scheme: WeightScheme, stage: Stage, pools: Pools, *, last: bool
) -> tuple[Component, ...]:
    """Every term beside the budget on one card of a stage."""
    drafts = resolved.drafts
    table = request_table_bytes(
        pools.requests.count, resolved.context_length, draft_tokens=drafts.tokens if drafts else 0
    )
    chunk = resolved.chunked_prefill_size if resolved.chunked_prefill_size > 0 else resolved.asked.max_prefill_tokens
    tokens = min(chunk, resolved.context_length)
    parts = [
        Component(
            name="request_table",
            low=table,
            best=table,
            high=table,
            evidence="exact",
            formula=f"({pools.requests.count:,} + 1) requests x ({resolved.context_length:,} + 4) x 4 B = {table:,} B",
            source="SGLang 0.5.23 mem_cache/memory_pool.py ReqToTokenPool",
        ),
        attention_workspace(
            model.spec.model_type,
            backend=resolved.asked.attention_backend,
            deterministic=resolved.asked.enable_deterministic_inference,
        ),
        activation_peak(
            model,
            tokens=tokens,
            rows=min(resolved.graph_max_batch, max(1, pools.requests.count)),
            parallel_size=resolved.spread.tensor_parallel_size,
        ),
    ]
    if resolved.graphs:
        sizes = decode_graph_sizes(
            min(resolved.graph_max_batch, max(1, pools.requests.count)), speculative=drafts is not None
        )
        experts = any(isinstance(layer.feed_forward, Moe) for layer in model.spec.layers[:8])
        layers = len(model.spec.layers) // resolved.asked.pp_size
        parts.append(decode_graphs(sizes=sizes, layers=layers, experts=experts))
    if resolved.prefill_graph_tokens:
        parts.append(prefill_graphs(prefill_graph_sizes(resolved.release, resolved.prefill_graph_tokens)))
    late = last and rules_at(resolved.release)["draft_before_pool"] == "no"
    drafted = draft_weights(model, resolved, scheme) if late else None
    return (*parts, drafted) if drafted is not None else tuple(parts)
