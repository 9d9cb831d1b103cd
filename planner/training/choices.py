"""What a recipe's inputs may be, and how they are written: names, panels and readers."""

from __future__ import annotations

import re
from typing import Final

from planner.contract.reading import read_tokens
from planner.errors import UsageError

METHODS: Final = (
    "full",
    "lora",
    "qlora",
    "dora",
    "qdora",
    "rslora",
    "freeze",
    "prompt",
    "galore",
    "badam",
    "lisa",
    "inference",
)
OBJECTIVES: Final = (
    "sft",
    "dpo",
    "kto",
    "orpo",
    "simpo",
    "cpo",
    "reward",
    "ppo",
    "grpo",
    "distillation",
    "mlm",
    "classification",
    "embedding",
    "reranker",
)
ROLLOUTS: Final = ("ppo", "grpo")
DTYPES: Final = {"float32": 4, "bfloat16": 2, "float16": 2}
AUTOCASTS: Final = {"none": 0, "bf16": 2, "fp16": 2}
QUANTISATIONS: Final = ("none", "nf4", "fp4", "int8", "gptq", "awq", "torchao-nf4")
SHARDINGS: Final = ("none", "ddp", "zero1", "zero2", "zero3", "fsdp", "fsdp2", "hsdp")
LOSSES: Final = ("hf", "in-place", "chunked", "liger", "cce", "megatron")
ATTENTIONS: Final = ("eager", "sdpa", "flash_attention_2", "flash_attention_3", "flex_attention")
METHOD: Final = "What is trained"
PRECISION: Final = "Precision"
BATCH: Final = "Batch and activations"
MANY: Final = "Many GPUs"
RL: Final = "Reinforcement"
VISION: Final = "Pictures"
EVALUATION: Final = "Evaluation"
_DTYPES: Final = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32", "half": "float16", "float": "float32"}
_ATTENTIONS: Final = {
    "flash_attn": "flash_attention_2",
    "fa2": "flash_attention_2",
    "flash_attention": "flash_attention_2",
}


def read_dtype(text: str, spelled: str) -> str:
    """A type under torch's name, or short (bf16)."""
    found = _DTYPES.get(text.strip().lower(), text.strip().lower().removeprefix("torch."))
    if found not in DTYPES:
        raise UsageError(f"{spelled} is {text[:40]!r}; expected {', '.join(DTYPES)}", field=spelled.lstrip("-"))
    return found


def read_attention(text: str, spelled: str) -> str:
    """An implementation under transformers' name."""
    found = _ATTENTIONS.get(text.strip().lower(), text.strip().lower())
    if found not in ATTENTIONS:
        raise UsageError(f"{spelled} is {text[:40]!r}; expected {', '.join(ATTENTIONS)}", field="attn_implementation")
    return found


def read_names(text: str, spelled: str) -> tuple[str, ...]:
    """Names separated by commas; a regular expression stays whole; LLaMA-Factory's `all` is all-linear."""
    if re.search(r"[*|()\[\]\\^$]", text):
        return (text,)
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    return ("all-linear",) if names == ("all",) else names


def read_length(text: str, spelled: str) -> int:
    """Tokens, or the longest of a distribution (`p50=600,p99=4000`), which the fullest batch has."""
    if "=" not in text:
        return max(0, read_tokens(text, spelled))
    return max(read_tokens(part.partition("=")[2], spelled) for part in text.split(","))


def read_expandable(text: str, spelled: str) -> bool | None:
    """Whether the allocator's settings (`expandable_segments:True,max_split_size_mb:128`) let segments grow."""
    found = re.search(r"expandable_segments\s*:\s*(true|false)", text.lower())
    return None if found is None else found[1] == "true"
