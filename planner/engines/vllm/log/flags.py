"""The flags of vLLM as its start-up log prints them: Namespace(...), "non-default args: {...}", engine config.

Only names that bear on memory are looked for; what stands between them is skipped, so that values of any shape (nested
configs, paths, tokens) do no harm.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Final

from planner.contract.inputs import inputs_of, switched_off
from planner.engines.vllm.deployment import Deployment

# Name in the log -> name in a measured case's deployment, or in its other_flags after a dot.
NAMES: Final = {
    "model": "model",
    "model_tag": "model",
    "tensor_parallel_size": "tensor_parallel",
    "pipeline_parallel_size": "pipeline_parallel",
    "data_parallel_size": "data_parallel",
    "enable_expert_parallel": "expert_parallel",
    "dtype": "dtype",
    "quantization": "quantization",
    "kv_cache_dtype": "kv_cache_dtype",
    "max_model_len": "max_model_len",
    "max_seq_len": "max_model_len",
    "max_num_seqs": "max_num_seqs",
    "max_num_batched_tokens": "max_num_batched_tokens",
    "gpu_memory_utilization": "gpu_memory_utilization",
    "enforce_eager": "enforce_eager",
    "enable_prefix_caching": ".enable_prefix_caching",
    "enable_chunked_prefill": ".enable_chunked_prefill",
    "chunked_prefill_enabled": ".enable_chunked_prefill",
    "block_size": ".block_size",
    "kv_cache_memory_bytes": ".kv_cache_memory_bytes",
    "num_gpu_blocks_override": ".num_gpu_blocks_override",
    "enable_lora": ".enable_lora",
    "max_loras": ".max_loras",
    "max_lora_rank": ".max_lora_rank",
    "cpu_offload_gb": ".cpu_offload_gb",
    "decode_context_parallel_size": ".decode_context_parallel_size",
    "mamba_ssm_cache_dtype": ".mamba_ssm_cache_dtype",
    "language_model_only": ".language_model_only",
    "skip_mm_profiling": ".skip_mm_profiling",
    "disable_hybrid_kv_cache_manager": ".disable_hybrid_kv_cache_manager",
}
# Name in a measured case -> field of the deployment, the first that logs print for it
_FIELDS: Final = {case.lstrip("."): printed for printed, case in reversed(NAMES.items())}
_MARKS: Final = ("Namespace(", "non-default args", "with config:", "vllm serve ", "api_server ")
_PAIR: Final = re.compile(
    r"(?<![\w.])['\"]?(" + "|".join(sorted(NAMES, key=len, reverse=True)) + r")['\"]?\s*[=:]\s*"
    r"('[^']{0,400}'|\"[^\"]{0,400}\"|[^\s,(){}\[\]'\"]{1,200})"
)
_OPTION: Final = re.compile(r"(?<!\S)--([a-z][a-z\-]{1,40})(?:[ =]([^\s\-][^\s]{0,200}))?")
_SHORT: Final = {"tp": "tensor_parallel_size", "pp": "pipeline_parallel_size", "dp": "data_parallel_size"}
_SERVED: Final = re.compile(r"vllm serve\s+([^\s\-][^\s]{0,300})")
_DRAFT: Final = re.compile(
    r"speculative_config['\"]?\s*[=:]\s*(?:SpeculativeConfig\()?\{?.{0,80}?method['\"]?\s*[=:]\s*['\"]?(\w{1,30})"
)
_DRAFT_TOKENS: Final = re.compile(r"num_(?:speculative|spec)_tokens['\"]?\s*[=:]\s*(\d{1,4})")


def has_flags(line: str) -> bool:
    """The line states flags."""
    return any(mark in line for mark in _MARKS)


def flags_in(line: str) -> dict[str, object]:
    """Flags of one line, under the names of a measured case; a leading dot marks one of `other_flags`."""
    found: dict[str, object] = {}
    for name, text in _PAIR.findall(line):
        value = _value(text)
        if value is not None:
            found.setdefault(NAMES[name], value)
    if "vllm serve " in line or "api_server " in line:
        for name, text in _OPTION.findall(line):
            known = NAMES.get(_SHORT.get(name, name.replace("-", "_")))
            if known is not None:
                found.setdefault(known, _value(text) if text else True)
        served = _SERVED.search(line)
        if served:
            found.setdefault("model", served.group(1))
    draft = _DRAFT.search(line)
    if draft:
        tokens = _DRAFT_TOKENS.search(line)
        found[".speculative"] = f"{draft.group(1)} {tokens.group(1) if tokens else 1}"
    return found


def words_of(stated: Mapping[str, object]) -> Iterator[str]:
    """The command line of flags under the names of a measured case, as far as they are inputs here."""
    inputs = {one.name: one for one in inputs_of(Deployment)}
    for name, value in stated.items():
        if name == "speculative":
            method, _, tokens = str(value).partition(" ")
            yield from ("--speculative-config", json.dumps({"method": method, "num_speculative_tokens": int(tokens)}))
        elif name == "gpu_memory_gib":
            yield from ("--gpu-memory", f"{value}GiB")
        elif name == "V2_model_runner":
            yield from ("--model-runner", "v2")
        elif (one := inputs.get(_FIELDS.get(name, name))) is not None and name != "engine_version":
            if isinstance(value, bool):
                yield one.spelling if value else switched_off(one)
            else:
                yield from (one.spelling, str(value))


def _value(text: str) -> object:
    """A Python or JSON scalar; None for none, for automatic values, and for what is no scalar."""
    plain = text.strip("'\"")
    if plain in ("None", "null", "", "auto"):
        return None
    if plain.lower() in ("true", "false"):
        return plain.lower() == "true"
    plain = plain.removeprefix("torch.")
    if re.fullmatch(r"-?\d{1,15}", plain):
        return int(plain)
    if re.fullmatch(r"-?\d{1,9}\.\d{1,9}", plain):
        return float(plain)
    return plain
