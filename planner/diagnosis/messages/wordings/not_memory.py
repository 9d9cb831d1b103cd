"""Known failures that are taken for a lack of memory, or stand where one is looked for, and are none."""

from __future__ import annotations

from planner.diagnosis.messages.wordings.card_faults import CARD_FAULTS
from planner.diagnosis.messages.wordings.pattern import Family, no_memory
from planner.diagnosis.messages.wordings.set_up import SET_UP

_NCCL = (
    no_memory(
        "duplicate_gpu",
        "duplicate gpu detected",
        r"Duplicate GPU detected",
        "two ranks use the same GPU",
        "one_rank_per_gpu",
    ),
    no_memory(
        "collective_timeout",
        ("watchdog caught collective operation timeout", "collective operation timeout", "timed out in blocking wait"),
        r"(?:Watchdog caught c|C)ollective operation timeout|timed out in blocking wait",
        "one rank waited for another that was slower, stuck or gone; what ended that rank is the cause",
        "first_rank",
        second="undecided",
        failure="bug",
    ),
    no_memory(
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
    no_memory(
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
    no_memory(
        "stopped",
        ("exited with code 143", "exit code 143", "signal 15", "sigterm", "code -15", "code: -15", "code = -15"),
        r"exit(?:ed with)? code:? 143|\bsignal:? ?15\b[^\n]{0,20}|(?:exitcode|exit code|return code)[\"']? ?[:=]? "
        r"?-15\b"
        r"|received SIGTERM|terminated (?:by|with) SIGTERM",
        "the process was told to stop (SIGTERM): by a person, a scheduler or a failed neighbour",
        "first_rank",
        second="undecided",
    ),
    no_memory(
        "time_limit",
        ("due to time limit", "due to preemption", "deadlineexceeded", "liveness probe failed"),
        r"DUE TO (?:TIME LIMIT|PREEMPTION)|DeadlineExceeded|Liveness probe failed",
        "the scheduler ended it: time, preemption or a probe",
        "ask_scheduler",
    ),
    no_memory(
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
    no_memory(
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
    no_memory(
        "gpu_scheduling",
        ("insufficient nvidia.com/gpu", "insufficient amd.com/gpu"),
        r"Insufficient (?:nvidia"
        r"|amd)\.com/gpu",
        "no node has the GPUs that the pod requests: it was never started",
        "ask_scheduler",
    ),
)
_POINTERS = (
    no_memory(
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
    no_memory(
        "scheduler_dead",
        ("scheduler is dead", "scheduler hit an exception", "rank 0 scheduler"),
        r"(?:Rank \d{1,4} s|S)cheduler (?:is dead|hit an exception|died)",
        "this line only reports that another process of the engine failed; the cause stands in the lines above it",
        "root_cause",
        failure="undecided",
    ),
    no_memory(
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
    no_memory(
        "later",
        ("kernel errors might be asynchronously reported",),
        r"kernel errors might be asynchronously reported",
        "this sentence stands with every CUDA error: the error itself is missing here",
        "root_cause",
        failure="undecided",
    ),
)

POINTERS = frozenset(pattern.kind for pattern in _POINTERS)
KINDS = frozenset(pattern.kind for pattern in (*CARD_FAULTS, *SET_UP, *_NCCL, *_ENDED, *_POINTERS))
FAMILIES = (
    Family(program="cuda", patterns=CARD_FAULTS, gap=150, yields=True),
    Family(program="nccl", patterns=_NCCL, gap=150, yields=True),
    Family(program="system", patterns=_ENDED, gap=150, yields=True),
    Family(program="set-up", patterns=SET_UP, gap=150, yields=True),
    Family(program="engine", patterns=_POINTERS, gap=400, yields=True),
)
