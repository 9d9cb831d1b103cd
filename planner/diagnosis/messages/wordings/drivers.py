"""Codes of drivers below the frameworks: Level Zero and SYCL, OpenCL, OpenVINO's GPU plugin, ROCm's HSA, Vulkan, DXGI.

Names of the codes: oneAPI Unified Runtime and Level Zero headers, OpenCL 3.0 cl.h, HSA runtime, Vulkan 1.3.
"""

from __future__ import annotations

from planner.diagnosis.messages.wordings.pattern import Family, Pattern

_NO_FIGURES = "the driver's code without figures"
_ASK = "a message with figures, or the card's state at that moment"

_INTEL = (
    Pattern(
        kind="openvino_limit",
        reach=300,
        needle="exceeded max size of memory object allocation",
        regex=r"Exceeded max size of memory object allocation: ?requested (?P<tried_bytes__bytes>\d{1,25}) bytes, "
        r"but max "
        r"alloc size supported by device is (?P<limit_bytes__bytes>\d{1,25}) bytes",
        failure="limit_not_capacity",
        second="single_huge",
        confidence="high",
        why="the driver limits one allocation; the device need not be full",
        advise=("allocation_limit", "shrink_tensor"),
    ),
    Pattern(
        kind="openvino_full",
        reach=300,
        needle="exceeded max size of memory allocation",
        regex=r"Exceeded max size of memory allocation: ?Required (?P<tried_bytes__bytes>\d{1,25}) bytes, already "
        r"occupied ?: ?"
        r"(?P<in_use_bytes__bytes>\d{1,25}) bytes, but available memory size is (?P<total_bytes__bytes>\d{1,25}) bytes",
        failure="device_full",
        confidence="high",
        why="the request and what is occupied exceed the device",
        advise=("smaller_work", "look_at_card"),
    ),
    Pattern(
        kind="level_zero_host",
        needle=("out_of_host_memory", "erroroutofhostmemory"),
        regex=r"\b(?:(?:UR|ZE)_RESULT_ERROR|PI_ERROR|CL|VK_ERROR)_OUT_OF_HOST_MEMORY\b|\bErrorOutOfHostMemory\b",
        failure="host_memory",
        confidence="medium",
        why="the driver's code for host memory (RAM)",
        advise=("load_with_less",),
    ),
    Pattern(
        kind="level_zero",
        needle=("out_of_device_memory", "_mem_object_allocation_failure", "mem_object_allocation_failure"),
        regex=r"\b(?:(?:UR|ZE)_RESULT_ERROR_OUT_OF_DEVICE_MEMORY|VK_ERROR_OUT_OF_DEVICE_MEMORY"
        r"|(?:PI_ERROR|CL)_MEM_OBJECT_ALLOCATION_FAILURE)\b",
        failure="device_full",
        second="limit_not_capacity",
        confidence="low",
        why=_NO_FIGURES + "; drivers of Intel parts also answer so above their limit for one allocation",
        would_change=_ASK,
        advise=("smaller_work", "allocation_limit"),
    ),
    Pattern(
        kind="level_zero_resources",
        needle="out_of_resources",
        regex=r"\b(?:(?:UR_RESULT_ERROR|PI_ERROR|CL)_OUT_OF_RESOURCES|level_zero backend failed with error: ?40)\b",
        failure="device_full",
        second="limit_not_capacity",
        confidence="low",
        why="the driver's code for exhausted resources: usually the device's memory, or its limit for one allocation",
        would_change=_ASK,
        advise=("smaller_work", "allocation_limit"),
    ),
    Pattern(
        kind="opencl_buffer_size",
        needle="cl_invalid_buffer_size",
        regex=r"\bCL_INVALID_BUFFER_SIZE\b",
        failure="limit_not_capacity",
        second="single_huge",
        confidence="medium",
        why="one buffer is larger than the device allows (CL_DEVICE_MAX_MEM_ALLOC_SIZE), or of size zero",
        advise=("allocation_limit", "shrink_tensor"),
    ),
)
_ROCM = (
    Pattern(
        kind="hsa",
        reach=300,
        needle="hsa_status_error_out_of_resources",
        regex=r"HSA_STATUS_ERROR_OUT_OF_RESOURCES(?:[^\n]{0,200}?Available Free mem ?: "
        r"?(?P<free_bytes__mib>\d{1,9}) MB)?",
        failure="device_full",
        second="limit_not_capacity",
        confidence="medium",
        why="ROCm's runtime found no memory or queue for the work",
        would_change="free memory well above the request: then a queue or a signal was short",
        advise=("smaller_work", "look_at_card"),
    ),
    Pattern(
        kind="rocm_library",
        needle=("rocblas_status_memory_error", "miopenstatusallocfailed", "hipblas_status_alloc_failed"),
        regex=r"rocblas_status_memory_error|miopenStatusAllocFailed|HIPBLAS_STATUS_ALLOC_FAILED",
        failure="device_full",
        second="bug",
        confidence="low",
        why="the library found no memory for its workspace beside torch's allocator",
        would_change="a rerun with AMD_SERIALIZE_KERNEL=3: another error then is the real one",
        advise=("smaller_work", "look_at_card"),
    ),
)
_DIRECTX = (
    Pattern(
        kind="e_outofmemory",
        needle=("8007000e",),
        regex=r"\b(?:0x)?8007000E\b",
        failure="device_full",
        second="host_memory",
        confidence="low",
        why="Windows' E_OUTOFMEMORY: DirectML and DirectX give it for the GPU's memory and for the commit limit",
        would_change="dedicated and shared GPU memory, and the committed memory, in the task manager",
        advise=("smaller_work", "windows_shared"),
    ),
)

FAMILIES = (
    Family(program="intel-gpu", patterns=_INTEL, gap=300, yields=True),
    Family(program="rocm", patterns=_ROCM, gap=300),
    Family(program="directx", patterns=_DIRECTX, gap=300, yields=True),
)
