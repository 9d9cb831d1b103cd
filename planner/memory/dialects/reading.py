"""What every dialect's reader returns, and small helpers that they share."""

from __future__ import annotations

from dataclasses import dataclass

from planner.errors import UnsupportedQuantization
from planner.memory.formats import WeightFormat
from planner.memory.module_names import module_patterns
from planner.memory.schemes.scheme import Rule, Rules
from planner.model.config import RawConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A quantization_config, understood.

    Args:
        label: for reports.
        rules: which tensors take which format.
        notes: what was assumed.
        layers_named: layers that a list of quantised modules speaks of; None: the config has no such list.
    """

    label: str
    rules: Rules
    notes: tuple[str, ...] = ()
    layers_named: int | None = None


def skipped(raw: RawConfig, *names: str) -> tuple[Rule, ...]:
    """The rule that leaves the modules of these lists plain; empty when the lists are."""
    listed: list[str] = []
    for name in names:
        listed += raw.texts(name) or []
    return (Rule(None, module_patterns(listed, where=names[0])),) if listed else ()


def all_but(skip: tuple[Rule, ...], stored: WeightFormat) -> tuple[Rule, ...]:
    """Everything in one format, but for the modules skipped."""
    return (*skip, Rule(stored))


def unsupported(raw: RawConfig, name: str, value: object, known: str) -> UnsupportedQuantization:
    """The complaint about one value, ready to raise."""
    return UnsupportedQuantization(f"{raw.path}: {name} {str(value)[:60]!r} is not understood; {known}", field=name)


def group_of(raw: RawConfig, *, default: int = 128) -> int:
    """group_size, where -1 is a whole row.

    Raises:
        UnsupportedQuantization: neither -1 nor a positive whole number.
    """
    value = raw.raw("group_size", "q_group_size")
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or value < -1 or value > 1 << 20:
        raise unsupported(raw, "group_size", value, "a positive whole number or -1")
    return value
