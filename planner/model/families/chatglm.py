"""ChatGLM2, ChatGLM3 and GLM-4 under its own code (model_type chatglm).

transformers has no such class; names and sizes follow the checkpoints and vLLM 0.19 `chatglm.py`: one matrix for
query, key and value, multi_query_group_num key and value heads, half of each head rotates. The first ChatGLM-6B is
another model under the same type and is refused.
"""

from __future__ import annotations

from dataclasses import replace

from planner.model.config import RawConfig
from planner.model.families.decoder import assemble, attention_of, read_dimensions, refuse
from planner.model.kinds.attention import AttentionNames
from planner.model.kinds.feed_forward import Mlp, MlpNames
from planner.model.rope import RopeTable
from planner.model.spec import Layer, ModelSpec
from planner.model.tensor import Norm, Role, Tensor, layer_norm, vocabulary_matrix

_NAMES = AttentionNames(block="self_attention", fused="query_key_value", output="dense")


def build(raw: RawConfig) -> ModelSpec:
    """The spec of a chatglm config.

    Raises:
        ConfigError: a field that is missing or makes no sense.
        UnsupportedArchitecture: the first ChatGLM, or one with a vision tower or prefix tuning.
    """
    for field in ("position_encoding_2d", "inner_hidden_size"):
        if raw.has(field):
            raise refuse(raw, field, "marks the first ChatGLM-6B, which is not understood; ChatGLM2 and later are")
    for field in ("vision_config", "pre_seq_len"):
        if raw.has(field):
            raise refuse(raw, field, "adds weights to ChatGLM that are not understood")
    dims = read_dimensions(raw, head_dim_default=raw.optional_integer("kv_channels", minimum=1, maximum=1 << 14))
    if not raw.flag("multi_query_attention", default=False):
        dims = replace(dims, num_key_value_heads=dims.num_attention_heads)
    # whatever tie_word_embeddings says, the output layer is a matrix of its own
    dims = replace(dims, tie_word_embeddings=False)
    bias = raw.flag("add_bias_linear", default=False)
    rotary_dim = dims.head_dim // 2
    attention = attention_of(
        dims,
        rotary_dim=rotary_dim,
        bias=bias or raw.flag("add_qkv_bias", default=False),
        output_bias=bias,
        fused=True,
        names=_NAMES,
    )
    mlp = Mlp(
        intermediate_size=raw.integer("ffn_hidden_size", minimum=1),
        fused=True,
        bias=bias,
        names=MlpNames(fused="dense_h_to_4h", down="dense_4h_to_h"),
    )
    root_mean_square = raw.flag("rmsnorm", default=True)

    def norm(name: str) -> Norm:
        return Norm(name, dims.hidden_size) if root_mean_square else layer_norm(name, dims.hidden_size)

    layer = Layer(
        mixers=(attention,), feed_forward=mlp, norms=(norm("input_layernorm"), norm("post_attention_layernorm"))
    )
    head: tuple[Tensor, ...] = ()
    if raw.flag("post_layer_norm", default=True):
        head += norm("transformer.encoder.final_layernorm").tensors()
    head += (vocabulary_matrix("transformer.output_layer.weight", dims.vocab_size, dims.hidden_size, Role.LM_HEAD),)
    return assemble(
        raw,
        dims,
        (layer,) * dims.num_hidden_layers,
        final_norm=None,
        head=head,
        layer_prefix="transformer.encoder.layers",
        embedding_name="transformer.embedding.word_embeddings.weight",
        rope_tables=(RopeTable(dims.max_position_embeddings, rotary_dim),),
    )
