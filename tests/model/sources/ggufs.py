"""GGUF headers as the converter would write them from a config.json: keys and the tensors that decide something."""

from __future__ import annotations

import json

from planner.model.names.bundled import bundled_names
from planner.model.sources.gguf.reader import GgufHeader, SkippedArray, Value
from planner.model.sources.stored import StoredTensor

# our name of a key in config.json (first that is present) -> key of the format
_KEYS = {
    "context_length": ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "max_sequence_length"),
    "embedding_length": ("hidden_size", "n_embd", "d_model"),
    "block_count": ("num_hidden_layers", "n_layer", "n_layers", "num_layers"),
    "feed_forward_length": ("intermediate_size", "ffn_hidden_size", "n_inner"),
    "attention.head_count": ("num_attention_heads", "n_head", "n_heads"),
    "attention.head_count_kv": ("num_key_value_heads", "num_kv_heads"),
    "attention.sliding_window": ("sliding_window",),
    "expert_count": ("num_local_experts", "num_experts", "n_routed_experts"),
    "expert_used_count": ("num_experts_per_tok", "experts_per_token"),
    "expert_feed_forward_length": ("moe_intermediate_size",),
    "expert_shared_feed_forward_length": ("shared_expert_intermediate_size",),
    "expert_shared_count": ("n_shared_experts",),
    "leading_dense_block_count": ("first_k_dense_replace",),
    "attention.q_lora_rank": ("q_lora_rank",),
    "attention.kv_lora_rank": ("kv_lora_rank",),
    "attention.key_length": ("head_dim",),
}


def bundled(name: str) -> dict[str, object]:
    """A bundled config."""
    values = json.loads(bundled_names()[name].read_text())
    assert isinstance(values, dict)
    return values


def header(architecture: str, config: dict[str, object], *present: str, **more: Value) -> GgufHeader:
    """A header with the keys of a config and tensors of these names ("attn_q.bias": in the first layer).

    Args:
        more: further keys, "__" for ".".
    """
    metadata: dict[str, Value] = {"general.architecture": architecture, "tokenizer.ggml.tokens": SkippedArray(7)}
    for key, names in _KEYS.items():
        value = next((config[name] for name in names if config.get(name) is not None), None)
        if isinstance(value, int):
            metadata[f"{architecture}.{key}"] = value
    metadata.update({f"{architecture}.{key.replace('__', '.')}": value for key, value in more.items()})
    hidden = metadata[f"{architecture}.embedding_length"]
    vocabulary = config.get("vocab_size") or config.get("padded_vocab_size")
    assert isinstance(hidden, int) and isinstance(vocabulary, int)
    tensors = [StoredTensor("token_embd.weight", "F16", (vocabulary, hidden), 2 * vocabulary * hidden, "m.gguf")]
    for name in present:
        full = name if name.startswith(("output.", "token_embd")) else f"blk.0.{name}"
        tensors.append(StoredTensor(full, "F32", (1,), 4, "m.gguf"))
    return GgufHeader(version=3, metadata=metadata, tensors=tuple(tensors))
