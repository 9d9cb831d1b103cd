"""Runtimes that run a model (CTranslate2, accelerate's and diffusers' placement, LM Studio, CUDA.jl, TensorRT-LLM), and
what launchers say when a worker is gone."""

from __future__ import annotations

from planner.diagnosis.messages.wordings.pattern import Family, Pattern
from planner.diagnosis.sizes import NUMBER, size_pattern

_CTRANSLATE2 = (
    Pattern(
        kind="ct2_full",
        needle="cuda failed with error out of memory",
        regex=r"CUDA failed with error out of memory",
        failure="device_full",
        second="other_process",
        confidence="low",
        why="CTranslate2 (faster-whisper) prints no figure",
        would_change="the card's state at that moment",
        advise=("ct2_smaller", "ct2_batch"),
    ),
    Pattern(
        kind="ct2_library",
        needle=("cublas failed with status", "cudnn failed with status"),
        regex=r"(?:cuBLAS failed with status CUBLAS_STATUS|cuDNN failed with status CUDNN_STATUS)_"
        r"(?:ALLOC_FAILED|NOT_INITIALIZED|INTERNAL_ERROR)",
        failure="device_full",
        second="bug",
        confidence="low",
        why="CTranslate2's library found no memory for its handle or workspace, or its version does not match",
        advise=("ct2_smaller", "look_at_card"),
    ),
)
_PLACEMENT = (
    Pattern(
        kind="dispatched_on_cpu",
        reach=300,
        needle="modules are dispatched on the cpu",
        regex=r"Some modules are dispatched on the CPU(?: or the disk)?",
        failure="device_full",
        second="engine_budget",
        confidence="high",
        why="accelerate's plan leaves part of the weights off the GPU, which this quantised format does not allow: "
        "the free "
        "memory of the card is less than the weights",
        would_change="more free memory on the card when the plan was made",
        advise=("look_at_card", "smaller_weights"),
        versions="transformers with accelerate",
    ),
    Pattern(
        kind="offload_folder",
        reach=300,
        needle=(
            "weights offloaded to the disk",
            "offload the whole model to the disk",
            "offload_folder",
            "offload_dir",
        ),
        regex=r"`?device_map`? had weights offloaded to the disk|trying to offload the whole model to the disk"
        r"|provide an `?offload_(?:folder|dir)`?",
        failure="device_full",
        second="host_memory",
        confidence="high",
        why="accelerate's plan found room for the weights neither on the GPU nor in RAM",
        advise=("smaller_weights", "offload_folder"),
        versions="accelerate",
    ),
    Pattern(
        kind="meta_offloaded",
        reach=200,
        needle="parameters are on the meta device",
        regex=r"Some parameters are on the meta device because they were offloaded to the (?:cpu|disk)",
        failure="not_a_failure",
        second="device_full",
        confidence="high",
        why="a warning: part of the weights stays in RAM or on disk, which is slow but works",
        advise=("smaller_weights", "look_at_card"),
        versions="accelerate",
    ),
    Pattern(
        kind="guardrail",
        reach=400,
        needle=("insufficient system resources", "not enough resources to load the model"),
        regex=r"(?:Model loading was stopped|Failed to load (?:the )?model)[^\n]{0,80}insufficient system resources"
        rf"(?:[^\n]{{0,80}}requires approximately {size_pattern('needed_host_bytes')} of memory)?"
        rf"|Not enough resources to load the model(?:[^\n]{{0,80}}take {size_pattern('needed_estimate_bytes')} of)?",
        failure="limit_not_capacity",
        second="host_memory",
        confidence="medium",
        why="LM Studio's own guard refused to load: its estimate of the model and context exceeds what it allows",
        advise=("ggml_smaller_context", "smaller_gguf"),
        versions="LM Studio",
    ),
)
_ENGINES = (
    Pattern(
        kind="trtllm_cuda",
        reach=300,
        needle="[tensorrt-llm][error]",
        regex=r"\[TensorRT-LLM\]\[ERROR\][^\n]{0,200}?\bout of memory",
        failure="device_full",
        second="engine_budget",
        confidence="medium",
        why="a part of the executor found no memory on the card",
        would_change="the part that is named: weights, KV cache and workspaces ask for different levers",
        advise=("trtllm_budget", "quantize_or_split"),
    ),
)
_IMAGES = (
    Pattern(
        kind="comfy_tiled_retry",
        reach=200,
        needle="out of memory when regular vae",
        regex=r"Ran out of memory when regular VAE (?:decoding|encoding), retrying with tiled VAE",
        failure="not_a_failure",
        second="device_full",
        confidence="high",
        why="the decoder did not fit at once, and was run again in tiles",
        would_change="an error after it",
        advise=("tiled_vae",),
    ),
    Pattern(
        kind="forge_low_vram",
        reach=300,
        needle="your current gpu free memory is",
        regex=rf"Your current GPU free memory is (?P<free_bytes__mib>{NUMBER}) MB for this diffusion iteration",
        failure="not_a_failure",
        second="device_full",
        confidence="high",
        why="a warning of Forge: little of the card is left for the computation, which then spills and slows",
        would_change="an error after it",
        advise=("forge_weights", "smaller_image"),
    ),
    Pattern(
        kind="comfy_unloading",
        reach=200,
        needle="got an oom, unloading all loaded models",
        regex=r"(?:torch\.(?:cuda\.)?OutOfMemoryError: Allocation on device ?)?Got an OOM, unloading all loaded models",
        failure="device_full",
        confidence="medium",
        why="ComfyUI caught the failure and unloads its models; cudaMallocAsync prints no figure",
        would_change="a figure of the card at that moment",
        advise=(),
    ),
    Pattern(
        kind="comfy_report",
        reach=300,
        needle="exception type:** torch.outofmemoryerror",
        regex=r"Exception Type:\*\* torch\.OutOfMemoryError - \*\*Exception Message:\*\* Allocation on device",
        failure="device_full",
        confidence="medium",
        why="ComfyUI's report of a failed allocation; cudaMallocAsync prints no figure",
        would_change="a figure of the card at that moment",
        advise=(),
    ),
)
_JULIA = (
    Pattern(
        kind="cuda_jl",
        needle="out of gpu memory",
        regex=rf"Out of GPU memory(?: trying to allocate {size_pattern('tried_bytes')})?",
        failure=None,
    ),
    Pattern(
        kind="cuda_jl_usage",
        reach=200,
        needle="effective gpu memory usage",
        regex=rf"Effective GPU memory usage: {NUMBER}% \({size_pattern('in_use_bytes')} ?/ "
        rf"?{size_pattern('total_bytes')}\)",
        attach_only=True,
    ),
    Pattern(
        kind="cuda_jl_pool",
        reach=200,
        needle="memory pool usage",
        regex=rf"Memory pool usage: {size_pattern('allocated_bytes')} \({size_pattern('reserved_total_bytes')} "
        rf"reserved\)",
        attach_only=True,
    ),
)
SIGNALS = (
    Pattern(
        kind="signal_9",
        reach=200,
        needle=("signal 9", "signal: 9", "signal: killed", "signals.sigkill", "signal=9", "signal: sigkill"),
        regex=r"(?:shutdown|terminated|killed|exited|prematurely|died|stopped|ended|crashed|failed|received"
        r"|interrupted)"
        r"[^\n]{0,60}?\b(?:signal:? ?[=(]?9\b|signal: (?:killed|SIGKILL)|Signals\.SIGKILL)|\bsignal: killed\b"
        r"|\bSignal 9 \(SIGKILL\)|\bSignals\.SIGKILL: 9|\(signal[ :=]{1,2}9\b|\bby signal 9\b",
    ),
    Pattern(
        kind="signal_7",
        reach=200,
        needle=(
            "signal 7",
            "sigbus",
            "code 135",
            "signal: bus error",
            "exitcode: -7",
            "code = -7",
            "code -7",
            "code: -7",
        ),
        regex=r"\bsignal:? ?[=(]?7\b|\bSIGBUS\b|(?:exit(?:ed with)?[ _]?code|return code|exitcode)[\"']? ?[:=]? "
        r"?(?:135|-7)\b"
        r"|signal: bus error",
        failure="host_memory",
        confidence="medium",
        why="signal 7 (a bus error): shared memory (/dev/shm) or a mapped file ran out under the process",
        would_change="room in /dev/shm and on the disk of the mapped file",
        advise=("shm_size", "fewer_workers"),
    ),
)

FAMILIES = (
    Family(program="ctranslate2", patterns=_CTRANSLATE2, gap=300),
    Family(program="accelerate", patterns=_PLACEMENT[:3], gap=400),
    Family(program="lm-studio", patterns=_PLACEMENT[3:], gap=300),
    Family(program="tensorrt-llm", patterns=_ENGINES, gap=400),
    Family(program="webui", patterns=_IMAGES[1:2], gap=300),
    Family(program="comfyui", patterns=(_IMAGES[0], *_IMAGES[2:]), gap=400),
    Family(program="cuda.jl", patterns=_JULIA, gap=400),
)
