"""Options of programs that run llama.cpp under names of their own, as llama.cpp's.

koboldcpp.py's argument parser (1.104; --quantkv 0 is f16, 1 q8_0, 2 q4_0; n_ubatch is its batch size), `lms load`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from planner.launches.record import LaunchPlan

_SAME: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = {
    "koboldcpp": {
        "contextsize": ("ctx-size",),
        "gpulayers": ("n-gpu-layers",),
        "blasbatchsize": ("batch-size", "ubatch-size"),
        "tensor_split": ("tensor-split",),
        "moecpu": ("n-cpu-moe",),
        "mmproj": ("mmproj",),
    },
    "lm-studio": {"context-length": ("ctx-size",), "parallel": ("parallel",)},
}
_CACHE_TYPES: Final = ("f16", "q8_0", "q4_0")
_LAYERS: Final = {"max": "all", "off": 0}


def open_question(plan: LaunchPlan) -> str | None:
    """What keeps a variant's options from being llama.cpp's: a share of the layers is no number of layers."""
    share = plan.get("gpu") if plan.variant == "lm-studio" else None
    if share is None or share in _LAYERS:
        return None
    return f"lm-studio --gpu {share} is a share of the model's layers: give max or off with --set gpu=VALUE"


def own_inputs(plan: LaunchPlan) -> Iterator[tuple[str, Any]]:
    """The inputs of a plan under the names that the engine's planner has."""
    same = _SAME.get(plan.variant or "")
    if same is None:
        yield from ((name, one.value) for name, one in plan.inputs.items())
        return
    yield "variant", plan.variant
    for name, one in plan.inputs.items():
        value = one.value
        if name == "quantkv" and value in range(len(_CACHE_TYPES)):
            yield from (("cache-type-k", _CACHE_TYPES[value]), ("cache-type-v", _CACHE_TYPES[value]))
        elif name == "flashattention":
            yield "flash-attn", "on" if value else "off"
        elif name in ("nommap", "usemlock"):
            yield ("mmap", False) if name == "nommap" else ("mlock", True)
        elif name == "gpu":
            yield "n-gpu-layers", _LAYERS.get(value, "auto")
        elif name == "gpulayers" and isinstance(value, int) and value < 0:
            yield "n-gpu-layers", "auto"
        else:
            yield from ((own, value) for own in same.get(name, (name,)))
