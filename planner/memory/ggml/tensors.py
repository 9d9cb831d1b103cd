"""What llama.cpp would call each of our tensors, as far as its quantiser cares.

Sources: llama.cpp `gguf-py/gguf/tensor_mapping.py` and `src/llama-quant.cpp` (read at 007dbbf3, 2026-08).
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from planner.model.tensor import Role, Tensor


class Kind(Enum):
    """The quantiser's categories; FIXED tensors are never quantised."""

    OUTPUT = "output"
    TOKEN_EMBEDDING = "token_embd"
    QUERY = "attn_q"
    KEY = "attn_k"
    VALUE = "attn_v"
    FUSED_QKV = "attn_qkv"
    ATTENTION_OUTPUT = "attn_output"
    FFN_UP = "ffn_up"
    FFN_GATE = "ffn_gate"
    FFN_DOWN = "ffn_down"
    OTHER = "other"
    TOWER = "mmproj"
    FIXED = "f32"


_TOWERS: Final = frozenset({Role.VISION, Role.AUDIO, Role.PROJECTOR})
_FEED_FORWARD: Final = frozenset({Role.MLP, Role.EXPERT, Role.SHARED_EXPERT})
_ATTENTION_NAMES: Final = {
    **dict.fromkeys(("q_proj", "query", "wq", "q"), Kind.QUERY),
    **dict.fromkeys(("k_proj", "key", "wk", "k"), Kind.KEY),
    **dict.fromkeys(("v_proj", "value", "wv", "v"), Kind.VALUE),
    **dict.fromkeys(("qkv_proj", "query_key_value", "c_attn", "Wqkv", "att_proj", "qkv"), Kind.FUSED_QKV),
    **dict.fromkeys(("o_proj", "out_proj", "dense", "c_proj", "wo", "attn_out", "o"), Kind.ATTENTION_OUTPUT),
}
_FEED_FORWARD_NAMES: Final = {
    **dict.fromkeys(("down_proj", "w2", "fc2", "c_proj", "dense_4h_to_h", "fc_out", "ff_out"), Kind.FFN_DOWN),
    **dict.fromkeys(("gate_proj", "w1"), Kind.FFN_GATE),
    **dict.fromkeys(("up_proj", "w3", "fc1", "c_fc", "dense_h_to_4h", "gate_up_proj", "fc_in", "ff_proj"), Kind.FFN_UP),
}


def kind_of(tensor: Tensor) -> Kind:
    """The category of a tensor."""
    role = tensor.role
    if role is Role.EMBEDDING and len(tensor.shape) == 2:
        return Kind.TOKEN_EMBEDDING
    if role is Role.LM_HEAD and len(tensor.shape) == 2:
        return Kind.OUTPUT
    if role in _TOWERS:
        return Kind.TOWER
    if not tensor.linear or role is Role.ROUTER:
        return Kind.FIXED
    path = tensor.name.removesuffix(".weight")
    last = path.rpartition(".")[2]
    if role is Role.ATTENTION:
        return _ATTENTION_NAMES.get(last, Kind.OTHER)
    if role in _FEED_FORWARD:
        return _FEED_FORWARD_NAMES.get(last, Kind.OTHER)
    return Kind.OTHER


def layer_index(tensor: Tensor) -> int:
    """The layer that a tensor's name says it is in; 0 outside the layers."""
    for word in tensor.name.split("."):
        if word.isdigit():
            return int(word)
    return 0
