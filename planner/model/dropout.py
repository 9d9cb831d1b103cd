"""Where a model drops out while it trains, and with what probability, as its config says.

Every model type of transformers 5.24 drops out its attention weights by `attention_dropout` unless `_KEYS` has it
otherwise. Defaults are the config class's own, for keys that a config leaves out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from planner.model.config import RawConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Dropout:
    """Probabilities, 0 where there is none.

    Args:
        attention: of the attention weights.
        mixer: of the attention block's output.
        feed_forward: of the feed-forward's output.
        inner: of what the feed-forward's last matrix reads.
        branches: of the sum of both outputs, where they stand side by side (Falcon).
        embedding: of the embedding's output.
    """

    attention: float = 0.0
    mixer: float = 0.0
    feed_forward: float = 0.0
    inner: float = 0.0
    branches: float = 0.0
    embedding: float = 0.0


NO_DROPOUT: Final = Dropout()
_OLD_NAMES: Final = {
    "attention": "attn_pdrop",
    "mixer": "resid_pdrop",
    "feed_forward": "resid_pdrop",
    "embedding": "embd_pdrop",
}
_BERT: Final = {
    "attention": "attention_probs_dropout_prob",
    "mixer": "hidden_dropout_prob",
    "feed_forward": "hidden_dropout_prob",
    "embedding": "hidden_dropout_prob",
}
_SEQ2SEQ: Final = {
    "attention": "attention_dropout",
    "mixer": "dropout",
    "feed_forward": "dropout",
    "inner": "activation_dropout",
    "embedding": "dropout",
}
# model_type -> place -> key. Source: transformers 5.24 modeling_*.py of each.
_KEYS: Final[dict[str, dict[str, str]]] = {
    "gpt2": _OLD_NAMES,
    "gpt_bigcode": _OLD_NAMES,
    "gptj": _OLD_NAMES,
    "gpt_neo": {
        "attention": "attention_dropout",
        "mixer": "resid_dropout",
        "feed_forward": "resid_dropout",
        "embedding": "embed_dropout",
    },
    "gpt_neox": {
        "attention": "attention_dropout",
        "mixer": "hidden_dropout",
        "feed_forward": "hidden_dropout",
        "embedding": "hidden_dropout",
    },
    "opt": {"attention": "attention_dropout", "mixer": "dropout", "feed_forward": "dropout"},
    "bloom": {"attention": "attention_dropout", "mixer": "hidden_dropout", "feed_forward": "hidden_dropout"},
    "phi": {**_OLD_NAMES, "attention": "attention_dropout"},
    "phi3": {"attention": "attention_dropout", "mixer": "resid_pdrop", "feed_forward": "resid_pdrop"},
    "stablelm": {"attention": "attention_dropout", "feed_forward": "hidden_dropout"},
    "starcoder2": {
        "attention": "attention_dropout",
        "mixer": "residual_dropout",
        "feed_forward": "residual_dropout",
        "embedding": "embedding_dropout",
    },
    "bert": _BERT,
    "roberta": _BERT,
    "xlm-roberta": _BERT,
    "mpnet": _BERT,
    "deberta-v2": _BERT,
    "new": _BERT,
    "jina_embeddings_v3": _BERT,
    "t5": {
        "attention": "dropout_rate",
        "mixer": "dropout_rate",
        "feed_forward": "dropout_rate",
        "inner": "dropout_rate",
        "embedding": "dropout_rate",
    },
    "bart": _SEQ2SEQ,
    "whisper": _SEQ2SEQ,
    "distilbert": {"attention": "attention_dropout", "feed_forward": "dropout", "embedding": "dropout"},
    "modernbert": {
        "attention": "attention_dropout",
        "mixer": "attention_dropout",
        "inner": "mlp_dropout",
        "embedding": "embedding_dropout",
    },
}
_DEFAULTS: Final[dict[tuple[str, str], float]] = {
    ("gpt_bigcode", "attn_pdrop"): 0.1,
    ("gpt_bigcode", "resid_pdrop"): 0.1,
    ("gpt_bigcode", "embd_pdrop"): 0.1,
    ("gpt2", "attn_pdrop"): 0.1,
    ("gpt2", "resid_pdrop"): 0.1,
    ("gpt2", "embd_pdrop"): 0.1,
    ("opt", "dropout"): 0.1,
    ("t5", "dropout_rate"): 0.1,
    ("bart", "dropout"): 0.1,
    ("distilbert", "attention_dropout"): 0.1,
    ("distilbert", "dropout"): 0.1,
    **{
        (kind, key): 0.1
        for kind in ("bert", "roberta", "xlm-roberta", "mpnet", "deberta-v2", "new", "jina_embeddings_v3")
        for key in _BERT.values()
    },
}


def read_dropout(raw: RawConfig, model_type: str) -> Dropout:
    """The dropout of a config; `model_type` is the language model's, whose keys may lie in `text_config`."""
    raw = raw.section("text_config") or raw
    if model_type == "falcon":
        return _falcon(raw)
    if model_type == "mpt":
        # one probability for everything, modeling_mpt.py MptMLP, MptBlock; resid_pdrop and emb_pdrop are not read
        section = raw.section("attn_config")
        one = _probability(section, "attn_pdrop", 0.0) if section is not None else 0.0
        return Dropout(attention=one, mixer=one, feed_forward=one)
    keys = _KEYS.get(model_type, {"attention": "attention_dropout"})
    found = {place: _probability(raw, key, _DEFAULTS.get((model_type, key), 0.0)) for place, key in keys.items()}
    return Dropout(**found)


def _falcon(raw: RawConfig) -> Dropout:
    """Attention weights only with ALiBi; the attention's output by `attention_dropout` where it stands alone.

    Source: transformers 5.24 modeling_falcon.py FalconAttention.forward, FalconDecoderLayer.forward.
    """
    attention, hidden = (_probability(raw, name, 0.0) for name in ("attention_dropout", "hidden_dropout"))
    weights = attention if raw.flag("alibi", default=False) else 0.0
    if raw.flag("new_decoder_architecture", default=False) or raw.flag("parallel_attn", default=True):
        return Dropout(attention=weights, branches=hidden)
    return Dropout(attention=weights, mixer=attention, feed_forward=hidden)


def _probability(raw: RawConfig, name: str, default: float) -> float:
    value = raw.number(name, default=default)
    if not 0 <= value <= 1:
        raise raw.error(name, f"is {value}; expected a probability")
    return value
