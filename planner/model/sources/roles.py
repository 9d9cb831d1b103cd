"""What each tensor of a file is for, and how many bytes each purpose takes.

A name that the inventory has, or that is one of its modules' quantised parts (qweight, scales, weight_scale_inv, ...),
gets the inventory's role. Others go by the words in their names: experts are stacked in the inventory and single in
most checkpoints, and GGUF has names of its own (llama.cpp `gguf-py/gguf/constants.py`, TENSOR_NAMES).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from planner.model.sources.stored import StoredTensor
from planner.model.spec import ModelSpec
from planner.model.tensor import Role
from planner.model.tensors import draft_tensors, tensors

# Last words of a name that are parts of a module's quantised weight.
_PARTS: Final = re.compile(
    r"\.(weight|bias|qweight|qzeros|scales|g_idx|weight_packed|weight_scale(_inv|_2)?|weight_shape|weight_g_idx"
    r"|weight_zero_point|input_scale|k_scale|v_scale|absmax|quant_map|nested_absmax|nested_quant_map"
    r"|quant_state\.\w+|SCB|weight_format)$"
)
# Tried in this order on the whole name.
_WORDS: Final = (
    (r"(^|\.)(vision_tower|vision_model|visual|vision_encoder|vpm|v)\.", Role.VISION),
    (r"(^|\.)(audio_tower|audio_encoder|audio_model|a)\.(?!proj)", Role.AUDIO),
    (r"(multi_modal_projector|mm_projector|^mm\.|embed_vision|embed_audio)", Role.PROJECTOR),
    (r"(^|\.)(mtp|nextn|mtp_\w+)(\.|$)", Role.DRAFT),
    (r"shared_expert|shexp", Role.SHARED_EXPERT),
    (r"ffn_gate_inp|exp_probs|\.router\.|correction_bias|\.gate\.(weight|bias)$", Role.ROUTER),
    (r"experts|_exps", Role.EXPERT),
    (r"indexer", Role.INDEXER),
    (r"norm|\.ln_|layernorm", Role.NORM),
    (r"wpe|position_embd|embed_positions|position_embeddings", Role.POSITION),
    (r"^output\.|lm_head|embed_out", Role.LM_HEAD),
    (r"token_embd|embed_tokens|wte|word_embeddings|tok_embeddings|embed_in", Role.EMBEDDING),
    (r"ssm_|mamba|mixer\.|linear_attn|time_mix|shortconv|\.conv\.", Role.RECURRENT),
    (r"attn|attention|self_attn", Role.ATTENTION),
    (r"mlp|ffn|feed_forward", Role.MLP),
)
_PATTERNS: Final = tuple((re.compile(pattern), role) for pattern, role in _WORDS)


def stored_bytes_by_role(stored: Iterable[StoredTensor], spec: ModelSpec) -> dict[Role, int]:
    """Bytes of the file's tensors by what they are for; sums to all of them.

    Args:
        stored: tensors of the files the model was read from (`Model.stored`).
        spec: the model.
    """
    known = {_module(tensor.name): tensor.role for tensor in tensors(spec)}
    known.update({_module(tensor.name): Role.DRAFT for tensor in draft_tensors(spec)})
    found: dict[Role, int] = {}
    for tensor in stored:
        role = known.get(_module(tensor.name)) or _by_words(tensor.name, len(spec.layers))
        found[role] = found.get(role, 0) + tensor.nbytes
    return found


def _module(name: str) -> str:
    return _PARTS.sub("", name)


def _by_words(name: str, layers: int) -> Role:
    block = re.match(r"(?:blk|model\.layers)\.(\d{1,6})\.", name)
    if block and int(block[1]) >= layers:
        return Role.DRAFT
    return next((role for pattern, role in _PATTERNS if pattern.search(name)), Role.OTHER)
