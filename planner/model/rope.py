"""Rotary tables: how many positions an engine precomputes cos and sin for.

Source: vLLM `model_executor/layers/rotary_embedding`, 0.19.1. One table for each distinct set of rope
parameters, shared by all layers that use it, stored in the model's dtype.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from planner.model.config import RawConfig


@dataclass(frozen=True, slots=True)
class RopeTable:
    """cos and sin for `positions` positions of `rotary_dim` elements: positions x rotary_dim values.

    `dtype` is the storage type that the engine insists on; None: the model's. `scaling` is the kind of scaling that
    the config asks for.
    """

    positions: int
    rotary_dim: int
    dtype: str | None = None
    scaling: str | None = field(default=None, compare=False)

    @property
    def numel(self) -> int:
        """Stored elements (rotary_dim / 2 cosines and as many sines at each position)."""
        return self.positions * self.rotary_dim


# Which positions a scaled variant allocates, by rope_type (or type); every other one allocates
# max_position_embeddings. From vLLM's get_rope: YaRN multiplies original_max_position_embeddings, linear and
# dynamic scaling multiply max_position_embeddings, long rope keeps a short and a long table.
_ORIGINAL_TIMES_FACTOR = frozenset({"yarn", "deepseek_yarn"})
_LONGEST_TIMES_FACTOR = frozenset({"linear", "dynamic"})
_SHORT_AND_LONG = frozenset({"longrope", "su"})
# Types that leave the positions alone: get_rope of vLLM 0.33 and ROPE_INIT_FUNCTIONS of transformers 5
_UNSTRETCHED = frozenset(
    {"default", "llama3", "mrope", "proportional", "ntk", "xdrope", "gptj", "deepseek_llama_scaling"}
)
_KNOWN = _ORIGINAL_TIMES_FACTOR | _LONGEST_TIMES_FACTOR | _SHORT_AND_LONG | _UNSTRETCHED


def rope_parameters(raw: RawConfig) -> RawConfig | None:
    """The config's rope section: rope_parameters (transformers 5) or rope_scaling (before), if any."""
    return raw.section("rope_parameters", "rope_scaling")


def rope_table(raw: RawConfig, *, rotary_dim: int, max_position_embeddings: int) -> RopeTable:
    """The table vLLM allocates for this config's rope section.

    Raises:
        ConfigError: a type that is not known; a factor or an original length that is not a number.
    """
    return _table(raw, rope_parameters(raw), rotary_dim, max_position_embeddings)


def rope_tables_by_type(
    raw: RawConfig, *, rotary_dim: int, max_position_embeddings: int, same_base: bool
) -> tuple[RopeTable, ...]:
    """The tables of a model whose full and sliding layers rotate differently: one each, or one for both.

    The section is either one object for each of the two layer types (transformers 5), or applies to the full
    layers while the sliding ones rotate unscaled.

    Args:
        same_base: without a section both types rotate alike (Olmo 3); Gemma 3's two have bases of their own.

    Raises:
        ConfigError: as `rope_table`.
    """
    section = rope_parameters(raw)
    full, sliding = section, None
    if section is not None and section.has("full_attention", "sliding_attention"):
        full, sliding = section.section("full_attention"), section.section("sliding_attention")
        alike = full is not None and sliding is not None and full.mapping() == sliding.mapping()
    else:
        alike = same_base and (full is None or full.raw("rope_type", "type") in (None, "default"))
    tables = (_table(raw, full, rotary_dim, max_position_embeddings),)
    return tables if alike else (*tables, _table(raw, sliding, rotary_dim, max_position_embeddings))


def _table(raw: RawConfig, section: RawConfig | None, rotary_dim: int, max_position_embeddings: int) -> RopeTable:
    if section is None:
        return RopeTable(max_position_embeddings, rotary_dim)
    kind = section.optional_text("rope_type", "type")
    if kind is not None and kind not in _KNOWN:
        # engines refuse it as well; its factor may mean anything
        raise section.error("rope_type", f"{kind[:40]!r} is not known; one of {', '.join(sorted(_KNOWN))}")
    if section.has("mrope_section"):
        # M-RoPE keeps four times the positions, for images and video (rotary_embedding/mrope.py)
        return RopeTable(4 * max_position_embeddings, rotary_dim)
    if kind in _ORIGINAL_TIMES_FACTOR:
        positions = int(_original(raw, section, max_position_embeddings) * _factor(section))
        return RopeTable(positions, rotary_dim)
    if kind in _LONGEST_TIMES_FACTOR and not section.has("alpha"):
        return RopeTable(int(max_position_embeddings * _factor(section)), rotary_dim)
    if kind in _SHORT_AND_LONG:
        return RopeTable(_original(raw, section, max_position_embeddings) + max_position_embeddings, rotary_dim)
    return RopeTable(max_position_embeddings, rotary_dim, scaling=kind)


def _factor(section: RawConfig) -> float:
    factor = section.number("factor", default=1.0)
    if not 0 < factor <= 10_000:
        raise section.error("factor", f"is {factor}; expected above 0 and at most 10,000")
    return factor


def _original(raw: RawConfig, section: RawConfig, default: int) -> int:
    name = "original_max_position_embeddings"
    source = section if section.has(name) else raw
    return source.integer(name, default=default, minimum=1, maximum=1 << 31)
