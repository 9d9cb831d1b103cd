"""Which reading each rule gives, and that what would change the answer does change it."""

from __future__ import annotations

import pytest

from planner.diagnosis import Finding, diagnose_text
from planner.diagnosis.messages.assembly import messages_in
from planner.diagnosis.rules.torch_figures import torch_figures
from planner.errors import NotRecognised
from planner.units import GIB, MIB


def torch_message(
    tried: str,
    total: str,
    free: str,
    allocated: str,
    unallocated: str,
    *,
    in_use: str = "",
    allowed: str = "",
    word: str = "CUDA",
) -> str:
    """The message of torch 2.5+."""
    return (
        f"torch.OutOfMemoryError: {word} out of memory. Tried to allocate {tried}. GPU 0 has a total capacity of "
        f"{total} of "
        f"which {free} is free. "
        + (f"Including non-PyTorch memory, this process has {in_use} memory in use. " if in_use else "")
        + (f"{allowed} allowed; " if allowed else "")
        + f"Of the allocated memory {allocated} is allocated by PyTorch, and {unallocated} is reserved by PyTorch but "
        "unallocated."
    )


def one(text: str) -> Finding:
    findings = diagnose_text(text).findings
    assert len(findings) == 1
    return findings[0]


def test_first_worked_message_is_a_full_device_not_fragmentation() -> None:
    """Slack 1.42 GiB is below the 2.00 GiB asked for; 23.64 - 1.18 - (19.90 + 1.42) = 1.14 GiB is a context."""
    finding = one(torch_message("2.00 GiB", "23.64 GiB", "1.18 GiB", "19.90 GiB", "1.42 GiB"))
    assert (finding.failure, finding.verdict.second) == ("device_full", None)
    reading = torch_figures(finding.message)
    assert reading.reserved == round(19.90 * GIB) + round(1.42 * GIB)
    assert reading.other is not None and abs(reading.other - 1.14 * GIB) < 0.03 * GIB


def test_second_worked_message_is_a_limit_of_low_confidence() -> None:
    for text in (
        "CUDA out of memory. Tried to allocate 512.00 MiB (GPU 0; 24.00 GiB total capacity; 3.21 GiB free)",
        "CUDA out of memory. Tried to allocate 512.00 MiB. GPU 0 has a total capacity of 24.00 GiB of which 3.21 "
        "GiB is free.",
    ):
        finding = one(text)
        assert (finding.failure, finding.verdict.second) == ("limit_not_capacity", "fragmentation_clue")
        assert finding.verdict.confidence == "low"
        assert any("memory_summary" in line and "restart" in line for line in finding.verdict.would_change)


def test_third_worked_message_is_undecided() -> None:
    finding = one(
        "CUDA out of memory. Tried to allocate 12.00 GiB. GPU 0: 8.00 GiB is free. Of the allocated memory 20.00 "
        "GiB is "
        "allocated by PyTorch, and 16.00 GiB is reserved by PyTorch but unallocated."
    )
    assert (finding.failure, finding.verdict.second) == ("undecided", None)
    assert finding.figures["free_bytes"] == 8 * GIB
    assert any("memory_summary" in action.do for action in finding.actions)


@pytest.mark.parametrize(
    ("text", "failure", "second"),
    [
        # one request larger than the card
        (torch_message("40.00 GiB", "23.64 GiB", "20.00 GiB", "1.00 GiB", "1.00 GiB"), "single_huge", None),
        # half the card in one request
        (torch_message("12.00 GiB", "23.64 GiB", "11.00 GiB", "11.00 GiB", "0 bytes"), "single_huge", "device_full"),
        # a quarter of the card, but 96% was in use before
        (torch_message("6.00 GiB", "23.64 GiB", "1.00 GiB", "22.00 GiB", "0 bytes"), "device_full", "single_huge"),
        # slack of 6 GiB against 2 GiB, 60% allocated
        (
            torch_message("2.00 GiB", "23.64 GiB", "1.00 GiB", "14.00 GiB", "8.00 GiB"),
            "fragmentation_clue",
            "device_full",
        ),
        # the same slack on a card 90% allocated is the second reading only
        (
            torch_message("1.00 GiB", "79.00 GiB", "0.20 GiB", "73.00 GiB", "5.50 GiB"),
            "device_full",
            "fragmentation_clue",
        ),
        # a rounded request: any slack beats 20 MiB
        (torch_message("20.00 MiB", "23.64 GiB", "10.00 MiB", "22.60 GiB", "500.00 MiB"), "device_full", None),
        # 10 GiB are neither free nor ours
        (
            torch_message("1.00 GiB", "23.64 GiB", "0.50 GiB", "12.00 GiB", "0.20 GiB", in_use="12.80 GiB"),
            "other_process",
            "device_full",
        ),
        # a fraction
        (
            torch_message("1.00 GiB", "79.00 GiB", "50.00 GiB", "18.00 GiB", "0.50 GiB", allowed="19.00 GiB"),
            "limit_not_capacity",
            "device_full",
        ),
        # allowed equal to the capacity is no limit
        (
            torch_message("1.00 GiB", "23.64 GiB", "0.50 GiB", "22.00 GiB", "0.20 GiB", allowed="23.64 GiB"),
            "device_full",
            None,
        ),
        # much free, nothing of ours explains it
        (
            torch_message("64.00 MiB", "23.64 GiB", "20.00 GiB", "3.00 GiB", "1.00 MiB"),
            "limit_not_capacity",
            "host_memory",
        ),
        # Windows: more reserved than the card has
        (
            torch_message("1.00 GiB", "8.00 GiB", "0 bytes", "11.00 GiB", "0.50 GiB"),
            "device_full",
            "limit_not_capacity",
        ),
        # an overflowed size
        (torch_message("17179869183.95 GiB", "8.00 GiB", "1.00 GiB", "1.00 GiB", "0 bytes"), "bug", None),
    ],
)
def test_the_rules_in_order(text: str, failure: str, second: str | None) -> None:
    finding = one(text)
    assert (finding.failure, finding.verdict.second) == (failure, second)
    assert finding.verdict.rule and finding.verdict.evidence and finding.verdict.would_change


def test_small_cards_are_eaten_by_context_and_display() -> None:
    """0.9 GiB of a 4 GiB card is unexplained: over 10%, but a context and a display, so only the second reading."""
    finding = one(torch_message("32.00 MiB", "4.00 GiB", "20.00 MiB", "3.00 GiB", "20.00 MiB"))
    assert (finding.failure, finding.verdict.second) == ("device_full", "other_process")


@pytest.mark.parametrize("junk", ["0 bytes", "17179869184.00 GiB"])
def test_unusable_figures_of_nvml_are_dropped_and_named(junk: str) -> None:
    finding = one(torch_message("1.00 GiB", "23.64 GiB", "0.50 GiB", "22.00 GiB", "0.20 GiB", in_use=junk))
    assert finding.failure == "device_full"
    assert "process_in_use_bytes" in finding.figures, "the figure is reported as the text has it"
    assert any("left out" in line for line in finding.verdict.evidence)


def test_a_single_process_line_can_be_this_process() -> None:
    text = (
        "CUDA out of memory. Tried to allocate 496.00 MiB. GPU 0 has a total capacity of 14.75 GiB of which "
        "235.06 MiB is "
        "free. Process 20398 has 14.52 GiB memory in use. Of the allocated memory 14.06 GiB is allocated by "
        "PyTorch, and "
        "330.42 MiB is reserved by PyTorch but unallocated."
    )
    assert torch_figures(messages_in(text)[0]).in_use == round(14.52 * GIB)
    assert one(text).failure == "device_full"


def test_contradictions_are_named() -> None:
    finding = one(torch_message("1.00 GiB", "23.64 GiB", "30.00 GiB", "22.00 GiB", "0.20 GiB"))
    assert any("free (30.00 GiB) is more than the capacity" in line for line in finding.verdict.evidence)


def test_exactly_double_points_to_a_second_worker() -> None:
    finding = one(torch_message("1.00 GiB", "23.64 GiB", "0.50 GiB", "11.00 GiB", "0.50 GiB", in_use="11.60 GiB"))
    assert any("second worker" in line for line in finding.verdict.evidence)


def test_what_would_change_the_answer_changes_it() -> None:
    """The rule for others says: less than 2.36 GiB held by others."""
    near = torch_message("1.00 GiB", "23.64 GiB", "0.50 GiB", "20.00 GiB", "0.20 GiB", in_use="20.60 GiB")
    beyond = torch_message("1.00 GiB", "23.64 GiB", "0.50 GiB", "20.00 GiB", "0.20 GiB", in_use="20.90 GiB")
    assert one(near).failure == "other_process"
    assert any("2.36 GiB" in line for line in one(near).verdict.would_change)
    assert one(beyond).failure == "device_full"


@pytest.mark.parametrize(
    ("text", "failure", "second"),
    [
        (
            "RuntimeError: CUDA error: out of memory\nCUDA kernel errors might be asynchronously",
            "device_full",
            "other_process",
        ),
        ("RuntimeError: CUDA driver error: out of memory", "device_full", "other_process"),
        ("RuntimeError: cuDNN error: CUDNN_STATUS_NOT_INITIALIZED", "device_full", "bug"),
        ("RuntimeError: GET was unable to find an engine to execute this computation", "device_full", "bug"),
        ("CUDA out of memory. Tried to allocate more than 1EB memory.", "bug", None),
        ("Error out of memory at line 380 in file /src/csrc/ops.cu", "device_full", None),
        (
            "ncclUnhandledCudaError: Call to CUDA function failed.\nLast error:\nCuda failure 2 'out of memory'",
            "device_full",
            "other_process",
        ),
        (
            "RuntimeError: [enforce fail at alloc_cpu.cpp:114] data. DefaultCPUAllocator: not enough memory: you "
            "tried to "
            "allocate 8589934592 bytes.",
            "host_memory",
            None,
        ),
        ("DefaultCPUAllocator: can't allocate memory: you tried to allocate 18446744065119617024 bytes.", "bug", None),
        ("  Reason:       OOMKilled\n  Exit Code:    137", "host_memory", None),
        ('"ExitCode": 137, "OOMKilled": false', "undecided", "host_memory"),
        ("worker exited with code 137", "host_memory", "undecided"),
        (
            "torch.distributed.elastic: failed (exitcode: -9) local_rank: 0 (pid: 5) of binary: python",
            "host_memory",
            "undecided",
        ),
        ("step 1\nKilled\n$ ", "host_memory", "undecided"),
        ("slurmstepd: error: Detected 1 oom-kill event(s) in StepId=5.0", "host_memory", None),
        ("[ 99.1] Out of memory: Killed process 77 (python) total-vm:9000kB, anon-rss:8000kB", "host_memory", None),
        (
            "RuntimeError: DataLoader worker (pid 5) is killed by signal: Bus error. It is possible that "
            "dataloader's workers "
            "are out of shared memory.",
            "host_memory",
            None,
        ),
        (
            "OSError: The paging file is too small for this operation to complete. (os error 1455)",
            "host_memory",
            "limit_not_capacity",
        ),
        (
            "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory. Memory on the "
            "node was "
            "21.91GB / 33.28GB (0.658192), which exceeds the memory usage threshold of 0.65",
            "host_memory",
            None,
        ),
        ("RuntimeError: Insufficient VRAM in split for model and cache", "engine_budget", "device_full"),
        ("Error: model requires more system memory (8.4 GiB) than is available (5.6 GiB)", "host_memory", None),
        (
            "ggml_vulkan: Requested buffer size exceeds device memory allocation limit",
            "limit_not_capacity",
            "single_huge",
        ),
        (
            "ggml_cuda_host_malloc: failed to allocate 1900,00 MiB of pinned memory: invalid argument",
            "not_a_failure",
            "host_memory",
        ),
        ("RuntimeError: Invalid buffer size: 19.34 GB", "single_huge", "limit_not_capacity"),
        ("Failed to allocate request for 32.00MiB (33554432B) on device ordinal 0", "device_full", "other_process"),
        (
            "OOM when allocating tensor with shape[64,512,512] and type float on /job:localhost/device:CPU:0 by "
            "allocator cpu",
            "host_memory",
            None,
        ),
        (
            "Failed to initialize executor on rank 1: Executor creation failed due to insufficient GPU memory.\nThe "
            "following "
            "component could not be created: KV cache\nTotal GPU memory (GiB): 140.06",
            "engine_budget",
            "device_full",
        ),
        (
            "XPU out of memory. Current platform can NOT allocate memory block with size larger than 4GB! Tried to "
            "allocate "
            "6.00 GiB (GPU  0; 15.56 GiB total capacity; 0 bytes already allocated; 0 bytes reserved in total by "
            "PyTorch)",
            "single_huge",
            "limit_not_capacity",
        ),
        ("std::bad_alloc: out_of_memory: CUDA error at: /rmm/cuda_memory_resource.hpp", "device_full", None),
        ("terminate called after throwing an instance of 'std::bad_alloc'", "host_memory", None),
        (
            "vLLM: ValueError: Too large swap space. 16.00 GiB out of the 15.50 GiB total CPU memory is allocated",
            "host_memory",
            None,
        ),
        (
            "max_total_tokens=40960 is larger than the profiled value -512. Use the profiled value instead.",
            "engine_budget",
            None,
        ),
        (
            "max_total_tokens=40960 is larger than the profiled value 20480. Use the profiled value instead.",
            "not_a_failure",
            "engine_budget",
        ),
        ("NCCL WARN Error: failed to extend /dev/shm/nccl-abc to size 9637892 bytes", "host_memory", None),
        ("CUDA error 2 at ggml-cuda.cu:5822: out of memory", "device_full", "other_process"),
        ("14 pytorch allocator cache flushes since last step. this happens when", "not_a_failure", "device_full"),
        (
            "cupy.cuda.memory.OutOfMemoryError: Out of memory allocating 3,200,000,000 bytes (allocated so far: "
            "6,400,000,000 "
            "bytes, limit set to: 8,000,000,000 bytes).",
            "limit_not_capacity",
            "device_full",
        ),
        (
            "NPU out of memory. Tried to allocate 2.00 GiB (NPU 0; 60.97 GiB total capacity; 58.20 GiB already "
            "allocated; "
            "1.20 GiB free; 58.90 GiB reserved in total by PyTorch)",
            "device_full",
            None,
        ),
        (
            "torch.OutOfMemoryError: Allocation on device 0 would exceed allowed memory. (out of "
            "memory)\nCurrently allocated"
            "     : 10.86 GiB\nRequested               : 1.25 GiB\nDevice limit            : 12.00 GiB\nFree "
            "(according to"
            " CUDA): 0 bytes\nPyTorch limit (set by user-supplied memory fraction)\n          : 17179869184.00 GiB",
            "device_full",
            None,
        ),
        ("RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm. Used 21.29G of 15.48G hbm.", "device_full", None),
        (
            "[TP0] The memory capacity is unbalanced. Some GPUs may be occupied by other processes.",
            "other_process",
            None,
        ),
    ],
)
def test_programs_without_capacity(text: str, failure: str, second: str | None) -> None:
    finding = diagnose_text(text).findings[0]
    assert (finding.failure, finding.verdict.second) == (failure, second)


def test_growing_pool_alone_is_no_failure_repeated_it_is() -> None:
    line = "failed to allocate {}G ({} bytes) from device: CUDA_ERROR_OUT_OF_MEMORY: out of memory\n"
    sizes = [int(8e9 * 0.9**n) for n in range(4)]
    text = "".join(line.format(round(s / 2**30, 2), s) for s in sizes)
    assert one(line.format("7.45", sizes[0])).failure == "not_a_failure"
    assert one(text).failure == "other_process"


def test_host_memory_in_the_same_log_decides_a_limit() -> None:
    device = torch_message("1.00 GiB", "23.64 GiB", "20.00 GiB", "1.50 GiB", "1.20 GiB")
    host = "DefaultCPUAllocator: can't allocate memory: you tried to allocate 67108864 bytes. Error code 12"
    assert one(device).verdict.second == "fragmentation_clue"
    findings = diagnose_text(f"{device}\nand then\n{host}\n").findings
    assert [f.failure for f in findings] == ["limit_not_capacity", "host_memory"]
    assert findings[0].verdict.second == "host_memory"


def test_cut_messages_give_what_can_be_known() -> None:
    whole = torch_message("226.00 MiB", "15.70 GiB", "210.38 MiB", "14.81 GiB", "36.73 MiB")
    for end in range(whole.index("Tried"), len(whole)):
        try:
            finding = diagnose_text(whole[:end]).findings[0]
        except NotRecognised:
            pytest.fail(f"nothing recognised in {whole[:end]!r}")
        for name, value in finding.figures.items():
            assert value == one(whole).figures[name]
    assert one(whole[: whole.index(" Of the")]).failure == "device_full"


def test_the_reading_never_adds_allocated_to_reserved() -> None:
    old = "Tried to allocate 1.00 GiB (GPU 0; 10.00 GiB total capacity; 6.00 GiB already allocated; 0.50 GiB free; {})"
    assert torch_figures(messages_in(old.format("8.00 GiB reserved in total by PyTorch"))[0]).reserved == 8 * GIB
    cached = torch_figures(messages_in(old.format("512.00 MiB cached"))[0])
    assert (cached.reserved, cached.slack) == (6 * GIB + 512 * MIB, 512 * MIB)
