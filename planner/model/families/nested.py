"""The text part inside a multimodal config: one rule for what stands where.

text_config, when there is one, describes the decoder; without it (Qwen2-VL, Qwen2.5-VL) the decoder's keys stand
beside vision_config. What the outer object says about the whole model wins over the section: architectures,
tie_word_embeddings, the storage type, the quantisation. A section leaves out what equals the default of its
transformers class, so those defaults are filled in here before the decoder's own family reads it.

Source of the defaults: transformers 5.24, `configuration_*.py` of each text class.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from planner.errors import UnsupportedArchitecture
from planner.model.config import RawConfig
from planner.model.families import build_spec
from planner.model.families.decoder import read_architecture
from planner.model.spec import ModelSpec, Stack
from planner.model.tensor import Tensor

# What a text_config calls itself -> the family that reads it.
_READ_AS: Final[Mapping[str, str]] = {
    "qwen2_vl_text": "qwen2",
    "qwen2_5_vl_text": "qwen2",
    "qwen2_5_omni_text": "qwen2",
    "qwen3_omni_moe_text": "qwen3_moe",
    "qwen3_vl_text": "qwen3",
    "qwen3_vl_moe_text": "qwen3_moe",
    "glm4v_text": "glm4",
    "glm4v_moe_text": "glm4_moe",
    "kimi_k2": "deepseek_v3",
    "kimi_linear": "kimi_linear",
    **{
        name: name
        for name in (
            "llama",
            "mistral",
            "ministral3",
            "mistral4",
            "mixtral",
            "qwen2",
            "qwen2_moe",
            "qwen3",
            "qwen3_moe",
            "qwen3_5_text",
            "qwen3_5_moe_text",
            "gemma",
            "gemma2",
            "gemma3_text",
            "gemma3n_text",
            "gemma4_text",
            "gemma4_unified_text",
            "granite",
            "phi3",
            "glm4",
            "glm4_moe",
            "deepseek_v3",
            "llama4_text",
            "internlm2",
            "internlm3",
            "gpt_oss",
            "smollm3",
            "minimax_m3_vl_text",
            "olmo2",
            "cohere2",
            "ernie4_5",
        )
    },
}

_LLAMA: Final[Mapping[str, object]] = {
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "vocab_size": 32000,
    "max_position_embeddings": 2048,
}
_MISTRAL: Final[Mapping[str, object]] = {
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 32000,
    "max_position_embeddings": 131072,
    "sliding_window": 4096,
}
_QWEN2: Final[Mapping[str, object]] = {
    "hidden_size": 4096,
    "intermediate_size": 22016,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 32,
    "vocab_size": 151936,
    "max_position_embeddings": 32768,
}
_QWEN2_VL: Final[Mapping[str, object]] = {
    "hidden_size": 8192,
    "intermediate_size": 29568,
    "num_hidden_layers": 80,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "vocab_size": 152064,
    "max_position_embeddings": 32768,
    "max_window_layers": 80,
    "sliding_window": 4096,
}
_DEFAULTS: Final[Mapping[str, Mapping[str, object]]] = {
    "llama": _LLAMA,
    "mistral": _MISTRAL,
    "qwen2": _QWEN2,
    "qwen3": _QWEN2,
    "qwen2_vl_text": _QWEN2_VL,
    "qwen2_5_vl_text": _QWEN2_VL,
    "qwen3_vl_text": {**_QWEN2, "head_dim": 128, "max_position_embeddings": 128000},
    "qwen3_vl_moe_text": {
        "hidden_size": 2048,
        "intermediate_size": 5632,
        "num_hidden_layers": 24,
        "num_attention_heads": 16,
        "num_key_value_heads": 16,
        "vocab_size": 151936,
        "max_position_embeddings": 128000,
        "moe_intermediate_size": 1408,
        "num_experts_per_tok": 4,
        "num_experts": 60,
    },
    "glm4v_text": {
        "hidden_size": 4096,
        "intermediate_size": 13696,
        "num_hidden_layers": 40,
        "num_attention_heads": 32,
        "num_key_value_heads": 2,
        "vocab_size": 151552,
        "max_position_embeddings": 32768,
        "partial_rotary_factor": 0.5,
        "attention_bias": True,
    },
    "glm4v_moe_text": {
        "hidden_size": 4096,
        "intermediate_size": 10944,
        "num_hidden_layers": 46,
        "num_attention_heads": 96,
        "num_key_value_heads": 8,
        "vocab_size": 151424,
        "max_position_embeddings": 65536,
        "moe_intermediate_size": 1408,
        "num_experts_per_tok": 8,
        "n_shared_experts": 1,
        "n_routed_experts": 128,
        "first_k_dense_replace": 1,
        "attention_bias": True,
        "use_qk_norm": False,
        "partial_rotary_factor": 0.5,
    },
}

_ABOUT_THE_WHOLE = ("architectures", "tie_word_embeddings", "dtype", "torch_dtype", "quantization_config")
_SECTIONS = ("text_config", "vision_config", "audio_config")


def text_section(
    raw: RawConfig, *, text_type: str, tie_default: bool, mrope: tuple[int, ...] | None = None
) -> RawConfig:
    """The decoder's config as its own family reads it.

    Args:
        text_type: model_type of a section that does not name its own.
        tie_default: tie_word_embeddings when neither object says (the wrapper class's default in transformers).
        mrope: the mrope_section that the class assumes when the rope section has none (None: not an M-RoPE model).

    Raises:
        ConfigError: a text_config that is not an object.
    """
    section = raw.section("text_config")
    own = (
        dict(section.mapping())
        if section is not None
        else {key: value for key, value in raw.mapping().items() if key not in _SECTIONS and key != "model_type"}
    )
    declared = own.get("model_type")
    if declared is not None and not isinstance(declared, str):
        raise raw.error("text_config", "has a model_type that is not a string")
    text_type = declared or text_type
    values: dict[str, object] = {**_DEFAULTS.get(text_type, {}), **own, "model_type": text_type}
    outer = raw.mapping()
    for key in _ABOUT_THE_WHOLE:
        raw.given(key)
        if outer.get(key) is not None:
            values[key] = outer[key]
        elif key == "architectures":
            values.pop(key, None)  # a section's own names a text-only class
    if values.get("tie_word_embeddings") is None:
        values["tie_word_embeddings"] = tie_default
    if mrope is not None:
        name = "rope_parameters" if isinstance(values.get("rope_parameters"), Mapping) else "rope_scaling"
        rope = values.get(name)
        values[name] = {"mrope_section": list(mrope), **(rope if isinstance(rope, Mapping) else {})}
    return RawConfig(values, path=f"{raw.path}: text_config" if section is not None else raw.path)


def text_spec(
    raw: RawConfig,
    *,
    text_type: str,
    tie_default: bool = False,
    mrope: tuple[int, ...] | None = None,
    prefix: str = "model.language_model",
    head: str = "",
) -> ModelSpec:
    """The decoder inside a multimodal model, its tensors named as the whole checkpoint names them.

    Args:
        prefix: where the wrapper keeps what a text-only model calls "model".
        head: module before lm_head ("": none).

    Raises:
        ConfigError, UnsupportedArchitecture: as the decoder's family.
    """
    text = text_section(raw, text_type=text_type, tie_default=tie_default, mrope=mrope)
    declared = text.text("model_type")
    read_as = _READ_AS.get(declared)
    if read_as is None:
        raise UnsupportedArchitecture(
            f"{text.path}: model_type {declared[:40]!r} is not understood inside a multimodal config",
            field="text_config",
        )
    spec = build_spec(RawConfig({**text.mapping(), "model_type": read_as}, path=text.path))
    return renamed(spec, prefix=prefix, head=head)


def renamed(spec: ModelSpec, *, prefix: str, head: str = "") -> ModelSpec:
    """The same decoder with `prefix` in place of "model" in every name, and `head` before lm_head."""

    def name_of(name: str) -> str:
        if name.startswith("model."):
            return prefix + name[len("model") :]
        return f"{head}.{name}" if head and name.startswith("lm_head") else name

    def moved(tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return tuple(replace(tensor, name=name_of(tensor.name)) for tensor in tensors)

    return replace(
        spec,
        embeddings=moved(spec.embeddings),
        head=moved(spec.head),
        layer_prefix=name_of(spec.layer_prefix),
        draft_tensors=moved(spec.draft_tensors),
    )


def multimodal(raw: RawConfig, text: ModelSpec, stacks: tuple[Stack, ...], *sections: RawConfig | None) -> ModelSpec:
    """The whole model: the decoder, its towers, and a note for every key nobody looked at.

    Args:
        sections: the tower sections that were read.
    """
    notes = list(text.notes)
    raw.has("vocab_size", "hidden_size", "image_seq_length")  # copies of what the sections say
    readers = [raw] if raw.has("text_config") else []
    for reader in (*readers, *sections):
        ignored = reader.never_asked() if reader is not None else []
        if ignored:
            where = reader.path.rpartition(": ")[2] if reader is not None else ""
            notes.append(f"{where}: keys that could change memory and were not used: {', '.join(ignored[:12])}")
    return replace(
        text,
        model_type=raw.text("model_type", default="unknown"),
        architecture=read_architecture(raw),
        stacks=stacks,
        notes=tuple(notes),
    )
