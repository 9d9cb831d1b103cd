"""Untrusted text made fit for a terminal: nothing that moves the cursor, sets a title or turns text around."""

from __future__ import annotations

import re
from typing import Final

# every control character but newline and tab; the marks that reorder or hide text
_OTHERS: Final = r"[\x00-\x08\x0b-\x1a\x1c-\x1f\x7f-\x9f\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff]"
# the colours that this program sets itself
_OWN_COLOURS: Final = r"\x1b(?!\[(?:0|1;\d\d|[34]8;5;\d{1,3})m)"
_ALL: Final = re.compile(rf"\x1b|{_OTHERS}")
_FOREIGN: Final = re.compile(rf"{_OWN_COLOURS}|{_OTHERS}")


def without_controls(text: str, *, keep_colours: bool = False) -> str:
    """The text with "?" for each control character.

    Args:
        keep_colours: the escapes of this program's own colours stay.
    """
    return (_FOREIGN if keep_colours else _ALL).sub("?", text)
