"""JAX/XLA and TensorFlow. Both allocate from the BFC pool and print its warnings next to real errors."""

from __future__ import annotations

from planner.diagnosis.messages.wordings.pattern import Family, Pattern
from planner.diagnosis.sizes import NUMBER

_XLA_SIZE = r"\d{1,25}(?:\.\d{1,9})?[KMGTP]?i?B"


def _stat(kind: str, words: str, figure: str) -> Pattern:
    return Pattern(
        kind=kind,
        needle=words,
        regex=rf"{words}: ?(?P<{figure}__size>{_XLA_SIZE})",
        attach_only=True,
    )


_JAX = (
    Pattern(
        kind="jax_exhausted",
        needle="out of memory while trying to allocate",
        regex=r"Out of memory while trying to allocate (?P<tried_bytes__bytes>\d{1,25}) bytes",
    ),
    Pattern(
        kind="jax_exhausted_size",
        needle="out of memory while trying to allocate",
        regex=rf"Out of memory while trying to allocate (?P<tried_bytes__size>{_XLA_SIZE})",
    ),
    Pattern(
        kind="jax_allocating",
        needle="out of memory allocating",
        regex=r"Out of memory allocating (?P<tried_bytes__bytes>\d{1,25}) bytes",
    ),
    Pattern(
        kind="jax_request",
        reach=200,
        needle="failed to allocate request for",
        regex=rf"Failed to allocate request for {_XLA_SIZE} \((?P<tried_bytes__bytes>\d{{1,25}})B\)"
        r"(?: on device ordinal (?P<device__int>\d{1,3}))?",
    ),
    Pattern(
        kind="jax_hbm",
        reach=200,
        needle="ran out of memory in memory space",
        regex=r"Ran out of memory in memory space (?:hbm|host)\.?"
        rf"(?: Used (?P<needed_bytes__size>{_XLA_SIZE}|{NUMBER}[KMGT]) of (?P<total_bytes__size>{_XLA_SIZE}"
        rf"|{NUMBER}[KMGT]) hbm)?",
        failure="device_full",
        confidence="high",
        why="the compiled program needs more than the accelerator's memory",
        advise=("xla_temp", "smaller_work"),
    ),
    Pattern(
        kind="tpu_attempt",
        reach=300,
        needle="that was not possible. there are",
        regex=rf"Attempting to (?:allocate|reserve) (?P<tried_bytes__size>{NUMBER}[KMGT]i?B?)[^\n]{{0,60}}?That was "
        rf"not possible\. "
        rf"There are (?P<free_bytes__size>{NUMBER}[KMGT]i?B?) free",
        failure="device_full",
        confidence="high",
        why="the accelerator has less free than one buffer needs",
        advise=("xla_temp", "smaller_work"),
    ),
    _stat("xla_parameter", "parameter allocation", "xla_parameter_bytes"),
    _stat("xla_constant", "constant allocation", "xla_constant_bytes"),
    _stat("xla_live_out", "maybe_live_out allocation", "xla_live_out_bytes"),
    _stat("xla_temp", "preallocated temp allocation", "xla_temp_bytes"),
    _stat("xla_total", "total allocation", "xla_total_bytes"),
    _stat("xla_fragmentation", "total fragmentation", "xla_fragmentation_bytes"),
)

_XLA_WARNINGS = (
    Pattern(
        kind="xla_rematerialization",
        reach=250,
        needle="by rematerialization",
        regex=r"Can't reduce memory use below \S{1,20} \((?P<limit_bytes__bytes>\d{1,25}) bytes\) by rematerialization"
        r"; only reduced to \S{1,20} \((?P<needed_bytes__bytes>\d{1,25}) bytes\)",
        failure="not_a_failure",
        second="device_full",
        confidence="medium",
        why="the compiler could not make the program fit its target; it runs if the device has more than that",
        advise=("xla_temp", "smaller_work"),
    ),
)

_BFC = (
    Pattern(
        kind="bfc_warning",
        reach=200,
        needle="indicates that this is not a failure",
        regex=rf"ran out of memory trying to allocate (?P<tried_bytes__size>{_XLA_SIZE}) with freed_by_count=\d{{1,20}}"
        r"\.? ?The caller indicates that this is not a failure",
        failure="not_a_failure",
        confidence="high",
        why="the program asked only to see whether a faster plan would fit, and went on without",
        advise=("look_further",),
    ),
    Pattern(
        kind="bfc_exact",
        reach=200,
        needle="ran out of memory trying to allocate",
        regex=rf"Allocator \((?P<allocator__word>\w{{1,40}})\) ran out of memory trying to allocate {_XLA_SIZE} "
        r"\(rounded to (?P<tried_bytes__bytes>\d{1,25})\)",
    ),
    Pattern(
        kind="bfc",
        reach=200,
        needle="ran out of memory trying to allocate",
        regex=rf"Allocator \((?P<allocator__word>\w{{1,40}})\) ran out of memory trying to allocate "
        rf"(?P<tried_bytes__size>{_XLA_SIZE})",
    ),
    Pattern(
        kind="bfc_limit",
        reach=200,
        needle="inuse:",
        regex=r"Limit: {1,20}(?P<limit_bytes__bytes>\d{1,25}) InUse: {1,20}(?P<in_use_bytes__bytes>\d{1,25})",
        attach_only=True,
    ),
)

_TENSORFLOW = (
    Pattern(
        kind="tf_tensor",
        reach=600,
        needle="oom when allocating tensor",
        regex=r"OOM when allocating tensor (?:with|of) shape ?\[(?P<shape__shape>[\d, ]{0,300})\]"
        r"(?: and type (?P<dtype__word>\w{1,24}))?"
        r"(?: on (?P<tf_device__word>[\w:/.-]{1,120}))?(?: by allocator (?P<allocator__word>\w{1,40}))?",
    ),
    Pattern(
        kind="tf_pool",
        reach=200,
        needle="from device: cuda_error_out_of_memory",
        regex=rf"failed to allocate {NUMBER}[KMGT]?i?B? \((?P<tried_bytes__bytes>\d{{1,25}}) bytes\) from device: "
        r"CUDA_ERROR_OUT_OF_MEMORY",
        repeats=True,
    ),
    Pattern(
        kind="tf_failed",
        needle="failed to allocate memory",
        regex=r"failed to allocate memory \[(?:Op:\w{1,60}\]|\[)",
        failure="device_full",
        second="other_process",
        confidence="low",
        why="TensorFlow's pool is exhausted; this wording gives no size (the pool's dump above it does)",
        would_change="the size and the pool's limit, from the lines above",
        advise=("smaller_work", "tf_growth", "look_at_card"),
    ),
    Pattern(
        kind="tf_dst",
        needle="dst tensor is not initialized",
        regex=r"Dst tensor is not initialized",
        failure="device_full",
        second="other_process",
        confidence="medium",
        why="TensorFlow found no room on the GPU for a tensor that it copies there",
        would_change="nvidia-smi naming another process that holds the card",
        advise=("look_at_card", "smaller_work"),
    ),
    Pattern(
        kind="tf_cublas",
        needle=("failed to create cublas handle", "blas gemm launch failed", "could not create cudnn handle"),
        regex=r"failed to create cublas handle|Blas GEMM launch failed|Could not create cudnn handle",
        failure="device_full",
        second="other_process",
        confidence="low",
        why="cuBLAS found no memory for its handle: the pool, or another program, has it all",
        would_change="memory growth instead of one large pool: if that works, the pool was the holder",
        advise=("tf_growth", "look_at_card"),
    ),
)

FAMILIES = (
    Family(program="jax", patterns=_XLA_WARNINGS, gap=300),
    Family(program="jax", patterns=_JAX, gap=900),
    Family(program="tensorflow", patterns=_TENSORFLOW, gap=900),
    Family(program="tensorflow", patterns=_BFC, gap=900),
)
