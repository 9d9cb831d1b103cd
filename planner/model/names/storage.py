"""A storage by its usual name, as the `quantization_config` that an export of that kind states.

An export that is known by name alone is planned like one whose config was read: the dialects of `planner.memory` read
what is written here. Two keys are ours and stand in no published config: `kept_kinds` (kinds of block that stay in
16 bit, where lists of module names would depend on the family) and `spread` (thousandths that the weights may lie
below and above, where the name does not decide them).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

# What `keeps` calls a kind of block: everything else in that column is part of a module's name.
KINDS: Final = frozenset({"attention", "recurrent", "indexer", "mlp", "shared_experts", "vision", "draft"})

_CACHE_8_BIT: Final = {"dynamic": False, "num_bits": 8, "type": "float"}


def stated_config(
    storage: str,
    *,
    group_size: int | None = None,
    keeps: Sequence[str] = (),
    cache: str = "",
    spread: tuple[int, int] = (0, 0),
) -> dict[str, object]:
    """The quantization_config of such an export.

    Args:
        storage: "awq", "gptq-int4", "w4a16", "fp8-block", "nf4-dq", "nvfp4", "mlx-4bit", "exl2-4.0bpw" or a GGUF mix.
        keeps: kinds of `KINDS`, or parts of module names, that stay in 16 bit.
        cache: "fp8" when the export states an 8-bit cache.
        spread: thousandths of the weights that are not decided, below and above.
    """
    config = _config(storage, group_size)
    kinds = sorted(KINDS.intersection(keeps))
    modules = [word for word in keeps if word not in KINDS]
    method = config["quant_method"]
    if method in ("compressed-tensors", "modelopt"):
        config["ignore"] = ["lm_head", *modules]
    elif modules:
        config["modules_to_not_convert"] = modules
    if kinds:
        config["kept_kinds"] = kinds
    if cache:
        config["kv_cache_scheme"] = dict(_CACHE_8_BIT)
    if spread != (0, 0):
        config["spread"] = list(spread)
    return config


def _config(storage: str, group_size: int | None) -> dict[str, object]:
    group = 128 if group_size is None else group_size
    kind, _, bits = storage.partition("-")
    if storage == "awq":
        return {"quant_method": "awq", "bits": 4, "group_size": group, "zero_point": True, "version": "gemm"}
    if kind == "gptq":
        return {"quant_method": "gptq", "bits": int(bits[3:]), "group_size": group, "sym": True, "desc_act": False}
    if storage == "auto-round":
        return {
            "quant_method": "auto-round",
            "bits": 4,
            "group_size": group,
            "sym": True,
            "packing_format": "auto_round:auto_gptq",
        }
    if storage in ("w4a16", "w4a16-asym", "w8a16"):
        symmetric = not storage.endswith("asym")
        return _compressed(int(storage[1]), "int", "group", "pack-quantized", group_size=group, symmetric=symmetric)
    if storage == "w8a8":
        return _compressed(8, "int", "channel", "int-quantized")
    if storage == "fp8-dynamic":
        return _compressed(8, "float", "channel", "float-quantized")
    if storage == "fp8":
        return _compressed(8, "float", "tensor", "float-quantized")
    if storage == "nvfp4":
        return _compressed(4, "float", "tensor_group", "nvfp4-pack-quantized", group_size=16)
    if storage == "fp8-block":
        return {
            "quant_method": "fp8",
            "fmt": "e4m3",
            "activation_scheme": "dynamic",
            "weight_block_size": [128, 128],
        }
    if storage in ("fp8-modelopt", "nvfp4-modelopt"):
        return {"quant_method": "modelopt", "quant_algo": kind.upper()}
    if storage in ("nf4-dq", "bnb-int8"):
        four = storage == "nf4-dq"
        more = {"bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": True} if four else {}
        return {"quant_method": "bitsandbytes", "load_in_4bit": four, "load_in_8bit": not four, **more}
    if storage == "mxfp4":
        return {"quant_method": "quark", "global_quant_config": {"weight": {"dtype": "fp4", "group_size": 32}}}
    if storage == "mxfp8":
        return {"quant_method": "auto-round", "data_type": "mx_fp", "bits": 8, "group_size": 32}
    if storage == "torchao-int4":
        return {"quant_method": "torchao", "quant_type": "int4_weight_only", "quant_type_kwargs": {"group_size": group}}
    if storage == "torchao-fp8":
        return {"quant_method": "torchao", "quant_type": "float8_dynamic_activation_float8_weight"}
    if kind == "mlx":
        return {"quant_method": "mlx", "bits": int(bits[0]), "group_size": 64 if group_size is None else group_size}
    if kind == "hqq":
        weights = {"nbits": int(bits[0]), "group_size": 64 if group_size is None else group_size}
        return {"quant_method": "hqq", "quant_config": {"weight_quant_params": weights}}
    if kind in ("exl2", "exl3"):
        return {"quant_method": kind, "bits": float(bits.removesuffix("bpw")), "head_bits": 6.0}
    return {"quant_method": "gguf", "mix": storage.upper()}


def _compressed(
    bits: int, kind: str, strategy: str, layout: str, *, group_size: int | None = None, symmetric: bool = True
) -> dict[str, object]:
    weights: dict[str, object] = {"num_bits": bits, "type": kind, "strategy": strategy, "symmetric": symmetric}
    if group_size is not None:
        weights["group_size"] = group_size
    return {
        "quant_method": "compressed-tensors",
        "format": layout,
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}},
    }
