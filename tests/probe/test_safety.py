"""Refusal without room, an out-of-memory error as a measurement, and settings put back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from planner.errors import ProbeError  # noqa: E402
from planner.model.shallow.subject import read_subject  # noqa: E402
from planner.probe import extras, serve, session  # noqa: E402
from planner.probe.backends.accelerator import AcceleratorMeter  # noqa: E402
from planner.probe.backends.base import Device  # noqa: E402
from planner.probe.record import record  # noqa: E402
from planner.probe.safety import require_room  # noqa: E402
from planner.training.generation import Generation  # noqa: E402
from tests.probe.tiny import write_config  # noqa: E402

GIB = 1 << 30


def test_no_room_says_by_how_much() -> None:
    device = Device(name="card", kind="cuda", total_bytes=24 * GIB, free_bytes=10 * GIB, details={})
    with pytest.raises(ProbeError, match=r"2\.00 GiB short"):
        require_room(device, 12 * GIB)
    require_room(device, 10 * GIB)
    require_room(device, 12 * GIB, force=True)


def test_out_of_memory_is_measured_and_cleaned_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The allocator refuses in the middle of prefill: the peak so far and the phase are in the record."""
    seen: list[Any] = []
    original = serve.build_model

    def build(*arguments: Any, **keywords: Any) -> Any:
        model = original(*arguments, **keywords)

        def refuse(*_: Any) -> None:
            seen.append(torch.zeros(1 << 20))
            raise RuntimeError("[enforce fail at alloc_cpu.cpp:118] DefaultCPUAllocator: can't allocate memory: you"
                               " tried to allocate 999 bytes. Error code 12")  # fmt: skip

        model.model.layers[2].register_forward_pre_hook(refuse)
        return model

    monkeypatch.setattr(serve, "build_model", build)
    found = session.measure_serve(
        read_subject(write_config(tmp_path, "llama")), Generation(input_len=32, output_len=1), device="cpu"
    )
    assert found.out_of_memory is not None and found.out_of_memory.phase == "prefill"
    assert found.out_of_memory.peak_bytes > 4 << 20
    assert not found.within(0.05)
    case = record(found)
    assert case["measured"]["error_phase"] == "prefill"  # type: ignore[index]
    assert case["measured"]["weights_gib"]  # type: ignore[index]


def test_other_errors_are_not_measurements(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def build(*_: Any, **__: Any) -> Any:
        raise RuntimeError("something else")

    monkeypatch.setattr(serve, "build_model", build)
    with pytest.raises(RuntimeError, match="something else"):
        session.measure_serve(read_subject(write_config(tmp_path, "llama")), Generation(), device="cpu")


def test_a_missing_library_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ProbeError, match=r"pip install 'vram-planner\[probe\]'"):
        extras.library("no_such_library_here")


class _Cuda:
    """Enough of torch.cuda to see what the meter does to a card that others use too."""

    OutOfMemoryError = MemoryError

    def __init__(self) -> None:
        self.fractions: list[float] = []
        self.emptied = 0

    def is_available(self) -> bool:
        return True

    def device_count(self) -> int:
        return 1

    def mem_get_info(self, _: int) -> tuple[int, int]:
        return 6 * GIB, 24 * GIB

    def set_per_process_memory_fraction(self, fraction: float, _: int) -> None:
        self.fractions.append(fraction)

    def reset_peak_memory_stats(self, _: int) -> None:
        pass

    def empty_cache(self) -> None:
        self.emptied += 1


class _Version:
    hip = "6.4"
    cuda = None


class _Torch:
    version = _Version()

    def __init__(self) -> None:
        self.cuda = _Cuda()


def test_a_shared_card_is_capped_and_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Free memory is 6 of 24 GiB: the process may take a quarter, and has all of it again afterwards."""
    fake = _Torch()
    monkeypatch.setattr("planner.probe.backends.accelerator.library", lambda _: fake)
    with pytest.raises(ValueError, match="inside"), AcceleratorMeter() as meter:
        assert fake.cuda.fractions == [0.25]
        assert meter.used_bytes() == 18 * GIB
        raise ValueError("inside")
    assert fake.cuda.fractions == [0.25, 1.0]
    assert fake.cuda.emptied == 1
    with AcceleratorMeter(share_bytes=3 * GIB):
        assert fake.cuda.fractions[-1] == 0.125
