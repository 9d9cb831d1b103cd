"""Reading `quantization_config`: one module a group of dialects, one entry here for each `quant_method`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from planner.errors import UnsupportedQuantization
from planner.memory.dialects import compressed, floating, integer, modelopt, quark, torchao
from planner.memory.dialects.reading import Reading
from planner.model.config import RawConfig

READERS: Final[Mapping[str, Callable[[RawConfig], Reading]]] = {
    "auto-round": integer.read_auto_round,
    "awq": integer.read_awq,
    "bitnet": integer.read_bitnet,
    "bitsandbytes": integer.read_bitsandbytes,
    "compressed-tensors": compressed.read,
    "eetq": integer.read_eetq,
    "exl2": integer.read_exl,
    "exl3": integer.read_exl,
    "fbgemm-fp8": floating.read_fbgemm,
    "fp8": floating.read_fp8,
    "gptq": integer.read_gptq,
    "hqq": integer.read_hqq,
    "mlx": integer.read_mlx,
    "modelopt": modelopt.read,
    "mxfp4": floating.read_mxfp4,
    "quark": quark.read,
    "torchao": torchao.read,
}
_OTHER_NAMES: Final = {
    "awq-marlin": "awq",
    "gptq-marlin": "gptq",
    "intel/auto-round": "auto-round",
    "finegrained-fp8": "fp8",
    "modelopt-fp4": "modelopt",
    "modelopt-mixed": "modelopt",
    "modelopt-mxfp8": "modelopt",
}


def read_dialect(raw: RawConfig) -> Reading:
    """What a quantization_config says about each tensor.

    Raises:
        UnsupportedQuantization: a quant_method, or a value under it, that is not understood; names the field.
        ConfigError: a value of the wrong type.
    """
    if modelopt.speaks(raw):
        return modelopt.read(raw)
    method = raw.optional_text("quant_method")
    if method is None and raw.has("load_in_4bit", "load_in_8bit"):
        method = "bitsandbytes"
    if method is None:
        raise UnsupportedQuantization(
            f"{raw.path}: quant_method is missing; one of {', '.join(READERS)}", field="quant_method"
        )
    name = method.lower().replace("_", "-")
    reader = READERS.get(_OTHER_NAMES.get(name, name))
    if reader is None:
        raise UnsupportedQuantization(
            f"{raw.path}: quant_method {method!r} is not understood; one of {', '.join(READERS)}", field="quant_method"
        )
    return reader(raw)
