"""What PEFT 0.21 adapts of a model as transformers 5 builds it, for `target_modules` by name, expression or all-linear.

Modules that are linear layers are adapted by the ending of their name. Experts are parameters stacked over all experts,
and most routers are modules of their own that hold one matrix, so neither is a linear layer. For the model types of
`_RENAMED` PEFT takes the names that experts and router had in transformers 4, which "all-linear" includes, for those
parameters (`ParamWrapper`):

gate and up    one adapter on the joined matrix, of twice the rank; neither can be had without the other
down, router   an adapter of the rank

Names that are renamed are no module names any longer, so a dense feed-forward or a shared expert with matrices of the
same names goes without. Other types' experts are not adapted, and naming a router that is no linear layer is an error.

Sources: peft 0.21.2 utils/transformers_weight_conversion.py _convert_peft_config_moe, _resolve_string_target_modules,
_MOE_TARGET_MODULE_MAPPING, _MOE_FUSED_TARGETS; transformers 5.24 conversion_mapping.py _MODEL_TO_CONVERSION_PATTERN.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from planner.errors import UsageError
from planner.model.spec import ModelSpec
from planner.model.tensor import Role, Tensor

_ROUTER: Final = "gate.weight"
_MIXTRAL: Final = {"gate": _ROUTER, "w1": "gate_up_proj", "w3": "gate_up_proj", "w2": "down_proj"}
_QWEN: Final = {"gate": _ROUTER, "gate_proj": "gate_up_proj", "up_proj": "gate_up_proj", "down_proj": "down_proj"}
# Qwen2-MoE itself, after which transformers names the pattern, is not a key of the mapping.
_RENAMED: Final[dict[str, dict[str, str]]] = {
    **dict.fromkeys(("mixtral", "minimax", "minimax_m2"), _MIXTRAL),
    **dict.fromkeys(
        (
            "afmoe",
            "cohere2_moe",
            "deepseek_v2",
            "deepseek_v3",
            "deepseek_v32",
            "dots1",
            "ernie4_5_moe",
            "exaone_moe",
            "flex_olmo",
            "glm4_moe",
            "glm4_moe_lite",
            "glm4v_moe",
            "glm_moe_dsa",
            "hunyuan_v1_moe",
            "longcat_flash",
            "olmoe",
            "qwen3_moe",
            "qwen3_next",
            "qwen3_omni_moe",
            "qwen3_omni_moe_thinker",
            "qwen3_omni_moe_text",
            "sarvam_mla",
            "solar_open",
        ),
        _QWEN,
    ),
}
# Experts that were stacked parameters in transformers 4 already.
_STACKED_IN_4: Final = frozenset(
    {
        "gpt_oss",
        "llama4_text",
        "dbrx",
        "granitemoe",
        "granitemoehybrid",
        "granitemoeshared",
        "jetmoe",
        "qwen3_vl_moe_text",
    }
)
# Routers that are linear layers in transformers 5.24; every other is a module of its own.
_LINEAR_ROUTERS: Final = frozenset({"phimoe", "llama4_text", "hunyuan_v1_moe", "longcat_flash", "dbrx"})
# transformers 4.57.6: more routers were.
_LINEAR_ROUTERS_BEFORE_5: Final = frozenset(
    {
        "ernie4_5_moe",
        "flex_olmo",
        "granitemoe",
        "granitemoehybrid",
        "granitemoeshared",
        "jamba",
        "jetmoe",
        "minimax",
        "mixtral",
        "olmoe",
        "qwen2_moe",
        "qwen3_moe",
        "qwen3_next",
        "qwen3_omni_moe_text",
    }
)
# Of the former, those whose forward returns more than the scores: PEFT's linear layer, put in their place, fails on it.
_TUPLE_ROUTERS: Final = frozenset({"phimoe", "llama4_text"})
_LINEAR_GATES: Final = "shared_expert_gate"


@dataclass(frozen=True, slots=True)
class Found:
    """An adapter's place.

    Args:
        ranks: how many times the asked rank it has.
        merges: the forward runs with the sum of matrix and adapter (`ParamWrapper`).
        parts, of: so many of the `of` equal parts of the matrix's rows (gate, up) have an adapter each.
    """

    ranks: int = 1
    merges: bool = False
    parts: int = 1
    of: int = 1


def renamed(model_type: str) -> Mapping[str, str]:
    """transformers 4's name of an expert's or router's matrix -> the parameter that holds it; {} for other types."""
    return _RENAMED.get(model_type, {})


def is_linear_layer(tensor: Tensor, model_type: str, *, before_5: bool = False) -> bool:
    """The tensor is the weight of an `nn.Linear` (or GPT-2's Conv1D), not of the output matrix.

    Args:
        before_5: as transformers 4 builds the model, where more routers are linear layers.
    """
    if not tensor.linear or tensor.num_experts or len(tensor.shape) != 2 or tensor.role is Role.LM_HEAD:
        return False
    if tensor.role is not Role.ROUTER:
        return True
    if tensor.name.endswith(f"{_LINEAR_GATES}.weight") or model_type in _LINEAR_ROUTERS:
        return True
    return before_5 and model_type in _LINEAR_ROUTERS_BEFORE_5


def parameters_of(names: frozenset[str], model_type: str) -> tuple[frozenset[str], dict[str, int]]:
    """What is left of the names for modules, and parameter -> how many times the rank its adapter has.

    Raises:
        UsageError: one of gate and up without the other.
    """
    mapping = renamed(model_type)
    taken: dict[str, set[str]] = {}
    left = set()
    for name in names:
        old = next((old for old in mapping if name == old or name.endswith(f".{old}")), None)
        if old is None:
            left.add(name)
        else:
            taken.setdefault(mapping[old], set()).add(old)
    for parameter, olds in taken.items():
        missing = {old for old, new in mapping.items() if new == parameter} - olds
        if missing:
            raise UsageError(
                f"--lora-target-modules: {', '.join(sorted(olds))} without {', '.join(sorted(missing))} cannot be"
                f" adapted: experts have both in one matrix, {parameter}, and PEFT refuses",
                field="lora_target_modules",
            )
    return frozenset(left), {parameter: len(olds) for parameter, olds in taken.items()}


def all_linear_names(spec: ModelSpec) -> frozenset[str]:
    """The last parts of all linear layers' names, and the renamed ones, as PEFT resolves "all-linear" for them."""
    found = set(renamed(spec.model_type))
    for layer in {id(layer): layer for layer in spec.layers}.values():
        for tensor in layer.tensors(spec.hidden_size):
            if is_linear_layer(tensor, spec.model_type):
                found.add(module_of(tensor.name).rpartition(".")[2])
    return frozenset(found)


def names_matching(pattern: re.Pattern[str], spec: ModelSpec) -> frozenset[str]:
    """The last parts of the names that an expression matches: PEFT goes on with these, in every layer."""
    mapping = renamed(spec.model_type)
    found: set[str] = set()
    for index, layer in enumerate(spec.layers):
        for tensor in layer.tensors(spec.hidden_size):
            full = f"{spec.layer_prefix}.{index}.{tensor.name}"
            name = module_of(full)
            container, _, leaf = name.rpartition(".")
            if pattern.fullmatch(name):
                found.add(leaf)
            if tensor.num_experts:
                olds = (old for old, new in mapping.items() if new == leaf)
                found.update(old for old in olds if pattern.fullmatch(f"{container}.{old}"))
    return frozenset(found)


def place_of(tensor: Tensor, parameters: Mapping[str, int]) -> Found | None:
    """The adapter of a tensor that is wrapped as a parameter."""
    for parameter, ranks in parameters.items():
        if tensor.name.endswith(f".{parameter}"):
            return Found(ranks=ranks, merges=True)
    return None


def linear_names_in_4(name: str, model_type: str) -> tuple[str, ...]:
    """The linear layers that one expert of a stacked tensor consists of as transformers 4 builds it; () if none.

    Args:
        name: the tensor's name, of which the last part is transformers 5's.

    Source: transformers 4.57.6 modeling_mixtral.py MixtralBlockSparseTop2MLP, modeling_qwen2_moe.py Qwen2MoeMLP.
    """
    if model_type in _STACKED_IN_4:
        return ()
    mapping = _MIXTRAL if model_type == "phimoe" else renamed(model_type) or _QWEN
    container, _, parameter = name.rpartition(".")
    return tuple(f"{container}.0.{old}" for old, new in mapping.items() if new == parameter)


def fails_when_adapted(tensor: Tensor, model_type: str) -> bool:
    """PEFT adapts the router, and the model's forward then stops (modeling_phimoe.py PhimoeTopKRouter.forward)."""
    return tensor.role is Role.ROUTER and model_type in _TUPLE_ROUTERS


def module_of(name: str) -> str:
    """The module that a weight belongs to; a stacked parameter stands for itself."""
    return name.removesuffix(".weight")
