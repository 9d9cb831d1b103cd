"""Switches and sizes that no bundled config of the expert families uses, on small configs, against transformers."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from planner.model.config import RawConfig
from planner.model.families import build_spec
from planner.model.tensors import tensors
from tests.reference.meta_model import meta_model, parameter_shapes

SIZES: dict[str, Any] = {
    "hidden_size": 64, "intermediate_size": 176, "num_hidden_layers": 6, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 320, "max_position_embeddings": 128, "num_experts_per_tok": 2,
    "moe_intermediate_size": 48,
}  # fmt: skip
LATENT: dict[str, Any] = SIZES | {
    "num_key_value_heads": 4, "q_lora_rank": 24, "kv_lora_rank": 16, "qk_nope_head_dim": 12, "qk_rope_head_dim": 8,
    "v_head_dim": 20, "n_routed_experts": 8, "n_group": 1, "topk_group": 1,
}  # fmt: skip
HUNYUAN: dict[str, Any] = SIZES | {"moe_intermediate_size": 176, "head_dim": 16}
INDEXED: dict[str, Any] = LATENT | {"index_n_heads": 3, "index_head_dim": 16}
DENSE_FIRST = ["dense"] * 3 + ["sparse"] * 3

VARIANTS: list[tuple[str, str, dict[str, Any]]] = [
    ("MixtralForCausalLM", "mixtral", SIZES | {"tie_word_embeddings": True, "head_dim": 32, "num_local_experts": 5}),
    ("PhimoeForCausalLM", "phimoe", SIZES | {"attention_bias": True, "lm_head_bias": True}),
    ("PhimoeForCausalLM", "phimoe", SIZES | {"num_local_experts": 3}),
    ("OlmoeForCausalLM", "olmoe", SIZES | {"attention_bias": True, "num_experts": 6}),
    ("GraniteMoeForCausalLM", "granitemoe", SIZES | {"attention_bias": True}),
    ("MiniMaxM2ForCausalLM", "minimax_m2", SIZES | {"head_dim": 24, "rotary_dim": 12}),
    ("Qwen2MoeForCausalLM", "qwen2_moe", SIZES | {"qkv_bias": False, "shared_expert_intermediate_size": 80}),
    ("Qwen2MoeForCausalLM", "qwen2_moe", SIZES | {"decoder_sparse_step": 2, "mlp_only_layers": [3]}),
    ("Qwen3MoeForCausalLM", "qwen3_moe", SIZES | {"attention_bias": True, "decoder_sparse_step": 3}),
    ("Qwen3MoeForCausalLM", "qwen3_moe", SIZES | {"head_dim": 32, "mlp_only_layers": [0, 5]}),
    ("GptOssForCausalLM", "gpt_oss", SIZES | {"attention_bias": False, "num_local_experts": 4}),
    ("DeepseekV2ForCausalLM", "deepseek_v2", LATENT | {"attention_bias": True, "mlp_bias": True}),
    ("DeepseekV2ForCausalLM", "deepseek_v2", LATENT | {"q_lora_rank": None, "first_k_dense_replace": 2}),
    ("DeepseekV3ForCausalLM", "deepseek_v3", LATENT | {"attention_bias": True, "n_shared_experts": 3}),
    ("DeepseekV3ForCausalLM", "deepseek_v3", LATENT | {"q_lora_rank": None, "first_k_dense_replace": 6}),
    ("DeepseekV32ForCausalLM", "deepseek_v32", INDEXED | {"first_k_dense_replace": 0}),
    ("Glm4MoeLiteForCausalLM", "glm4_moe_lite", LATENT | {"tie_word_embeddings": True}),
    ("GlmMoeDsaForCausalLM", "glm_moe_dsa", INDEXED | {"index_topk_freq": 2, "index_skip_topk_offset": 1}),
    ("GlmMoeDsaForCausalLM", "glm_moe_dsa", INDEXED | {"indexer_types": ["full"] * 3 + ["shared"] * 3}),
    ("Mistral4ForCausalLM", "mistral4", LATENT | {"first_k_dense_replace": 1}),
    ("Glm4MoeForCausalLM", "glm4_moe", SIZES | {"use_qk_norm": True, "n_routed_experts": 8, "n_shared_experts": 2}),
    ("Ernie4_5_MoeForCausalLM", "ernie4_5_moe", SIZES | {"use_bias": True, "moe_layer_interval": 2, "moe_k": 2}),
    ("Ernie4_5_MoeForCausalLM", "ernie4_5_moe", SIZES | {"moe_num_shared_experts": 0, "tie_word_embeddings": False}),
    ("HunYuanMoEV1ForCausalLM", "hunyuan_v1_moe", HUNYUAN | {"num_experts": 4}),
    ("HunYuanMoEV1ForCausalLM", "hunyuan_v1_moe", HUNYUAN | {"num_experts": 3, "attention_bias": True}),
    ("HYV3ForCausalLM", "hy_v3", SIZES | {"num_experts": 4, "mlp_bias": True, "attention_bias": True, "head_dim": 16}),
    ("HYV3ForCausalLM", "hy_v3", SIZES | {"num_experts": 4, "num_shared_experts": 2, "mlp_layer_types": DENSE_FIRST}),
    ("ExaoneMoeForCausalLM", "exaone_moe", SIZES | {"num_experts": 4, "num_shared_experts": 2, "head_dim": 32}),
    ("MiMoV2FlashForCausalLM", "mimo_v2_flash", SIZES | {"attention_bias": True, "v_head_dim": 12, "head_dim": 24}),
    ("MiMoV2FlashForCausalLM", "mimo_v2_flash", SIZES | {"mlp_layer_types": DENSE_FIRST, "n_routed_experts": 4}),
    ("Llama4ForCausalLM", "llama4_text", SIZES | {"attention_bias": True, "interleave_moe_layer_step": 3}),
    ("Llama4ForCausalLM", "llama4_text", SIZES | {"moe_layers": [1, 2], "num_local_experts": 4}),
    ("DeepseekV4ForCausalLM", "deepseek_v4", {"hidden_size": 256, "num_hidden_layers": 5, "vocab_size": 320}),
    ("DeepseekV4ForCausalLM", "deepseek_v4", {"num_hidden_layers": 3, "compress_ratios": [0, 4, 128], "hc_mult": 2}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("class_name", "model_type", "values"), VARIANTS, ids=[f"{row[1]}-{at}" for at, row in enumerate(VARIANTS)]
)
def test_small_variant_has_the_tensors_of_transformers(
    class_name: str, model_type: str, values: dict[str, Any]
) -> None:
    values = values | {"model_type": model_type, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    ours = Counter(tensor.shape for tensor in tensors(build_spec(RawConfig(values))))
    assert ours == parameter_shapes(meta_model(dict(values), class_name))


def test_longcat_flash_but_for_the_rows_of_identity_experts() -> None:
    """transformers 5.24 gives experts without weights rows in its gate and up tensor, which no checkpoint has."""
    values = {"hidden_size": 64, "num_layers": 2, "num_attention_heads": 4, "vocab_size": 320, "q_lora_rank": 24}
    values |= {"ffn_hidden_size": 96, "expert_ffn_hidden_size": 32, "n_routed_experts": 6, "zero_expert_num": 2}
    values |= {"moe_topk": 3}
    config: dict[str, Any] = values | {"model_type": "longcat_flash", "attention_bias": True}
    ours = Counter(tensor.shape for tensor in tensors(build_spec(RawConfig(config))))
    expected = parameter_shapes(meta_model(dict(config), "LongcatFlashForCausalLM"))
    assert expected - ours == Counter({(6 + 2, 2 * 32, 64): 2})
    assert ours - expected == Counter({(6, 2 * 32, 64): 2})
