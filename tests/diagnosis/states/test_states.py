"""States rather than errors: memory_summary, memory_stats, list_gpu_processes, nvidia-smi."""

from __future__ import annotations

import collections
import json
from typing import Any

import pytest

from planner.diagnosis import diagnose, diagnose_text
from planner.diagnosis.messages.assembly import messages_in
from planner.errors import NotRecognised

MIB, GIB = 2**20, 2**30


def stats(*, allocated: int, reserved: int, split: int, ooms: int = 1) -> dict[str, int]:
    """torch.cuda.memory_stats() with the keys that a summary reads; sizes in MiB."""
    found = collections.OrderedDict()
    sizes = {
        "allocated_bytes": allocated,
        "active_bytes": allocated,
        "requested_bytes": allocated,
        "reserved_bytes": reserved,
        "inactive_split_bytes": split,
    }
    for metric, size in sizes.items():
        for pool in ("all", "large_pool", "small_pool"):
            for stat in ("current", "peak", "allocated", "freed"):
                found[f"{metric}.{pool}.{stat}"] = size * MIB if pool != "small_pool" else 0
    for metric in ("allocation", "active", "segment", "inactive_split"):
        for pool in ("all", "large_pool", "small_pool"):
            for stat in ("current", "peak", "allocated", "freed"):
                found[f"{metric}.{pool}.{stat}"] = 3_100
    for metric in ("oversize_allocations", "oversize_segments"):
        for stat in ("current", "peak", "allocated", "freed"):
            found[f"{metric}.{stat}"] = 0
    found["num_alloc_retries"], found["num_ooms"] = 3, ooms
    return found


def summary(monkeypatch: pytest.MonkeyPatch, numbers: dict[str, int], *, abbreviated: bool = False) -> str:
    """The text of torch's own memory_summary for these numbers: its code runs without a GPU."""
    memory = pytest.importorskip("torch.cuda.memory")
    monkeypatch.setattr(memory, "memory_stats", lambda device=None: numbers)
    monkeypatch.setattr(memory, "_get_device_index", lambda device, optional=False: device)
    return str(memory.memory_summary(device=2, abbreviated=abbreviated))


@pytest.mark.parametrize("abbreviated", [False, True])
def test_figures_of_torchs_own_summary(monkeypatch: pytest.MonkeyPatch, abbreviated: bool) -> None:
    text = summary(monkeypatch, stats(allocated=72_192, reserved=75_776, split=3_276), abbreviated=abbreviated)
    finding = diagnose_text("before\n" + text + "\nafter").findings[0]
    assert finding.message.device == 2
    assert finding.figures["allocated_bytes"] == 72_192 * MIB
    assert finding.figures["reserved_total_bytes"] == 75_776 * MIB
    assert finding.figures["non_releasable_bytes"] == 3_276 * MIB
    assert finding.figures["num_ooms"] == 1
    assert finding.failure == "device_full"


@pytest.mark.parametrize(
    ("numbers", "failure"),
    [
        (stats(allocated=72_192, reserved=75_776, split=3_276), "device_full"),
        (stats(allocated=30_000, reserved=75_776, split=40_000), "fragmentation_clue"),
        (stats(allocated=30_000, reserved=75_776, split=0), "undecided"),
        (stats(allocated=30_000, reserved=75_776, split=0, ooms=0), "not_a_failure"),
        (stats(allocated=0, reserved=0, split=0), "undecided"),
    ],
)
def test_reading_of_a_summary_and_of_its_json(
    monkeypatch: pytest.MonkeyPatch, numbers: dict[str, int], failure: str
) -> None:
    assert diagnose_text(summary(monkeypatch, numbers)).findings[0].failure == failure
    assert diagnose_text(json.dumps(numbers)).findings[0].failure == failure
    assert diagnose_text(json.dumps(nested(numbers))).findings[0].failure == failure


def nested(numbers: dict[str, int]) -> dict[str, Any]:
    """memory_stats_as_nested_dict()."""
    result: dict[str, Any] = {}
    for key, value in numbers.items():
        *path, last = key.split(".")
        level = result
        for part in path:
            level = level.setdefault(part, {})
        level[last] = value
    return result


def test_units_of_old_torch_are_binary_too() -> None:
    row = "| Allocated memory      |   72192 MB |   72704 MB |     900 GB |     829 GB |"
    text = f"PyTorch CUDA memory summary, device ID 0\n| CUDA OOMs: 1 | cudaMalloc retries: 3 |\n{row}"
    finding = diagnose_text(text).findings[0]
    assert finding.figures["allocated_bytes"] == 72_192 * MIB
    assert finding.message.version_hint == "torch 1.4 to 2.0"


PLAIN = """
+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 580.65.06              Driver Version: 580.65.06      CUDA Version: 13.0     |
|-----------------------------------------+------------------------+----------------------+
| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |
| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |
|=========================================+========================+======================|
|   0  NVIDIA A100-SXM4-40GB          On  |   00000000:07:00.0 Off |                    0 |
| N/A   33C    P0             59W /  400W |   40413MiB /  40960MiB |      0%      Default |
+-----------------------------------------+------------------------+----------------------+
|   1  NVIDIA A100-SXM4-40GB          On  |   00000000:0F:00.0 Off |                    0 |
| N/A   30C    P0             52W /  400W |    9000MiB /  40960MiB |      0%      Default |
+-----------------------------------------+------------------------+----------------------+
+-----------------------------------------------------------------------------------------+
| Processes:                                                                              |
|  GPU   GI   CI        PID   Type   Process name                              GPU Memory |
|=========================================================================================|
|    0   N/A  N/A      1720      G   /usr/bin/gnome-shell                        173MiB   |
|    0   N/A  N/A     12345      C   python train.py --a b                     20100MiB   |
|    0   N/A  N/A     12346      C   python train.py --a b                     20100MiB   |
+-----------------------------------------------------------------------------------------+
"""


def test_plain_table_of_nvidia_smi() -> None:
    first, second = diagnose_text(PLAIN).findings
    assert (first.message.device, second.message.device) == (0, 1)
    assert first.figures["total_bytes"] == 40_960 * MIB
    assert first.figures["in_use_bytes"] == 40_413 * MIB
    assert first.figures["process_list"] == (20_100 * MIB, 20_100 * MIB)
    assert first.failure == "other_process"
    assert any("second worker" in line for line in first.verdict.evidence)
    # 9 GB in use and no process listed: a zombie or another container
    assert (second.failure, second.verdict.second) == ("other_process", "undecided")
    assert any("Do not kill" in caution for caution in second.cautions)


@pytest.mark.parametrize(
    "text",
    [
        "memory.total [MiB], memory.reserved [MiB], memory.used [MiB], memory.free [MiB]\n8192 MiB, 400 MiB, 815 "
        "MiB, 6978 MiB\n",
        "memory.total [MiB], memory.reserved [MiB], memory.used [MiB], memory.free [MiB]\n8192, 400, 815, 6978\n",
        "8192 MiB, 400 MiB, 815 MiB, 6978 MiB\n",
        "8192, 400, 815, 6978\n",
    ],
)
def test_csv_of_nvidia_smi(text: str) -> None:
    finding = diagnose_text(text).findings[0]
    assert finding.figures == {
        "total_bytes": 8192 * MIB,
        "driver_reserved_bytes": 400 * MIB,
        "in_use_bytes": 815 * MIB,
        "free_bytes": 6978 * MIB,
    }
    assert finding.failure == "undecided"


def test_csv_of_compute_processes_with_commas_in_names() -> None:
    text = (
        "pid, process_name, used_gpu_memory [MiB], gpu_uuid\n"
        "11, python train.py a, b, 20100 MiB, GPU-aaaa\n"
        "12, [Not Found], [N/A], GPU-aaaa\n"
        "13, python, 500 MiB, GPU-bbbb\n"
    )
    first, second = diagnose_text(text).findings
    assert first.figures["process_list"] == (20_100 * MIB,)
    assert first.message.context["processes_without_size"] == "1"
    assert second.figures["process_list"] == (500 * MIB,)


def test_unavailable_values_are_no_figures() -> None:
    text = "index, memory.total [MiB], memory.used [MiB]\n0, [N/A], [Insufficient Permissions]\n1, 100 MiB, 90 MiB\n"
    findings = diagnose_text(text).findings
    assert [f.message.device for f in findings] == [1]


@pytest.mark.parametrize("text", ["1, 2, 3, 4\n", "100, 50, 25, 25\nhello\n", "a, b, c, d\n", "1, 2\n"])
def test_other_numbers_are_no_nvidia_smi(text: str) -> None:
    with pytest.raises(NotRecognised):
        diagnose_text(text)


def test_list_gpu_processes() -> None:
    text = (
        "GPU:1\nprocess       4242 uses     1234.500 MB GPU memory\nprocess       4243 uses     1234.500 MB GPU memory"
    )
    finding = diagnose_text(text).findings[0]
    assert finding.message.device == 1
    assert finding.figures["process_list"] == (round(1234.5 * MIB),) * 2


ERROR = (
    "CUDA out of memory. Tried to allocate 1.00 GiB. GPU 0 has a total capacity of 39.49 GiB of which 0.50 GiB is "
    "free. Of "
    "the allocated memory 19.00 GiB is allocated by PyTorch, and 0.20 GiB is reserved by PyTorch but unallocated."
)


def test_states_of_another_moment_are_noted_and_never_added(tmp_path: Any) -> None:
    log, smi = tmp_path / "log", tmp_path / "smi"
    log.write_text(ERROR)
    smi.write_text(PLAIN)
    diagnosis = diagnose(log, smi)
    assert diagnosis.findings[0].figures == {n: f.value for n, f in messages_in(ERROR)[0].figures.items()}
    assert diagnosis.findings[0].failure == "other_process"
    assert any("their own moments" in note for note in diagnosis.notes)
    assert any("CUDA_VISIBLE_DEVICES" in note for note in diagnosis.notes)


def test_states_of_another_device_are_not_compared(tmp_path: Any) -> None:
    log, smi = tmp_path / "log", tmp_path / "smi"
    log.write_text(ERROR.replace("GPU 0", "GPU 5"))
    smi.write_text(PLAIN)
    assert any("device 5" in note and "not compared" in note for note in diagnose(log, smi).notes)


def test_the_same_failure_of_two_devices_is_one_finding_with_a_count() -> None:
    (finding,) = diagnose_text(f"{ERROR}\n\n{ERROR.replace('GPU 0', 'GPU 1')}").findings
    assert (finding.message.repeated, finding.message.devices) == (2, (0, 1))
