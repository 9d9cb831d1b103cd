"""Four architectures made small: grouped queries, windows beside full attention, parallel residuals, routed experts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

_COMMON: dict[str, Any] = {
    "hidden_size": 128, "intermediate_size": 320, "num_attention_heads": 8, "vocab_size": 640,
    "max_position_embeddings": 512, "tie_word_embeddings": False, "bos_token_id": 1, "eos_token_id": 2,
    "pad_token_id": 0,
}  # fmt: skip
CONFIGS: dict[str, dict[str, Any]] = {
    "llama": {"num_hidden_layers": 4, "num_key_value_heads": 2, "rms_norm_eps": 1e-5, "hidden_act": "silu",
              "architectures": ["LlamaForCausalLM"]},
    "gemma3_text": {"num_hidden_layers": 6, "num_key_value_heads": 1, "head_dim": 16, "sliding_window": 32,
                    "tie_word_embeddings": True, "hidden_activation": "gelu_pytorch_tanh",
                    "query_pre_attn_scalar": 16,
                    "layer_types": ["sliding_attention"] * 5 + ["full_attention"],
                    "architectures": ["Gemma3ForCausalLM"]},
    "gpt_neox": {"num_hidden_layers": 4, "rotary_pct": 0.25, "hidden_act": "gelu", "use_parallel_residual": True,
                 "architectures": ["GPTNeoXForCausalLM"]},
    "qwen3_moe": {"num_hidden_layers": 4, "num_key_value_heads": 2, "head_dim": 16, "num_experts": 8,
                  "num_experts_per_tok": 2, "moe_intermediate_size": 64, "norm_topk_prob": True,
                  "decoder_sparse_step": 1, "mlp_only_layers": [], "hidden_act": "silu",
                  "architectures": ["Qwen3MoeForCausalLM"]},
}  # fmt: skip


def write_config(folder: Path, model_type: str, **changes: Any) -> str:
    """The path of the config as a file."""
    path = folder / f"{model_type}.json"
    values = {"model_type": model_type, "dtype": "bfloat16", **_COMMON, **CONFIGS[model_type], **changes}
    path.write_text(json.dumps(values))
    return str(path)
