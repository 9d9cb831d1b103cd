"""Heads of EAGLE and EAGLE-3: one or few Llama layers beside a target model, whose hidden states they read.

eagle    two vectors side by side (embedding and hidden state) through one matrix; no norm before the first layer; the
         embedding and the output matrix are the target's
eagle3   three of the target's hidden states through one matrix; the first layer's q, k and v read embedding and hidden
         state side by side; an output matrix of its own over draft_vocab_size rows

Sources: arXiv 2401.15077, 2503.01840; vLLM 0.19.1 models/llama_eagle.py, llama_eagle3.py.
"""

from __future__ import annotations

from dataclasses import replace

from planner.model.config import RawConfig
from planner.model.families.decoder import assemble, attention_of, read_architecture, read_dimensions, read_rotary_dim
from planner.model.kinds.feed_forward import Mlp
from planner.model.spec import Layer, ModelSpec
from planner.model.tensor import Norm, Role, linear, vocabulary_matrix

_STATES_READ = 3


def build(raw: RawConfig) -> ModelSpec:
    """The spec of an EAGLE or EAGLE-3 head, with the embedding it stores.

    Raises:
        ConfigError: a field that is missing or makes no sense.
    """
    third = "eagle3" in read_architecture(raw).lower()
    dims = read_dimensions(raw)
    hidden, rotary_dim = dims.hidden_size, read_rotary_dim(raw, dims.head_dim)
    target = raw.integer("target_hidden_size", default=hidden, minimum=1, maximum=1 << 20)
    rows = raw.integer("draft_vocab_size", default=dims.vocab_size, minimum=1, maximum=1 << 27)
    attention = attention_of(dims, rotary_dim=rotary_dim, bias=raw.flag("attention_bias", default=False))
    mlp = Mlp(intermediate_size=raw.integer("intermediate_size", minimum=1))
    norms = (Norm("input_layernorm", hidden), Norm("post_attention_layernorm", hidden))
    plain = Layer(mixers=(attention,), feed_forward=mlp, norms=norms)
    if third:
        first = replace(
            plain, mixers=(replace(attention, input_size=2 * hidden),), norms=(*norms, Norm("hidden_norm", hidden))
        )
        joint = linear("model.fc", hidden, _STATES_READ * target, Role.DRAFT)
        head = (*Norm("model.norm", hidden).tensors(), vocabulary_matrix("lm_head.weight", rows, hidden, Role.LM_HEAD))
    else:
        first = replace(plain, norms=norms[1:])
        joint = linear("model.fc", hidden, 2 * hidden, Role.DRAFT, bias=raw.flag("bias", default=False))
        head = ()
    spec = assemble(
        raw,
        dims,
        (first, *(plain,) * (dims.num_hidden_layers - 1)),
        final_norm=None,
        rotary_dim=rotary_dim,
        embeddings=(
            vocabulary_matrix("model.embed_tokens.weight", dims.vocab_size, hidden, Role.EMBEDDING),
            *joint,
        ),
        head=head,
    )
    return replace(spec, notes=(*spec.notes, "a draft head: it runs beside the model whose hidden states it reads"))
