"""The texts of which every message contains one, and the quick way to find that none is there."""

from __future__ import annotations

from functools import cache

from planner.diagnosis.messages.wordings import families

# Structured captures that have their own readers.
TABLE_NEEDLES = (
    "nvidia-smi",
    "memory.total",
    "used_gpu_memory",
    "memory summary, device id",
    "allocated_bytes.all.current",
    "mb gpu memory",
    "mib /",
)


@cache
def anchors() -> tuple[str, ...]:
    """The shortest set of lower-case texts of which every message contains one."""
    needles = {
        needle for family in families() for p in family.patterns if not p.attach_only for needle in p.needles
    } | set(TABLE_NEEDLES)
    return tuple(sorted(n for n in needles if not any(other != n and other in n for other in needles)))


# Every anchor contains one of these, and is looked for only where all that it contains occur: the quick way through a
# long log, whose usual lines have few of them.
HOT = (
    "memory",
    "alloc",
    "capac",
    "kill",
    "137",
    "-9",
    "vram",
    "_status_",
    "oom",
    "out_of",
    "outof",
    "kv cache",
    "mib",
    "cuda",
    "bus error",
    "no space left",
    "find an engine",
    "paging file",
    "auto-fit",
    "seq len",
    "length",
    "reserved",
    "swap space",
    "startup",
    "externally",
    "retract",
    "buffer",
    "pinned",
    "profiled",
    "pools",
    "process",
    "nvidia-smi",
    "pipeline",
    "gpu on",
    "on gpu",
    "warming",
    "tactic",
    "erroroutof",
    "model",
    "sigkill",
    "ram",
    "/dev/shm",
    "host",
    "scratch",
    "dataloader",
    "cublas",
    "mem-fraction",
    "indicates that",
    "max allowed",
    "may not be",
    "mps backend",
    "is free",
    "reject",
    "hip error",
    "error",
    "fail",
    "signal",
    "code ",
    "code:",
    "code =",
    "exceed",
    "resource",
    "insufficient",
    "device",
    "kernel",
    "driver",
    "connection",
    "version",
    "terminated",
    "timeout",
    "sigterm",
    "winerror",
    "3221225",
    "0xc0000",
    "8007",
    "offload",
    "shard",
    "wsl/",
    "algorithm",
    "execution plans",
    "illegal",
    "lost",
)


@cache
def hot_words() -> tuple[tuple[str, str, tuple[str, ...]], ...]:
    """Each anchor, the anchor without hexadecimal digits, and the hot words that it contains, the most shared first."""
    shared = {word: sum(word in anchor for anchor in anchors()) for word in HOT}
    return tuple(
        (a, a.translate(HEX), tuple(sorted((w for w in HOT if w in a), key=lambda w: -shared[w]))) for a in anchors()
    )


HEX: dict[int, int | str | None] = {ord(c): None for c in "0123456789abcdef"}
