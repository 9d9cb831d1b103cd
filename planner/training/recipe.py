"""The recipe with its framework's defaults filled in, and which code it runs."""

from __future__ import annotations

import difflib
import json
import re
from dataclasses import fields, replace
from functools import cache
from importlib.resources import files
from typing import Any, Final

from planner.contract.inputs import check as check_inputs
from planner.errors import UsageError
from planner.training.choices import AUTOCASTS, DTYPES, METHODS, QUANTISATIONS
from planner.training.inputs import DEEPSPEED, Recipe
from planner.training.recipe_checks import check

__all__ = [
    "AUTOCASTS",
    "DEEPSPEED",
    "DTYPES",
    "METHODS",
    "QUANTISATIONS",
    "Recipe",
    "frameworks",
    "kernels",
    "near",
    "resolve",
    "version_of",
]

# Other names that the stacks go by.
_FRAMEWORK_NAMES: Final = {
    "lit-gpt": "litgpt",
    "llama-factory": "llamafactory",
    "megatron-lm": "megatron",
    "fms-hf-tuning": "fms",
    "ms-swift": "swift",
    "nemo": "nemo-rl",
    "nemo_rl": "nemo-rl",
    "peft": "transformers",
    "plain": "transformers",
    "plain-loop": "transformers",
}
_GENERATES_ITSELF: Final = ("transformers", "trl", "axolotl", "llamafactory")
_PACK_PROMPTS: Final = ("verl", "openrlhf", "nemo-rl")  # log-probabilities of whole, packed sequences
_NEWEST_BITSANDBYTES: Final = "0.50"
# What inductor makes of a block: element-wise functions are fused and recomputed, as the hand-written kernels do.
COMPILED: Final = {"norm": "fused", "rope": "fused", "mlp": "liger", "compiled": True, "compiled_blocks": True}


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
    if recipe.bitsandbytes_version is not None:
        found |= _of_release(row.get("bitsandbytes_versions", []), recipe.bitsandbytes_version, "bitsandbytes_version")
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
    check_inputs(recipe)
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
    if recipe.num_gpus == 1:
        defaults.pop("sharding", None)
    else:
        defaults.setdefault("sharding", "ddp")
    if not recipe.rolls_out:
        for name in ("generation_share", "vllm_enable_sleep_mode", "offload_frozen_models"):
            defaults.pop(name, None)
    if recipe.objective != "grpo":
        defaults.pop("beta", None)
    elif recipe.objective == "grpo":
        defaults.setdefault("beta", 0.0)
    if recipe.objective == "ppo" and recipe.framework in _GENERATES_ITSELF:
        defaults["vllm_mode"] = "none"  # trl 1.10 experimental/ppo/ppo_trainer.py: model.generate
    if recipe.objective not in ("sft", "mlm") and defaults["loss"] == "chunked" and recipe.framework == "trl":
        defaults["loss"] = "hf"  # chunked_nll is sft_config.py's alone
    if recipe.packing:
        defaults["padding"] = False
    if recipe.base_quantization in ("nf4", "fp4", "int8") and recipe.framework == "transformers":
        defaults["prepare_kbit"] = recipe.method in ("qlora", "qdora")
    if recipe.prepare_kbit or (recipe.prepare_kbit is None and defaults.get("prepare_kbit")):
        defaults["gradient_checkpointing"] = True  # prepare_model_for_kbit_training turns it on
    sharded = recipe.sharding or defaults.get("sharding")
    if sharded in DEEPSPEED and (recipe.dtype or defaults["dtype"]) != "float32":
        # DeepSpeed's 16-bit engines convert the module, adapters too, and keep an fp32 copy of what is trained
        defaults["master_weights"], defaults["adapter_dtype"] = "fp32", recipe.dtype or defaults["dtype"]
        defaults["overlap_comm"] = sharded == "zero3"
    if recipe.method == "galore":
        defaults["optim"] = "galore_adamw"
    if recipe.method == "badam":
        defaults["master_weights"] = "fp32"  # BAdam 1.2 block_optim.py: an fp32 copy of the active block
    recipe = _with_length(recipe)
    if recipe.rolls_out and recipe.framework not in _PACK_PROMPTS:
        defaults["logits_to_keep"] = recipe.max_completion_length  # packed sequences have the prompt's too
    if (recipe.optim or "").endswith("_layerwise"):
        recipe = replace(recipe, optimizer_in_backward=True)  # transformers trainer_optimizer.py: a hook a parameter
    fallback = {
        "autocast": "none",
        "master_weights": "none",
        "base_quantization": "none",
        "prepare_kbit": False,
        "sharding": "none",
        "activation_offload": False,
        "padding": False,
        "torch_compile": False,
        "grad_dtype": None,
        "overlap_comm": False,
        "vllm_enable_sleep_mode": False,
    }
    changes: dict[str, object] = {}
    for field in fields(Recipe):
        if getattr(recipe, field.name) is None:
            value = defaults.get(field.name, fallback.get(field.name))
            if value is not None:
                changes[field.name] = value
    resolved = replace(recipe, **changes)  # type: ignore[arg-type]
    check(resolved)
    return resolved


def _with_length(recipe: Recipe) -> Recipe:
    """Prompt and completion make the sequence of a rollout.

    Raises:
        UsageError: another length was given beside them.
    """
    prompt, answer = recipe.max_prompt_length, recipe.max_completion_length
    if not recipe.rolls_out or prompt is None or answer is None:
        return recipe
    given, default = recipe.max_seq_length, Recipe().max_seq_length
    if given not in (default, prompt + answer):
        raise UsageError(
            f"--max-seq-length {given} beside --max-prompt-length {prompt} and --max-completion-length {answer}, which"
            f" make {prompt + answer}; leave it out",
            field="max_seq_length",
        )
    return replace(recipe, max_seq_length=prompt + answer)


def _check_names(recipe: Recipe) -> None:
    known = tuple(frameworks())
    if recipe.framework not in known:
        raise UsageError(
            f"--framework {recipe.framework!r} is not known{near(recipe.framework, known)}", field="framework"
        )


def near(value: str, known: tuple[str, ...]) -> str:
    """What to try instead of an unknown value."""
    close = difflib.get_close_matches(value, known, n=1, cutoff=0.5)
    return f"; did you mean {close[0]}?" if close else f"; expected one of {', '.join(known)}"
