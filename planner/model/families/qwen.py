"""Qwen, the first generation: one biased matrix for q, k and v, a gated MLP of half the stated width.

Source: Qwen/Qwen-7B `modeling_qwen.py` and `configuration_qwen.py` (remote code); vLLM 0.19.1 models/qwen.py.
"""

from __future__ import annotations

from dataclasses import replace

from planner.model.config import RawConfig
from planner.model.families.decoder import assemble, attention_of, read_dimensions, read_rotary_dim, refuse
from planner.model.kinds.attention import AttentionNames
from planner.model.kinds.feed_forward import Mlp, MlpNames
from planner.model.spec import Layer, ModelSpec
from planner.model.tensor import Norm

_SIZES = {
    "vocab_size": 151_936,
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "max_position_embeddings": 8192,
}


def build(raw: RawConfig) -> ModelSpec:
    """The spec of a qwen config.

    Raises:
        ConfigError: a field that is missing or makes no sense.
        UnsupportedArchitecture: a vision part (Qwen-VL), heads that do not span the width.
    """
    if raw.has("visual"):
        raise refuse(raw, "visual", "is a vision tower (Qwen-VL), which is not modelled")
    dims = read_dimensions(raw, defaults=_SIZES)
    head_dim = raw.integer("kv_channels", default=dims.head_dim, minimum=1, maximum=1 << 14)
    dims = replace(dims, head_dim=head_dim, max_position_embeddings=_positions(raw, dims.max_position_embeddings))
    width = raw.integer("intermediate_size", default=22_016, minimum=2)
    if width % 2:
        raise raw.error("intermediate_size", f"is {width}; it is twice the width of the MLP, so even")
    attention = attention_of(
        dims,
        rotary_dim=read_rotary_dim(raw, head_dim),
        bias=True,
        output_bias=not raw.flag("no_bias", default=True),
        fused=True,
        names=AttentionNames(block="attn", fused="c_attn", output="c_proj"),
    )
    mlp = Mlp(
        intermediate_size=width // 2,
        bias=not raw.flag("no_bias", default=True),
        names=MlpNames(gate="w2", up="w1", down="c_proj"),
    )
    layer = Layer(
        mixers=(attention,), feed_forward=mlp, norms=(Norm("ln_1", dims.hidden_size), Norm("ln_2", dims.hidden_size))
    )
    return assemble(
        raw,
        dims,
        (layer,) * dims.num_hidden_layers,
        final_norm=Norm("transformer.ln_f", dims.hidden_size),
        rotary_dim=attention.rotary_dim,
        layer_prefix="transformer.h",
        embedding_name="transformer.wte.weight",
    )


def _positions(raw: RawConfig, found: int) -> int:
    """seq_length is what the model was trained at; the larger of it and max_position_embeddings is accepted."""
    return max(found, raw.integer("seq_length", default=found, minimum=1, maximum=1 << 31))
