"""Which linear layers `--lora-target-modules` means: endings of module names, one regular expression, or all-linear."""

from __future__ import annotations

import re
from typing import Final

from planner.errors import UsageError
from planner.model.spec import Layer, ModelSpec
from planner.model.tensor import Role, Tensor
from planner.training.recipe import Recipe, kernels
from planner.training.states.module_expression import expression
from planner.training.states.peft_targets import (
    Found,
    all_linear_names,
    is_linear_layer,
    linear_names_in_4,
    module_of,
    names_matching,
    parameters_of,
    place_of,
    renamed,
)

# What stacks that write their own modules call the projections (litgpt lora.py, torchtune lora builders).
_ALIASES: Final = {
    "query": "q_proj",
    "key": "k_proj",
    "value": "v_proj",
    "projection": "o_proj",
    "q": "q_proj",
    "k": "k_proj",
    "v": "v_proj",
    "output_proj": "o_proj",
}
# The fused module that holds a projection where the checkpoint has it in one matrix.
_FUSED_HOLDERS: Final = {
    "q_proj": ("qkv_proj", "query_key_value", "c_attn", "Wqkv", "W_pack"),
    "k_proj": ("qkv_proj", "query_key_value", "c_attn", "Wqkv", "W_pack"),
    "v_proj": ("qkv_proj", "query_key_value", "c_attn", "Wqkv", "W_pack"),
    "o_proj": ("dense", "out_proj", "c_proj"),
    "gate_proj": ("gate_up_proj",),
    "up_proj": ("gate_up_proj", "dense_h_to_4h", "fc1", "c_fc"),
    "down_proj": ("dense_4h_to_h", "fc2"),
}


class Targets:
    """PEFT's target_modules: endings of module names, one regular expression, or all-linear.

    Args:
        through_peft: adapters are PEFT's, on a model as transformers 5 builds it.
    """

    def __init__(self, asked: tuple[str, ...], spec: ModelSpec, recipe: Recipe) -> None:
        own = kernels(recipe)
        self.own_modules = bool(own.get("own_modules"))
        self.through_peft = not self.own_modules and not own.get("loops_over_experts")
        self.model_type, self.layer_prefix, self.hidden_size = spec.model_type, spec.layer_prefix, spec.hidden_size
        self.asked = asked
        self.all_linear = asked == ("all-linear",)
        wanted: list[str] = []
        own_names = {
            part for layer in spec.layers[:1] for t in layer.tensors(spec.hidden_size) for part in t.name.split(".")
        }
        for name in asked:
            if name in ("output", "head") and self.own_modules:
                wanted.append("lm_head")  # torchtune's apply_lora_to_output, litgpt's lora_head
            elif name == "mlp":
                wanted += ["gate_proj", "up_proj", "down_proj"]
            else:
                wanted.append(name if name in own_names else _ALIASES.get(name, name))
        self.names = tuple(dict.fromkeys(wanted))
        self.takes_mlp = self.all_linear or any(name in self.names for name in ("gate_proj", "up_proj", "down_proj"))
        self.pattern = expression(asked[0]) if len(asked) == 1 and re.search(r"[*|()\[\]\\^$]", asked[0]) else None
        self.parameters: dict[str, int] = {}
        if not self.own_modules:
            self._refuse_others(spec)
        if self.through_peft and renamed(spec.model_type):
            self._rename(spec)

    def _refuse_others(self, spec: ModelSpec) -> None:
        """What is no linear layer: embeddings, whose adapters are not modelled; blocks and norms, which PEFT refuses.

        Raises:
            UsageError: a name or the expression leads to one.
        """
        asked = f"--lora-target-modules {','.join(self.asked)}"
        for tensor in spec.embeddings:
            name = module_of(tensor.name)
            if self._named(name):
                also = " (and the output matrix is tied to it)" if spec.tie_word_embeddings else ""
                raise UsageError(
                    f"{asked}: adapters on the embedding {name}{also} are not modelled; name linear layers, or use"
                    " --modules-to-save",
                    field="lora_target_modules",
                )
        if spec.tie_word_embeddings and self._named("lm_head"):
            raise UsageError(
                f"{asked}: the output matrix is tied to the embedding; adapters on it are not modelled",
                field="lora_target_modules",
            )
        if self.pattern is None or renamed(spec.model_type):
            return
        for index, layer in enumerate(spec.layers):
            start = f"{self.layer_prefix}.{index}"
            for tensor in layer.tensors(self.hidden_size):
                module = f"{start}.{tensor.name}".rpartition(".")[0]
                containers = [module] if tensor.role is Role.NORM else []
                while module != start:
                    module = module.rpartition(".")[0]
                    containers.append(module)
                found = next((each for each in containers if self.pattern.fullmatch(each)), None)
                if found:
                    raise UsageError(
                        f"{asked} matches {found}, which is no linear layer, and PEFT refuses it",
                        field="lora_target_modules",
                    )

    def _rename(self, spec: ModelSpec) -> None:
        """Resolve all-linear or the expression to names, and take experts and router from them."""
        named = frozenset(self.names)
        if self.all_linear:
            named = all_linear_names(spec)
        elif self.pattern is not None:
            named = names_matching(self.pattern, spec)
        left, self.parameters = parameters_of(named, spec.model_type)
        self.names, self.all_linear, self.pattern = tuple(sorted(left)), False, None

    def chosen(self, layer: Layer, index: int) -> tuple[str, ...]:
        """Names of this layer that an expression matches: it may tell one layer from another."""
        if self.pattern is None:
            return ()
        prefix = f"{self.layer_prefix}.{index}."
        names: list[str] = []
        for tensor in layer.tensors(self.hidden_size):
            module = module_of(tensor.name)
            names += linear_names_in_4(module, self.model_type) if tensor.num_experts else (module,)
        return tuple(name for name in names if self.pattern.fullmatch(prefix + name))

    def place(self, tensor: Tensor, name: str) -> Found | None:
        """The tensor's adapter; None when it has none.

        Raises:
            UsageError: a name leads to a router that is no linear layer, which PEFT refuses.
        """
        if self.own_modules:
            adapted = "lm_head" in self.names if tensor.role is Role.LM_HEAD else self.match(tensor, name)
            return Found() if adapted else None
        if not self.through_peft and tensor.num_experts:
            names = linear_names_in_4(name, self.model_type)
            matching = sum(self.all_linear or self._named(each) for each in names)
            return Found(parts=matching, of=len(names)) if matching else None
        wrapped = place_of(tensor, self.parameters)
        if wrapped is not None:
            return wrapped
        if tensor.num_experts or not self.match(tensor, name):
            return None
        if tensor.role is Role.ROUTER and not self._is_linear_layer(tensor):
            raise UsageError(
                f"--lora-target-modules {','.join(self.asked)}: {name} is no linear layer in transformers"
                f" {5 if self.through_peft else 4}, and PEFT refuses it",
                field="lora_target_modules",
            )
        return Found()

    def match(self, tensor: Tensor, name: str) -> bool:
        if self.all_linear:
            return self._is_linear_layer(tensor)
        return self._named(name.removesuffix(".weight"))

    def _is_linear_layer(self, tensor: Tensor) -> bool:
        return is_linear_layer(tensor, self.model_type, before_5=not self.through_peft)

    def _named(self, module: str) -> bool:
        if self.pattern is not None:
            return self.pattern.fullmatch(module) is not None
        for wanted in self.names:
            if module == wanted or module.endswith("." + wanted):
                return True
            holders = _FUSED_HOLDERS.get(wanted, ())
            if any(module.endswith("." + holder) for holder in holders) and self._in_block(wanted, module):
                return True
        return False

    @staticmethod
    def _in_block(wanted: str, module: str) -> bool:
        """`dense` and `c_proj` name modules of the attention and of the MLP; only the attention's are o_proj."""
        return wanted != "o_proj" or not re.search(r"\bmlp\.", module)
