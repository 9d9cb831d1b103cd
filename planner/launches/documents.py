"""YAML and JSON from strangers: bounded, without tags or includes, with the line of every value.

PyYAML's parser gives events, which are put together here: its own composer walks nested text by recursion, shares what
an alias repeats without counting it, and keeps the last of two equal keys. Scalars are read as YAML 1.1 does
(PyYAML resolver.py): `yes` is a boolean, `010` is 8, `1e-4` is a string.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final

import yaml

from planner.launches.record import LaunchError
from planner.launches.scalars import scalar

MOST_NODES: Final = 200_000
DEEPEST: Final = 100
MOST_DOCUMENTS: Final = 500
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_PLAIN_TAGS: Final = ("!!str", "!!int", "!!float", "!!bool", "!!null", "!!map", "!!seq", "!!timestamp", "!!merge")
_COMPOSE_TAGS: Final = ("!reset", "!override")


class Map(dict[str, Any]):
    """A mapping with the line of each key and, for scalars, the text as it was written."""

    def __init__(self, line: int = 1) -> None:
        super().__init__()
        self.line = line
        self.lines: dict[str, int] = {}
        self.raw: dict[str, str] = {}

    def line_of(self, key: str) -> int:
        """The line of a key, or of the mapping."""
        return self.lines.get(key, self.line)


class Seq(list[Any]):
    """A list with the line of each item."""

    def __init__(self, line: int = 1) -> None:
        super().__init__()
        self.line = line
        self.lines: list[int] = []
        self.raw: list[str] = []


class _Scalar:
    __slots__ = ("raw", "value")

    def __init__(self, raw: str, value: Any) -> None:
        self.raw, self.value = raw, value


class _Open:
    """A collection whose end has not come yet."""

    __slots__ = ("anchor", "explicit", "key", "key_line", "merged", "node", "size")

    def __init__(self, node: Map | Seq, anchor: str | None) -> None:
        self.node, self.anchor = node, anchor
        self.size = 1
        self.key: str | None = None
        self.key_line = node.line
        self.merged: list[Any] = []
        self.explicit: set[str] = set()


def read_yaml(text: str, *, form: str = "yaml", first_line: int = 1) -> list[Any]:
    """The documents of a YAML text: `Map`, `Seq` and plain scalars.

    Raises:
        LaunchError: not YAML, a tag, a key twice, an alias of itself, too deep or too large; names the line.
    """
    documents: list[Any] = []
    try:
        for found in _documents(text, form, first_line):
            documents.append(found)
            if len(documents) > MOST_DOCUMENTS:
                raise LaunchError(f"more than {MOST_DOCUMENTS} documents in one text", form=form)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = (mark.line if mark is not None else 0) + 1
        lines = text.split("\n")
        here = lines[line - 1] if line <= len(lines) else ""
        if re.match(r"\s*\t", here):
            problem = "a tab stands in the indentation; YAML takes blanks only"
        else:
            problem = str(error.problem or "not YAML")
        raise LaunchError(f"line {line + first_line - 1}: {problem}", form=form) from None
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        position = getattr(error, "position", None)
        line = text.count("\n", 0, position) + first_line if isinstance(position, int) else first_line
        raise LaunchError(f"line {line}: not YAML: a character that it does not allow", form=form) from None
    return documents


def _documents(text: str, form: str, first_line: int) -> Iterator[Any]:
    stack: list[_Open] = []
    anchors: dict[str, tuple[Any, int]] = {}
    unfinished: set[str] = set()
    root: Any = None
    node: Any
    events: Iterator[Any] = yaml.parse(text, Loader=_LOADER)
    for event in events:
        line = event.start_mark.line + first_line
        kind = type(event)
        if kind is yaml.DocumentStartEvent:
            anchors, root = {}, None
            continue
        if kind is yaml.DocumentEndEvent:
            yield root
            continue
        if kind in (yaml.StreamStartEvent, yaml.StreamEndEvent):
            continue
        if kind in (yaml.MappingStartEvent, yaml.SequenceStartEvent):
            _check_tag(event.tag, line, form)
            if len(stack) >= DEEPEST:
                raise LaunchError(f"line {line}: nested too deep (more than {DEEPEST} levels)", form=form)
            stack.append(_Open(Map(line) if kind is yaml.MappingStartEvent else Seq(line), event.anchor))
            if event.anchor:
                unfinished.add(event.anchor)
            continue
        if kind in (yaml.MappingEndEvent, yaml.SequenceEndEvent):
            done = stack.pop()
            _merge(done, form)
            node, size = done.node, done.size
            if done.anchor:
                unfinished.discard(done.anchor)
                anchors[done.anchor] = (node, size)
            line = node.line
        elif kind is yaml.AliasEvent:
            if event.anchor in unfinished or event.anchor not in anchors:
                raise LaunchError(f"line {line}: alias *{event.anchor[:40]} is of nothing before it", form=form)
            node, size = anchors[event.anchor]
        else:
            _check_tag(event.tag, line, form)
            plain = event.implicit[0] and event.tag is None
            node = _Scalar(event.value, scalar(event.value) if plain else event.value)
            size = 1
            if event.anchor:
                anchors[event.anchor] = (node, size)
        if not stack:
            root = node.value if isinstance(node, _Scalar) else node
        else:
            stack[-1].size += size
            if stack[-1].size > MOST_NODES:
                raise LaunchError(
                    f"line {line}: too many values (more than {MOST_NODES:,}) once every alias is written out",
                    form=form,
                )
            _put(stack[-1], node, line, form)


def _put(parent: _Open, node: Any, line: int, form: str) -> None:
    value = node.value if isinstance(node, _Scalar) else node
    target = parent.node
    if isinstance(target, Seq):
        target.append(value)
        target.lines.append(line)
        target.raw.append(node.raw if isinstance(node, _Scalar) else "")
        return
    if parent.key is None:
        if not isinstance(node, _Scalar):
            raise LaunchError(f"line {line}: a key must be one word, not a list or a mapping", form=form)
        parent.key, parent.key_line = node.raw, line
        if parent.key != "<<" and parent.key in parent.explicit:
            raise LaunchError(f"line {line}: duplicate key {parent.key[:60]!r}", form=form)
        parent.explicit.add(parent.key)
        return
    key, parent.key = parent.key, None
    if key == "<<":
        parent.merged += value if isinstance(value, Seq) else [value]
        return
    target[key] = value
    target.lines[key] = parent.key_line
    if isinstance(node, _Scalar):
        target.raw[key] = node.raw


def _merge(done: _Open, form: str) -> None:
    target = done.node
    for other in done.merged:
        if not isinstance(other, Map) or not isinstance(target, Map):
            raise LaunchError(f"line {target.line}: << takes a mapping", form=form)
        for key, value in other.items():
            if key not in target:
                target[key] = value
                target.lines[key] = other.line_of(key)
                if key in other.raw:
                    target.raw[key] = other.raw[key]


def _check_tag(tag: str | None, line: int, form: str) -> None:
    if tag is None or tag == "!":
        return
    short = tag.replace("tag:yaml.org,2002:", "!!")
    if short not in _PLAIN_TAGS and short not in _COMPOSE_TAGS:
        raise LaunchError(f"line {line}: the tag {short[:60]} is not read: only plain values are", form=form)


def read_json(text: str, *, form: str) -> Any:
    """A JSON text as `Map`, `Seq` and scalars; the line of a key is that of its first appearance.

    Raises:
        LaunchError: not JSON, a key twice, nested too deep; names the line.
    """

    def paired(pairs: list[tuple[str, Any]]) -> Map:
        found = Map()
        for key, value in pairs:
            if key in found:
                raise LaunchError(f"duplicate key {key[:60]!r} (line {_line_of(text, key)})", form=form)
            found[key] = value
        return found

    if _depth(text) > DEEPEST:
        raise LaunchError(f"nested too deep (more than {DEEPEST} levels)", form=form)
    try:
        found = json.loads(text, object_pairs_hook=paired)
    except json.JSONDecodeError as error:
        raise LaunchError(f"line {error.lineno}: not valid JSON: {error.msg}", form=form) from None
    except (RecursionError, ValueError):
        raise LaunchError("line 1: not valid JSON", form=form) from None
    if isinstance(found, Map) and len(text) < 200_000:
        _number(found, text)
    return found


def _depth(text: str) -> int:
    deepest = depth = 0
    for mark in re.findall(r'"(?:[^"\\]|\\.)*"|[\[{\]}]', text):
        if mark in ("[", "{"):
            depth += 1
            deepest = max(deepest, depth)
        elif mark in ("]", "}"):
            depth -= 1
    return deepest


def _number(node: Any, text: str) -> None:
    places = {m[1]: text.count("\n", 0, m.start()) + 1 for m in reversed(list(re.finditer(r'"([^"\\]+)"\s*:', text)))}

    def visit(one: Any) -> None:
        if isinstance(one, Map):
            for key, value in one.items():
                one.lines[key] = places.get(key, 1)
                visit(value)

    visit(node)


def _line_of(text: str, key: str) -> int:
    at = text.rfind(json.dumps(key))
    return text.count("\n", 0, max(at, 0)) + 1


def at_path(node: Any, path: str) -> Any:
    """The value under a dotted path of keys and list indices, None where there is none."""
    for part in path.split("."):
        if isinstance(node, Map):
            node = node.get(part)
        elif isinstance(node, list) and part.isdecimal():
            node = node[int(part)] if int(part) < len(node) else None
        else:
            return None
    return node


def as_map(node: Any) -> Map:
    """The node if it is a mapping, else an empty one."""
    return node if isinstance(node, Map) else Map()


def as_list(node: Any) -> list[Any]:
    """The node if it is a list, else an empty one."""
    return node if isinstance(node, list) else []


def text_of(node: Any) -> str | None:
    """A scalar as text, as programs that take words see it; None for what is none."""
    if node is None or isinstance(node, (Map, Seq)):
        return None
    if isinstance(node, bool):
        return "true" if node else "false"
    return str(node)
