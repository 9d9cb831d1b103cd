"""What a multimodal encoder adds to the profile run: its own forward, and the inputs and outputs held after it."""

from __future__ import annotations

import csv
from functools import cache
from importlib.resources import files
from typing import Final

from planner.engines.vllm.budget.runner import Term, distinct
from planner.engines.vllm.resolve import Resolved
from planner.engines.vllm.tables.profile import parse_version
from planner.hardware.cublas import cublas_workspace
from planner.memory import activations as terms
from planner.memory.sharding import Parallelism
from planner.model.kinds.feed_forward import Mlp
from planner.model.model import Model
from planner.model.spec import Stack


def encoder_items(model: Model, resolved: Resolved) -> tuple[int, int]:
    """(items, tokens of one) of the largest modality in the profile run; (0, 0) when it is skipped.

    items = max(1, min(budget // tokens, max_num_seqs x items per prompt)), budget = max(T, tokens).
    Source: vLLM 0.19.0 `multimodal/encoder_budget.py`.
    """
    asked = resolved.asked
    if asked.skip_mm_profiling or asked.language_model_only or asked.limit_images == 0:
        return 0, 0
    tokens = max((stack.tokens_per_item or 0 for stack in model.spec.stacks), default=0)
    if not tokens:
        return 0, 0
    per_prompt = resolved.max_model_len // tokens
    if asked.limit_images is not None:
        per_prompt = min(per_prompt, asked.limit_images)
    elif resolved.profile.runner == "v0":
        per_prompt = min(per_prompt, 1)
    budget = max(resolved.max_num_batched_tokens, tokens)
    return max(1, min(budget // tokens, resolved.max_num_seqs * per_prompt)), tokens


def encoder_inputs(model: Model, resolved: Resolved) -> list[Term]:
    """Dummy inputs and encoder outputs, which profile_run still references while the text model runs."""
    items, tokens = encoder_items(model, resolved)
    if not items:
        return []
    element = resolved.element_bytes
    outputs = items * tokens * model.spec.hidden_size * element
    elements = max((stack.input_elements_per_item or 0 for stack in model.spec.stacks), default=0)
    return [
        Term("encoder outputs", outputs, f"{items} x {tokens:,} x {model.spec.hidden_size:,} x {element}"),
        Term("encoder inputs", items * elements * element, f"{items} x {elements:,} x {element}"),
    ]


def encoder_run(model: Model, resolved: Resolved, parallelism: Parallelism) -> tuple[Term, ...]:
    """The encoder on the profile run's items: its inputs, and the fullest moment inside one of its layers."""
    items, _ = encoder_items(model, resolved)
    stack = max(model.spec.stacks, key=lambda stack: stack.tokens_per_item or 0, default=None)
    if not items or stack is None or not stack.patches_per_item or not stack.layers:
        return ()
    ways, own = parallelism.tensor_parallel_size, items
    if resolved.asked.mm_encoder_tp_mode == "data":
        # whole towers share the items between the GPUs
        ways, own = 1, -(-items // ways)
    element, patches = resolved.element_bytes, own * stack.patches_per_item
    peaks = []
    for layer in distinct(stack.layers):
        block = layer.feed_forward
        if isinstance(block, Mlp):
            inner = block.intermediate_size if block.replicated else -(-block.intermediate_size // ways)
            peak = terms.gated_mlp_peak if block.gated else terms.plain_mlp_peak
            size = peak(tokens=patches, hidden_size=stack.hidden_size, intermediate_size=inner, element_bytes=element)
            formula = f"{patches:,} x ({3 if block.gated else 2} x {inner:,} + 3 x {stack.hidden_size:,}) x {element}"
            peaks.append(Term(f"{stack.name} layer", size, formula))
    if not peaks:
        return ()
    if model.spec.model_type in _fp32_towers():
        peaks.append(_rotated(stack, resolved, patches=patches, ways=ways))
    elements = stack.input_elements_per_item or 0
    return (
        Term("BLAS workspace", cublas_workspace(resolved.asked.gpu).size_bytes, "fixed"),
        Term("encoder inputs", items * elements * element, f"{items} x {elements:,} x {element}"),
        max(peaks, key=lambda term: term.size),
    )


# From here on vLLM turns a tower's queries and keys together (models/qwen2_5_vl.py)
_JOINED: Final = (0, 11, 0)
_FLASH_ATTENTION: Final = (8, 0)


def _rotated(stack: Stack, resolved: Resolved, *, patches: int, ways: int) -> Term:
    """A tower's attention while its queries and keys are turned in fp32, in widths of the tower.

    Residual and normed input; query, key and value as they come (3); then either queries and keys joined (2), their
    fp32 copy (4) and the fp32 result (4); or, before 0.11, three contiguous copies, and of one of them the fp32 copy
    (2), its result (2) and that in 16 bit (1), where the flash-attention kernel turns it, else four fp32 products (8).
    """
    card = resolved.asked.gpu
    local = 3 + 2 + 4 + 4
    if parse_version(resolved.profile.version) < _JOINED:
        kernel = card is None or card.capability is None or card.capability >= _FLASH_ATTENTION
        local = 3 + 3 + (5 if kernel else 8)
    whole, cut = 2 * stack.hidden_size, local * -(-stack.hidden_size // ways)
    size = patches * (whole + cut) * resolved.element_bytes
    formula = f"{patches:,} x (2 x {stack.hidden_size:,} + {local} x {stack.hidden_size:,} / {ways}) x"
    return Term(f"{stack.name} attention in fp32", size, f"{formula} {resolved.element_bytes}")


@cache
def _fp32_towers() -> frozenset[str]:
    text = files("planner.engines.vllm.tables").joinpath("towers.csv").read_text("utf-8")
    return frozenset(row["model_type"] for row in csv.DictReader(text.splitlines()))
