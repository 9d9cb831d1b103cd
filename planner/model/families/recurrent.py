"""What configs with recurrent layers have in common: which layer is which, and the storage type of the state."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from planner.errors import UnsupportedArchitecture
from planner.model.config import RawConfig
from planner.model.spec import Layer

LINEAR = "linear_attention"
FULL = "full_attention"
_STATE_DTYPES = ("float32", "bfloat16", "float16")
_Key = TypeVar("_Key")


def read_state_dtype(raw: RawConfig, *, default: str | None = None) -> str | None:
    """The storage type that a config asks for its recurrent state, or `default` when it does not say.

    `mamba_ssm_cache_dtype` (Nemotron-H) and `mamba_ssm_dtype` (Qwen3.5); vLLM follows them unless the user sets
    --mamba-ssm-cache-dtype (0.19.1 `model_executor/models/config.py`).

    Raises:
        UnsupportedArchitecture: a type that a state is not kept in.
    """
    declared = raw.optional_text("mamba_ssm_cache_dtype", "mamba_ssm_dtype")
    if declared is None or declared == "auto":
        return default
    declared = declared.removeprefix("torch.")
    if declared not in _STATE_DTYPES:
        raise UnsupportedArchitecture(
            f"{raw.path}: mamba_ssm_cache_dtype {declared[:40]!r} is not understood; expected one of"
            f" {', '.join(_STATE_DTYPES)}",
            field="mamba_ssm_cache_dtype",
        )
    return declared


def check_layer_types(raw: RawConfig, field: str, types: list[str], known: Iterable[str]) -> list[str]:
    """The same list, every entry of a known kind.

    Raises:
        UnsupportedArchitecture: an entry that is not; names it.
    """
    known = tuple(known)
    for kind in types:
        if kind not in known:
            raise UnsupportedArchitecture(
                f"{raw.path}: {field} {kind[:40]!r} is not understood; expected one of {', '.join(known)}", field=field
            )
    return types


def refuse_unless(raw: RawConfig, field: str, understood: object, *, absent: object = None) -> None:
    """Insist on the one value of a switch whose other values select a variant that is not modelled.

    Args:
        understood: the value that is modelled.
        absent: what a missing key means (None: the understood value).

    Raises:
        UnsupportedArchitecture: another value; names the field.
    """
    value = raw.raw(field)
    if value is None:
        value = understood if absent is None else absent
    if value != understood or isinstance(value, bool) != isinstance(understood, bool):
        raise UnsupportedArchitecture(
            f"{raw.path}: {field} {str(value)[:40]!r} is not understood; only {understood!r} is", field=field
        )


def stack(keys: Iterable[_Key], make: Callable[[_Key], Layer]) -> tuple[Layer, ...]:
    """One layer for each key, equal keys sharing one Layer object."""
    made: dict[_Key, Layer] = {}
    layers = []
    for key in keys:
        if key not in made:
            made[key] = make(key)
        layers.append(made[key])
    return tuple(layers)
