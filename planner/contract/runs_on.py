"""Whether a program runs on a card at all."""

from __future__ import annotations

from planner.errors import UsageError
from planner.hardware.gpus import Gpu


def check_card(title: str, gpu: Gpu | None, *, vendors: tuple[str, ...], oldest: tuple[int, int], source: str) -> None:
    """Refuse a card of another maker, or an NVIDIA card that is too old; a card without a name passes.

    Args:
        title: the program, for people.
        vendors: whose cards it runs on.
        oldest: the least CUDA compute capability.
        source: where that stands.

    Raises:
        UsageError: it does not run there; names gpu.
    """
    if gpu is None or not gpu.vendor:
        return
    if gpu.vendor not in vendors:
        raise UsageError(
            f"--gpu: {title} runs on cards of {' and '.join(vendors)}; {gpu.name} is {gpu.vendor}'s", field="gpu"
        )
    capability = gpu.capability
    if capability is not None and capability < oldest:
        raise UsageError(
            f"--gpu: {title} needs compute capability {oldest[0]}.{oldest[1]}; {gpu.name} has"
            f" {capability[0]}.{capability[1]} ({source})",
            field="gpu",
        )
