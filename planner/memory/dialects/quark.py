"""AMD Quark: `global_quant_config`, `layer_quant_config`, `exclude`.

Source: Quark 0.8 export format; vLLM 0.19.1 `quantization/quark/quark.py`.
"""

from __future__ import annotations

from collections.abc import Mapping

from planner.memory.dialects.compressed import replace_name
from planner.memory.dialects.reading import Reading, group_of, skipped, unsupported
from planner.memory.format_table import grouped_format, weight_format
from planner.memory.formats import WeightFormat
from planner.memory.module_names import module_patterns
from planner.memory.schemes.scheme import Rule, Rules
from planner.model.config import RawConfig


def read(raw: RawConfig) -> Reading:
    """Quark: single layers first, then everything that is not excluded."""
    rules = list(skipped(raw, "exclude"))
    layers = raw.section("layer_quant_config")
    for name in layers.mapping() if layers is not None else ():
        assert layers is not None
        own = layers.section(name)
        rules.append(
            Rule(_weights(own) if own is not None else None, module_patterns([name], where="layer_quant_config"))
        )
    overall = raw.section("global_quant_config")
    stored = _weights(overall) if overall is not None else None
    if stored is not None:
        rules.append(Rule(stored))
    label = f"quark {stored.name}" if stored is not None else "quark"
    return Reading(label=label, rules=Rules(tuple(rules), rules_cover_head=True))


def _weights(config: RawConfig) -> WeightFormat | None:
    value = config.raw("weight")
    if isinstance(value, list):  # scales quantised too: the first entry is the values
        value = value[0] if value else None
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise unsupported(config, "weight", value, "an object")
    weights = RawConfig(value, path=f"{config.path}: weight")
    dtype, scheme = weights.text("dtype"), weights.text("qscheme", default="per_tensor")
    if dtype in ("fp8_e4m3", "fp8_e5m2"):
        return weight_format("fp8_channel" if scheme == "per_channel" else "fp8")
    if dtype == "int8":
        return weight_format("int8_channel") if scheme == "per_channel" else replace_name("fp8", "int8")
    if dtype in ("int4", "uint4"):
        return grouped_format("w4a16" if dtype == "int4" else "w4a16_asym", group_of(weights, default=-1))
    if dtype in ("fp4", "mxfp4", "mx"):
        return weight_format("nvfp4" if group_of(weights, default=32) == 16 else "mxfp4")
    if dtype.startswith(("fp6", "mxfp6")):
        return weight_format("mxfp6")
    raise unsupported(weights, "dtype", dtype, "fp8, int8, int4, fp4 or fp6")
