"""An export's name -> its base model and how it is stored, by the rules of `exports.csv`.

A rule is a row: which makers (`*`: any), how the name ends (a regular expression), for which families of base models
(model types, `experts`, `key=value` of the config, `name=pattern` of its Hub id, joined by +), the storage, group size,
what stays in 16 bit, the cache type that the export states, how much of the weights the name does not decide
(thousandths), what the export changes of the base's config, and the evidence. A row that names the maker comes before
one for all, then one that names the family, then the longer ending. Dashes and underscores in names are one.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files
from typing import Final

_EXPERTS: Final = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportRule:
    """One row; see the module's text.

    Args:
        storage: "" for a copy in 16 bit; {bits}, {mix}, ... stand for groups of the ending.
        sets: what the export changes of the base's config (a padded intermediate_size).
        spread: thousandths of the weights below and above that the name leaves open.
    """

    makers: frozenset[str]
    ending: str
    families: tuple[str, ...]
    storage: str
    group_size: int | None
    keeps: tuple[str, ...]
    cache: str
    spread: tuple[int, int]
    sets: Mapping[str, int]
    evidence: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What one rule makes of a name: the last part without its ending, and the storage in full."""

    rule: ExportRule
    base: str
    ending: str
    storage: str
    group_size: int | None


@cache
def export_rules() -> tuple[ExportRule, ...]:
    """Every row."""
    text = files("planner.model.names").joinpath("exports.csv").read_text("utf-8")
    rules = []
    for row in csv.DictReader(text.splitlines()):
        below, _, above = row["spread"].partition("-")
        rules.append(
            ExportRule(
                makers=frozenset() if row["makers"] == "*" else frozenset(row["makers"].lower().split()),
                ending=row["ending"],
                families=() if row["families"] == "*" else tuple(row["families"].split()),
                storage=row["storage"],
                group_size=int(row["group_size"]) if row["group_size"] else None,
                keeps=tuple(row["keeps"].split()),
                cache=row["cache"],
                spread=(int(below), int(above)) if above else (0, 0),
                sets={key: int(value) for key, value in (pair.split("=") for pair in row["sets"].split())},
                evidence=row["evidence"],
                source=row["source"],
            )
        )
    return tuple(rules)


def read_export_name(maker: str, last_part: str) -> list[Reading]:
    """What the rules make of a name, the most particular first; whether they hold depends on the base's family.

    Args:
        maker: the organisation, under its present name; "" when the name has none.
    """
    found = []
    dashed = last_part.replace("_", "-")
    for rule in export_rules():
        if rule.makers and maker.lower() not in rule.makers:
            continue
        pattern = f"(?P<base>.+?)(?P<ending>{rule.ending})"
        match = re.fullmatch(pattern, last_part, re.IGNORECASE) or re.fullmatch(pattern, dashed, re.IGNORECASE)
        if match is None:
            continue
        groups = {key: value for key, value in match.groupdict().items() if value is not None}
        groups["kind"] = groups.get("kind", "").lower()
        group = groups.get("group")
        found.append(
            Reading(
                rule=rule,
                base=groups["base"],
                ending=groups["ending"],
                storage=rule.storage.format_map(groups),
                group_size=int(group) if group else rule.group_size,
            )
        )
    return sorted(found, key=lambda reading: (-len(reading.ending), not reading.rule.makers, not reading.rule.families))


def holds_for(rule: ExportRule, base: str, config: Mapping[str, object]) -> bool:
    """Whether the rule speaks of base models of this Hub id and config."""
    if not rule.families:
        return True
    own = str(config.get("model_type", ""))
    inner = config.get("text_config")
    values = {**config, **inner} if isinstance(inner, Mapping) else config
    experts = any(values.get(key) for key in _EXPERTS)
    return any(all(_fits(word, base, own, experts, values) for word in family.split("+")) for family in rule.families)


def _fits(word: str, base: str, model_type: str, experts: bool, values: Mapping[str, object]) -> bool:
    key, equals, value = word.partition("=")
    if key == "name":
        return fnmatchcase(base.lower(), value)
    if equals:
        return str(values.get(key)) == value
    return experts if word == "experts" else fnmatchcase(model_type, word)
