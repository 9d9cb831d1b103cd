"""A LoRA adapter's folder: adapter_config.json names its base model, its rank and what it adapts.

Source: peft 0.21 `tuners/lora/config.py` LoraConfig.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from planner.errors import ConfigError
from planner.model.config import RawConfig

_LARGEST_RANK: Final = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapter:
    """What an adapter says of itself.

    Args:
        base: the base model by name or path, as written there.
        peft_type: "LORA", "DORA" is LORA with use_dora.
        rank: the largest rank of any module (`r` and `rank_pattern`).
        target_modules: what it adapts, as written: names, or one regular expression.
        modules_to_save: modules trained and stored whole beside the matrices.
    """

    base: str
    peft_type: str
    rank: int
    target_modules: tuple[str, ...]
    modules_to_save: tuple[str, ...] = ()


def read_adapter(values: Mapping[str, object], *, origin: str) -> Adapter:
    """The adapter that an adapter_config.json describes.

    Args:
        origin: the file, for messages.

    Raises:
        ConfigError: no base model, a kind other than LoRA, a rank that makes no sense.
    """
    raw = RawConfig(values, path=origin)
    kind = raw.text("peft_type", default="LORA")
    if kind.upper() != "LORA":
        raise raw.error("peft_type", f"is {kind[:40]!r}; only LoRA adapters are understood")
    ranks = [raw.integer("r", minimum=1, maximum=_LARGEST_RANK)]
    pattern = raw.section("rank_pattern")
    for name in pattern.mapping() if pattern is not None else ():
        assert pattern is not None
        ranks.append(pattern.integer(name, minimum=1, maximum=_LARGEST_RANK))
    base = raw.optional_text("base_model_name_or_path")
    if not base:
        raise ConfigError(
            f"{origin}: base_model_name_or_path is missing; pass the base model, and the rank with --max-lora-rank",
            field="base_model_name_or_path",
        )
    return Adapter(
        base=base,
        peft_type=kind.upper(),
        rank=max(ranks),
        target_modules=_names(raw, "target_modules"),
        modules_to_save=_names(raw, "modules_to_save"),
    )


def _names(raw: RawConfig, key: str) -> tuple[str, ...]:
    value = raw.raw(key)
    if isinstance(value, str):
        return (value,)
    return tuple(raw.texts(key) or ())
