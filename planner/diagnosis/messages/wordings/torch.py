"""PyTorch's caching allocators: CUDA and HIP, cudaMallocAsync, XPU, MPS; and its bare errors without figures.

Wordings by version: torch 1.0 to 2.14 (strings of the released binaries), the XPU and MPS forms from their sources and
from real messages. Each figure has its own pattern, because logs cut and wrap the line anywhere.
"""

from __future__ import annotations

from planner.diagnosis.messages.wordings.pattern import Family, Pattern
from planner.diagnosis.sizes import size_pattern as size

_GPU = r"(?:GPU|NPU|XPU|MUSA)\s?(?P<device__int>\d{1,3})?\s?[\x00-\x1f]?\s?"

_CACHING = (
    Pattern(
        kind="torch_1eb",
        needle="tried to allocate more than",
        regex=r"Tried to allocate more than 1EB memory",
        failure="bug",
        confidence="high",
        why="torch prints this for a negative or overflowed size: the request is no size of any memory",
        advise=("fix_size_bug",),
        versions="torch 1.10+",
    ),
    Pattern(
        kind="torch_preempted",
        reach=200,
        needle="preemptively reject",
        regex=rf"preemptively rejected because it would exceed per_process_memory_fraction limit\.? ?"
        rf"(?:Requested size: {size('tried_bytes')})?",
        versions="torch 2.12+",
    ),
    Pattern(
        kind="xpu_block_limit",
        needle="can not allocate memory block",
        regex=r"can NOT allocate memory block with size larger than (?:\d{1,3} ?GB)",
        versions="Intel extension for PyTorch",
    ),
    Pattern(
        kind="torch_tried",
        needle="tried to allocate",
        regex=rf"(?<!you )Tried to allocate {size('tried_bytes')}",
    ),
    Pattern(
        kind="torch_tried_cut",
        needle="tried to allocate",
        regex=r"(?<!you )Tried to allocate(?! (?:[\d,.]|more than))",
    ),
    # The GPU's number and capacity, in both styles; "capacty" is what torch 2.1 prints.
    Pattern(kind="torch_total_old", needle="total capac", regex=rf"{_GPU};? {size('total_bytes')} total capac"),
    Pattern(
        kind="torch_total",
        needle="total capac",
        regex=rf"(?:{_GPU}has a )?total capaci?ty of {size('total_bytes')}",
    ),
    Pattern(kind="torch_total_bare", needle="total capac", regex=rf"{size('total_bytes')} total capac"),
    Pattern(kind="torch_free_of_which", needle="is free", regex=rf"of which {size('free_bytes')} is free"),
    Pattern(kind="torch_free", needle="free", regex=rf"{size('free_bytes')} (?:is )?free ?[;,.)]", attach_only=True),
    Pattern(kind="torch_allowed", needle="allowed", regex=rf"{size('allowed_bytes')} allowed\b", attach_only=True),
    Pattern(kind="torch_allocated_old", needle="already alloc", regex=rf"{size('allocated_bytes')} already alloc"),
    Pattern(
        kind="torch_allocated",
        needle="allocated by pytorch",
        regex=rf"{size('allocated_bytes')} is allocated by PyTorch",
    ),
    Pattern(
        kind="torch_private",
        needle="private pools",
        regex=rf"with {size('private_pool_bytes')} allocated in private pools",
    ),
    Pattern(
        kind="torch_unallocated",
        needle="reserved by pytorch",
        regex=rf"{size('reserved_unallocated_bytes')} is reserved by PyTorch but",
    ),
    Pattern(
        kind="torch_reserved_old",
        needle="reserved in total",
        regex=rf"{size('reserved_total_bytes')} reserved in total",
    ),
    Pattern(
        kind="torch_cached",
        needle="cached",
        regex=rf"{size('reserved_total_bytes_excluding_allocated')} cached\b",
        attach_only=True,
    ),
    Pattern(
        kind="torch_in_use",
        needle="memory in use",
        regex=rf"this process has {size('process_in_use_bytes')} memory in use",
    ),
    Pattern(
        kind="torch_process",
        needle="memory in use",
        regex=rf"Process \d{{1,10}} has {size('other_process_bytes')} memory in use",
        repeats=True,
    ),
    Pattern(
        kind="torch_advice",
        needle="memory management",
        regex=r"See documentation for Memory Management",
        attach_only=True,
    ),
    Pattern(
        kind="torch_word",
        needle="out of memory",
        regex=r"(?P<backend__word>CUDA|HIP|XPU|NPU|MUSA|MLU) out of (?:the )?memory",
    ),
)

_ASYNC = (
    Pattern(
        kind="torch_async",
        needle="would exceed allowed memory",
        regex=r"Allocation on device (?P<device__int>\d{1,3}) would exceed allowed memory",
    ),
    Pattern(
        kind="async_allocated",
        needle="currently allocated",
        regex=rf"Currently allocated ?: {size('allocated_bytes')}",
        attach_only=True,
    ),
    Pattern(kind="async_tried", needle="requested", regex=rf"Requested ?: {size('tried_bytes')}", attach_only=True),
    Pattern(kind="async_total", needle="limit", regex=rf"Device limit ?: {size('total_bytes')}", attach_only=True),
    Pattern(
        kind="async_free",
        needle="free",
        regex=rf"Free \(according to CUDA\) ?: {size('free_bytes')}",
        attach_only=True,
    ),
    Pattern(
        kind="async_allowed",
        needle="limit",
        regex=rf"PyTorch limit \(set by user-supplied memory fraction\) ?: {size('allowed_bytes')}",
        attach_only=True,
    ),
)

_MPS = (
    Pattern(
        kind="mps_buffer",
        needle="invalid buffer size",
        regex=rf"Invalid buffer size: {size('tried_bytes')}",
        failure="single_huge",
        second="limit_not_capacity",
        confidence="high",
        why="one tensor is larger than the largest buffer that Metal makes, however much memory is free",
        advise=("shrink_tensor", "attention_kernel"),
        versions="torch (MPS)",
    ),
    Pattern(
        kind="mps_tried",
        needle="tried to allocate",
        regex=rf"Tried to allocate {size('tried_bytes')} on (?:private|shared) pool",
    ),
    Pattern(
        kind="mps_allocated",
        needle="mps allocated",
        regex=rf"MPS allocated: {size('allocated_bytes')}",
    ),
    Pattern(kind="mps_other", needle="other allocations", regex=rf"other allocations: {size('mps_other_bytes')}"),
    Pattern(kind="mps_allowed", needle="max allowed", regex=rf"max allowed: {size('allowed_bytes')}"),
    Pattern(kind="mps_unlimited", needle="max allowed", regex=r"max allowed: unlimited", attach_only=True),
    Pattern(kind="mps_word", needle="mps backend out", regex=r"MPS backend out of memory"),
)

_BARE_WHY = "raised outside the caching allocator (context, driver, a library), which prints no figures"
_BARE = (
    Pattern(
        kind="pinned_memory",
        reach=200,
        needle=("cudahostalloc", "cudahostregister", "cudamallochost", "pin_memory("),
        regex=r"(?:cudaHostAlloc|cudaMallocHost|cudaHostRegister)[^.\n]{0,80}(?:out of memory|failed)"
        r"|out of memory[^\n]{0,60}(?:cudaHostAlloc|cudaMallocHost|cudaHostRegister)\b"
        r"|\bpin_memory\([^)]{0,40}\)[^:]{0,90}(?:RuntimeError|torch\.AcceleratorError): (?:CUDA|HIP) "
        r"error: out of memory"
        r"|(?:CUDA|HIP) error: out of memory [^:]{0,60}File[^:]{0,60}\bpin_memory\(\)",
        failure="host_memory",
        second="device_full",
        why="a pinned allocation is host memory, whatever the text says next to it",
        advise=("less_pinned_memory",),
    ),
    Pattern(
        kind="cuda_driver_error",
        needle="driver error: out of memory",
        regex=r"(?:CUDA|HIP) driver error: out of memory",
        failure="device_full",
        second="other_process",
        confidence="low",
        why=f"the driver could not map memory (expandable segments, cuMem*): {_BARE_WHY}",
        would_change="the card's state at that moment: nvidia-smi, or a torch message with figures",
        advise=("look_at_card", "restart_test"),
    ),
    Pattern(
        kind="cuda_error",
        reach=200,
        needle=("error: out of memory", "cuda error", "hip error"),
        regex=r"(?:CUDA|HIP|XPU|NPU)(?: [Rr]untime)? error(?: \d{1,4})?(?: at [\w./\\-]{1,80}:\d{1,6})?: out of memory",
        failure="device_full",
        second="other_process",
        confidence="low",
        why=_BARE_WHY,
        would_change="the card's state at that moment: if it was held by another process, that is the finding",
        advise=("look_at_card", "launch_blocking", "one_rank_per_gpu"),
    ),
    Pattern(
        kind="cuda_runtime_error",
        reach=300,
        needle="out of memory",
        regex=r"cuda runtime error \(2\) ?: out of memory|THCudaCheck FAIL [^\n]{0,200}error=2 ?: out of memory",
        failure="device_full",
        second="other_process",
        confidence="low",
        why="torch before 1.0 prints no figures",
        would_change="a newer torch, whose message has figures; nvidia-smi at the same moment",
        advise=("look_at_card", "upgrade_torch"),
        versions="torch <= 0.4",
    ),
    Pattern(
        kind="cuda_code",
        needle="out_of_memory",
        regex=r"\b(?:CUDA_ERROR_OUT_OF_MEMORY|hipErrorOutOfMemory)\b",
        failure="device_full",
        second="other_process",
        confidence="low",
        why="the driver's code without figures",
        would_change="a message with figures, or the card's state at that moment",
        advise=("look_at_card",),
    ),
    Pattern(
        kind="cuda_code_camel",
        needle="outofmemory",
        regex=r"\bhipErrorOutOfMemory\b|\bcudaErrorMemoryAllocation\b|\bOutOfMemoryError\b",
        failure="device_full",
        second="other_process",
        confidence="low",
        why="an out-of-memory error whose text is missing",
        would_change="the whole message",
        advise=("paste_more", "look_at_card"),
    ),
    Pattern(
        kind="cuda_memory_allocation",
        needle="cudaerrormemoryallocation",
        regex=r"\bcudaErrorMemoryAllocation\b",
        failure="device_full",
        second="other_process",
        confidence="low",
        why="the runtime's code without figures",
        would_change="a message with figures, or the card's state at that moment",
        advise=("look_at_card",),
    ),
    Pattern(
        kind="cuda_word",
        needle="out of memory",
        regex=r"\b(?:CUDA|HIP|GPU|XPU|cuda\w{0,12}|hip\w{0,12}|device) (?:is |ran |run |runs )?out of (?:the )?memory"
        r"|\b(?:cuda|hip)Malloc\w{0,8}\b[^\n]{0,60}out of memory",
        failure="device_full",
        confidence="low",
        why="the text says out of memory and gives no figure",
        would_change="the rest of the message: the figures decide the class",
        advise=("paste_more", "look_at_card"),
    ),
)

FAMILIES = (
    Family(program="pytorch-mps", patterns=_MPS, gap=300),
    Family(program="pytorch", patterns=_CACHING),
    Family(program="pytorch", patterns=_ASYNC, gap=300),
    Family(program="pytorch", patterns=_BARE, gap=200, yields=True),
)
