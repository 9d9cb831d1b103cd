"""Encoders below a decoder: T5's and BART's source text, Whisper's 30 seconds of sound.

The encoder's layers run first, on tokens of their own; its output is read by every decoder layer's cross attention and
lives until backward has come down to the encoder, beside one gradient of its size.
Source: transformers 5.24 modeling_t5.py, modeling_bart.py, modeling_whisper.py.
"""

from __future__ import annotations

from planner.model.spec import Stack
from planner.training.recipe import Recipe
from planner.training.tape.tape import Tape, Value, parameter

_CONVOLVED = 2  # mel frames for each position of Whisper's encoder


def source_tokens(stack: Stack, recipe: Recipe) -> int:
    """Positions of one source: sound always fills its window; text as long as asked, or as the target."""
    if stack.input_elements_per_item:
        return stack.patches_per_item or 0
    return recipe.max_source_length or recipe.max_seq_length


def source_value(tape: Tape, numel: int, width: int, *, needs_grad: bool) -> Value:
    """The encoder's output as a decoder layer reads it: held and counted outside, like the gradient it passes down."""
    value = Value(numel, width, None)
    if not needs_grad:
        return value
    below = parameter(1, width, trainable=True)
    return tape.record(value, (below,), lambda grad: (None,))


def convolution_bytes(stack: Stack, sources: int, width: int, *, trained: bool) -> int:
    """What Whisper's two convolutions keep: their inputs, and what their activations are taken of.

    Frames of so many mel bins, twice the positions at the first convolution's width (before and after gelu), the
    positions after the second. Frozen below, the last result alone, as the first layer's input.
    """
    if not stack.input_elements_per_item or not trained:
        return 0
    positions = (stack.patches_per_item or 0) * stack.hidden_size
    return sources * (stack.input_elements_per_item + 2 * _CONVOLVED * positions + positions) * width
