"""What could be changed about a plan of TensorRT-LLM, as levers with their values, in order of cost."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from planner.contract.engine import Layout
from planner.contract.lever import Lever, Value, kinds
from planner.engines.tensorrt_llm.deployment import Deployment
from planner.engines.tensorrt_llm.fraction import fraction_bounds
from planner.engines.tensorrt_llm.plan import TensorrtLlmPlan
from planner.memory.parallel.node import dividing_sizes, fewest_cards_first
from planner.model.model import Model

TABLE: Final = "planner.engines.tensorrt_llm.tables:levers.csv"

# Assumed: GPUs of one node; the shortest context and the smallest batches worth proposing.
_NODE: Final = 8
_SIZES: Final = (1, 2, 4, 8)
_MOST_STAGES: Final = 16
_SHORTEST_CONTEXT: Final = 1024
_SMALLEST_TOKENS: Final = 1024


def serving_levers(plan: TensorrtLlmPlan) -> Iterator[Lever]:
    """The levers that apply to a plan, cheapest first; values mildest first."""
    asked, resolved, workload = plan.deployment, plan.resolved, plan.workload
    yield from _fraction(plan)
    yield _lever("max_num_tokens", resolved.max_num_tokens, _powers_below(resolved.max_num_tokens, _SMALLEST_TOKENS))
    yield _lever(
        "max_batch_size", resolved.max_batch_size, _powers_below(resolved.max_batch_size, workload.concurrency)
    )
    yield Lever(
        kind=kinds(TABLE)["concurrency"],
        before=str(workload.concurrency),
        values=range(workload.concurrency - 1, 0, -1),
        changes=lambda value: {"concurrency": value},
        flag=lambda value: f"--concurrency {value}",
    )
    stated = max((point.tokens_per_request for point in plan.points if point.at != "max_model_len"), default=0)
    most = min(plan.max_model_len - 1, plan.positions)
    yield _lever("max_seq_len", plan.max_model_len, range(most, max(_SHORTEST_CONTEXT, stated) - 1, -1))
    if resolved.cache_format.name in ("bfloat16", "float16", "float32"):
        yield _lever("kv_cache_dtype", resolved.cache_format.name, ("fp8",))
    if plan.model.spec.quantization_config is None and not plan.model.stored and asked.quantization is None:
        for name, value in (("quantization-8bit", "fp8"), ("quantization-4bit", "awq")):
            yield _lever(name, plan.scheme.label, (value,), field="quantization")
    sizes = tuple(size for size in dividing_sizes(plan.model, _SIZES) if size > asked.tp_size)
    yield _lever("tp_size", asked.tp_size, sizes)
    yield _lever("pp_size", asked.pp_size, range(asked.pp_size + 1, min(_NODE, len(plan.model.spec.layers)) + 1))


def _lever(name: str, before: object, values: Iterable[Value], *, field: str = "") -> Lever:
    field = field or name
    return Lever(
        kind=kinds(TABLE)[name],
        before=str(before),
        values=values if isinstance(values, range) else tuple(values),
        changes=lambda value: {field: value},
        flag=lambda value: f"--{field} {value}",
    )


def _fraction(plan: TensorrtLlmPlan) -> Iterator[Lever]:
    asked = plan.deployment
    if asked.cache_setting("free_gpu_memory_fraction") is not None:
        return
    present = asked.kv_cache_free_gpu_memory_fraction
    least, greatest = fraction_bounds(plan)
    if least is not None and least > present:
        last = max(least, greatest or least)
        values = [step / 100 for step in range(round(least * 100), round(last * 100) + 1)]
    elif greatest is not None and greatest < present:
        values = [step / 100 for step in range(round(greatest * 100), 0, -1)]
    else:
        return
    yield _lever("kv_cache_free_gpu_memory_fraction", f"{present:g}", values)


def layouts(model: Model, deployment: Deployment) -> Iterator[Layout]:
    """Tensor parallel within a node, pipeline stages beyond, fewest cards first."""
    del deployment
    deepest = min(_MOST_STAGES, len(model.spec.layers))
    for ways, stages in fewest_cards_first(dividing_sizes(model, _SIZES), deepest):
        yield Layout(cards=ways * stages, stages=stages, changes={"tp_size": ways, "pp_size": stages})


def _powers_below(present: int, floor: int) -> tuple[int, ...]:
    """Powers of two below `present`, largest first, down to the first that is at least `floor`."""
    top = (present - 1).bit_length() - 1 if present > 1 else -1
    return tuple(1 << bit for bit in range(top, -1, -1) if floor <= 1 << bit < present)
