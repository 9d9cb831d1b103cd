"""The list of actions and cautions, which are data (actions.json), and a single action in its words."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from planner.diagnosis.result import Action


@cache
def catalogue() -> Mapping[str, Any]:
    """The texts: actions, which of them to choose when, cautions, and what differences from a plan mean."""
    from importlib.resources import files  # a tenth of a second that a mere import need not take

    text = files("planner.diagnosis.remedies").joinpath("actions.json").read_text(encoding="utf-8")
    data: dict[str, Any] = json.loads(text)
    return data


def action(name: str, words: Mapping[str, str], keys: Iterable[str] = ()) -> Action | None:
    """The action of this name; None when a word that its text needs is not known.

    Args:
        words: values of the places {…} in the texts.
        keys: which wording and which spelling of a setting to prefer, most specific first (program, trade:…, place:…).
    """
    entry = catalogue()["actions"][name]
    keys = (*keys, "")
    say, settings = entry.get("say", {}), entry.get("set", {})
    text = next((say[key] for key in keys if key in say), entry["do"])
    setting = next((settings[key] for key in keys if key in settings), None)
    try:
        return Action(
            name=name,
            do=text.format_map(words),
            why=entry["why"].format_map(words),
            setting=_filled(setting, words),
            command=None if entry.get("command") is None else entry["command"].format_map(words),
        )
    except KeyError:
        return None


def _filled(setting: str | None, words: Mapping[str, str]) -> str | None:
    """The setting with its values, None where one of them is not known: half a setting is none."""
    if not setting:
        return None
    try:
        return setting.format_map(words)
    except KeyError:
        return None


def belongs(name: str, trade: str) -> bool:
    """Whether an action is one of this trade ("" stands for a program that nothing names)."""
    trades = catalogue()["actions"][name].get("trades")
    return trades is None or (trade or "unknown") in trades
