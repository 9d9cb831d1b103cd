"""Libraries that allocate beside the framework: NCCL, cuBLAS, cuDNN, bitsandbytes, Paddle, RMM, torch_memory_saver,
DirectML."""

from __future__ import annotations

from planner.diagnosis.messages.wordings.pattern import Family, Pattern
from planner.diagnosis.sizes import NUMBER

_NCCL = (
    Pattern(
        kind="nccl_host",
        needle="host alloc",
        regex=r"Failed to (?:CUDA |HIP )?host (?:c?alloc|malloc) (?P<tried_bytes__bytes>\d{1,25})",
        failure="host_memory",
        why="NCCL's host buffers are pinned or shared host memory",
        advise=("shm_size", "less_pinned_memory"),
    ),
    Pattern(
        kind="nccl_size",
        needle=("failed to cuda", "failed to hip"),
        regex=r"Failed to (?:CUDA|HIP) (?:malloc|calloc|calloc async|mem alloc|register|uncached malloc) "
        r"(?P<tried_bytes__bytes>\d{1,25})",
    ),
    Pattern(
        kind="nccl",
        needle=("cuda failure", "hip failure"),
        regex=r"(?:NCCL WARN )?(?:Cuda|HIP) failure (?:\d{1,4} )?'(?:out of memory|hipErrorOutOfMemory)'",
    ),
    Pattern(
        kind="nccl_torch",
        reach=200,
        needle="unhandled cuda error",
        regex=r"ncclUnhandledCudaError: Call to CUDA function failed\.[^\n]{0,40}Cuda failure (?:\d{1,4} )?"
        r"'out of memory'|Last error: Cuda failure (?:\d{1,4} )?'out of memory'",
    ),
)
_NCCL_SHM = (
    Pattern(
        kind="nccl_shm",
        needle="/dev/shm/nccl",
        regex=r"(?:Error while (?:creating|attaching to) shared memory segment|failed to extend|Call to "
        r"posix_fallocate failed)"
        r"[^\n]{0,40}/dev/shm/nccl|posix_fallocate failed[^\n]{0,20}No space left on device",
        failure="host_memory",
        confidence="high",
        why="NCCL's shared-memory segments did not fit /dev/shm",
        advise=("shm_size",),
    ),
)

_CUBLAS_WHY = (
    "the library could not create its handle or workspace outside torch's allocator: usually the card is full, torch's "
    "cache included; an earlier asynchronous error (a label out of range) or a version mismatch says the same"
)
_CUBLAS = (
    Pattern(
        kind="cublas",
        needle="cublas_status_",
        regex=r"CUBLAS_STATUS_(?:ALLOC_FAILED|NOT_INITIALIZED)(?: when calling `?\w{1,40})?",
        failure="device_full",
        second="bug",
        confidence="low",
        why=_CUBLAS_WHY,
        would_change="a rerun with CUDA_LAUNCH_BLOCKING=1: another error then is the real one",
        advise=("smaller_work", "launch_blocking", "look_at_card"),
    ),
)
_CUDNN = (
    Pattern(
        kind="cudnn_alloc",
        needle="cudnn_status_alloc_failed",
        regex=r"CUDNN_STATUS_ALLOC_FAILED",
        failure="device_full",
        second="bug",
        confidence="low",
        why=_CUBLAS_WHY,
        would_change="a rerun with CUDA_LAUNCH_BLOCKING=1: another error then is the real one",
        advise=("smaller_work", "launch_blocking", "look_at_card"),
    ),
    Pattern(
        kind="cudnn",
        needle="cudnn_status_",
        regex=r"CUDNN_STATUS_(?:NOT_INITIALIZED|INTERNAL_ERROR)",
        failure="device_full",
        second="bug",
        confidence="low",
        why=_CUBLAS_WHY,
        would_change="a rerun with CUDA_LAUNCH_BLOCKING=1, or with a small input: if it works, it was memory",
        advise=("smaller_work", "launch_blocking", "look_at_card"),
    ),
    Pattern(
        kind="cudnn_engine",
        needle=(
            "unable to find an engine to execute",
            "valid cudnn algorithm",
            "no algorithm worked",
            "failed to get convolution algorithm",
            "no valid execution plans",
            "no execution plans",
        ),
        regex=r"(?:GET|FIND) was unable to find an engine to execute this computation|[Uu]nable to find a valid "
        r"cuDNN algorithm"
        r"|No algorithm worked!|Failed to get convolution algorithm|No (?:valid )?execution plans (?:built|found"
        r"|support)",
        failure="device_full",
        second="bug",
        confidence="low",
        why="no convolution kernel could get its workspace, or none supports these types",
        would_change="a rerun with a small input: if it works, it was memory",
        advise=("smaller_work", "launch_blocking"),
    ),
)

_BITSANDBYTES = (
    Pattern(
        kind="bitsandbytes",
        reach=300,
        needle="error out of memory at line",
        regex=r"Error out of memory at line \d{1,6} in file \S{0,200}?(?:ops\.(?:cu|hip)|pythonInterface\.c(?:pp)?)\b",
        failure="device_full",
        confidence="medium",
        why="bitsandbytes allocates outside torch and stops the process when it cannot",
        would_change="torch's figures at that moment: its cache may hold what bitsandbytes lacks",
        advise=("paged_optimizer", "smaller_work", "look_at_card"),
    ),
)

_PADDLE = (
    Pattern(
        kind="paddle",
        reach=300,
        needle="cannot allocate",
        regex=rf"Cannot allocate (?P<tried_bytes__size>{NUMBER}[KMGT]?B) (?:GPU )?memory(?: on GPU "
        rf"(?P<device__int>\d{{1,3}}))?"
        rf"(?:, (?P<allocated_bytes__size>{NUMBER}[KMGT]?B) memory has been allocated)?"
        rf"(?:,?(?: and)? available memory is (?:only )?(?P<free_bytes__size>{NUMBER}[KMGT]?B))?",
    ),
)

_PADDLE_BARE = (
    Pattern(
        kind="paddle_bare",
        reach=200,
        needle=("paddlecheckerror: out of memory", "paddle/fluid/"),
        regex=r"PaddleCheckError: out of memory|\bout of memory at \[/?[Pp]addle/",
        failure="device_full",
        second="other_process",
        confidence="low",
        why="Paddle printed no figure",
        would_change="the card's state at that moment",
        advise=("look_at_card", "smaller_work"),
    ),
)

_OTHERS = (
    Pattern(
        kind="cupy",
        reach=200,
        needle="allocated so far",
        regex=r"Out of memory allocating (?P<tried_bytes__int>[\d,]{1,30}) bytes \(allocated so far: "
        r"(?P<allocated_bytes__int>[\d,]{1,30}) bytes(?:, limit set to: (?P<allowed_bytes__int>[\d,]{1,30}) bytes)?",
    ),
    Pattern(
        kind="deepspeed_flushes",
        needle="allocator cache flushes since last step",
        regex=r"(?P<cache_flushes__int>\d{1,9}) pytorch allocator cache flushes since last step",
        failure="not_a_failure",
        second="device_full",
        confidence="high",
        why="memory pressure: the allocator gave its cache back to find room, and went on, slowly",
        would_change="an out-of-memory error after it",
        advise=("smaller_work",),
        versions="DeepSpeed",
    ),
    Pattern(
        kind="directml",
        reach=200,
        needle="gpu video memory available",
        regex=r"Could not allocate tensor with (?P<tried_bytes__bytes>\d{1,25}) bytes\. There is not enough GPU video "
        r"memory available",
        failure="device_full",
        second="limit_not_capacity",
        confidence="low",
        why="DirectML gives no capacity; Windows' own budget for the process counts too",
        would_change="the dedicated and shared GPU memory in the task manager",
        advise=("smaller_work", "windows_shared"),
    ),
    Pattern(
        kind="cufft_curand",
        needle=("_alloc_failed", "curand_status_alloc", "cufft_internal_error"),
        regex=r"\b(?:CUFFT|CURAND|CUSOLVER|CUSPARSE)_(?:STATUS_)?ALLOC(?:ATION)?_FAILED\b|\bCUFFT_INTERNAL_ERROR\b",
        failure="device_full",
        second="bug",
        confidence="low",
        why=_CUBLAS_WHY,
        advise=("launch_blocking", "look_at_card"),
    ),
)

_MEMORY_SAVER = (
    Pattern(
        kind="memory_saver",
        needle="torch_memory_saver",
        regex=r"\[torch_memory_saver\.cpp\][^\n\[]{0,40}cudaError error: 2 \(out of memory\)",
        failure="other_process",
        second="device_full",
        confidence="low",
        why="memory that was released for another user of the card (trainer, engine) could not be taken back: the "
        "other one still holds it",
        would_change="the other process releasing first: an order in time, not a size",
        advise=("colocated_order", "look_at_card"),
    ),
    Pattern(
        kind="memory_saver_warning",
        needle="may not be an issue",
        regex=r"\[torch_memory_saver\.cpp\] cuMemCreate CUDA_ERROR_OUT_OF_MEMORY \(may not be an issue",
        failure="not_a_failure",
        second="device_full",
        why="torch frees its cache and tries again after this line",
        would_change="an error of the same program right after it",
        advise=("look_further",),
    ),
)

FAMILIES = (
    Family(program="torch_memory_saver", patterns=_MEMORY_SAVER, gap=600),
    Family(program="nccl", patterns=_NCCL, gap=400),
    Family(program="nccl", patterns=_NCCL_SHM, gap=400),
    Family(program="cublas", patterns=_CUBLAS, gap=200),
    Family(program="cudnn", patterns=_CUDNN, gap=200),
    Family(program="bitsandbytes", patterns=_BITSANDBYTES, gap=300),
    Family(program="paddle", patterns=_PADDLE, gap=300),
    Family(program="paddle", patterns=_PADDLE_BARE, gap=300),
    Family(program="other", patterns=_OTHERS, gap=300),
)
