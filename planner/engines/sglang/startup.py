"""What SGLang stops with, in its own words; two of them want opposite cures.

no_cache        before the first request: the static share is less than the weights; a higher fraction helps
outside_budget  later: what lives beside the static share does not fit; a lower fraction helps
"""

from __future__ import annotations

from planner.contract.plan import StartupError
from planner.engines.sglang.tables.releases import Release
from planner.units import gib

_NAMES_CURRENT = (0, 5, 1, 0)


def no_cache(release: Release, fraction: float) -> StartupError:
    """The pools would be empty (model_runner.py init_memory_pool, pool_configurator.py MemoryPoolConfig)."""
    message = "Not enough memory. Please try to increase --mem-fraction-static."
    if release >= _NAMES_CURRENT:
        message += f" Current value: mem_fraction_static={fraction:.3g}"
    return StartupError(kind="no_cache", message=message)


def no_states(release: Release, *, rest_bytes: int, slot_bytes: int) -> StartupError:
    """No slot for a recurrent state (kv_cache_configurator.py _handle_max_mamba_cache)."""
    if release < (0, 5, 13, 0):
        return no_cache(release, 0)
    return StartupError(
        kind="no_cache",
        message="Not enough GPU memory for hybrid (mamba/linear-attention) state cache. "
        f"(total_rest_memory={gib(rest_bytes)} GB, mamba_cache_per_req={slot_bytes / (1 << 20):.2f} MB)",
    )


def weights_too_large(*, needed_bytes: int, free_bytes: int) -> StartupError:
    """The weights do not go into the free memory."""
    return StartupError(
        kind="weights",
        message=f"torch.OutOfMemoryError: CUDA out of memory while loading: weights of {gib(needed_bytes)} GiB,"
        f" {gib(free_bytes)} GiB free",
    )


def outside_budget(*, short_bytes: int) -> StartupError:
    """The pools are made, and graphs or the first requests run out of memory."""
    return StartupError(
        kind="outside_budget",
        message="torch.OutOfMemoryError: CUDA out of memory during graph capture or the first requests, "
        f"{gib(short_bytes)} GiB short beside the static share; a lower --mem-fraction-static helps",
    )


def beyond_positions(context_length: int, positions: int) -> StartupError:
    """A context longer than the model's (configs/model_config.py)."""
    return StartupError(
        kind="max_model_len",
        message=f"User-specified context_length ({context_length}) is greater than the derived context_length "
        f"({positions}). To allow overriding this maximum, set SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN=1",
        refused=True,
    )
