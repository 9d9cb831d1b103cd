"""A finding in a sentence, and whose memory it was, for the first screen."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from planner.diagnosis.messages.wordings.not_memory import KINDS as NOT_MEMORY
from planner.diagnosis.result import CLASS_SENTENCES, FailureClass, Finding, Message, Ownership
from planner.diagnosis.rules.thresholds import percent
from planner.diagnosis.sizes import is_sane
from planner.units import format_size

_PROGRAMS: Final[Mapping[str, str]] = {
    "vllm": "vLLM",
    "sglang": "SGLang",
    "tgi": "TGI",
    "tensorrt-llm": "TensorRT-LLM",
    "exllama": "ExLlama",
    "trainer": "Transformers' Trainer",
    "trl": "TRL",
    "axolotl": "Axolotl",
    "llama-factory": "LLaMA-Factory",
    "unsloth": "Unsloth",
    "deepspeed": "DeepSpeed",
    "lightning": "Lightning",
    "comfyui": "ComfyUI",
    "webui": "The web UI",
    "diffusers": "Diffusers",
    "transformers": "Transformers",
    "pytorch": "PyTorch",
    "pytorch-mps": "PyTorch on Metal",
    "pytorch-xpu": "PyTorch on an Intel GPU",
    "ollama": "Ollama",
    "jax": "JAX",
    "tensorflow": "TensorFlow",
    "onnxruntime": "ONNX Runtime",
    "tensorrt": "TensorRT",
    "paddle": "Paddle",
    "mlx": "MLX",
    "metal": "Metal",
    "nccl": "NCCL",
    "cublas": "cuBLAS",
    "cudnn": "cuDNN",
    "ctranslate2": "CTranslate2 (faster-whisper)",
    "whisper": "Whisper",
    "verl": "verl",
    "openrlhf": "OpenRLHF",
    "torchtune": "torchtune",
    "megatron": "Megatron",
    "kohya": "The trainer",
    "lmdeploy": "LMDeploy",
    "koboldcpp": "KoboldCpp",
    "tritonserver": "Triton's server",
    "directml": "DirectML",
    "cuda": "A CUDA program",
    "ascend": "Ascend",
    "gaudi": "Gaudi",
    "neuron": "Neuron",
    "intel-gpu": "An Intel GPU's driver",
    "rocm": "ROCm",
    "directx": "DirectX",
    "cuda.jl": "CUDA.jl",
    "torch_memory_saver": "torch_memory_saver",
    "sentence-transformers": "Sentence Transformers",
    "ultralytics": "Ultralytics",
    "fsdp": "FSDP",
    "lm-studio": "LM Studio",
    "bitsandbytes": "bitsandbytes",
    "accelerate": "accelerate",
}
_PHASES: Final[Mapping[str, str]] = {
    "load": "while loading",
    "profile": "in the profile run",
    "warm_up": "in the warm-up",
    "kv_cache": "while laying out the KV cache",
    "graph_capture": "while capturing CUDA graphs",
    "prefill": "in prefill",
    "decode": "in decode",
    "sampler": "in the sampler",
    "forward": "in the forward pass",
    "loss": "in the loss",
    "backward": "in backward",
    "optimizer": "in the optimizer step",
    "evaluation": "in evaluation",
    "save": "while saving",
}
_PLACES: Final[Mapping[str, str]] = {
    "slurm": "the job's memory limit (Slurm)",
    "kubernetes": "the container's memory limit (Kubernetes)",
    "docker": "the container's or host's memory",
    "systemd": "the unit's or machine's memory (systemd)",
    "wsl": "the memory of WSL's virtual machine",
    "windows": "Windows' commit limit (RAM and page file)",
    "colab": "the notebook machine's RAM",
}
_SHARED: Final = ("dataloader_bus", "shm", "nccl_shm", "signal_7", "k8s_shm", "nccl_host")
ENDED: Final = frozenset(
    ("exit_137", "exit_minus_9", "killed_shell", "sigkill", "signal_9", "systemd_killed", "ollama_killed")
)
_CONFIDENCE: Final = {"high": "quite sure", "medium": "likely", "low": "a guess"}


def headline(finding: Finding) -> str:
    """What happened, in one sentence."""
    message = finding.message
    if message.kind in NOT_MEMORY:
        no = "This is no memory failure" if finding.failure == "bug" else "This line is not the cause"
        if finding.failure == "limit_not_capacity":
            no = "This is no lack of GPU memory"
        return f"{no}: {finding.verdict.evidence[0] if finding.verdict.evidence else CLASS_SENTENCES[finding.failure]}."
    return f"{_who(finding)}{_SENTENCES[finding.failure](finding)}."


def _who(finding: Finding) -> str:
    """The program and the phase, and how often."""
    message, context = finding.message, finding.message.context
    program = context.get("engine") or message.program
    times = f" ({_times(message)})" if message.repeated > 1 else ""
    if finding.failure == "host_memory":
        return f"{_PROGRAMS[program]}{times}: " if program in _PROGRAMS and context.get("engine") else times.strip()
    phase = _PHASES.get(context.get("phase", ""), "")
    return f"{_PROGRAMS.get(program, program)}{f' {phase}' if phase else ''}{times}: "


def _times(message: Message) -> str:
    ranks = len(message.devices)
    return f"{ranks} GPUs, {message.repeated} messages" if ranks > 1 else f"{message.repeated} times"


def _size(message: Message, name: str) -> int | None:
    value = message.bytes_of(name)
    return value if is_sane(value) else None


def _gpu(message: Message) -> str:
    return "the GPU" if message.device is None or len(message.devices) > 1 else f"GPU {message.device}"


def _full(finding: Finding) -> str:
    message, own = finding.message, finding.ownership
    tried = _size(message, "tried_bytes")
    more = f", and {format_size(tried)} more was asked for" if tried else ""
    held = _held(own)
    if own.total is not None and held is not None:
        return f"{_gpu(message)} is full: this process holds {format_size(held)} of {format_size(own.total)}{more}"
    if own.total is not None and own.free is not None:
        return f"{_gpu(message)} is full: {format_size(own.free)} of {format_size(own.total)} free{more}"
    if tried:
        free = _size(message, "free_bytes")
        left = "" if free is None else f", {format_size(free)} was free"
        return f"{_gpu(message)} had no room for {format_size(tried)}{left}"
    whole = _size(message, "needed_bytes")
    if whole and own.total:
        return f"the program needs {format_size(whole)}, the device has {format_size(own.total)}"
    return f"{_gpu(message)} had no room; the text gives no figure"


def _huge(finding: Finding) -> str:
    message = finding.message
    tried, total = _size(message, "tried_bytes"), message.capacity
    if tried is None:
        return CLASS_SENTENCES["single_huge"]
    if total is None:
        return f"one request of {format_size(tried)} is too large by itself"
    share = f"{percent(tried, total)}% of the device ({format_size(total)})"
    return f"one request of {format_size(tried)} is {share} by itself"


def _fragmented(finding: Finding) -> str:
    own, tried = finding.ownership, _size(finding.message, "tried_bytes")
    unused = own.unused or _size(finding.message, "reserved_unallocated_bytes")
    if unused is None or tried is None:
        return CLASS_SENTENCES["fragmentation_clue"]
    return f"torch holds {format_size(unused)} unused, but in pieces too small for the {format_size(tried)} asked for"


def _others(finding: Finding) -> str:
    own, message = finding.ownership, finding.message
    held = sum(p.size_bytes or 0 for p in own.holders) or own.others
    if own.holders and held:
        who = ", ".join(p.words() for p in own.holders[:2]) + (" and more" if len(own.holders) > 2 else "")
        return f"{_gpu(message)} is taken by {who}"
    if held and own.total:
        return f"others hold {format_size(held)} of the {format_size(own.total)} of {_gpu(message)}"
    return finding.verdict.evidence[0] if finding.verdict.evidence else CLASS_SENTENCES["other_process"]


def _budget(finding: Finding) -> str:
    message = finding.message
    needed, available = message.bytes_of("needed_kv_bytes"), message.bytes_of("available_kv_bytes")
    length, tokens = message.bytes_of("max_model_len"), message.bytes_of("kv_tokens")
    if needed is not None and available is not None:
        of = f" of {length:,} tokens" if length else ""
        return f"one request{of} needs {format_size(needed)} of KV cache, {format_size(available)} is left for it"
    if length and tokens is not None:
        return f"one request of {length:,} tokens is longer than the KV cache, which holds {tokens:,}"
    requested, free = message.bytes_of("requested_bytes"), message.bytes_of("free_bytes")
    if requested is not None and free is not None:
        return f"it asks for {format_size(requested)} at start, {format_size(free)} is free"
    return finding.verdict.evidence[0] if finding.verdict.evidence else CLASS_SENTENCES["engine_budget"]


def _host(finding: Finding) -> str:
    message = finding.message
    if message.kind in _SHARED:
        return "shared memory (/dev/shm) ran out, not the GPU's memory"
    constraint = message.context.get("oom_constraint")
    resident = _size(message, "host_resident_bytes")
    had = f"; the killed process had {format_size(resident)}" if resident else ""
    if constraint == "CONSTRAINT_NONE":
        return f"the whole machine was out of RAM (global_oom), not the GPU{had}"
    if constraint == "CONSTRAINT_MEMCG" or "oom_cgroup" in message.context:
        return f"a memory limit of a container, job or unit was passed, not the GPU's{had}"
    place = _PLACES.get(message.context.get("place", ""))
    tried = _size(message, "tried_bytes")
    asked = f"; {format_size(tried)} was asked for" if tried else had
    if message.kind in ("windows_1455", "page_file", "windows_pagefile_words"):
        place = _PLACES["windows"]
    ended = " (the process was killed)" if message.kinds & ENDED else ""
    sure = "ran out" if finding.verdict.confidence == "high" else f"most likely ran out{ended}"
    return f"host memory {sure}, not the GPU's{f': {place}' if place else ''}{asked}"


def _limit(finding: Finding) -> str:
    message = finding.message
    tried, free = _size(message, "tried_bytes"), _size(message, "free_bytes")
    limit = _size(message, "limit_bytes") or _size(message, "allowed_bytes")
    if tried and limit:
        return f"a limit of {format_size(limit)} refused the {format_size(tried)} asked for; the memory itself had room"
    if tried and free is not None:
        return f"a limit refused {format_size(tried)} although {format_size(free)} was free"
    return finding.verdict.evidence[0] if finding.verdict.evidence else CLASS_SENTENCES["limit_not_capacity"]


def _plain(finding: Finding) -> str:
    evidence = finding.verdict.evidence
    return evidence[0] if evidence else CLASS_SENTENCES[finding.failure]


def _warning(finding: Finding) -> str:
    return f"a warning, not the failure: {_plain(finding)}"


def _bug(finding: Finding) -> str:
    return f"no lack of memory: {_plain(finding)}"


def _open(finding: Finding) -> str:
    return f"the text does not say enough: {_plain(finding)}"


_SENTENCES: Final[Mapping[FailureClass, Callable[[Finding], str]]] = {
    "device_full": _full,
    "single_huge": _huge,
    "fragmentation_clue": _fragmented,
    "other_process": _others,
    "engine_budget": _budget,
    "host_memory": _host,
    "limit_not_capacity": _limit,
    "bug": _bug,
    "not_a_failure": _warning,
    "undecided": _open,
}


def whose(finding: Finding) -> str:
    """Whose memory it was: this process's tensors, its cache, what it has outside torch, others' and what is free."""
    own = finding.ownership
    if finding.failure == "host_memory" or finding.message.kind in NOT_MEMORY or own.total is None:
        return ""
    parts = []
    if own.tensors is not None:
        cache = f" and {format_size(own.unused)} of unused cache" if own.unused is not None else ""
        pid = "" if own.own_pid is None else f" (PID {own.own_pid})"
        parts.append(f"this process{pid} {format_size(own.tensors)} of tensors{cache}")
    if own.outside is not None and own.outside > 0:
        parts.append(f"{format_size(own.outside)} of its own outside torch")
    if own.holders:
        parts.append("others " + ", ".join(p.words() for p in own.holders[:3]))
    elif own.others:
        unsure = own.outside is None and finding.message.program.startswith("pytorch")
        parts.append(f"{format_size(own.others)} others{' or its own context' if unsure else ''}")
    if own.free is not None:
        parts.append(f"{format_size(own.free)} free")
    if not parts:
        return ""
    name = "The GPU" if finding.message.device is None else f"GPU {finding.message.device}"
    return f"{name}, {format_size(own.total)}: {'; '.join(parts)}."


def _held(own: Ownership) -> int | None:
    if own.tensors is None:
        return None
    return own.tensors + (own.unused or 0) + (own.outside or 0)


def sureness(finding: Finding) -> str:
    """The confidence in words, and the second reading."""
    verdict = finding.verdict
    words = _CONFIDENCE[verdict.confidence]
    if verdict.second is None or verdict.second == "undecided":
        return f"{words}."
    return f"{words}. Otherwise: {CLASS_SENTENCES[verdict.second]}."
