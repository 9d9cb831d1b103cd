"""The trtllm-serve line that realises a plan."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from planner.contract.inputs import words_of
from planner.contract.words.export_name import write_export

if TYPE_CHECKING:
    from planner.engines.tensorrt_llm.plan import TensorrtLlmPlan


def command_words(plan: TensorrtLlmPlan) -> Sequence[str]:
    """The words; planned again they give the same plan."""
    asked, resolved = plan.deployment, plan.resolved
    export = asked.quantization if plan.model.spec.quantization_config is None else None
    name = plan.model.id
    if export is not None:
        name = write_export(name, export, group_size=asked.group_size, quantize_lm_head=asked.quantize_lm_head)
    always = {
        "backend": resolved.backend,
        "max_seq_len": resolved.max_seq_len,
        "max_batch_size": resolved.max_batch_size,
        "max_num_tokens": resolved.max_num_tokens,
        "kv_cache_free_gpu_memory_fraction": asked.kv_cache_free_gpu_memory_fraction,
    }
    # what the YAML says stands in the deployment already
    leave = ["extra_llm_api_options"]
    return ["trtllm-serve", name, *words_of(asked, always=always, leave=leave), *asked.passed]
