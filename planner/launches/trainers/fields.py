"""Names of values in trainers' fields: types, attention, optimisers, modules."""

from __future__ import annotations

import re
from typing import Any, Final

from planner.launches.record import Value

DTYPES: Final = {
    "bf16": "bfloat16",
    "bfloat16": "bfloat16",
    "torch.bfloat16": "bfloat16",
    "fp16": "float16",
    "float16": "float16",
    "half": "float16",
    "torch.float16": "float16",
    "fp32": "float32",
    "float32": "float32",
    "torch.float32": "float32",
    "float": "float32",
}


ATTENTION: Final = {
    "flash_attn": "flash_attention_2",
    "fa2": "flash_attention_2",
    "flash_attention_2": "flash_attention_2",
    "flash_attention": "flash_attention_2",
    "flash_attention_3": "flash_attention_3",
    "fa3": "flash_attention_3",
    "sdpa": "sdpa",
    "eager": "eager",
    "flex_attention": "flex_attention",
    "flex": "flex_attention",
    "kernels-community/flash-attn2": "flash_attention_2",
    "kernels-community/flash-attn3": "flash_attention_3",
    "kernels-community/vllm-flash-attn3": "flash_attention_3",
}


# What every run needs, and the name that --set takes for it.
SETTLES: Final = {
    "model": "model",
    "batch size": "per_device_train_batch_size",
    "sequence length": "max_seq_length",
    "method": "method",
}


# transformers' own aliases (training_args.py OptimizerNames)
OPTIMISERS: Final = {"adamw_8bit": "adamw_bnb_8bit", "paged_adamw": "paged_adamw_32bit"}


_ALL_LINEAR: Final = ("all", "all-linear", "all_linear")


LENGTHS: Final = (
    "max_length",
    "max_seq_length",
    "max_seq_len",
    "block_size",
    "model_max_length",
    "cutoff_len",
    "sequence_len",
)


def truth(value: Value) -> bool:
    """Whether a value says yes."""
    return value.value is True or str(value.value).strip().lower() in ("true", "1", "yes", "on")


def names(value: Any) -> list[str] | str | None:
    """Module names of a list or of a text with commas; "all-linear" and regular expressions stay whole."""
    if isinstance(value, str):
        if value.strip().lower() in _ALL_LINEAR:
            return "all-linear"
        if any(mark in value for mark in "*|()^$\\"):
            return value
        value = [one for one in re.split(r"[,\s\[\]'\"]+", value) if one]
    if isinstance(value, list | tuple):
        listed = [str(one) for one in value if str(one).strip()]
        if len(listed) == 1:
            return names(listed[0]) if listed[0].lower() in _ALL_LINEAR else listed
        return listed or None
    return None
