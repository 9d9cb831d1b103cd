"""SOURCE of `plan`: a command in quotes, a file, a folder, or - for standard input."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from planner.errors import SourceError, UsageError
from planner.launches.reading import LARGEST_TEXT
from planner.standard_input import read_standard_input

_MOST_FILES: Final = 500
_SKIPPED: Final = ("node_modules", "__pycache__", "venv", "site-packages")
_ENDINGS: Final = (
    ".sh",
    ".bash",
    ".ps1",
    ".bat",
    ".cmd",
    ".yaml",
    ".yml",
    ".json",
    ".py",
    ".ipynb",
    ".service",
    ".modelfile",
    ".sbatch",
    ".slurm",
    ".md",
    ".txt",
)
_NAMES: Final = ("Modelfile", "Dockerfile", "Makefile", "README")


@dataclass(frozen=True, slots=True)
class Source:
    """A text with its name, the folder whose files it may name, and whether it may hold nothing."""

    text: str
    name: str
    folder: str | None = None
    optional: bool = False


def sources_of(source: str) -> Iterator[Source]:
    """The texts that SOURCE means.

    Raises:
        SourceError: a file that cannot be read, or is too large.
        UsageError: neither a file nor a command.
    """
    if source == "-":
        yield Source(_decoded(read_standard_input(LARGEST_TEXT + 1), "standard input"), "")
    elif "\n" not in source and len(source) < 4096 and os.path.isdir(source):
        yield from _folder(source)
    elif "\n" not in source and len(source) < 4096 and os.path.exists(source):
        yield _file(source, optional=False)
    elif any(character.isspace() for character in source.strip()):
        yield Source(source, "")
    else:
        raise UsageError(f"{source[:100]!r} is no file, folder or command", field="source")


def _folder(folder: str) -> Iterator[Source]:
    count = 0
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in _SKIPPED)
        for name in sorted(names):
            path = os.path.join(place, name)
            wanted = name.lower().endswith(_ENDINGS) or name.startswith(_NAMES)
            if name.startswith(".") or not wanted or os.path.islink(path) or not os.path.isfile(path):
                continue
            count += 1
            if count > _MOST_FILES:
                raise SourceError(f"{folder}: more than {_MOST_FILES} files; give a folder with fewer")
            if os.path.getsize(path) <= LARGEST_TEXT:
                yield _file(path, optional=True)


def _file(path: str, *, optional: bool) -> Source:
    try:
        with open(path, "rb") as file:
            data = file.read(LARGEST_TEXT + 1)
    except OSError as error:
        raise SourceError(f"{path}: {error.strerror}") from None
    return Source(_decoded(data, path), path, os.path.dirname(os.path.abspath(path)), optional)


def _decoded(data: bytes, name: str) -> str:
    if len(data) > LARGEST_TEXT:
        raise SourceError(f"{name}: the text is too large: more than {LARGEST_TEXT >> 20} MiB")
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return data.decode("utf-16", errors="replace")
    return data.decode("utf-8", errors="replace")
