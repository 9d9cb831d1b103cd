"""The recipe: what the user runs, under the trainer's own option names, and the framework's defaults filled in."""

from __future__ import annotations

import difflib
import json
import re
from dataclasses import dataclass, fields, replace
from functools import cache
from importlib.resources import files
from typing import Any, Final

from planner.errors import UsageError
from planner.field_types import check_field_types
from planner.training.recipe_checks import check

METHODS: Final = (
    "full", "lora", "qlora", "dora", "qdora", "rslora", "freeze", "prompt", "galore", "badam", "lisa", "inference",
)  # fmt: skip
OBJECTIVES: Final = ("sft", "dpo", "kto", "orpo", "reward", "ppo", "grpo")
DTYPES: Final = {"float32": 4, "bfloat16": 2, "float16": 2}
AUTOCASTS: Final = {"none": 0, "bf16": 2, "fp16": 2}
QUANTISATIONS: Final = ("none", "nf4", "fp4", "int8", "gptq", "awq", "torchao-nf4")
SHARDINGS: Final = ("none", "ddp", "zero1", "zero2", "zero3", "fsdp", "fsdp2", "hsdp")
DEEPSPEED: Final = ("zero1", "zero2", "zero3")
LOSSES: Final = ("hf", "in-place", "chunked", "liger", "cce", "megatron")
ATTENTIONS: Final = ("eager", "sdpa", "flash_attention_2", "flash_attention_3", "flex_attention")
# Other names that the stacks go by.
_FRAMEWORK_NAMES: Final = {
    "lit-gpt": "litgpt",
    "llama-factory": "llamafactory",
    "megatron-lm": "megatron",
    "fms-hf-tuning": "fms",
    "peft": "transformers",
    "plain": "transformers",
    "plain-loop": "transformers",
}
_NEWEST_BITSANDBYTES: Final = "0.50"
# What inductor makes of a block: element-wise functions are fused and recomputed, as the hand-written kernels do.
COMPILED: Final = {"norm": "fused", "rope": "fused", "mlp": "liger", "compiled": True, "compiled_blocks": True}
_ADAPTERS: Final = ("lora", "qlora", "dora", "qdora", "rslora")


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """A fine-tune. None means the framework's default.

    Args:
        method: what is trained: everything, adapters, adapters on a quantised base, the last layers, a prompt, or a few
            layers at a time (badam: one; lisa: two, with embeddings and head).
        objective: supervised, or a preference or reinforcement set-up with its further models.
        dtype: stored weights. autocast: what matrix operations compute in. master_weights: an fp32 copy in the
            optimizer. grad_dtype: of the gradients that are kept (None: the weights').
        loss: how logits become a loss: "hf" (whole, in fp32), "in-place" (gradient written over the logits),
            "chunked" (a part of the tokens at a time), "liger" and "cce" (never whole).
        keep_outputs: the model's output object, and with it the logits, lives through backward.
        dequantize: a quantised checkpoint's weights become `dtype` when they are loaded.
        lora_target_modules: names, or "all-linear"; () is the framework's choice.
        torch_compile: blocks and loss are compiled.
        transformers_version: of the stacks built on it; decides how logits are copied.
        framework_version: release of a framework that runs its own modules (None: the newest that is known).
        bitsandbytes_version: decides what a 4-bit layer keeps (None: the newest that is known).
        freeze_layers: layers from the bottom that are frozen (method "freeze").
        checkpoint_every: layers in one checkpointed segment.
        use_cache: keys and values are kept in a cache object while training (transformers does unless told).
        padding: batches hold sequences of different lengths, so attention gets a mask (False: packed, or all full).
        reduce_bucket_size, overlap_comm, stage3_max_live_parameters, sub_group_size, pin_memory: of DeepSpeed's JSON
            (reduce_bucket_size None: the HF integration's "auto", hidden_size squared).
        offload_optimizer, offload_parameters: to host memory.
        keep_gradients: gradients of the step before lie beside the forward (a loop that sets them to zero, or that
            calls zero_grad after it).
        ema: a second copy of the trained weights.
        generation_share: fraction of the card that a generation engine beside the trainer takes (PPO, GRPO).
    """

    method: str = "lora"
    objective: str = "sft"
    framework: str = "transformers"
    dtype: str | None = None
    autocast: str | None = None
    master_weights: str | None = None
    grad_dtype: str | None = None
    base_quantization: str | None = None
    dequantize: bool = False
    bnb_4bit_use_double_quant: bool = False
    prepare_kbit: bool | None = None
    optim: str | None = None
    per_device_train_batch_size: int = 1
    gradient_accumulation_steps: int = 1
    max_seq_length: int = 2048
    gradient_checkpointing: bool | None = None
    checkpoint_every: int = 1
    activation_offload: bool | None = None
    attn_implementation: str | None = None
    loss: str | None = None
    keep_outputs: bool | None = None
    logits_to_keep: int | None = None
    use_cache: bool | None = None
    padding: bool | None = None
    lora_rank: int | None = None
    lora_target_modules: tuple[str, ...] = ()
    lora_dropout: float | None = None
    adapter_dtype: str | None = None
    modules_to_save: tuple[str, ...] = ()
    prompt_tokens: int = 20
    freeze_layers: int | None = None
    torch_compile: bool | None = None
    transformers_version: str | None = None
    framework_version: str | None = None
    bitsandbytes_version: str | None = None
    optimizer_in_backward: bool = False
    optimizer_rank: int = 128
    keep_gradients: bool | None = None
    ema: bool = False
    num_gpus: int = 1
    sharding: str | None = None
    shard_group: int | None = None
    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    context_parallel_size: int = 1
    expert_parallel_size: int = 1
    sequence_parallel: bool = False
    reduce_bucket_size: int | None = None
    overlap_comm: bool | None = None
    stage3_max_live_parameters: int = 1_000_000_000
    sub_group_size: int = 1_000_000_000
    pin_memory: bool = True
    offload_optimizer: bool = False
    offload_parameters: bool = False
    generation_share: float | None = None

    @property
    def adapters(self) -> bool:
        """Low-rank adapters are trained beside a frozen base."""
        return self.method in _ADAPTERS

    @property
    def tokens(self) -> int:
        """Tokens of one micro-batch on one GPU, padding included."""
        sequences = self.per_device_train_batch_size * (2 if self.objective in ("dpo", "orpo", "reward") else 1)
        return sequences * self.max_seq_length

    @property
    def sequences(self) -> int:
        """Sequences of one micro-batch; preference pairs count twice."""
        return self.per_device_train_batch_size * (2 if self.objective in ("dpo", "orpo", "reward") else 1)


@cache
def frameworks() -> dict[str, dict[str, Any]]:
    """The table of frameworks: defaults, kernels, source."""
    found: dict[str, dict[str, Any]] = json.loads(
        files("planner.training").joinpath("stacks/frameworks.json").read_text("utf-8")
    )
    return found


@cache
def _versions() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(
        files("planner.training").joinpath("stacks/transformers_versions.json").read_text("utf-8")
    )
    return found


def kernels(recipe: Recipe) -> dict[str, Any]:
    """Which code a (resolved) recipe runs: the framework's own, with this loss, at this transformers version."""
    row = frameworks()[recipe.framework]
    found: dict[str, Any] = {}
    if recipe.transformers_version is not None:
        found |= _of_release(_versions(), recipe.transformers_version, "transformers_version")
    if recipe.loss == "in-place" and "shifted_copy" not in found:
        # Kernels that write over the logits were made for releases whose model converted and copied them.
        found |= {"upcast": "model", "shifted_copy": True}
    found |= row["kernels"]
    if recipe.framework_version is not None:
        found |= _of_release(row.get("versions", []), recipe.framework_version, "framework_version")
    found |= row.get("with_loss", {}).get(recipe.loss, {})
    if recipe.torch_compile or found.get("compiled"):
        outside = {"norm_outside_blocks": found["norm"]} if found.get("compiles_blocks_apart") else {}
        found |= {**COMPILED, **outside}
        if found.get("loses_compiled_loss") and not _compiles_loss(recipe):
            found["compiled"] = False
    return found


def _compiles_loss(recipe: Recipe) -> bool:
    """Whether torchtune's recipe uses the loss that it compiles: a chunked one is changed, others are replaced.

    Most recipes do not keep the replacement (torchtune 0.4.0 and 0.6.1 training/_compile.py compile_loss, called for
    its effect in recipes/full_finetune_single_device.py and *_distributed.py; lora_finetune_single_device.py takes it).
    """
    return recipe.loss == "chunked" or (recipe.adapters and recipe.num_gpus == 1)


def _check_release(recipe: Recipe, row: dict[str, Any]) -> None:
    """Refuse a release of a framework of which nothing is known to depend on it, or that cannot exist yet."""
    for field, version, newest in (
        ("framework_version", recipe.framework_version, row.get("newest")),
        ("transformers_version", recipe.transformers_version, frameworks()["transformers"]["newest"]),
        ("bitsandbytes_version", recipe.bitsandbytes_version, _NEWEST_BITSANDBYTES),
    ):
        if version is None:
            continue
        option = f"--{field.replace('_', '-')}"
        if field == "framework_version" and not row.get("versions"):
            raise UsageError(
                f"{option}: nothing here depends on the release of {recipe.framework}; its stack is told by"
                " --transformers-version and --bitsandbytes-version",
                field=field,
            )
        if newest is not None and version_of(version, field)[0] > version_of(newest, field)[0] + 1:
            raise UsageError(f"{option} {version} is not known; the newest that is known is {newest}", field=field)


def _of_release(rules: list[dict[str, Any]], version: str, field: str, part: str = "kernels") -> dict[str, Any]:
    """What the rules say about this release."""
    asked = version_of(version, field)
    found: dict[str, Any] = {}
    for rule in rules:
        if version_of(rule.get("from", "0"), field) <= asked < version_of(rule.get("below", "999"), field):
            found |= rule.get(part, {})
    return found


def version_of(version: str, field: str) -> tuple[int, int, int]:
    """Major, minor and patch; what is left out is 0.

    Raises:
        UsageError: not a version; names the option.
    """
    found = re.fullmatch(r"([0-9]{1,4})(?:\.([0-9]{1,4}))?(?:\.([0-9]{1,4}))?(?:[.+a-z-][0-9A-Za-z.+-]*)?", version)
    if found is None:
        raise UsageError(f"--{field.replace('_', '-')} {version!r} is not a version such as 4.48", field=field)
    return int(found[1]), int(found[2] or 0), int(found[3] or 0)


def resolve(recipe: Recipe) -> Recipe:
    """The recipe with every default filled in.

    Raises:
        UsageError: an option's value is not known or not possible; names the option.
    """
    check_field_types(recipe, option=lambda name: f"--{name.replace('_', '-')}")
    recipe = replace(recipe, framework=_FRAMEWORK_NAMES.get(recipe.framework.lower(), recipe.framework.lower()))
    _check_names(recipe)
    row = frameworks()[recipe.framework]
    defaults = dict(row["defaults"])
    _check_release(recipe, row)
    if recipe.framework_version is not None:
        defaults |= _of_release(row.get("versions", []), recipe.framework_version, "framework_version", "defaults")
    defaults |= row.get("defaults_with_loss", {}).get(recipe.loss or defaults["loss"], {})
    if recipe.method in ("qlora", "qdora"):
        defaults["base_quantization"] = "torchao-nf4" if recipe.framework == "torchtune" else "nf4"
    if recipe.loss in ("in-place", "liger", "cce", "chunked"):
        defaults["keep_outputs"] = False  # such losses come with trainers, which keep the loss alone
    if recipe.num_gpus > 1:
        defaults["sharding"] = "ddp"
    if recipe.base_quantization in ("nf4", "fp4", "int8") and recipe.framework == "transformers":
        defaults["prepare_kbit"] = recipe.method in ("qlora", "qdora")
    if recipe.prepare_kbit or (recipe.prepare_kbit is None and defaults.get("prepare_kbit")):
        defaults["gradient_checkpointing"] = True  # prepare_model_for_kbit_training turns it on
    if recipe.sharding in DEEPSPEED and (recipe.dtype or defaults["dtype"]) != "float32":
        # DeepSpeed's 16-bit engines convert the module, adapters too, and keep an fp32 copy of what is trained
        defaults["master_weights"], defaults["adapter_dtype"] = "fp32", recipe.dtype or defaults["dtype"]
        defaults["overlap_comm"] = recipe.sharding == "zero3"
    if recipe.method == "galore":
        defaults["optim"] = "galore_adamw"
    if recipe.method == "badam":
        defaults["master_weights"] = "fp32"  # BAdam 1.2 block_optim.py: an fp32 copy of the active block
    if (recipe.optim or "").endswith("_layerwise"):
        recipe = replace(recipe, optimizer_in_backward=True)  # transformers trainer_optimizer.py: a hook a parameter
    fallback = {
        "autocast": "none", "master_weights": "none", "base_quantization": "none", "prepare_kbit": False,
        "sharding": "none", "activation_offload": False, "padding": False, "torch_compile": False, "grad_dtype": None,
        "overlap_comm": False,
    }  # fmt: skip
    changes: dict[str, object] = {}
    for field in fields(Recipe):
        if getattr(recipe, field.name) is None:
            value = defaults.get(field.name, fallback.get(field.name))
            if value is not None:
                changes[field.name] = value
    resolved = replace(recipe, **changes)  # type: ignore[arg-type]
    check(resolved)
    return resolved


def _check_names(recipe: Recipe) -> None:
    for option, value, known in (
        ("framework", recipe.framework, tuple(frameworks())),
        ("method", recipe.method, METHODS),
        ("objective", recipe.objective, OBJECTIVES),
        ("dtype", recipe.dtype, tuple(DTYPES)),
        ("adapter_dtype", recipe.adapter_dtype, tuple(DTYPES)),
        ("autocast", recipe.autocast, tuple(AUTOCASTS)),
        ("master_weights", recipe.master_weights, ("none", "fp32")),
        ("grad_dtype", recipe.grad_dtype, ("fp32", "bf16", "fp16", *DTYPES)),
        ("base_quantization", recipe.base_quantization, QUANTISATIONS),
        ("loss", recipe.loss, LOSSES),
        ("attn_implementation", recipe.attn_implementation, ATTENTIONS),
        ("sharding", recipe.sharding, SHARDINGS),
    ):
        if value is not None and value not in known:
            raise UsageError(f"--{option.replace('_', '-')} {value!r} is not known{near(value, known)}", field=option)


def near(value: str, known: tuple[str, ...]) -> str:
    """What to try instead of an unknown value."""
    close = difflib.get_close_matches(value, known, n=1, cutoff=0.5)
    return f"; did you mean {close[0]}?" if close else f"; expected one of {', '.join(known)}"
