"""vLLM's refusals and start-up errors: its format strings from 0.2 to 0.33."""

from __future__ import annotations

from planner.diagnosis.messages.wordings.pattern import Family, Pattern
from planner.diagnosis.sizes import NUMBER

_VLLM = (
    Pattern(
        kind="vllm_kv_tokens",
        reach=200,
        needle="max seq len",
        regex=r"max seq len \((?P<max_model_len__int>\d{1,12})\) is larger than the maximum number of tokens that can "
        r"be stored in (?:the )?KV cache \((?P<kv_tokens__int>\d{1,12})\)",
        versions="vllm V0 (0.2 to 0.10)",
    ),
    Pattern(
        kind="vllm_kv_bytes",
        reach=200,
        needle="max seq len",
        regex=r"max seq len \((?P<max_model_len__int>\d{1,12})\), ?\(?"
        rf"(?P<needed_kv_bytes__gib>{NUMBER}) GiB KV cache is needed, which is larger than the available KV cache "
        rf"memory \((?P<available_kv_bytes__gib>-?{NUMBER}) GiB\)",
        versions="vllm V1 (0.7.3+)",
    ),
    Pattern(
        kind="vllm_kv_bytes_cut",
        needle="kv cache is needed",
        regex=rf"(?P<needed_kv_bytes__gib>{NUMBER}) GiB KV cache is needed",
        versions="vllm V1 (0.7.3+)",
    ),
    Pattern(
        kind="vllm_estimated",
        needle="estimated maximum model length",
        regex=r"estimated maximum model length is (?P<estimated_max_len__int>\d{1,12})",
        attach_only=True,
    ),
    Pattern(
        kind="vllm_no_blocks",
        needle="no available memory for the cache blocks",
        regex=r"No available memory for the cache blocks",
        failure="engine_budget",
        confidence="high",
        why="weights and the profiled activation peak (with what others hold) take the whole fraction: nothing is left "
        "for the KV cache",
        would_change="other processes on the card: their memory counts against the fraction too",
        advise=("raise_utilization", "shrink_engine_work", "quantize_or_split", "look_at_card"),
    ),
    Pattern(
        kind="vllm_negative_cache",
        needle="available kv cache memory: -",
        regex=rf"Available KV cache memory: (?P<available_kv_bytes__gib>-{NUMBER}) ?GiB",
    ),
    Pattern(
        kind="vllm_auto_fit",
        needle="cannot auto-fit max_model_len",
        regex=r"Cannot auto-fit max_model_len: not enough GPU memory",
        failure="engine_budget",
        confidence="high",
        why="weights and the profiled activation peak take the whole fraction: not one token of KV cache fits",
        advise=("raise_utilization", "shrink_engine_work", "quantize_or_split"),
        versions="vllm 0.14+",
    ),
    Pattern(
        kind="vllm_free_on_startup",
        reach=300,
        needle="on startup is less than",
        regex=rf"Free memory on device ?(?:\w{{1,8}}:(?P<device__int>\d{{1,3}}) ?)?\((?P<free_bytes__gib>{NUMBER}) ?/ ?"
        rf"(?P<total_bytes__gib>{NUMBER}) GiB\) on startup is less than desired GPU memory utilization "
        rf"\((?P<fraction__number>{NUMBER}), (?P<requested_bytes__gib>{NUMBER}) GiB\)",
        versions="vllm 0.9.2+",
    ),
    Pattern(
        kind="vllm_profiling",
        reach=200,
        needle="error in memory profiling",
        regex=rf"Error in memory profiling\.? ?(?:Initial free memory (?P<free_before_bytes__gib>{NUMBER})(?: GiB)?,? "
        rf"current free memory (?P<free_after_bytes__gib>{NUMBER})(?: GiB)?)?",
        versions="vllm",
    ),
    Pattern(
        kind="vllm_warm_up",
        reach=200,
        needle="when warming up",
        regex=r"CUDA out of memory occurred when warming up (?:sampler|pooler[^)]{0,40}\)?) with "
        r"(?P<dummy_requests__int>\d{1,9}) dummy requests",
        failure="engine_budget",
        second="device_full",
        confidence="high",
        why="the logits of max_num_seqs x vocabulary in float32, with the sampler's sort buffers, do not fit what the "
        "KV pool has left",
        would_change="a lower max_num_seqs or fraction: if it starts, this was it",
        advise=("lower_max_num_seqs", "lower_utilization"),
        versions="vllm V1 (0.8+)",
    ),
    Pattern(
        kind="vllm_external_weights",
        needle="externally held weights",
        regex=r"Externally held weights on device|after excluding external process's weights",
        failure="engine_budget",
        second="other_process",
        confidence="high",
        why="weights that another process holds already exceed the fraction",
        advise=("raise_utilization", "look_at_card"),
        versions="vllm 0.33+",
    ),
    Pattern(
        kind="vllm_swap_space",
        reach=200,
        needle="too large swap space",
        regex=rf"(?<!Possibly )Too large swap space\. (?P<swap_space_bytes__gib>{NUMBER}) GiB out of the "
        rf"(?P<host_total_bytes__gib>{NUMBER}) GiB",
        failure="host_memory",
        confidence="high",
        why="the CPU swap space of all GPUs together is too large a part of the host's RAM",
        advise=("lower_swap_space",),
        versions="vllm <= 0.17",
    ),
    Pattern(
        kind="vllm_swap_space_warning",
        needle="too large swap space",
        regex=r"Possibly too large swap space",
        failure="not_a_failure",
        second="host_memory",
        confidence="high",
        why="a warning: the swap space is more than 40% of the host's RAM",
        advise=("lower_swap_space",),
        versions="vllm <= 0.17",
    ),
)

_VLLM_RUNNING = (
    Pattern(
        kind="vllm_wake_up",
        reach=250,
        needle="cumem_allocator.cpp",
        regex=r"CUDA Error: out of memory at \S{0,120}cumem_allocator\.cpp:\d{1,5}",
        failure="device_full",
        second="other_process",
        confidence="medium",
        why="vLLM woke from its sleep and found no room for the share that it had released: the trainer, or another "
        "process, still holds the card",
        would_change="more free memory when the engine wakes: an order in time, not a size",
        advise=("sleep_engine", "colocated_order"),
        versions="vllm 0.7+ with sleep mode",
    ),
    Pattern(
        kind="vllm_preempted",
        reach=250,
        needle="because there is not enough kv cache space",
        regex=r"is preempted by [^\n]{0,80}because there is not enough KV cache space",
        failure="not_a_failure",
        second="engine_budget",
        confidence="high",
        why="the KV cache was full; a request was put back and is computed again: normal under load, and slow",
        would_change="preemption all the time: the cache is too small for the load",
        advise=("lower_max_num_seqs", "raise_utilization"),
        versions="vllm",
    ),
)

_VLLM_LOAD = (
    Pattern(
        kind="vllm_load",
        needle="failed to load model - not enough gpu memory",
        regex=r"Failed to load model - not enough GPU memory",
        failure="device_full",
        second="other_process",
        confidence="medium",
        why="the weights did not fit while loading; the nested message would say how far it got",
        would_change="the original error's figures",
        advise=("quantize_or_split", "look_at_card"),
        versions="vllm 0.13+",
    ),
)

FAMILIES = (
    Family(program="vllm", patterns=_VLLM),
    Family(program="vllm", patterns=_VLLM_RUNNING, gap=300),
    Family(program="vllm", patterns=_VLLM_LOAD, gap=4000, wraps=True),
)
