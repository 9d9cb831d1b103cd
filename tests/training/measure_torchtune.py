"""Measure what torchtune makes of small models in one step: writes its version's rows to data/torchtune.json.

Run it in an environment of its own (later releases of torchao do without what torchtune imports):

    pip install torch==2.13.0 torchtune==0.6.1 torchao==0.15.0 && python -m tests.training.measure_torchtune

The step is that of recipes/full_finetune_single_device.py and lora_finetune_single_device.py, without an optimizer.
Measured on the CPU, in bytes: the model's buffers (rotary tables) and what operations made; weights, token ids and
labels are left out.
"""

from __future__ import annotations

import json
import warnings
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import is_traceable_wrapper_subclass
from torchtune import training
from torchtune.models.gemma._component_builders import gemma, lora_gemma
from torchtune.models.llama2 import llama2, lora_llama2
from torchtune.models.llama3 import llama3, lora_llama3
from torchtune.models.llama3_1._component_builders import llama3_1, lora_llama3_1
from torchtune.models.mistral import lora_mistral, mistral
from torchtune.models.phi3 import lora_phi3, phi3
from torchtune.models.qwen2 import lora_qwen2, qwen2
from torchtune.modules import TransformerSelfAttentionLayer
from torchtune.modules.loss import CEWithChunkedOutputLoss
from torchtune.modules.peft import get_adapter_params, set_trainable_params

from tests.training.live_memory import LiveMemory

SEQ, RANK, VOCABULARY = 96, 4, 640
IGNORED_LABEL = -100
DATA = Path(__file__).parent / "data" / "torchtune.json"
SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY, "num_layers": 3, "num_heads": 8, "num_kv_heads": 2, "embed_dim": 128, "max_seq_len": 512,
    "intermediate_dim": 352,
}  # fmt: skip
# By the name of the planner's small model and what is changed in it: full and LoRA builders, and their sizes.
MODELS: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "llama3": (llama3, lora_llama3, {}),
    "llama3_1": (llama3_1, lora_llama3_1, {}),
    "llama2": (llama2, lora_llama2, {"num_kv_heads": 8}),
    "mistral": (mistral, lora_mistral, {}),
    "qwen2": (qwen2, lora_qwen2, {"tie_word_embeddings": True}),
    "gemma": (gemma, lora_gemma, {"head_dim": 16}),
    "phi3": (phi3, lora_phi3, {}),
}
# What is trained: everything, or adapters on these modules, on the feed-forward, on the output; dropout; a 4-bit base.
METHODS: dict[str, dict[str, Any] | None] = {
    "full": None,
    "full-in-backward": None,  # every parameter is updated, and its gradient gone, when it has one
    "lora": {"lora_attn_modules": ["q_proj", "v_proj"]},
    "lora-all": {"lora_attn_modules": ["q_proj", "k_proj", "v_proj", "output_proj"], "apply_lora_to_mlp": True},
    "lora-output": {"lora_attn_modules": ["q_proj", "v_proj", "output_proj"], "apply_lora_to_mlp": True,
                    "apply_lora_to_output": True},
    "lora-dropout": {"lora_attn_modules": ["q_proj", "v_proj", "output_proj"], "apply_lora_to_mlp": True,
                     "lora_dropout": 0.1},
    "qlora": {"lora_attn_modules": ["q_proj", "v_proj"], "quantize_base": True},
    "qlora-all": {"lora_attn_modules": ["q_proj", "k_proj", "v_proj", "output_proj"], "apply_lora_to_mlp": True,
                  "quantize_base": True},
}  # fmt: skip
# torchao divides a matrix into blocks of 64 and their scales into blocks of 256.
QUANTISABLE = {"embed_dim": 256, "intermediate_dim": 768, "num_kv_heads": 8}


def build(name: str, method: str) -> torch.nn.Module:
    """The model with random weights in bf16, as the recipes make it."""
    plain, adapted, changes = MODELS[name]
    asked = METHODS[method]
    sizes = {**SIZES, **changes}
    if asked is not None and asked.get("quantize_base"):
        sizes |= QUANTISABLE | ({"head_dim": 32} if "head_dim" in sizes else {})
    torch.manual_seed(0)
    with training.set_default_dtype(torch.bfloat16):
        if asked is None:
            return plain(**sizes)
        model = adapted(**asked, **sizes, lora_rank=RANK, lora_alpha=2 * RANK)
        set_trainable_params(model, get_adapter_params(model))
    return model


def step(name: str, method: str, checkpointing: bool, chunked: bool, batch: int) -> tuple[int, int]:
    """(alive when the loss is known, peak of forward and backward)."""
    model = build(name, method)
    if checkpointing:
        training.set_activation_checkpointing(model, auto_wrap_policy={TransformerSelfAttentionLayer})
    loss_of: Any = CEWithChunkedOutputLoss() if chunked else torch.nn.CrossEntropyLoss(ignore_index=IGNORED_LABEL)
    if method == "full-in-backward":
        for parameter in model.parameters():
            parameter.register_post_accumulate_grad_hook(_drop_gradient)
    if chunked:
        model.set_num_output_chunks(loss_of.num_output_chunks)
    ids = torch.randint(0, VOCABULARY, (batch, SEQ))
    ignored = torch.full((batch, 1), IGNORED_LABEL)
    memory = LiveMemory([*pieces(model), ids, ignored])
    tables = {buffer.untyped_storage()._cdata: buffer.untyped_storage().nbytes() for buffer in model.buffers()}
    with memory:
        start = memory.mark() - sum(tables.values())
        loss = loss_step(model, loss_of, ids, ignored)
        kept = memory.live - start
        loss.backward()
        return kept, memory.peak - start


def loss_step(model: torch.nn.Module, loss_of: Any, ids: torch.Tensor, ignored: torch.Tensor) -> torch.Tensor:
    """The recipes' `_loss_step`: labels moved by one, the logits let go of when the loss is known."""
    logits = model(tokens=ids)
    labels = torch.hstack((ids[..., 1:], ignored))
    if not isinstance(logits, list):
        labels = labels.reshape(-1)
        logits = logits.reshape(-1, logits.size(-1))
    loss = loss_of(logits, labels)
    del logits
    return loss * labels.numel()


def _drop_gradient(parameter: torch.Tensor) -> None:
    parameter.grad = None


def pieces(model: torch.nn.Module) -> list[torch.Tensor]:
    """Weights and buffers, the tensors inside of quantised ones."""
    found: list[torch.Tensor] = []
    for tensor in (*model.parameters(), *model.buffers()):
        if is_traceable_wrapper_subclass(tensor):
            found += [getattr(tensor, inner) for inner in tensor.__tensor_flatten__()[0]]
        else:
            found.append(tensor)
    return found


def main() -> None:
    """Measure all and write."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    rows = []
    for name in MODELS:
        for method in METHODS:
            if method == "lora-output" and name in ("gemma", "qwen2"):
                continue  # tied: torchtune has no adapter there
            for checkpointing in (False, True):
                for chunked, batch in ((False, 2), (True, 2), (True, 1)):
                    found = step(name, method, checkpointing, chunked, batch)
                    rows.append([name, method, checkpointing, chunked, batch, *found])
    data = json.loads(DATA.read_text("utf-8")) if DATA.exists() else {}
    tune = version("torchtune")
    data[tune] = {"versions": {name: version(name) for name in ("torch", "torchao")}, "steps": rows}
    DATA.parent.mkdir(exist_ok=True)
    lines = ["{"]
    for at, (key, value) in enumerate(sorted(data.items())):
        lines.append(f' {json.dumps(key)}: {{"versions": {json.dumps(value["versions"])}, "steps": [')
        lines.append(",\n".join(f"  {json.dumps(row)}" for row in value["steps"]))
        lines.append(" ]}" + ("," if at + 1 < len(data) else ""))
    DATA.write_text("\n".join([*lines, "}", ""]), "utf-8")


if __name__ == "__main__":
    main()
