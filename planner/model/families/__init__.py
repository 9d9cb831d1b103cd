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

from planner.errors import ConfigError, PlannerError, UnsupportedArchitecture
from planner.model.config import RawConfig
from planner.model.dropout import read_dropout
from planner.model.families.registry import MODULE_OF
from planner.model.heads import read_task_head
from planner.model.spec import ModelSpec

__all__ = ["build_spec", "families_that_read", "known_model_types"]

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
        UnsupportedArchitecture: a model type no family knows; names the families that can read such a config.
    """
    declared = raw.optional_text("model_type")
    model_type = assume_family or declared
    if model_type is None:
        raise ConfigError(
            f"{raw.path}: model_type is missing; add it (llama, qwen3, ...) or pass --assume-family",
            field="model_type",
        )
    if model_type not in MODULE_OF:
        raise _not_understood(raw, model_type, asked=assume_family is not None)
    if assume_family is None:
        return _build(raw, model_type)
    spec = _build(_as(raw, model_type), model_type)
    shown = f"{declared[:_LONGEST_NAME]!r}" if declared else "no model_type"
    note = (
        f"read as {model_type} by --assume-family, though the config says {shown}: shapes, names and caches are"
        " assumed, compare the parameter count with the published one"
    )
    return replace(spec, notes=(*spec.notes, note), assumed=(*spec.assumed, f"family {model_type}"))


def _build(raw: RawConfig, model_type: str) -> ModelSpec:
    name = "eagle" if _is_draft_head(raw) else MODULE_OF[model_type]
    module = import_module(f"planner.model.families.{name}")
    spec: ModelSpec = module.build(raw)
    return replace(read_task_head(spec, raw), dropout=read_dropout(raw, spec.model_type))


def _is_draft_head(raw: RawConfig) -> bool:
    """EAGLE's heads call themselves llama; only the architecture says what they are."""
    return any("eagle" in architecture.lower() for architecture in raw.texts("architectures") or [])


def _as(raw: RawConfig, model_type: str) -> RawConfig:
    """The same config, saying that it is of this type."""
    return RawConfig({**raw.mapping(), "model_type": model_type}, path=raw.path)


def _not_understood(raw: RawConfig, model_type: str, *, asked: bool) -> UnsupportedArchitecture:
    shown = model_type[:_LONGEST_NAME]
    if asked:
        near = difflib.get_close_matches(shown, MODULE_OF, n=4, cutoff=0.4)
        hint = f"; near: {', '.join(near)}" if near else ""
        return UnsupportedArchitecture(f"--assume-family {shown!r} is not understood{hint}", field="model_type")
    fitting = families_that_read(raw)
    hint = f"; --assume-family {fitting[0]} reads a config of this shape" if fitting else ""
    others = f" (so do {', '.join(fitting[1:])})" if fitting[1:] else ""
    return UnsupportedArchitecture(
        f"{raw.path}: model_type {shown!r} is not understood{hint}{others}; what it then says is assumed",
        field="model_type",
    )


def families_that_read(raw: RawConfig, *, most: int = 4) -> list[str]:
    """The model types that can read a config, the nearest by shape first, whatever the types are called.

    Those come first that leave fewest of its sizes unread, then those that read most of its sizes, then the plainest
    (the order of the registry).
    """
    types_of: dict[str, list[str]] = {}
    for model_type, module in MODULE_OF.items():
        types_of.setdefault(module, []).append(model_type)
    found = []
    for order, types in enumerate(types_of.values()):
        reading = _read_as(raw, types)
        if reading is not None:
            unread, present, _, model_type = reading
            found.append((unread, -present, order, model_type))
    nearest = (model_type for *_, model_type in sorted(found)[:most])
    # of the types of one module the one that asks for fewest sizes that the config does not have
    return [_fewest_in_vain(raw, types_of[MODULE_OF[model_type]]) for model_type in nearest]


def _read_as(raw: RawConfig, types: list[str]) -> tuple[int, int, int, str] | None:
    """(sizes unread, sizes read, sizes asked for in vain, type) of the first type that can read the config."""
    for model_type in types:
        own = _as(raw, model_type)
        try:
            _build(own, model_type)
        except PlannerError:
            continue
        return own.unread(), *own.sizes_asked(), model_type
    return None


def _fewest_in_vain(raw: RawConfig, types: list[str]) -> str:
    readings = filter(None, (_read_as(raw, [model_type]) for model_type in types))
    return min(readings, key=lambda reading: reading[2])[3]
