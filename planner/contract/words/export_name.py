"""The placeholder for an export that nobody named: `<awq export of ORG/MODEL>`, written in commands and read back.

A plan of `--quantization awq` on a plain checkpoint is served from an export of the model, whose name only its maker
knows. The command says what it must be, and the same words are understood as MODEL.
"""

from __future__ import annotations

import re
from typing import Final

_WRITTEN: Final = re.compile(
    r"<([\w.+-]{1,60})(?: \(group size (\d{1,6})\))?( with its head quantised)? export of ([^<>]{1,400})>"
)


def write_export(model: str, quantization: str, *, group_size: int | None, quantize_lm_head: bool) -> str:
    """The placeholder of an export."""
    group = "" if group_size is None else f" (group size {group_size})"
    head = " with its head quantised" if quantize_lm_head else ""
    return f"<{quantization}{group}{head} export of {model}>"


def read_export(text: str) -> tuple[str, dict[str, object]]:
    """(model, inputs) of a placeholder; of any other text the text itself, without inputs."""
    found = _WRITTEN.fullmatch(text.strip())
    if found is None:
        return text, {}
    quantization, group, head, model = found.groups()
    inputs: dict[str, object] = {"quantization": quantization}
    if group:
        inputs["group_size"] = int(group)
    if head:
        inputs["quantize_lm_head"] = True
    return model, inputs
