"""Qwen2-Audio: Whisper's encoder on 30 seconds, halved once more, one linear layer, a Qwen2 decoder.

Source: arXiv 2407.10759; transformers 5.24 models/qwen2_audio (configuration_, modeling_).
"""

from __future__ import annotations

from planner.model.config import LARGEST_LAYER_COUNT, RawConfig
from planner.model.families.nested import multimodal, text_spec
from planner.model.families.vision import LARGEST_WIDTH
from planner.model.kinds.attention import Attention, AttentionNames
from planner.model.kinds.feed_forward import Mlp, MlpNames
from planner.model.kinds.tower import convolution, parameter, projector
from planner.model.spec import Layer, ModelSpec, Stack
from planner.model.tensor import Role, Tensor, layer_norm


def build(raw: RawConfig) -> ModelSpec:
    """The spec of a qwen2_audio config.

    Raises:
        ConfigError: a field that is missing or makes no sense.
        UnsupportedArchitecture: a decoder that is not understood.
    """
    text = text_spec(raw, text_type="qwen2")
    audio = raw.section("audio_config")
    if audio is None:
        raise raw.error("audio_config", "is missing; it is needed to size the audio tower")
    stack = whisper_encoder(
        audio,
        "model.audio_tower",
        defaults={
            "d_model": 1280,
            "encoder_layers": 32,
            "encoder_attention_heads": 20,
            "encoder_ffn_dim": 5120,
            "num_mel_bins": 128,
        },
        joint=projector(
            "model.multi_modal_projector",
            (audio.integer("d_model", default=1280, minimum=1, maximum=LARGEST_WIDTH), text.hidden_size),
            sharded=False,
            names=("linear",),
        ),
    )
    return multimodal(raw, text, (stack,), audio)


def whisper_encoder(
    audio: RawConfig, prefix: str, *, defaults: dict[str, int], joint: tuple[Tensor, ...] = ()
) -> Stack:
    """Whisper's encoder as the audio tower of a decoder: its positions pooled in pairs.

    Args:
        defaults: sizes that the class assumes for absent keys.
        joint: the projector's tensors, full names.
    """

    def size(name: str, maximum: int = LARGEST_WIDTH) -> int:
        return audio.integer(name, default=defaults[name], minimum=1, maximum=maximum)

    hidden, heads = size("d_model"), size("encoder_attention_heads", 1 << 12)
    if hidden % heads:
        raise audio.error("encoder_attention_heads", f"is {heads}, which does not divide d_model {hidden}")
    mels, positions = size("num_mel_bins", 1 << 12), audio.integer("max_source_positions", default=1500, minimum=2)
    audio.has("num_hidden_layers")  # a copy of encoder_layers
    layer = Layer(
        mixers=(
            Attention(
                num_attention_heads=heads,
                num_key_value_heads=heads,
                head_dim=hidden // heads,
                query_bias=True,
                value_bias=True,
                output_bias=True,
                causal=False,
                role=Role.AUDIO,
                names=AttentionNames(output="out_proj"),
            ),
        ),
        feed_forward=Mlp(
            intermediate_size=size("encoder_ffn_dim"),
            gated=False,
            activation=audio.text("activation_function", default="gelu"),
            bias=True,
            role=Role.AUDIO,
            names=MlpNames(block="", up="fc1", down="fc2"),
        ),
        norms=(layer_norm("self_attn_layer_norm", hidden), layer_norm("final_layer_norm", hidden)),
    )
    return Stack(
        name="audio",
        hidden_size=hidden,
        tensors=(
            *convolution(f"{prefix}.conv1", hidden, mels, 3, bias=True, role=Role.AUDIO),
            *convolution(f"{prefix}.conv2", hidden, hidden, 3, bias=True, role=Role.AUDIO),
            parameter(f"{prefix}.embed_positions.weight", positions, hidden, role=Role.AUDIO),
            *layer_norm(f"{prefix}.layer_norm", hidden).tensors(),
            *joint,
        ),
        layers=(layer,) * size("encoder_layers", LARGEST_LAYER_COUNT),
        layer_prefix=f"{prefix}.layers",
        tokens_per_item=positions // 2,
        patches_per_item=positions,
        input_elements_per_item=2 * positions * mels,
        detail=f"every clip is padded to 30 s: {2 * positions:,} mel frames, {positions:,} positions, pooled in pairs",
    )
