"""What one step costs a card, counted: bytes read, operations, weights unpacked, kernels, messages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from planner.errors import UsageError
from planner.hardware.gpus import Gpu
from planner.memory.cache.kv_cache import sequence_cost
from planner.memory.formats import Plain
from planner.memory.quantisation import quantises_inputs
from planner.memory.work import StageWork, Work
from planner.model.kinds.attention import Attention
from planner.model.kinds.feed_forward import Moe
from planner.model.kinds.latent import LatentAttention
from planner.model.tensor import Role
from planner.serving.efficiency import kernels_of

_TOWERS: Final = (Role.VISION, Role.AUDIO, Role.PROJECTOR, Role.POSITION, Role.DRAFT)
# rows that a matrix instruction works on at least: wgmma m64 (PTX ISA, Hopper), mma m16n8k16 before and beside it;
# kernels of packed weights put the batch on the side of eight (vLLM marlin)
_HOPPER: Final = "9."
_ROWS_HOPPER: Final = 64
_ROWS: Final = 16
_ROWS_PACKED: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCost:
    """What one step of a batch costs the fullest GPU of one pipeline stage.

    Args:
        weight_bytes: weights read; of experts the expected share that the batch touches.
        cache_bytes: cache read.
        operations: multiply-adds of the tokens, twice.
        plain_operations, native_operations: what the matrix units are given, short rows padded: in 16 bit, and in the
            type of the weights where the card multiplies in it.
        unpacked: packed weights that are turned into 16 bit before they are multiplied.
        layers: layers run. kernels: kernels launched.
        message_bytes: one all-reduce.
    """

    weight_bytes: int
    cache_bytes: int
    operations: int
    plain_operations: int
    native_operations: int
    unpacked: int
    layers: int
    kernels: int
    message_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrices:
    """Elements of a stage's matrices on one card: (plain, quantised), of what every token uses and of the experts."""

    dense: tuple[int, int]
    experts: tuple[int, int]
    head: tuple[int, int]
    num_experts: int
    experts_per_token: int


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
        raise UsageError(f"speeds are not derived for --engine {plan.engine} with this placement", field="engine")
    return work


def step_costs(plan: Any, *, sequences: int, context: int) -> tuple[StepCost, ...]:
    """The cost of one decode step with `sequences` at `context` tokens, stage by stage."""
    work = work_of(plan)
    return tuple(
        _cost(plan, work, stage, rows=sequences, logits=sequences, sequences=sequences, context=context)
        for stage in work.stages
    )


def prompt_costs(plan: Any, *, tokens: int) -> tuple[StepCost, ...]:
    """The cost of reading one prompt, stage by stage: logits are made of its last token alone."""
    work = work_of(plan)
    return tuple(_cost(plan, work, stage, rows=tokens, logits=1, sequences=0, context=1) for stage in work.stages)


def native_type(plan: Any, gpu: Gpu | None) -> str | None:
    """The type that quantised matrices multiply in: "fp4", "fp8" or "int8"; None where weights are unpacked first."""
    scheme = work_of(plan).scheme
    if scheme.assignment is None or not scheme.assignment.formats or gpu is None:
        return None
    name = scheme.assignment.formats[0].name
    if name.startswith("nvfp4") and gpu.supports_fp4:
        return "fp4"
    if not quantises_inputs(scheme):
        return None
    if name.startswith("fp8"):
        return "fp8" if gpu.supports_fp8 else None
    return "int8"


def _cost(plan: Any, work: Work, stage: StageWork, *, rows: int, logits: int, sequences: int, context: int) -> StepCost:
    spec, gpu = plan.model.spec, plan.deployment.gpu
    last = stage is work.stages[-1]
    matrices = _matrices(plan, work, stage)
    native = native_type(plan, gpu)
    packed = native is None and bool(matrices.dense[1] or matrices.experts[1])
    touched = distinct_experts(matrices.num_experts, matrices.experts_per_token, rows) if matrices.num_experts else 0.0
    share = touched / matrices.num_experts if matrices.num_experts else 0.0
    least = _ROWS_HOPPER if (gpu and (gpu.compute_capability or "").startswith(_HOPPER)) else _ROWS
    each = rows * matrices.experts_per_token / touched if touched else 0.0

    def given(kind: int, tile: int) -> int:
        dense = max(rows, tile) * matrices.dense[kind] + max(logits, tile) * matrices.head[kind] * last
        experts = share * matrices.experts[kind] * max(each, min(tile, _ROWS))
        return round(2 * (dense + experts))

    quantised = given(1, _ROWS_PACKED if packed else least)
    plain = given(0, least)
    active = sum(matrices.dense) * rows + sum(matrices.head) * logits * last
    if matrices.num_experts:
        active += sum(matrices.experts) * matrices.experts_per_token // matrices.num_experts * rows
    roles = dict(stage.weights)
    read = sum(size for role, size in roles.items() if role not in (*_TOWERS, Role.EMBEDDING, Role.EXPERT))
    if spec.tie_word_embeddings and last:
        read += roles.get(Role.EMBEDDING, 0)  # the head's matrix
    return StepCost(
        weight_bytes=read + round(roles.get(Role.EXPERT, 0) * share),
        cache_bytes=sequences * sequence_cost(stage.caches, context).total_bytes,
        operations=2 * active,
        plain_operations=plain + (quantised if native is None else 0),
        native_operations=quantised if native is not None else 0,
        unpacked=round(matrices.dense[1] + matrices.experts[1] * share) if packed else 0,
        layers=len(spec.layers[stage.layers]),
        kernels=sum(_kernels(layer) for layer in spec.layers[stage.layers])
        + (len(spec.layers[stage.layers]) * kernels_of("quantised_input") if native is not None else 0),
        message_bytes=rows * spec.hidden_size * work.element_bytes,
    )


def _kernels(layer: Any) -> int:
    found = sum(
        kernels_of(
            "attention"
            if isinstance(mixer, Attention)
            else "latent_attention"
            if isinstance(mixer, LatentAttention)
            else "recurrent"
        )
        for mixer in layer.mixers
    )
    if layer.feed_forward is not None:
        found += kernels_of("moe" if isinstance(layer.feed_forward, Moe) else "mlp")
    return found


def _matrices(plan: Any, work: Work, stage: StageWork) -> Matrices:
    """The stage's matrices; kept with the model, which many plans share."""
    spec, scheme = plan.model.spec, work.scheme
    key = ("matrices", scheme.label, work.ways, stage.layers.start, stage.layers.stop)
    kept = plan.model.memo.get(key)
    if isinstance(kept, Matrices):
        return kept
    dense, experts = [0, 0], [0, 0]
    count, used = 0, 0
    seen: dict[int, tuple[tuple[int, int], tuple[int, int]]] = {}
    start = stage.layers.indices(len(spec.layers))[0]
    for at, layer in enumerate(spec.layers[stage.layers], start=start):
        if id(layer) not in seen:
            seen[id(layer)] = _of_layer(layer, spec, scheme, at)
        for kind in (0, 1):
            dense[kind] += seen[id(layer)][0][kind]
            experts[kind] += seen[id(layer)][1][kind]
        block = layer.feed_forward
        if isinstance(block, Moe) and block.num_experts > count:  # the layers with the most experts speak for all
            count, used = block.num_experts, min(block.num_experts_per_tok, block.num_experts)
    found = Matrices(
        dense=(dense[0] // work.ways, dense[1] // work.ways),
        experts=(experts[0] // work.ways, experts[1] // work.ways),
        head=_head(spec, scheme, work.ways),
        num_experts=count,
        experts_per_token=used,
    )
    plan.model.memo[key] = found
    return found


def _of_layer(layer: Any, spec: Any, scheme: Any, at: int) -> tuple[tuple[int, int], tuple[int, int]]:
    dense, experts = [0, 0], [0, 0]
    for tensor in layer.tensors(spec.hidden_size):
        if tensor.linear:
            quantised = not isinstance(scheme.format_of(tensor.named(f"{spec.layer_prefix}.{at}")), Plain)
            (experts if tensor.num_experts else dense)[quantised] += tensor.numel
    return (dense[0], dense[1]), (experts[0], experts[1])


def _head(spec: Any, scheme: Any, ways: int) -> tuple[int, int]:
    size = spec.vocab_size * spec.hidden_size // ways
    matrix = next((tensor for tensor in spec.head if tensor.role is Role.LM_HEAD), None)
    quantised = matrix is not None and not isinstance(scheme.format_of(matrix), Plain)
    return (0, size) if quantised else (size, 0)
