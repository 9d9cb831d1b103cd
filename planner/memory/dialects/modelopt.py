"""NVIDIA ModelOpt: `quant_algo`, `exclude_modules`, `quantized_layers`; in the config or in hf_quant_config.json.

Source: ModelOpt 0.37 `torch/export/quant_utils.py`; vLLM 0.19.1 `quantization/modelopt.py`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from planner.memory.dialects import compressed
from planner.memory.dialects.reading import Reading, skipped, unsupported
from planner.memory.format_table import grouped_format, weight_format
from planner.memory.formats import WeightFormat
from planner.memory.module_names import module_patterns
from planner.memory.schemes.scheme import TOWERS, Rule, Rules
from planner.model.config import RawConfig

_LAYER: Final = re.compile(r"layers\.(\d+)")
_ALGORITHMS: Final[Mapping[str, str]] = {
    "FP8": "fp8",
    "FP8_PER_CHANNEL_PER_TOKEN": "fp8_channel",
    "FP8_PB_WO": "fp8_block",
    "FP8_PB_REAL": "fp8_block",
    "NVFP4": "nvfp4",
    "NVFP4_AWQ": "nvfp4",
    "W4A16_NVFP4": "nvfp4",
    "W4A8_NVFP4_FP8": "nvfp4",
    "MXFP8": "mxfp8",
    "W4A8_MXFP4_FP8": "mxfp4",
    "MXFP4": "mxfp4",
    "INT4_AWQ": "w4a16",
    "W4A16_AWQ": "w4a16",
    "W4A8_AWQ": "w4a16",
    "W8A8_SQ_PER_CHANNEL": "int8_channel16",
    "W8A16": "int8_channel16",
}


def speaks(raw: RawConfig) -> bool:
    """Whether ModelOpt wrote this: hf_quant_config.json's form, or its name as producer."""
    producer = raw.raw("producer")
    written = isinstance(producer, Mapping) and producer.get("name") == "modelopt"
    return raw.has("quantization") or (written and raw.has("quant_algo", "quantized_layers"))


def read(raw: RawConfig) -> Reading:
    """ModelOpt: one algorithm for all but the excluded, or one for each listed layer."""
    inner = raw.section("quantization") or raw
    algorithm = inner.optional_text("quant_algo")
    if algorithm is None:
        return compressed.read(raw)
    skip = skipped(inner, "exclude_modules", "ignore", "modules_to_not_convert")
    if algorithm == "MIXED_PRECISION":
        return _mixed(inner, skip)
    stored = _format(inner, algorithm)
    notes: tuple[str, ...] = ()
    listed = bool(skip)
    if not listed:
        notes = ("the config lists no excluded modules; lm_head and towers are assumed to stay in 16 bit",)
    rules = Rules((*skip, Rule(stored)), rules_cover_head=listed, skip_roles=frozenset() if listed else TOWERS)
    return Reading(label=f"modelopt {stored.name}", rules=rules, notes=notes)


def _mixed(raw: RawConfig, skip: tuple[Rule, ...]) -> Reading:
    layers = raw.section("quantized_layers")
    if layers is None:
        raise unsupported(raw, "quantized_layers", None, "MIXED_PRECISION must list its layers")
    by_format: dict[WeightFormat, list[str]] = {}
    for name in layers.mapping():
        layer = layers.section(name)
        if layer is None:
            continue
        by_format.setdefault(_format(layer, layer.text("quant_algo")), []).append(name)
    rules = [Rule(stored, module_patterns(names, where="quantized_layers")) for stored, names in by_format.items()]
    if raw.optional_text("quant_method") == "fp8":
        # DeepSeek-V4's re-quantised experts: what is not listed keeps the checkpoint's fp8 blocks.
        rules.append(Rule(weight_format("fp8_block")))
        skip = ()
    label = "modelopt " + " + ".join(stored.name for stored in by_format)
    named = {number.group(1) for name in layers.mapping() if (number := _LAYER.search(name))}
    scheme = Rules((*skip, *rules), rules_cover_head=True)
    return Reading(label=label, rules=scheme, layers_named=len(named) if rules[-1].modules else None)


def _format(raw: RawConfig, algorithm: str) -> WeightFormat:
    name = _ALGORITHMS.get(algorithm.upper())
    if name is None:
        raise unsupported(raw, "quant_algo", algorithm, f"one of {', '.join(_ALGORITHMS)}")
    if name == "w4a16":
        return grouped_format(name, raw.integer("group_size", default=128))
    return weight_format(name)
