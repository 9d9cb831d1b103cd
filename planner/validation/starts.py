"""From a measured start to the plan of the same start: which inputs are known, which are missing."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from typing import Final

from planner.engines.vllm.deployment import Deployment
from planner.engines.vllm.instances import plan_serving
from planner.engines.vllm.plan import VllmPlan
from planner.errors import PlannerError, UnknownGpu
from planner.hardware.gpus import Gpu, find_gpu, unnamed_gpu
from planner.model.load import load_model
from planner.model.model import Model
from planner.units import GIB, parse_size
from planner.validation.cases import Case

_VERSION: Final = re.compile(r"(?<![\d.])v?(0\.\d+(?:\.\d+)?)")
_OLDEST: Final = "0.4.0"
# Undated builds that are known by what they print
_BY_FORMAT: Final = {"consumed format": "0.30.0", "V2 model runner": "0.31.0"}
# How people name a format in a log, and the export it is
_EXPORTS: Final = {
    "awq": "awq",
    "awq_marlin": "awq",
    "gptq": "gptq",
    "gptq_marlin": "gptq",
    "fp8": "fp8",
    "bitsandbytes": "bitsandbytes",
    "w4a16": "w4a16",
    "w8a8": "w8a8",
    "nvfp4": "nvfp4",
    "modelopt_fp4": "nvfp4",
    "mxfp4": "mxfp4",
    "int4": "w4a16",
    "gguf": "Q4_K_M",
}
# A card of unknown size takes the small card's batch defaults
_ANY_CARD_BYTES: Final = 48 * GIB
_SPECULATIVE: Final = re.compile(r"mtp\D*(\d+)?")


@dataclass(frozen=True, slots=True)
class Start:
    """A case as it can be planned.

    Args:
        deployment: what the command said, as far as it is known.
        version_known, card_known: whether the engine version, and the card's memory, were stated.
        unknown: inputs that were needed and are not known; empty when the plan stands on the command line alone.
    """

    case: Case
    model: Model
    deployment: Deployment
    version_known: bool
    card_known: bool
    unknown: tuple[str, ...]

    def plan(self) -> VllmPlan:
        """The plan from the command line alone.

        Raises:
            PlannerError: the planner refuses this start.
        """
        return plan_serving(self.model, self.deployment)


def read_start(case: Case) -> Start | str:
    """The start, or the reason why it cannot be planned at all."""
    if case.config is None:
        return "no config: the model could not be identified"
    if case.given("engine") not in (None, "vllm"):
        return f"engine {case.given('engine')} is not vLLM"
    try:
        model = load_model(case.config)
    except PlannerError as error:
        return f"model refused: {error}"
    card, memory = _card(case)
    version = _version(case)
    unknown = [] if version else ["engine version"]
    if memory is None:
        unknown.append("total memory")
    deployment = Deployment(
        gpu=card or unnamed_gpu(memory or _ANY_CARD_BYTES),
        gpu_memory_bytes=memory or _ANY_CARD_BYTES,
        engine_version=version or Deployment().engine_version,
        tensor_parallel_size=_whole(case, "tensor_parallel") or 1,
        pipeline_parallel_size=_whole(case, "pipeline_parallel") or 1,
        data_parallel_size=_whole(case, "data_parallel") or 1,
        enable_expert_parallel=case.given("expert_parallel") is True,
        dtype=_dtype(case),
        quantization=_quantization(case, model),
        kv_cache_dtype=_cache_dtype(case),
        max_model_len=_whole(case, "max_model_len") or _measured_length(case),
        max_num_seqs=_whole(case, "max_num_seqs") or _inferred(case, "max_num_seqs"),
        max_num_batched_tokens=_whole(case, "max_num_batched_tokens") or _inferred(case, "max_num_batched_tokens"),
        gpu_memory_utilization=_fraction(case),
        enforce_eager=case.given("enforce_eager") is True,
        model_runner=_runner(case),
        allow_long_max_model_len=True,  # the start was measured
    )
    try:
        deployment = _with_flags(deployment, case, unknown)
    except (PlannerError, ValueError) as error:
        return f"flags not understood: {error}"
    return Start(case, model, deployment, version is not None, memory is not None, tuple(unknown))


def _card(case: Case) -> tuple[Gpu | None, int | None]:
    stated = case.given("gpu_memory_gib")
    memory = round(stated * GIB) if isinstance(stated, int | float) and stated > 0 else None
    name = case.given("gpu")
    card = None
    if isinstance(name, str):
        for text in (name, re.sub(r"\(.*?\)|class|GPU\b", " ", name)):
            try:
                card = find_gpu(text.strip(), memory_bytes=memory)
                break
            except UnknownGpu:
                continue
    if card is None and memory is None:
        return None, None
    if card is not None and memory is None:
        memory = card.reported_memory_bytes
    return card, memory


def _version(case: Case) -> str | None:
    stated = str(case.given("engine_version") or "")
    for words, version in _BY_FORMAT.items():
        if words in stated:
            return version
    for text in (case.given("engine_version"), _inferred_text(case, "version")):
        match = _VERSION.search(text) if isinstance(text, str) else None
        if match:
            version = match.group(1)
            return max(version, _OLDEST, key=lambda item: [int(part) for part in item.split(".")])
    return None


def _runner(case: Case) -> str:
    text = str(case.given("engine_version") or "")
    flags = case.given("other_flags")
    if re.search(r"\bV0\b|worker\.py:|model_runner\.py:|executor_base\.py:", text) and "gpu_worker" not in text:
        return "v0"
    if isinstance(flags, dict) and flags.get("V2_model_runner"):
        return "v2"
    return "auto"


def _whole(case: Case, name: str) -> int | None:
    value = case.given(name)
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) and value >= 1 else None


def _inferred_value(case: Case, name: str) -> object:
    value = case.inferred.get(name)
    return value.get("value") if isinstance(value, dict) else value


def _inferred(case: Case, name: str) -> int | None:
    value = _inferred_value(case, name)
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) and value >= 1 else None


def _inferred_text(case: Case, name: str) -> str | None:
    value = _inferred_value(case, name)
    return value if isinstance(value, str) else None


def _measured_length(case: Case) -> int | None:
    value = case.number("max_concurrency_len")
    return int(value) if value else _inferred(case, "max_model_len")


def _fraction(case: Case) -> float | None:
    value = case.given("gpu_memory_utilization")
    if value is None:
        value = _inferred_value(case, "gpu_memory_utilization")
    return float(value) if isinstance(value, int | float) and 0 < value <= 1 else None


def _dtype(case: Case) -> str:
    for value in (case.given("dtype"), _inferred_text(case, "dtype")):
        if isinstance(value, str) and value in ("bfloat16", "float16", "float32"):
            return value
    return "auto"


def _cache_dtype(case: Case) -> str:
    value = case.given("kv_cache_dtype") or _inferred_text(case, "kv_cache_dtype")
    return re.sub(r"\s*\(.*\)", "", value) if isinstance(value, str) else "auto"


def _quantization(case: Case, model: Model) -> str | None:
    if model.spec.quantization_config is not None:
        return None
    base = case.given("base_quantization")
    if isinstance(base, str):
        return base
    stated = case.given("quantization")
    if not isinstance(stated, str):
        return None
    plain = re.sub(r"\s*\(.*\)", "", stated).strip().lower()
    return _EXPORTS.get(plain) or _EXPORTS.get(plain.split()[-1]) or _EXPORTS.get(plain.split()[0])


# Flags that are inputs of a deployment under the same name, with the type they must have
_AS_GIVEN: Final[dict[str, type]] = {
    "mamba_ssm_cache_dtype": str,
    "decode_context_parallel_size": int,
    "max_loras": int,
    "max_cudagraph_capture_size": int,
    "skip_mm_profiling": bool,
    "num_gpu_blocks_override": int,
    "max_lora_rank": int,
    "disable_hybrid_kv_cache_manager": bool,
    "language_model_only": bool,
}


def _with_flags(deployment: Deployment, case: Case, unknown: list[str]) -> Deployment:
    flags = case.given("other_flags")
    if not isinstance(flags, dict):
        return deployment
    changes: dict[str, object] = {}
    for name, value in flags.items():
        if name in ("enable_prefix_caching", "enable_chunked_prefill", "chunked_prefill") and isinstance(value, bool):
            changes[name if name.startswith("enable") else "enable_chunked_prefill"] = value
        elif name == "block_size" and isinstance(value, int):
            changes["block_size"] = value
        elif name == "kv_cache_memory_bytes":
            changes[name] = value if isinstance(value, int) else parse_size(str(value))
        elif isinstance(value, _AS_GIVEN.get(name, ())):
            changes[name] = value
        elif name == "enable_lora" and value is True:
            changes["enable_lora"] = True
        elif name == "kv_connector":
            changes["kv_transfer_config"] = json.dumps({"kv_connector": str(value)})
        elif name in ("cpu_offload_gb", "cpu_offload_gib") and isinstance(value, int | float):
            changes["cpu_offload_bytes"] = round(value * GIB)
        elif name == "limit_mm_per_prompt" and isinstance(value, dict):
            changes["limit_mm_per_prompt"] = json.dumps({"image": int(value.get("image", 1))})
        elif name == "cudagraph_capture_sizes" and isinstance(value, list):
            changes["cudagraph_capture_sizes"] = tuple(int(size) for size in value)
        elif name == "speculative" and value not in (None, "None"):
            match = _SPECULATIVE.match(str(value))
            if match:
                changes["num_speculative_tokens"] = int(match.group(1) or 1)
            else:
                unknown.append("draft model")
    return replace(deployment, **changes)  # type: ignore[arg-type]
