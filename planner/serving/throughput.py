"""How fast a replica would be, by roofline: bytes read a step over bandwidth, operations over peak.

    step     = max(weights read / bandwidth, operations / peak) + cache read / bandwidth + layers x latency + all-reduce
    prefill  = operations / peak, of the tokens' linear layers and of attention

Every figure has a low, best and high side, from the bands of `efficiency.csv`; "low" is the slow one. It is derived
arithmetic, no benchmark.

Symbols: B sequences in the batch, E experts of which each token uses k, t GPUs of a tensor-parallel group.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

from planner.contract.component import SIDES
from planner.errors import UsageError
from planner.hardware.gpus import Gpu
from planner.hardware.links import link_of
from planner.memory.cache.kv_cache import sequence_cost
from planner.memory.quantisation import quantises_inputs
from planner.memory.work import StageWork, Work
from planner.model.kinds.attention import Attention
from planner.model.kinds.feed_forward import Moe
from planner.model.kinds.latent import LatentAttention
from planner.model.tensor import Role
from planner.serving.efficiency import band

_TOWERS: Final = (Role.VISION, Role.AUDIO, Role.PROJECTOR, Role.POSITION, Role.DRAFT)
# one all-reduce after attention and one after the feed-forward (vLLM linear.py RowParallelLinear)
_REDUCTIONS: Final = 2


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


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCost:
    """What one decode step of a batch costs the fullest GPU of one pipeline stage.

    Args:
        weight_bytes: weights read; of experts the expected share that the batch touches.
        cache_bytes: cache read.
        operations: multiply-adds, twice.
        layers: layers run.
        message_bytes: one all-reduce.
    """

    weight_bytes: int
    cache_bytes: int
    operations: int
    layers: int
    message_bytes: int


def distinct_experts(num_experts: int, experts_per_token: int, tokens: int) -> float:
    """Expected distinct experts that a batch touches, each token drawing k of E alike: E x (1 - (1 - k/E)^B).

    8 of 128 for 10 tokens: 128 x (1 - (120/128)^10) = 60.9.
    """
    return num_experts * (1 - (1 - experts_per_token / num_experts) ** tokens)


def work_of(plan: Any) -> Work:
    """What a step of the plan reads and multiplies.

    Raises:
        UsageError: the engine does not say.
    """
    work = getattr(plan, "work", None)
    if not isinstance(work, Work):
        raise UsageError(f"speeds are not derived for --engine {plan.engine}", field="engine")
    return work


def step_costs(plan: Any, *, sequences: int, context: int) -> tuple[StepCost, ...]:
    """The cost of one decode step with `sequences` at `context` tokens, stage by stage."""
    work = work_of(plan)
    last = work.stages[-1]
    return tuple(
        _stage_cost(plan, work, stage, last=stage is last, sequences=sequences, context=context)
        for stage in work.stages
    )


def _stage_cost(plan: Any, work: Work, stage: StageWork, *, last: bool, sequences: int, context: int) -> StepCost:
    spec = plan.model.spec
    roles = dict(stage.weights)
    read = sum(size for role, size in roles.items() if role not in (*_TOWERS, Role.EMBEDDING, Role.EXPERT))
    if spec.tie_word_embeddings and last:
        read += roles.get(Role.EMBEDDING, 0)  # the head's matrix
    read += round(roles.get(Role.EXPERT, 0) * _expert_share(plan, stage, sequences))
    return StepCost(
        weight_bytes=read,
        cache_bytes=sequences * sequence_cost(stage.caches, context).total_bytes,
        operations=sequences * _linear_operations(plan, work, stage, last=last),
        layers=len(spec.layers[stage.layers]),
        message_bytes=sequences * spec.hidden_size * work.element_bytes,
    )


def _expert_share(plan: Any, stage: StageWork, tokens: int) -> float:
    """Share of the expert weights that a batch touches, the layers with the most experts speaking for all."""
    blocks = [
        layer.feed_forward for layer in plan.model.spec.layers[stage.layers] if isinstance(layer.feed_forward, Moe)
    ]
    if not blocks:
        return 0.0
    widest = max(blocks, key=lambda block: block.num_experts)
    used = min(widest.num_experts_per_tok, widest.num_experts)
    return distinct_experts(widest.num_experts, used, tokens) / widest.num_experts


def _linear_operations(plan: Any, work: Work, stage: StageWork, *, last: bool) -> int:
    """Operations of one token in a stage's matrices on one GPU: twice the active weights, the head included."""
    spec = plan.model.spec
    key = ("linear operations", stage.layers.start, stage.layers.stop, last)
    active = plan.model.memo.get(key)
    if not isinstance(active, int):
        active = sum(
            tensor.active_numel
            for layer in spec.layers[stage.layers]
            for tensor in layer.tensors(spec.hidden_size)
            if tensor.linear
        )
        if last:
            active += spec.vocab_size * spec.hidden_size
        plan.model.memo[key] = active
    return 2 * int(active) // work.ways


def decode_step(plan: Any, *, sequences: int, context: int) -> Seconds:
    """Seconds between two tokens of each of `sequences` requests that hold `context` tokens.

    Raises:
        UsageError: the card's bandwidth or peak is not listed.
    """
    gpu = _card(plan)
    bandwidth, peak = _bandwidth(gpu), _peak(gpu, plan)
    costs = step_costs(plan, sequences=sequences, context=context)
    times = {}
    parts = {"memory bandwidth": 0.0, "compute": 0.0, "latency": 0.0}
    for side in SIDES:
        total = 0.0
        for cost in costs:
            memory = cost.weight_bytes / (bandwidth * band("memory_bandwidth").at(side))
            compute = cost.operations / (peak * band("matrix_throughput").at(side))
            cache = cost.cache_bytes / (bandwidth * band("memory_bandwidth").at(side))
            fixed = cost.layers * band("layer_latency").at(side) / 1000
            fixed += cost.layers * _REDUCTIONS * _all_reduce(plan, gpu, cost.message_bytes, side)
            total += max(memory, compute) + cache + fixed
            if side == "best":
                parts["compute" if compute > memory else "memory bandwidth"] += max(memory, compute)
                parts["memory bandwidth"] += cache
                parts["latency"] += fixed
        times[side] = total
    return Seconds(bound=max(parts, key=lambda name: parts[name]), **times)


def prefill(plan: Any, *, tokens: int) -> Seconds:
    """Seconds to read a prompt of `tokens` tokens that has the replica to itself.

    Operations of the matrices, and of attention: 4 x width of the query heads x the token pairs that are attended to.

    Raises:
        UsageError: the card's bandwidth or peak is not listed.
    """
    gpu = _card(plan)
    peak = _peak(gpu, plan)
    work = work_of(plan)
    last = work.stages[-1]
    operations = sum(_linear_operations(plan, work, stage, last=stage is last) for stage in work.stages) * tokens
    operations += _attention_operations(plan, tokens) // work.ways
    step = decode_step(plan, sequences=1, context=1)
    message = tokens * plan.model.spec.hidden_size * work.element_bytes
    layers = len(plan.model.spec.layers)
    times = {}
    for side in SIDES:
        compute = operations / (peak * band("matrix_throughput").at(side))
        reduce = layers * _REDUCTIONS * _all_reduce(plan, gpu, message, side)
        times[side] = max(compute + reduce, step.at(side))  # every weight is read once, whatever the prompt
    bound = "compute" if times["best"] > step.best else step.bound
    return Seconds(bound=bound, **times)


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


def requests_per_second(plan: Any, *, sequences: int, input_tokens: int, output_tokens: int) -> Seconds:
    """Finished requests a second with `sequences` always running; low, best and high are rates here.

        B / (output x step + B x prefill)

    While one request decodes, the prompts of the B others are read once each; the context of a step is the mean.
    """
    step = decode_step(plan, sequences=sequences, context=input_tokens + output_tokens // 2)
    read = prefill(plan, tokens=input_tokens)
    rates = {side: sequences / (output_tokens * step.at(side) + sequences * read.at(side)) for side in SIDES}
    reading = sequences * read.best > output_tokens * step.best
    return Seconds(bound="compute" if reading and read.bound == "compute" else step.bound, **rates)


def _all_reduce(plan: Any, gpu: Gpu, message_bytes: int, side: str) -> float:
    """Seconds of one ring all-reduce: 2 (t - 1) / t x message over the link, and a latency; 0 on one GPU."""
    ways = work_of(plan).ways
    if ways == 1:
        return 0.0
    link = link_of(gpu)
    if link is None:
        raise UsageError(
            f"--gpu {gpu.id}: the table has no link between cards for it, so tensor parallel has no speed", field="gpu"
        )
    moved = 2 * (ways - 1) / ways * message_bytes
    latency = band(f"allreduce_latency_{link.kind}").at(side) / 1e6
    return moved / (link.bytes_per_second * band("link_bandwidth").at(side)) + latency


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


def _peak(gpu: Gpu, plan: Any) -> int:
    """Dense operations a second at the type that the matrices multiply in."""
    kind: Literal["fp16", "fp8", "int8"] = "fp16"
    scheme = work_of(plan).scheme
    assignment = scheme.assignment
    if quantises_inputs(scheme) and assignment is not None:
        name = assignment.formats[0].name
        if name.startswith("fp8") and gpu.supports_fp8:
            kind = "fp8"
        elif name.startswith(("w8a8", "int8")):
            kind = "int8"
    peak = gpu.dense_ops(kind) or gpu.dense_ops("fp16")
    if peak is None:
        raise UsageError(
            f"--gpu {gpu.id}: the table has no matrix throughput for it, so no speed can be derived", field="gpu"
        )
    return peak
