"""A model with random weights on the device, from its config alone: nothing is downloaded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from planner.errors import ProbeError
from planner.probe.extras import library

_DROPPED: Final = ("quantization_config", "torch_dtype", "dtype", "transformers_version", "architectures", "auto_map")
_RENAMED_DTYPE: Final = (4, 56)  # from_config(torch_dtype=) became from_config(dtype=)


def build_model(values: Mapping[str, object], *, dtype: str, attn_implementation: str, device: str) -> Any:
    """The transformers model of a raw config, initialised at random in `dtype` on `device`.

    Raises:
        ProbeError: transformers has no causal model for it, or refuses the config.
    """
    torch, transformers = library("torch"), library("transformers")
    kept = {key: value for key, value in values.items() if key not in _DROPPED}
    model_type = str(kept.pop("model_type", ""))
    try:
        config = transformers.AutoConfig.for_model(model_type, **kept)
        builder = _builder(transformers, config)
        keyword = "dtype" if _release(transformers) >= _RENAMED_DTYPE else "torch_dtype"
        with torch.device(device):
            return builder.from_config(
                config, **{keyword: getattr(torch, dtype)}, attn_implementation=attn_implementation
            )
    except (ValueError, TypeError, KeyError, AttributeError, NotImplementedError, ImportError) as error:
        raise ProbeError(
            f"transformers {transformers.__version__} cannot build {model_type or 'this model'}: {error}", field="model"
        ) from None


def _release(transformers: Any) -> tuple[int, int]:
    major, minor = str(transformers.__version__).split(".")[:2]
    return int(major), int(minor)


def _builder(transformers: Any, config: Any) -> Any:
    for name in ("AutoModelForCausalLM", "AutoModelForImageTextToText"):
        builder = getattr(transformers, name, None)
        if builder is not None and type(config) in builder._model_mapping:
            return builder
    raise ValueError(f"no causal language model for {type(config).__name__}")


def storage_bytes(tensors: Iterable[Any]) -> int:
    """Bytes of the distinct storages behind these tensors."""
    sizes: dict[int, int] = {}
    for tensor in tensors:
        if tensor is not None and tensor.device.type != "meta":
            storage = tensor.untyped_storage()
            sizes[storage.data_ptr()] = storage.nbytes()
    return sum(sizes.values())


def packed_tensors(parameters: Iterable[Any]) -> list[Any]:
    """The parameters' tensors, with the scales that bitsandbytes keeps beside a packed one."""
    found = []
    for parameter in parameters:
        found.append(parameter)
        state = getattr(parameter, "quant_state", None)
        while state is not None:
            found += [state.absmax, getattr(state, "offset", None)]
            if state.code is not None:
                found.append(state.code)
            state = getattr(state, "state2", None)
    return found


def tensors_in(value: Any) -> list[Any]:
    """Every tensor that an object holds, at any depth (a cache, an optimizer's state)."""
    torch = library("torch")
    found, pending, seen = [], [value], set()
    while pending:
        item = pending.pop()
        if id(item) in seen:
            continue
        seen.add(id(item))
        if isinstance(item, torch.Tensor):
            found.append(item)
        elif isinstance(item, Mapping):
            pending += item.values()
        elif isinstance(item, list | tuple | set):
            pending += item
        elif type(item).__module__.startswith("transformers") and hasattr(item, "__dict__"):
            pending += vars(item).values()
    return found
