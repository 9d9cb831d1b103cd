"""Mistral's own params.json as the config.json of the same model.

Mistral publishes `params.json` beside `consolidated.safetensors`, with names of its own. What it describes is a Mistral
or Mixtral decoder, with Pixtral's tower when `vision_encoder` is there.

Source: vLLM 0.19.1 `transformers_utils/configs/mistral.py` adapt_config_dict and _remap_mistral_vision_args;
mistral-inference 1.6 `args.py` (TransformerArgs, MoeArgs, VisionEncoderArgs).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from planner.errors import ConfigError

_NAMES: Final = {
    "dim": "hidden_size",
    "n_layers": "num_hidden_layers",
    "n_heads": "num_attention_heads",
    "n_kv_heads": "num_key_value_heads",
    "hidden_dim": "intermediate_size",
    "head_dim": "head_dim",
    "vocab_size": "vocab_size",
    "norm_eps": "rms_norm_eps",
    "rope_theta": "rope_theta",
    "sliding_window": "sliding_window",
    "max_position_embeddings": "max_position_embeddings",
    "max_seq_len": "max_position_embeddings",
    "model_max_length": "max_position_embeddings",
    "tied_embeddings": "tie_word_embeddings",
}
_VISION_NAMES: Final = {
    "hidden_size": "hidden_size",
    "num_channels": "num_channels",
    "image_size": "image_size",
    "patch_size": "patch_size",
    "intermediate_size": "intermediate_size",
    "num_hidden_layers": "num_hidden_layers",
    "num_attention_heads": "num_attention_heads",
    "rope_theta": "rope_theta",
}
_LONGEST_POSITIONS: Final = 128_000


def config_from_params(values: Mapping[str, object], *, origin: str) -> dict[str, object]:
    """The config.json of the model.

    Args:
        origin: the file, for messages.

    Raises:
        ConfigError: an architecture that is not translated (MLA, Mamba), or a part that is no object.
    """
    for key, what in (("q_lora_rank", "latent attention"), ("model_type", "its own model_type")):
        if values.get(key) is not None:
            raise ConfigError(f"{origin}: {key} means {what}; pass the config.json of the same model", field=key)
    text = {ours: values[theirs] for theirs, ours in _NAMES.items() if values.get(theirs) is not None}
    text.setdefault("max_position_embeddings", _LONGEST_POSITIONS)
    text.setdefault("sliding_window", None)
    text.setdefault("tie_word_embeddings", False)
    text.setdefault("rope_theta", 10000.0)
    moe = _part(values, "moe", origin)
    if moe is None:
        text |= {"model_type": "mistral", "architectures": ["MistralForCausalLM"]}
    else:
        text |= {
            "model_type": "mixtral",
            "architectures": ["MixtralForCausalLM"],
            "num_local_experts": moe.get("num_experts", 8),
            "num_experts_per_tok": moe.get("num_experts_per_tok", 2),
        }
    text["torch_dtype"] = "bfloat16"
    quantization = _part(values, "quantization", origin)
    vision = _part(values, "vision_encoder", origin)
    config = text if vision is None else _with_tower(text, vision)
    if quantization is not None:
        config["quantization_config"] = _quantisation(quantization, origin)
    return config


def _with_tower(text: dict[str, object], vision: Mapping[str, object]) -> dict[str, object]:
    tower = {ours: vision[theirs] for theirs, ours in _VISION_NAMES.items() if vision.get(theirs) is not None}
    hidden, heads = tower.get("hidden_size"), tower.get("num_attention_heads")
    if isinstance(hidden, int) and isinstance(heads, int) and heads:
        tower["head_dim"] = hidden // heads
    merges = vision.get("mm_projector_id") == "patch_merge"
    config: dict[str, object] = {
        "model_type": "mistral3" if merges else "llava",
        "architectures": ["Mistral3ForConditionalGeneration" if merges else "LlavaForConditionalGeneration"],
        "text_config": text,
        "vision_config": {"model_type": "pixtral", **tower},
        "torch_dtype": "bfloat16",
        "tie_word_embeddings": text["tie_word_embeddings"],
    }
    if merges:
        config["spatial_merge_size"] = vision.get("spatial_merge_size", 2)
        config["multimodal_projector_bias"] = bool(vision.get("adapter_bias", False))
    else:
        config |= {"vision_feature_layer": -1, "vision_feature_select_strategy": "full"}
    return config


def _quantisation(quantization: Mapping[str, object], origin: str) -> dict[str, object]:
    if quantization.get("qformat_weight") == "fp8_e4m3":
        return {"quant_method": "fp8", "activation_scheme": "static", "modules_to_not_convert": ["vision", "projector"]}
    if "config_groups" in quantization:
        return {"quant_method": "compressed-tensors", **quantization}
    raise ConfigError(f"{origin}: quantization is of a kind that is not understood", field="quantization")


def _part(values: Mapping[str, object], key: str, origin: str) -> Mapping[str, object] | None:
    part = values.get(key)
    if part is None:
        return None
    if not isinstance(part, Mapping):
        raise ConfigError(f"{origin}: {key} must be an object", field=key)
    return part
