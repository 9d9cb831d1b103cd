"""The refusals vLLM prints at start-up, word for word by version."""

from __future__ import annotations

from planner.contract.plan import StartupError
from planner.engines.vllm.tables.profile import EngineProfile, parse_version
from planner.units import GIB


def gib_text(size_bytes: int, profile: EngineProfile) -> str:
    """A size as this version prints it: two decimals, trailing zeros dropped from 0.14."""
    value = size_bytes / GIB
    return str(round(value, 2)) if parse_version(profile.version) >= (0, 14, 0) else f"{value:.2f}"


def beyond_positions(max_model_len: int, positions: int) -> StartupError:
    """A longer request than the model has positions (vLLM config/model.py _get_and_verify_max_len).

    The environment variable is known from 0.5.5 on; how far the text goes on after it depends on the version.
    """
    text = (
        f"User-specified max_model_len ({max_model_len}) is greater than the derived max_model_len"
        f" (max_position_embeddings={positions} or model_max_length=None in model's config.json). To allow overriding"
        " this maximum, set the env var VLLM_ALLOW_LONG_MAX_MODEL_LEN=1"
    )
    return StartupError(kind="max_model_len", message=text, refused=True)


def no_engine(card: str) -> StartupError:
    """A card that vLLM has no GPU engine for."""
    return StartupError(kind="device", message=f"vLLM has no GPU engine for {card}", refused=True)


def no_cache_blocks(profile: EngineProfile) -> StartupError:
    """available_kv <= 0 (vLLM v1/core/kv_cache_utils.py)."""
    text = (
        "No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing"
        f" the engine.{_pointer(profile)}"
    )
    return StartupError(kind="no_cache_blocks", message=text)


def _pointer(profile: EngineProfile) -> str:
    if parse_version(profile.version) < (0, 13, 0):
        return ""
    return " See https://docs.vllm.ai/en/latest/configuration/conserving_memory/ for more details."


def request_too_long(
    profile: EngineProfile,
    *,
    max_model_len: int,
    needed_bytes: int,
    available_bytes: int,
    longest: int,
    pool_tokens: int,
) -> StartupError:
    """One request of max_model_len does not fit the pool."""
    if profile.runner == "v0":
        text = (
            f"The model's max seq len ({max_model_len}) is larger than the maximum number of tokens that can be"
            f" stored in KV cache ({pool_tokens}). Try increasing `gpu_memory_utilization` or decreasing"
            " `max_model_len` when initializing the engine."
        )
        return StartupError(kind="request_too_long", message=text)
    whose = "models's" if profile.typo_in_refusal else "model's"
    estimate = f"Based on the available memory, the estimated maximum model length is {longest}. " if longest else ""
    if parse_version(profile.version)[:2] == (0, 8):
        estimate = "Based on the available memory, "
    text = (
        f"To serve at least one request with the {whose} max seq len ({max_model_len}),"
        f" ({gib_text(needed_bytes, profile)} GiB KV cache is needed, which is larger than the available KV cache"
        f" memory ({gib_text(available_bytes, profile)} GiB). {estimate}Try increasing `gpu_memory_utilization` or"
        f" decreasing `max_model_len` when initializing the engine.{_pointer(profile)}"
    )
    return StartupError(kind="request_too_long", message=text)


def free_memory(
    profile: EngineProfile, *, free_bytes: int, total_bytes: int, utilization: float, requested_bytes: int
) -> StartupError:
    """Less is free on start-up than the fraction asks for (vLLM 0.9.2 and later)."""
    device = "cuda:0 " if parse_version(profile.version) >= (0, 16, 0) else ""
    text = (
        f"Free memory on device {device}({gib_text(free_bytes, profile)}/{gib_text(total_bytes, profile)} GiB) on"
        f" startup is less than desired GPU memory utilization ({utilization},"
        f" {gib_text(requested_bytes, profile)} GiB). Decrease GPU memory utilization or reduce GPU memory used by"
        " other processes."
    )
    return StartupError(kind="free_memory", message=text)


def weights_too_large(profile: EngineProfile, *, needed_bytes: int, free_bytes: int) -> StartupError:
    """Loading runs out of memory before anything is profiled."""
    text = (
        f"CUDA out of memory while loading: the weights need {gib_text(needed_bytes, profile)} GiB,"
        f" {gib_text(free_bytes, profile)} GiB is free on the card"
    )
    if parse_version(profile.version) >= (0, 13, 0):
        text = (
            "Failed to load model - not enough GPU memory. Try lowering --gpu-memory-utilization to free memory for"
            " weights, increasing --tensor-parallel-size, or using --quantization. (" + text + ")"
        )
    return StartupError(kind="weights", message=text)


def outside_budget(*, short_bytes: int, left_bytes: int) -> StartupError:
    """What is allocated after the cache does not fit in what the fraction leaves."""
    text = (
        f"CUDA out of memory after the KV cache is allocated: CUDA graphs and warm-up need"
        f" {(left_bytes + short_bytes) / GIB:.2f} GiB, the fraction leaves {max(left_bytes, 0) / GIB:.2f} GiB"
    )
    return StartupError(kind="outside_budget", message=text)
