"""Measure what transformers 4 and PEFT make of the small models: writes data/transformers_4.json.

Run it in an environment of its own, as the suite has transformers 5:

    pip install torch==2.13.0 transformers==4.57.6 peft==0.18.0 && python -m tests.training.measure_transformers_4
"""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import peft
import torch
import transformers

from tests.training.live_memory import LiveMemory
from tests.training.small_models import EXPERTS, reference

BATCH, SEQ, RANK = 2, 96, 4
TARGETS: tuple[str | list[str], ...] = (
    "all-linear", ["q_proj", "v_proj"], ["gate_proj", "up_proj", "down_proj"], ["w1", "w2", "w3"], ["w1"],
    ["gate_proj"], ["q_proj", "gate"], r".*(q_proj|gate_proj|up_proj)", r".*layers\.1\..*(gate_proj|w1)",
)  # fmt: skip
STEPS = ("llama", "qwen3_moe", "mixtral", "olmoe", "qwen2_moe", "glm4_moe")
DATA = Path(__file__).parent / "data" / "transformers_4.json"


def adapters(model_type: str, targets: str | list[str]) -> int | None:
    """Elements of the adapters; None where PEFT refuses."""
    try:
        model = peft.get_peft_model(reference(model_type, "eager"), peft.LoraConfig(r=RANK, target_modules=targets))
    except ValueError:
        return None
    return sum(p.numel() for p in model.parameters() if p.requires_grad)


def step(model_type: str, attention: str, checkpointing: bool, dropout: float | None) -> tuple[int, int]:
    """(alive when the loss is known, peak) in bytes; `dropout` None: a full fine-tune, otherwise all-linear LoRA."""
    model: Any = reference(model_type, attention)
    base = model
    if dropout is not None:
        model = peft.get_peft_model(model, peft.LoraConfig(r=RANK, target_modules="all-linear", lora_dropout=dropout))
        base = model.get_base_model()
    if checkpointing:
        base.gradient_checkpointing_enable()
        if dropout is not None:
            model.enable_input_require_grads()
    ids = torch.randint(0, 640, (BATCH, SEQ))
    mask = torch.ones_like(ids)  # as a Trainer hands it over; without, 4.57 takes the batch for packed sequences
    memory = LiveMemory([*model.parameters(), *model.buffers(), ids, mask])
    with memory:
        start = memory.mark()
        out = model(input_ids=ids, attention_mask=mask, labels=ids, use_cache=False)
        kept = memory.live - start
        out.loss.backward()
        return kept, memory.peak - start


def main() -> None:
    """Measure all and write."""
    warnings.simplefilter("ignore")
    found: dict[str, Any] = {
        "versions": {"torch": torch.__version__, "transformers": transformers.__version__, "peft": peft.__version__},
        "adapters": [[model, targets, adapters(model, targets)] for model in EXPERTS for targets in TARGETS],
        "steps": [
            [model, attention, checkpointing, dropout, *step(model, attention, checkpointing, dropout)]
            for model in STEPS
            for attention in ("sdpa", "eager")
            for checkpointing in (False, True)
            for dropout in (None, 0.0, 0.1)
        ],
    }
    DATA.parent.mkdir(exist_ok=True)
    rows = {key: value if key == "versions" else [json.dumps(row) for row in value] for key, value in found.items()}
    lines = ["{", f' "versions": {json.dumps(rows["versions"])},']
    lines += [' "adapters": [', ",\n".join(f"  {row}" for row in rows["adapters"]), " ],"]
    lines += [' "steps": [', ",\n".join(f"  {row}" for row in rows["steps"]), " ]", "}", ""]
    DATA.write_text("\n".join(lines), "utf-8")


if __name__ == "__main__":
    main()
