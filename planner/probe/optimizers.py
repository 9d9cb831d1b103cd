"""The optimizers that the probe can make, by the HF Trainer's names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from planner.errors import UsageError
from planner.probe.extras import library

_RATE: Final = 1e-5


def make_optimizer(name: str, parameters: list[Any]) -> Any:
    """The optimizer of this name over these parameters.

    Raises:
        UsageError: the probe does not know it.
        ProbeError: its library is missing.
    """
    maker = _MAKERS.get(name)
    if maker is None:
        raise UsageError(f"--optim {name[:40]!r}: the probe makes {', '.join(_MAKERS)}", field="optim")
    return maker(parameters)


def _adamw(**options: bool) -> Callable[[list[Any]], Any]:
    # foreach is torch's own choice on CUDA and is asked for, so that the CPU runs the same code
    return lambda parameters: library("torch").optim.AdamW(parameters, lr=_RATE, **options)


def _bitsandbytes(kind: str) -> Callable[[list[Any]], Any]:
    return lambda parameters: getattr(library("bitsandbytes").optim, kind)(parameters, lr=_RATE)


def _adafactor(parameters: list[Any]) -> Any:
    transformers = library("transformers")
    return transformers.Adafactor(parameters, lr=_RATE, scale_parameter=False, relative_step=False)


_MAKERS: Final[dict[str, Callable[[list[Any]], Any]]] = {
    "adamw_torch": _adamw(foreach=True),
    "adamw_torch_foreach": _adamw(foreach=True),
    "adamw_torch_fused": _adamw(fused=True),
    "adamw_torch_for_loop": _adamw(foreach=False),
    "sgd": lambda parameters: library("torch").optim.SGD(parameters, lr=_RATE, foreach=True),
    "sgd_momentum": lambda parameters: library("torch").optim.SGD(parameters, lr=_RATE, momentum=0.9, foreach=True),
    "adafactor": _adafactor,
    "adamw_bnb_8bit": _bitsandbytes("AdamW8bit"),
    "adamw_8bit": _bitsandbytes("AdamW8bit"),
    "adamw_bnb_32bit": _bitsandbytes("AdamW32bit"),
    "paged_adamw_8bit": _bitsandbytes("PagedAdamW8bit"),
    "paged_adamw_32bit": _bitsandbytes("PagedAdamW32bit"),
}
