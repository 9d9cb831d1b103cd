"""OPT: learned positions with two rows to spare, LayerNorm, biases, a ReLU MLP, a tied embedding.

OPT-350M embeds into a narrower space (word_embed_proj_dim) and norms after each block, without a final norm.

Source: transformers 5.24 `models/opt`; arXiv 2205.01068.
"""

from __future__ import annotations

from planner.model.config import RawConfig
from planner.model.families.decoder import Dimensions, as_multi_head, assemble, attention_of, has_head, read_dimensions
from planner.model.kinds.attention import AttentionNames
from planner.model.kinds.feed_forward import Mlp, MlpNames
from planner.model.spec import Layer, ModelSpec
from planner.model.tensor import Norm, Role, Tensor, linear, vocabulary_matrix

_ROOT = "model.decoder"
_SPARE_POSITIONS = 2  # OPTLearnedPositionalEmbedding.offset


def build(raw: RawConfig) -> ModelSpec:
    """The spec of an opt config.

    Raises:
        ConfigError: a field that is missing or makes no sense.
    """
    dims = as_multi_head(read_dimensions(raw, tie_default=True))
    bias = raw.flag("enable_bias", default=True)
    affine = raw.flag("layer_norm_elementwise_affine", default=True)

    def norm(name: str) -> Norm:
        return Norm(name, dims.hidden_size, "layer", weight=affine, bias=affine)

    attention = attention_of(dims, bias=bias, output_bias=bias, names=AttentionNames(output="out_proj"))
    mlp = Mlp(
        intermediate_size=raw.integer("ffn_dim", default=4 * dims.hidden_size, minimum=1),
        gated=False,
        activation=raw.text("activation_function", default="relu"),
        bias=bias,
        names=MlpNames(block="", up="fc1", down="fc2"),
    )
    layer = Layer(mixers=(attention,), feed_forward=mlp, norms=(norm("self_attn_layer_norm"), norm("final_layer_norm")))
    width = raw.integer("word_embed_proj_dim", default=dims.hidden_size, minimum=1, maximum=1 << 20)
    ends_in_norm = raw.flag("do_layer_norm_before", default=True) and not raw.flag(
        "_remove_final_layer_norm", default=False
    )
    return assemble(
        raw,
        dims,
        (layer,) * dims.num_hidden_layers,
        final_norm=None,
        embeddings=_embeddings(dims, width),
        head=_head(raw, dims, width, norm(f"{_ROOT}.final_layer_norm") if ends_in_norm else None),
        layer_prefix=f"{_ROOT}.layers",
    )


def _embeddings(dims: Dimensions, width: int) -> tuple[Tensor, ...]:
    positions = (dims.max_position_embeddings + _SPARE_POSITIONS, dims.hidden_size)
    tensors: tuple[Tensor, ...] = (
        vocabulary_matrix(f"{_ROOT}.embed_tokens.weight", dims.vocab_size, width, Role.EMBEDDING),
        Tensor(f"{_ROOT}.embed_positions.weight", positions, Role.POSITION),
    )
    if width != dims.hidden_size:
        tensors += linear(f"{_ROOT}.project_in", dims.hidden_size, width, Role.OTHER)
    return tensors


def _head(raw: RawConfig, dims: Dimensions, width: int, final_norm: Norm | None) -> tuple[Tensor, ...]:
    tensors: tuple[Tensor, ...] = final_norm.tensors() if final_norm is not None else ()
    if width != dims.hidden_size:
        tensors += linear(f"{_ROOT}.project_out", width, dims.hidden_size, Role.OTHER)
    if has_head(raw) and not dims.tie_word_embeddings:
        tensors += (vocabulary_matrix("lm_head.weight", dims.vocab_size, width, Role.LM_HEAD),)
    return tensors
