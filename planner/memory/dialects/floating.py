"""8-bit and 4-bit floats: fp8 (per tensor or in blocks), fbgemm_fp8, mxfp4."""

from __future__ import annotations

from dataclasses import replace

from planner.memory.dialects.reading import Reading, all_but, skipped
from planner.memory.format_table import weight_format
from planner.memory.formats import Scaled
from planner.memory.schemes.scheme import Rule, Rules
from planner.model.config import RawConfig


def read_fp8(raw: RawConfig) -> Reading:
    """fp8: blocks where `weight_block_size` says so, else one scale a tensor; lm_head stays plain."""
    block = raw.integers("weight_block_size", length=2, minimum=1)
    stored = block_format(block[0], block[1]) if block else weight_format("fp8")
    skip = skipped(raw, "modules_to_not_convert", "ignored_layers", "ignore")
    if raw.text("expert_dtype", default="fp8") == "fp4":
        # DeepSeek-V4: routed experts are MXFP4 beside fp8 linear layers
        experts = weight_format("mxfp4")
        rules = Rules((*skip, Rule(experts, experts=True), Rule(stored)))
        return Reading(label=f"{stored.name}, experts {experts.name}", rules=rules)
    return Reading(label=stored.name, rules=Rules(all_but(skip, stored)))


def block_format(rows: int, columns: int) -> Scaled:
    """fp8 with one fp32 scale per tile of rows x columns."""
    base = weight_format("fp8_block")
    assert isinstance(base, Scaled)
    return (
        base
        if base.tile == (rows, columns)
        else replace(base, name=f"fp8_block {rows}x{columns}", tile=(rows, columns))
    )


def read_fbgemm(raw: RawConfig) -> Reading:
    """fbgemm_fp8: a scale per output row."""
    stored = weight_format("fp8_channel")
    return Reading(label="fbgemm fp8", rules=Rules(all_but(skipped(raw, "modules_to_not_convert"), stored)))


def read_mxfp4(raw: RawConfig) -> Reading:
    """mxfp4 (gpt-oss): routed experts only."""
    stored = weight_format("mxfp4")
    rules = (*skipped(raw, "modules_to_not_convert"), Rule(stored, experts=True))
    return Reading(label=stored.name, rules=Rules(rules))
