"""llama.cpp, ik_llama.cpp and everything on ggml (CUDA, ROCm, Vulkan, Metal), and Ollama.

ggml prints neither the capacity nor what is free; the kind of buffer (weights, KV cache, compute) names the lever.
Numbers can carry a decimal comma (the C locale's).
"""

from __future__ import annotations

from planner.diagnosis.messages.wordings.pattern import Family, Pattern
from planner.diagnosis.sizes import NUMBER, size_pattern

_GGML = (
    Pattern(
        kind="ggml_pinned_vulkan",
        needle="failed to allocate pinned memory",
        regex=r"Failed to allocate pinned memory",
        failure="host_memory",
        second="not_a_failure",
        why="pinned memory is the host's; ggml usually falls back to pageable memory and goes on",
        would_change="the program stopping right after it",
        advise=("less_pinned_memory",),
    ),
    Pattern(
        kind="ggml_pinned_cuda",
        needle="of pinned memory",
        regex=rf"failed to allocate (?P<tried_bytes__mib>{NUMBER}) Mi?B of pinned memory",
        failure="not_a_failure",
        second="host_memory",
        why="pinned memory is the host's; ggml falls back to pageable memory and goes on",
        would_change="the program stopping right after it",
        advise=("less_pinned_memory",),
    ),
    Pattern(
        kind="ggml_vulkan_limit",
        reach=200,
        needle=("exceeds device memory allocation limit", "exceeds device buffer size limit"),
        regex=r"Requested buffer size (?:\((?P<tried_bytes__bytes>\d{1,25})\) )?exceeds device (?:memory allocation"
        r"|buffer size) limit"
        r"(?: \((?P<allowed_bytes__bytes>\d{1,25})\))?",
        failure="limit_not_capacity",
        second="single_huge",
        confidence="high",
        why="Vulkan limits one buffer (often 2 or 4 GiB); the device need not be full",
        advise=("smaller_ggml_buffers",),
    ),
    Pattern(
        kind="ggml_metal",
        reach=400,
        needle="kiogpucommandbuffercallbackerroroutofmemory",
        # MLX prints the same code
        regex=r"(?:ggml_metal\w{0,40}|command buffer \d{1,4} failed with status)[^\[\]]{0,300}?"
        r"kIOGPUCommandBufferCallbackErrorOutOfMemory",
        failure="device_full",
        confidence="medium",
        why="Metal found no memory for the commands: the working set is larger than the GPU may use",
        advise=("ggml_less_offload", "ggml_smaller_context"),
    ),
    Pattern(
        kind="ggml_size",
        needle="mib on device",
        regex=rf"allocating (?P<tried_printed_mib__number>(?P<tried_bytes__mib>{NUMBER})) MiB on device "
        r"(?P<device__int>\d{1,3})",
    ),
    Pattern(
        kind="ggml_buffer",
        needle="buffer of size",
        regex=r"failed to allocate (?P<backend__word>[A-Za-z]{2,12}\d{0,2}) ?(?:_?host)? ?buffer of size "
        r"(?P<tried_bytes__bytes>\d{1,25})",
    ),
    Pattern(
        kind="ggml_vulkan_size",
        needle="device memory allocation of size",
        regex=r"Device memory allocation of size (?P<tried_bytes__bytes>\d{1,25}) failed",
    ),
    Pattern(
        kind="ggml_metal_buffer",
        needle="failed to allocate buffer, size",
        regex=rf"failed to allocate buffer, size ?= ?(?P<tried_bytes__mib>{NUMBER}) Mi?B",
    ),
    Pattern(
        kind="ggml_weights",
        needle="unable to allocate",
        regex=r"unable to allocate (?:backend|[A-Za-z]{2,12}\d{0,2}) buffer",
    ),
    Pattern(
        kind="ggml_kv",
        needle=(
            "for kv cache",
            "for the kv cache",
            "allocate kv cache",
            "allocate the kv cache",
            "attention kv cache",
            "attention cache",
        ),
        regex=r"failed to allocate (?:buffer|memory) for (?:the )?(?:self-attention |cross-attention )?(?:kv|KV) cache"
        r"|failed to allocate (?:the )?kv cache",
    ),
    Pattern(
        kind="ggml_compute",
        needle="failed to allocate compute",
        regex=r"failed to allocate compute (?:pp )?buffers",
    ),
    Pattern(
        kind="ggml_graph",
        needle="ggml_gallocr_reserve_n",
        regex=r"ggml_gallocr_reserve_n(?:_impl)?: failed",
        attach_only=True,
    ),
    Pattern(
        kind="ggml_retry",
        needle="retrying without pipeline parallelism",
        regex=r"retrying without pipeline parallelism",
    ),
    Pattern(
        kind="ggml_working_set",
        reach=200,
        needle="recommended max working set size",
        regex=r"current allocated size is greater than the recommended max working set size",
        failure="not_a_failure",
        second="device_full",
        confidence="medium",
        why="a warning: more is allocated than Metal recommends for the GPU; slow, or the failure that follows",
        advise=("ggml_less_offload", "ggml_smaller_context"),
    ),
    Pattern(
        kind="ggml_device_lost",
        needle="erroroutofdevicememory",
        regex=r"ErrorOutOfDeviceMemory",
    ),
    Pattern(
        kind="ggml_cuda_malloc",
        needle="malloc failed: out of memory",
        regex=r"(?:cuda|hip)Malloc failed: out of memory",
    ),
    Pattern(
        kind="ggml_cuda_error",
        reach=300,
        needle="cuda error",
        regex=r"(?:ggml_cuda\w{0,30}|ggml_abort|ggml-cuda\.cu:\d{1,6}): [^\n]{0,80}(?:CUDA|ROCm) error"
        r"[^\n]{0,60}out of memory",
    ),
)

_FIT = (
    Pattern(
        kind="ggml_sycl_size",
        reach=200,
        needle="bytes of memory on device",
        regex=r"can't allocate (?P<tried_bytes__bytes>\d{1,25}) Bytes of memory on device"
        r"(?: (?P<device__int>\d{1,3}))?",
    ),
    Pattern(
        kind="ggml_fit",
        reach=200,
        needle="meet free memory target",
        regex=r"cannot meet free memory target of (?P<fit_target_bytes__mib>\d{1,9}) MiB, need to reduce device memory "
        r"by (?P<missing_bytes__mib>\d{1,9}) MiB",
        failure="device_full",
        second="other_process",
        confidence="medium",
        why="llama.cpp's own fit found that layers, context and buffers need more than the card has free",
        would_change="more free memory on the card at the start",
        advise=("ggml_less_offload", "ggml_smaller_context"),
    ),
    Pattern(
        kind="ggml_fit_failed",
        reach=200,
        needle="failed to fit params to free device memory",
        regex=r"failed to fit params to free device memory",
        failure="device_full",
        second="other_process",
        confidence="low",
        why="llama.cpp could not make its settings fit the free memory, mostly because some were set by hand",
        would_change="the load that follows: without a failure there, the settings fitted after all",
        advise=("ggml_less_offload", "ggml_smaller_context"),
    ),
)

_OLLAMA = (
    Pattern(
        kind="ollama_layout",
        reach=200,
        needle="memory layout cannot be allocated",
        regex=r"memory layout cannot be allocated(?: with num_gpu = (?P<gpu_layers__int>-?\d{1,6}))?",
        failure="device_full",
        second="other_process",
        confidence="high",
        why="the number of layers that was set (num_gpu) does not fit the GPU, and Ollama does not change it",
        advise=("ggml_less_offload", "ggml_smaller_context"),
    ),
    Pattern(
        kind="ollama_exited",
        reach=200,
        needle=("may not have enough available memory to run this model", "due to resource limitations"),
        regex=r"you may not have enough available memory to run this model|this may be due to resource limitations",
        failure="undecided",
        second="host_memory",
        confidence="low",
        why="Ollama only guesses that memory was short: its server's log names the failure",
        would_change="the lines of the server's log before this one",
        advise=("ollama_log", "ggml_smaller_context"),
    ),
    Pattern(
        kind="ollama_system_memory",
        reach=200,
        needle="model requires more system memory",
        regex=rf"model requires more system memory \({size_pattern('needed_host_bytes')}\) than is available "
        rf"\({size_pattern('host_available_bytes')}\)",
        failure="host_memory",
        confidence="high",
        why="Ollama compares the part of the model outside the GPU with the free RAM",
        advise=("smaller_model_host",),
    ),
    Pattern(
        kind="ollama_killed",
        reach=200,
        needle="runner process has terminated: signal: killed",
        regex=r"runner process has terminated: signal: killed",
        failure="host_memory",
        confidence="medium",
        why="the runner was ended by signal 9, mostly for RAM: layers and cache outside the GPU are held there",
        would_change="kill -9 by a person, or a stop of the service",
        advise=("smaller_model_host", "kernel_log"),
    ),
    Pattern(
        kind="ollama_required",
        needle="insufficient memory - required allocations",
        regex=r"insufficient memory - required allocations",
        failure="device_full",
        second="host_memory",
        why="Ollama's layout found no split of the model over GPU and RAM that fits",
        advise=("ggml_smaller_context", "ggml_less_offload"),
    ),
    Pattern(
        kind="ollama_partial",
        needle="unable to load full model on gpu",
        regex=r"unable to load full model on GPU",
        failure="not_a_failure",
        second="device_full",
        why="information: part of the layers goes to the CPU, slower but alive",
        advise=("ggml_smaller_context",),
    ),
)

FAMILIES = (
    Family(program="llama.cpp", patterns=(*_GGML, *_FIT), gap=500),
    Family(program="ollama", patterns=_OLLAMA),
)
