"""model_type -> the module in this folder that reads it."""

from __future__ import annotations

from typing import Final

MODULE_OF: Final[dict[str, str]] = {
    "llama": "llama",
    "mistral": "llama",
    "qwen2": "llama",
    "qwen3": "llama",
    "qwen3_next": "qwen3_next",
    "qwen3_5_text": "qwen3_next",
    "qwen3_5_moe_text": "qwen3_next",
    "mamba": "mamba",
    "falcon_mamba": "mamba",
    "mamba2": "mamba",
    "gemma": "gemma",
    "gemma2": "gemma",
    "gemma3_text": "gemma",
    "phi": "phi",
    "phi3": "phi3",
    "granite": "llama_like",
    "ministral3": "llama_like",
    "internlm3": "llama_like",
    "ernie4_5": "llama_like",
    "seed_oss": "llama_like",
    "hunyuan_v1_dense": "llama_like",
    "smollm3": "llama_like",
    "arcee": "ungated",
    "apertus": "ungated",
    "nemotron": "ungated",
    "olmo": "olmo",
    "olmo2": "olmo",
    "olmo3": "olmo",
    "jamba": "jamba",
    "bamba": "bamba",
    "falcon_h1": "bamba",
    "granitemoehybrid": "bamba",
}
