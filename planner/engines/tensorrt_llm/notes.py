"""What a plan says beside its figures."""

from __future__ import annotations

from typing import Final

from planner.contract.lengths import refused_note
from planner.contract.workload import Workload
from planner.engines.tensorrt_llm.resolve import Resolved
from planner.engines.tensorrt_llm.tables.releases import NEWEST, flags, parse_release
from planner.memory.quantisation import WeightScheme
from planner.model.model import Model
from planner.units import format_size

# inputs that the command line of trtllm-serve does not have, with their defaults
YAML_ONLY: Final = {"enable_attention_dp": False, "dtype": "auto", "kv_cache_config": None, "cuda_graph_config": None}


def plan_notes(
    model: Model,
    resolved: Resolved,
    scheme: WeightScheme,
    tokens: int,
    workload: Workload,
    said: tuple[str, ...],
) -> tuple[str, ...]:
    """Everything worth saying, each once; `tokens` is what the pool of the fullest card holds."""
    asked = resolved.asked
    notes = [*said, *model.spec.notes, *model.notes, *scheme.notes]
    if 0 < tokens < resolved.max_seq_len:
        notes.append(
            f"one request of max_seq_len {resolved.max_seq_len:,} does not fit in the pool: the engine cuts the"
            f" attention window to {tokens:,} tokens"
        )
    notes.append(
        f"the fraction {asked.fraction:g} is of what is left after weights and buffers, and max_seq_len does not cap"
        " the pool: the card looks full whatever the load"
    )
    if asked.cache_setting("free_gpu_memory_fraction") and asked.kv_cache_free_gpu_memory_fraction != asked.fraction:
        notes.append("the fraction of kv_cache_config beats the one on the command line")
    if asked.overwritten:
        notes.append(f"the YAML beats the command line: {'; '.join(asked.overwritten)}")
    yaml = [name for name, default in YAML_ONLY.items() if getattr(asked, name) != default]
    if yaml:
        notes.append(
            f"{', '.join(yaml)}: trtllm-serve takes this from the YAML of --extra_llm_api_options; the command has it"
            " as an option"
        )
    if asked.safety_margin_bytes:
        notes.append(f"a margin of {format_size(asked.safety_margin_bytes)} is left out of what the fraction is of")
    refused = refused_note(workload.points, resolved.max_seq_len, model.longest_request)
    if refused is not None:
        notes.append(refused.replace("--max-model-len", "--max_seq_len"))
    if resolved.release > parse_release(NEWEST):
        notes.append(f"releases after {NEWEST} are planned by its rules")
    names = [word.partition("=")[0] for word in asked.passed if word.startswith("--")]
    plain = [name for name in names if flags().get(name, {}).get("memory") == "none"]
    unclear = [name for name in names if flags().get(name, {}).get("memory") == "unknown"]
    if plain:
        notes.append(f"no effect on memory: {', '.join(plain)}")
    if unclear:
        notes.append(f"not known whether memory depends on it: {', '.join(unclear)}")
    return tuple(dict.fromkeys(notes))
