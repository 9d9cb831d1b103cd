"""The libraries that a measurement needs, imported when it begins; without them one line says how to get them."""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

from planner.errors import ProbeError

_DISTRIBUTIONS: Final = ("torch", "transformers", "peft", "bitsandbytes", "nvidia-ml-py")


def library(name: str) -> Any:
    """The module of this name.

    Raises:
        ProbeError: it is not installed, or cannot be loaded.
    """
    try:
        return import_module(name)
    except ImportError as error:
        missing = getattr(error, "name", None) or name
        what = "bitsandbytes" if name == "bitsandbytes" else "'vram-planner[probe]'"
        raise ProbeError(f"{missing} is needed to measure, and is not installed: pip install {what}") from None


def versions() -> dict[str, str]:
    """Versions of the libraries that are installed."""
    found = {}
    for name in _DISTRIBUTIONS:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
