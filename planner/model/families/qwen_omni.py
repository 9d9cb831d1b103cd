"""The thinker of Qwen2.5-Omni and Qwen3-Omni, which is what engines serve: an image tower, an audio tower, a decoder.

qwen2_5_omni     Whisper's encoder without learned positions, two marks and a projection; Qwen2.5-VL's image tower with
                 query, key and value apart; a Qwen2 decoder
qwen3_omni_moe   three 2D convolutions before the audio layers, two projections after them; Qwen3-VL's image tower; a
                 Qwen3-MoE decoder

A whole config keeps the thinker in `thinker_config`; the talker and the code-to-wave model beside it are not loaded.

Source: transformers 5.24 models/qwen2_5_omni, models/qwen3_omni_moe (configuration_, modeling_); vLLM 0.19
models/qwen2_5_omni_thinker.py, qwen3_omni_moe_thinker.py.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from planner.model.config import RawConfig
from planner.model.families.nested import multimodal, text_spec
from planner.model.families.qwen2_audio import whisper_encoder
from planner.model.families.qwen_vl import qwen2_5_vl_tower, qwen3_vl_tower
from planner.model.families.vision import LARGEST_WIDTH, read_vision_section
from planner.model.kinds.attention import Attention
from planner.model.kinds.tower import convolution, parameter, projector
from planner.model.spec import Layer, ModelSpec, Stack
from planner.model.tensor import Role, Tensor, layer_norm, linear

_AUDIO: Final = {
    "d_model": 1280,
    "encoder_layers": 32,
    "encoder_attention_heads": 20,
    "encoder_ffn_dim": 5120,
    "num_mel_bins": 128,
}
_TOWER: Final = "thinker.audio_tower"
_MROPE: Final = {"qwen2_5_omni": (16, 24, 24), "qwen3_omni_moe": (24, 20, 20)}


def build(raw: RawConfig) -> ModelSpec:
    """The spec of the thinker of a Qwen Omni config.

    Raises:
        ConfigError: a field that is missing or makes no sense.
        UnsupportedArchitecture: a decoder that is not understood.
    """
    model_type = raw.text("model_type", default="qwen2_5_omni").removesuffix("_thinker")
    inner = raw.section("thinker_config")
    if inner is not None:
        outer = {key: raw.raw(key) for key in ("architectures", "torch_dtype", "dtype") if raw.given(key)}
        raw.has("talker_config", "token2wav_config", "code2wav_config", "enable_audio_output", "enable_talker")
        raw = RawConfig({**inner.mapping(), **outer, "model_type": model_type}, path=raw.path)
    audio, vision = raw.section("audio_config"), read_vision_section(raw)
    if audio is None:
        raise raw.error("audio_config", "is missing; it is needed to size the audio tower")
    third = model_type == "qwen3_omni_moe"
    # the whole model's class is named ...Model and has a head all the same
    plain = {key: value for key, value in raw.mapping().items() if key != "architectures"}
    text_type = "qwen3_omni_moe_text" if third else "qwen2_5_omni_text"
    text = text_spec(RawConfig(plain, path=raw.path), text_type=text_type, mrope=_MROPE.get(model_type))
    vision.has("tokens_per_second", "image_size", "apply_vit_abs_pos_embed", "spatial_patch_size", "in_chans")
    tower = qwen3_vl_tower(vision) if third else qwen2_5_vl_tower(vision, fused=False)
    heard = _qwen3_audio(audio) if third else _qwen2_5_audio(audio)
    spec = multimodal(raw, text, (tower, heard), vision)
    return replace(spec, notes=(*spec.notes, "the thinker alone is planned: talker and vocoder are not loaded"))


def _output(audio: RawConfig) -> int:
    return audio.integer("output_dim", default=3584, minimum=1, maximum=LARGEST_WIDTH)


def _encoder(audio: RawConfig, joint: tuple[Tensor, ...]) -> tuple[Stack, int]:
    """Whisper's layers with sinusoidal positions, which are no weights; and their width."""
    audio.has("n_window", "n_window_infer", "conv_chunksize", "output_dim", "downsample_hidden_size", "scale_embedding")
    stack = whisper_encoder(audio, _TOWER, defaults=_AUDIO, joint=joint)
    kept = tuple(tensor for tensor in stack.tensors if "embed_positions" not in tensor.name)
    return replace(stack, tensors=kept), stack.hidden_size


def _qwen2_5_audio(audio: RawConfig) -> Stack:
    out = _output(audio)
    width = audio.integer("d_model", default=_AUDIO["d_model"], minimum=1, maximum=LARGEST_WIDTH)
    joint = (
        parameter(f"{_TOWER}.audio_bos_eos_token.weight", 2, out, role=Role.AUDIO),
        *linear(f"{_TOWER}.proj", out, width, Role.AUDIO, bias=True),
    )
    return _encoder(audio, joint)[0]


def _qwen3_audio(audio: RawConfig) -> Stack:
    out = _output(audio)
    stack, width = _encoder(audio, ())
    mels = audio.integer("num_mel_bins", default=_AUDIO["num_mel_bins"], minimum=1, maximum=1 << 12)
    channels = audio.integer("downsample_hidden_size", default=480, minimum=1, maximum=LARGEST_WIDTH)
    folded = mels
    for _ in range(3):  # each convolution takes every second bin
        folded = (folded + 1) // 2
    tensors = (
        *convolution(f"{_TOWER}.conv2d1", channels, 1, 3, 3, bias=True, role=Role.AUDIO),
        *convolution(f"{_TOWER}.conv2d2", channels, channels, 3, 3, bias=True, role=Role.AUDIO),
        *convolution(f"{_TOWER}.conv2d3", channels, channels, 3, 3, bias=True, role=Role.AUDIO),
        *linear(f"{_TOWER}.conv_out", width, channels * folded, Role.AUDIO),
        *layer_norm(f"{_TOWER}.ln_post", width).tensors(),
        *projector(_TOWER, (width, width, out), names=("proj1", "proj2")),
    )
    # unlike Whisper's, keys have a bias
    layers = tuple(_keys_biased(layer) for layer in stack.layers[:1]) * len(stack.layers)
    # eight frames of 10 ms become one position: 100 frames a second give 12.5 tokens
    positions = stack.patches_per_item or 0
    return replace(
        stack, tensors=tensors, layers=layers, tokens_per_item=positions // 4, patches_per_item=positions // 4
    )


def _keys_biased(layer: Layer) -> Layer:
    mixers = tuple(replace(mixer, key_bias=True) if isinstance(mixer, Attention) else mixer for mixer in layer.mixers)
    return replace(layer, mixers=mixers)
