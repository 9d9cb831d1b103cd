"""Prompts before commands, and cards that comments name."""

from __future__ import annotations

import re
from typing import Final

from planner.launches.context import Context

_CARD_WORDS: Final = re.compile(
    r"\b(?:(?:RTX|GTX)\s?(?:PRO\s?)?A?\d{4}(?:\s?(?:Ti|SUPER|Ada))?|[HABLV]\d{2,3}S?G?(?:[ -]\d{2,3}\s?GB)?"
    r"|GH200|GB200|MI\d{3}X?|T4)\b"
)


def offer_cards(context: Context, comments: list[tuple[int, str]]) -> None:
    """A card in a comment or in prose is offered, not taken."""
    offered = 0
    for line, text in comments:
        found = _CARD_WORDS.search(text)
        if found and offered < 5:
            offered += 1
            context.launch.note(
                f"line {line}: the words {found[0]!r} stand in a comment or prose: a card to offer (--gpu), not"
                " to assume"
            )


def without_prompts(text: str) -> str:
    """Commands behind `$ ` prompts; the other lines of such a text are output."""
    lines = text.replace("\r\n", "\n").split("\n")
    prompt = re.compile(r"^\s*(?:\([\w.-]+\)\s*)?(?:[\w.-]+@[\w.-]+:[^$#\n]{0,100})?[$❯]\s+(?=\S)")
    if not any(prompt.match(line) for line in lines):
        return text
    kept: list[str] = []
    continued = False
    for line in lines:
        found = prompt.match(line)
        if found:
            kept.append(line[found.end() :])
        else:
            kept.append(re.sub(r"^\s*>\s?", "", line) if continued else "")
        continued = bool(kept[-1]) and kept[-1].rstrip().endswith("\\")
    return "\n".join(kept)
