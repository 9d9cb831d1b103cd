"""How fast a replica would be, by roofline: bytes read over bandwidth, operations over peak, kernels, messages.

    step     = max(weights read / bandwidth, operations / peak + weights unpacked / rate) + cache read / bandwidth
               + kernels (without graphs: what their launches take beyond the rest) + all-reduces + overhead
    prefill  = operations / peak, of the tokens' matrices and of attention, + weights unpacked once a tile of rows
               + all-reduces

Every figure has a low, best and high side, from the bands of `efficiency.csv`; "low" is the slow one. Bands of
different causes are independent: their distances from the best are added in quadrature. It is derived arithmetic, no
benchmark.

Symbols: B sequences in the batch, E experts of which each token uses k, t GPUs of a tensor-parallel group.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, sqrt
from typing import Any, Final

from planner.contract.component import SIDES, Side
from planner.errors import UsageError
from planner.hardware.gpus import Gpu
from planner.hardware.links import link_of, reach_of
from planner.model.kinds.attention import Attention
from planner.model.kinds.latent import LatentAttention
from planner.serving.efficiency import band
from planner.serving.step_cost import StepCost, native_type, prompt_costs, step_costs, work_of

# one all-reduce after attention and one after the feed-forward (vLLM linear.py RowParallelLinear)
_REDUCTIONS: Final = 2
# rows of a tile that share one unpacking of the weights (cutlass and marlin tiles of a large batch)
_ROWS_OF_A_TILE: Final = 256
# up to this batch a step of any listed card reads for longer than it multiplies, so that the peak need not be known
_SMALL_BATCH: Final = 8

_Sides = dict[Side, float]
_MEMORY, _COMPUTE, _LATENCY = "memory bandwidth", "compute", "latency"


@dataclass(frozen=True, slots=True, kw_only=True)
class Seconds:
    """A time: low is the slow side, high the fast one, and what bounds it at best.

    Args:
        bound: "memory bandwidth", "compute" or "latency": the largest part of the best estimate.
    """

    low: float
    best: float
    high: float
    bound: str

    def at(self, side: str) -> float:
        """Seconds at one side."""
        return {"low": self.low, "best": self.best, "high": self.high}[side]


class _Terms:
    """Seconds by cause, each with its low, best and high side."""

    def __init__(self) -> None:
        self.parts: dict[str, list[float]] = {}

    def add(self, cause: str, at: _Sides, times: float = 1.0) -> None:
        """Adds a term; terms of one cause add directly."""
        part = self.parts.setdefault(cause, [0.0, 0.0, 0.0])
        for index, side in enumerate(SIDES):
            part[index] += at[side] * times

    def take(self, other: _Terms, times: float) -> None:
        """Adds another's terms so many times."""
        for cause, values in other.parts.items():
            self.add(cause, dict(zip(SIDES, values, strict=True)), times)

    def seconds(self) -> Seconds:
        """The sum, distances of independent causes in quadrature."""
        best = sum(part[1] for part in self.parts.values())
        slower = sqrt(sum((part[0] - part[1]) ** 2 for part in self.parts.values()))
        faster = sqrt(sum((part[1] - part[2]) ** 2 for part in self.parts.values()))
        by_bound: dict[str, float] = {}
        for cause, part in self.parts.items():
            bound = cause if cause in (_MEMORY, _COMPUTE) else _LATENCY
            by_bound[bound] = by_bound.get(bound, 0.0) + part[1]
        bound = max(by_bound, key=lambda name: by_bound[name])
        return Seconds(low=best + slower, best=best, high=best - faster, bound=bound)


def decode_step(plan: Any, *, sequences: int, context: int) -> Seconds:
    """Seconds between two tokens of each of `sequences` requests that hold `context` tokens.

    Raises:
        UsageError: the card's bandwidth is not listed, or its peak where a batch needs it.
    """
    return _step(plan, sequences, context).seconds()


def prefill(plan: Any, *, tokens: int) -> Seconds:
    """Seconds to read a prompt of `tokens` tokens that has the replica to itself.

    Operations of the matrices, and of attention: 4 x width of the query heads x the token pairs that are attended to.

    Raises:
        UsageError: the card's bandwidth or peak is not listed.
    """
    return _prompt(plan, tokens).seconds()


def requests_per_second(plan: Any, *, sequences: int, input_tokens: int, output_tokens: int) -> Seconds:
    """Finished requests a second with `sequences` always running; low, best and high are rates here.

        B / (output x step + B x prefill)

    While one request decodes, the prompts of the B others are read once each; the context of a step is the mean.
    """
    terms = _Terms()
    terms.take(_step(plan, sequences, input_tokens + output_tokens // 2), output_tokens)
    terms.take(_prompt(plan, input_tokens), sequences)
    total = terms.seconds()
    return Seconds(
        low=sequences / total.low, best=sequences / total.best, high=sequences / total.high, bound=total.bound
    )


def _step(plan: Any, sequences: int, context: int) -> _Terms:
    gpu, terms = _card(plan), _Terms()
    bandwidth = _bandwidth(gpu)
    for cost in step_costs(plan, sequences=sequences, context=context):
        memory = {side: cost.weight_bytes / (bandwidth * band("memory_bandwidth").at(side)) for side in SIDES}
        cache = {side: cost.cache_bytes / (bandwidth * band("memory_bandwidth").at(side)) for side in SIDES}
        compute = _compute(plan, gpu, cost, rows=sequences)
        longer = {side: max(memory[side], compute[side]) for side in SIDES}
        terms.add(_COMPUTE if compute["best"] > memory["best"] else _MEMORY, longer)
        terms.add(_MEMORY, cache)
        _add_latencies(terms, plan, gpu, cost, {side: longer[side] + cache[side] for side in SIDES})
    terms.add("step", {side: band("step_overhead").at(side) / 1e3 for side in SIDES})
    return terms


def _add_latencies(terms: _Terms, plan: Any, gpu: Gpu, cost: StepCost, busy: _Sides) -> None:
    """Kernels and all-reduces; without graphs the host launches beside what the card does, and the longer counts."""
    kernels = {side: cost.kernels * band("kernel_time").at(side) / 1e6 for side in SIDES}
    if not work_of(plan).graphs:
        launches = {side: cost.kernels * band("launch_time").at(side) / 1e6 for side in SIDES}
        kernels = {side: max(kernels[side], launches[side] - busy[side]) for side in SIDES}
    terms.add("kernels", kernels)
    for cause, each in _all_reduce(plan, gpu, cost.message_bytes).items():
        terms.add(cause, each, cost.layers * _REDUCTIONS)


def _prompt(plan: Any, tokens: int) -> _Terms:
    gpu, terms = _card(plan), _Terms()
    peak = _peak(gpu, "fp16")
    if peak is None:
        raise UsageError(
            f"--gpu {gpu.id}: the table has no matrix throughput for it, so no prefill can be derived", field="gpu"
        )
    work = work_of(plan)
    attention = _attention_operations(plan, tokens) // work.ways
    for cost in prompt_costs(plan, tokens=tokens):
        terms.add(_COMPUTE, _compute(plan, gpu, cost, rows=tokens))
        for cause, each in _all_reduce(plan, gpu, cost.message_bytes).items():
            terms.add(cause, each, cost.layers * _REDUCTIONS)
    terms.add(_COMPUTE, {side: attention / (peak * band("matrix_throughput").at(side)) for side in SIDES})
    step = _step(plan, 1, 1)  # every weight is read once and every kernel runs once, whatever the prompt
    return terms if terms.seconds().best > step.seconds().best else step


def _compute(plan: Any, gpu: Gpu, cost: StepCost, *, rows: int) -> _Sides:
    """Seconds of the matrix units, and of unpacking weights once for each tile of rows."""
    native = native_type(plan, gpu)
    peak = _peak(gpu, "fp16")
    if peak is None:
        if rows > _SMALL_BATCH:
            raise UsageError(
                f"--gpu {gpu.id}: the table has no matrix throughput for it, so no speed of a batch of {rows} can be"
                " derived",
                field="gpu",
            )
        return dict.fromkeys(SIDES, 0.0)
    fast = (_peak(gpu, native) if native else None) or peak
    unpacked = cost.unpacked * ceil(rows / _ROWS_OF_A_TILE)
    found: _Sides = {}
    for side in SIDES:
        share = band("matrix_throughput").at(side)
        found[side] = (cost.plain_operations / peak + cost.native_operations / fast) / share
        if unpacked and gpu.sm_count:
            found[side] += unpacked / (gpu.sm_count * band("unpack_rate").at(side) * 1e9)
    return found


def _attention_operations(plan: Any, tokens: int) -> int:
    total = 0
    for layer in plan.model.spec.layers:
        for mixer in layer.mixers:
            if isinstance(mixer, Attention):
                span = mixer.sliding_window or mixer.attention_chunk_size or tokens
                pairs = tokens * min(span, tokens) if span < tokens else tokens * (tokens + 1) // 2
                total += 4 * pairs * mixer.query_size
            elif isinstance(mixer, LatentAttention):
                width = mixer.num_attention_heads * (mixer.head_dim + mixer.v_head_dim)
                total += 2 * tokens * (tokens + 1) // 2 * width
    return total


def _all_reduce(plan: Any, gpu: Gpu, message_bytes: int) -> dict[str, _Sides]:
    """Seconds of one ring all-reduce by cause: 2 (t - 1) / t x message over the link, and a latency; one GPU: none."""
    ways = work_of(plan).ways
    if ways == 1:
        return {}
    asked = getattr(plan.deployment, "interconnect", None) or "auto"
    link, reach = link_of(gpu, asked), reach_of(gpu, asked)
    if link is None:
        raise UsageError(
            f"--gpu {gpu.id}: the table has no link between cards for it, so tensor parallel has no speed", field="gpu"
        )
    kind = {"nvlink": "nvlink", "xgmi": "nvlink", "peer": "peer", "none": "host"}[reach]
    steps = 2 * (ways - 1)
    moved = steps / ways * message_bytes
    latency = band(f"allreduce_latency_{kind}")
    share = band(f"link_bandwidth_{kind}")
    times = steps if kind == "host" else 1
    return {
        "link": {side: moved / (link.bytes_per_second * share.at(side)) for side in SIDES},
        "message": {side: times * latency.at(side) / 1e6 for side in SIDES},
    }


def _card(plan: Any) -> Gpu:
    gpu: Gpu | None = plan.deployment.gpu
    if gpu is None:
        raise UsageError("a speed needs a named card: pass --gpu NAME", field="gpu")
    return gpu


def _bandwidth(gpu: Gpu) -> int:
    if gpu.bandwidth_bytes_per_second is None:
        raise UsageError(
            f"--gpu {gpu.id}: the table has no memory bandwidth for it, so no speed can be derived", field="gpu"
        )
    return gpu.bandwidth_bytes_per_second


def _peak(gpu: Gpu, kind: str) -> int | None:
    """Dense operations a second in a type, None where the table has none."""
    return gpu.dense_ops(kind)  # type: ignore[arg-type]
