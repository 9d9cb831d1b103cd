"""DeepSpeed's JSON as inputs of the recipe; "auto" is what the HF integration fills in, and stays open."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from planner.errors import UsageError

_MOST_BYTES: Final = 1 << 20
_NUMBERS: Final = {
    "reduce_bucket_size": "reduce_bucket_size",
    "sub_group_size": "sub_group_size",
    "stage3_max_live_parameters": "stage3_max_live_parameters",
}


def deepspeed_inputs(path: str) -> dict[str, Any]:
    """The recipe's inputs that a DeepSpeed JSON sets.

    Raises:
        UsageError: not readable, too large, or not DeepSpeed's JSON.
    """
    values = _read(path)
    zero = values.get("zero_optimization")
    if not isinstance(zero, Mapping):
        return {"sharding": "ddp"}
    stage = zero.get("stage", 0)
    if stage not in (0, 1, 2, 3):
        raise UsageError(
            f"--deepspeed: zero_optimization.stage is {str(stage)[:20]}; expected 0 to 3", field="deepspeed"
        )
    found: dict[str, Any] = {"sharding": f"zero{stage}" if stage else "ddp"}
    for key, name in _NUMBERS.items():
        value = zero.get(key)
        if isinstance(value, int | float) and not isinstance(value, bool) and 1 <= value <= 1 << 40:
            found[name] = int(value)
    if isinstance(zero.get("overlap_comm"), bool):
        found["overlap_comm"] = zero["overlap_comm"]
    for key, name in (("offload_optimizer", "offload_optimizer"), ("offload_param", "offload_parameters")):
        offload = zero.get(key)
        if isinstance(offload, Mapping) and offload.get("device") in ("cpu", "nvme"):
            found[name] = True
            if isinstance(offload.get("pin_memory"), bool):
                found["pin_memory"] = offload["pin_memory"]
    return found


def _read(path: str) -> Mapping[str, Any]:
    file = Path(path)
    try:
        if file.stat().st_size > _MOST_BYTES:
            raise UsageError(f"--deepspeed {path[:60]}: larger than 1 MiB", field="deepspeed")
        values = json.loads(file.read_text("utf-8"))
    except OSError as error:
        raise UsageError(f"--deepspeed {path[:60]}: {error.strerror}", field="deepspeed") from None
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, dict):
        raise UsageError(f"--deepspeed {path[:60]}: not a JSON object", field="deepspeed")
    return values
