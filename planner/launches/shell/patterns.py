"""What the words and operators of a shell text look like."""

from __future__ import annotations

import re
from typing import Final

PLAIN: Final = re.compile(r"[^\s'\"\\$`;&|<>()#]+")


# A word of one plain piece, and lines that hold nothing but a comment: most of a script.
SIMPLE: Final = re.compile(r"[A-Za-z_./:@%,+-][\w./:=@%,+-]*(?=[ \t\n]|$)(?!\+?=\()")


NOTHING: Final = re.compile(r"(?:[ \t]*(?:#[^\n]*)?\n)+")


BLANKS: Final = re.compile(r"[ \t\f\v]+")


IN_QUOTES: Final = re.compile(r'[^"\\$`\n]+')


NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|[0-9]|[@*#?$!-]")


POWERSHELL_NAME: Final = re.compile(r"env:([A-Za-z_][A-Za-z0-9_]*)", re.IGNORECASE)


ARRAY: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\+?=$")


OPERATOR: Final = re.compile(r"&&|\|\||;;&|;;|;&|\|&|&>>|&>|[;&|()\n]")


REDIRECT: Final = re.compile(r"[0-9]{0,2}(?:<<<|<<-?|<>|<&|>&|>>|>\||<|>)")
