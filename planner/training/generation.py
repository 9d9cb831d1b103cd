"""What transformers holds when a model generates: weights, the cache it keeps, the peak of prefill.

Its cache is exact-sized: keys and values of the tokens seen, by `torch.cat`; a sliding window keeps its last tokens
and, for one step, the tensor that they are a slice of (transformers 5.24 `cache_utils.py` DynamicCache).
All sizes in bytes on one GPU.
"""

from __future__ import annotations

from dataclasses import dataclass

from planner.memory.cache_formats import cache_format
from planner.memory.kv_cache import layer_caches
from planner.model.model import Model
from planner.training.recipe import Recipe, resolve
from planner.training.states import states
from planner.training.step import step_memory
from planner.training.trainable import inventory


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationMemory:
    """Bytes of a run that prefills `batch` sequences and then generates.

    Args:
        cache_bytes: after the last token.
        prefill_bytes: allocated at the peak of prefill, weights included; logits of the last position only.
    """

    weights_bytes: int
    cache_bytes: int
    prefill_bytes: int


def generation_memory(
    model: Model,
    *,
    dtype: str,
    batch_size: int,
    input_len: int,
    output_len: int,
    attn_implementation: str = "sdpa",
    exact_sizes: bool = False,
) -> GenerationMemory:
    """The memory of prefill over `input_len` tokens and `output_len` decode steps, each of which caches one token.

    Args:
        exact_sizes: tensors count their own bytes, not what CUDA's allocator rounds them to.

    Raises:
        UsageError: sizes or types out of range.
        UnsupportedArchitecture: a kind of block whose forward is not modelled.
    """
    recipe = resolve(
        Recipe(
            method="inference", dtype=dtype, per_device_train_batch_size=batch_size, max_seq_length=input_len,
            attn_implementation=attn_implementation, logits_to_keep=1, use_cache=True, padding=False,
        )
    )  # fmt: skip
    found = inventory(model, recipe)
    weights = states(found, recipe).frozen_bytes
    step = step_memory(model, found, recipe, exact_sizes=exact_sizes)
    # the model's forward holds the embedding's output to its end (`inputs_embeds`, transformers 5.24 modeling_llama.py)
    embedded = recipe.tokens * model.spec.hidden_size * step.stream_width
    return GenerationMemory(
        weights_bytes=weights,
        cache_bytes=cache_bytes(model, dtype=dtype, batch_size=batch_size, length=input_len + output_len),
        prefill_bytes=weights + step.peak().activation_bytes + embedded,
    )


def cache_bytes(model: Model, *, dtype: str, batch_size: int, length: int) -> int:
    """The cache of `batch_size` sequences of `length` tokens."""
    caches = layer_caches(model.spec.layers, cache_format("auto", dtype), state_dtype=dtype)
    return batch_size * sum(entry.sequence_bytes(length) for entry in caches)
