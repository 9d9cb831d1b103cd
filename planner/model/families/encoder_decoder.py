"""T5, BART and Whisper: an encoder, and a decoder whose layers attend to their own text, then to the encoder's output.

t5       RMSNorm, no biases, relative positions from a table in each stack's first layer, heads of d_kv
bart     LayerNorm after each block, biases, learned positions with two spare rows
whisper  two convolutions over mel frames (3,000 for 30 seconds, halved to 1,500 positions), LayerNorm before each
         block, no bias on keys

The decoder's spec is the model's; the encoder is a stack. A sequence keeps the keys and values of its own tokens, and
once those of the source: T5 and BART at most the positions they were trained for, Whisper always all.

Sources: arXiv 1910.10683, 1910.13461, 2212.04356; transformers 5.24 t5, bart, whisper (configuration_, modeling_).
vLLM 0.19 serves Whisper; it served BART up to 0.10.2 and has no T5.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from planner.model.config import LARGEST_LAYER_COUNT, RawConfig
from planner.model.families.decoder import read_architecture, read_dtype, refuse
from planner.model.families.vision import LARGEST_WIDTH
from planner.model.kinds.attention import Attention, AttentionNames
from planner.model.kinds.feed_forward import Mlp, MlpNames
from planner.model.kinds.tower import FC_NAMES, convolution, parameter
from planner.model.spec import Layer, ModelSpec, Stack
from planner.model.tensor import Norm, Part, Role, Split, Tensor, layer_norm, vocabulary_matrix

_OUT_PROJ = AttentionNames(output="out_proj")
_TO_SOURCE = AttentionNames(block="encoder_attn", output="out_proj")
_FC = replace(FC_NAMES, block="")


@dataclass(frozen=True, slots=True)
class _Side:
    """Sizes of the encoder or the decoder."""

    layers: int
    heads: int
    inner: int


def build(raw: RawConfig) -> ModelSpec:
    """The spec of a t5, bart or whisper config.

    Raises:
        ConfigError: a field that is missing or makes no sense.
        UnsupportedArchitecture: a head or an activation that is not modelled.
    """
    model_type = raw.text("model_type", default="t5")
    architecture = read_architecture(raw)
    if architecture and not architecture.endswith("ForConditionalGeneration"):
        raise refuse(raw, "architectures", f"names {architecture[:60]}; only ...ForConditionalGeneration is understood")
    if model_type == "t5":
        return _t5(raw)
    return _bart(raw) if model_type == "bart" else _whisper(raw)


def _size(raw: RawConfig, name: str, default: int, maximum: int = LARGEST_WIDTH) -> int:
    return raw.integer(name, default=default, minimum=1, maximum=maximum)


def _side(raw: RawConfig, name: str, *, layers: int, heads: int, inner: int) -> _Side:
    return _Side(
        _size(raw, f"{name}_layers", layers, LARGEST_LAYER_COUNT),
        _size(raw, f"{name}_attention_heads", heads, 1 << 12),
        _size(raw, f"{name}_ffn_dim", inner),
    )


def _spec(
    raw: RawConfig,
    *,
    hidden: int,
    vocab: int,
    positions: int,
    embeddings: tuple[Tensor, ...],
    layers: tuple[Layer, ...],
    head: tuple[Tensor, ...],
    layer_prefix: str,
    encoder: Stack,
    head_name: str,
    notes: tuple[str, ...] = (),
) -> ModelSpec:
    tied = head_name == "" or raw.flag("tie_word_embeddings", default=True)
    if not tied:
        head = (*head, vocabulary_matrix(f"{head_name}.weight", vocab, hidden, Role.LM_HEAD))
    quantization = raw.section("quantization_config", "compression_config")
    ignored = raw.never_asked()
    if ignored:
        notes += (f"config keys that could change memory and were not used: {', '.join(ignored[:12])}",)
    return ModelSpec(
        model_type=raw.text("model_type", default="t5"),
        architecture=read_architecture(raw),
        hidden_size=hidden,
        vocab_size=vocab,
        max_position_embeddings=positions,
        dtype=read_dtype(raw),
        tie_word_embeddings=tied,
        embeddings=embeddings,
        layers=layers,
        head=head,
        layer_prefix=layer_prefix,
        stacks=(encoder,),
        notes=notes,
        quantization_config=quantization.mapping() if quantization is not None else None,
    )


def _t5(raw: RawConfig) -> ModelSpec:
    hidden, head_dim = _size(raw, "d_model", 512), _size(raw, "d_kv", 64, 1 << 14)
    heads = raw.integer("num_heads", "num_attention_heads", default=8, minimum=1, maximum=1 << 12)
    count = raw.integer("num_layers", "num_hidden_layers", default=6, minimum=1, maximum=LARGEST_LAYER_COUNT)
    decoder_count = _size(raw, "num_decoder_layers", count, LARGEST_LAYER_COUNT)
    positions = _size(raw, "n_positions", 512, 1 << 24)
    buckets = _size(raw, "relative_attention_num_buckets", 32, 1 << 16)
    vocab = _size(raw, "vocab_size", 32_128, 1 << 27)
    form = raw.text("feed_forward_proj", default="relu")
    gated, activation = form.startswith("gated-"), form.removeprefix("gated-")
    if form == "gated-gelu":
        activation = "gelu_new"  # configuration_t5.py: for backwards compatibility
    if "-" in activation:
        raise refuse(raw, "feed_forward_proj", f"{form[:40]!r} is not understood")
    raw.has("tie_word_embeddings")  # transformers 5 ties whatever it says; it only scales the decoder's output

    def attention(index: int, name: str, *, source: int | None = None, causal: bool = True) -> Attention:
        return Attention(
            num_attention_heads=heads,
            num_key_value_heads=heads,
            head_dim=head_dim,
            causal=causal,
            source_tokens=source,
            names=AttentionNames(f"layer.{index}.{name}", "q", "k", "v", "o"),
        )

    def layer(*, is_decoder: bool, is_first: bool) -> Layer:
        mixers = [attention(0, "SelfAttention", causal=is_decoder)]
        if is_decoder:
            mixers.append(attention(1, "EncDecAttention", source=positions))
        last = len(mixers)
        block = f"layer.{last}.DenseReluDense"
        names = MlpNames(block=block, gate="wi_0", up="wi_1" if gated else "wi", down="wo")
        bias = "layer.0.SelfAttention.relative_attention_bias.weight"
        heads_cut = Split(1, (Part(heads, heads),))
        return Layer(
            mixers=tuple(mixers),
            feed_forward=Mlp(
                intermediate_size=_size(raw, "d_ff", 2048), gated=gated, activation=activation, names=names
            ),
            norms=tuple(Norm(f"layer.{index}.layer_norm", hidden) for index in range(last + 1)),
            extra=(Tensor(bias, (buckets, heads), Role.POSITION, heads_cut),) if is_first else (),
        )

    def stack(number: int, *, is_decoder: bool) -> tuple[Layer, ...]:
        first = layer(is_decoder=is_decoder, is_first=True)
        return (first, *(layer(is_decoder=is_decoder, is_first=False),) * (number - 1))

    encoder = Stack(
        name="encoder",
        hidden_size=hidden,
        tensors=Norm("encoder.final_layer_norm", hidden).tensors(),
        layers=stack(count, is_decoder=False),
        layer_prefix="encoder.block",
        patches_per_item=positions,
        detail=f"a source of n_positions = {positions:,} tokens; relative positions set no limit",
    )
    return _spec(
        raw,
        hidden=hidden,
        vocab=vocab,
        positions=positions,
        embeddings=(vocabulary_matrix("shared.weight", vocab, hidden, Role.EMBEDDING),),
        layers=stack(decoder_count, is_decoder=True),
        head=Norm("decoder.final_layer_norm", hidden).tensors(),
        layer_prefix="decoder.block",
        encoder=encoder,
        head_name="",
        notes=("vLLM 0.19 does not serve this model type",),
    )


def _biased_layer(raw: RawConfig, hidden: int, side: _Side, name: str, *, source: int | None, key_bias: bool) -> Layer:
    """A layer of BART or Whisper; a decoder's attends to `source` positions of the encoder."""
    if hidden % side.heads:
        raise raw.error(f"{name}_attention_heads", f"is {side.heads}, which does not divide d_model {hidden}")

    def attention(names: AttentionNames, *, causal: bool, positions: int | None = None) -> Attention:
        return Attention(
            num_attention_heads=side.heads,
            num_key_value_heads=side.heads,
            head_dim=hidden // side.heads,
            query_bias=True,
            key_bias=key_bias,
            value_bias=True,
            output_bias=True,
            causal=causal,
            source_tokens=positions,
            names=names,
        )

    mixers = [attention(_OUT_PROJ, causal=source is not None)]
    norms = [layer_norm("self_attn_layer_norm", hidden)]
    if source is not None:
        mixers.append(attention(_TO_SOURCE, causal=False, positions=source))
        norms.append(layer_norm("encoder_attn_layer_norm", hidden))
    return Layer(
        mixers=tuple(mixers),
        feed_forward=Mlp(
            intermediate_size=side.inner,
            gated=False,
            activation=raw.text("activation_function", default="gelu"),
            bias=True,
            names=_FC,
        ),
        norms=(*norms, layer_norm("final_layer_norm", hidden)),
    )


def _bart(raw: RawConfig) -> ModelSpec:
    if not raw.flag("tie_word_embeddings", default=True):
        raise refuse(raw, "tie_word_embeddings", "is false; only one matrix for both sides and the head is understood")
    hidden, vocab = _size(raw, "d_model", 1024), _size(raw, "vocab_size", 50_265, 1 << 27)
    positions = _size(raw, "max_position_embeddings", 1024, 1 << 24)
    below = _side(raw, "encoder", layers=12, heads=16, inner=4096)
    above = _side(raw, "decoder", layers=12, heads=16, inner=4096)
    raw.has("num_hidden_layers")  # encoder_layers again

    def tables(name: str) -> tuple[Tensor, ...]:
        return (
            parameter(f"model.{name}.embed_positions.weight", positions + 2, hidden, role=Role.POSITION),
            *layer_norm(f"model.{name}.layernorm_embedding", hidden).tensors(),
        )

    encoder = Stack(
        name="encoder",
        hidden_size=hidden,
        tensors=tables("encoder"),
        layers=(_biased_layer(raw, hidden, below, "encoder", source=None, key_bias=True),) * below.layers,
        layer_prefix="model.encoder.layers",
        patches_per_item=positions,
        detail=f"a source of max_position_embeddings = {positions:,} tokens",
    )
    return _spec(
        raw,
        hidden=hidden,
        vocab=vocab,
        positions=positions,
        embeddings=(vocabulary_matrix("model.shared.weight", vocab, hidden, Role.EMBEDDING), *tables("decoder")),
        layers=(_biased_layer(raw, hidden, above, "decoder", source=positions, key_bias=True),) * above.layers,
        head=(),
        layer_prefix="model.decoder.layers",
        encoder=encoder,
        head_name="lm_head",
        notes=("vLLM serves this model type up to version 0.10.2",),
    )


def _whisper(raw: RawConfig) -> ModelSpec:
    hidden, vocab = _size(raw, "d_model", 384), _size(raw, "vocab_size", 51_865, 1 << 27)
    mels = _size(raw, "num_mel_bins", 80, 1 << 12)
    source = _size(raw, "max_source_positions", 1500, 1 << 24)
    target = _size(raw, "max_target_positions", 448, 1 << 24)
    below = _side(raw, "encoder", layers=4, heads=6, inner=1536)
    above = _side(raw, "decoder", layers=4, heads=6, inner=1536)
    raw.has("num_hidden_layers", "classifier_proj_size", "median_filter_width")  # copies, and of other tasks
    encoder = Stack(
        name="encoder",
        hidden_size=hidden,
        tensors=(
            *convolution("model.encoder.conv1", hidden, mels, 3, bias=True, role=Role.AUDIO),
            *convolution("model.encoder.conv2", hidden, hidden, 3, bias=True, role=Role.AUDIO),
            parameter("model.encoder.embed_positions.weight", source, hidden, role=Role.POSITION),
            *layer_norm("model.encoder.layer_norm", hidden).tensors(),
        ),
        layers=(_biased_layer(raw, hidden, below, "encoder", source=None, key_bias=False),) * below.layers,
        layer_prefix="model.encoder.layers",
        tokens_per_item=source,
        patches_per_item=source,
        input_elements_per_item=2 * source * mels,
        detail=f"every clip is padded to 30 s: {2 * source:,} mel frames, {source:,} positions (transformers"
        " WhisperFeatureExtractor)",
    )
    return _spec(
        raw,
        hidden=hidden,
        vocab=vocab,
        positions=target,
        embeddings=(
            vocabulary_matrix("model.decoder.embed_tokens.weight", vocab, hidden, Role.EMBEDDING),
            parameter("model.decoder.embed_positions.weight", target, hidden, role=Role.POSITION),
        ),
        layers=(_biased_layer(raw, hidden, above, "decoder", source=source, key_bias=False),) * above.layers,
        head=layer_norm("model.decoder.layer_norm", hidden).tensors(),
        layer_prefix="model.decoder.layers",
        encoder=encoder,
        head_name="proj_out",
    )
