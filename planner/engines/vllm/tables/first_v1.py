"""Which engine 0.8 to 0.10 start: V1 where it can do all that was asked, else V0.

Source: vLLM `engine/arg_utils.py` _is_v1_supported_oracle 0.8.5, 0.9.2 and 0.10.2; encoder-decoder models came to V1
with 0.11 and recurrent ones with 0.10.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from planner.engines.vllm.tables.profile import parse_version
from planner.model.caches import CrossCache, StateCache

if TYPE_CHECKING:
    from planner.engines.vllm.deployment import Deployment
    from planner.model.model import Model

_FIRST_V1: Final = (0, 8, 0)
_ONLY_V1: Final = (0, 11, 0)
_RECURRENT_ON_V1: Final = (0, 10, 0)
_POOLING_ON_V1: Final = (0, 10, 0)
_ROCM_ON_V1: Final = (0, 9, 0)
_LEAST_CAPABILITY: Final = (8, 0)
_FLASH_ATTENTION_3: Final = (9, 0)


def why_v0(model: Model, asked: Deployment) -> str | None:
    """What makes a version that has both engines start V0, in words; None where it starts V1 or has no choice."""
    version = parse_version(asked.engine_version)
    if asked.model_runner != "auto" or not _FIRST_V1 <= version < _ONLY_V1:
        return None
    card = asked.gpu
    capability = card.capability if card else None
    if capability is not None and capability < _LEAST_CAPABILITY:
        return f"compute capability {capability[0]}.{capability[1]} is below 8.0"
    if card is not None and card.vendor == "AMD" and version < _ROCM_ON_V1:
        return "V1 is off by default on ROCm"
    if asked.dtype in ("float32", "float"):
        return "--dtype float32"
    if asked.kv_cache_dtype.startswith("fp8") and capability is not None and capability[:1] != _FLASH_ATTENTION_3[:1]:
        return "an fp8 cache needs FlashAttention 3, which is Hopper's"
    if any(isinstance(cache, CrossCache) for cache in model.caches):
        return "encoder-decoder models"
    if any(isinstance(cache, StateCache) for cache in model.caches) and version < _RECURRENT_ON_V1:
        return "models with recurrent layers"
    if not model.spec.decoder and version < _POOLING_ON_V1:
        return "tasks other than generate"
    return None
