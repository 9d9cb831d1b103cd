"""How a wording is described.

A pattern's groups are named `figure__converter`: `tried_bytes__size` is the figure `tried_bytes`, read as a printed
size. A group without a converter is not a figure. Patterns are searched in text whose runs of white space are single
spaces, without regard to case. They are linear: bounded repetitions, no nested ones.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from planner.diagnosis.result import Confidence, FailureClass
from planner.diagnosis.sizes import Figure, read_number, read_size

# What a line that says nothing but "Killed", in any language, becomes in the cleaned text: a character of none.
KILLED_LINE = "\ue000"
# What a shape may hold before its product is no size any more.
_MOST_DIMENSIONS = 32


@dataclass(frozen=True, kw_only=True, eq=False)
class Pattern:
    """One wording of one program.

    Attributes:
        needle: lower-case text, or several texts, of which every match contains one: what is searched for first.
        reach: no match is longer than so many characters; it is searched for no further from a needle.
        attach_only: only adds figures to a message that another pattern has begun.
        repeats: may match several times in one message; its figures are then gathered in a list and summed.
        failure, second, confidence, why: the reading, for wordings that settle it without arithmetic.
        advise, caution: names of entries of actions.json.
        versions: the program's versions that print this.
    """

    kind: str
    needle: str | tuple[str, ...]
    regex: str
    reach: int = 100
    attach_only: bool = False
    repeats: bool = False
    failure: FailureClass | None = None
    second: FailureClass | None = None
    confidence: Confidence = "medium"
    why: str = ""
    would_change: str = ""
    advise: tuple[str, ...] = ()
    caution: tuple[str, ...] = ()
    versions: str | None = None

    @property
    def needles(self) -> tuple[str, ...]:
        """The needle or needles as a tuple."""
        return (self.needle,) if isinstance(self.needle, str) else self.needle

    @cached_property
    def begins_with_needle(self) -> bool:
        """Whether every match begins where its needle does, so that nothing has to be searched."""
        return isinstance(self.needle, str) and re.sub(r"^\(\?<![\w ]+\)", "", self.regex.lower()).startswith(
            self.needle
        )

    @cached_property
    def compiled(self) -> re.Pattern[str]:
        """The regular expression, compiled when it is first needed."""
        return re.compile(self.regex, re.IGNORECASE)


@dataclass(frozen=True, kw_only=True, eq=False)
class Family:
    """The wordings of one program; the first of them that matches gives a message its kind.

    Attributes:
        gap: two matches further apart than this many characters belong to different messages.
        yields: gives way to a message of any other family within `gap` characters.
        wraps: only comments on a torch message within `gap` characters, when there is one.
    """

    program: str
    patterns: tuple[Pattern, ...]
    gap: int = 700
    yields: bool = False
    wraps: bool = False


def _shape(text: str) -> Figure:
    dimensions = tuple(int(d) for d in re.findall(r"\d{1,18}", text)[:_MOST_DIMENSIONS])
    return Figure(value=dimensions, text=text)


def _in(unit_bytes: int) -> Callable[[str], Figure]:
    def convert(text: str) -> Figure:
        return read_size(text, unit_bytes=unit_bytes)

    return convert


def _ratio(text: str) -> Figure:
    return Figure(value=float(Fraction(read_number(text))), text=text)


CONVERTERS: dict[str, Callable[[str], Figure]] = {
    "size": read_size,
    "bytes": _in(1),
    "kib": _in(1 << 10),
    "mib": _in(1 << 20),
    "gib": _in(1 << 30),
    "gb": _in(10**9),
    "int": lambda text: Figure(value=int(text.replace(",", "")), text=text),
    "number": _ratio,
    "word": lambda text: Figure(value=text, text=text),
    "shape": _shape,
}


def figures_of(match: re.Match[str]) -> dict[str, Figure]:
    """The figures in the named groups of a match, by name."""
    found: dict[str, Figure] = {}
    for group, text in match.groupdict().items():
        name, _, converter = group.rpartition("__")
        if name and text is not None:
            found[name] = CONVERTERS[converter](text)
    return found


def no_memory(
    kind: str,
    needle: str | tuple[str, ...],
    regex: str,
    why: str,
    *advise: str,
    failure: FailureClass = "bug",
    second: FailureClass | None = None,
    reach: int = 300,
) -> Pattern:
    """A wording of a known failure that is no lack of memory."""
    return Pattern(
        kind=kind,
        needle=needle,
        regex=regex,
        reach=reach,
        failure=failure,
        second=second,
        confidence="medium" if second else "high",
        why=why,
        advise=advise or ("not_memory",),
    )
