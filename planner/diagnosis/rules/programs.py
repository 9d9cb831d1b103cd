"""Readings for programs that print a request without a capacity, for killed processes, and for MPS."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from planner.diagnosis.result import Message, Verdict
from planner.diagnosis.rules.request_alone import by_request_alone
from planner.diagnosis.rules.thresholds import FULL_PERCENT, HUGE_SHARE, LARGE_ALONE_BYTES, percent
from planner.units import format_size

_GGML_BUFFERS: dict[str, tuple[str, tuple[str, ...]]] = {
    "weights": ("the buffer of the weights", ("ggml_less_offload", "smaller_gguf")),
    "kv": ("the KV cache", ("ggml_smaller_context", "ggml_kv_types")),
    "compute": ("the compute buffer (activations)", ("ggml_ubatch", "ggml_flash_attention")),
    "unknown": ("a buffer that the text does not name", ("ggml_less_offload", "smaller_gguf", "ggml_smaller_context")),
}


# Nearly 4 GiB: the usual maxMemoryAllocationSize of Vulkan drivers is 2^32 or a little less.
_VULKAN_BUFFER_BYTES = (4 << 30) * 95 // 100


def ggml(message: Message) -> Verdict:
    """ggml's buffers: the size alone, and the kind of buffer for the lever."""
    kind = ggml_buffer(message)
    name, advise = _GGML_BUFFERS[kind]
    tried = message.bytes_of("tried_bytes")
    if "ggml_vulkan_size" in message.kinds and tried is not None and tried >= _VULKAN_BUFFER_BYTES:
        return Verdict(
            failure="limit_not_capacity",
            second="device_full",
            confidence="medium",
            rule="a Vulkan request of 4 GiB or nearly so: most drivers allow no larger buffer",
            evidence=(
                f"one buffer of {format_size(tried)}",
                "maxMemoryAllocationSize is 4 GiB or less on most drivers",
            ),
            would_change=("the driver's maxMemoryAllocationSize (vulkaninfo) above the request",),
            advise=("smaller_ggml_buffers", *advise),
        )
    verdict = by_request_alone(
        tried, capacity=message.capacity, why=f"{name}; ggml prints neither capacity nor free memory", advise=advise
    )
    if "ggml_retry" in message.kinds:
        return replace(
            verdict,
            failure=verdict.failure,
            second="not_a_failure",
            evidence=(*verdict.evidence, "the program tries again without pipeline parallelism (a buffer per copy)"),
            would_change=("a second failure after the retry; without one, the program went on",),
            advise=("ggml_no_pipeline", *advise),
        )
    if verdict.second == "other_process" and kind == "weights":
        return replace(verdict, second="single_huge")
    return verdict


def ggml_buffer(message: Message) -> str:
    """Which buffer failed: "weights", "kv", "compute" or "unknown"."""
    kinds = message.kinds
    if "ggml_weights" in kinds:
        return "weights"
    if "ggml_kv" in kinds:
        return "kv"
    return "compute" if kinds & {"ggml_compute", "ggml_graph", "ggml_retry"} else "unknown"


def killed(message: Message) -> Verdict:
    """A process ended by SIGKILL: 137 = 128 + 9."""
    if "not_oom_killed" in message.kinds and "oom_killed" not in message.kinds:
        return Verdict(
            failure="undecided",
            second="host_memory",
            confidence="low",
            rule="killed, but the container runtime says that it was not for memory",
            evidence=("OOMKilled is false: a kill from outside the cgroup, a probe, preemption or a stop timeout",),
            would_change=("the kernel log naming the process",),
            advise=("kernel_log",),
        )
    return Verdict(
        failure="host_memory",
        second="undecided",
        confidence="high" if "oom_killed" in message.kinds else "medium",
        rule="the process was ended by signal 9 (exit status 137 or -9)",
        evidence=("the kernel's out-of-memory killer is the usual sender; the GPU never sends it",),
        would_change=("kill -9 by a person or script, a liveness probe, preemption, docker stop's timeout",),
    )


def nccl(message: Message) -> Verdict:
    """NCCL allocates beside torch: small requests on a card that is full."""
    return by_request_alone(
        message.bytes_of("tried_bytes"),
        capacity=message.capacity,
        why="NCCL allocates outside the framework's pool, which may hold the memory that NCCL lacks",
        second="other_process",
        advise=("one_rank_per_gpu", "nccl_buffers", "library_room"),
    )


def kernel(message: Message) -> Verdict:
    """The kernel's killer: whose memory ran out, the machine's or a group's, and what the victim had."""
    constraint = message.context.get("oom_constraint", "")
    group = message.context.get("oom_memcg", "")
    resident = message.bytes_of("host_resident_bytes")
    evidence = []
    if constraint == "CONSTRAINT_NONE":
        evidence.append("CONSTRAINT_NONE (global_oom): the whole machine was out of RAM, no container's or job's limit")
    elif constraint == "CONSTRAINT_MEMCG" or "oom_cgroup" in message.context:
        evidence.append(
            f"the limit of a memory cgroup{f' ({group})' if group else ''} was passed, not the machine's RAM"
        )
    elif constraint:
        evidence.append(f"{constraint}: only the memory nodes that the process may use were full")
    if resident is not None:
        evidence.append(f"the killed process had {format_size(resident)} resident")
    used, limit = message.bytes_of("host_used_bytes"), message.bytes_of("host_limit_bytes")
    if used is not None and limit is not None:
        evidence.append(f"the group used {format_size(used)} of its limit of {format_size(limit)}")
    return Verdict(
        failure="host_memory",
        confidence="high",
        rule="the kernel says that it killed a process for RAM",
        evidence=tuple(evidence) or ("the kernel's own line",),
        would_change=("nothing about the GPU: its memory is never the kernel's concern",),
    )


def ort_limit(message: Message) -> Verdict:
    """ONNX Runtime's arena reached the limit that was set for it."""
    tried, free = message.bytes_of("tried_bytes") or 0, message.bytes_of("free_bytes") or 0
    return Verdict(
        failure="limit_not_capacity",
        second="device_full",
        confidence="medium",
        rule="the arena's own limit (gpu_mem_limit) leaves less than the request",
        evidence=(f"{format_size(tried)} asked for, {format_size(free)} left within the limit",),
        would_change=("no limit set: then the device is full",),
        advise=("ort_arena",),
    )


def cuda_jl(message: Message) -> Verdict:
    """CUDA.jl prints the device's use and its pool's."""
    used, total = message.bytes_of("in_use_bytes"), message.capacity
    tried, pool = message.bytes_of("tried_bytes"), message.bytes_of("reserved_total_bytes")
    if used is None or total is None:
        return by_request_alone(tried, capacity=total, why="CUDA.jl prints no more here")
    other = used - pool if pool is not None else 0
    held = other * 10 > total and other > (1 << 30)
    return Verdict(
        failure="other_process" if held else "device_full",
        second="device_full" if held else None,
        confidence="medium",
        rule="what is in use and not the pool's" if held else "the pool fills the device",
        evidence=(f"{format_size(used)} of {format_size(total)} in use",),
        would_change=("another share of the device held by others",),
        advise=("look_at_card",) if held else ("smaller_work",),
    )


def trt_tactic(message: Message) -> Verdict:
    """TensorRT skips a tactic whose workspace is too large, and goes on."""
    request, available = message.bytes_of("tried_bytes") or 0, message.bytes_of("available_kv_bytes") or 0
    return Verdict(
        failure="not_a_failure",
        second="single_huge",
        confidence="high",
        rule="the builder skips a tactic and goes on with others",
        evidence=(f"the tactic wants {format_size(request)}, {format_size(available)} are available",),
        would_change=("no tactic left: the build then stops with an error",),
        advise=("trt_profile", "trt_workspace"),
    )


def trt_request(message: Message) -> Verdict:
    """TensorRT's request at run or build time."""
    tried = message.bytes_of("tried_bytes")
    verdict = by_request_alone(
        tried, capacity=message.capacity, why="TensorRT prints no capacity", advise=("trt_profile", "trt_workspace")
    )
    if verdict.failure == "device_full" and tried is None:
        return replace(verdict, second="other_process")
    return verdict


_ARENA = ("ort_arena", "look_at_card")


def onnx(message: Message) -> Verdict:
    """ONNX Runtime's arena: the same text for CPU and CUDA."""
    tried = message.bytes_of("tried_bytes")
    if message.kinds & {"ort_nchwc", "ort_cpu"} and "ort_cuda" not in message.kinds:
        return Verdict(
            failure="host_memory",
            confidence="medium",
            rule="the node runs on the CPU provider (nchwc kernels are the CPU's)",
            evidence=(f"{format_size(message.bytes_of('tried_bytes') or 0)} asked of the CPU arena",),
            would_change=("the CUDA provider named next to it",),
            advise=("ort_arena",),
        )
    return by_request_alone(
        message.bytes_of("tried_bytes"),
        capacity=message.capacity,
        why="the arena prints neither its device nor its limit; other models of the same server share the card",
        advise=("ort_attention", "ort_arena") if tried is not None and tried >= LARGE_ALONE_BYTES else _ARENA,
    )


def paddle(message: Message) -> Verdict:
    """Paddle prints the free memory; newer versions also what is allocated on the device, by whomever."""
    free, taken = message.bytes_of("free_bytes"), message.bytes_of("allocated_bytes")
    verdict = by_request_alone(
        message.bytes_of("tried_bytes"),
        capacity=message.capacity,
        why="Paddle prints no capacity",
        advise=("look_at_card", "smaller_work"),
    )
    evidence = verdict.evidence + ((f"{format_size(free)} free",) if free is not None else ())
    if taken is not None:
        evidence = (*evidence, f"{format_size(taken)} taken on the device, by this process and others together")
    return replace(
        verdict,
        second=verdict.second or "other_process",
        evidence=(*evidence, "the text does not say how much of the card is this process's"),
    )


def cupy(message: Message) -> Verdict:
    """CuPy's pool prints what it has allocated, and its limit where one is set."""
    tried, limit = message.bytes_of("tried_bytes"), message.bytes_of("allowed_bytes")
    if limit is not None:
        return Verdict(
            failure="limit_not_capacity",
            second="device_full",
            confidence="high",
            rule="the pool's own limit is printed",
            evidence=(f"{format_size(tried or 0)} asked for, limit {format_size(limit)}",),
            would_change=("a larger limit",),
            advise=("raise_fraction",),
        )
    return by_request_alone(
        tried, capacity=message.capacity, why="CuPy prints no capacity", advise=("smaller_work", "look_at_card")
    )


def mps(message: Message) -> Verdict:
    """Metal: torch's heaps and the process's other buffers against the allowed watermark.

    "other allocations" is the device's allocated size minus torch's heaps, of the same process: the two parts add up.
    """
    tried, allowed = message.bytes_of("tried_bytes"), message.bytes_of("allowed_bytes")
    allocated, other = message.bytes_of("allocated_bytes") or 0, message.bytes_of("mps_other_bytes") or 0
    held = allocated + other
    if allowed is None or tried is None:
        return by_request_alone(
            tried,
            capacity=message.capacity,
            why="the watermark is not in the text, or unlimited",
            advise=("mps_watermark",),
        )
    evidence = (
        f"{format_size(held)} in use of {format_size(allowed)} allowed ({percent(held, allowed)}%), "
        f"{format_size(tried)} asked for",
        "the limit is 1.7 x the recommended working set and can exceed the machine's memory",
    )
    huge = tried >= allowed or (tried * HUGE_SHARE >= allowed and held * 100 < allowed * FULL_PERCENT)
    return Verdict(
        failure="single_huge" if huge else "device_full",
        second="device_full" if huge else "single_huge" if tried * HUGE_SHARE >= allowed else "limit_not_capacity",
        confidence="high" if huge or held * 100 >= allowed * FULL_PERCENT else "medium",
        rule="one request is a quarter of what is allowed, or more"
        if huge
        else "what the process holds and the request exceed what Metal's watermark allows",
        evidence=evidence,
        would_change=("a smaller request" if huge else "a higher watermark, at the risk of swapping",),
        advise=("shrink_tensor", "attention_kernel") if huge else ("smaller_work", "mps_watermark"),
    )


_GGML = (
    "ggml_size",
    "ggml_buffer",
    "ggml_vulkan_size",
    "ggml_metal_buffer",
    "ggml_weights",
    "ggml_kv",
    "ggml_compute",
    "ggml_retry",
    "ggml_device_lost",
    "ggml_cuda_malloc",
    "ggml_cuda_error",
)
_MPS = ("mps_tried", "mps_allocated", "mps_other", "mps_allowed", "mps_word")
_KILLED = ("exit_137", "exit_minus_9", "killed_shell", "sigkill", "signal_9", "systemd_killed")

HANDLERS: dict[str, Callable[[Message], Verdict]] = {
    **dict.fromkeys(_GGML, ggml),
    **dict.fromkeys(_MPS, mps),
    **dict.fromkeys(_KILLED, killed),
    **dict.fromkeys(("nccl", "nccl_size", "nccl_torch"), nccl),
    "trt_tactic": trt_tactic,
    **dict.fromkeys(("trt_request", "trt_code_2"), trt_request),
    "ort_arena": onnx,
    "ort_limit": ort_limit,
    "cuda_jl": cuda_jl,
    **dict.fromkeys(("kernel_oom", "kernel_constraint", "kernel_invoked"), kernel),
    "paddle": paddle,
    "cupy": cupy,
}
