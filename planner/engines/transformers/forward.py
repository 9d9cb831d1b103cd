"""Plain transformers: what one forward pass, or `generate`, takes on one GPU.

    peak = weights + cache + embedding output + the fullest of (MLP, attention, head)

T is batch_size x input_len, b the bytes of an element, L the keys that a query sees.

    MLP         T x (3I + 2H) x b                      act(gate), up and their product, input and residual
    eager       heads x T x L x (b + 4 [+ 4]) + T x (2Q + 2K) x b
                scores, their fp32 softmax and, but for float16, the fp32 copy that it is taken of
    SDPA        T x (3Q + 2K) x b                      no matrix of scores
    head        rows x V x b + T x H x b               rows: every position, or the last of each sequence

Sources: transformers 4.57 `models/llama/modeling_llama.py`, `cache_utils.py` (the dynamic cache is exact in size and is
joined layer by layer); torch `aten/src/ATen/native/SoftMax.cpp`: only half input is converted inside the kernel.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from planner.contract.assumed import labelled
from planner.contract.component import Component, exact
from planner.hardware.contexts import cuda_context
from planner.hardware.cublas import cublas_workspace
from planner.hardware.gpus import Gpu
from planner.memory.cache.kv_cache import LayerCache
from planner.memory.quantisation import WeightScheme
from planner.model.kinds.attention import Attention
from planner.model.kinds.feed_forward import Mlp, Moe
from planner.model.model import Model
from planner.model.spec import Layer
from planner.units import format_size, gib

ELEMENT_BYTES: Final = {"bfloat16": 2, "float16": 2, "float32": 4}


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One forward (output_len 0) or `generate`, every default applied.

    Args:
        cache: "dynamic" grows, "static" is made for input_len + output_len at once, "none" keeps nothing.
        logits: "all" positions (a bare forward) or the "last" of each sequence (generate).
    """

    gpu: Gpu
    dtype: str
    batch_size: int
    input_len: int
    output_len: int
    attention: str
    cache: str
    logits: str


def components_of(
    model: Model, run: Run, caches: tuple[LayerCache, ...], weights_bytes: int, scheme: WeightScheme
) -> tuple[Component, ...]:
    """What the run holds on its GPU at its fullest moment.

    Args:
        weights_bytes: of every tensor as the scheme stores it.
    """
    element, hidden = ELEMENT_BYTES[run.dtype], model.spec.hidden_size
    tokens = run.batch_size * run.input_len
    embedded = tokens * hidden * element
    prefill_cache, final_cache = _cache_bytes(run, caches)
    fullest, formula, spread = _forward(model, run, element)
    joined = 0
    if run.cache == "dynamic" and run.output_len:
        # the last join: a layer's new keys beside the old ones
        joined = max(
            (entry.sequence_bytes(run.input_len + run.output_len) // entry.count for entry in caches), default=0
        )
        joined = joined * run.batch_size
    transient = max(prefill_cache + embedded + fullest, final_cache + joined) - final_cache
    context = cuda_context(run.gpu)
    workspace = cublas_workspace(run.gpu)
    weights = exact("weights", weights_bytes, f"every tensor as {scheme.label} = {weights_bytes:,}", "config.json")
    parts = (
        weights,
        exact(
            "kv_cache",
            final_cache,
            f"{run.batch_size} sequences of {run.input_len + run.output_len:,} tokens, {run.cache} cache",
            "transformers 4.57 cache_utils.py",
        ),
        Component(
            name="forward_peak",
            low=round(transient * (1 - spread)),
            best=transient,
            high=round(transient * (1 + spread)),
            evidence="derived",
            formula=f"{formula} + embedding output {tokens:,} x {hidden:,} x {element};"
            f" together {gib(embedded + fullest)} GiB; beyond the final cache {format_size(transient)}",
            source="transformers 4.57 modeling_llama.py; torch ATen/native/cuda",
        ),
        exact("cublas_workspace", workspace.size_bytes, workspace.formula, workspace.source),
        Component(
            name="allocator_rounding",
            low=0,
            best=0,
            high=max(transient, 0) // 10,
            evidence="assumed",
            formula="blocks that torch's allocator keeps: up to a tenth of what comes and goes",
            source="assumed",
        ),
        Component(
            name="context",
            low=context.low_bytes,
            best=context.best_bytes,
            high=context.high_bytes,
            evidence=context.evidence,
            formula=f"CUDA context of one process: {format_size(context.best_bytes)} (n={context.count})",
            source=context.source,
        ),
    )
    return labelled(parts, model.spec.assumed)


def _cache_bytes(run: Run, caches: tuple[LayerCache, ...]) -> tuple[int, int]:
    """(held during prefill, held at the end)."""
    if run.cache == "none":
        return 0, 0
    final = run.batch_size * sum(entry.sequence_bytes(run.input_len + run.output_len) for entry in caches)
    if run.cache == "static":
        return final, final
    return run.batch_size * sum(entry.sequence_bytes(run.input_len) for entry in caches), final


def _forward(model: Model, run: Run, element: int) -> tuple[int, str, float]:
    """(bytes, arithmetic, spread) of the fullest moment of prefill, beside weights, cache and embedding output."""
    tokens, spec = run.batch_size * run.input_len, model.spec
    found: list[tuple[int, str, float]] = []
    for layer in {id(layer): layer for layer in spec.layers}.values():
        found += _layer(layer, spec.hidden_size, run, element)
    if spec.decoder:
        count = tokens if run.logits == "all" else run.batch_size
        size = (count * spec.vocab_size + tokens * spec.hidden_size) * element
        formula = f"logits {count:,} x {spec.vocab_size:,} x {element} + {tokens:,} x {spec.hidden_size:,} x {element}"
        found.append((size, formula, 0.02))
    return max(found, default=(0, "nothing", 0.0))


def _layer(layer: Layer, hidden: int, run: Run, element: int) -> Iterable[tuple[int, str, float]]:
    tokens, block = run.batch_size * run.input_len, layer.feed_forward
    if isinstance(block, Mlp):
        inner = block.intermediate_size
        size = tokens * ((3 if block.gated else 2) * inner + 2 * hidden) * element
        yield size, f"MLP {tokens:,} x ({3 if block.gated else 2} x {inner:,} + 2 x {hidden:,}) x {element}", 0.1
    elif isinstance(block, Moe):
        busy = -(-tokens * block.num_experts_per_tok // block.num_experts)
        inner = block.moe_intermediate_size
        shared = block.shared.intermediate_size if block.shared is not None else 0
        size = (tokens * (4 * hidden + 3 * shared) + busy * (3 * inner + 2 * hidden)) * element
        size += tokens * block.num_experts * 8
        yield (
            size,
            f"MoE {tokens:,} x (4 x {hidden:,} + 3 x {shared:,}) x {element} + one expert's {busy:,} tokens",
            0.3,
        )
    for mixer in layer.mixers:
        assert isinstance(mixer, Attention)
        query, key = mixer.query_size, mixer.key_size
        if run.attention != "eager":
            size = tokens * (3 * query + 2 * key + 2 * hidden) * element
            yield size, f"attention {tokens:,} x (3 x {query:,} + 2 x {key:,} + 2 x {hidden:,}) x {element}", 0.1
            continue
        copies = element + 4 + (4 if run.dtype == "bfloat16" else 0)
        scores = mixer.num_attention_heads * tokens * run.input_len
        size = scores * copies + tokens * (3 * query + 2 * key + 2 * hidden) * element
        size += run.input_len * run.input_len * element
        formula = f"eager attention {mixer.num_attention_heads} x {tokens:,} x {run.input_len:,} x {copies}"
        yield size, f"{formula} + {tokens:,} x (3 x {query:,} + 2 x {key:,} + 2 x {hidden:,}) x {element}", 0.1
