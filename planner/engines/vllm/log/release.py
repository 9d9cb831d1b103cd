"""The release in what a log calls the version: tags, development builds, builds that are known by what they print."""

from __future__ import annotations

import re
from typing import Final

_VERSION: Final = re.compile(r"(?<![\d.])v?(0\.\d+(?:\.\d+)?)")
_OLDEST: Final = "0.4.0"
# Undated builds that are known by what they print
_BY_FORMAT: Final = {"consumed format": "0.30.0", "V2 model runner": "0.31.0"}
_COMMITS: Final = re.compile(r"\.dev(\d{1,5})\+")
_COUNTED_FROM: Final = 20
_COMMITS_OF_A_RELEASE: Final = 400
# Builds without a release's tag call themselves this: it says nothing of the release
_UNTAGGED: Final = re.compile(r"(?<![\d.])0\.(?:0|1)(?:\.\d+)?\.?dev")


def release_in(text: str) -> str | None:
    """The release that a text names, not older than those described; None if it names none."""
    for words, version in _BY_FORMAT.items():
        if words in text:
            return version
    match = _VERSION.search(_UNTAGGED.sub("", text))
    if match is None:
        return None
    return max(_counted(match[1], text), _OLDEST, key=lambda item: [int(part) for part in item.split(".")])


def _counted(version: str, text: str) -> str:
    """A development build's release: from 0.20 on, about 400 commits make one."""
    commits = _COMMITS.search(text)
    numbers = version.split(".")
    if commits is None or int(numbers[1]) < _COUNTED_FROM:
        return version
    later = int(commits[1]) // _COMMITS_OF_A_RELEASE
    return f"0.{int(numbers[1]) + later}.0" if later else version
