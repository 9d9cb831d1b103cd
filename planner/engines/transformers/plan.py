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

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final

from planner.contract.component import SIDES, Component, exact
from planner.errors import UnsupportedArchitecture, UsageError
from planner.hardware.contexts import blas_workspace, cuda_context
from planner.hardware.gpus import Gpu
from planner.memory.cache_formats import cache_format
from planner.memory.kv_cache import LayerCache, SequenceCost, layer_caches, sequence_cost
from planner.memory.quantisation import WeightScheme, plain_scheme, scheme_from_config, scheme_from_name
from planner.model.kinds.attention import Attention
from planner.model.kinds.feed_forward import Mlp, Moe
from planner.model.model import Model
from planner.model.spec import Layer
from planner.model.tensors import tensors
from planner.units import format_size, gib

ATTENTION: Final = ("sdpa", "flash_attention_2", "eager")
CACHES: Final = ("dynamic", "static", "none")
_ELEMENT_BYTES: Final = {"bfloat16": 2, "float16": 2, "float32": 4}
_MOST_TOKENS: Final = 1 << 24


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainRun:
    """One forward (output_len 0) or `generate`.

    Args:
        cache: "dynamic" grows, "static" is made for input_len + output_len at once, "none" keeps nothing.
        logits: "all" positions (a bare forward) or the "last" of each sequence (generate).
    """

    gpu: Gpu
    gpu_memory_bytes: int
    dtype: str = "auto"
    quantization: str | None = None
    group_size: int | None = None
    batch_size: int = 1
    input_len: int = 2048
    output_len: int = 0
    attention: str = "sdpa"
    cache: str = "dynamic"
    logits: str = "all"

    def __post_init__(self) -> None:
        for name, least in (("batch_size", 1), ("input_len", 1), ("output_len", 0)):
            value = getattr(self, name)
            if not least <= value <= _MOST_TOKENS:
                raise UsageError(f"--{name.replace('_', '-')} is {value}; expected {least} or more", field=name)
        for name, known in (("attention", ATTENTION), ("cache", CACHES), ("logits", ("all", "last"))):
            if getattr(self, name) not in known:
                raise UsageError(
                    f"{name} is {str(getattr(self, name))[:40]!r}; expected {', '.join(known)}", field=name
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainPlan:
    """The answer, in bytes on one GPU.

    Args:
        allocated_bytes: what torch.cuda.max_memory_allocated would say.
        device_bytes: with the context, at best estimates.
        longest_input: tokens of input that fit at this batch; largest_batch: sequences that fit at this length.
    """

    model: Model
    run: PlainRun
    dtype: str
    scheme: WeightScheme
    components: tuple[Component, ...]
    sequence: SequenceCost
    caches: tuple[LayerCache, ...]
    allocated_bytes: int
    device_bytes: int
    host_bytes: int
    longest_input: int
    largest_batch: int
    verdict: str
    shortfall_bytes: int
    notes: tuple[str, ...]


def plan_plain(model: Model, run: PlainRun) -> PlainPlan:
    """Plan one run.

    Raises:
        UnsupportedArchitecture: a kind of block whose forward in plain transformers is not described here.
        UnsupportedQuantization: a storage format that is not understood.
        UsageError: a dtype that is not one.
    """
    for layer in model.spec.layers:
        for mixer in layer.mixers:
            if not isinstance(mixer, Attention):
                raise UnsupportedArchitecture(
                    f"--engine transformers: the forward of {type(mixer).__name__} is not described; use --engine vllm",
                    field="engine",
                )
    dtype = run.dtype if run.dtype != "auto" else (model.spec.dtype or "bfloat16")
    if dtype not in _ELEMENT_BYTES:
        raise UsageError(f"--dtype is {dtype[:40]!r}; expected auto, bfloat16, float16 or float32", field="dtype")
    scheme = _scheme(model, run, dtype)
    caches = layer_caches(model.spec.layers, cache_format("auto", dtype), state_dtype=dtype)
    weights = sum(scheme.format_of(tensor).bytes(tensor.shape, tensor.input_dim) for tensor in tensors(model.spec))
    components = _components(model, run, dtype, caches, weights, scheme)
    need = {side: sum(part.at(side) for part in components) for side in SIDES}
    total = run.gpu_memory_bytes
    verdict = "fits" if need["high"] <= total else "tight" if need["best"] <= total else "does_not_fit"
    context = next(part.best for part in components if part.name == "context")

    def fits(**changes: int) -> bool:
        parts = _components(model, replace(run, **changes), dtype, caches, weights, scheme)  # type: ignore[arg-type]
        return sum(part.best for part in parts) <= total

    return PlainPlan(
        model=model,
        run=run,
        dtype=dtype,
        scheme=scheme,
        components=components,
        sequence=sequence_cost(caches, run.input_len + run.output_len),
        caches=caches,
        allocated_bytes=need["best"] - context,
        device_bytes=need["best"],
        host_bytes=weights,
        longest_input=_largest(lambda size: fits(input_len=size)),
        largest_batch=_largest(lambda size: fits(batch_size=size)),
        verdict=verdict,
        shortfall_bytes=max(0, need["best"] - total),
        notes=(*model.spec.notes, *model.notes, *scheme.notes, *_notes(model, run)),
    )


def _scheme(model: Model, run: PlainRun, dtype: str) -> WeightScheme:
    if model.spec.quantization_config is not None:
        return scheme_from_config(model.spec, dtype=dtype)
    if run.quantization is not None:
        return scheme_from_name(run.quantization, model.spec, dtype=dtype, group_size=run.group_size)
    return plain_scheme(dtype)


def _notes(model: Model, run: PlainRun) -> Iterable[str]:
    if run.attention == "eager":
        yield "eager attention holds a matrix of scores for every head: it grows with the square of the length"
    if run.logits == "all" and run.output_len:
        yield "generate keeps the logits of the last position only; --logits-to-keep last plans that"
    if model.spec.stacks:
        yield "the towers' own forward is not in the peak: text alone is planned"


def _components(
    model: Model,
    run: PlainRun,
    dtype: str,
    caches: tuple[LayerCache, ...],
    weights: int,
    scheme: WeightScheme,
) -> tuple[Component, ...]:
    element, hidden = _ELEMENT_BYTES[dtype], model.spec.hidden_size
    tokens = run.batch_size * run.input_len
    embedded = tokens * hidden * element
    prefill_cache, final_cache = _cache_bytes(run, caches)
    fullest, formula, spread = _forward(model, replace(run, dtype=dtype), element)
    joined = 0
    if run.cache == "dynamic" and run.output_len:
        # the last join: a layer's new keys beside the old ones
        joined = max(
            (entry.sequence_bytes(run.input_len + run.output_len) // entry.count for entry in caches), default=0
        )
        joined = joined * run.batch_size
    transient = max(prefill_cache + embedded + fullest, final_cache + joined) - final_cache
    context = cuda_context(run.gpu)
    workspace = blas_workspace(run.gpu)
    return (
        exact("weights", weights, f"every tensor as {scheme.label} = {weights:,}", "config.json"),
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
            formula=f"{formula} + embedding output {tokens:,} x {hidden:,} x {element} = {gib(embedded + fullest)} GiB;"
            f" beyond the final cache {format_size(transient)}",
            source="transformers 4.57 modeling_llama.py; planner/engines/transformers/plan.py",
        ),
        exact("cublas_workspace", workspace, "fixed", "ATen/cuda/CUDABlas.cpp"),
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


def _cache_bytes(run: PlainRun, caches: tuple[LayerCache, ...]) -> tuple[int, int]:
    """(held during prefill, held at the end)."""
    if run.cache == "none":
        return 0, 0
    final = run.batch_size * sum(entry.sequence_bytes(run.input_len + run.output_len) for entry in caches)
    if run.cache == "static":
        return final, final
    return run.batch_size * sum(entry.sequence_bytes(run.input_len) for entry in caches), final


def _forward(model: Model, run: PlainRun, element: int) -> tuple[int, str, float]:
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


def _layer(layer: Layer, hidden: int, run: PlainRun, element: int) -> Iterable[tuple[int, str, float]]:
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


def _largest(fits: Callable[[int], bool]) -> int:
    """The largest size that fits; 0 if none does."""
    low, high = 0, 1
    while high < _MOST_TOKENS and fits(high):
        low, high = high, high * 2
    while high - low > 1:
        middle = (low + high) // 2
        if fits(middle):
            low = middle
        else:
            high = middle
    return low
