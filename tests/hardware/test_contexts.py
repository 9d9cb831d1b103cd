"""Context sizes against the readings they stand for, MiB written out."""

import pytest

from planner.hardware.contexts import cuda_context
from planner.hardware.gpus import Gpu, find_gpu, load_gpus, unnamed_gpu
from planner.units import GIB, MIB


@pytest.mark.parametrize(
    ("card", "low", "best", "high", "evidence"),
    [
        ("T4", 141, 141, 174, "measured"),  # 70 runs between 140.9 and 141.0; 174 on another Turing card
        ("H100", 522, 522, 614, "measured"),  # 522 in 41 logs, 543, 614
        ("H200", 518, 522, 685, "measured"),  # 518 in an error's text, 685 by NVML after a matrix product
        ("4090", 392, 455, 500, "measured"),  # 392 idle llama.cpp, 451-461 vLLM
        ("a100 80gb", 420, 450, 500, "measured"),  # 420 and 0.47 GiB = 481
        ("4090 laptop", 211, 275, 522, "assumed"),  # 76 SMs: among the small cards
        ("mi300x", 238, 338, 438, "measured"),
        ("arc b580", 150, 300, 600, "assumed"),
    ],
)
def test_readings(card: str, low: int, best: int, high: int, evidence: str) -> None:
    context = cuda_context(find_gpu(card))
    assert (context.low_bytes, context.best_bytes, context.high_bytes) == (low * MIB, best * MIB, high * MIB)
    assert context.evidence == evidence
    assert context.source


@pytest.mark.parametrize("gpu", [*load_gpus(), unnamed_gpu(24 * GIB)], ids=lambda gpu: gpu.id)
def test_every_card_has_an_ordered_range(gpu: Gpu) -> None:
    context = cuda_context(gpu)
    assert 0 <= context.low_bytes <= context.best_bytes <= context.high_bytes <= 3 * GIB
