"""StableLM: LayerNorm, a gated MLP, a quarter of each head rotates.

StableLM 2 12B runs attention and MLP side by side (use_parallel_residual, one norm fewer) and has a LayerNorm for
every query and key head (qk_layernorm).

Source: transformers 5.24 `models/stablelm`.
"""

from __future__ import annotations

from planner.model.config import RawConfig
from planner.model.families.decoder import assemble, attention_of, read_dimensions, read_rotary_dim
from planner.model.kinds.feed_forward import Mlp
from planner.model.spec import Layer, ModelSpec
from planner.model.tensor import Norm, layer_norm


def build(raw: RawConfig) -> ModelSpec:
    """The spec of a stablelm config.

    Raises:
        ConfigError: a field that is missing or makes no sense.
    """
    dims = read_dimensions(raw, defaults={"num_key_value_heads": 32, "max_position_embeddings": 4096})
    rotary_dim = read_rotary_dim(raw, dims.head_dim, fraction_default=0.25)
    head_norms = raw.flag("qk_layernorm", default=False)
    attention = attention_of(
        dims,
        rotary_dim=rotary_dim,
        bias=raw.flag("use_qkv_bias", default=False),
        query_norm=_head_norm("q_layernorm", dims.head_dim, dims.num_attention_heads) if head_norms else None,
        key_norm=_head_norm("k_layernorm", dims.head_dim, dims.num_key_value_heads) if head_norms else None,
    )
    mlp = Mlp(
        intermediate_size=raw.integer("intermediate_size", minimum=1),
        activation=raw.text("hidden_act", default="silu"),
    )
    norms: tuple[Norm, ...] = (layer_norm("input_layernorm", dims.hidden_size),)
    if not raw.flag("use_parallel_residual", default=False):
        norms += (layer_norm("post_attention_layernorm", dims.hidden_size),)
    layer = Layer(mixers=(attention,), feed_forward=mlp, norms=norms)
    return assemble(
        raw,
        dims,
        (layer,) * dims.num_hidden_layers,
        final_norm=layer_norm("model.norm", dims.hidden_size),
        rotary_dim=rotary_dim,
    )


def _head_norm(name: str, size: int, heads: int) -> Norm:
    return Norm(name, size, "layer", heads=heads, module_per_head=True)
