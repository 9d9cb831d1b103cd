"""The plan of plain transformers: does one forward, or `generate`, fit on one GPU, and how large could it be."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final

from planner.contract.component import Component, exact, total
from planner.contract.inputs import check
from planner.contract.lengths import Lengths
from planner.contract.plan import Cache, Device, Load, ServingPlan, StartupError, Verdict, WorkloadPoint
from planner.contract.workload import ONE_REQUEST, Workload
from planner.engines.transformers.deployment import RELEASE, Deployment
from planner.engines.transformers.forward import ELEMENT_BYTES, Run, components_of
from planner.errors import UnsupportedArchitecture, UsageError
from planner.hardware.gpus import unnamed_gpu
from planner.memory.cache.formats import cache_format
from planner.memory.cache.kv_cache import LayerCache, layer_caches, sequence_cost
from planner.memory.quantisation import WeightScheme, plain_scheme, scheme_from_config, scheme_from_name
from planner.model.kinds.attention import Attention
from planner.model.model import Model
from planner.model.tensors import tensors
from planner.units import format_size

ENGINE: Final = "transformers"
_DTYPES: Final = {"half": "float16", "float": "float32"}
# assumed where neither the lengths nor max_model_len are given
_USUAL_INPUT: Final = 2048
_MOST_TOKENS: Final = 1 << 24


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class TransformersPlan(ServingPlan):
    """A plan with what torch would say of it, in bytes.

    Args:
        allocated_bytes: what torch.cuda.max_memory_allocated would say.
        device_bytes: with the context, at best estimates.
        longest_input: tokens of input that fit at this batch; largest_batch: sequences that fit at this length.
    """

    run: Run
    scheme: WeightScheme
    components: tuple[Component, ...]
    allocated_bytes: int
    device_bytes: int
    longest_input: int
    largest_batch: int


def plan_run(
    model: Model, deployment: Deployment, workload: Workload = ONE_REQUEST, *, notes: tuple[str, ...] = ()
) -> TransformersPlan:
    """Plan one run.

    Raises:
        UnsupportedArchitecture: a kind of block whose forward in plain transformers is not described here.
        UnsupportedQuantization: a storage format that is not understood.
        UsageError: an input out of range, lengths of more than one number.
    """
    check(deployment)
    check(workload)
    _check_blocks(model)
    run = _run(model, deployment, workload)
    scheme = _scheme(model, deployment, run.dtype)
    caches = layer_caches(model.spec.layers, cache_format("auto", run.dtype), state_dtype=run.dtype)
    weights = sum(scheme.format_of(tensor).bytes(tensor.shape, tensor.input_dim) for tensor in tensors(model.spec))
    used = deployment.already_used_bytes

    def parts_of(run: Run) -> tuple[Component, ...]:
        found = components_of(model, run, caches, weights, scheme)
        others = exact("other_processes", used, f"stated: {format_size(used)}", "--already-used")
        return (*found, others) if used else found

    def fits(**changes: int) -> bool:
        return total(parts_of(replace(run, **changes)), "best") <= memory  # type: ignore[arg-type]

    components, memory = parts_of(run), deployment.total_bytes
    high, best = total(components, "high"), total(components, "best")
    verdict: Verdict = "fits" if high <= memory else "tight" if best <= memory else "does_not_fit"
    length, positions = run.input_len + run.output_len, model.longest_request
    error = None
    if length > positions:
        text = f"{length:,} tokens are more than the model's {positions:,} positions"
        verdict, error = "refused", StartupError(kind="max_model_len", message=text, refused=True)
    sizes = {part.name: part.best for part in components}
    largest = _largest(lambda size: fits(batch_size=size))
    longest = min(_largest(lambda size: fits(input_len=size)), positions)
    device = Device(
        name=deployment.gpu.name if deployment.gpu else "card",
        kind="gpu",
        total_bytes=memory,
        components=components,
        cache_bytes=0,
        free_bytes=memory - best,
    )
    return TransformersPlan(
        model=model,
        deployment=deployment,
        workload=workload,
        engine=ENGINE,
        engine_version=RELEASE,
        resolved=run,
        devices=(device,),
        cache=_cache(caches, length, sizes["kv_cache"], batch_size=run.batch_size, largest=largest, longest=longest),
        max_model_len=length,
        positions=positions,
        points=(WorkloadPoint(at="all", tokens_per_request=length, concurrency=largest),),
        load=Load(gpu_peak_bytes=weights, host_bytes=weights),
        verdict=verdict,
        shortfall_bytes=max(0, best - memory) if verdict == "does_not_fit" else 0,
        startup_error=error,
        unknown=(),
        notes=(*notes, *model.spec.notes, *model.notes, *scheme.notes, *_notes(model, run)),
        run=run,
        scheme=scheme,
        components=components,
        allocated_bytes=best - sizes["context"] - used,
        device_bytes=best,
        longest_input=longest,
        largest_batch=largest,
    )


def _cache(
    caches: tuple[LayerCache, ...], length: int, reserved: int, *, batch_size: int, largest: int, longest: int
) -> Cache:
    cost = sequence_cost(caches, length)
    return Cache(
        bytes_per_token=cost.bytes_per_token,
        bytes_per_sequence=cost.total_bytes,
        window_bytes_per_sequence=cost.window_bytes,
        state_bytes_per_sequence=cost.state_bytes,
        reserved_bytes=reserved,
        tokens=length * batch_size,
        max_concurrency=float(largest),
        request_bytes=0,
        longest=longest,
    )


def _check_blocks(model: Model) -> None:
    for layer in model.spec.layers:
        for mixer in layer.mixers:
            if not isinstance(mixer, Attention):
                raise UnsupportedArchitecture(
                    f"--engine transformers: the forward of {type(mixer).__name__} is not described; use --engine vllm",
                    field="engine",
                )


def _run(model: Model, deployment: Deployment, workload: Workload) -> Run:
    dtype = _DTYPES.get(deployment.dtype, deployment.dtype)
    dtype = dtype if dtype != "auto" else (model.spec.dtype or "bfloat16")
    if dtype not in ELEMENT_BYTES:
        raise UsageError(f"--dtype is {dtype[:40]!r}; expected auto, bfloat16, float16 or float32", field="dtype")
    generated = _tokens(workload.output_len, "--output-len") or 0
    asked = _tokens(workload.input_len, "--input-len")
    if asked is None:
        length = deployment.max_model_len
        asked = _USUAL_INPUT if length is None else max(1, length - generated)
    return Run(
        gpu=deployment.gpu or unnamed_gpu(deployment.total_bytes),
        dtype=dtype,
        batch_size=deployment.batch_size or workload.concurrency,
        input_len=asked,
        output_len=generated,
        attention=deployment.attn_implementation,
        cache=deployment.cache_implementation,
        logits=deployment.logits_to_keep or ("last" if generated else "all"),
    )


def _tokens(lengths: Lengths | None, option: str) -> int | None:
    if lengths is None:
        return None
    if len(lengths.points) != 1 or lengths.points[0][1] > _MOST_TOKENS:
        raise UsageError(f"{option}: --engine transformers takes one number of tokens", field=option.strip("-"))
    return lengths.points[0][1]


def _scheme(model: Model, deployment: Deployment, dtype: str) -> WeightScheme:
    if model.spec.quantization_config is not None:
        return scheme_from_config(model.spec, dtype=dtype)
    if deployment.quantization is not None:
        return scheme_from_name(deployment.quantization, model.spec, dtype=dtype, group_size=deployment.group_size)
    if deployment.group_size is not None:
        raise UsageError("--group-size describes an export; name it with --quantization", field="group_size")
    return plain_scheme(dtype)


def _notes(model: Model, run: Run) -> Iterable[str]:
    if run.attention == "eager":
        yield "eager attention holds a matrix of scores for every head: it grows with the square of the length"
    if run.logits == "all" and run.output_len:
        yield "generate keeps the logits of the last position only; --logits-to-keep last plans that"
    if model.spec.stacks:
        yield "the towers' own forward is not in the peak: text alone is planned"


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
