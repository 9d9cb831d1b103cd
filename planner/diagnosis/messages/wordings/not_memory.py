"""Known failures that are taken for a lack of memory, or stand where one is looked for, and are none."""

from __future__ import annotations

from planner.diagnosis.messages.wordings.pattern import Family, Pattern
from planner.diagnosis.result import FailureClass


def _no(
    kind: str,
    needle: str | tuple[str, ...],
    regex: str,
    why: str,
    *advise: str,
    failure: FailureClass = "bug",
    second: FailureClass | None = None,
    reach: int = 300,
) -> Pattern:
    return Pattern(
        kind=kind,
        needle=needle,
        regex=regex,
        reach=reach,
        failure=failure,
        second=second,
        confidence="medium" if second else "high",
        why=why,
        advise=advise or ("not_memory",),
    )


_KERNEL = "a kernel read or wrote where it may not: an error in the program or a library, found late"
_ON_CHIP = (
    "the on-chip memory of a multiprocessor (shared memory, registers) is too small for this kernel's tile: "
    "neither VRAM nor /dev/shm"
)

_CUDA = (
    _no(
        "illegal_access",
        ("illegal memory access", "cuda_error_illegal_address", "illegal address"),
        r"illegal memory access was encountered|CUDA_ERROR_ILLEGAL_ADDRESS|hipErrorIllegalAddress",
        _KERNEL,
        "launch_blocking",
    ),
    _no(
        "misaligned",
        ("misaligned address", "illegal instruction", "unspecified launch failure", "launch failed"),
        r"misaligned address|an illegal instruction was encountered|unspecified launch failure"
        r"|CUDA_ERROR_LAUNCH_FAILED|hipErrorLaunchFailure",
        _KERNEL,
        "launch_blocking",
    ),
    _no(
        "device_assert",
        ("device-side assert", "device side assert", "cudaerrorassert"),
        r"device-?side assert(?:ion)?s? triggered|cudaErrorAssert",
        "a kernel's own check failed: an index or label out of range",
        "launch_blocking",
    ),
    _no(
        "on_chip",
        (
            "out of resource",
            "outofresources",
            "launch_out_of_resources",
            "too many resources requested",
            "launchoutofresources",
            "uses too much shared data",
            "exceeds shared memory",
        ),
        r"(?:out of resources?: (?P<resource__word>shared memory|tensor memory|threads|registers|smem), Required: ?"
        r"(?P<tried_bytes__bytes>\d{1,12}), Hardware limit: ?(?P<limit_bytes__bytes>\d{1,12}))"
        r"|OutOfResources: out of resource|too many resources requested for launch|CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"
        r"|cudaErrorLaunchOutOfResources|uses too much shared data|exceeds shared memory (?:size|limit)",
        _ON_CHIP,
        "smaller_tile",
        "other_kernel",
        failure="limit_not_capacity",
    ),
    _no(
        "vmem",
        ("memory space vmem", "memory space smem", "scoped vmem"),
        r"Ran out of memory in memory space (?:vmem|smem)\b|exceeded scoped vmem limit",
        "the TPU core's on-chip memory is too small for this kernel's tile, not its HBM",
        "smaller_tile",
        failure="limit_not_capacity",
    ),
    _no(
        "no_image",
        ("no kernel image is available", "kernel image is invalid"),
        r"no kernel image is available for execution|device kernel image is invalid",
        "the library was not built for this card's architecture",
        "matching_build",
    ),
    _no(
        "driver_old",
        (
            "driver version is insufficient",
            "no nvidia driver on your system",
            "not compiled with cuda",
            "version mismatch",
            "forward compatibility was attempted",
            "driver on your system is too old",
        ),
        r"CUDA driver version is insufficient|Found no NVIDIA driver on your system|not compiled with CUDA enabled"
        r"|Driver/library version mismatch|forward compatibility was attempted|NVIDIA driver on your system is too old",
        "driver, CUDA and library do not match",
        "matching_build",
    ),
    _no(
        "no_device",
        (
            "invalid device ordinal",
            "no cuda-capable device",
            "busy or unavailable",
            "cuda unknown error",
            "no hip gpus are available",
            "no cuda gpus are available",
            "device >= 0 && device < num_gpus",
        ),
        r"invalid device ordinal|no CUDA-capable device is detected|busy or unavailable|CUDA unknown error"
        r"|No (?:CUDA|HIP) GPUs are available|device >= 0 && device < num_gpus",
        "the process sees no such GPU, or another holds it exclusively",
        "visible_devices",
    ),
    _no(
        "forked",
        "re-initialize cuda in forked subprocess",
        r"Cannot re-initialize CUDA in forked subprocess",
        "CUDA was used before a process was forked",
        "spawn",
    ),
    _no(
        "hardware",
        (
            "uncorrectable ecc error",
            "fallen off the bus",
            "nvrm: xid",
            "gpu is lost",
            "gpu hang",
            "hw exception by gpu",
            "uncorrectable nvlink",
            "row remap",
        ),
        r"uncorrectable ECC error|fallen off the bus|NVRM: Xid|GPU is lost|GPU Hang|HW Exception by GPU"
        r"|uncorrectable NVLink error",
        "the card or its driver failed",
        "check_hardware",
    ),
    _no("page_fault", ("memory access fault by gpu",), r"Memory access fault by GPU node", _KERNEL, "launch_blocking"),
    _no(
        "device_lost",
        (
            "errordevicelost",
            "error_device_lost",
            "dxgi_error_device_removed",
            "887a0005",
            "device_lost",
            "callbackerrortimeout",
            "errorimpactinginteractivity",
            "innocent victim",
            "gpu timeout error",
        ),
        r"ErrorDeviceLost|VK_ERROR_DEVICE_LOST|DXGI_ERROR_DEVICE_(?:REMOVED|HUNG)|887A0005|UR_RESULT_ERROR_DEVICE_LOST"
        r"|kIOGPUCommandBufferCallbackError(?:Timeout|ImpactingInteractivity|InnocentVictim)",
        "the driver reset the device: a kernel ran too long or crashed",
        "shorter_kernels",
        second="device_full",
    ),
    _no(
        "meta_tensor",
        "cannot copy out of meta tensor",
        r"Cannot copy out of meta tensor",
        "part of the model was never loaded (its plan put it nowhere), and is then moved",
        "whole_load",
        second="device_full",
    ),
    _no(
        "two_devices",
        "expected all tensors to be on the same device",
        r"Expected all tensors to be on the same "
        r"device",
        "tensors of one operation lie on different devices",
        "one_device",
    ),
    _no(
        "cublas_other",
        "cublas_status_",
        r"CUBLAS_STATUS_(?:EXECUTION_FAILED|INTERNAL_ERROR|INVALID_VALUE|ARCH_MISMATCH|NOT_SUPPORTED|MAPPING_ERROR)",
        "cuBLAS failed in a call, not in an allocation: an earlier error, wrong shapes or a version that does not "
        "match",
        "launch_blocking",
        "matching_build",
        second="device_full",
    ),
    _no(
        "cudnn_other",
        "cudnn_status_",
        r"CUDNN_STATUS_(?:EXECUTION_FAILED|BAD_PARAM|VERSION_MISMATCH|MAPPING_ERROR"
        r"|NOT_SUPPORTED)",
        "cuDNN failed in a call, not in an allocation: an earlier error, an unsupported shape or a version mismatch",
        "launch_blocking",
        "matching_build",
        second="device_full",
    ),
    _no(
        "missing_library",
        ("cannot open shared object file", "undefined symbol", "dll load failed"),
        r"cannot open shared object file: No such file|undefined symbol: \w|DLL load failed while importing",
        "a library is missing or of another version",
        "matching_build",
    ),
)
_NCCL = (
    _no(
        "duplicate_gpu",
        "duplicate gpu detected",
        r"Duplicate GPU detected",
        "two ranks use the same GPU",
        "one_rank_per_gpu",
    ),
    _no(
        "collective_timeout",
        ("watchdog caught collective operation timeout", "collective operation timeout", "timed out in blocking wait"),
        r"(?:Watchdog caught c|C)ollective operation timeout|timed out in blocking wait",
        "one rank waited for another that was slower, stuck or gone; what ended that rank is the cause",
        "first_rank",
        second="undecided",
        failure="bug",
    ),
    _no(
        "nccl_network",
        ("ncclremoteerror", "connection reset by peer", "connection refused", "socket timeout"),
        r"ncclRemoteError|(?:NCCL|nccl|gloo|torch\.distributed)[^\n]{0,120}(?:Connection reset by peer|Connection "
        r"refused|Socket Timeout)"
        r"|ncclSystemError[^\n]{0,200}(?:Connection|socket)",
        "ranks lost each other: one ended, or the network failed; what ended it is the cause",
        "first_rank",
        second="undecided",
    ),
)
_ENDED = (
    _no(
        "segfault",
        (
            "segmentation fault",
            "exit code 139",
            "code -11",
            "code: -11",
            "code = -11",
            "signal 11",
            "3221225477",
            "0xc0000005",
        ),
        r"Segmentation fault|exit(?:ed with)? code:? 139|(?:exitcode|exit code|return code|returncode)[\"']? ?[:=]? "
        r"?-11\b"
        r"|\bsignal:? ?11\b|\b3221225477\b|\b0xC0000005\b",
        "a crash within a program or library (segmentation fault), not the killer for memory",
        "matching_build",
    ),
    _no(
        "stopped",
        ("exited with code 143", "exit code 143", "signal 15", "sigterm", "code -15", "code: -15", "code = -15"),
        r"exit(?:ed with)? code:? 143|\bsignal:? ?15\b[^\n]{0,20}|(?:exitcode|exit code|return code)[\"']? ?[:=]? "
        r"?-15\b"
        r"|received SIGTERM|terminated (?:by|with) SIGTERM",
        "the process was told to stop (SIGTERM): by a person, a scheduler or a failed neighbour",
        "first_rank",
        second="undecided",
    ),
    _no(
        "time_limit",
        ("due to time limit", "due to preemption", "deadlineexceeded", "liveness probe failed"),
        r"DUE TO (?:TIME LIMIT|PREEMPTION)|DeadlineExceeded|Liveness probe failed",
        "the scheduler ended it: time, preemption or a probe",
        "ask_scheduler",
    ),
    _no(
        "disk",
        (
            "no space left on device",
            "errno 28",
            "disk quota exceeded",
            "resource: ephemeral-storage",
            "not enough free disk space",
        ),
        r"No space left on device|\[Errno 28\]|Disk quota exceeded|low on resource: ephemeral-storage|Not enough "
        r"free disk space",
        "a disk is full, not a memory",
        "free_disk",
    ),
    _no(
        "too_long",
        (
            "greater than the derived max_model_len",
            "maximum context length is",
            "longer than the maximum model length",
            "exceeds the model's context",
        ),
        r"max_model_len \(\d{1,12}\) is greater than the derived max_model_len|maximum context length is \d{1,9} tokens"
        r"|longer than the maximum model length",
        "the length is beyond what the model or server allows: a rule, not a lack of memory",
        "allowed_length",
    ),
    _no(
        "gpu_scheduling",
        ("insufficient nvidia.com/gpu", "insufficient amd.com/gpu"),
        r"Insufficient (?:nvidia"
        r"|amd)\.com/gpu",
        "no node has the GPUs that the pod requests: it was never started",
        "ask_scheduler",
    ),
)
_POINTERS = (
    _no(
        "engine_core",
        (
            "engine core initialization failed",
            "see root cause above",
            "enginecore encountered an issue",
            "workerproc initialization failed",
            "engine process failed to start",
            "enginedeaderror",
            "enginecore failed to start",
            "background loop has errored",
        ),
        r"Engine ?core initialization failed|See root cause above|EngineCore encountered an issue|EngineDeadError"
        r"|WorkerProc initialization failed|Engine process failed to start|EngineCore failed to start|Background "
        r"loop has errored",
        "this line only reports that another process of the engine failed; the cause stands in the lines above it",
        "root_cause",
        failure="undecided",
    ),
    _no(
        "scheduler_dead",
        ("scheduler is dead", "scheduler hit an exception", "rank 0 scheduler"),
        r"(?:Rank \d{1,4} s|S)cheduler (?:is dead|hit an exception|died)",
        "this line only reports that another process of the engine failed; the cause stands in the lines above it",
        "root_cause",
        failure="undecided",
    ),
    _no(
        "child_failed",
        (
            "childfailederror",
            "shard 0 failed to start",
            "shard failed to start",
            "webserver crashed",
            "shard complete",
            "unhandled cuda error",
            "ncclunhandledcudaerror",
        ),
        r"\bChildFailedError\b|[Ss]hard (?:\d{1,4} )?failed to start|ShardFailed|[Ww]ebserver [Cc]rashed"
        r"|ncclUnhandledCudaError: Call to CUDA function failed|unhandled cuda error",
        "this line only reports that a process or a call failed; the cause stands in its own lines",
        "root_cause",
        failure="undecided",
    ),
    _no(
        "later",
        ("kernel errors might be asynchronously reported",),
        r"kernel errors might be asynchronously reported",
        "this sentence stands with every CUDA error: the error itself is missing here",
        "root_cause",
        failure="undecided",
    ),
)

POINTERS = frozenset(pattern.kind for pattern in _POINTERS)
KINDS = frozenset(pattern.kind for pattern in (*_CUDA, *_NCCL, *_ENDED, *_POINTERS))
FAMILIES = (
    Family(program="cuda", patterns=_CUDA, gap=150, yields=True),
    Family(program="nccl", patterns=_NCCL, gap=150, yields=True),
    Family(program="system", patterns=_ENDED, gap=150, yields=True),
    Family(program="engine", patterns=_POINTERS, gap=400, yields=True),
)
