"""What vLLM's environment variables and list-like options mean."""

from __future__ import annotations

from typing import Final

_LONGEST_LIST: Final = 1 << 10


def read_use_v1(text: str, _: str) -> str | None:
    """VLLM_USE_V1 (vllm/envs.py 0.8 to 0.10)."""
    return {"0": "v0", "1": "v1"}.get(text.strip())


def read_use_v2(text: str, _: str) -> str | None:
    """VLLM_USE_V2_MODEL_RUNNER (vllm/envs.py from 0.22)."""
    return {"0": "v1", "1": "v2"}.get(text.strip())


def read_flashinfer_sampler(text: str, _: str) -> str | None:
    """VLLM_USE_FLASHINFER_SAMPLER (vllm/envs.py)."""
    return {"0": "pytorch", "1": "flashinfer"}.get(text.strip())


def read_layer_partition(text: str, _: str) -> tuple[int, ...] | None:
    """VLLM_PP_LAYER_PARTITION (vllm/distributed/utils.py get_pp_indices)."""
    try:
        return tuple(int(part) for part in text.split(",")) if len(text) <= _LONGEST_LIST else None
    except ValueError:
        return None


def read_switch(text: str, _: str) -> bool | None:
    """A variable that is 1 or 0."""
    return {"0": False, "1": True}.get(text.strip())


def read_allowed(text: str, _: str) -> bool | None:
    """VLLM_ALLOW_LONG_MAX_MODEL_LEN (vllm/envs.py)."""
    return True if text.strip().lower() in ("1", "true") else None
