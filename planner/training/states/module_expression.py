"""Regular expressions over module names, as PEFT takes them, refused where matching could take for ever.

Python's engine backtracks: a repeat inside a repeat can take time exponential in a name's length, and several open
repeats in a row a high power of it. The expression is the user's, but a plan must not hang on it.
"""

from __future__ import annotations

import re
import sys
from typing import Any, Final

from planner.errors import UsageError

if sys.version_info >= (3, 11):
    from re import _parser as parser  # type: ignore[attr-defined]
else:
    import sre_parse as parser

_LONGEST: Final = 1000  # characters; PEFT's own examples have about fifty
_OPEN_REPEATS: Final = 4  # a name of 60 characters can be divided in half a million ways by four
_REPEATS: Final = frozenset({"MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"})


def expression(text: str) -> re.Pattern[str]:
    """The compiled expression.

    Raises:
        UsageError: it does not compile, is too long, or repeats what repeats.
    """
    if len(text) > _LONGEST:
        raise _refused(text[:40] + "...", f"is longer than {_LONGEST} characters")
    try:
        compiled = re.compile(text)
        tree = parser.parse(text)
    except (re.error, RecursionError, OverflowError) as error:
        raise _refused(text, f"is no regular expression: {error}") from None
    if _open_repeats(tree, text, inside=False) > _OPEN_REPEATS:
        raise _refused(text, f"has more than {_OPEN_REPEATS} open repeats, which can take for ever; name the modules")
    return compiled


def _open_repeats(tree: Any, text: str, *, inside: bool) -> int:
    """How many repeats vary in length; an error where one is inside another."""
    count = 0
    for operation, argument in tree:
        name = str(operation)
        if name in _REPEATS:
            least, most, body = argument
            varies = most != least and most != 1  # a fixed number of times can be had in one way only
            if varies and inside:
                raise _refused(text, "repeats what repeats, which can take for ever; write it without")
            count += varies + _open_repeats(body, text, inside=inside or (varies or most != 1))
        elif name == "BRANCH":
            count += max(_open_repeats(branch, text, inside=inside) for branch in argument[1])
        elif name == "SUBPATTERN":
            count += _open_repeats(argument[-1], text, inside=inside)
        elif name in ("ASSERT", "ASSERT_NOT"):
            count += _open_repeats(argument[1], text, inside=inside)
        elif name == "ATOMIC_GROUP":
            count += _open_repeats(argument, text, inside=inside)
        elif name == "GROUPREF_EXISTS":
            count += sum(_open_repeats(branch, text, inside=inside) for branch in argument[1:] if branch is not None)
    return count


def _refused(text: str, why: str) -> UsageError:
    return UsageError(f"--lora-target-modules {text!r} {why}", field="lora_target_modules")
