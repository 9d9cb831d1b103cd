"""Baichuan and Baichuan 2: Llama with q, k and v in one matrix; 7B rotates, 13B has ALiBi, which keeps no table.

Source: baichuan-inc/Baichuan2-7B-Chat and -13B-Chat `modeling_baichuan.py` (remote code); vLLM 0.19.1
models/baichuan.py (rotary for a hidden size of 4,096, ALiBi otherwise).
"""

from __future__ import annotations

from planner.model.config import RawConfig
from planner.model.families.decoder import as_multi_head, assemble, attention_of, read_dimensions
from planner.model.kinds.attention import AttentionNames
from planner.model.kinds.feed_forward import Mlp
from planner.model.spec import Layer, ModelSpec
from planner.model.tensor import Norm

_SIZES = {
    "vocab_size": 125_696,
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
}
_ROTARY_WIDTH = 4096


def build(raw: RawConfig) -> ModelSpec:
    """The spec of a baichuan config.

    Raises:
        ConfigError: a field that is missing or makes no sense.
    """
    positions = raw.integer("model_max_length", default=4096, minimum=1, maximum=1 << 31)
    dims = as_multi_head(read_dimensions(raw, defaults={**_SIZES, "max_position_embeddings": positions}))
    rotates = dims.hidden_size == _ROTARY_WIDTH
    attention = attention_of(
        dims, rotary_dim=dims.head_dim if rotates else 0, fused=True, names=AttentionNames(fused="W_pack")
    )
    mlp = Mlp(
        intermediate_size=raw.integer("intermediate_size", default=11_008, minimum=1),
        activation=raw.text("hidden_act", default="silu"),
    )
    norms = (Norm("input_layernorm", dims.hidden_size), Norm("post_attention_layernorm", dims.hidden_size))
    return assemble(
        raw,
        dims,
        (Layer(mixers=(attention,), feed_forward=mlp, norms=norms),) * dims.num_hidden_layers,
        final_norm=Norm("model.norm", dims.hidden_size),
        rotary_dim=attention.rotary_dim,
    )
