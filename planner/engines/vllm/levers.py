"""What could be changed about a serving plan, as levers with their values, in order of cost."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.resources import files
from typing import Final

from planner.contract.component import total
from planner.contract.engine import Layout
from planner.contract.lever import Kind, Lever, Value, kinds
from planner.engines.vllm.budget.graphs import capture_sizes
from planner.engines.vllm.deployment import Deployment
from planner.engines.vllm.plan import VllmPlan
from planner.engines.vllm.stages import tensor_parallel_sizes
from planner.engines.vllm.tables.flags import version_has
from planner.hardware.gpus import Gpu
from planner.memory.parallel.node import fewest_cards_first
from planner.model.kinds.feed_forward import Moe
from planner.model.model import Model
from planner.units import GIB

TABLE: Final = "planner.engines.vllm.tables:levers.csv"

# Assumed: GPUs of one node; the shortest context, the smallest batch and the fewest sequences worth proposing.
_NODE: Final = 8
_MOST_STAGES: Final = 16
_FEWEST_SEQUENCES: Final = 8
_SHORTEST_CONTEXT: Final = 1024
_SMALLEST_BATCH: Final = 512


def serving_levers(plan: VllmPlan) -> Iterator[Lever]:
    """The levers that apply to a plan, cheapest first; values mildest first."""
    yield from _fraction(plan)
    yield from _graphs(plan)
    yield from _batch(plan)
    yield from _images(plan)
    yield from _length(plan)
    yield from _cache_format(plan)
    yield from _weights(plan)
    yield from _cards(plan)
    yield from _offload(plan)


def _kind(name: str) -> Kind:
    return kinds(TABLE)[name]


def _fraction(plan: VllmPlan) -> Iterator[Lever]:
    """The memory fraction, up or down to the largest that leaves room for what lives outside it (all terms high)."""
    resolved = plan.resolved
    if resolved.asked.kv_cache_memory_bytes is not None:
        return
    card = resolved.gpu_memory_bytes
    outside = max(total(stage.outside, "high") for stage in plan.stages)
    present = round(resolved.gpu_memory_utilization * 100, 6)
    most = min(math.floor((card - outside + resolved.asked.safety_margin_bytes) / card * 100 - 1e-9), 99)
    if most > present:
        percents: Iterable[int] = range(math.floor(present) + 1, most + 1)
        phase = "cache sizing"
        detail = "the engine takes more; the rest of the card still holds graphs, warm-up and context"
    else:
        percents = range(math.ceil(present) - 1, max(most, 1) - 1, -1)
        phase = "graph capture and run time"
        detail = "the engine takes less, so that what is allocated outside its fraction has room"
    yield Lever(
        kind=_kind("gpu-memory-utilization"),
        before=f"{resolved.gpu_memory_utilization:g}",
        values=tuple(percent / 100 for percent in percents),
        changes=lambda value: {"gpu_memory_utilization": value},
        flag=lambda value: f"--gpu-memory-utilization {value:g}",
        detail=detail,
        phase=phase,
        # its values depend on what other changes leave outside it
        renew=lambda other: next(_fraction(other), None),
        helps=lambda before: _goes_the_right_way(before, rises=most > present),
    )


def _goes_the_right_way(plan: VllmPlan, *, rises: bool) -> bool:
    """The fraction's move goes to the side that is short: down is no help while the cache itself does not fit."""
    if plan.verdict != "does_not_fit":
        return True
    error = plan.startup_error
    outside_short = plan.outside.free_bytes < 0 or (
        error is not None and error.kind in ("free_memory", "outside_budget")
    )
    return rises != outside_short


def _graphs(plan: VllmPlan) -> Iterator[Lever]:
    sizes = capture_sizes(plan.model, plan.resolved)
    if not sizes:
        return
    version = plan.resolved.profile.version
    if version_has("--max-cudagraph-capture-size", version) and plan.resolved.asked.cudagraph_capture_sizes is None:
        yield Lever(
            kind=_kind("max-cudagraph-capture-size"),
            before=str(sizes[-1]),
            values=_powers_below(sizes[-1], 1),
            changes=lambda value: {"max_cudagraph_capture_size": value},
            flag=lambda value: f"--max-cudagraph-capture-size {value}",
        )
    yield Lever(
        kind=_kind("enforce-eager"),
        before=f"{len(sizes)} sizes",
        values=("none",),
        changes=lambda value: {"enforce_eager": True},
        flag=lambda value: "--enforce-eager",
    )


def _batch(plan: VllmPlan) -> Iterator[Lever]:
    resolved = plan.resolved
    yield Lever(
        kind=_kind("max-num-seqs"),
        before=str(resolved.max_num_seqs),
        values=_powers_below(resolved.max_num_seqs, max(plan.workload.concurrency, _FEWEST_SEQUENCES)),
        changes=lambda value: {"max_num_seqs": value},
        flag=lambda value: f"--max-num-seqs {value}",
    )
    chunked = resolved.asked.enable_chunked_prefill
    if chunked is False or (resolved.profile.batch_defaults == "v0" and not chunked):
        return  # the whole prompt is one batch
    floor = max(_SMALLEST_BATCH, resolved.max_num_seqs)
    yield Lever(
        kind=_kind("max-num-batched-tokens"),
        before=str(resolved.max_num_batched_tokens),
        values=_powers_below(resolved.max_num_batched_tokens, floor),
        changes=lambda value: {"max_num_batched_tokens": value},
        flag=lambda value: f"--max-num-batched-tokens {value}",
    )


def _images(plan: VllmPlan) -> Iterator[Lever]:
    asked, version = plan.resolved.asked, plan.resolved.profile.version
    towers = any(stack.tokens_per_item for stack in plan.model.spec.stacks)
    if not towers or asked.language_model_only or asked.limit_images == 0:
        return
    if version_has("--skip-mm-profiling", version) and not asked.skip_mm_profiling:
        yield Lever(
            kind=_kind("skip-mm-profiling"),
            before="profiled",
            values=("skipped",),
            changes=lambda value: {"skip_mm_profiling": True},
            flag=lambda value: "--skip-mm-profiling",
        )
    before = "no limit" if asked.limit_images is None else str(asked.limit_images)
    if asked.limit_images is None or asked.limit_images > 1:
        yield Lever(
            kind=_kind("limit-mm-per-prompt"),
            before=before,
            values=(1,),
            changes=lambda value: {"limit_mm_per_prompt": f'{{"image": {value}}}'},
            flag=lambda value: f"--limit-mm-per-prompt '{{\"image\": {value}}}'",
        )
    yield Lever(
        kind=_kind("language-model-only"),
        before=before,
        values=(0,),
        changes=lambda value: {"limit_mm_per_prompt": f'{{"image": {value}}}'},
        flag=lambda value: f"--limit-mm-per-prompt '{{\"image\": {value}}}'",
    )


def _length(plan: VllmPlan) -> Iterator[Lever]:
    resolved = plan.resolved
    concurrency, length = plan.workload.concurrency, resolved.max_model_len
    yield Lever(
        kind=_kind("concurrency"),
        before=str(concurrency),
        values=range(concurrency - 1, 0, -1),
        changes=lambda value: {"concurrency": value},
        flag=lambda value: f"--concurrency {value}",
    )
    # what was stated must stay servable: never below the longest request, up to it where it is refused
    stated = max((point.tokens_per_request for point in plan.points if point.at != "max_model_len"), default=0)
    if length < stated <= plan.positions:
        yield Lever(
            kind=_kind("max-model-len-raised"),
            before=str(length),
            values=(stated,),
            changes=lambda value: {"max_model_len": value},
            flag=lambda value: f"--max-model-len {value}",
        )
    most = length - 1 if resolved.asked.allow_long_max_model_len else min(length - 1, plan.positions)
    yield Lever(
        kind=_kind("max-model-len"),
        before=str(length),
        values=range(most, max(_SHORTEST_CONTEXT, stated) - 1, -1),
        changes=lambda value: {"max_model_len": value},
        flag=lambda value: f"--max-model-len {value}",
    )


def _cache_format(plan: VllmPlan) -> Iterator[Lever]:
    asked = plan.resolved.asked
    if asked.kv_cache_dtype not in ("auto", "bfloat16", "float16", "float32"):
        return
    capability = asked.gpu.capability if asked.gpu else None
    ampere = capability is not None and capability < (8, 9)
    detail = "keys and values in 8 bit; what weights are stored in does not change"
    if ampere:
        detail += " (e5m2: this card has no e4m3, which needs compute capability 8.9)"
    name = "fp8_e5m2" if ampere else "fp8"
    yield Lever(
        kind=_kind("kv-cache-dtype"),
        before=plan.cache_format.name,
        values=(name,),
        changes=lambda value: {"kv_cache_dtype": value},
        flag=lambda value: f"--kv-cache-dtype {value}",
        detail=detail,
    )


def _weights(plan: VllmPlan) -> Iterator[Lever]:
    asked = plan.resolved.asked
    if plan.model.spec.quantization_config is not None or plan.model.stored or asked.quantization is not None:
        return  # a quantised checkpoint is served as it is
    for bits in (8, 4):
        choice = weight_choice(bits, asked.gpu)
        yield Lever(
            kind=_kind(f"quantization-{bits}bit"),
            before=plan.scheme.label,
            values=(choice["name"],),
            changes=lambda value: {"quantization": value},
            flag=lambda value: f"--quantization {value}",
            detail=choice["detail"],
        )


def weight_choice(bits: int, gpu: Gpu | None) -> dict[str, str]:
    """The ready format of that many bits for a card: its name for --quantization, and what it needs.

    A card without a known compute capability gets the newest that all current cards have.
    """
    capability = gpu.capability if gpu else None
    asked = capability or (8, 9)
    for row in _choices():
        if int(row["bits"]) == bits and _pair(row["first_capability"]) <= asked <= _pair(row["last_capability"]):
            return row
    raise AssertionError(f"weight_choices.csv leaves out {bits} bits at {asked}")


def _pair(text: str) -> tuple[int, int]:
    major, _, minor = text.partition(".")
    return int(major), int(minor)


@cache
def _choices() -> tuple[dict[str, str], ...]:
    text = files("planner.engines.vllm.tables").joinpath("weight_choices.csv").read_text("utf-8")
    return tuple(csv.DictReader(text.splitlines()))


def _cards(plan: VllmPlan) -> Iterator[Lever]:
    asked, model = plan.resolved.asked, plan.model
    sizes = tensor_parallel_sizes(model, largest=_NODE)
    yield Lever(
        kind=_kind("tensor-parallel-size"),
        before=str(asked.tensor_parallel_size),
        values=tuple(size for size in sizes if size > asked.tensor_parallel_size),
        changes=lambda value: {"tensor_parallel_size": value},
        flag=lambda value: f"--tensor-parallel-size {value}",
    )
    stages = min(_NODE, len(model.spec.layers))
    yield Lever(
        kind=_kind("pipeline-parallel-size"),
        before=str(asked.pipeline_parallel_size),
        values=tuple(range(asked.pipeline_parallel_size + 1, stages + 1)),
        changes=lambda value: {"pipeline_parallel_size": value},
        flag=lambda value: f"--pipeline-parallel-size {value}",
    )
    experts = any(isinstance(layer.feed_forward, Moe) for layer in model.spec.layers)
    version = plan.resolved.profile.version
    if experts and not asked.enable_expert_parallel and version_has("--enable-expert-parallel", version):
        yield Lever(
            kind=_kind("enable-expert-parallel"),
            before=f"{asked.data_parallel_size} engines, experts cut",
            values=tuple(ways for ways in (2, 4, _NODE) if ways > asked.data_parallel_size),
            changes=lambda value: {"data_parallel_size": value, "enable_expert_parallel": True},
            flag=lambda value: f"--data-parallel-size {value} --enable-expert-parallel",
            after=lambda value: f"{value} engines, experts whole",
        )


def _offload(plan: VllmPlan) -> Iterator[Lever]:
    weights = plan.budget.component("weights")
    assert weights is not None
    present = plan.resolved.asked.cpu_offload_bytes // GIB
    yield Lever(
        kind=_kind("cpu-offload-gb"),
        before=str(present),
        values=range(present + 1, present + weights.best // GIB + 1),
        changes=lambda value: {"cpu_offload_bytes": int(value) * GIB},
        flag=lambda value: f"--cpu-offload-gb {value}",
    )


def layouts(model: Model, deployment: Deployment) -> Iterator[Layout]:
    """Every layout: tensor parallel within a node, pipeline stages beyond, fewest cards first."""
    sizes = tensor_parallel_sizes(model, largest=_NODE)
    deepest = min(_MOST_STAGES, len(model.spec.layers))
    for ways, stages in fewest_cards_first(sizes, deepest):
        yield Layout(
            cards=ways * stages * deployment.data_parallel_size,
            stages=stages,
            changes={"tensor_parallel_size": ways, "pipeline_parallel_size": stages},
        )


def _powers_below(present: int, floor: int) -> tuple[Value, ...]:
    """Powers of two below `present`, largest first, down to the first that is at least `floor`."""
    top = (present - 1).bit_length() - 1 if present > 1 else -1
    return tuple(1 << bit for bit in range(top, -1, -1) if floor <= 1 << bit < present)
