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
}
