"""Apple's Metal: MLX, and the driver's own codes. ggml's lines on Metal are with llama.cpp, torch's with torch."""

from __future__ import annotations

from planner.diagnosis.messages.wordings.pattern import Family, Pattern

_WORKING_SET = "Metal found no memory for the commands: the working set is larger than the GPU may use"
_MLX = (
    Pattern(
        kind="mlx_largest_buffer",
        reach=250,
        needle="maximum allowed buffer size",
        regex=r"Attempting to allocate (?P<tried_bytes__bytes>\d{1,25}) bytes which is greater than the maximum "
        r"allowed "
        r"buffer size of (?P<limit_bytes__bytes>\d{1,25}) bytes",
        failure="limit_not_capacity",
        second="single_huge",
        confidence="high",
        why="Metal limits one buffer; the memory as a whole need not be full",
        advise=("shrink_tensor", "mlx_smaller"),
    ),
    Pattern(
        kind="mlx_buffers",
        reach=200,
        needle="resource limit",
        regex=r"\[metal::malloc\] Resource limit \(?(?P<buffer_limit__int>\d{1,12})\)? exceeded",
        failure="limit_not_capacity",
        confidence="high",
        why="Metal limits the number of buffers: many small arrays are alive at once; memory need not be full",
        advise=("mlx_evaluate", "mlx_smaller"),
    ),
    Pattern(
        kind="mlx_command",
        reach=250,
        needle="command buffer execution failed: insufficient memory",
        regex=r"\[METAL\] Command buffer execution failed: Insufficient Memory(?: ?\([^)]{0,80}\))?",
        failure="device_full",
        confidence="medium",
        why=_WORKING_SET,
        advise=("mlx_smaller", "mlx_cache_limit"),
    ),
    Pattern(
        kind="mlx_allocate",
        reach=200,
        needle=("[malloc_or_wait]", "[metal::malloc]", "[cuda::malloc]"),
        regex=r"\[(?:malloc_or_wait|metal::malloc|cuda::malloc)\] (?:Unable|Failed) to allocate "
        r"(?P<tried_bytes__bytes>\d{1,25}) bytes",
        failure="device_full",
        confidence="medium",
        why="MLX found no room for one array",
        advise=("mlx_smaller", "mlx_cache_limit"),
    ),
)
_METAL = (
    Pattern(
        kind="metal_dimensions",
        reach=200,
        needle="product of dimension sizes > 2**31",
        regex=r"product of dimension sizes > 2\*\*31",
        failure="limit_not_capacity",
        second="single_huge",
        confidence="high",
        why="Metal's arrays have at most 2^31 elements, however much memory is free",
        advise=("shrink_tensor", "attention_kernel"),
    ),
    Pattern(
        kind="metal_code_8",
        reach=200,
        needle=("insufficient memory (ioaf code 8)", "mtlcommandbuffererrordomain code=8"),
        regex=r"(?:MTLCommandBufferErrorDomain Code=8[^\n]{0,20})?Insufficient Memory \(IOAF code 8\)",
        failure="device_full",
        confidence="medium",
        why=_WORKING_SET,
        advise=("smaller_work", "mlx_cache_limit"),
    ),
    Pattern(
        kind="metal_command",
        needle="kiogpucommandbuffercallbackerroroutofmemory",
        regex=r"(?:Insufficient Memory ?\(\w{1,12}: ?)?kIOGPUCommandBufferCallbackErrorOutOfMemory",
        failure="device_full",
        confidence="medium",
        why=_WORKING_SET,
        advise=("mlx_smaller", "mlx_cache_limit"),
    ),
)

FAMILIES = (Family(program="mlx", patterns=_MLX, gap=300), Family(program="metal", patterns=_METAL, gap=300))
