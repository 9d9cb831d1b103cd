"""What transformers holds when a model generates: weights, the cache it keeps, the peak of prefill.

Its cache is exact-sized: keys and values of the tokens seen, by `torch.cat`; a sliding window keeps its last tokens
and, for one step, the tensor that they are a slice of (transformers 5.24 `cache_utils.py` DynamicCache).
All sizes in bytes on one GPU.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Annotated, Final

from annotated_types import Ge, Le

from planner.contract.inputs import check, option
from planner.errors import UnsupportedArchitecture
from planner.memory.cache.formats import cache_format
from planner.memory.cache.kv_cache import layer_caches
from planner.model.model import Model
from planner.training.choices import read_attention
from planner.training.recipe import DTYPES, Recipe, resolve
from planner.training.states.states import states
from planner.training.states.trainable import inventory
from planner.training.step.step import step_memory

_MOST: Final = 1 << 20
GENERATED: Final = "What is generated"


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """`batch_size` sequences of `input_len` tokens are prefilled at once; then `output_len` tokens are generated.

    Raises:
        UsageError: a size that is not positive, or an unknown type.
    """

    dtype: Annotated[str, option("Stored weights.", panel=GENERATED, choices=tuple(DTYPES), common=True)] = "bfloat16"
    attn_implementation: Annotated[
        str, option("eager, sdpa or flash_attention_2.", panel=GENERATED, read=read_attention, common=True)
    ] = "sdpa"
    batch_size: Annotated[int, Ge(1), Le(_MOST), option("Sequences at once.", panel=GENERATED, common=True)] = 1
    input_len: Annotated[int, Ge(1), Le(_MOST), option("Tokens of each prompt.", panel=GENERATED, common=True)] = 512
    output_len: Annotated[int, Ge(1), Le(_MOST), option("Tokens generated after it.", panel=GENERATED, common=True)] = (
        16
    )

    def __post_init__(self) -> None:
        check(self)

    def inputs(self) -> dict[str, object]:
        """The workload as plain values."""
        return asdict(self)

    @classmethod
    def from_inputs(cls, values: Mapping[str, object]) -> Generation:
        """The workload of such values; others are left alone."""
        return cls(**{field.name: values[field.name] for field in fields(cls) if field.name in values})  # type: ignore[arg-type]


def generation_bytes(
    model: Model, run: Generation, *, exact_sizes: bool = False, workspace_bytes: int = 0
) -> dict[str, int | None]:
    """Weights; the cache when every sequence has its last token; what is allocated at the peak of prefill.

    Prefill makes logits of the last position only. None where the forward of a kind of block is not modelled.

    Args:
        exact_sizes: tensors count their own bytes, not what CUDA's allocator rounds them to.
        workspace_bytes: of the matrix library, inside the allocator.

    Raises:
        UsageError: options out of range.
    """
    recipe = resolve(
        Recipe(
            method="inference",
            dtype=run.dtype,
            per_device_train_batch_size=run.batch_size,
            max_seq_length=run.input_len,
            attn_implementation=run.attn_implementation,
            logits_to_keep=1,
            use_cache=True,
            padding=False,
        )
    )
    found = inventory(model, recipe)
    held = states(found, recipe)
    weights = held.frozen_bytes
    peak: int | None = None
    try:
        step = step_memory(model, found, recipe, exact_sizes=exact_sizes)
    except UnsupportedArchitecture:
        pass
    else:
        # the model's forward holds the embedding's output to its end (`inputs_embeds`, modeling_llama.py)
        embedded = recipe.tokens * model.spec.hidden_size * step.stream_width
        rounding = 0 if exact_sizes else held.weight_rounding_bytes
        peak = weights + rounding + step.peak().activation_bytes + embedded + workspace_bytes
    return {"weights": weights, "kv_cache": cache_bytes(model, run), "prefill_peak": peak}


def cache_bytes(model: Model, run: Generation) -> int:
    """The cache of all sequences after the last token."""
    caches = layer_caches(model.spec.layers, cache_format("auto", run.dtype), state_dtype=run.dtype)
    return run.batch_size * sum(entry.sequence_bytes(run.input_len + run.output_len) for entry in caches)
