"""Opening a file that a user names, with one line of complaint when that does not work."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final

from planner.errors import SourceError

# How files that carry another format's name begin, and what to do about each.
_MISTAKEN: Final = (
    (b"PK\x03\x04", "a zip archive, as torch.save writes it; convert the checkpoint to safetensors first"),
    (b"version https://git-lfs", "a Git LFS pointer, not the file; run `git lfs pull` in the folder"),
    (b"<!DOCTYPE", "a web page, not the file; download it again, logged in if the model asks for it"),
    (b"<!doctype", "a web page, not the file; download it again, logged in if the model asks for it"),
    (b"<html", "a web page, not the file; download it again, logged in if the model asks for it"),
    (b"\x89HDF", "an HDF5 file, which is not read; convert the checkpoint to safetensors first"),
    (b"\x80\x02", "a Python pickle, which is never opened; convert the checkpoint to safetensors first"),
    (b"\x80\x04", "a Python pickle, which is never opened; convert the checkpoint to safetensors first"),
    (b"\x1f\x8b", "a gzip archive; unpack it first"),
)
_GGUF: Final = b"GGUF"


@contextmanager
def open_regular(path: Path) -> Iterator[tuple[BinaryIO, int]]:
    """The file, open for reading, and its size in bytes.

    Raises:
        SourceError: no such file, a folder, a device or pipe, a loop of symbolic links, no permission, or an
            input/output error while it is read; names the path.
    """
    try:
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode):
            what = "a folder" if stat.S_ISDIR(status.st_mode) else "no regular file"
            raise SourceError(f"{path}: is {what}; expected a file of weights")
        with path.open("rb") as file:
            yield file, os.fstat(file.fileno()).st_size
    except OSError as error:
        raise SourceError(f"{path}: {explain(error)}") from None


def explain(error: OSError) -> str:
    """What went wrong, in words."""
    if error.errno == errno.ELOOP:
        return "is a loop of symbolic links"
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        return "no such file"
    return f"cannot be read ({error.strerror or error})"


def mistaken(start: bytes) -> str | None:
    """What a file really is that begins with these bytes and should be a safetensors or GGUF file; None: unknown."""
    for magic, what in _MISTAKEN:
        if start.startswith(magic):
            return f"is {what}"
    if start.startswith(_GGUF):
        return "is a GGUF file; give it the ending .gguf"
    return None
