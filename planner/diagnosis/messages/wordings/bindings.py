"""Programs and bindings that call the driver themselves: LMDeploy, DirectML in ONNX Runtime, PyCUDA, Numba, XGBoost,
Triton's server, WebGPU, and accelerators beside GPUs (Ascend, Gaudi, Neuron)."""

from __future__ import annotations

from planner.diagnosis.messages.wordings.pattern import Family, Pattern

_ASK = "the card's state at that moment, or a message with figures"

_LMDEPLOY = (
    Pattern(
        kind="lmdeploy_budget",
        reach=200,
        needle=("no enough gpu memory", "block_count > 0"),
        regex=r"No enough gpu memory for (?:runtime|kv cache)|Check failed: block_count > 0",
        failure="engine_budget",
        confidence="high",
        why="the cache's part of the free memory holds not one block: weights and workspaces take the card",
        advise=("lmdeploy_cache", "quantize_or_split"),
    ),
    Pattern(
        kind="lmdeploy_cuda",
        reach=250,
        needle="[tm][error]",
        regex=r"\[TM\]\[ERROR\] ?CUDA runtime error: out of memory",
        failure="device_full",
        second="engine_budget",
        confidence="medium",
        why="TurboMind prints no figure: its cache takes a part of what is free after the weights, and more is needed",
        would_change=_ASK,
        advise=("lmdeploy_cache", "quantize_or_split"),
    ),
)
_TRITON_SERVER = (
    Pattern(
        kind="triton_stream",
        reach=200,
        needle="unable to create stream: out of memory",
        regex=r"unable to create (?:CUDA )?stream: out of memory",
        failure="device_full",
        second="other_process",
        confidence="medium",
        why="no room for the instance's own stream: the other models of this server, or other processes, fill the card",
        would_change=_ASK,
        advise=("look_at_card", "fewer_instances"),
    ),
)
_DIRECTML = (
    Pattern(
        kind="directml_node",
        reach=400,
        needle="8007000e",
        regex=r"(?:Dml|DirectML)[^\n]{0,300}?\b8007000E(?: Not enough memory resources are available)?",
        failure="device_full",
        second="host_memory",
        confidence="medium",
        why="DirectML's allocator was refused: the GPU's memory, or Windows' commit limit behind it",
        would_change="dedicated and shared GPU memory, and the committed memory, in the task manager",
        advise=("smaller_work", "windows_shared"),
    ),
)
_BINDINGS = (
    Pattern(
        kind="rmm",
        needle="bad_alloc: out_of_memory",
        regex=r"(?:MemoryError: )?std::bad_alloc: out_of_memory: (?:CUDA|RMM)[^\n]{0,200}?(?:cudaErrorMemoryAllocation "
        r"out of memory|exceeded|failed)|(?:MemoryError: )?std::bad_alloc: out_of_memory: CUDA error",
        reach=300,
        failure="device_full",
        confidence="low",
        why="RMM's pool could not grow",
        would_change="the pool's size and the card's free memory at that moment",
        advise=("look_at_card", "smaller_work"),
    ),
    Pattern(
        kind="driver_binding",
        reach=250,
        needle=("cumemalloc", "cumemcreate", "cuda error 2", "gpu api call", "cuda allocation failed: out of memory"),
        regex=r"(?:pycuda\.\w{1,20}\.MemoryError: )?cuMemAlloc(?:Pitch|Managed|Async)? failed: out of memory"
        r"|Call to cuMem\w{2,24} results in CUDA_ERROR_OUT_OF_MEMORY|\bCUDA Error 2, out of memory"
        r"|\(-217:Gpu API call\) out of memory|CUDA allocation failed: out of memory",
        failure="device_full",
        second="other_process",
        confidence="low",
        why="a program that calls the driver itself, and prints no figure",
        would_change=_ASK,
        advise=("smaller_work", "look_at_card"),
    ),
    Pattern(
        kind="boosting",
        reach=300,
        needle=("memory allocation error on worker", "[lightgbm] [fatal] [cuda]"),
        regex=r"Memory allocation error on worker \d{1,5}[^\n]{0,120}?out of memory(?: ?- Free memory: "
        r"(?P<free_bytes__bytes>\d{1,25}) ?- Requested memory: (?P<tried_bytes__bytes>\d{1,25}))?"
        r"|\[LightGBM\] \[Fatal\] \[CUDA\] out of memory",
        failure="device_full",
        second="other_process",
        confidence="medium",
        why="the booster's data and histograms do not fit the card",
        would_change=_ASK,
        advise=("smaller_work", "look_at_card"),
    ),
    Pattern(
        kind="faiss",
        reach=300,
        needle="standardgpuresources: alloc fail",
        regex=r"StandardGpuResources: alloc fail[^\n]{0,120}?size (?P<tried_bytes__bytes>\d{1,25}) bytes",
        failure="device_full",
        second="other_process",
        confidence="medium",
        why="faiss found no room for the index or its temporary memory",
        would_change=_ASK,
        advise=("smaller_work", "look_at_card"),
    ),
    Pattern(
        kind="webgpu",
        reach=200,
        needle=("wgpu error: out of memory", "webgpu: out of memory", "gpuoutofmemoryerror"),
        regex=r"wgpu error: Out of Memory|WebGPU: out of memory|\bGPUOutOfMemoryError\b",
        failure="device_full",
        second="limit_not_capacity",
        confidence="low",
        why="the browser or WebGPU's own limit for one buffer, or the card",
        would_change=_ASK,
        advise=("smaller_work", "allocation_limit"),
    ),
)
_ACCELERATORS = (
    Pattern(
        kind="ascend",
        reach=200,
        needle=("el0004", "207001", "npu memory"),
        regex=r"\bEL0004\b[^\n]{0,40}Failed to allocate memory|\berror code (?:is )?207001\b",
        failure="device_full",
        second="other_process",
        confidence="medium",
        why="Ascend's runtime found no device memory",
        would_change="npu-smi info naming another process on the card",
        advise=("smaller_work", "look_at_npu"),
    ),
    Pattern(
        kind="gaudi",
        reach=200,
        needle=("graph compile failed: out of device memory", "synstatus", "out of device memory"),
        regex=r"(?:Graph compile failed[^\n]{0,40}|synStatus ?[=:] ?\d{1,4}[^\n]{0,80})[Oo]ut of device memory",
        failure="device_full",
        confidence="medium",
        why="Gaudi's compiler or runtime found no device memory for the graph",
        would_change="a smaller batch or length: if it compiles, this was it",
        advise=("smaller_work",),
    ),
    Pattern(
        kind="neuron",
        reach=250,
        needle=("nrt_tensor_allocate", "tdrv:log_dev_mem", "on nd "),
        regex=r"Failed to allocate (?P<tried_bytes__bytes>\d{3,25}) bytes on ND \d|Failed to allocate "
        r"(?P<tried_printed_bytes__size>\d{1,12}(?:\.\d{1,6})?[KMG]B) \([^\n]{0,80}\) on ND \d",
        failure="device_full",
        confidence="medium",
        why="a Neuron core's device memory has no room for a tensor or model",
        would_change="more cores, or a smaller model: if it loads, this was it",
        advise=("smaller_work",),
    ),
)

FAMILIES = (
    Family(program="lmdeploy", patterns=_LMDEPLOY, gap=300),
    Family(program="tritonserver", patterns=_TRITON_SERVER, gap=300),
    Family(program="directml", patterns=_DIRECTML, gap=300),
    Family(program="cuda", patterns=_BINDINGS, gap=400),
    Family(program="ascend", patterns=_ACCELERATORS[:1], gap=300),
    Family(program="gaudi", patterns=_ACCELERATORS[1:2], gap=300),
    Family(program="neuron", patterns=_ACCELERATORS[2:], gap=300),
)
