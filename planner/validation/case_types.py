"""The types of a measured case's values, so that a figure given as text is named instead of passed over."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Mapping
from typing import Final

_Check = Callable[[object], bool]


def is_number(value: object) -> bool:
    """A finite number that fits a float; JSON's true is none."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def _number(value: object) -> float:
    """The value if it is a number; a NaN, which no comparison holds for, if not."""
    return float(value) if isinstance(value, int | float) and is_number(value) else math.nan


def _whole(least: int) -> _Check:
    return lambda value: _number(value) >= least and _number(value).is_integer()


def _positive(value: object) -> bool:
    return _number(value) > 0


def _share(value: object) -> bool:
    return 0 < _number(value) <= 1


_COUNT: Final = ("a whole number of 1 or more", _whole(1))
_AMOUNT: Final = ("a whole number", _whole(0))
_SIZE: Final = ("a number in GiB above 0", _positive)
_TEXT: Final = ("text", lambda value: isinstance(value, str))
_SWITCH: Final = ("true or false", lambda value: isinstance(value, bool))
# SGLang's starts give the number of cards where vLLM's say whether
_SWITCH_OR_COUNT: Final = ("true, false or a whole number of 1 or more", lambda v: isinstance(v, bool) or _COUNT[1](v))
_OBJECT: Final = ("an object", lambda value: isinstance(value, dict))
# What an engine prints can be below zero: a pool that the profile leaves nothing for, memory given back.
_FIGURE: Final = ("a number", is_number)

DEPLOYMENT: Final[Mapping[str, tuple[str, _Check]]] = {
    **dict.fromkeys(
        (
            "tensor_parallel",
            "pipeline_parallel",
            "gpu_count",
            "max_num_seqs",
            "max_num_batched_tokens",
            "num_hidden_layers",
        ),
        _COUNT,
    ),
    **dict.fromkeys(
        (
            "engine",
            "engine_version",
            "gpu",
            "dtype",
            "quantization",
            "base_quantization",
            "kv_cache_dtype",
            "probe",
            "device",
        ),
        _TEXT,
    ),
    **dict.fromkeys(("expert_parallel", "data_parallel"), _SWITCH_OR_COUNT),
    "enforce_eager": _SWITCH,
    **dict.fromkeys(("other_flags", "workload", "versions"), _OBJECT),
    "max_model_len": ("a whole number of 1 or more (-1: the longest that fits)", lambda v: v == -1 or _COUNT[1](v)),
    "gpu_memory_gib": _SIZE,
    "gpu_memory_utilization": ("a fraction above 0, at most 1", _share),
}
_COUNTED: Final = ("num_gpu_blocks", "kv_tokens", "max_concurrency_len", "estimated_max_len")


def wrong_value(part: str, values: Mapping[str, object]) -> str | None:
    """What is wrong with the first value of a wrong type or range, in words; None when all are right.

    null stands for what is not known or was not printed. Keys without a known type are free.

    Args:
        part: "deployment" or "measured".
    """
    for key, value in values.items():
        expected = _expected(part, key)
        if value is None or expected is None or expected[1](value):
            continue
        shown = json.dumps(value, ensure_ascii=False)[:60]
        return f"{part} {key} must be {expected[0]}, not {shown}"
    return None


def _expected(part: str, key: str) -> tuple[str, _Check] | None:
    if part == "deployment":
        return DEPLOYMENT.get(key)
    if key in _COUNTED:
        return _AMOUNT
    return _FIGURE if key.endswith("_gib") or key in ("needed_kv_gib_for_one_request", "max_concurrency") else None
