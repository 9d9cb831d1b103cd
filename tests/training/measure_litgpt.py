"""Measure what litgpt's fine-tuning step keeps and peaks at on small models: writes data/litgpt.json.

Run it in an environment of its own, as the suite has no litgpt:

    pip install torch==2.13.0 litgpt==0.5.13 && python -m tests.training.measure_litgpt

The step is that of finetune/lora.py (the head 128 tokens at a time) or of finetune/full.py (logits whole, the loss 128
tokens at a time), under Fabric's bf16-true, with the rotary tables that `fit` makes anew for its longest sequence.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import lightning
import litgpt.lora
import litgpt.model
import torch
from litgpt.utils import chunked_cross_entropy

from tests.training.live_memory import LiveMemory

RANK, HEAD_CHUNK = 4, 128
_COMMON: dict[str, Any] = {
    "block_size": 1024, "n_layer": 3, "n_embd": 128, "n_head": 8, "intermediate_size": 352,
}  # fmt: skip
_LLAMA = {
    "rotary_percentage": 1.0, "parallel_residual": False, "bias": False, "norm_class_name": "RMSNorm",
    "mlp_class_name": "LLaMAMLP",
}  # fmt: skip
_GEMMA = {**_LLAMA, "mlp_class_name": "GemmaMLP", "gelu_approximate": "tanh", "scale_embeddings": True, "head_size": 16}
CONFIGS: dict[str, dict[str, Any]] = {
    "llama": {**_LLAMA},
    "llama-gqa": {**_LLAMA, "n_query_groups": 2},
    "mistral": {**_LLAMA, "n_query_groups": 2, "sliding_window_size": 64},
    "falcon": {"rotary_percentage": 1.0, "shared_attention_norm": True, "bias": False, "n_query_groups": 1},
    "pythia": {},
    "stablelm": {**_LLAMA, "norm_class_name": "LayerNorm", "rotary_percentage": 0.25},
    "gemma": {**_GEMMA, "n_query_groups": 1},
    "gemma-2": {
        **_GEMMA, "n_query_groups": 2, "attention_scores_scalar": 16, "sliding_window_size": 64,
        "sliding_window_indices": [1, 0, 1], "post_attention_norm": True, "post_mlp_norm": True,
        "attention_logit_softcapping": 50.0, "final_logit_softcapping": 30.0,
    },
}  # fmt: skip
TARGETS: dict[str, tuple[str, ...]] = {
    "few": ("query", "value"),
    "all": ("query", "key", "value", "projection", "mlp", "head"),
}
DATA = Path(__file__).parent / "data" / "litgpt.json"


def build(name: str, vocabulary: int, targets: tuple[str, ...], dropout: float) -> torch.nn.Module:
    """The model, in bf16; without targets the one that is trained whole."""
    values = {**_COMMON, **CONFIGS[name], "vocab_size": vocabulary, "padded_vocab_size": vocabulary}
    torch.manual_seed(0)
    if not targets:
        return litgpt.model.GPT(litgpt.model.Config(**values))
    adapters = {f"lora_{target}": True for target in targets}
    config = litgpt.lora.Config(**values, **adapters, lora_r=RANK, lora_alpha=16, lora_dropout=dropout)
    model = litgpt.lora.GPT(config)
    litgpt.lora.mark_only_lora_as_trainable(model)
    return model


def step(name: str, vocabulary: int, batch: int, seq: int, targets: tuple[str, ...], dropout: float) -> tuple[int, int]:
    """(alive when the loss is known, peak) in bytes, of a second step: the first one's logits still have a name."""
    fabric = lightning.Fabric(accelerator="cpu", devices=1, precision="bf16-true")
    model: Any = fabric.setup_module(build(name, vocabulary, targets, dropout))
    with torch.no_grad():  # as `fit` does before it trains; the indices that pad an adapter's result are made here
        model(torch.zeros((1, 2), dtype=torch.int64))
    standing = [*model.parameters(), *model.buffers()]  # kept: `LiveMemory` knows storages by their address
    memory = LiveMemory(standing)
    with memory:
        start = memory.mark()
        model.max_seq_length = seq  # makes the rotary tables anew, which stay in fp32 from here on
        ids = torch.randint(0, vocabulary, (batch, seq))
        labels = ids.clone()
        for _ in range(2):
            model.zero_grad()
            memory.mark()
            if targets:
                logits = model(ids, lm_head_chunk_size=HEAD_CHUNK)
                logits[-1] = logits[-1][..., :-1, :]
                loss = chunked_cross_entropy(logits, labels[..., 1:])
            else:
                logits = model(ids)
                loss = chunked_cross_entropy(logits[..., :-1, :], labels[..., 1:])
            kept = memory.live - start
            fabric.backward(loss / 2)
        peak = memory.peak - start
    del standing
    return kept, peak


def cases() -> Iterator[tuple[str, int, int, int, str, float]]:
    """Model, vocabulary, sequences, their length, targets ("none": trained whole) and dropout."""
    for name in CONFIGS:
        for batch in (1, 2):
            yield name, 640, batch, 160, "none", 0.0
            for targets in TARGETS:
                for dropout in (0.0, 0.1):
                    yield name, 640, batch, 160, targets, dropout
        yield name, 640, 1, 640, "few", 0.1  # many chunks: the peak is where the logits are converted
        for targets, dropout in (("none", 0.0), ("few", 0.0), ("all", 0.1)):
            yield name, 64, 2, 160, targets, dropout  # few logits: layers hold the peak


def main() -> None:
    """Measure all and write."""
    warnings.simplefilter("ignore")
    rows = [[*case, *step(*case[:4], TARGETS.get(case[4], ()), case[5])] for case in cases()]
    versions = {name: version(name) for name in ("torch", "litgpt", "lightning")}
    lines = ["{", f' "versions": {json.dumps(versions)},', ' "steps": [']
    lines += [",\n".join(f"  {json.dumps(row)}" for row in rows), " ]", "}", ""]
    DATA.parent.mkdir(exist_ok=True)
    DATA.write_text("\n".join(lines), "utf-8")


if __name__ == "__main__":
    main()
