"""cuBLAS' workspaces in torch's allocator, as a snapshot of an H200 shows them: one for each thread's handle.

torch 2.11.0, LoRA of gemma-3-1b-it, 2026-11-29: two live blocks of 32 MiB after a step, one made under the forward's
first matrix product, one under autograd's `MmBackward0`; one block before the first backward.
"""

from __future__ import annotations

import pytest

from planner.hardware.gpus import find_gpu
from planner.training.outside import workspace_bytes

MIB = 1 << 20
# :4096:2:16:8 is the default of CUBLAS_WORKSPACE_CONFIG below Hopper: 2 x 4096 KiB + 8 x 16 KiB
BELOW_HOPPER = (2 * 4096 + 8 * 16) * 1024


@pytest.mark.parametrize(
    ("gpu", "one"), [("h200-sxm", 32 * MIB), ("a100-sxm-80gb", BELOW_HOPPER), ("t4", BELOW_HOPPER)]
)
def test_backward_has_a_workspace_of_its_own(gpu: str, one: int) -> None:
    card = find_gpu(gpu)
    assert workspace_bytes(card, trains=False) == one
    assert workspace_bytes(card, trains=True) == 2 * one
