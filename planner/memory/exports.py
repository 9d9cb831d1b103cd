"""The usual export of a plain model under each name that people give to `--quantization`.

Every name has the format of its usual tool with that tool's defaults; what the tool leaves in 16 bit stays there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from planner.errors import UnsupportedQuantization
from planner.memory.dialects.integer import bits_format
from planner.memory.dialects.reading import Reading
from planner.memory.format_table import grouped_format, weight_format
from planner.memory.formats import Grouped, WeightFormat
from planner.memory.ggml.mixes import is_mix, mix_names
from planner.memory.schemes.scheme import TOWERS, Rule, Rules
from planner.model.spec import ModelSpec


@dataclass(frozen=True, slots=True)
class Export:
    """What a name stands for.

    Args:
        format: row of `formats.csv`.
        tool: whose defaults these are.
        experts_only: in a mixture of experts only the routed experts are converted.
    """

    format: str
    tool: str
    experts_only: bool = False


EXPORTS: Final[Mapping[str, Export]] = {
    "awq": Export("awq_4bit", "AutoAWQ, llm-compressor"),
    "gptq": Export("gptq_4bit", "GPTQModel: symmetric, no desc_act"),
    "gptq-int2": Export("gptq_2bit", "GPTQModel"),
    "gptq-int3": Export("gptq_3bit", "GPTQModel"),
    "gptq-int4": Export("gptq_4bit", "GPTQModel: symmetric, no desc_act"),
    "gptq-int8": Export("gptq_8bit", "GPTQModel: symmetric, no desc_act"),
    "w4a16": Export("w4a16", "llm-compressor W4A16: symmetric"),
    "w8a16": Export("w8a16", "llm-compressor W8A16: symmetric"),
    "w8a8": Export("int8_channel16", "llm-compressor W8A8: int8, a scale per output row"),
    "int8": Export("int8_channel16", "llm-compressor W8A8: int8, a scale per output row"),
    "fp8": Export("fp8", "vLLM --quantization fp8: a scale per tensor, converted while loading"),
    "fp8-dynamic": Export("fp8_channel16", "llm-compressor FP8_DYNAMIC: a scale per output row"),
    "fp8-block": Export("fp8_block", "llm-compressor FP8_BLOCK: fp32 scales per 128x128"),
    "bitsandbytes": Export("bnb_nf4", "vLLM --quantization bitsandbytes: nf4 without double quantisation"),
    "bnb-int8": Export("bnb_int8", "bitsandbytes LLM.int8()"),
    "nf4": Export("bnb_nf4", "bitsandbytes nf4, blocks of 64, without double quantisation"),
    "nf4-dq": Export("bnb_nf4_dq", "bitsandbytes nf4 with double quantisation"),
    "fp4": Export("bnb_fp4", "bitsandbytes fp4, blocks of 64, without double quantisation"),
    "fp4-dq": Export("bnb_fp4_dq", "bitsandbytes fp4 with double quantisation"),
    "nvfp4": Export("nvfp4", "llm-compressor NVFP4, ModelOpt"),
    "mxfp4": Export("mxfp4", "gpt-oss and Quark: routed experts only, where there are any", experts_only=True),
    "mxfp8": Export("mxfp8", "ModelOpt MXFP8"),
    "hqq": Export("hqq_4bit", "HQQ 4-bit"),
    "torchao-int4": Export("torchao_int4", "torchao Int4WeightOnly"),
    "torchao-int8": Export("torchao_int8", "torchao Int8WeightOnly"),
}
_EXL: Final = re.compile(r"(exl[23])[-_ ]?(\d{1,2}(?:\.\d{1,3})?)(?:bpw)?")
_EXL_HEAD_BITS: Final = 6.0


def check_export_name(name: str) -> None:
    """Whether --quantization can name it.

    Raises:
        UnsupportedQuantization: neither an export nor a GGUF mix; lists them.
    """
    wanted = _normal(name)
    if not is_mix(name) and wanted not in EXPORTS and not _EXL.fullmatch(wanted):
        raise UnsupportedQuantization(
            f"--quantization {name[:40]!r} is not known; one of {', '.join([*EXPORTS, 'exl2-4.0bpw', 'exl3-4.0bpw'])}, "
            f"or a GGUF mix: {', '.join(mix_names())}",
            field="quantization",
        )


def _normal(name: str) -> str:
    return name.strip().lower().replace("_", "-")


def read_export(
    name: str, spec: ModelSpec, *, group_size: int | None = None, quantize_lm_head: bool = False
) -> Reading:
    """The format and the exceptions of that name's usual export.

    Raises:
        UnsupportedQuantization: no such name, or a group size for a format without groups.
    """
    check_export_name(name)
    wanted = _normal(name)
    exl = _EXL.fullmatch(wanted)
    if exl:
        return _read_exl(exl.group(1), float(exl.group(2)))
    export = EXPORTS[wanted]
    stored = _stored(export.format, name, group_size)
    experts = True if export.experts_only and _has_experts(spec) else None
    notes = [f"quantization {wanted} is planned as {stored.name} ({export.tool})"]
    if isinstance(stored, Grouped) and group_size is None:
        notes.append(f"group size {stored.group_size} is the usual one; --group-size changes it")
    stays = ["embeddings", "norms", "routers"]
    if experts:
        stays.append("everything but the routed experts")
    stays += [] if quantize_lm_head else ["lm_head (--quantize-lm-head converts it)"]
    if spec.stacks:
        stays.append("towers and projectors")
    notes.append(f"left in 16 bit: {', '.join(stays)}")
    rules = Rules((Rule(stored, experts=experts),), head=stored if quantize_lm_head else None, skip_roles=TOWERS)
    return Reading(label=stored.name, rules=rules, notes=tuple(notes))


def _stored(row: str, name: str, group_size: int | None) -> WeightFormat:
    base = weight_format(row)
    if not isinstance(base, Grouped):
        if group_size is not None:
            raise UnsupportedQuantization(
                f"quantization {name} has no groups of a chosen size; leave out --group-size", field="group_size"
            )
        return base
    if group_size is not None and group_size != -1 and not 1 <= group_size <= 1 << 20:
        raise UnsupportedQuantization(f"group_size {group_size} is neither -1 nor positive", field="group_size")
    return grouped_format(row, base.group_size if group_size is None else group_size)


def _read_exl(kind: str, bits: float) -> Reading:
    if not 1 <= bits <= 8:
        raise UnsupportedQuantization(
            f"quantization {kind}: {bits:g} bits per weight is not 1 to 8", field="quantization"
        )
    stored, head = bits_format(kind, bits), bits_format(kind, _EXL_HEAD_BITS)
    notes = (
        f"quantization {kind}: {bits:g} bits per weight on average over the linear layers",
        f"lm_head at {_EXL_HEAD_BITS:g} bits, the converter's default; embeddings and norms stay in 16 bit",
    )
    return Reading(label=stored.name, rules=Rules((Rule(stored),), head=head, skip_roles=TOWERS), notes=notes)


def _has_experts(spec: ModelSpec) -> bool:
    seen: set[int] = set()
    for layer in spec.layers:
        if id(layer) not in seen:
            seen.add(id(layer))
            if any(tensor.num_experts for tensor in layer.tensors(spec.hidden_size)):
                return True
    return False
