"""GGUF metadata as the config.json it was converted from, as far as sizes go.

A GGUF file names its architecture and states its sizes under that name ("llama.block_count"). What the format does
not state is read from the tensor list: vocabulary rows, a tied head (no output.weight), biases, norms of heads.

Sources: gguf-py 0.19.0 `constants.py` (Keys); llama.cpp `convert_hf_to_gguf.py`, `src/llama-model.cpp`.
"""

from __future__ import annotations

import difflib

from planner.errors import ConfigError, UnsupportedArchitecture
from planner.model.sources.gguf.facts import GgufFacts, by_kind
from planner.model.sources.gguf.families import FAMILIES, Config
from planner.model.sources.gguf.reader import GgufHeader, SkippedArray


def config_from_gguf(header: GgufHeader, *, origin: str) -> Config:
    """A raw config with the keys that its family reads.

    Raises:
        ConfigError: a key that is missing or makes no sense; names it.
        UnsupportedArchitecture: an architecture whose metadata is not understood, or layers of different sizes.
    """
    architecture = header.metadata.get("general.architecture")
    if not isinstance(architecture, str):
        raise ConfigError(f"{origin}: general.architecture is missing, so nothing says what model it is")
    if header.metadata.get("general.type", "model") not in ("model", ""):
        kind = str(header.metadata["general.type"])[:40]
        raise UnsupportedArchitecture(f"{origin}: holds {kind!r}, not a model; pass the model's own .gguf file")
    facts = GgufFacts(architecture, header.metadata, by_kind(header.tensors), origin)
    family = FAMILIES.get(architecture)
    if family is None:
        near = difflib.get_close_matches(architecture, FAMILIES, n=3, cutoff=0.5)
        hint = f"; near: {', '.join(near)}" if near else ""
        raise UnsupportedArchitecture(
            f"{origin}: GGUF architecture {architecture[:40]!r} is not understood{hint}; pass the config.json of the"
            " model it was converted from",
            field="general.architecture",
        )
    config = _common(facts)
    config.update(family(facts))
    return config


def _common(facts: GgufFacts) -> Config:
    """What nearly every architecture states."""
    drafts = facts.optional("nextn_predict_layers") or 0
    heads = facts.size("attention.head_count")
    hidden = facts.size("embedding_length")
    head_dim = facts.optional("attention.key_length") or (hidden // heads if heads else 0)
    config: Config = {
        "hidden_size": hidden,
        "num_hidden_layers": facts.size("block_count") - drafts,
        "num_attention_heads": heads,
        "num_key_value_heads": facts.optional("attention.head_count_kv") or heads,
        "head_dim": head_dim,
        "max_position_embeddings": facts.size("context_length"),
        "vocab_size": _vocabulary(facts),
        "tie_word_embeddings": not facts.has("output.weight"),
        "attention_bias": facts.has("attn_q.bias") or facts.has("attn_qkv.bias"),
        "mlp_bias": facts.has("ffn_down.bias"),
        "sliding_window": facts.optional("attention.sliding_window") or None,
    }
    width = facts.optional("feed_forward_length")
    if width:
        config["intermediate_size"] = width
    rotary = facts.optional("rope.dimension_count")
    if rotary and head_dim and rotary < head_dim:
        config["partial_rotary_factor"] = rotary / head_dim
    scaling = _rope(facts)
    if scaling:
        config["rope_scaling"] = scaling
    return config


def _vocabulary(facts: GgufFacts) -> int:
    """Rows of the embedding; without it, the stated size or the length of the token list.

    Raises:
        ConfigError: none of them is there.
    """
    rows = facts.width("token_embd.weight", 0)
    if rows is not None:
        return rows
    stated = facts.optional("vocab_size")
    tokens = facts.metadata.get("tokenizer.ggml.tokens")
    if stated is None and isinstance(tokens, SkippedArray):
        stated = tokens.length
    if stated is None:
        raise ConfigError(
            f"{facts.origin}: neither token_embd.weight nor a token list says how large the vocabulary is"
        )
    return stated


def _rope(facts: GgufFacts) -> Config:
    """The rope section, when positions are scaled."""
    kind = facts.raw("rope.scaling.type")
    factor = facts.raw("rope.scaling.factor")
    original = facts.optional("rope.scaling.original_context_length")
    if kind not in ("linear", "yarn", "longrope"):
        return {}
    section: Config = {"rope_type": kind}
    if isinstance(factor, int | float) and not isinstance(factor, bool):
        section["factor"] = factor
    if original:
        section["original_max_position_embeddings"] = original
    return section
