"""Which model describes which command, by name."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from planner.errors import UsageError

if TYPE_CHECKING:
    from pydantic import BaseModel

_HOMES: Final = {
    "serve": "planner.report.contracts.serving:Serve",
    "compare": "planner.report.contracts.serving:Compare",
    "size": "planner.report.contracts.serving:Size",
    "train": "planner.report.contracts.training:Train",
    "plan": "planner.report.contracts.launch:Plan",
    "diagnose": "planner.report.contracts.lists:Diagnose",
    "gpus": "planner.report.contracts.lists:Gpus",
    "models": "planner.report.contracts.lists:Models",
    "formats": "planner.report.contracts.lists:Formats",
    "engines": "planner.report.contracts.lists:Engines",
    "validate": "planner.report.contracts.lists:Validate",
}


def contract_names() -> tuple[str, ...]:
    """Every result that has a schema."""
    return tuple(_HOMES)


def contract(name: str) -> type[BaseModel]:
    """The model of a command's JSON.

    Raises:
        UsageError: no such result.
    """
    if name not in _HOMES:
        raise UsageError(f"no schema {name[:40]!r}; expected one of {', '.join(_HOMES)}", field="name")
    module, _, attribute = _HOMES[name].partition(":")
    found: type[BaseModel] = getattr(import_module(module), attribute)
    return found


def json_schema(name: str) -> dict[str, Any]:
    """The JSON Schema of a command's result."""
    return contract(name).model_json_schema(by_alias=True)
