"""Rotary tables: how many positions an engine precomputes cos and sin for.

Source: vLLM `model_executor/layers/rotary_embedding`, 0.19.1. One table for each distinct set of rope
parameters, shared by all layers that use it, stored in the model's dtype.
"""

from __future__ import annotations

from dataclasses import dataclass

from planner.model.config import RawConfig


@dataclass(frozen=True, slots=True)
class RopeTable:
    """cos and sin for `positions` positions of `rotary_dim` elements: positions x rotary_dim values."""

    positions: int
    rotary_dim: int

    @property
    def numel(self) -> int:
        """Stored elements (rotary_dim / 2 cosines and as many sines at each position)."""
        return self.positions * self.rotary_dim


# Scaled variants allocate original_max_position_embeddings x factor positions; the others allocate
# max_position_embeddings. Keys are rope_type (or type) values.
_SCALED_BY_FACTOR = frozenset({"yarn", "deepseek_yarn", "linear", "dynamic"})


def rope_parameters(raw: RawConfig) -> RawConfig | None:
    """The config's rope section: rope_parameters (transformers 5) or rope_scaling (before), if any."""
    return raw.section("rope_parameters", "rope_scaling")


def rope_table(raw: RawConfig, *, rotary_dim: int, max_position_embeddings: int) -> RopeTable:
    """The table vLLM allocates for this config's rope section.

    Raises:
        ConfigError: a factor or an original length that is not a number.
    """
    section = rope_parameters(raw)
    if section is None:
        return RopeTable(max_position_embeddings, rotary_dim)
    kind = section.raw("rope_type", "type")
    if section.has("mrope_section"):
        # M-RoPE keeps four times the positions, for images and video (rotary_embedding/mrope.py)
        return RopeTable(4 * max_position_embeddings, rotary_dim)
    if kind in _SCALED_BY_FACTOR:
        factor = section.number("factor", default=1.0)
        if not 0 < factor <= 10_000:
            raise section.error("factor", f"is {factor}; expected above 0 and at most 10,000")
        original = section.integer(
            "original_max_position_embeddings", default=max_position_embeddings, minimum=1, maximum=1 << 31
        )
        return RopeTable(int(original * factor), rotary_dim)
    return RopeTable(max_position_embeddings, rotary_dim)
