"""Integer formats: gptq, awq, auto-round, bitsandbytes, hqq, eetq, exl2 and exl3."""

from __future__ import annotations

from dataclasses import replace

from planner.memory.dialects.reading import Reading, all_but, group_of, skipped, unsupported
from planner.memory.format_table import format_rows, grouped_format, weight_format
from planner.memory.formats import BitsPerWeight, Grouped
from planner.memory.module_names import module_patterns
from planner.memory.schemes.scheme import TOWERS, Rule, Rules
from planner.model.config import RawConfig


def read_gptq(raw: RawConfig) -> Reading:
    """GPTQ: the linear layers of the decoder; `dynamic` changes or skips some ("-:" patterns)."""
    base = gptq_format(raw, raw.integer("bits"), group_of(raw))
    rules = []
    for pattern, value in _object(raw, "dynamic").items():
        skip = pattern.startswith("-:")
        modules = module_patterns([f"re:{pattern.removeprefix('-:').removeprefix('+:')}"], where="dynamic")
        changed = None
        if not skip:
            own = RawConfig(value if isinstance(value, dict) else {}, path=f"{raw.path}: dynamic")
            changed = gptq_format(own, own.integer("bits", default=base.bits), group_of(own, default=base.group_size))
        rules.append(Rule(changed, modules))
    rules += skipped(raw, "modules_to_not_convert")
    quantises_head = raw.flag("lm_head", default=False)
    symmetric, ordered = raw.flag("sym", default=True), raw.flag("desc_act", default=False)
    words = ("" if symmetric else " asymmetric") + (" desc_act" if ordered else "")
    stored = replace(base, name=base.name + words, symmetric=symmetric, ordered=ordered)
    return Reading(
        label=stored.name,
        rules=Rules((*rules, Rule(stored)), head=stored if quantises_head else None, skip_roles=TOWERS),
    )


def gptq_format(raw: RawConfig, bits: int, group_size: int) -> Grouped:
    """The GPTQ format of that many bits.

    Raises:
        UnsupportedQuantization: not 2, 3, 4 or 8 bits.
    """
    if bits not in (2, 3, 4, 8):
        raise unsupported(raw, "bits", bits, "2, 3, 4 or 8")
    return grouped_format(f"gptq_{bits}bit", group_size)


def read_awq(raw: RawConfig) -> Reading:
    """AWQ: the linear layers of the decoder."""
    bits = raw.integer("bits", "w_bit", default=4)
    if bits not in (4, 8):
        raise unsupported(raw, "bits", bits, "4 or 8")
    stored = grouped_format(f"awq_{bits}bit", group_of(raw))
    if not raw.flag("zero_point", default=True):
        stored = replace(stored, zero_bits=0)
    rules = all_but(skipped(raw, "modules_to_not_convert"), stored)
    return Reading(label=stored.name, rules=Rules(rules, skip_roles=TOWERS))


def read_auto_round(raw: RawConfig) -> Reading:
    """auto-round: packed like GPTQ or AWQ; `extra_config` changes single layers."""
    kind = raw.text("data_type", default="int")
    if kind in ("mx_fp", "nv_fp", "nv_fp4_with_static_gs", "mx_fp4"):
        stored = weight_format("nvfp4" if kind.startswith("nv") else f"mxfp{raw.integer('bits', default=4)}")
        return Reading(label=f"auto-round {stored.name}", rules=Rules((Rule(stored),), skip_roles=TOWERS))
    if kind != "int":
        raise unsupported(raw, "data_type", kind, "int, mx_fp or nv_fp")
    packing = raw.text("packing_format", default="auto_round:auto_gptq")
    awq = packing.endswith("awq")
    group, bits = group_of(raw), raw.integer("bits", default=4)

    def packed(bits: int, group: int) -> Grouped:
        if awq and bits not in (4, 8):
            raise unsupported(raw, "bits", bits, "4 or 8 in AWQ packing")
        found = grouped_format(f"awq_{bits}bit", group) if awq else gptq_format(raw, bits, group)
        return replace(found, index_bytes=0, name=f"auto-round {bits}-bit g{group}")

    rules = []
    for name, value in _object(raw, "extra_config").items():
        own = RawConfig(value if isinstance(value, dict) else {}, path=f"{raw.path}: extra_config")
        own_bits = own.integer("bits", default=bits)
        modules = module_patterns(
            [f"re:{name}" if any(sign in name for sign in "*^$\\|") else name], where="extra_config"
        )
        rules.append(Rule(None if own_bits >= 16 else packed(own_bits, group_of(own, default=group)), modules))
    stored_int = packed(bits, group)
    return Reading(label=stored_int.name, rules=Rules((*rules, Rule(stored_int)), skip_roles=TOWERS))


def read_bitsandbytes(raw: RawConfig) -> Reading:
    """bitsandbytes: every linear layer but lm_head and `llm_int8_skip_modules`."""
    skip = skipped(raw, "llm_int8_skip_modules", "modules_to_not_convert")
    if raw.flag("load_in_4bit", "_load_in_4bit", default=False):
        kind = raw.text("bnb_4bit_quant_type", default="fp4")
        if kind not in ("nf4", "fp4"):
            raise unsupported(raw, "bnb_4bit_quant_type", kind, "nf4 or fp4")
        nested = "_dq" if raw.flag("bnb_4bit_use_double_quant", default=False) else ""
        stored = weight_format(f"bnb_{kind}{nested}")
    elif raw.flag("load_in_8bit", "_load_in_8bit", default=False):
        stored = weight_format("bnb_int8")
    else:
        raise unsupported(raw, "load_in_4bit", False, "load_in_4bit or load_in_8bit must be true")
    return Reading(label=stored.name, rules=Rules(all_but(skip, stored), skip_roles=frozenset()))


def read_hqq(raw: RawConfig) -> Reading:
    """HQQ: bits and group from `quant_config.weight_quant_params`."""
    section = raw.section("quant_config") or raw
    weights = section.section("weight_quant_params") or section
    bits = weights.integer("nbits", "bits", default=4)
    name = f"hqq_{bits}bit"
    if name not in format_rows():
        raise unsupported(raw, "nbits", bits, "1, 2, 3, 4 or 8")
    stored = grouped_format(name, group_of(weights, default=64))
    return Reading(label=stored.name, rules=Rules(all_but(skipped(raw, "skip_modules"), stored), skip_roles=TOWERS))


def read_mlx(raw: RawConfig) -> Reading:
    """MLX: every matrix, the embedding and the output matrix too; nothing but norms stays plain.

    Source: mlx-lm 0.28 `utils.py` quantize_model (nn.quantize over all Linear and Embedding modules).
    """
    bits = raw.integer("bits", default=4)
    if not 2 <= bits <= 8:
        raise unsupported(raw, "bits", bits, "2 to 8")
    stored = grouped_format(f"mlx_{bits}bit", group_of(raw, default=64))
    rules = Rules((Rule(stored),), head=stored, embedding=stored, skip_roles=TOWERS)
    note = "an MLX export is read by MLX alone: other engines need another export of the same model"
    return Reading(label=stored.name, rules=rules, notes=(note,))


def read_bitnet(raw: RawConfig) -> Reading:
    """BitNet b1.58: ternary values, four in a byte, and one scale a matrix; packed in the released file ("offline").

    Source: transformers 5.24 `integrations/bitnet.py` AutoBitLinear, `quantizers/quantizer_bitnet.py`.

    Raises:
        UnsupportedQuantization: quantised on the fly from 16-bit weights, which then take 16 bit.
    """
    mode = raw.text("quantization_mode", default="offline")
    if mode != "offline":
        raise unsupported(raw, "quantization_mode", mode, "offline; online keeps 16-bit weights, leave it out")
    stored = weight_format("bitnet_2bit")
    return Reading(
        label="bitnet 1.58-bit, packed in 2", rules=Rules(all_but(skipped(raw, "modules_to_not_convert"), stored))
    )


def read_eetq(raw: RawConfig) -> Reading:
    """EETQ: int8 with a scale per output row."""
    stored = weight_format("int8_channel16")
    return Reading(label="eetq int8", rules=Rules(all_but(skipped(raw, "modules_to_not_convert"), stored)))


def read_exl(raw: RawConfig) -> Reading:
    """EXL2 and EXL3: an average of bits per weight, and another for the head."""
    kind = raw.text("quant_method")
    stored = bits_format(kind, raw.number("bits"))
    head = bits_format(kind, raw.number("head_bits", default=6.0))
    return Reading(label=stored.name, rules=Rules((Rule(stored),), head=head, skip_roles=TOWERS))


def bits_format(kind: str, bits: float) -> BitsPerWeight:
    """EXL2 or EXL3 at that many bits per weight."""
    base = weight_format(kind)
    assert isinstance(base, BitsPerWeight)
    return replace(base, name=f"{kind} {bits:g}bpw", millibits=round(bits * 1000))


def _object(raw: RawConfig, name: str) -> dict[str, object]:
    section = raw.section(name)
    return {} if section is None else dict(section.mapping())
