"""compressed-tensors: `config_groups` with targets, `ignore`.

Source: compressed-tensors 0.20.1 `quantization/quant_config.py`, `quant_args.py`, `utils/match.py`.
"""

from __future__ import annotations

from dataclasses import replace

from planner.memory.dialects.floating import block_format
from planner.memory.dialects.reading import Reading, group_of, skipped, unsupported
from planner.memory.format_table import grouped_format, weight_format
from planner.memory.formats import Scaled, WeightFormat
from planner.memory.module_names import module_patterns
from planner.memory.schemes.scheme import Rule, Rules
from planner.model.config import RawConfig

# Names of classes rather than of modules; FusedMoE is an engine's, Linear is torch's.
_LINEAR_CLASSES = frozenset({"Linear", "FusedMoE", "MoEGate", "LinearBase"})


def read(raw: RawConfig) -> Reading:
    """compressed-tensors: the groups in order, after what `ignore` leaves plain."""
    groups = raw.section("config_groups")
    if groups is None:
        raise unsupported(raw, "config_groups", None, "it must list at least one group")
    layout = raw.text("format", default="")
    named: list[Rule] = []
    general: list[Rule] = []
    labels: list[str] = []
    for name in groups.mapping():
        group = groups.section(name)
        weights = group.section("weights") if group is not None else None
        if group is None or weights is None:
            continue
        stored = weights_format(weights, group.text("format", default=layout))
        labels.append(stored.name)
        targets = group.texts("targets") or ["Linear"]
        if _LINEAR_CLASSES.intersection(targets):
            general.append(Rule(stored))
        modules = [target for target in targets if target not in _LINEAR_CLASSES]
        if modules:
            named.append(Rule(stored, module_patterns(modules, where="targets")))
    label = "compressed-tensors " + (" + ".join(dict.fromkeys(labels)) or "unquantised weights")
    return Reading(label=label, rules=Rules((*skipped(raw, "ignore"), *named, *general), rules_cover_head=True))


def weights_format(weights: RawConfig, layout: str) -> WeightFormat:
    """The format that a group's `weights` describe.

    Raises:
        UnsupportedQuantization: a type, width, strategy or layout that is not understood.
    """
    if "24" in layout:
        raise unsupported(weights, "format", layout, "2:4 sparse layouts have no size rule here")
    bits = weights.integer("num_bits", default=8)
    kind = weights.text("type", default="int")
    group = group_of(weights, default=0)
    strategy = weights.text("strategy", default="group" if group > 0 else "tensor")
    if kind == "float":
        return _float_format(weights, bits, strategy, group)
    if kind != "int" or not 1 <= bits <= 8:
        raise unsupported(weights, "type", f"{kind}{bits}", "int of at most 8 bits, or float")
    symmetric = weights.flag("symmetric", default=True)
    if bits == 8 and strategy in ("channel", "tensor") and layout != "pack-quantized":
        return weight_format("int8_channel16") if strategy == "channel" else replace_name("fp8", "int8")
    base = grouped_format("w4a16", group if strategy == "group" else -1)
    # Only actorder "group" stores an index per input; "weight" (static) reorders before packing.
    ordered = weights.raw("actorder") in ("group", True)
    return replace(
        base,
        name=f"w{bits}a16 {f'g{base.group_size}' if base.group_size else 'per channel'}"
        + ("" if symmetric else " asymmetric"),
        bits=bits,
        zero_bits=0 if symmetric else bits,
        index_bytes=4 if ordered else 0,
    )


def _float_format(weights: RawConfig, bits: int, strategy: str, group: int) -> WeightFormat:
    if bits == 8 and strategy == "tensor":
        return weight_format("fp8")
    if bits == 8 and strategy == "channel":
        return weight_format("fp8_channel16")
    if bits == 8 and strategy == "block":
        block = weights.integers("block_structure", length=2, minimum=1) or [128, 128]
        return block_format(block[0], block[1])
    if bits == 8 and group == 32:
        return weight_format("mxfp8")
    if bits == 4 and group in (16, 0):
        return weight_format("nvfp4")
    if bits == 4 and group == 32:
        return weight_format("mxfp4")
    raise unsupported(
        weights, "strategy", f"float{bits} {strategy} {group}", "fp8, nvfp4 (group 16) or mxfp (group 32)"
    )


def replace_name(stored: str, name: str) -> Scaled:
    """The 8-bit format of that id under another name (int8 and fp8 take the same bytes)."""
    base = weight_format(stored)
    assert isinstance(base, Scaled)
    return replace(base, name=name)
