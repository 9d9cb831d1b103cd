"""Runtimes of compiled graphs: TensorRT and ONNX Runtime."""

from __future__ import annotations

from planner.diagnosis.messages.wordings.pattern import Family, Pattern
from planner.diagnosis.sizes import NUMBER

_TENSORRT = (
    Pattern(
        kind="trt_tactic",
        reach=200,
        needle="tactic device request",
        regex=rf"Tactic Device request: (?P<tried_bytes__mib>{NUMBER})MB Available: "
        rf"(?P<available_kv_bytes__mib>{NUMBER})MB",
    ),
    Pattern(
        kind="trt_no_implementation",
        reach=300,
        needle="could not find any implementation for node",
        regex=r"Could not find any implementation for node",
        failure="limit_not_capacity",
        second="bug",
        confidence="low",
        why="every tactic of a node was skipped: for want of workspace, or because none supports it",
        would_change="lines above that skip tactics for insufficient memory: then the workspace is the matter",
        advise=("trt_workspace", "trt_profile"),
    ),
    Pattern(
        kind="trt_cuda",
        reach=200,
        needle="cuda runtime (out of memory)",
        regex=r"Cuda Runtime \(out of memory\)",
        failure="device_full",
        second="other_process",
        confidence="low",
        why="TensorRT prints no figure",
        would_change="the card's state at that moment",
        advise=("trt_profile", "trt_workspace"),
    ),
    Pattern(
        kind="trt_scratch",
        reach=200,
        needle="bytes of scratch space",
        regex=r"requires (?P<tried_bytes__bytes>\d{1,25}) bytes of scratch space, but only "
        r"(?P<available_kv_bytes__bytes>\d{1,25}) is available",
        failure="single_huge",
        second="limit_not_capacity",
        confidence="high",
        why="one node's workspace is larger than the workspace limit",
        advise=("trt_profile", "trt_workspace"),
    ),
    Pattern(
        kind="trt_request",
        needle="requested amount of gpu memory",
        regex=r"Requested amount of GPU memory \((?P<tried_bytes__bytes>\d{1,25}) bytes\) could not be allocated",
    ),
    Pattern(
        kind="trt_code_2",
        needle="outofmemory",
        regex=r"Error Code 2: OutOfMemory(?: \([^)]{0,60}\))?",
    ),
    Pattern(
        kind="trt_skipping",
        needle="due to insufficient memory on requested size",
        regex=r"Skipping tactic \d{1,12} due to insufficient memory on requested size",
        attach_only=True,
    ),
)

_ONNX = (
    Pattern(
        kind="ort_arena",
        needle="failed to allocate memory for requested buffer of size",
        regex=r"Failed to allocate memory for requested buffer of size (?P<tried_bytes__bytes>\d{1,25})",
    ),
    Pattern(
        kind="ort_limit",
        reach=250,
        needle="is smaller than requested bytes of",
        regex=r"Available memory of (?P<free_bytes__bytes>\d{1,25}) is smaller than requested bytes of "
        r"(?P<tried_bytes__bytes>\d{1,25})",
    ),
    Pattern(
        kind="ort_library",
        reach=200,
        needle=("cublas failure", "cudnn failure", "cuda failure 2:"),
        regex=r"CUDA failure 2: ?out of memory|(?:CUBLAS|CUDNN) failure \d{1,3}: ?CU\w{3,5}_STATUS_(?:ALLOC_FAILED"
        r"|NOT_INITIALIZED)",
        failure="device_full",
        second="other_process",
        confidence="low",
        why="the CUDA provider prints no figure",
        would_change="the card's state at that moment",
        advise=("ort_arena", "look_at_card"),
    ),
    Pattern(kind="ort_nchwc", needle="nchwc", regex=r"_nchwc\b", attach_only=True),
    Pattern(
        kind="ort_cpu",
        needle="cpuexecutionprovider",
        regex=r"\bCPUExecutionProvider\b|\bCpuExecutionProvider\b",
        attach_only=True,
    ),
    Pattern(kind="ort_cuda", needle="cuda", regex=r"\bCUDAExecutionProvider\b|\bCUDA failure 2\b", attach_only=True),
)

FAMILIES = (
    Family(program="tensorrt", patterns=_TENSORRT, gap=600),
    Family(program="onnxruntime", patterns=_ONNX, gap=500),
)
