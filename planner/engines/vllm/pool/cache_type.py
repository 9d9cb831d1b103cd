"""Which type vLLM stores a cache in, when the command says "auto" or a family of types.

Sources: vLLM 0.14.0 `utils/torch_utils.py` resolve_kv_cache_dtype_string (modelopt: the checkpoint's kv_cache_scheme or
kv_cache_quant_algo) and `attention/layer.py` (compressed-tensors: its kv_cache_scheme); 0.24.0
`models/deepseek_v4/attention.py`; 0.11 to 0.19 `models/config.py` DeepseekV32ForCausalLM and the sparse MLA backends;
0.20.0 `quantization/turboquant/config.py` get_boundary_skip_layers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from planner.memory.cache.formats import CacheFormat
from planner.model.caches import CompressedCache, StateCache
from planner.model.model import Model

_READS_CHECKPOINT: Final = (0, 14, 0)
_SPARSE_BY_BACKEND: Final = (0, 19, 0)
_FLASHINFER_SPARSE: Final = 10
_KEPT_AT_EITHER_END: Final = 2


def cache_type(model: Model, name: str, version: tuple[int, ...], capability: tuple[int, int] | None) -> str:
    """The name of the cache format that this version takes for `--kv-cache-dtype NAME`.

    Args:
        capability: of the card; None where it is not known.
    """
    if any(isinstance(cache, CompressedCache) for cache in model.caches):
        return "fp8_ds_mla" if name == "auto" or name.startswith("fp8") else name
    if name == "auto" and version >= _READS_CHECKPOINT:
        name = stated_type(model) or name
    if name in ("fp8", "fp8_e4m3", "fp8_e5m2") and model.has_sparse_latent_cache:
        flashinfer = capability is not None and capability[0] == _FLASHINFER_SPARSE and version >= _SPARSE_BY_BACKEND
        return name if flashinfer else "fp8_ds_mla"
    return name


def stated_type(model: Model) -> str | None:
    """The cache type that the checkpoint's quantisation states; None where it states none that vLLM follows."""
    config = model.spec.quantization_config
    if config is None:
        return None
    method = str(config.get("quant_method", ""))
    inner = config.get("quantization")
    places = [part for part in (inner, config) if isinstance(part, Mapping)]
    keys = ["kv_cache_scheme"]
    if "config_groups" not in config:
        # a config.json with groups of its own is all that vLLM reads: hf_quant_config.json beside it is left alone
        keys.append("kv_cache_quant_algo")
    for key in keys:
        for place in places:
            stated = place.get(key)
            if isinstance(stated, Mapping) and method == "compressed-tensors":
                return "fp8"
            if method.startswith("modelopt") and _is_static_fp8(stated):
                return "fp8_e4m3"
    return None


def _is_static_fp8(stated: object) -> bool:
    if isinstance(stated, Mapping):
        return (stated.get("dynamic"), stated.get("num_bits"), stated.get("type")) == (False, 8, "float")
    return isinstance(stated, str) and stated.lower() == "fp8"


def plain_layers(model: Model, form: CacheFormat) -> frozenset[int]:
    """Indices of the layers whose cache stays in the model's own type: both ends of a dense model with TurboQuant."""
    count = len(model.spec.layers)
    recurrent = any(isinstance(cache, StateCache) for cache in model.caches)
    if not form.name.startswith("turboquant") or recurrent:
        return frozenset()
    kept = min(_KEPT_AT_EITHER_END, count // 2)
    return frozenset([*range(kept), *range(count - kept, count)])
