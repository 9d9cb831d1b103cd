"""Failures of kernels, drivers, libraries and the card itself, which are no lack of memory."""

from __future__ import annotations

from planner.diagnosis.messages.wordings.pattern import no_memory

_KERNEL = "a kernel read or wrote where it may not: an error in the program or a library, found late"
_ON_CHIP = (
    "the on-chip memory of a multiprocessor (shared memory, registers) is too small for this kernel's tile: "
    "neither VRAM nor /dev/shm"
)

CARD_FAULTS = (
    no_memory(
        "illegal_access",
        ("illegal memory access", "cuda_error_illegal_address", "illegal address"),
        r"illegal memory access was encountered|CUDA_ERROR_ILLEGAL_ADDRESS|hipErrorIllegalAddress",
        _KERNEL,
        "launch_blocking",
    ),
    no_memory(
        "misaligned",
        ("misaligned address", "illegal instruction", "unspecified launch failure", "launch failed"),
        r"misaligned address|an illegal instruction was encountered|unspecified launch failure"
        r"|CUDA_ERROR_LAUNCH_FAILED|hipErrorLaunchFailure",
        _KERNEL,
        "launch_blocking",
    ),
    no_memory(
        "device_assert",
        ("device-side assert", "device side assert", "cudaerrorassert"),
        r"device-?side assert(?:ion)?s? triggered|cudaErrorAssert",
        "a kernel's own check failed: an index or label out of range",
        "launch_blocking",
    ),
    no_memory(
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
    no_memory(
        "vmem",
        ("memory space vmem", "memory space smem", "scoped vmem"),
        r"Ran out of memory in memory space (?:vmem|smem)\b|exceeded scoped vmem limit",
        "the TPU core's on-chip memory is too small for this kernel's tile, not its HBM",
        "smaller_tile",
        failure="limit_not_capacity",
    ),
    no_memory(
        "no_image",
        ("no kernel image is available", "kernel image is invalid"),
        r"no kernel image is available for execution|device kernel image is invalid",
        "the library was not built for this card's architecture",
        "matching_build",
    ),
    no_memory(
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
    no_memory(
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
    no_memory(
        "forked",
        "re-initialize cuda in forked subprocess",
        r"Cannot re-initialize CUDA in forked subprocess",
        "CUDA was used before a process was forked",
        "spawn",
    ),
    no_memory(
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
    no_memory(
        "page_fault", ("memory access fault by gpu",), r"Memory access fault by GPU node", _KERNEL, "launch_blocking"
    ),
    no_memory(
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
    no_memory(
        "meta_tensor",
        "cannot copy out of meta tensor",
        r"Cannot copy out of meta tensor",
        "part of the model was never loaded (its plan put it nowhere), and is then moved",
        "whole_load",
        second="device_full",
    ),
    no_memory(
        "two_devices",
        "expected all tensors to be on the same device",
        r"Expected all tensors to be on the same "
        r"device",
        "tensors of one operation lie on different devices",
        "one_device",
    ),
    no_memory(
        "cublas_other",
        "cublas_status_",
        r"CUBLAS_STATUS_(?:EXECUTION_FAILED|INTERNAL_ERROR|INVALID_VALUE|ARCH_MISMATCH|NOT_SUPPORTED|MAPPING_ERROR)",
        "cuBLAS failed in a call, not in an allocation: an earlier error, wrong shapes or a version that does not "
        "match",
        "launch_blocking",
        "matching_build",
        second="device_full",
    ),
    no_memory(
        "cudnn_other",
        "cudnn_status_",
        r"CUDNN_STATUS_(?:EXECUTION_FAILED|BAD_PARAM|VERSION_MISMATCH|MAPPING_ERROR"
        r"|NOT_SUPPORTED)",
        "cuDNN failed in a call, not in an allocation: an earlier error, an unsupported shape or a version mismatch",
        "launch_blocking",
        "matching_build",
        second="device_full",
    ),
    no_memory(
        "missing_library",
        ("cannot open shared object file", "undefined symbol", "dll load failed"),
        r"cannot open shared object file: No such file|undefined symbol: \w|DLL load failed while importing",
        "a library is missing or of another version",
        "matching_build",
    ),
)
