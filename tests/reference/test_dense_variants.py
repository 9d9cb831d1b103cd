"""Switches that no bundled config of the dense families uses, on small configs, against transformers."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from planner.model.config import RawConfig
from planner.model.families import build_spec
from planner.model.tensors import tensors
from tests.reference.meta_model import meta_model, parameter_shapes

SIZES: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 176,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 320,
    "max_position_embeddings": 128,
}
FALCON = {key: SIZES[key] for key in ("hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size")}
OPT = FALCON | {"ffn_dim": 256, "max_position_embeddings": 128}

VARIANTS: list[tuple[str, str, dict[str, Any]]] = [
    ("LlamaForCausalLM", "llama", SIZES | {"attention_bias": True, "mlp_bias": True}),
    ("LlamaForCausalLM", "llama", SIZES | {"tie_word_embeddings": True, "head_dim": 32}),
    ("Qwen2ForCausalLM", "qwen2", SIZES | {"attention_bias": True}),
    ("Qwen3ForCausalLM", "qwen3", SIZES | {"attention_bias": True, "head_dim": 32}),
    ("Qwen3ForCausalLM", "qwen3", SIZES),
    ("GemmaForCausalLM", "gemma", SIZES | {"attention_bias": True, "head_dim": 32}),
    ("Gemma2ForCausalLM", "gemma2", SIZES | {"tie_word_embeddings": False}),
    ("Gemma3ForCausalLM", "gemma3_text", SIZES | {"attention_bias": True}),
    ("PhiForCausalLM", "phi", SIZES | {"qk_layernorm": True}),
    ("Phi3ForCausalLM", "phi3", SIZES | {"tie_word_embeddings": True}),
    ("GraniteForCausalLM", "granite", SIZES | {"attention_bias": True, "mlp_bias": True}),
    ("Ernie4_5ForCausalLM", "ernie4_5", SIZES | {"use_bias": True}),
    ("SeedOssForCausalLM", "seed_oss", SIZES | {"attention_out_bias": True, "mlp_bias": True}),
    ("SeedOssForCausalLM", "seed_oss", SIZES | {"attention_bias": False}),
    ("SmolLM3ForCausalLM", "smollm3", SIZES | {"attention_bias": True, "mlp_bias": True}),
    ("HunYuanDenseV1ForCausalLM", "hunyuan_v1_dense", SIZES | {"attention_bias": True, "head_dim": 32}),
    ("MinistralForCausalLM", "ministral", SIZES | {"head_dim": 32}),
    ("Ministral3ForCausalLM", "ministral3", SIZES),
    ("ArceeForCausalLM", "arcee", SIZES | {"attention_bias": True, "mlp_bias": True}),
    ("ApertusForCausalLM", "apertus", SIZES | {"attention_bias": True}),
    ("ApertusForCausalLM", "apertus", SIZES | {"hidden_act": "silu"}),
    ("NemotronForCausalLM", "nemotron", SIZES | {"attention_bias": True, "mlp_bias": True}),
    ("OlmoForCausalLM", "olmo", SIZES | {"attention_bias": True}),
    ("Olmo2ForCausalLM", "olmo2", SIZES | {"attention_bias": True}),
    ("Olmo3ForCausalLM", "olmo3", SIZES),
    ("Starcoder2ForCausalLM", "starcoder2", SIZES | {"use_bias": False, "tie_word_embeddings": False}),
    ("StableLmForCausalLM", "stablelm", SIZES | {"qk_layernorm": True, "use_parallel_residual": True}),
    ("CohereForCausalLM", "cohere", SIZES | {"attention_bias": True, "use_qk_norm": True}),
    ("Cohere2ForCausalLM", "cohere2", SIZES | {"attention_bias": True}),
    ("GlmForCausalLM", "glm", SIZES | {"attention_bias": False}),
    ("Glm4ForCausalLM", "glm4", SIZES),
    ("Exaone4ForCausalLM", "exaone4", SIZES | {"sliding_window_pattern": 2}),
    ("GPT2LMHeadModel", "gpt2", {"n_embd": 64, "n_layer": 2, "n_head": 4, "n_inner": 100, "vocab_size": 320}),
    ("GPTNeoXForCausalLM", "gpt_neox", SIZES | {"attention_bias": False, "tie_word_embeddings": True}),
    ("OPTForCausalLM", "opt", OPT | {"word_embed_proj_dim": 32, "do_layer_norm_before": False}),
    ("OPTForCausalLM", "opt", OPT | {"enable_bias": False, "layer_norm_elementwise_affine": False}),
    ("OPTForCausalLM", "opt", OPT | {"tie_word_embeddings": False, "word_embed_proj_dim": 32}),
    ("FalconForCausalLM", "falcon", FALCON | {"multi_query": False, "parallel_attn": False, "bias": True}),
    ("FalconForCausalLM", "falcon", FALCON | {"alibi": True, "ffn_hidden_size": 100}),
    ("FalconForCausalLM", "falcon", FALCON | {"new_decoder_architecture": True, "num_kv_heads": 2}),
]


@pytest.mark.parametrize(
    ("class_name", "model_type", "values"), VARIANTS, ids=[f"{row[1]}-{at}" for at, row in enumerate(VARIANTS)]
)
def test_small_variant_has_the_tensors_of_transformers(
    class_name: str, model_type: str, values: dict[str, Any]
) -> None:
    values = values | {"model_type": model_type, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    ours = Counter(tensor.shape for tensor in tensors(build_spec(RawConfig(values))))
    assert ours == parameter_shapes(meta_model(dict(values), class_name))
