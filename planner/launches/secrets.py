"""Secrets are told by name, by option and by shape, and never leave the reader."""

from __future__ import annotations

import re
from typing import Final

_NAMED: Final = re.compile(
    r"TOKEN(?!S|IZ)|(?<!MON)KEY(?!S?_?LEN)|SECRET|PASSW|PWD|CREDENTIAL|AUTH|DSN|COOKIE", re.IGNORECASE
)
# A word of one of these shapes is a secret wherever it stands: Hub, OpenAI and GitHub tokens, AWS key ids, JWTs, and
# the user and password of a URL.
_SHAPED: Final = re.compile(
    r"hf_[A-Za-z0-9]{8,}|sk-[A-Za-z0-9_-]{8,}|gh[pousr]_[A-Za-z0-9]{8,}|github_pat_\w{8,}|AKIA[A-Z0-9]{8,}"
    r"|eyJ[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]+)*|xox[abp]-[A-Za-z0-9-]{8,}|(?<=://)[^/@\s:]{1,200}:[^/@\s]{1,200}(?=@)"
)
_HIDDEN: Final = "[hidden]"
_SHORTEST: Final = 5


def is_secret_name(name: str) -> bool:
    """Whether a variable or an option of this name holds a secret."""
    return _NAMED.search(name) is not None


class Secrets:
    """The secret values that one source holds, and texts without them."""

    def __init__(self) -> None:
        self._values: set[str] = set()

    def keep(self, name: str, value: str) -> None:
        """Remember the value if its name says that it is secret."""
        value = value.strip()
        if len(value) >= _SHORTEST and is_secret_name(name) and not value.isdecimal() and len(self._values) < 1000:
            self._values.add(value)

    def clean(self, text: str) -> str:
        """The text without secrets and control characters."""
        for value in sorted(self._values, key=len, reverse=True):
            if value in text:
                text = text.replace(value, _HIDDEN)
        text = _SHAPED.sub(_HIDDEN, text)
        return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" if c != "\n" else " " for c in text)
