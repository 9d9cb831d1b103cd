"""What each figure means, in a sentence, and which figures are sizes in bytes."""

from __future__ import annotations

MEANINGS: dict[str, str] = {
    "tried_bytes": "the request, after the allocator's rounding",
    "total_bytes": "what the driver reports as the device's memory",
    "free_bytes": "free on the device, for everyone, after the allocator gave back what it could",
    "allowed_bytes": "the most this process may have (a memory fraction or watermark)",
    "allocated_bytes": "live tensors of this process (Paddle: taken on the device, by all processes)",
    "reserved_total_bytes": "segments this process's allocator has from the driver; allocated lies inside",
    "reserved_total_bytes_excluding_allocated": "reserved and not allocated (torch 1.0 to 1.3 call it cached)",
    "reserved_unallocated_bytes": "reserved and not allocated: slack in partly used segments",
    "private_pool_bytes": "free blocks held for CUDA graphs and other private pools",
    "process_in_use_bytes": "what NVML says this process has: context, allocator and other libraries",
    "other_process_bytes": "what NVML says the listed processes have, together",
    "other_process_list": "the listed processes one by one",
    "mps_other_bytes": "this process's Metal buffers outside torch's heaps",
    "needed_kv_bytes": "KV cache that one request of the full length needs",
    "available_kv_bytes": "what the program has for it",
    "max_model_len": "the context that was asked for, in tokens",
    "kv_tokens": "tokens that the KV cache holds",
    "estimated_max_len": "the engine's own estimate of the longest context, in tokens",
    "fraction": "the fraction of the device that the engine may use",
    "requested_bytes": "fraction x capacity, what the engine wants free at start",
    "free_before_bytes": "free before the engine profiled",
    "free_after_bytes": "free after the engine profiled",
    "dummy_requests": "sequences in the engine's warm-up",
    "tried_tokens": "tokens asked of the engine's pool",
    "available_tokens": "tokens free in the engine's pool",
    "evictable_tokens": "tokens that the prefix cache would give up",
    "retracted_reqs": "requests put back to wait",
    "prefill_tokens": "tokens of the warm-up's prefill",
    "tried_printed_mib": "the request as printed, in MiB",
    "shape": "the tensor's shape",
    "dtype": "the tensor's type",
    "limit_bytes": "the limit that was reached: of the pool, of one buffer, of the chip",
    "in_use_bytes": "in use on the device or in the pool",
    "xla_parameter_bytes": "inputs of the compiled program",
    "xla_constant_bytes": "constants of the compiled program",
    "xla_live_out_bytes": "outputs of the compiled program",
    "xla_temp_bytes": "temporaries of the compiled program: activations",
    "xla_total_bytes": "all the compiled program needs",
    "xla_fragmentation_bytes": "holes in the program's plan",
    "exit_code": "128 + signal 9, or -9",
    "host_used_bytes": "RAM in use",
    "host_total_bytes": "RAM of the machine",
    "host_limit_bytes": "the memory limit of the job or group",
    "swap_total_bytes": "swap of the machine",
    "needed_bytes": "what the program needs in all",
    "buffer_limit": "buffers that may exist at once",
    "host_resident_bytes": "RAM of the killed process",
    "host_virtual_bytes": "address space of the killed process",
    "needed_host_bytes": "RAM the program wants",
    "host_available_bytes": "RAM that is available",
    "swap_space_bytes": "RAM for swapped KV blocks",
    "driver_reserved_bytes": "what the driver keeps for itself",
    "process_list": "the listed processes one by one",
    "cache_flushes": "times the allocator gave its cache back within a step",
    "num_ooms": "out-of-memory errors this allocator has raised",
    "num_alloc_retries": "times the cache was given back to find room",
    "non_releasable_bytes": "free pieces of split blocks",
    "largest_inactive_bytes": "the largest free block that could serve such a request",
    "active_bytes": "allocated, or freed and awaiting another stream",
    "tensor_requested_bytes": "what tensors asked for, before rounding",
}


def meaning(name: str) -> str:
    """The sentence for a figure; for peaks that of the figure itself."""
    if name.startswith("peak_"):
        return "the most so far: " + MEANINGS.get(name.removeprefix("peak_"), name.removesuffix("_bytes"))
    return MEANINGS.get(name, "")


def is_size(name: str) -> bool:
    """Whether the figure is a size in bytes, or a list of sizes."""
    return name.endswith("_bytes") or name in ("other_process_list", "process_list", "tried_list")
