"""The longest request that an engine derives from a config: its positions, stretched by rope scaling.

Source: vLLM 0.19.0 `config/model.py` _get_and_verify_max_len: YaRN multiplies original_max_position_embeddings, every
other scaling but longrope and llama3 multiplies max_position_embeddings; Gemma 3 states its scaled length already.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

_ROPE: Final = ("rope_parameters", "rope_scaling")
_TEXT: Final = ("text_config", "llm_config", "language_config")
# Their max_position_embeddings is the scaled length.
_SCALED_ALREADY: Final = frozenset({"su", "longrope", "llama3"})


def stretched_positions(values: Mapping[str, object], positions: int) -> int:
    """Tokens of the longest request that the config allows; never below `positions`.

    Args:
        values: config.json, or the part of it that overrides it (`--hf-overrides`).
        positions: max_position_embeddings of the model.
    """
    longest = positions
    for section in (values, *(values[name] for name in _TEXT if name in values)):
        if not isinstance(section, Mapping):
            continue
        own = section.get("max_position_embeddings")
        base = own if type(own) is int and own > 0 else positions
        longest = max(longest, base)
        if "gemma3" in str(section.get("model_type", "")):
            continue
        for rope in _ropes(section):
            longest = max(longest, _stretched(rope, base))
    return longest


def _ropes(section: Mapping[str, object]) -> Iterator[Mapping[str, object]]:
    """The rope sections: one, or one for each layer type."""
    for name in _ROPE:
        found = section.get(name)
        if not isinstance(found, Mapping):
            continue
        parts = [part for part in found.values() if isinstance(part, Mapping)]
        yield from parts or [found]


def _stretched(rope: Mapping[str, object], positions: int) -> int:
    kind, factor = rope.get("rope_type", rope.get("type")), rope.get("factor")
    if kind in _SCALED_ALREADY or not isinstance(factor, int | float) or not 1 <= factor <= 10_000:
        return positions
    original = rope.get("original_max_position_embeddings")
    base = original if kind == "yarn" and type(original) is int else positions
    return int(base * factor)
