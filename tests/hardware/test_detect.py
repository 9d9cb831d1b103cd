"""Reading nvidia-smi's answer; figures of real machines (totals and reserves as their owners published them)."""

import subprocess
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.hardware.detect import detect_gpus, parse_nvidia_smi
from planner.units import MIB

H100 = "0, NVIDIA H100 80GB HBM3, 590.48.01, 81559, 4, 479\n"
OLD_3090 = "0, GeForce RTX 3090, 455.23.05, 24268, 1001\n"


def test_total_is_what_nvidia_smi_prints_less_the_reserve() -> None:
    (card,) = parse_nvidia_smi(H100)
    assert card.total_memory_bytes == (81_559 - 479) * MIB
    assert card.gpu.id == "h100-sxm-80gb"
    assert card.gpu.total_memory_bytes == card.total_memory_bytes
    assert card.gpu.evidence == "exact"


def test_drivers_before_510_print_the_total_without_the_reserve() -> None:
    (card,) = parse_nvidia_smi(OLD_3090)
    assert card.total_memory_bytes == 24_268 * MIB
    assert card.gpu.id == "rtx-3090"


def test_a_name_shared_by_two_sizes_is_settled_by_the_memory() -> None:
    cards = parse_nvidia_smi(
        "0, NVIDIA GeForce RTX 3080, 595.58.03, 10240, 0, 397\n"
        "1, NVIDIA GeForce RTX 4060 Ti, 550.54.14, 16380, 0, 303\n"
    )
    assert [card.gpu.id for card in cards] == ["rtx-3080-10gb", "rtx-4060-ti-16gb"]


def test_a_card_that_the_table_lacks_keeps_its_memory() -> None:
    (card,) = parse_nvidia_smi("3, NVIDIA Whatever 9000, 700.1, 65536, 0, 500\n")
    assert card.index == 3
    assert card.gpu.id == "unnamed"
    assert card.gpu.total_memory_bytes == 65_036 * MIB


def test_cards_without_their_own_memory_are_left_out() -> None:
    assert parse_nvidia_smi("0, NVIDIA GB10, 580.95.05, [N/A], [N/A], [N/A]\n") == ()


@given(st.text())
def test_any_answer_is_read_without_an_exception(text: str) -> None:
    parse_nvidia_smi(text)


def _answers(monkeypatch: pytest.MonkeyPatch, *answers: object) -> list[list[str]]:
    asked: list[list[str]] = []
    left = list(answers)

    def run(command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
        assert options["timeout"] <= 10
        asked.append(command)
        answer = left.pop(0)
        if isinstance(answer, Exception):
            raise answer
        assert isinstance(answer, subprocess.CompletedProcess)
        return answer

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr("planner.hardware.detect._from_nvml", tuple)
    monkeypatch.setattr("platform.system", lambda: "Linux")
    monkeypatch.setattr("platform.release", lambda: "6.8.0-generic")
    return asked


def _done(code: int, text: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.CompletedProcess(args=[], returncode=code, stdout=text, stderr="")


@pytest.mark.parametrize("failure", [FileNotFoundError(), subprocess.TimeoutExpired("nvidia-smi", 5.0)])
def test_no_driver_or_a_hanging_one_means_no_cards(monkeypatch: pytest.MonkeyPatch, failure: Exception) -> None:
    _answers(monkeypatch, failure)
    assert detect_gpus() == ()


def test_a_driver_that_does_not_know_the_reserve_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = _answers(monkeypatch, _done(2), _done(0, OLD_3090))
    (card,) = detect_gpus()
    assert card.reserved_bytes == 0
    assert "memory.reserved" in asked[0][1]
    assert "memory.reserved" not in asked[1][1]


def test_windows_and_wsl_see_the_whole_total(monkeypatch: pytest.MonkeyPatch) -> None:
    _answers(monkeypatch, _done(0, H100), _done(0, H100))
    monkeypatch.setattr("platform.release", lambda: "5.15.167.4-microsoft-standard-WSL2")
    assert detect_gpus()[0].total_memory_bytes == 81_559 * MIB
