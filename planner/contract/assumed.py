"""Labels of what rests on an assumption about the model: a family, another model's shape, a storage read off a name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from planner.contract.component import Component

# what a name says of the storage alone; every other assumption is one of the shape
_OF_STORAGE: Final = ("storage ", "tag ")


def labelled(parts: Iterable[Component], assumed: Sequence[str]) -> tuple[Component, ...]:
    """The components as `assumed` where they rest on what was assumed of the model: measured terms stay measured.

    Args:
        assumed: `ModelSpec.assumed`. A storage read off a name touches the weights, anything else all that follows
            from the model's shape.
    """
    if not assumed:
        return tuple(parts)
    shape = any(not why.startswith(_OF_STORAGE) for why in assumed)
    return tuple(
        replace(part, evidence="assumed")
        if part.evidence in ("exact", "derived") and (shape or "weights" in part.name) and part.name not in _STATED
        else part
        for part in parts
    )


# given by the user, not by the model
_STATED: Final = ("other_processes", "host_cache")
