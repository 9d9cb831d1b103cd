"""Small configs of many architectures, as transformers builds them and as the planner reads them."""

from __future__ import annotations

from typing import Any

import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from planner.model.load import model_from_config
from planner.model.model import Model

_COMMON: dict[str, Any] = {
    "hidden_size": 128, "intermediate_size": 352, "num_attention_heads": 8, "num_key_value_heads": 2,
    "num_hidden_layers": 3, "vocab_size": 640, "max_position_embeddings": 512, "tie_word_embeddings": False,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
_MHA = {"num_key_value_heads": 8}
CONFIGS: dict[str, dict[str, Any]] = {
    "llama": {},
    "mistral": {"sliding_window": None},
    "qwen2": {},
    "qwen3": {"head_dim": 16},
    "gemma": {"head_dim": 16, "hidden_activation": "gelu_pytorch_tanh"},
    "gemma2": {"head_dim": 16, "hidden_activation": "gelu_pytorch_tanh"},
    "phi3": {},
    "olmo2": {},
    "granite": {},
    "starcoder2": {"sliding_window": None},
    "stablelm": {},
    "gpt_neox": {"rotary_pct": 0.25, **_MHA},
    "opt": {"ffn_dim": 352, "word_embed_proj_dim": 128, "dropout": 0.0, "do_layer_norm_before": True, **_MHA},
    "phi": {**_MHA},
    "gpt2": {"n_embd": 128, "n_head": 8, "n_layer": 3, "n_inner": 352, "n_positions": 512, "resid_pdrop": 0.0,
             "embd_pdrop": 0.0, "attn_pdrop": 0.0},
    "cohere": {},
    "falcon": {"new_decoder_architecture": False, "multi_query": True, "parallel_attn": True, "alibi": False,
               "bias": False, "ffn_hidden_size": 352},
}  # fmt: skip


_EXPERTS: dict[str, Any] = {"num_experts_per_tok": 2, "moe_intermediate_size": 96, "head_dim": 16}
_GROUPS: dict[str, Any] = {"first_k_dense_replace": 1, "n_group": 1, "topk_group": 1, "n_routed_experts": 8}
# Mixtures of experts, apart from the rest: which tests they take part in differs.
EXPERTS: dict[str, dict[str, Any]] = {
    "qwen3_moe": {**_EXPERTS, "num_experts": 8},
    "mixtral": {**_EXPERTS, "num_local_experts": 8, "sliding_window": None},
    "olmoe": {**_EXPERTS, "num_experts": 8},
    "qwen2_moe": {**_EXPERTS, "num_experts": 8, "shared_expert_intermediate_size": 160},
    "glm4_moe": {**_EXPERTS, **_GROUPS},
    "deepseek_v3": {**_EXPERTS, **_GROUPS, **_MHA, "q_lora_rank": 32, "kv_lora_rank": 32, "qk_nope_head_dim": 16,
                    "qk_rope_head_dim": 16, "v_head_dim": 16},
    "phimoe": {**_EXPERTS, "num_local_experts": 8, "sliding_window": None},
    "granitemoe": {**_EXPERTS, "num_local_experts": 8},
    "gpt_oss": {**_EXPERTS, "num_local_experts": 8},
}  # fmt: skip

# The same models, dropping out all that their config has a key for.
DROPOUTS: dict[str, dict[str, Any]] = {
    "gpt2": {"resid_pdrop": 0.1, "embd_pdrop": 0.1, "attn_pdrop": 0.1},
    "opt": {"dropout": 0.1, "attention_dropout": 0.1},
    "gpt_neox": {"attention_dropout": 0.1, "hidden_dropout": 0.1},
    "phi": {"attention_dropout": 0.1, "resid_pdrop": 0.1, "embd_pdrop": 0.1},
    "phi3": {"attention_dropout": 0.1, "resid_pdrop": 0.1, "embd_pdrop": 0.1},
    "starcoder2": {"attention_dropout": 0.1, "residual_dropout": 0.1, "embedding_dropout": 0.1},
    "stablelm": {"attention_dropout": 0.1, "hidden_dropout": 0.1},
    "falcon": {"attention_dropout": 0.1, "hidden_dropout": 0.1},
    "llama": {"attention_dropout": 0.1},
}


def raw_config(model_type: str, changes: dict[str, Any] | None = None) -> dict[str, Any]:
    """The config.json of the small model, with keys of `changes` changed."""
    values = {**_COMMON, **{**CONFIGS, **EXPERTS}[model_type]}
    if model_type == "gpt2":
        values = {**CONFIGS[model_type], "vocab_size": 640, "tie_word_embeddings": False}
    values |= changes or {}
    if model_type in ("gpt_neox", "opt", "phi", "falcon"):
        values.pop("num_key_value_heads", None)
    config = AutoConfig.for_model(model_type, **values)
    architecture = MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[model_type]
    return {**config.to_dict(), "model_type": model_type, "architectures": [architecture]}


def reference(
    model_type: str, attention: str, dtype: torch.dtype = torch.bfloat16, changes: dict[str, Any] | None = None
) -> transformers.PreTrainedModel:
    """The real model with random weights."""
    torch.manual_seed(0)
    values = raw_config(model_type, changes)
    config = AutoConfig.for_model(values.pop("model_type"), **values)
    model = AutoModelForCausalLM.from_config(config, attn_implementation=attention, dtype=dtype)
    model.to(dtype)  # some classes make their router in fp32; a checkpoint is loaded in the type that is asked for
    model.train()
    return model


def planned(model_type: str, changes: dict[str, Any] | None = None) -> Model:
    """The same model as the planner reads it."""
    return model_from_config(raw_config(model_type, changes), name=model_type, origin="test")
