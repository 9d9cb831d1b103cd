"""Readings for programs that print a request without a capacity, for killed processes, and for MPS."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from planner.diagnosis.result import Message, Verdict
from planner.diagnosis.rules.request_alone import by_request_alone
from planner.diagnosis.rules.thresholds import FULL_PERCENT, HUGE_SHARE, percent
from planner.units import format_size

_GGML_BUFFERS: dict[str, tuple[str, tuple[str, ...]]] = {
    "weights": ("the buffer of the weights", ("ggml_less_offload", "smaller_quant")),
    "kv": ("the KV cache", ("smaller_context", "ggml_kv_types")),
    "compute": ("the compute buffer (activations)", ("ggml_ubatch", "ggml_flash_attention")),
    "unknown": ("a buffer that the text does not name", ("ggml_less_offload", "smaller_context")),
}


def ggml(message: Message) -> Verdict:
    """ggml's buffers: the size alone, and the kind of buffer for the lever."""
    kind = ggml_buffer(message)
    name, advise = _GGML_BUFFERS[kind]
    tried = message.bytes_of("tried_bytes")
    verdict = by_request_alone(tried, why=f"{name}; ggml prints neither capacity nor free memory", advise=advise)
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
        confidence="high" if message.kinds & {"oom_killed", "killed_shell"} else "medium",
        rule="the process was ended by signal 9 (exit status 137 or -9)",
        evidence=("the kernel's out-of-memory killer is the usual sender; the GPU never sends it",),
        would_change=("kill -9 by a person or script, a liveness probe, preemption, docker stop's timeout",),
        advise=("kernel_log", "container_memory", "low_cpu_load", "shm_size"),
    )


def nccl(message: Message) -> Verdict:
    """NCCL allocates beside torch: small requests on a card that is full."""
    return by_request_alone(
        message.bytes_of("tried_bytes"),
        why="NCCL allocates outside the framework's pool, which may hold the memory that NCCL lacks",
        second="other_process",
        advise=("one_rank_per_gpu", "nccl_buffers", "lower_fraction_for_library"),
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
    verdict = by_request_alone(tried, why="TensorRT prints no capacity", advise=("trt_profile", "trt_workspace"))
    if verdict.failure == "device_full" and tried is None:
        return replace(verdict, second="other_process")
    return verdict


def onnx(message: Message) -> Verdict:
    """ONNX Runtime's arena: the same text for CPU and CUDA."""
    if message.kinds & {"ort_nchwc", "ort_cpu"} and "ort_cuda" not in message.kinds:
        return Verdict(
            failure="host_memory",
            confidence="medium",
            rule="the node runs on the CPU provider (nchwc kernels are the CPU's)",
            evidence=(f"{format_size(message.bytes_of('tried_bytes') or 0)} asked of the CPU arena",),
            would_change=("the CUDA provider named next to it",),
            advise=("container_memory", "ort_arena"),
        )
    return by_request_alone(
        message.bytes_of("tried_bytes"),
        why="the arena prints neither its device nor its limit; other models of the same server share the card",
        advise=("ort_arena", "look_at_card"),
    )


def paddle(message: Message) -> Verdict:
    """Paddle prints the free memory, newer versions also what it has allocated itself."""
    free, mine = message.bytes_of("free_bytes"), message.bytes_of("allocated_bytes")
    verdict = by_request_alone(
        message.bytes_of("tried_bytes"), why="Paddle prints no capacity", advise=("look_at_card", "smaller_batch")
    )
    evidence = verdict.evidence + ((f"{format_size(free)} free",) if free is not None else ())
    if mine is not None:
        return replace(verdict, evidence=(*evidence, f"{format_size(mine)} are this process's"))
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
    return by_request_alone(tried, why="CuPy prints no capacity", advise=("smaller_batch", "look_at_card"))


def mps(message: Message) -> Verdict:
    """Metal: torch's heaps and the process's other buffers against the allowed watermark.

    "other allocations" is the device's allocated size minus torch's heaps, of the same process: the two parts add up.
    """
    tried, allowed = message.bytes_of("tried_bytes"), message.bytes_of("allowed_bytes")
    allocated, other = message.bytes_of("allocated_bytes") or 0, message.bytes_of("mps_other_bytes") or 0
    held = allocated + other
    if allowed is None or tried is None:
        return by_request_alone(tried, why="the watermark is not in the text, or unlimited", advise=("mps_watermark",))
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
        advise=("shrink_tensor", "attention_kernel") if huge else ("smaller_batch", "mps_watermark"),
    )


_GGML = ("ggml_size", "ggml_buffer", "ggml_vulkan_size", "ggml_metal_buffer", "ggml_weights", "ggml_kv", "ggml_compute",
         "ggml_retry", "ggml_device_lost", "ggml_cuda_malloc", "ggml_cuda_error")  # fmt: skip
_MPS = ("mps_tried", "mps_allocated", "mps_other", "mps_allowed", "mps_word")
_KILLED = ("exit_137", "exit_minus_9", "killed_shell", "sigkill")

HANDLERS: dict[str, Callable[[Message], Verdict]] = {
    **dict.fromkeys(_GGML, ggml),
    **dict.fromkeys(_MPS, mps),
    **dict.fromkeys(_KILLED, killed),
    **dict.fromkeys(("nccl", "nccl_size", "nccl_torch"), nccl),
    "trt_tactic": trt_tactic,
    **dict.fromkeys(("trt_request", "trt_code_2"), trt_request),
    "ort_arena": onnx,
    "paddle": paddle,
    "cupy": cupy,
}
