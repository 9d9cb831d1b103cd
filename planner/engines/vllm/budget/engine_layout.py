"""Weights that vLLM allocates although no file has them, and those of a file that it leaves out.

    Gemma 3n, Gemma 4   key and value projections in every layer: in those that use an earlier layer's cache, and the
                        value projection where values are keys (loaded from the key's)
    Mistral 3, Pixtral  the original repositories are read in Mistral's own format, whose tower is whole on every GPU;
                        exports are in transformers' format, whose tower is cut
    MLA in 0.7.x        the products of query and key, and of value and output projection, beside the originals

Left out: a tower's layers behind the one that features are taken from, and then the norm
after the last (LLaVA-1.5 and LLaVA-NeXT read the last but one).

Source: vLLM 0.6.0 to 0.19.1 `models/llava.py` (init_vision_tower_for_llava), `models/clip.py`, `models/siglip.py`
(num_hidden_layers_override, require_post_norm); 0.28.0 `models/gemma4.py` Gemma4Attention (one QKVParallelLinear
whatever the layer), `models/gemma3n.py`, `models/pixtral.py` (VisionTransformer and PixtralHFVisionModel);
0.7.1 to 0.7.3 `attention/backends/mla` (VLLM_MLA_PERFORM_MATRIX_ABSORPTION, on by default, gone in 0.8).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from planner.model.kinds.attention import Attention
from planner.model.kinds.feed_forward import Mlp
from planner.model.kinds.latent import LatentAttention
from planner.model.model import Model
from planner.model.spec import Layer, ModelSpec, Stack
from planner.model.tensor import Role

_FULL_PROJECTIONS: Final = ("gemma3n", "gemma4")
_ORIGINAL_TOWERS: Final = ("mistral3", "pixtral")


def engine_spec(model: Model, *, exported: bool = False, pools: bool = False) -> ModelSpec:
    """The spec with what the engine allocates besides; the model's own for every other family.

    Args:
        exported: a quantised export is planned in place of the checkpoint.
        pools: vectors or scores are given, so the head over the vocabulary is left out (models/adapters.py).
    """
    spec = _laid_out(model, exported=exported)
    if not pools:
        return spec
    key = ("engine spec without head", exported)
    found = model.memo.get(key)
    if not isinstance(found, ModelSpec):
        found = model.memo[key] = replace(spec, head=tuple(t for t in spec.head if t.role is not Role.LM_HEAD))
    return found


def _laid_out(model: Model, *, exported: bool) -> ModelSpec:
    if any(stack.unread_layers for stack in model.spec.stacks):
        return _changed(model, "read", lambda spec: replace(spec, stacks=tuple(_read(s) for s in spec.stacks)))
    if exported and model.spec.model_type in _ORIGINAL_TOWERS and model.spec.stacks:
        return _changed(model, "export", lambda spec: replace(spec, stacks=tuple(_cut(s) for s in spec.stacks)))
    if not model.spec.model_type.startswith(_FULL_PROJECTIONS):
        return model.spec
    return _changed(model, "projections", _with_projections)


def _changed(model: Model, name: str, change: Callable[[ModelSpec], ModelSpec]) -> ModelSpec:
    found = model.memo.get(("engine spec", name))
    if not isinstance(found, ModelSpec):
        found = model.memo["engine spec", name] = change(model.spec)
    return found


def _with_projections(spec: ModelSpec) -> ModelSpec:
    known: dict[int, Layer] = {}
    return replace(spec, layers=tuple(known.setdefault(id(layer), _projected(layer)) for layer in spec.layers))


def _read(stack: Stack) -> Stack:
    """The tower up to the last layer that is read."""
    if not stack.unread_layers:
        return stack
    return replace(
        stack,
        layers=stack.layers[: -stack.unread_layers],
        tensors=tuple(t for t in stack.tensors if ".post_layernorm." not in t.name),
    )


def _cut(stack: Stack) -> Stack:
    """The tower with its linear layers cut over the GPUs."""
    layers = []
    for layer in stack.layers:
        mixers = tuple(replace(m, replicated=False) if isinstance(m, Attention) else m for m in layer.mixers)
        block = layer.feed_forward
        block = replace(block, replicated=False) if isinstance(block, Mlp) else block
        layers.append(replace(layer, mixers=mixers, feed_forward=block))
    return replace(stack, layers=tuple(layers))


def _projected(layer: Layer) -> Layer:
    mixers = tuple(
        replace(mixer, owns_key_value=True, value_from_key=False) if isinstance(mixer, Attention) else mixer
        for mixer in layer.mixers
    )
    return layer if mixers == layer.mixers else replace(layer, mixers=mixers)


def absorbed_bytes(model: Model, version: tuple[int, int, int], *, layers: slice, ways: int, element_bytes: int) -> int:
    """Bytes of the products that MLA keeps in 0.7.1 to 0.7.3, on one GPU.

    W_Q_UK and W_QR: query inputs x heads x (kv_lora_rank + rope); W_UV_O: heads x kv_lora_rank x hidden.
    """
    if not (0, 7, 1) <= version < (0, 8, 0):
        return 0
    total = 0
    for layer in model.spec.layers[layers]:
        for mixer in layer.mixers:
            if isinstance(mixer, LatentAttention):
                heads, rank = mixer.num_attention_heads // ways, mixer.kv_lora_rank
                inputs = mixer.q_lora_rank or model.spec.hidden_size
                total += heads * (inputs * (rank + mixer.qk_rope_head_dim) + rank * model.spec.hidden_size)
    return total * element_bytes
