"""Options from a YAML file, as `--config` takes them: one mapping of names to values."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from planner.errors import UsageError

_LARGEST_FILE = 1 << 18
_MOST_EVENTS = 20_000


def words_of_file(path: str) -> list[str]:
    """The words of a command line that say what the file says; what has no value stays an option alone.

    Raises:
        UsageError: no such file, too large, no YAML, aliases, or no mapping of names to values.
    """
    values = _mapping(path)
    words: list[str] = []
    for name, value in values.items():
        option = f"--{str(name).lstrip('-')}"
        if value is None:
            continue
        if isinstance(value, bool):
            words.append(f"{option}={'true' if value else 'false'}")
        elif isinstance(value, dict):
            words.append(f"{option}={json.dumps(value)}")
        elif isinstance(value, list):
            words += [option, *(json.dumps(item) if isinstance(item, dict) else str(item) for item in value)]
        else:
            words.append(f"{option}={value}")
    return words


def _mapping(path: str) -> dict[str, Any]:
    import yaml  # only a file needs it

    try:
        with Path(path).open("r", encoding="utf-8") as file:
            text = file.read(_LARGEST_FILE + 1)
        if len(text) > _LARGEST_FILE:
            raise UsageError(f"--config {path}: larger than {_LARGEST_FILE >> 10} KiB", field="config")
        for count, event in enumerate(yaml.parse(text, Loader=yaml.SafeLoader)):
            if isinstance(event, yaml.AliasEvent) or count > _MOST_EVENTS:
                raise UsageError(f"--config {path}: aliases, or too many values, in a list of options", field="config")
        found = yaml.safe_load(text)
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"--config {path}: cannot be read ({reason})", field="config") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}" if mark is not None else ""
        problem = getattr(error, "problem", None) or "is not YAML"
        raise UsageError(f"--config {path}{where}: {problem}", field="config") from None
    if not isinstance(found, dict):
        raise UsageError(f"--config {path}: expected one mapping of options to values", field="config")
    return found
