"""Readings for JAX/XLA and TensorFlow: their BFC pool, its warnings, and what XLA says of a whole program."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

from planner.diagnosis.result import FailureClass, Message, Verdict
from planner.diagnosis.rules.request_alone import by_request_alone
from planner.diagnosis.rules.thresholds import FULL_PERCENT, HUGE_SHARE, percent
from planner.units import MIB, format_size

# A request that any healthy process is given: what fails with it is the state of the card.
_TINY_BYTES = 64 * MIB
# In the retry of TensorFlow's pool each size is nine tenths of the one before.
_POOL_STEP_PERCENT = 95


def jax(message: Message) -> Verdict:
    """XLA's request; with BufferAssignment's table, the whole program's need."""
    tried, total = message.bytes_of("tried_bytes"), message.bytes_of("xla_total_bytes")
    temp, out = message.bytes_of("xla_temp_bytes"), message.bytes_of("xla_live_out_bytes")
    if message.bytes_of("limit_bytes"):
        return bfc(message)
    verdict = by_request_alone(
        tried, capacity=message.capacity, why="XLA prints no capacity", advise=("xla_temp", "jax_preallocate")
    )
    evidence = list(verdict.evidence)
    if total is not None:
        evidence.append(f"the compiled program needs {format_size(total)} in all")
    if temp is not None and total and temp * 2 >= total:
        evidence.append(f"{format_size(temp)} of it are temporaries: activations, so batch or rematerialisation")
    if out is not None and total and out * 2 >= total:
        evidence.append(f"{format_size(out)} of it are outputs: donating arguments would reuse their memory")
    small = total if total is not None else tried
    if small is not None and small <= _TINY_BYTES and verdict.failure == "device_full":
        evidence.append(
            "so small a request fails only when the pool is taken already: a second JAX (it takes 75%), "
            "TensorFlow or torch on the same card, or no device at all"
        )
        return replace(
            verdict, second="other_process", evidence=tuple(evidence), advise=("jax_preallocate", "look_at_card")
        )
    return replace(verdict, evidence=tuple(evidence))


def bfc(message: Message) -> Verdict:
    """TensorFlow's and XLA's pool ran out; its own limit, where printed, stands for the capacity."""
    tried, limit = message.bytes_of("tried_bytes"), message.bytes_of("limit_bytes")
    verdict = by_request_alone(
        tried, capacity=message.capacity, why="the BFC pool ran out", advise=("tf_growth", "smaller_work")
    )
    if tried is None or not limit or verdict.failure == "bug":
        return verdict
    used = message.bytes_of("in_use_bytes") or 0
    large = tried * HUGE_SHARE >= limit
    huge = tried >= limit or (large and used * 100 < limit * FULL_PERCENT)
    return Verdict(
        failure="single_huge" if huge else "device_full",
        second="device_full" if huge and tried < limit else "single_huge" if large and not huge else None,
        confidence="high" if tried >= limit or used * 100 >= limit * FULL_PERCENT else "medium",
        rule="the request is larger than the pool" if tried >= limit else "the request against the pool's limit",
        evidence=(
            f"{format_size(tried)} asked of a pool of {format_size(limit)}, {format_size(used)} of it in use "
            f"({percent(used, limit)}%)",
        ),
        would_change=("a larger pool: the limit is what TensorFlow took of the card at start",),
        advise=("shrink_tensor", "smaller_work") if huge else ("smaller_work", "tf_growth"),
    )


def bfc_warning(message: Message) -> Verdict:
    """The same with "not a failure": a plan that was only tried."""
    request = bfc(message)
    return Verdict(
        failure="not_a_failure",
        second=request.failure,
        confidence="high",
        rule="the allocator says itself that this is not a failure",
        evidence=(*request.evidence, "the program asked only to see whether a faster plan would fit"),
        would_change=("a RESOURCE_EXHAUSTED or an exception after it: that is the failure",),
        advise=("look_further",),
    )


def tf_tensor(message: Message) -> Verdict:
    """TensorFlow's tensor, its size from shape and type; on the CPU it is host memory."""
    place = message.context.get("tf_device", "").lower()
    allocator = message.context.get("allocator", "").lower()
    if "device:cpu" in place or allocator in ("cpu", "mklcpu"):
        return Verdict(
            failure="host_memory",
            confidence="high",
            rule="the tensor was to be allocated on the CPU",
            evidence=(f"device {place or allocator}",),
            would_change=("a GPU in the device's name",),
            advise=("load_with_less",),
        )
    assumed = "assumed" in str(message.figures["dtype"].value) if "dtype" in message.figures else False
    if message.bytes_of("limit_bytes"):
        return bfc(message)
    why = "the size is shape x 4 bytes, since the old form names no type" if assumed else "the message has no capacity"
    second: FailureClass | None = None if place or allocator else "host_memory"
    return by_request_alone(
        message.bytes_of("tried_bytes"),
        capacity=message.capacity,
        why=why,
        second=second,
        advise=("smaller_work", "tf_growth"),
    )


def tf_pool(message: Message) -> Verdict:
    """The pool's own growth: repeated ever smaller, something else has the card; alone it is no failure."""
    listed = message.figures.get("tried_list")
    sizes = listed.value if listed is not None and isinstance(listed.value, tuple) else ()
    falling = len(sizes) > 1 and all(b * 100 <= a * _POOL_STEP_PERCENT for a, b in pairwise(sizes))
    if falling:
        return Verdict(
            failure="other_process",
            second="device_full",
            confidence="medium",
            rule="the pool's request was repeated with ever smaller sizes",
            evidence=(f"{len(sizes)} tries, from {format_size(sizes[0])} to {format_size(sizes[-1])}",),
            would_change=("nvidia-smi naming no other process",),
            advise=("look_at_card", "tf_growth"),
        )
    return Verdict(
        failure="not_a_failure",
        second="device_full",
        confidence="low",
        rule="the pool's growth was refused once: TensorFlow tries a smaller size",
        evidence=("a line of information; the failure, if any, is another one",),
        would_change=("the same line again with smaller sizes, or an OOM when allocating a tensor",),
        advise=("look_further", "tf_growth"),
    )


HANDLERS: dict[str, Callable[[Message], Verdict]] = {
    **dict.fromkeys(("jax_exhausted", "jax_exhausted_size", "jax_allocating", "jax_request"), jax),
    **dict.fromkeys(("bfc", "bfc_exact"), bfc),
    "bfc_warning": bfc_warning,
    "tf_tensor": tf_tensor,
    "tf_pool": tf_pool,
}
