"""A model's tensors as a GGUF file has them: names, bytes, layers.

From the file's own header where the model was read from one; else from the spec, stored by one of llama.cpp's mixes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from planner.memory.ggml.mixes import GgmlMix, ggml_mix
from planner.memory.ggml.tensors import Kind, kind_of
from planner.model.model import Model
from planner.model.tensor import Role, Tensor
from planner.model.tensors import layer_tensors

EXPERTS: Final = re.compile(r"\.ffn_(up|down|gate|gate_up)_(ch|)exps")
_LAYER: Final = re.compile(r"blk\.(\d+)\.", re.ASCII)
_TOWERS: Final = frozenset({Role.VISION, Role.AUDIO, Role.PROJECTOR})
_INPUT_NAMES: Final = {
    "embed_tokens_per_layer": "per_layer_token_embd",
    "per_layer_model_projection": "per_layer_model_proj",
}
#: Made with the first layer, and placed with it.
_OF_FIRST_LAYER: Final = ("per_layer_model_proj.weight",)
_SUFFIX: Final = {Role.EXPERT: "_exps", Role.SHARED_EXPERT: "_shexp"}


@dataclass(frozen=True, slots=True)
class GgufTensor:
    """One tensor.

    Args:
        layer: its layer; -1 for the input side, the number of layers for the output side.
        element_bytes: average over its elements.
    """

    name: str
    nbytes: int
    layer: int
    elements: int
    row: int

    @property
    def expert(self) -> bool:
        """Whether it holds routed experts."""
        return EXPERTS.search(self.name) is not None


def gguf_tensors(model: Model, mix: str | None) -> tuple[tuple[GgufTensor, ...], tuple[str, ...]]:
    """Every tensor that is loaded, and notes; draft layers and towers are not.

    Args:
        mix: "Q4_K_M" and so on; None where the model was read from a .gguf file.
    """
    if mix is None and model.stored and any(tensor.name.startswith("blk.") for tensor in model.stored):
        key: tuple[str, str | None] = ("llama.cpp tensors", None)
        if key not in model.memo:
            model.memo[key] = tuple(_stored(model)), ()
    else:
        key = ("llama.cpp tensors", mix)
        if key not in model.memo:
            chosen, notes = ggml_mix(mix or "F16", model.spec)
            model.memo[key] = tuple(_of_spec(model, chosen)), notes
    found: tuple[tuple[GgufTensor, ...], tuple[str, ...]] = model.memo[key]  # type: ignore[assignment]
    return found


def _stored(model: Model) -> Iterator[GgufTensor]:
    layers = len(model.spec.layers)
    for tensor in model.stored:
        numbered = _LAYER.match(tensor.name)
        layer = int(numbered[1]) if numbered else layers if tensor.name.startswith("output") else -1
        if numbered and layer >= layers:
            continue  # nextn layers are loaded with a draft context
        if tensor.name in _OF_FIRST_LAYER:
            layer = 0
        yield GgufTensor(tensor.name, tensor.nbytes, layer, tensor.numel, tensor.shape[-1] if tensor.shape else 1)
    if not any(tensor.name == "output.weight" for tensor in model.stored):
        head = next(tensor for tensor in model.stored if tensor.name == "token_embd.weight")
        yield GgufTensor("output.weight", head.nbytes, layers, head.numel, head.shape[-1])


def _of_spec(model: Model, mix: GgmlMix) -> Iterator[GgufTensor]:
    spec, layers = model.spec, len(model.spec.layers)
    for tensor in spec.embeddings:
        last = tensor.name.removesuffix(".weight").rpartition(".")[2]
        name = _INPUT_NAMES.get(last, "token_embd") + ".weight" if kind_of(tensor) is not Kind.FIXED else tensor.name
        yield _made(name, tensor, mix, 0 if name in _OF_FIRST_LAYER else -1)
        if name == "token_embd.weight" and spec.tie_word_embeddings:
            yield _made("output.weight", tensor, mix, layers)
    for tensor in spec.head:
        name = "output.weight" if kind_of(tensor) is Kind.OUTPUT else f"output_norm.{tensor.name}"
        yield _made(name, tensor, mix, layers)
    for tensor in layer_tensors(spec.layers, spec.hidden_size, spec.layer_prefix):
        if tensor.role in _TOWERS:
            continue
        words = tensor.name[len(spec.layer_prefix) + 1 :].split(".")
        layer, kind = int(words[0]), kind_of(tensor)
        plain = kind in (Kind.OTHER, Kind.FIXED)
        base = ".".join(words[1:]) if plain else f"{kind.value}{_SUFFIX.get(tensor.role, '')}.weight"
        made = _made(f"blk.{layer}.{base}", tensor, mix, layer)
        if tensor.role is Role.EXPERT and "gate_up" in tensor.name and not plain:
            half = (made.nbytes // 2, layer, made.elements // 2, made.row)
            yield GgufTensor(f"blk.{layer}.ffn_gate_exps.weight", *half)
            yield GgufTensor(f"blk.{layer}.ffn_up_exps.weight", *half)
        elif tensor.role is Role.EXPERT and plain:
            yield GgufTensor(f"blk.{layer}.ffn_up_exps.bias", made.nbytes, layer, made.elements, made.row)
        else:
            yield made


def _made(name: str, tensor: Tensor, mix: GgmlMix, layer: int) -> GgufTensor:
    stored = mix.format_of(tensor)
    assert stored is not None
    elements = tensor.numel
    return GgufTensor(
        name, stored.bytes(tensor.shape, tensor.input_dim), layer, elements, tensor.shape[tensor.input_dim]
    )
