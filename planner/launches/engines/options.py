"""Words to options as argparse reads them, by a table of each tool's spellings."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import Any, Final

from planner.contract.engine import engine_names, find_engine
from planner.contract.inputs import inputs_of
from planner.launches.record import LaunchError, Value
from planner.launches.shell.expansion import Argument

# vLLM's human_readable_int: decimals before the decimal units only (utils/argparse_utils.py, main of 2026-09).
_DECIMAL_UNITS: Final = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_BINARY_UNITS: Final = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_DTYPES: Final = {"half": "float16", "float": "float32", "bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
_TRUE: Final = ("true", "1", "yes", "on", "t", "y")
_FALSE: Final = ("false", "0", "no", "off", "f", "n")
_SWITCHES: Final = ("switch",)
_NUMBER: Final = re.compile(r"-?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?|-\.\d+")


@dataclass(frozen=True, slots=True)
class Option:
    """An option of a tool: its input here, how its value is read, and what it is for."""

    name: str
    spellings: tuple[str, ...]
    kind: str
    role: str
    environment: str


@dataclass(frozen=True, slots=True)
class Given:
    """An option as given: None for its value where it stands bare."""

    option: Option | None
    spelled: str
    values: tuple[Argument, ...]
    line: int
    negated: bool = False
    path: str = ""


@cache
def options(tool: str) -> tuple[Option, ...]:
    """Every option of a tool that is told apart."""
    text = files("planner.launches.tables").joinpath("options.csv").read_text("utf-8")
    own = [
        Option(row["input"], tuple(row["spellings"].split(";")), row["kind"], row["role"], row["environment"])
        for row in csv.DictReader(text.splitlines())
        if row["tool"] == tool
    ]
    return (*own, *_declared(tool, {_dashed(spelling) for one in own for spelling in one.spellings}))


def _declared(tool: str, known: set[str]) -> list[Option]:
    """What the engine declares and the table lacks: handed on as it stands."""
    if tool not in engine_names():
        return []
    found = []
    for one in inputs_of(find_engine(tool).Deployment):
        if not one.option.ours and not known & {_dashed(spelling) for spelling in one.spellings}:
            name = one.spelling.lstrip("-")
            found.append(Option(name, one.spellings, "switch" if one.is_switch else "text", "pass", ""))
    return found


@cache
def _spelled(tool: str) -> dict[str, Option]:
    return {_dashed(spelling): option for option in options(tool) for spelling in option.spellings if spelling}


@cache
def _other_flags(tool: str) -> dict[str, str]:
    """Options of a planned engine that the table here lacks: whether they take a "value" or are a "switch"."""
    if tool not in engine_names():
        return {}
    engine = find_engine(tool)
    return {name: engine.takes(name) or "value" for name in engine.options()}


@cache
def _names(tool: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys([*_spelled(tool), *_other_flags(tool)]))


def parse(tool: str, words: Sequence[Argument], *, exact: bool = False) -> tuple[list[Given], list[Argument]]:
    """(options in order, words that belong to none).

    Args:
        exact: the tool takes neither prefixes, `--name=value` nor underscores for dashes (llama.cpp).
    """
    given: list[Given] = []
    positional: list[Argument] = []
    index = 0
    while index < len(words):
        word = words[index]
        index += 1
        if not word.text.startswith("-") or word.text == "-" or _NUMBER.fullmatch(word.text):
            positional.append(word)
            continue
        if word.text == "--":
            positional += words[index:]
            break
        name, equals, attached = (word.text, "", "") if exact else word.text.partition("=")
        option, negated, path, short = _find(tool, name, exact=exact)
        values: list[Argument] = []
        if short:
            values = [replace(word, text=short)]
        elif equals:
            values = [replace(word, text=attached)]
        else:
            count = _takes(tool, name, option, negated)
            while index < len(words) and count > 0 and _is_value(words[index].text):
                values.append(words[index])
                index += 1
                count -= 1
                if (
                    option is not None
                    and option.kind in ("onoff", "bool")
                    and values[-1].text.lower() not in (*_TRUE, *_FALSE, "auto")
                ):
                    values.pop()
                    index -= 1
                    break
        given.append(Given(option, name, tuple(values), word.line, negated, path))
    return given, positional


def _takes(tool: str, name: str, option: Option | None, negated: bool) -> int:
    """How many words an option may take."""
    if negated:
        return 0
    if option is not None:
        if option.kind in _SWITCHES:
            return 0
        return 64 if option.kind in ("words", "ints") else 1
    other = _other_flags(tool).get(_dashed(name).partition(".")[0])
    return 0 if other == "switch" else 1


def _is_value(text: str) -> bool:
    return not text.startswith("-") or text == "-" or _NUMBER.fullmatch(text) is not None or text[:2] == "-$"


def _dashed(name: str) -> str:
    """Underscores are dashes before the first dot."""
    head, dot, rest = name.partition(".")
    return head.replace("_", "-") + dot + rest


def _find(tool: str, name: str, *, exact: bool) -> tuple[Option | None, bool, str, str]:
    """(option, whether --no- stands before it, dotted path behind it, value glued to a short option)."""
    table = _spelled(tool)
    dashed = _dashed(name)
    head, _, path = dashed.partition(".")
    if dashed in table:
        return table[dashed], False, "", ""
    if head in table and path:
        return table[head], False, path, ""
    if head.startswith("--no-") and f"--{head[5:]}" in table:
        return table[f"--{head[5:]}"], True, path, ""
    if exact or dashed in _other_flags(tool):
        return None, False, path, ""
    if re.fullmatch(r"-O\S+", name) and tool == "vllm":
        return table.get("-O"), False, "", name[2:]
    if head.startswith("--") and len(head) > 4:
        near = [one for one in _names(tool) if one.startswith(head)]
        found = {id(table.get(one)): table.get(one) for one in near}
        if len(near) >= 1 and len(found) == 1:
            return table.get(near[0]), False, path, ""
    return None, False, path, ""


def read_value(kind: str, text: str, *, name: str, line: int) -> Any:
    """A value of an option as its tool reads it.

    Raises:
        LaunchError: not of that kind; the text itself is not repeated.
    """
    text = text.strip()
    try:
        return _read(kind, text)
    except (ValueError, OverflowError, RecursionError):
        wanted = {"int": "a whole number", "float": "a number", "json": "JSON", "switch": "true or false"}.get(
            kind, kind
        )
        raise LaunchError(f"line {line}: {name} is not {wanted}") from None


def _read(kind: str, text: str) -> Any:
    if kind == "int":
        return _whole(text)
    if kind in ("human", "length"):
        if kind == "length" and text in ("auto", "-1"):
            return -1
        return human_int(text)
    if kind == "float":
        value = float(text)
        if value != value or abs(value) > 1e18:
            raise ValueError
        return value
    if kind == "dtype":
        return _DTYPES.get(text, text)
    if kind == "json":
        return _json(text)
    if kind in ("switch", "bool"):
        return boolean(text)
    if kind == "onoff":
        lowered = text.lower()
        return "on" if lowered in _TRUE else "off" if lowered in _FALSE else lowered
    if kind == "share":
        return float(text) if re.fullmatch(r"\d*\.?\d+", text) else text
    if kind == "layers":
        return text if text in ("auto", "all") else _whole(text)
    if kind == "ints":
        return [_whole(one) for one in re.split(r"[,\s]+", text.strip("[]")) if one]
    if kind == "numbers":
        return [float(one) if "." in one else _whole(one) for one in re.split(r"[,/]", text) if one]
    return text


def _whole(text: str) -> int:
    if not re.fullmatch(r"[-+]?\d{1,18}", text):
        value = float(text)
        if value != int(value) or abs(value) > 1e18:
            raise ValueError
        return int(value)
    return int(text)


def human_int(text: str) -> int:
    """A number with k (10^3), K (2^10) and so on behind it, as vLLM reads three of its options.

    Raises:
        ValueError: not such a number.
    """
    if not text:
        raise ValueError
    unit = text[-1]
    if unit in _DECIMAL_UNITS:
        return round(float(text[:-1]) * _DECIMAL_UNITS[unit])
    if unit in _BINARY_UNITS:
        return int(text[:-1]) * _BINARY_UNITS[unit]
    return _whole(text)


def boolean(text: str) -> bool:
    """true, 1, yes, on or their opposites.

    Raises:
        ValueError: none of them.
    """
    lowered = text.strip().lower()
    if lowered in _TRUE:
        return True
    if lowered in _FALSE:
        return False
    raise ValueError


def _json(text: str) -> Any:
    if text.startswith(("{", "[")):
        return json.loads(text)
    if "=" in text:
        return {key.strip(): _json(value) for key, value in (part.split("=", 1) for part in text.split(","))}
    try:
        return json.loads(text)
    except ValueError:
        return text


def put_dotted(inputs: dict[str, Value], name: str, path: str, value: Any, line: int, file: str) -> None:
    """Set a part of a JSON option: --name.a.b value; `path+` appends the items of a list."""
    before = inputs.get(name)
    target: dict[str, Any] = dict(before.value) if before is not None and isinstance(before.value, dict) else {}
    inputs[name] = Value(target, line, file)
    append = path.endswith("+")
    parts = path.rstrip("+").split(".")[:10]
    for part in parts[:-1]:
        below = target.get(part)
        target[part] = dict(below) if isinstance(below, dict) else {}
        target = target[part]
    if append:
        listed = value if isinstance(value, list) else str(value).split(",")
        items = [_json(one) if isinstance(one, str) else one for one in listed]
        value = [*(target.get(parts[-1]) or []), *items]
    target[parts[-1]] = value
