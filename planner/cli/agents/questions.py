"""A tool's arguments as the words of a command, and the command's JSON as a short answer.

An agent may have read anything: what it asks for must name models and cards, and never a file of this machine.
"""

from __future__ import annotations

import io
import json
import os
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from threading import Lock
from typing import Any, Final

from planner.cli import run
from planner.cli.completion import declared_of
from planner.contract.inputs import Input, switched_off
from planner.contract.parser import dashed
from planner.errors import UsageError

MOST_TEXT: Final = 4 << 20
_MOST_VALUES: Final = 60
_LONGEST_VALUE: Final = 4096
_NAME: Final = re.compile(r"[A-Za-z0-9][\w.+-]*(?:/[\w.+-]+)?(?::[\w.+-]+)?")
# a value that is a path, or JSON that holds one
_PATH: Final = re.compile(r"""^\s*(?:/|~|\.\.?[/\\]|[A-Za-z]:[/\\])|["']\s*(?:/|~|\.|[A-Za-z]:)|\.\.""")
# inputs whose value is read from the machine's files, and those that say how to print
_CLOSED: Final = frozenset(
    (
        *("config", "prices", "launch", "lengths", "lora-modules", "mmproj", "model-draft", "deepspeed"),
        *("speculative-draft-model-path", "speculative-draft-model", "model-path", "hf-config-path", "log"),
        *("format", "wide", "explain", "emit", "more", "model", "model-name-or-path", "hf-repo"),
    )
)
# a command prints; two at once would print into one another
_ONE_AT_A_TIME: Final = Lock()
_FIRST_OF_LIST, _LONGEST_TEXT, _DEEPEST = 5, 600, 3


def answer(command: str, subject: str | None, values: Mapping[str, Any], *, details: bool) -> dict[str, Any]:
    """What the command answers, whole or short.

    Args:
        subject: MODEL, or a whole launch form for `plan`.
        values: inputs under their own names, dashes or underscores.

    Raises:
        PlannerError: as the command, and for a value that names a file.
    """
    os.environ.setdefault("HF_HUB_OFFLINE", "1")  # an agent's question sends nothing anywhere
    words = [*([subject] if subject is not None else []), *_words(command, values)]
    found = _asked(command, words)
    return found if details else shortened(found)


def named(model: str) -> str:
    """A model's name as it may be asked for here.

    Raises:
        UsageError: it could be a path.
    """
    if not _NAME.fullmatch(model) or ".." in model:
        raise UsageError("model: give a name, such as Qwen/Qwen3-8B; files are not read here", field="model")
    return model


def diagnosed(texts: Sequence[str], values: Mapping[str, Any], *, details: bool) -> dict[str, Any]:
    """What `diagnose` says of these texts: a message, a log, what nvidia-smi printed.

    Raises:
        PlannerError: as the command; a text that is too long.
    """
    if not texts or len(texts) > 8 or sum(map(len, texts)) > MOST_TEXT:
        raise UsageError(f"text: give 1 to 8 texts of at most {MOST_TEXT >> 20} MiB together", field="text")
    model = values.get("model")
    own = {name: value for name, value in values.items() if name != "model"}
    with tempfile.TemporaryDirectory() as folder:
        files = []
        for index, text in enumerate(texts, start=1):
            files.append(str(Path(folder, f"text-{index}")))
            Path(files[-1]).write_text(text, encoding="utf-8", errors="replace")
        words = [
            *files,
            *(["--model", named(str(model))] if model else []),
            *_words("diagnose", own, model=bool(model)),
        ]
        found = _asked("diagnose", words)
    return found if details else shortened(found)


def _asked(command: str, words: list[str]) -> dict[str, Any]:
    out = io.StringIO()
    with _ONE_AT_A_TIME, redirect_stdout(out):
        run(command, [command, *words, "--format", "json"])
    found = json.loads(out.getvalue())
    return dict(found)


def _words(command: str, values: Mapping[str, Any], *, model: bool = False) -> list[str]:
    if len(values) > _MOST_VALUES:
        raise UsageError(f"options: {len(values)} values; at most {_MOST_VALUES} are read", field="options")
    engine = values.get("engine")
    given = ["--engine", str(engine)] if engine else []
    if command == "diagnose" and model:
        given += ["--model", "x/y"]
    inputs = {
        dashed(spelling).lstrip("-"): one for one in declared_of(command, given).inputs for spelling in one.spellings
    }
    return [word for name, value in values.items() for word in _word(command, inputs, name, value)]


def _word(command: str, inputs: Mapping[str, Input], name: str, value: Any) -> Iterator[str]:
    key = dashed(f"--{name}")[2:]
    if key in _CLOSED:
        raise UsageError(f"{key[:60]}: is not asked for here; files of the machine are not read", field=key)
    one = inputs.get(key)
    if one is None:
        import difflib

        near = difflib.get_close_matches(key, inputs, n=1)
        hint = f"; nearest: {near[0]}" if near else ""
        raise UsageError(f"{key[:60]}: {command} has no such input{hint}", field=key[:60])
    texts = (
        [str(each) for each in value]
        if isinstance(value, list)
        else [json.dumps(value)]
        if isinstance(value, dict)
        else [str(value)]
    )
    for text in texts:
        if len(text) > _LONGEST_VALUE or _PATH.search(text):
            raise UsageError(f"{key}: a value longer than 4,096 characters, or a path: files are not read", field=key)
    if one.is_switch and isinstance(value, bool):
        yield one.spelling if value else switched_off(one)
    else:
        yield f"{one.spelling}={','.join(texts)}"


def shortened(found: Mapping[str, Any], depth: int = 1) -> dict[str, Any]:
    """The answer with long lists cut, deep records left out and long texts ended; `left_out` names them."""
    short: dict[str, Any] = {}
    left: list[str] = []
    for name, value in found.items():
        if isinstance(value, Mapping):
            if depth >= _DEEPEST:
                left.append(name)
            else:
                short[name] = shortened(value, depth + 1)
        elif isinstance(value, list):
            if depth >= _DEEPEST and value:
                left.append(name)
                continue
            short[name] = [
                shortened(one, depth + 1) if isinstance(one, Mapping) else one for one in value[:_FIRST_OF_LIST]
            ]
            if len(value) > _FIRST_OF_LIST:
                left.append(f"{name} after the first {_FIRST_OF_LIST} of {len(value)}")
        elif isinstance(value, str) and len(value) > _LONGEST_TEXT:
            short[name] = f"{value[:_LONGEST_TEXT]}..."
            left.append(f"the end of {name}")
        elif value is not None:
            short[name] = value
    if left:
        short["left_out"] = left
    return short
