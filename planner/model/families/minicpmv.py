"""MiniCPM-V and MiniCPM-o: SigLIP, a resampler with learned queries, a decoder that the version names.

minicpmv  2.5 Llama 3, 2.6 Qwen2, 4.0 Llama-like, 4.5 Qwen3; the decoder's keys stand beside vision_config
minicpmo  2.6 with Whisper's encoder and two linear layers for sound; the speech generator (tts) is loaded by no engine

Sources: openbmb/MiniCPM-V-2_6 `modeling_minicpmv.py`, `resampler.py`, `configuration_minicpm.py`; MiniCPM-o-2_6
`modeling_minicpmo.py` (remote code); vLLM 0.19.1 models/minicpmv.py, minicpmo.py.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from planner.model.config import RawConfig
from planner.model.families.decoder import refuse
from planner.model.families.idefics3 import siglip_with_any_grid
from planner.model.families.nested import multimodal, text_spec
from planner.model.families.qwen2_audio import whisper_encoder
from planner.model.families.vision import Tower, read_vision_section
from planner.model.kinds.tower import parameter, projector
from planner.model.spec import ModelSpec, Stack
from planner.model.tensor import Role, Tensor, layer_norm, linear

# Version -> the decoder's family (vLLM 0.19.1 minicpmv.py _SUPPORT_VERSION).
_DECODERS: Final = {"2.5": "llama", "2.6": "qwen2", "4.0": "llama", "4.5": "qwen3"}
_WHISPER: Final = {
    "d_model": 1024,
    "encoder_layers": 24,
    "encoder_attention_heads": 16,
    "encoder_ffn_dim": 4096,
    "num_mel_bins": 80,
}
_LARGEST_SLICES: Final = 1 << 10


def build(raw: RawConfig) -> ModelSpec:
    """The spec of a minicpmv or minicpmo config.

    Raises:
        ConfigError: a field that is missing or makes no sense.
        UnsupportedArchitecture: a version whose decoder is not known.
    """
    sounds = raw.text("model_type", default="minicpmv") == "minicpmo"
    version = str(raw.raw("version") or "2.6")
    version = f"{version}.0" if version.isdigit() else version
    if version not in _DECODERS:
        raise refuse(raw, "version", f"{version[:20]!r} is not understood; expected one of {', '.join(_DECODERS)}")
    text = text_spec(
        RawConfig(_decoder(raw), path=raw.path), text_type=_DECODERS[version], prefix="llm.model", head="llm"
    )
    vision = read_vision_section(raw)
    cut = raw.flag("drop_vision_last_layer", default=True)
    tower = siglip_with_any_grid(vision, "vpm", layers_left_out=1 if cut else 0)
    raw.has("patch_size", "slice_mode", "batch_vision_input", "query_num", "image_size", "audio_chunk_length")
    stacks: tuple[Stack, ...] = (_with_resampler(raw, text.hidden_size, tower),)
    audio = raw.section("audio_config") if sounds else None
    if audio is not None:
        width = audio.integer("d_model", default=_WHISPER["d_model"], minimum=1)
        joint = projector(
            "audio_projection_layer",
            (width, text.hidden_size, text.hidden_size),
            sharded=False,
            names=("linear1", "linear2"),
        )
        stacks += (whisper_encoder(audio, "apm", defaults=_WHISPER, joint=joint),)
    spec = multimodal(raw, text, stacks, vision, audio)
    if raw.has("tts_config"):
        note = "the speech generator (tts) is not counted: engines do not load it"
        spec = replace(spec, notes=(*spec.notes, note))
    return spec


def _decoder(raw: RawConfig) -> dict[str, object]:
    """The decoder's keys: all but the sections of the towers."""
    left_out = ("vision_config", "audio_config", "tts_config", "slice_config", "query_num", "patch_size", "image_size")
    return {key: value for key, value in raw.mapping().items() if key not in left_out}


def _with_resampler(raw: RawConfig, width: int, tower: Tower) -> Stack:
    """The tower with attention from `query_num` learned queries to its patches, in the decoder's width."""
    queries = raw.integer("query_num", default=64, minimum=1, maximum=1 << 16)
    slices = raw.section("slice_config")
    most = 9 if slices is None else slices.integer("max_slice_nums", default=9, minimum=1, maximum=_LARGEST_SLICES)
    tiles = most + 1
    name = "resampler"
    tensors: tuple[Tensor, ...] = (
        parameter(f"{name}.query", queries, width, role=Role.PROJECTOR),
        *linear(f"{name}.kv_proj", width, tower.sizes.hidden_size, Role.PROJECTOR),
        parameter(f"{name}.attn.in_proj_weight", 3 * width, width, role=Role.PROJECTOR),
        parameter(f"{name}.attn.in_proj_bias", 3 * width, role=Role.PROJECTOR),
        *linear(f"{name}.attn.out_proj", width, width, Role.PROJECTOR, bias=True),
        *(part for norm in ("ln_q", "ln_kv", "ln_post") for part in layer_norm(f"{name}.{norm}", width).tensors()),
        parameter(f"{name}.proj", width, width, role=Role.PROJECTOR),
    )
    return replace(
        tower.stack,
        tensors=(*tower.stack.tensors, *tensors),
        tokens_per_item=tiles * queries,
        patches_per_item=tiles * 1024,
        input_elements_per_item=tiles * tower.sizes.channels * 448 * 448,
        detail=f"at most {most} slices of 448 x 448 and an overview, {queries} tokens each (MiniCPMVImageProcessor,"
        " scale_resolution 448, 1,024 patches)",
    )
