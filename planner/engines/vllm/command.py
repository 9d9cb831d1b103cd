"""The `vllm serve` line that realises a plan."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from planner.engines.vllm.plan import ServingPlan

# What vLLM makes of a plain checkpoint while it loads; every other format is served from an export of the model, whose
# own config says what it is (vllm/model_executor/layers/quantization, 0.19.0).
_QUANTISED_WHILE_LOADING: Final = frozenset({"fp8", "bitsandbytes"})


def command_line(plan: ServingPlan) -> str:
    """A command that starts what was planned: everything that sizes memory is spelled out."""
    resolved, asked = plan.resolved, plan.resolved.asked
    export = asked.quantization if plan.model.spec.quantization_config is None else None
    online = export is None or export in _QUANTISED_WHILE_LOADING
    long = resolved.max_model_len > plan.model.longest_request and asked.allow_long_max_model_len
    words = ["VLLM_ALLOW_LONG_MAX_MODEL_LEN=1"] if long else []
    words += ["vllm", "serve", plan.model.id if online else f"<{export} export of {plan.model.id}>"]

    def add(flag: str, value: object) -> None:
        words.extend((flag, str(value)))

    if asked.tensor_parallel_size > 1:
        add("--tensor-parallel-size", asked.tensor_parallel_size)
    if asked.pipeline_parallel_size > 1:
        add("--pipeline-parallel-size", asked.pipeline_parallel_size)
    if asked.data_parallel_size > 1:
        add("--data-parallel-size", asked.data_parallel_size)
    if asked.decode_context_parallel_size > 1:
        add("--decode-context-parallel-size", asked.decode_context_parallel_size)
    if asked.enable_expert_parallel:
        words.append("--enable-expert-parallel")
    add("--dtype", resolved.dtype)
    if export is not None and online:
        add("--quantization", export)
    if asked.kv_cache_dtype != "auto":
        add("--kv-cache-dtype", plan.cache_format.name)
    add("--max-model-len", resolved.max_model_len)
    add("--max-num-seqs", resolved.max_num_seqs)
    add("--max-num-batched-tokens", resolved.max_num_batched_tokens)
    if asked.kv_cache_memory_bytes is not None:
        add("--kv-cache-memory-bytes", asked.kv_cache_memory_bytes)
    add("--gpu-memory-utilization", plan.utilization)
    if asked.num_gpu_blocks_override is not None:
        add("--num-gpu-blocks-override", asked.num_gpu_blocks_override)
    if asked.block_size is not None:
        add("--block-size", asked.block_size)
    if asked.enforce_eager:
        words.append("--enforce-eager")
    if asked.max_cudagraph_capture_size is not None:
        add("--max-cudagraph-capture-size", asked.max_cudagraph_capture_size)
    if asked.enable_prefix_caching is not None:
        words.append("--enable-prefix-caching" if asked.enable_prefix_caching else "--no-enable-prefix-caching")
    if asked.enable_chunked_prefill is not None:
        words.append("--enable-chunked-prefill" if asked.enable_chunked_prefill else "--no-enable-chunked-prefill")
    if asked.mamba_ssm_cache_dtype is not None:
        add("--mamba-ssm-cache-dtype", asked.mamba_ssm_cache_dtype)
    if asked.num_speculative_tokens and plan.model.spec.draft_layers:
        add("--speculative-config", f'{{"method": "mtp", "num_speculative_tokens": {asked.num_speculative_tokens}}}')
    if asked.enable_sleep_mode:
        words.append("--enable-sleep-mode")
    if asked.cpu_offload_bytes:
        add("--cpu-offload-gb", f"{asked.cpu_offload_bytes / (1 << 30):g}")
    if asked.max_loras:
        words.append("--enable-lora")
        add("--max-loras", asked.max_loras)
        add("--max-lora-rank", asked.max_lora_rank)
    if asked.disable_hybrid_kv_cache_manager:
        words.append("--disable-hybrid-kv-cache-manager")
    if asked.language_model_only:
        words.append("--language-model-only")
    if asked.mm_encoder_tp_mode != "weights":
        add("--mm-encoder-tp-mode", asked.mm_encoder_tp_mode)
    if asked.skip_mm_profiling:
        words.append("--skip-mm-profiling")
    if asked.limit_images is not None:
        add("--limit-mm-per-prompt", f'{{"image": {asked.limit_images}}}')
    return shlex.join(words)
