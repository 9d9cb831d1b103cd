"""Measured loads of llama.cpp and its kin, and results of its own planner, side by side with what is planned here.

Two files: loads that people printed, and dry runs of llama.cpp v0.5.0 on models of which only the metadata were there.
A dry run's model has no tensor list, so that fused matrices are loaded as their parts, and Granite 4 rotates.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import Any, Final

from planner.engines.llama_cpp.buffers import Buffers, buffers_of
from planner.engines.llama_cpp.deployment import Deployment
from planner.engines.llama_cpp.resolve import Run, resolve
from planner.errors import PlannerError
from planner.hardware.gpus import unnamed_gpu
from planner.memory.ggml.mixes import is_mix
from planner.model.kinds.attention import Attention
from planner.model.load import load_model
from planner.model.model import Model
from planner.model.spec import Layer, ModelSpec
from planner.units import GIB, MIB

_ANY_CARD_BYTES: Final = 1 << 43
_DEVICE: Final = re.compile(r"(?:CUDA|ROCm|Vulkan|CANN|MTL|Metal)\d*")
_MONTH: Final = re.compile(r"20\d\d-\d\d")
_NEAREST_MIXES: Final = {
    "MXFP4": "MXFP4_MOE",
    "IQ4_K": "Q4_K_M",
    "IQ4_KS": "IQ4_XS",
    "IQ2_K": "Q2_K",
    "IQ3_K": "Q3_K_M",
}
# what a planner of llama.cpp's graphs does not describe
_LEFT_OUT: Final = {
    "gguf-121": "CANN splits the graph in its own way",
    "gguf-131": "op offload of Vulkan in 2025-02 is not described",
    "gguf-123": "cause not found: the printed buffer is 1.5 times the graph's",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A printed figure and the planned one, in MiB.

    Args:
        kind: "kv", "state", "compute", "host" or "model".
        group: what it is averaged with.
    """

    case: str
    config: str
    group: str
    kind: str
    device: str
    measured: float
    planned: float

    @property
    def error(self) -> float:
        """Relative error; 0 within the last printed digit."""
        if abs(self.planned - self.measured) <= 0.0101:
            return 0.0
        return self.planned / self.measured - 1 if self.measured else 0.0


def _engine(row: Mapping[str, Any]) -> str:
    """The program that printed a row: CPU_Mapped is a buffer of llama.cpp's alone, also in threads about the fork."""
    mapped = "CPU_Mapped" in (row["measured"].get("model_buffer_mib") or {})
    return "llama.cpp" if mapped and row["engine"] == "ik_llama.cpp" else str(row["engine"])


def _lines(name: str) -> Iterator[dict[str, Any]]:
    text = files("planner.validation").joinpath(f"cases/{name}").read_text("utf-8")
    for line in text.splitlines():
        yield json.loads(line)


@cache
def _model(config: str) -> Model:
    return load_model(config.replace("__", "/", 1))


@cache
def _metadata_only(config: str) -> Model:
    """The model as a loader without tensor list sees it (llama-model-loader.cpp TENSOR_SKIP_IF_VIRTUAL)."""
    model = _model(config)
    made: dict[int, Layer] = {}
    rotates = model.spec.model_type == "granitemoehybrid"
    for layer in model.spec.layers:
        if id(layer) not in made:
            mixers = tuple(_parted(mixer, rotates) if isinstance(mixer, Attention) else mixer for mixer in layer.mixers)
            made[id(layer)] = replace(layer, mixers=mixers)
    spec: ModelSpec = replace(model.spec, layers=tuple(made[id(layer)] for layer in model.spec.layers))
    return Model(id=model.id, spec=spec, origin=model.origin)


def _parted(mixer: Attention, rotates: bool) -> Attention:
    return replace(mixer, fused=False, rotary_dim=mixer.head_dim if rotates else mixer.rotary_dim)


def dry_run_figures(rows: Iterator[dict[str, Any]] | None = None) -> Iterator[Figure]:
    """Every figure of the dry runs."""
    for row in rows or _lines("llama_cpp_dry_runs.jsonl"):
        config, model = row["config"], _metadata_only(row["config"])
        for number, case in enumerate(row["runs"]):
            run = _dry_run(model, case)
            buffers = buffers_of(model, run)
            group = _group(case)
            name = f"{config}#{number}"
            for device, size in case["compute_mib"].items():
                index = len(buffers.compute) - 1 if device == "CUDA_Host" else int(device.removeprefix("CUDA"))
                kind = "host" if device == "CUDA_Host" else "compute"
                yield Figure(
                    case=name,
                    config=config,
                    group=group,
                    kind=kind,
                    device=device,
                    measured=size,
                    planned=buffers.compute[index] / MIB,
                )
            yield from _cache_figures(name, config, case["kv"], buffers, model)


def _cache_figures(name: str, config: str, printed: list[float], buffers: Buffers, model: Model) -> Iterator[Figure]:
    kinds = [("kv", sum(buffers.full))]
    if sum(buffers.window):
        kinds.append(("kv", sum(buffers.window)))
    if model.is_recurrent:
        kinds.append(("state", sum(buffers.state)))
    for (kind, size), value in zip(kinds, printed, strict=False):
        yield Figure(
            case=name, config=config, group="caches", kind=kind, device="all", measured=value, planned=size / MIB
        )


def _group(case: Mapping[str, Any]) -> str:
    if case["tag"].startswith("2gpu"):
        return "two cards"
    if "n_outputs_max" in case["ctx"]:
        return "one card, few output rows"
    return "one card, all output rows"


def _dry_run(model: Model, case: Mapping[str, Any]) -> Run:
    context, cards = case["ctx"], 2 if case["tag"].startswith("2gpu") else 1
    deployment = Deployment(
        gpu=unnamed_gpu(_ANY_CARD_BYTES),
        gpu_memory_bytes=_ANY_CARD_BYTES,
        ctx_size=context["n_ctx"],
        ubatch_size=context["n_ubatch"],
        batch_size=context.get("n_batch"),
        flash_attn="on" if context["fa"] else "off",
        cache_type_k=context.get("ctk", "f16"),
        cache_type_v=context.get("ctv", "f16"),
        parallel=context.get("n_seq", 1),
        kv_unified=bool(context.get("kvu", 0)),
        swa_full=bool(context.get("swa_full", 0)),
        quantization="F32",  # without a tensor list every weight counts as F32
    )
    run = resolve(model, deployment, outputs=context.get("n_outputs_max") or 1 << 20)
    placement = replace(run.placement, devices=cards, split=(1.0,) * cards)
    backend = "cuda" if "copies" in case["tag"] else "vulkan"
    return replace(run, placement=placement, dry=True, backend=backend)


def public_figures() -> Iterator[Figure | tuple[str, str]]:
    """Every figure of the public loads; (case, reason) where one cannot be planned."""
    for row in _lines("llama_cpp.jsonl"):
        yield from _public(row)


def _public(row: dict[str, Any]) -> Iterator[Figure | tuple[str, str]]:
    name, measured = row["id"], row["measured"]
    engine = _engine(row)
    if row["config"] is None:
        yield name, "the model is not known"
        return
    if not row["deployment"].get("n_ctx"):
        yield name, "the context is not stated"
        return
    if engine == "ollama" and "kv_mib" not in measured and "compute_buffer_mib" not in measured:
        yield name, "Ollama's own estimate"
        return
    try:
        model = _model(row["config"])
        run = public_run(model, row)
        buffers = buffers_of(model, run)
    except PlannerError as error:
        yield name, str(error)
        return
    kept = measured.get("kv_mib") or {}
    cells = kept.get("total") or (kept.get("full", 0.0) + kept.get("swa", 0.0))
    if cells:
        yield Figure(
            case=name,
            config=row["config"],
            group=engine,
            kind="kv",
            device="all",
            measured=cells,
            planned=(sum(buffers.full) + sum(buffers.window)) / MIB,
        )
    if name in _LEFT_OUT:
        yield name, _LEFT_OUT[name]
        return
    yield from _weight_figures(row, engine, buffers)
    printed = measured.get("compute_buffer_mib") or {}
    devices = [device for device in printed if _DEVICE.fullmatch(device)]
    for index, device in enumerate(devices):
        yield Figure(
            case=name,
            config=row["config"],
            group=engine,
            kind="compute",
            device=device,
            measured=printed[device],
            planned=buffers.compute[index] / MIB,
        )
    if not devices and "CPU" in printed:
        yield Figure(
            case=name,
            config=row["config"],
            group=engine,
            kind="compute",
            device="CPU",
            measured=printed["CPU"],
            planned=buffers.compute[-1] / MIB,
        )


def _weight_figures(row: dict[str, Any], engine: str, buffers: Buffers) -> Iterator[Figure]:
    """Weights on cards, where the file is one of llama.cpp's own mixes and no tensor was moved by hand."""
    printed = row["measured"].get("model_buffer_mib") or {}
    mix = (row["gguf"].get("quant") or "").replace(" - Medium", "_M").split(" ")[0]
    if not is_mix(mix) or row["deployment"].get("override_tensor") or "CUDA_Split" in printed:
        return
    for index, device in enumerate(one for one in printed if _DEVICE.fullmatch(one)):
        if index < len(buffers.model) - 1:
            yield Figure(
                case=row["id"],
                config=row["config"],
                group=engine,
                kind="model",
                device=device,
                measured=printed[device],
                planned=buffers.model[index] / MIB,
            )


def public_run(model: Model, row: dict[str, Any]) -> Run:
    """The run of a public load.

    A load of one slot is read as one of a program other than llama-server, whose default is four; drafts are the
    server's.
    """
    inferred = row.get("inferred") or {}  # deduced from the printed sizes, as the case's notes say
    said, engine = row["deployment"], _engine(row)
    layers = inferred.get("n_gpu_layers", said.get("n_gpu_layers"))
    slots = said.get("n_parallel") or 1
    n_ubatch = said.get("n_ubatch") or 512
    overrides = ("exps=CPU",) if (said.get("override_tensor") or {}).get("CPU") else ()
    deployment = Deployment(
        gpu=unnamed_gpu(64 * GIB),
        gpu_memory_bytes=64 * GIB,
        engine_version=_version(row),
        variant="ik_llama.cpp" if engine.startswith("ik") else "llama.cpp",
        quantization=_mix(inferred.get("quant") or row["gguf"].get("quant")),
        ctx_size=said["n_ctx"],
        ubatch_size=n_ubatch,
        batch_size=max(said.get("n_batch") or 2048, n_ubatch),
        parallel=slots,
        kv_unified=said.get("kv_unified", slots > 1 and engine != "ollama"),
        flash_attn="on" if said.get("flash_attn", True) else "off",
        cache_type_k=said.get("cache_type_k", "f16"),
        cache_type_v=said.get("cache_type_v", "f16"),
        n_gpu_layers="all" if layers is None else str(layers).split("/")[0],
        override_tensor=overrides,
        swa_full=bool(said.get("swa_full")),
        mla=said.get("mla"),
        attention_max_batch=said.get("attn_max_b") or 0,
        fused_moe=bool(said.get("fused_moe")),
        run_time_repack=bool(inferred.get("run_time_repack")),
        # llama.cpp's own types with rows interleaved for a CPU (R4, R8) are nothing that a card could compute with
        op_offload=not re.match(r"Q\d\w*_R[48]\b", row["gguf"].get("quant") or ""),
        backend={"ROCm": "rocm", "Metal": "metal", "Vulkan": "vulkan"}.get(said.get("backend") or "", "cuda"),
    )
    server = slots > 1 or said.get("draft")
    run = resolve(model, deployment, outputs=slots * (4 if said.get("draft") else 1) if server else 1 << 20)
    printed = row["measured"].get("compute_buffer_mib") or {}
    weights = row["measured"].get("model_buffer_mib") or {}
    count = max(sum(1 for device in one if _DEVICE.fullmatch(device)) for one in (printed, weights))
    if said.get("backend") == "CPU" or (not count and "CPU" in printed):
        return replace(run, placement=replace(run.placement, devices=0, offloaded=0, split=()))
    if count > 1:
        return replace(run, placement=replace(run.placement, devices=count, split=(1.0,) * count))
    return run


def _version(row: dict[str, Any]) -> str:
    text = row.get("engine_version") or ""
    month = _MONTH.search(text)
    if month:
        return month[0]
    if re.fullmatch(r"b\d+", text):
        return text
    # llama-cpp-python 0.3.34 is of 2026-07; Ollama 0.12 of 2025-09
    return "2026-07" if "0.3.34" in text else "2025-09"


def _mix(text: str | None) -> str:
    """The nearest mix of llama.cpp to a printed one."""
    if not text:
        return "Q4_K_M"
    name = re.split(r"[ _]R\d|[ ,]", text.replace(" - Medium", "_M").replace(" - Small", "_S"))[0]
    name = _NEAREST_MIXES.get(name, name)
    return name if is_mix(name) else "Q4_K_M"
