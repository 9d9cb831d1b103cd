"""One model under several names: renamed makers, copies under another account, Ollama's tags, and the nearest name."""

from __future__ import annotations

import csv
import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Final

from planner.model.names.bundled import by_last_part, find_exact, fold, known_names

_TAG_STORAGE: Final = re.compile(r"(?P<tag>.+?)-(?P<storage>(?:ud-)?i?q\d\w*|fp16|f16|bf16)", re.IGNORECASE)
_OWN_WORDS: Final = re.compile(r"-(instruct|chat|text)$")
# What makers append to the tunings of one base: they share its shape (269 of the bundled configs are such siblings).
_TUNINGS: Final = ("", "-instruct", "-it", "-chat", "-base", "-pt", "-thinking", "-reasoning")


# What tuners append who change weights and not shapes: refusals taken out, quantisation-aware training.
_SAME_SHAPE: Final = re.compile(
    r"[-_](abliterated|uncensored|heretic|derestricted|qat)([-_]v?\d+(\.\d+)*)?$", re.IGNORECASE
)


@dataclass(frozen=True, slots=True, kw_only=True)
class OllamaTag:
    """What one tag of Ollama's library is: a base model, and the mix that it is stored in."""

    tag: str
    base: str
    storage: str
    latest: bool


@cache
def _rows(name: str) -> list[dict[str, str]]:
    return list(csv.DictReader(files("planner.model.names").joinpath(name).read_text("utf-8").splitlines()))


@cache
def _organisations() -> Mapping[str, tuple[str, str]]:
    return {row["organisation"].lower(): (row["kind"], row["canonical"]) for row in _rows("organisations.csv")}


def present_name(organisation: str) -> str:
    """The organisation's name today."""
    kind, canonical = _organisations().get(organisation.lower(), ("", ""))
    return canonical if kind == "renamed" else organisation


def copies_others(organisation: str) -> bool:
    """Whether the account publishes other makers' models under the same last part."""
    return _organisations().get(organisation.lower(), ("", ""))[0] == "copies"


def find_base(organisation: str, last_part: str) -> str | None:
    """The bundled model of that last part: the account's own, else the maker's, else a copy."""
    if organisation:
        own = find_exact(f"{present_name(organisation)}/{last_part}")
        if own is not None:
            return own
    candidates = by_last_part().get(fold(last_part), ()) or _after_maker(last_part)
    if not candidates:
        return None
    home = present_name(organisation).lower()

    def rank(name: str) -> tuple[bool, bool, bool, str]:
        owner, last = name.split("/", 1)
        return owner.lower() != home, copies_others(owner), last.lower() != last_part.lower(), name

    return min(candidates, key=rank)


def _after_maker(last_part: str) -> tuple[str, ...]:
    """What follows the maker's name: bartowski writes ORGANISATION_NAME, others ORGANISATION.NAME or with a dash."""
    for mark in re.finditer(r"[_.\-]", last_part):
        maker, rest = last_part[: mark.start()], last_part[mark.end() :]
        if maker.lower() not in _makers():
            continue
        found = find_exact(f"{present_name(maker)}/{rest}")
        if found is not None or mark[0] != "-":
            return (found,) if found else by_last_part().get(fold(rest), ())
    return ()


@cache
def _makers() -> frozenset[str]:
    return frozenset(name.split("/", 1)[0].lower() for name in known_names()) | frozenset(_organisations())


def find_sibling(organisation: str, last_part: str) -> str | None:
    """The same maker's other tuning of the same base: -Instruct for -Thinking, the bare name for -Base.

    A tuning that says of itself that it leaves the shape alone (-abliterated, -qat) is anybody's.
    """
    plain = _SAME_SHAPE.sub("", re.sub(r"^huihui-", "", last_part, flags=re.IGNORECASE))
    if plain and plain != last_part:
        return find_base(organisation, plain) or find_sibling(organisation, plain)
    folded = fold(last_part)
    date = re.search(r"-\d{4}$", folded)
    stem = folded[: date.start()] if date else folded
    for ending in _TUNINGS[1:]:
        if stem.endswith(ending):
            stem = stem.removesuffix(ending)
            break
    home = present_name(organisation).lower()
    for dated in (date[0], "") if date else ("",):
        for ending in _TUNINGS:
            for name in by_last_part().get(stem + ending + dated, ()):
                if name.split("/", 1)[0].lower() == home:
                    return name
    return None


@cache
def ollama_tags() -> Mapping[str, OllamaTag]:
    """Every tag that is known, lower case; families without a tag are their `latest`."""
    found: dict[str, OllamaTag] = {}
    for row in _rows("ollama_tags.csv"):
        own = OllamaTag(tag=row["tag"], base=row["base"], storage=row["storage"], latest=row["latest"] == "yes")
        found[own.tag.lower()] = own
        if own.latest:
            found[own.tag.partition(":")[0].lower()] = own
    return found


def find_ollama_tag(text: str) -> OllamaTag | None:
    """The tag as it stands in the library, or with a storage or -instruct after it."""
    wanted = text.strip().lower().removeprefix("library/").removesuffix(":latest")
    found = ollama_tags().get(wanted)
    if found is not None:
        return found
    storage = ""
    match = _TAG_STORAGE.fullmatch(wanted)
    if match is not None and ":" in match["tag"]:
        wanted, storage = match["tag"], match["storage"].upper().replace("FP16", "F16")
    found = ollama_tags().get(wanted) or ollama_tags().get(_OWN_WORDS.sub("", wanted))
    if found is None or not storage:
        return found
    return OllamaTag(tag=text, base=found.base, storage=storage, latest=False)


def nearest(last_part: str) -> str | None:
    """The bundled model whose last part is nearest, a maker's before a copy's."""
    wanted = _letters(last_part)
    keys = {_letters(name): name for name in by_last_part()}
    longer = [key for key in keys if key.startswith(wanted)] if wanted else []
    shorter = [key for key in keys if wanted.startswith(key)]
    close = difflib.get_close_matches(wanted, keys, n=1, cutoff=0.9)  # a slip of the pen
    close = close or sorted(longer, key=lambda key: (len(key), key))[:1] or sorted(shorter, key=len)[-1:]
    if not close:
        close = difflib.get_close_matches(wanted, keys, n=1, cutoff=0.5)
    return find_base("", keys[close[0]]) if close else None


def _letters(text: str) -> str:
    return re.sub(r"[^a-z0-9]", "", fold(text))
