"""What SGLang's --quantization names stand for, by release.

The name of a checkpoint that is already quantised changes nothing of its storage. A plain checkpoint is converted while
it loads by a few names (`loads_plain`); the others need an export, which is planned as the usual one of its kind where
there is one (`format`).
"""

from __future__ import annotations

from typing import Final

from planner.engines.sglang.tables.releases import Release, parse_release, release_key, rows_at, table_rows
from planner.errors import UsageError
from planner.memory.quantisation import as_asked
from planner.model.model import Model

_TABLE: Final = "quantization.csv"


def model_asked_for(model: Model, name: str | None, engine_version: str) -> Model:
    """The model that the server loads; an export of the plain shape where the name is of another kind of storage.

    Raises:
        UsageError: a name that this release does not take.
    """
    return as_asked(model, stored_format(name, parse_release(engine_version), engine_version) if name else None)


def stored_format(name: str, release: Release, engine_version: str) -> str | None:
    """The storage format of a name; the name itself if it is none of SGLang's; None: only the checkpoint says.

    Raises:
        UsageError: a name that this release does not take.
    """
    for row in rows_at(_TABLE, release):
        if row["name"] == name:
            return row["format"] or None
    other = next((row for row in table_rows(_TABLE) if row["name"] == name), None)
    if other is None:
        return name
    first, last = other["first_version"], other["last_version"]
    when = f"from {first} on" if first and release < release_key(first) else f"until {last}"
    raise UsageError(
        f"--quantization {name}: SGLang {engine_version} has no such method, only {when}", field="quantization"
    )


def export_format(name: str, release: Release, engine_version: str) -> str:
    """The storage format of a plain checkpoint under a name.

    Raises:
        UsageError: a name that this release does not take, or that needs a checkpoint which is stored so.
    """
    found = stored_format(name, release, engine_version)
    if found is None:
        raise UsageError(
            f"--quantization {name} wants a checkpoint that is stored so: name that one, or plan an export with"
            " fp8, awq, gptq, w8a8 or nvfp4",
            field="quantization",
        )
    return found


def loads_plain(name: str, release: Release) -> bool:
    """The engine converts a plain checkpoint itself."""
    return any(row["name"] == name and row["loads_plain"] == "yes" for row in rows_at(_TABLE, release))
