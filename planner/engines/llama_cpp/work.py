"""What a step of a run reads and multiplies on its cards: layers are shared out, so each card is a stage of its own."""

from __future__ import annotations

from dataclasses import replace

from planner.engines.llama_cpp.layout.tensors import GgufTensor
from planner.engines.llama_cpp.resolve import Run
from planner.errors import PlannerError
from planner.memory.cache.formats import CacheFormat, cache_format
from planner.memory.cache.kv_cache import layer_caches
from planner.memory.quantisation import WeightScheme, plain_scheme, scheme_from_config, scheme_from_name
from planner.memory.work import StageWork, Work
from planner.model.model import Model
from planner.model.tensor import Role


def work_of_run(model: Model, run: Run, quantization: str | None) -> Work | None:
    """The work of a run; None where a part of it is done by the host, whose memory speed nobody states."""
    placement, spec = run.placement, model.spec
    if not placement.complete or placement.overrides or placement.experts_on_host or not run.kv_offload:
        return None
    weights: list[dict[Role, int]] = [{} for _ in range(placement.devices)]
    for tensor in run.tensors:
        device = placement.device_of_tensor(tensor)
        if device != placement.host:
            role = _role(tensor, len(spec.layers))
            weights[device][role] = weights[device].get(role, 0) + tensor.nbytes
    stored = _cache_format(run)
    stages = []
    for device, held in enumerate(weights):
        layers = [at for at in range(len(spec.layers)) if placement.device_of(at) == device]
        if not layers:
            continue
        share = slice(layers[0], layers[-1] + 1)
        stages.append(
            StageWork(
                layers=share,
                weights=tuple(held.items()),
                caches=layer_caches(spec.layers[share], stored, state_dtype="float32"),
            )
        )
    return Work(ways=1, element_bytes=4, scheme=_scheme(model, quantization), stages=tuple(stages))


def _role(tensor: GgufTensor, layers: int) -> Role:
    if tensor.expert:
        return Role.EXPERT
    return Role.LM_HEAD if tensor.layer >= layers else Role.MLP


def _cache_format(run: Run) -> CacheFormat:
    """Keys of one type and values of another."""
    return replace(cache_format(run.cache.type_k, "float16"), value=cache_format(run.cache.type_v, "float16").value)


def _scheme(model: Model, quantization: str | None) -> WeightScheme:
    try:
        if quantization is not None:
            return scheme_from_name(quantization, model.spec)
        return scheme_from_config(model.spec)
    except PlannerError:
        return plain_scheme("float16")
