"""Which module reads which model type.

A family module turns raw keys into a `ModelSpec`: it has one public function, `build(raw) -> ModelSpec`. It is
imported only when a config of one of its model types is read. To add a family: one module here, its rows in
`MODULE_OF`, one row in the tests (CONTRIBUTING.md shows it).
"""

from __future__ import annotations

import difflib
from dataclasses import replace
from importlib import import_module
from typing import Final

from planner.errors import ConfigError, UnsupportedArchitecture
from planner.model.config import RawConfig
from planner.model.dropout import read_dropout
from planner.model.families.registry import MODULE_OF
from planner.model.spec import ModelSpec

__all__ = ["build_spec", "known_model_types"]

_LONGEST_NAME: Final = 80


def known_model_types() -> list[str]:
    """Every model_type that can be read, sorted."""
    return sorted(MODULE_OF)


def build_spec(raw: RawConfig, *, assume_family: str | None = None) -> ModelSpec:
    """The spec of a raw config.

    Args:
        assume_family: read the config as this model type whatever it says; everything is labelled assumed.

    Raises:
        ConfigError: no model_type, or a field that is missing or makes no sense.
        UnsupportedArchitecture: a model type no family knows; names it and the nearest that are known.
    """
    declared = raw.optional_text("model_type")
    model_type = assume_family or declared
    if model_type is None:
        raise ConfigError(
            f"{raw.path}: model_type is missing; add it (llama, qwen3, ...) or pass --assume-family",
            field="model_type",
        )
    module_name = MODULE_OF.get(model_type)
    if module_name is None:
        near = difflib.get_close_matches(model_type, MODULE_OF, n=4, cutoff=0.4)
        hint = f"; near: {', '.join(near)}" if near else ""
        shown = model_type[:_LONGEST_NAME]
        what = "--assume-family" if assume_family else f"{raw.path}: model_type"
        raise UnsupportedArchitecture(
            f"{what} {shown!r} is not understood{hint}; if it is laid out like a known family, pass"
            f" --assume-family with that name",
            field="model_type",
        )
    module = import_module(f"planner.model.families.{module_name}")
    spec: ModelSpec = module.build(raw)
    return replace(spec, dropout=read_dropout(raw, spec.model_type))
