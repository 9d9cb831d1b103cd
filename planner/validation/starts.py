"""From a measured start to the plan of the same start: which inputs are known, which are missing."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from planner.engines.vllm.deployment import Deployment
from planner.engines.vllm.instances import plan_serving
from planner.engines.vllm.log.release import release_in
from planner.engines.vllm.model.drafts import draft_of
from planner.engines.vllm.plan import VllmPlan
from planner.errors import PlannerError, UnknownGpu
from planner.hardware.gpus import Gpu, find_gpu, load_gpus, unnamed_gpu
from planner.model.load import load_model
from planner.model.model import Model
from planner.units import GIB, MIB
from planner.validation.case_inputs import read_flags
from planner.validation.cases import Case

_VERSION: Final = re.compile(r"(?<![\d.])v?(0\.\d+(?:\.\d+)?)")
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
_BOTH_ENGINES: Final = ("0.8", "0.9")
# Where a case names no release, its layout is that of the release with most starts
_MOST_MEASURED: Final = "0.19.0"
# Half of the two decimals that logs print
_SAME_MEMORY_BYTES: Final = 6 * MIB


@dataclass(frozen=True, slots=True)
class Start:
    """A case as it can be planned.

    Args:
        deployment: what the command said, as far as it is known.
        version_known, card_known: whether the engine version, and the card's memory, were stated.
        unknown: inputs that were needed and are not known; empty when the plan stands on the command line alone.
        assumed: inputs that the case does not state and that were taken at the engine's default, where that matters.
        unread: what the case states and no plan depends on.
    """

    case: Case
    model: Model
    deployment: Deployment
    version_known: bool
    card_known: bool
    unknown: tuple[str, ...]
    assumed: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()

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
        engine_version=version or _MOST_MEASURED,
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
    flags = case.given("other_flags")
    left: tuple[str, ...] = ()
    if isinstance(flags, dict):
        try:
            stated, left = read_flags(flags, gpus=deployment.tensor_parallel_size)
            deployment = replace(deployment, **stated)
        except (PlannerError, ValueError, TypeError) as error:
            return f"flags not understood: {error}"
    draft = draft_of(model, deployment)
    if draft is not None and draft.model is None:
        unknown.append("draft model")
    assumed = () if deployment.gpu_memory_utilization is not None or _fixed(deployment) else ("default utilisation",)
    return Start(case, model, deployment, version is not None, memory is not None, tuple(unknown), assumed, left)


def _fixed(deployment: Deployment) -> bool:
    return deployment.kv_cache_memory_bytes is not None or deployment.num_gpu_blocks_override is not None


def _card(case: Case) -> tuple[Gpu | None, int | None]:
    """The card and its memory in bytes, as stated, else as deduced from what was printed."""
    stated = case.given("gpu_memory_gib")
    if not isinstance(stated, int | float) or stated <= 0:
        stated = _last_number(case.inferred.get("total_gpu_memory_gib"))
    memory = round(stated * GIB) if stated else None
    card = next((card for name in _names(case) if (card := _find(name, memory)) is not None), None)
    if card is None and memory is not None:
        card = _by_memory(memory)
    if card is not None and memory is None:
        memory = card.reported_memory_bytes
    return card, memory


def _names(case: Case) -> Iterator[str]:
    """What may be a card's name, in the order of trust: as given, without a remark, inside one, as deduced."""
    for text in (case.given("gpu"), _inferred_text(case, "gpu")):
        if isinstance(text, str):
            yield text
            yield re.sub(r"\(.*?\)|class|GPU\b", " ", text)
            for remark in re.findall(r"\((.*?)\)", text):
                yield re.sub(r"class|likely|GPU\b", " ", remark)


def _by_memory(memory: int) -> Gpu | None:
    """The card whose driver reports just this much, where all that do are one model (79.25 GiB: an A100)."""
    found = [gpu for gpu in load_gpus() if abs((gpu.reported_memory_bytes or 0) - memory) <= _SAME_MEMORY_BYTES]
    kinds = {(gpu.architecture, gpu.marketing_gb) for gpu in found}
    return found[0].with_memory(memory) if len(kinds) == 1 else None


def _find(name: str, memory: int | None) -> Gpu | None:
    try:
        return find_gpu(name.strip(), memory_bytes=memory)
    except UnknownGpu:
        return None


def _last_number(value: object) -> float | None:
    """ "0.63/0.0201=31.3" -> 31.3; a plain number or {"value": ...} as it is."""
    value = value.get("value") if isinstance(value, dict) else value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    found = re.findall(r"\d+\.\d+|\d+", value) if isinstance(value, str) else []
    return float(found[-1]) if found else None


def _version(case: Case) -> str | None:
    texts = (case.given("engine_version"), _inferred_text(case, "version"))
    return next((found for text in texts if isinstance(text, str) and (found := release_in(text))), None)


def _runner(case: Case) -> str:
    text = str(case.given("engine_version") or "")
    if re.search(r"\bV0\b|worker\.py:|model_runner\.py:|executor_base\.py:", text) and "gpu_worker" not in text:
        return "v0"
    version = _VERSION.search(text)
    both = version is not None and version[1].startswith(_BOTH_ENGINES)
    # these releases print the profile's terms with V0 only
    terms = all(case.number(name) is not None for name in ("activation_peak_gib", "non_torch_gib"))
    return "v0" if both and terms else "auto"


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
