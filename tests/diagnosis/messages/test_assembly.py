"""Texts as people paste them: colours, prefixes, wrapped lines, escapes, several messages, other locales."""

from __future__ import annotations

import json
import textwrap

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from planner.diagnosis import diagnose_text
from planner.diagnosis.messages.assembly import messages_in
from planner.diagnosis.sizes import NUMBER, read_size
from planner.errors import NotRecognised, SourceError

MESSAGE = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 226.00 MiB. GPU 3 has a total capacity of "
    "15.70 GiB of "
    "which 210.38 MiB is free. Process 77 has 1.00 GiB memory in use. Including non-PyTorch memory, this process "
    "has 14.48 "
    "GiB memory in use. Of the allocated memory 13.81 GiB is allocated by PyTorch, with 30.00 MiB allocated in "
    "private pools "
    "(e.g., CUDA Graphs), and 336.73 MiB is reserved by PyTorch but unallocated. If reserved but unallocated "
    "memory is large "
    "try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See documentation for "
    "Memory "
    "Management  (https://pytorch.org/docs/stable/notes/cuda.html#environment-variables)"
)
FIGURES = {name: figure.value for name, figure in messages_in(MESSAGE)[0].figures.items()}


def figures_of(text: str) -> dict[str, object]:
    messages = messages_in(text)
    assert len(messages) == 1, [m.kind for m in messages]
    return {name: figure.value for name, figure in messages[0].figures.items()}


def test_all_figures_of_the_message() -> None:
    mib, gib = 2**20, 2**30
    assert {
        "tried_bytes": 226 * mib,
        "total_bytes": round(15.70 * gib),
        "free_bytes": round(210.38 * mib),
        "other_process_bytes": gib,
        "process_in_use_bytes": round(14.48 * gib),
        "allocated_bytes": round(13.81 * gib),
        "private_pool_bytes": 30 * mib,
        "reserved_unallocated_bytes": round(336.73 * mib),
    } == FIGURES
    assert messages_in(MESSAGE)[0].device == 3


@pytest.mark.parametrize("width", [40, 61, 80, 100, 132])
def test_wrapped_at_words_with_indentation(width: int) -> None:
    assert figures_of("\n".join(textwrap.wrap(MESSAGE, width, subsequent_indent="        "))) == FIGURES


@pytest.mark.parametrize("width", [79, 80, 100, 132])
def test_wrapped_within_words_as_terminals_do(width: int) -> None:
    """A figure whose words were cut is found again when the rest of the message cannot stand without it."""
    text = "\n".join(MESSAGE[i : i + width] for i in range(0, len(MESSAGE), width))
    found = figures_of(text)
    assert {"tried_bytes", "allocated_bytes"} <= set(found)
    assert all(FIGURES[name] == value for name, value in found.items())


@pytest.mark.parametrize(
    "prefix",
    [
        "worker-1  | ",
        "(EngineCore_DP0 pid=12345) ERROR 10-25 13:08:43 [core.py:708] ",
        "(VllmWorker rank=3 pid=9) ERROR 05-10 16:00:15 [multiproc_executor.py:470] ",
        "[rank0]: ",
        "2026-01-01T00:00:00.123456789Z stderr F ",
        "(RayTrainWorker pid=4, ip=10.0.0.1) ",
    ],
)
def test_prefix_on_every_line_of_a_wrapped_message(prefix: str) -> None:
    text = "\n".join(prefix + line for line in textwrap.wrap(MESSAGE, 70))
    assert figures_of(text) == FIGURES


def test_colours_and_json_logs() -> None:
    coloured = MESSAGE.replace("out of memory", "\x1b[31mout of memory\x1b[0m").replace(
        "226.00", "\x1b[1m226.00\x1b[0m"
    )
    assert diagnose_text(coloured).findings[0].figures == FIGURES
    logged = json.dumps({"log": 'Traceback\n  File "a.py", line 1\n' + MESSAGE + "\n", "stream": "stderr"})
    assert diagnose_text(logged).findings[0].figures == FIGURES


def test_several_messages_and_their_order() -> None:
    warning = (
        "Allocator (GPU_0_bfc) ran out of memory trying to allocate 3.37GiB with freed_by_count=0. The caller "
        "indicates "
        "that this is not a failure"
    )
    vllm = (
        "ValueError: To serve at least one request with the model's max seq len (32768), (4.00 GiB KV cache is "
        "needed, which "
        "is larger than the available KV cache memory (1.50 GiB). Based on the available memory, the estimated "
        "maximum model "
        "length is 12272. Try increasing"
    )
    diagnosis = diagnose_text(
        "\n".join([warning, "...", MESSAGE, "...", vllm, "...", MESSAGE.replace("226.00", "18.00")])
    )
    assert [f.message.program for f in diagnosis.findings] == ["pytorch", "vllm", "tensorflow"]
    assert [f.message.line for f in diagnosis.findings] == [3, 5, 1]
    assert diagnosis.findings[1].verdict.derived["fitting_max_model_len"] == 12272
    assert diagnosis.findings[0].message.repeated == 2, "the same failure, of two sizes"
    assert any("18.0 MiB to 226.0 MiB" in line for line in diagnosis.findings[0].verdict.evidence)


def test_figures_of_one_message_do_not_leak_into_the_next() -> None:
    first = "CUDA out of memory. Tried to allocate 58.15 GiB."
    second = (
        "CUDA out of memory. Tried to allocate 2.00 GiB (GPU 1; 24.00 GiB total capacity; 22.00 GiB already allocated)"
    )
    for text in (f"{first}\n{second}", f"{second}\n{first}"):
        messages = {m.bytes_of("tried_bytes"): m for m in messages_in(text)}
        assert len(messages) == 2
        assert set(messages[round(58.15 * 2**30)].figures) == {"tried_bytes"}
        assert messages[2 * 2**30].device == 1


def test_wrapped_engine_error_is_context_of_the_torch_message() -> None:
    text = (
        "RuntimeError: Failed to load model - not enough GPU memory. Try lowering --gpu-memory-utilization to "
        "free memory. "
        f"(original error: {MESSAGE})"
    )
    finding = diagnose_text(text).findings[0]
    assert len(diagnose_text(text).findings) == 1
    assert finding.message.context["wrapped_by"] == "vllm_load"
    assert finding.figures == FIGURES


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        (MESSAGE, "torch >= 2.5"),
        (MESSAGE.replace("capacity", "capacty").replace("torch.Out", "torch.cuda.Out"), "torch 2.1"),
        (
            MESSAGE.replace("torch.Out", "torch.cuda.Out").replace(
                "with 30.00 MiB allocated in private pools (e.g., CUDA Graphs), ", ""
            ),
            "torch 2.2 to 2.4",
        ),
        (MESSAGE.replace("https://pytorch.org", "https://docs.pytorch.org"), "torch >= 2.11"),
        (
            "CUDA out of memory. Tried to allocate 24.00 MiB (GPU 0; 3.95 GiB total capacity; 3.46 GiB already "
            "allocated; 1.06 "
            "MiB free; 60.00 KiB cached)",
            "torch 1.0 to 1.3",
        ),
        ("RuntimeError: cuda runtime error (2) : out of memory at /tmp/x.cu:66", "torch <= 0.4"),
    ],
)
def test_version_hints(text: str, hint: str) -> None:
    assert messages_in(text)[0].version_hint == hint


def test_gpu_number_printed_as_a_raw_byte_or_blank() -> None:
    for number in ("\x00", "\x01", "", "\x7f"):
        text = f"CUDA out of memory. Tried to allocate 2.00 GiB. GPU {number} has a total capacity of 8.00 GiB"
        text += " of which 1.00 "
        message = messages_in(text + "GiB is free.")[0]
        assert message.bytes_of("total_bytes") == 8 << 30
        assert "\x00" not in message.text


@pytest.mark.parametrize(
    ("printed", "size", "margin"),
    [
        ("1024.00 MiB", 1 << 30, 5_243),
        ("0 bytes", 0, 0),
        ("18.02 GB", round(18.02 * 2**30), 5_368_710),
        ("1900,00 MiB", 1900 << 20, 5_243),
        ("1,024.50 MiB", round(1024.5 * 2**20), 5_243),
        ("17179869184.00 GiB", 1 << 64, 5_368_710),
        ("7 KiB", 7168, 513),
    ],
)
def test_printed_sizes(printed: str, size: int, margin: int) -> None:
    figure = read_size(printed)
    assert (figure.value, figure.margin_bytes) == (size, margin)


@given(st.integers(0, 5000 << 30), st.sampled_from(["KiB", "MiB", "GiB"]))
@example(5_243, "MiB")  # 0.005 MiB, the middle between 0.00 and 0.01
def test_a_printed_size_is_within_its_margin(size: int, unit: str) -> None:
    """Sizes are whole bytes: half a unit of the last decimal, and the byte that reading rounds away, cover them."""
    figure = read_size(f"{size / {'KiB': 2**10, 'MiB': 2**20, 'GiB': 2**30}[unit]:.2f} {unit}")
    assert isinstance(figure.value, int)
    assert abs(figure.value - size) <= figure.margin_bytes


PIECES = [
    *MESSAGE.split(),
    "CUDA",
    "out of memory",
    "Killed\n",
    "exit code 137",
    "\x1b[31m",
    "\n",
    "|",
    "12.5",
    "GiB",
    "(GPU 0;",
    "nvidia-smi",
    "used_gpu_memory",
    "memory.total [MiB], memory.used [MiB]\n1 MiB, 2 MiB",
    "memory summary, device ID 0",
    "shape[1,2,3]",
    "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 5 bytes.",
    "\\n",
    "\x00",
    "é",
]


@given(st.lists(st.sampled_from(PIECES), max_size=80))
@settings(max_examples=150, deadline=None)
def test_any_mixture_is_read_or_refused_in_one_line(pieces: list[str]) -> None:
    try:
        diagnosis = diagnose_text(" ".join(pieces))
    except (NotRecognised, SourceError) as error:
        assert "\n" not in str(error)
        return
    text = json.dumps(diagnosis.to_json())
    assert "\\u0000" not in text and "\\u001b" not in text
    assert json.loads(text)["schema"] == 2


@given(st.text(max_size=300))
@settings(max_examples=200, deadline=None)
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        diagnose_text(text)
    except (NotRecognised, SourceError) as error:
        assert "\n" not in str(error)


def test_number_pattern_is_bounded() -> None:
    assert "{1,25}" in NUMBER


POOL = """
2022-02-11 12:56:30: W bfc_allocator.cc:456] Allocator (GPU_0_bfc) ran out of memory trying to allocate 2.25GiB \
(rounded to 2415919104)requested by op AddV2
Stats:
Limit:                      3667263488
InUse:                      3400000000
2022-02-11 12:56:43: W op_kernel.cc:1745] OP_REQUIRES failed : RESOURCE_EXHAUSTED: OOM when allocating tensor with \
shape[64,512,64,288] and type float on /job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc
"""


def test_a_pools_line_and_the_error_of_the_same_request_are_one_finding() -> None:
    """64 x 512 x 64 x 288 x 4 B = 2,415,919,104 B, 66% of the pool, 93% of which was in use."""
    (finding,) = diagnose_text(POOL).findings
    assert finding.figures["tried_bytes"] == 2_415_919_104
    assert finding.figures["limit_bytes"] == 3_667_263_488
    assert (finding.failure, finding.verdict.second) == ("device_full", "single_huge")
    larger = diagnose_text(POOL.replace("3667263488", "2000000000")).findings[0]
    assert (larger.failure, larger.verdict.confidence) == ("single_huge", "high")
