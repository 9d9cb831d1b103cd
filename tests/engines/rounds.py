"""Random deployments of any engine, from its declaration, and the printed command planned again."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from planner.cli.words.questions import Question, ask
from planner.contract.engine import Engine, find_engine
from planner.contract.inputs import Input, inputs_of, spelled_out
from planner.contract.plan import ServingPlan
from planner.contract.workload import Workload

# Values worth trying where a range or a type says little.
VALUES: dict[str, list[Any]] = {
    "engine_version": ["0.6.6", "0.8.5", "0.10.2", "0.12.0", "0.19.0", "0.24.0", "0.30.0", "0.33.0"],
    "tensor_parallel_size": [2, 4, 8],
    "pipeline_parallel_size": [2, 3],
    "data_parallel_size": [2, 4],
    "decode_context_parallel_size": [2],
    "instances": [2, 3],
    "dtype": ["bfloat16", "float16", "float32", "half"],
    "quantization": ["fp8", "awq", "gptq", "bitsandbytes", "nvfp4", "w8a8"],
    "kv_cache_dtype": ["fp8", "bf16", "fp8_e5m2"],
    "block_size": [16, 32, 64],
    "max_model_len": [512, 8192, 40_000, -1],
    "max_num_seqs": [8, 100, 512],
    "max_num_batched_tokens": [1024, 8192, 16_384],
    "gpu_memory_utilization": [0.5, 0.93, 0.987],
    "kv_cache_memory_bytes": [1 << 30, 12345678901],
    "num_gpu_blocks_override": [1000],
    "swap_space_bytes": [0, 16 << 30, 3 << 29],
    "cpu_offload_bytes": [10 << 30, 1234567890],
    "safety_margin_bytes": [2 << 30, 987654321],
    "already_used_bytes": [3 << 30],
    "gpu_memory_bytes": [60 << 30],
    "group_size": [32, 128],
    "cudagraph_capture_sizes": [(1, 2, 4, 8), (16,)],
    "max_cudagraph_capture_size": [8, 64],
    "pipeline_layer_partition": [(10, 18), (20, 12)],
    "max_loras": [2, 8],
    "max_lora_rank": [8, 64],
    "num_speculative_tokens": [1, 3],
    "hf_overrides": ['{"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}', '{"max_position_embeddings": 65536}'],
    "rope_scaling": ['{"rope_type": "linear", "factor": 2.0}'],
    "kv_transfer_config": ['{"kv_connector": "NixlConnector", "kv_role": "kv_both"}'],
    "speculative_config": ['{"method": "mtp", "num_speculative_tokens": 2}'],
    "limit_mm_per_prompt": ['{"image": 1}', '{"image": 0, "video": 0}', '{"image": 4, "video": 0}'],
    "mm_processor_kwargs": ['{"max_pixels": 200704}', '{"max_pixels": 8000000}'],
    "batch_size": [1, 8],
}


def values_of(one: Input) -> list[Any]:
    """Values of an input other than its default; none where only its own table could give some."""
    if one.name in VALUES:
        return VALUES[one.name]
    if one.is_switch:
        return [True, False]
    if one.option.choices and one.name != "engine_version":
        return list(one.option.choices)
    return []


def deployments(engine: Engine, most: int = 4) -> st.SearchStrategy[dict[str, Any]]:
    """A few inputs of an engine changed at once."""
    varied = [one for one in inputs_of(engine.Deployment) if one.name != "gpu" and values_of(one)]
    one = st.sampled_from(varied).flatmap(lambda one: st.tuples(st.just(one.name), st.sampled_from(values_of(one))))
    return st.lists(one, max_size=most, unique_by=lambda pair: pair[0]).map(dict)


# Ours, and yet said by the command: in the environment, the model's name, the fraction, or a JSON option.
SAID = frozenset(
    {
        "model_runner", "sampler", "safety_margin_bytes", "group_size", "quantize_lm_head", "num_speculative_tokens",
        "pipeline_layer_partition", "estimate_cudagraphs",
    }
)  # fmt: skip


def again(plan: ServingPlan) -> ServingPlan:
    """The plan of the printed command, with what no command of the engine can say given beside it."""
    engine = find_engine(plan.engine)
    words = list(engine.command(plan))
    if words[0] == "vram-planner":
        words = words[2:]
    beside: list[str] = []
    for one in (*inputs_of(engine.Deployment), *inputs_of(Workload)):
        record = plan.workload if one in inputs_of(Workload) else plan.deployment
        value = getattr(record, one.name)
        unsaid = one.name not in SAID or (one.name == "sampler" and value == "triton")
        if one.option.ours and unsaid and one.name != "gpu" and value != one.default and one.spelling not in words:
            beside += spelled_out(one, value)
    if plan.deployment.gpu is not None and plan.deployment.gpu.id != "unnamed":
        beside += ["--gpu", plan.deployment.gpu.id]
    asked = ask([*words, *beside], Workload, about="", name="serve")
    assert isinstance(asked, Question)
    assert asked.engine is engine
    return asked.engine.plan(asked.model, asked.deployment, asked.record(Workload))


def figures(plan: ServingPlan) -> dict[str, Any]:
    """Everything that a plan says in numbers, and its verdict."""
    return {"devices": plan.devices, "cache": plan.cache, "verdict": plan.verdict, "length": plan.max_model_len}
