"""What could be changed about a plan of SGLang, as levers with their values, in order of cost."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from planner.contract.engine import Layout
from planner.contract.lever import Kind, Lever, Value, kinds
from planner.engines.sglang.budget.defaults import decode_graph_sizes
from planner.engines.sglang.deployment import Deployment
from planner.engines.sglang.plan import SglangPlan
from planner.memory.parallel.node import dividing_sizes, fewest_cards_first
from planner.model.model import Model
from planner.units import GIB

TABLE: Final = "planner.engines.sglang.tables:levers.csv"

# Assumed: GPUs of one node; the shortest context, the smallest chunk and the fewest requests worth proposing.
_NODE: Final = 8
_SIZES: Final = tuple(range(1, _NODE + 1))
_MOST_STAGES: Final = 16
_SHORTEST_CONTEXT: Final = 1024
_SMALLEST_CHUNK: Final = 512
# what a card without a known compute capability is taken for
_ANY_CAPABILITY: Final = (8, 9)


def serving_levers(plan: SglangPlan) -> Iterator[Lever]:
    """The levers that apply to a plan, cheapest first; values mildest first."""
    yield from _fraction(plan)
    yield from _graphs(plan)
    yield from _chunk(plan)
    yield from _requests(plan)
    yield from _states(plan)
    yield from _length(plan)
    yield from _cache_format(plan)
    yield from _weights(plan)
    yield from _cards(plan)
    yield from _offload(plan)


def _lever(name: str, before: object, values: Iterable[Value], field: str, **more: object) -> Lever:
    """A lever that sets one input to a value, flagged as its own name."""
    return Lever(
        kind=_kind(name),
        before=str(before),
        values=tuple(values),
        changes=lambda value: {field: value},
        flag=lambda value: f"--{name} {value}",
        **more,  # type: ignore[arg-type]
    )


def _kind(name: str) -> Kind:
    return kinds(TABLE)[name]


def _fraction(plan: SglangPlan) -> Iterator[Lever]:
    """To where the asked requests fit in the pools, or to where what lives beside them fits."""
    present, fractions = plan.resolved.mem_fraction_static, plan.fractions()
    least, greatest = fractions.least, fractions.greatest
    thousandths = round(present * 1000)
    if least is not None and least > present:
        last = round((greatest if greatest is not None and greatest >= least else least) * 1000)
        values: Iterable[int] = range(round(least * 1000), last + 1, 5)
        detail = "the pools want more than the static share leaves them"
    elif greatest is not None and greatest < present:
        values = range(min(round(greatest * 1000), thousandths - 1), 0, -5)
        detail = "the engine takes less, so that graphs and requests have room beside it"
    else:
        return
    yield _lever(
        "mem-fraction-static",
        f"{present:.3g}",
        (value / 1000 for value in values),
        "mem_fraction_static",
        detail=detail,
        renew=lambda other: next(_fraction(other), None),
    )


def _graphs(plan: SglangPlan) -> Iterator[Lever]:
    resolved = plan.resolved
    if not resolved.graphs:
        return
    present = resolved.graph_max_batch
    yield _lever("cuda-graph-max-bs", present, _powers_below(present, 1), "cuda_graph_max_bs")
    sizes = decode_graph_sizes(present, speculative=resolved.drafts is not None)
    yield Lever(
        kind=_kind("disable-cuda-graph"),
        before=f"{sizes} sizes",
        values=("none",),
        changes=lambda value: {"disable_cuda_graph": True},
        flag=lambda value: "--disable-cuda-graph",
    )


def _chunk(plan: SglangPlan) -> Iterator[Lever]:
    present = plan.resolved.chunked_prefill_size
    if present > 0:
        ranks = plan.resolved.spread.attention_ranks
        values = _powers_below(present * ranks, _SMALLEST_CHUNK * ranks)
        yield _lever("chunked-prefill-size", present * ranks, values, "chunked_prefill_size")


def _requests(plan: SglangPlan) -> Iterator[Lever]:
    asked, pools = plan.deployment, plan.pools
    if pools.states is not None and not asked.disable_radix_cache:
        yield Lever(
            kind=_kind("disable-radix-cache"),
            before="prefixes kept",
            values=("off",),
            changes=lambda value: {"disable_radix_cache": True},
            flag=lambda value: "--disable-radix-cache",
        )
    values = _powers_below(pools.requests.count, max(1, plan.workload.concurrency))
    yield _lever("max-running-requests", pools.requests.count, values, "max_running_requests")


def _states(plan: SglangPlan) -> Iterator[Lever]:
    if plan.pools.states is not None and plan.deployment.mamba_ssm_dtype in (None, "float32"):
        yield _lever("mamba-ssm-dtype", "float32", ("bfloat16",), "mamba_ssm_dtype")


def _length(plan: SglangPlan) -> Iterator[Lever]:
    concurrency, length = plan.workload.concurrency, plan.max_model_len
    yield _lever("concurrency", concurrency, range(concurrency - 1, 0, -1), "concurrency")
    stated = max((point.tokens_per_request for point in plan.points if point.at != "max_model_len"), default=0)
    most = min(length - 1, plan.positions)
    values = range(most, max(_SHORTEST_CONTEXT, stated) - 1, -1)
    yield Lever(
        kind=_kind("context-length"),
        before=str(length),
        values=values,
        changes=lambda value: {"context_length": value},
        flag=lambda value: f"--context-length {value}",
    )


def _cache_format(plan: SglangPlan) -> Iterator[Lever]:
    if plan.resolved.cache_format.name not in ("bfloat16", "float16", "float32"):
        return
    ampere = (plan.resolved.gpu.capability or _ANY_CAPABILITY) < (8, 9)
    yield _lever(
        "kv-cache-dtype", plan.resolved.cache_format.name, ("fp8_e5m2" if ampere else "fp8_e4m3",), "kv_cache_dtype"
    )


def _weights(plan: SglangPlan) -> Iterator[Lever]:
    asked = plan.deployment
    if plan.model.spec.quantization_config is not None or plan.model.stored or asked.quantization is not None:
        return  # a quantised checkpoint is served as it is
    eight = "fp8" if (plan.resolved.gpu.capability or _ANY_CAPABILITY) >= (8, 9) else "w8a16"
    for name, value in (("quantization-8bit", eight), ("quantization-4bit", "awq")):
        yield Lever(
            kind=_kind(name),
            before=plan.scheme.label,
            values=(value,),
            changes=lambda value: {"quantization": value},
            flag=lambda value: f"--quantization {value}",
        )


def _cards(plan: SglangPlan) -> Iterator[Lever]:
    asked = plan.deployment
    sizes = [size for size in dividing_sizes(plan.model, _SIZES) if size > asked.tp_size]
    yield _lever("tp-size", asked.tp_size, sizes, "tp_size")
    stages = min(_NODE, len(plan.model.spec.layers))
    yield _lever("pp-size", asked.pp_size, range(asked.pp_size + 1, stages + 1), "pp_size")


def _offload(plan: SglangPlan) -> Iterator[Lever]:
    weights, present = plan.budget.stage.static[0].best, plan.deployment.cpu_offload_bytes // GIB
    yield Lever(
        kind=_kind("cpu-offload-gb"),
        before=str(present),
        values=range(present + 1, present + weights // GIB + 1),
        changes=lambda value: {"cpu_offload_bytes": int(value) * GIB},
        flag=lambda value: f"--cpu-offload-gb {value}",
    )


def layouts(model: Model, deployment: Deployment) -> Iterator[Layout]:
    """Every layout: tensor parallel within a node, pipeline stages beyond, fewest cards first."""
    deepest = min(_MOST_STAGES, len(model.spec.layers))
    replicas = 1 if deployment.enable_dp_attention else deployment.dp_size
    for ways, stages in fewest_cards_first(dividing_sizes(model, _SIZES), deepest):
        yield Layout(cards=ways * stages * replicas, stages=stages, changes={"tp_size": ways, "pp_size": stages})


def _powers_below(present: int, floor: int) -> tuple[int, ...]:
    """Powers of two below `present`, largest first, down to the first that is at least `floor`."""
    top = (present - 1).bit_length() - 1 if present > 1 else -1
    return tuple(1 << bit for bit in range(top, -1, -1) if floor <= 1 << bit < present)
