"""The `vllm serve` line that realises a plan."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from planner.contract.inputs import words_of
from planner.contract.words.export_name import write_export
from planner.engines.vllm.tables.flags import version_has
from planner.engines.vllm.tables.profile import parse_version

if TYPE_CHECKING:
    from planner.engines.vllm.plan import VllmPlan

# What vLLM makes of a plain checkpoint while it loads; every other format is served from an export of the model, whose
# own config says what it is (vllm/model_executor/layers/quantization, 0.19.0).
_QUANTISED_WHILE_LOADING: Final = frozenset({"fp8", "bitsandbytes"})
_FIRST_V2: Final = (0, 22)


def command_words(plan: VllmPlan) -> list[str]:
    """Environment, then the words of a command that starts what was planned: what sizes memory is spelled out."""
    resolved, asked = plan.resolved, plan.resolved.asked
    export = asked.quantization if plan.model.spec.quantization_config is None else None
    described = asked.group_size is not None or asked.quantize_lm_head
    online = export is None or (export in _QUANTISED_WHILE_LOADING and not described)
    model = plan.model.id
    if export is not None and not online:
        model = write_export(model, export, group_size=asked.group_size, quantize_lm_head=asked.quantize_lm_head)
    always: dict[str, object] = {
        "dtype": resolved.dtype,
        "quantization": export if online else None,
        "max_model_len": resolved.max_model_len,
        "max_num_seqs": resolved.max_num_seqs,
        "max_num_batched_tokens": resolved.max_num_batched_tokens,
        "gpu_memory_utilization": plan.utilization,
    }
    if asked.kv_cache_dtype != "auto":
        always["kv_cache_dtype"] = plan.cache_format.name
    if asked.enable_lora:
        always |= {"max_loras": asked.max_loras, "max_lora_rank": asked.max_lora_rank}
    if resolved.profile.swap_space == "gone":
        always["swap_space_bytes"] = None
    drafts = list(_drafts(plan))
    return [*_environment(plan), "vllm", "serve", model, *words_of(asked, always=always), *drafts, *asked.passed]


def _drafts(plan: VllmPlan) -> Iterator[str]:
    """The model's own draft layers, in the words of the release."""
    asked = plan.resolved.asked
    if not asked.num_speculative_tokens or asked.speculative_config is not None:
        return
    if version_has("--speculative-config", plan.engine_version):
        yield from (
            "--speculative-config",
            f'{{"method": "mtp", "num_speculative_tokens": {asked.num_speculative_tokens}}}',
        )
    else:
        yield from ("--num-speculative-tokens", str(asked.num_speculative_tokens))


def _environment(plan: VllmPlan) -> Iterator[str]:
    """Variables that stand before the command (vllm/envs.py)."""
    resolved, asked = plan.resolved, plan.resolved.asked
    if resolved.max_model_len > resolved.positions and asked.allow_long_max_model_len:
        yield "VLLM_ALLOW_LONG_MAX_MODEL_LEN=1"
    if asked.model_runner != "auto":
        late = parse_version(plan.engine_version) >= _FIRST_V2
        forced = {"v0": "VLLM_USE_V1=0", "v1": "VLLM_USE_V1=1", "v2": "VLLM_USE_V2_MODEL_RUNNER=1"}
        yield "VLLM_USE_V2_MODEL_RUNNER=0" if late and asked.model_runner == "v1" else forced[asked.model_runner]
    if asked.pipeline_layer_partition is not None:
        yield f"VLLM_PP_LAYER_PARTITION={','.join(map(str, asked.pipeline_layer_partition))}"
    if asked.estimate_cudagraphs is not None:
        yield f"VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS={int(asked.estimate_cudagraphs)}"
    if asked.sampler != "auto":
        yield f"VLLM_USE_FLASHINFER_SAMPLER={1 if asked.sampler == 'flashinfer' else 0}"
