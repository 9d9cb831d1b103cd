"""Live bytes by hand: views share a storage, freed tensors go, backward is seen."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from planner.probe.backends.cpu import CpuMeter  # noqa: E402


def test_tensors_come_and_go() -> None:
    with CpuMeter() as meter:
        one = torch.zeros(1000)  # 4,000 B
        assert meter.live_bytes() == 4_000
        view = one[:10].reshape(2, 5)
        assert meter.live_bytes() == 4_000
        two = one * 2  # 4,000 B more
        assert meter.live_bytes() == 8_000
        del one
        assert meter.live_bytes() == 8_000  # the view holds it
        del view
        assert meter.live_bytes() == 4_000
        del two
        assert meter.live_bytes() == 0
        assert meter.peak_bytes() == 8_000


def test_the_peak_starts_again() -> None:
    with CpuMeter() as meter:
        kept = torch.ones(100, dtype=torch.bfloat16)
        torch.ones(10_000)
        assert meter.peak_bytes() == 40_200
        meter.restart_peak()
        assert meter.peak_bytes() == 200
        assert kept.nbytes == 200


def test_saved_tensors_and_gradients_are_seen() -> None:
    with CpuMeter() as meter:
        weight = torch.ones(50, 20, requires_grad=True)  # 4,000 B
        out = (weight * 3).exp()  # exp saves its result: 4,000 B; the product is gone
        total = out.sum()  # 4 B
        del out
        assert meter.live_bytes() == 4_000 + 4_000 + 4
        total.backward()
        assert weight.grad is not None
        del total
        assert meter.live_bytes() == 4_000 + 4_000  # the weight and its gradient


def test_nothing_is_counted_outside() -> None:
    before = torch.ones(10)
    with CpuMeter() as meter:
        assert meter.live_bytes() == 0
    after = torch.ones(10)
    assert meter.live_bytes() == 0
    assert before.sum() == after.sum()
