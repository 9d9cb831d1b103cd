"""From a recipe to a model that is ready to train: quantised base, adapters, checkpointing."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

from planner.probe.build import build_model
from planner.probe.extras import library
from planner.training.recipe import Recipe


def prepare_model(values: Mapping[str, object], recipe: Recipe, *, device: str) -> Any:
    """The model of a (resolved) recipe in training mode on the device.

    Raises:
        ProbeError: a library is missing, or transformers cannot build the model.
    """
    quantised = recipe.base_quantization != "none"
    model = build_model(
        values,
        dtype=recipe.dtype or "bfloat16",
        attn_implementation=recipe.attn_implementation or "sdpa",
        # a quantised base is packed on its way to the device
        device="cpu" if quantised else device,
    )
    model.train()
    if quantised:
        model = _quantise(model, recipe).to(device)
    checkpointing = bool(recipe.gradient_checkpointing)
    if quantised and recipe.prepare_kbit:
        model = library("peft").prepare_model_for_kbit_training(
            model, use_gradient_checkpointing=checkpointing, gradient_checkpointing_kwargs={"use_reentrant": False}
        )
    elif checkpointing:
        _checkpoint(model)
        if recipe.adapters:
            model.enable_input_require_grads()
    return _with_adapters(model, recipe) if recipe.adapters else model


def _checkpoint(model: Any) -> None:
    """Activation checkpointing, under the name that this transformers has for it (renamed in 5.x)."""
    options = {"use_reentrant": False}
    if hasattr(model, "activation_checkpointing_enable"):
        model.activation_checkpointing_enable(activation_checkpointing_kwargs=options)
    else:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=options)


def _with_adapters(model: Any, recipe: Recipe) -> Any:
    peft = library("peft")
    targets = recipe.lora_target_modules
    config = peft.LoraConfig(
        task_type="CAUSAL_LM",
        r=recipe.lora_rank or 8,
        lora_alpha=2 * (recipe.lora_rank or 8),
        lora_dropout=recipe.lora_dropout or 0.0,
        # one regular expression, or "all-linear", is a string to PEFT; () is its own choice for the model
        target_modules=(targets[0] if _is_pattern(targets) else list(targets)) if targets else None,
        use_dora=recipe.method in ("dora", "qdora"),
        use_rslora=recipe.method == "rslora",
    )
    with warnings.catch_warnings():
        # PEFT asks transformers by a name that transformers has since renamed; nothing a reader here could change
        warnings.filterwarnings("ignore", message=".*is_gradient_checkpointing", category=FutureWarning)
        return peft.get_peft_model(model, config, autocast_adapter_dtype=recipe.adapter_dtype == "float32")


def _is_pattern(targets: tuple[str, ...]) -> bool:
    return len(targets) == 1 and (targets[0] == "all-linear" or any(mark in targets[0] for mark in "*|()[]\\^$"))


def _quantise(model: Any, recipe: Recipe) -> Any:
    """Every linear layer but the output matrix as bitsandbytes' 4-bit one; packed when it is moved to the device."""
    torch, bitsandbytes = library("torch"), library("bitsandbytes")
    head = model.get_output_embeddings()
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is not torch.nn.Linear or child is head:
                continue
            packed = bitsandbytes.nn.Linear4bit(
                child.in_features,
                child.out_features,
                bias=child.bias is not None,
                compute_dtype=child.weight.dtype,
                quant_type=recipe.base_quantization,
                compress_statistics=recipe.bnb_4bit_use_double_quant,
            )
            packed.weight = bitsandbytes.nn.Params4bit(
                child.weight.data,
                requires_grad=False,
                quant_type=recipe.base_quantization,
                compress_statistics=recipe.bnb_4bit_use_double_quant,
            )
            packed.bias = child.bias
            setattr(parent, name, packed)
    model.is_loaded_in_4bit = True  # what PEFT asks before it wraps packed layers
    model.requires_grad_(False)
    return model
