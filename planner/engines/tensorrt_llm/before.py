"""What a card holds before TensorRT-LLM makes its cache: context, communicators, weights, buffers, a step's peak.

Engines: the execution context, runtime buffers and the decoder are allocated first and free memory is read after them.
PyTorch: a dry run of max_num_tokens tokens gives the peak.

Source: docs/source/reference/memory.md of TensorRT-LLM 0.14 to 1.0; _torch/pyexecutor/_util.py 0.17 to 1.2.
"""

from __future__ import annotations

from typing import Final

from planner.contract.assumed import labelled
from planner.contract.component import Component
from planner.engines.tensorrt_llm.tables.releases import measured_bytes
from planner.hardware.gpus import Gpu
from planner.hardware.links import link_of
from planner.memory.context import context_component
from planner.memory.layer_peak import widest_layer_bytes
from planner.memory.parallel.sharding import Parallelism
from planner.memory.quantisation import WeightScheme, plain_scheme, scheme_from_config, scheme_from_name
from planner.memory.schemes.stored_scheme import scheme_from_stored
from planner.memory.weights import StageWeights, stage_weights
from planner.model.model import Model
from planner.units import format_size

_BYTES: Final = 2
# a compiled engine reuses its buffers, eager layers keep more names alive
_SPREAD: Final = (0.5, 1.8)
# decoder of a batch x beam x vocabulary in fp32: two logs show 0.7 and 6 times that
_DECODER: Final = (0.7, 1.0, 6.0)


def scheme_of(
    model: Model, dtype: str, quantization: str | None, *, group_size: int | None = None, quantize_lm_head: bool = False
) -> WeightScheme:
    """How the weights are stored: the checkpoint's own scheme, or the export that was asked for.

    Raises:
        UnsupportedQuantization: a format that is not understood.
    """
    stored = scheme_from_stored(model)
    if stored is not None:
        return stored
    if model.spec.quantization_config is not None:
        return scheme_from_config(model.spec, dtype=dtype)
    if quantization is not None:
        return scheme_from_name(
            quantization, model.spec, dtype=dtype, group_size=group_size, quantize_lm_head=quantize_lm_head
        )
    return plain_scheme(dtype)


def before_cache(
    model: Model,
    gpu: Gpu,
    scheme: WeightScheme,
    run: slice,
    *,
    first: bool,
    last: bool,
    tensor_parallel_size: int,
    pipeline_parallel_size: int,
    expert_parallel_size: int,
    attention_data_parallel: bool,
    max_num_tokens: int,
    max_batch_size: int,
    max_beam_width: int,
    backend: str,
    already_used_bytes: int,
) -> tuple[Component, ...]:
    """Every term on the fullest card of a stage.

    Raises:
        UsageError: a tensor that the cards cannot share.
    """
    parallelism = spread_of(tensor_parallel_size, expert_parallel_size, attention_data_parallel=attention_data_parallel)
    weights = weights_of(model, scheme, parallelism, run, first=first, last=last)
    parts = [context_component(gpu), _communicators(gpu, tensor_parallel_size * pipeline_parallel_size)]
    if already_used_bytes:
        parts.append(_fixed("other_processes", already_used_bytes, "given by the user", "--already-used"))
    parts.append(
        _fixed(
            "weights",
            weights.total_bytes,
            f"{weights.numel:,} elements as {scheme.label} = {weights.total_bytes:,}",
            "config.json",
        )
    )
    rows = max_batch_size * max_beam_width
    parts.append(
        _activations(model, tokens=max_num_tokens, rows=rows if last else 0, parallel_size=tensor_parallel_size)
    )
    if backend == "tensorrt":
        low, best, high, source = measured_bytes("runtime.csv", term="runtime_buffers")
        parts.append(
            Component(
                name="runtime_buffers",
                low=low,
                best=best,
                high=high,
                evidence="measured",
                formula=f"input and output buffers: {format_size(best)} (n=2)",
                source=source,
            )
        )
        if last:
            parts.append(_decoder(rows, model.spec.vocab_size))
    return labelled(parts, model.spec.assumed)


def spread_of(tensor_parallel_size: int, expert_parallel_size: int, *, attention_data_parallel: bool) -> Parallelism:
    """How the cards of a stage share the model."""
    return Parallelism(
        tensor_parallel_size=1 if attention_data_parallel else tensor_parallel_size,
        data_parallel_size=tensor_parallel_size if attention_data_parallel else 1,
        enable_expert_parallel=expert_parallel_size > 1,
    )


def graphs_of(backend: str) -> tuple[Component, ...]:
    """What is captured beside the cache."""
    if backend == "tensorrt":
        return ()
    low, best, high, source = measured_bytes("runtime.csv", term="cuda_graphs")
    return (
        Component(
            name="cuda_graphs",
            low=low,
            best=best,
            high=high,
            evidence="assumed",
            formula=f"decode graphs: {format_size(best)}",
            source=source,
        ),
    )


def weights_of(
    model: Model, scheme: WeightScheme, parallelism: Parallelism, run: slice, *, first: bool, last: bool
) -> StageWeights:
    """Weights of the fullest card of a stage."""
    key = ("tensorrt-llm weights", scheme.label, parallelism, run.start, run.stop, first, last)
    found = model.memo.get(key)
    if not isinstance(found, StageWeights):
        found = stage_weights(model.spec, scheme, parallelism, layers=run, first=first, last=last)
        model.memo[key] = found
    return found


def _fixed(name: str, size_bytes: int, formula: str, source: str) -> Component:
    return Component(
        name=name, low=size_bytes, best=size_bytes, high=size_bytes, evidence="exact", formula=formula, source=source
    )


def _communicators(gpu: Gpu, cards: int) -> Component:
    link = link_of(gpu)
    kind = "nvlink" if link is not None and link.kind == "nvlink" else "pcie"
    low, best, high, source = measured_bytes(
        "communication.csv", cards="one" if cards == 1 else "many", link="any" if cards == 1 else kind
    )
    return Component(
        name="communication_buffers",
        low=low,
        best=best,
        high=high,
        evidence="assumed",
        formula=f"process groups over {cards} card{'s' if cards > 1 else ''}: {format_size(best)}",
        source=source,
    )


def _activations(model: Model, *, tokens: int, rows: int, parallel_size: int) -> Component:
    widest = widest_layer_bytes(
        model.spec.layers, model.spec.hidden_size, tokens=tokens, parallel_size=parallel_size, element_bytes=_BYTES
    )
    logits = min(rows, tokens) * model.spec.vocab_size * (_BYTES + 4)
    best = max(widest, logits)
    low, high = (round(best * factor) for factor in _SPREAD)
    return Component(
        name="activation_peak",
        low=low,
        best=best,
        high=high,
        evidence="derived",
        formula=f"the larger of widest layer on {tokens:,} tokens: {format_size(widest)}; logits"
        f" {min(rows, tokens):,} x {model.spec.vocab_size:,} x ({_BYTES} + 4)",
        source="_torch/pyexecutor/_util.py: a dry run of max_num_tokens; runtime execution context of engines",
    )


def _decoder(rows: int, vocabulary: int) -> Component:
    size = rows * vocabulary * 4
    low, best, high = (round(size * factor) for factor in _DECODER)
    return Component(
        name="decoder",
        low=low,
        best=best,
        high=high,
        evidence="measured",
        formula=f"{rows:,} rows (batch x beam) x {vocabulary:,} x 4 B (n=2)",
        source="TensorRT-LLM logs of 0.14 to 0.15: 0.18 GiB and, with a large batch x beam, 4.05 GiB",
    )
