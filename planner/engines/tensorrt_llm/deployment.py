"""What TensorRT-LLM is asked to do: every input of a serving plan, declared once, under trtllm-serve's names."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final

from annotated_types import Ge, Gt, Le

from planner.contract.card import Card
from planner.contract.inputs import option
from planner.contract.reading import read_memory
from planner.engines.tensorrt_llm.tables.releases import NEWEST
from planner.errors import UsageError

ENGINE: Final = "Engine"
PARALLEL: Final = "GPUs"
MODEL: Final = "Model and cache"
BATCH: Final = "Batch"
MEMORY: Final = "Memory"

_COUNT: Final = 1 << 20
_TOKENS: Final = 1 << 40
_LONGEST_JSON: Final = 1 << 16
# llmapi/llm_args.py KvCacheConfig 1.2: what is planned, and what does not touch the card's memory
_CACHE_NUMBERS: Final = (
    "free_gpu_memory_fraction",
    "max_tokens",
    "tokens_per_block",
    "host_cache_size",
    "max_gpu_total_bytes",
)
_CACHE_OTHERS: Final = (
    "enable_block_reuse",
    "enable_partial_reuse",
    "copy_on_partial_reuse",
    "dtype",
    "max_attention_window",
    "sink_token_length",
    "onboard_blocks",
    "secondary_offload_min_priority",
    "event_buffer_max_size",
    "use_uvm",
    "cross_kv_cache_fraction",
    "mamba_ssm_cache_dtype",
    "use_kv_cache_manager_v2",
    "attention_dp_events_gather_period_ms",
)


def read_backend(text: str, option_name: str) -> str:
    """A back end; trt is tensorrt (commands/serve.py)."""
    name = {"trt": "tensorrt"}.get(text.strip().lower(), text.strip().lower())
    if name not in ("pytorch", "tensorrt", "_autodeploy"):
        raise UsageError(f"{option_name} is {text[:40]!r}; expected pytorch, tensorrt or _autodeploy", field="backend")
    return name


def read_cache_config(text: str, option_name: str) -> str:
    """JSON of a KvCacheConfig, its keys and numbers checked, in one spelling."""
    values = _object(text, option_name)
    for key, value in values.items():
        if key not in _CACHE_NUMBERS and key not in _CACHE_OTHERS:
            raise UsageError(
                f"{option_name}: no such key {str(key)[:40]!r} in a KvCacheConfig", field="kv_cache_config"
            )
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if key in _CACHE_NUMBERS and value is not None and (not number or not 0 < value <= 1 << 60):
            raise UsageError(f"{option_name}: {key} is {str(value)[:40]}; expected a number above 0", field=key)
    fraction = values.get("free_gpu_memory_fraction")
    if fraction is not None and fraction > 1:
        raise UsageError(
            f"{option_name}: free_gpu_memory_fraction is {fraction}; expected at most 1",
            field="kv_cache_free_gpu_memory_fraction",
        )
    return json.dumps(values, sort_keys=True)


def read_object(text: str, option_name: str) -> str:
    """A JSON object in one spelling."""
    return json.dumps(_object(text, option_name), sort_keys=True)


def _object(text: str, option_name: str) -> dict[str, Any]:
    try:
        found = json.loads(text) if len(text) <= _LONGEST_JSON else None
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise UsageError(f"{option_name} is {text[:40]!r}; expected a JSON object", field=option_name.lstrip("-"))
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment(Card):
    """The inputs of a serving plan; None means the engine's default.

    Args:
        kv_cache_config, cuda_graph_config: as in the YAML of --extra_llm_api_options, which beats the command line.
        quantization: how to store a plain checkpoint; None keeps the config's own format.
        passed: words of the command that are options of trtllm-serve and no input here.
        overwritten: what the YAML says otherwise than the command line, in words.
    """

    engine_version: Annotated[str, option("Release of TensorRT-LLM.", panel=ENGINE, ours=True, common=True)] = NEWEST
    backend: Annotated[
        str | None, option("pytorch, tensorrt or _autodeploy.", panel=ENGINE, read=read_backend, common=True)
    ] = None
    extra_llm_api_options: Annotated[
        str | None, option("YAML file of further arguments; it beats the command line.", panel=ENGINE)
    ] = None
    tp_size: Annotated[
        int,
        Ge(1),
        Le(_COUNT),
        option("GPUs that cut every matrix.", "--tp_size", "--tensor_parallel_size", panel=PARALLEL, common=True),
    ] = 1
    pp_size: Annotated[
        int, Ge(1), Le(_COUNT), option("Pipeline stages.", "--pp_size", "--pipeline_parallel_size", panel=PARALLEL)
    ] = 1
    ep_size: Annotated[
        int | None,
        Ge(1),
        Le(_COUNT),
        option("GPUs that whole experts are dealt over.", "--ep_size", "--moe_expert_parallel_size", panel=PARALLEL),
    ] = None
    enable_attention_dp: Annotated[
        bool, option("Replicate attention (YAML).", "--enable_attention_dp", panel=PARALLEL)
    ] = False
    dtype: Annotated[str, option("auto, bfloat16, float16 or float32 (YAML).", panel=MODEL)] = "auto"
    quantization: Annotated[
        str | None, option("Plan the usual export of this name.", panel=MODEL, ours=True, common=True)
    ] = None
    group_size: Annotated[int | None, option("Group of the export.", panel=MODEL, ours=True)] = None
    quantize_lm_head: Annotated[bool, option("The export quantises the head too.", panel=MODEL, ours=True)] = False
    kv_cache_dtype: Annotated[
        str, option("auto, fp8, nvfp4, bfloat16, float16.", "--kv_cache_dtype", panel=MODEL, common=True)
    ] = "auto"
    max_seq_len: Annotated[
        int | None,
        Ge(1),
        Le(_TOKENS),
        option("Longest request in tokens.", "--max_seq_len", panel=BATCH, unit="tokens", common=True),
    ] = None
    max_batch_size: Annotated[
        int | None, Ge(1), Le(_COUNT), option("Requests in a batch.", "--max_batch_size", panel=BATCH, common=True)
    ] = None
    max_num_tokens: Annotated[
        int | None,
        Ge(1),
        Le(_TOKENS),
        option("Tokens in a batch.", "--max_num_tokens", panel=BATCH, unit="tokens", common=True),
    ] = None
    max_beam_width: Annotated[int, Ge(1), Le(1 << 10), option("Beams.", "--max_beam_width", panel=BATCH)] = 1
    enable_chunked_prefill: Annotated[bool, option("Cut long prompts.", "--enable_chunked_prefill", panel=BATCH)] = (
        False
    )
    kv_cache_free_gpu_memory_fraction: Annotated[
        float,
        Gt(0),
        Le(1),
        option(
            "Share of what is left for the cache.",
            "--kv_cache_free_gpu_memory_fraction",
            "--free_gpu_memory_fraction",
            panel=MEMORY,
            common=True,
        ),
    ] = 0.9
    kv_cache_config: Annotated[
        str | None,
        option(
            "JSON: max_tokens, tokens_per_block, host_cache_size, ... (YAML).",
            "--kv_cache_config",
            panel=MEMORY,
            unit="JSON",
            read=read_cache_config,
        ),
    ] = None
    cuda_graph_config: Annotated[
        str | None,
        option("JSON of the decode graphs (YAML).", "--cuda_graph_config", panel=MEMORY, unit="JSON", read=read_object),
    ] = None
    safety_margin_bytes: Annotated[
        int,
        Ge(0),
        Le(1 << 60),
        option("Kept free by lowering the fraction (2GiB).", panel=MEMORY, unit="bytes", read=read_memory, ours=True),
    ] = 0
    passed: tuple[str, ...] = ()
    overwritten: tuple[str, ...] = ()

    def cache_setting(self, key: str) -> Any:
        """A value of kv_cache_config, None where it says none."""
        return json.loads(self.kv_cache_config).get(key) if self.kv_cache_config else None

    @property
    def fraction(self) -> float:
        """The share that counts: the YAML's where it says one."""
        return float(self.cache_setting("free_gpu_memory_fraction") or self.kv_cache_free_gpu_memory_fraction)

    @property
    def cards(self) -> int:
        """Cards that the deployment takes."""
        return self.tp_size * self.pp_size

    @staticmethod
    def settle(given: Mapping[str, Any]) -> dict[str, Any]:
        """As `Card.settle`."""
        return Card.settle(given)
