"""What DeepSpeed's engines allocate beside the model: bytes on one GPU and on its host.

P parameters in 16 bit, N ranks, trained with Adam; g bytes of the gradients' accumulation type:

zero1, zero2   2P (flat) + 4P/N (fp32 copy) + 8P/N; gradients gP or gP/N; at the step 2P/N flattened and 4P/N in fp32
zero1, g = 4   BF16_Optimizer: 2P + 4P (gradients, never freed) + 12P/N
zero3          (2 + 4 + 8 + g)P/N from the start; up to stage3_max_live_parameters gathered

Source: deepspeed 0.19.6 runtime/zero/stage_1_and_2.py, stage3.py, config.py, bf16_optimizer.py; HF's "auto" values:
transformers 5.24 integrations/deepspeed.py trainer_config_process (reduce bucket h^2).
"""

from __future__ import annotations

from planner.training.recipe import Recipe

_NARROW, _FP32, _ADAM = 2, 4, 8


def bucket_bytes(recipe: Recipe, hidden_size: int) -> int:
    """The reduce bucket, two of them where communication overlaps."""
    elements = recipe.reduce_bucket_size or hidden_size * hidden_size
    return elements * _NARROW * (2 if recipe.overlap_comm else 1)


def step_bytes(recipe: Recipe, share: int, *, narrow: bool) -> int:
    """The partition's gradients flattened and then in fp32, for `share` trained elements a rank.

    Stage 3 does so sub-group by sub-group. Full precision needs neither.
    """
    if not narrow:
        return 0
    elements = min(share, recipe.sub_group_size) if recipe.sharding == "zero3" else share
    return elements * (_NARROW + _FP32)


def live_bytes(recipe: Recipe, largest_module: int) -> int:
    """Gathered parameters of stage 3: all up to the limit, and a single module that is larger whole."""
    return max(recipe.stage3_max_live_parameters * _NARROW, largest_module)


def offloaded_bytes(recipe: Recipe, share: int, optimizer_bytes: int) -> int:
    """Host memory of one rank: fp32 copy, fp32 gradients and 16-bit staging (pinned), and Adam's states (pageable)."""
    pinned = (share * _FP32, share * _FP32, share * _NARROW)
    states = optimizer_bytes - share * _FP32
    return sum(pinned_bytes(size) if recipe.pin_memory else size for size in pinned) + max(0, states)


def pinned_bytes(size: int) -> int:
    """What torch takes from the host for a pinned tensor: the next power of two.

    Source: torch 2.14 c10 core CachingHostAllocator.h: PowerOf2Ceil, without a threshold unless one is set.
    """
    return 1 << (size - 1).bit_length() if size > 0 else 0
