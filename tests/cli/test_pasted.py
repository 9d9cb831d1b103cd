"""Commands as people paste them, and values that no one should get a plan or a traceback for."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from planner.engines.vllm.json_inputs import overrides_of, read_overrides
from planner.errors import UsageError
from tests.cli.running import Run, run

LLAMA = "meta-llama/Llama-3.1-8B-Instruct"
BASE = (LLAMA, "--gpu", "H100", "--max-model-len", "4096")


@pytest.fixture
def serve(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")

    def call(*arguments: str) -> Run:
        return run(capsys, monkeypatch, "serve", *arguments)

    return call


def verdict(result: Run) -> str:
    """The verdict, which is broken where a terminal ends."""
    return " ".join(result.out.partition("\n\n")[0].split())


@pytest.mark.parametrize(
    "words",
    [
        ("--max-model-len", "²"),
        ("--max-model-len", "٣"),
        ("--max-num-seqs", "²"),
        ("--limit-mm-per-prompt", '{"image": [1]}'),
        ("--limit-mm-per-prompt", '{"image": Infinity}'),
        ("--limit-mm-per-prompt", '{"image": -4}'),
        ("--limit-mm-per-prompt", '{"image": {"count": {}}}'),
        ("--enable-lora", "--max-loras", "0"),
        ("--enable-lora", "--max-loras", "-1"),
        ("--enable-lora", "--max-lora-rank", "-5"),
        ("--num-speculative-tokens", "-3"),
        ("--max-cudagraph-capture-size", "-5"),
        ("--speculative-config", "x"),
        ("--speculative-config", "[1]"),
        ("--speculative-config", '{"method": "mtp"}'),
        ("--speculative-config", '{"method": "mtp", "num_speculative_tokens": true}'),
        ("--speculative-config", '{"method": "mtp", "num_speculative_tokens": 1e9}'),
        ("--gpu-memory", "80"),
        ("--safety-margin", "2"),
        ("--already-used", "10"),
        ("--mamba-ssm-cache-dtype", "zzz"),
        ("--kv-cache-dtype", "q8_0"),
        ("--max-cudagraph-capture-size", "64", "--engine-version", "0.8.5"),
    ],
)
def test_one_line_and_exit_2(serve, words: tuple[str, ...]) -> None:  # type: ignore[no-untyped-def]
    result = serve(*BASE, *words)
    assert (result.status, result.out) == (2, "")
    assert result.err.count("\n") == 1
    assert result.err.startswith("vram-planner: ")


def test_underscores_are_vllms_other_spelling(serve) -> None:  # type: ignore[no-untyped-def]
    dashed = serve(*BASE, "--gpu-memory-utilization", "0.8", "--format", "json")
    assert serve(*BASE, "--gpu_memory_utilization=0.8", "--format", "json").out == dashed.out
    assert serve(*BASE, "--gpu_memory_utilization", "0.8", "--format", "json").out == dashed.out


@pytest.mark.parametrize(
    "words",
    [
        ("--hf-overrides", '{"num_hidden_layers": 2}'),
        ("--compilation-config", '{"cudagraph_mode": "NONE"}'),
        ("--model-impl", "transformers"),
        ("--enable-eplb",),
        ("-O3",),
        ("-O", "3"),
    ],
)
def test_what_can_change_memory_is_never_called_harmless(serve, words: tuple[str, ...]) -> None:  # type: ignore[no-untyped-def]
    notes = json.loads(serve(*BASE, *words, "--port", "80", "--format", "json").out)["notes"]
    flag = "--optimization-level" if words[0].startswith("-O") else words[0]
    (loud,) = [note for note in notes if "not planned, though memory may depend on" in note]
    assert flag in loud
    assert "accepted, no effect on memory here: --port" in notes


def test_a_pasted_speculative_config(serve) -> None:  # type: ignore[no-untyped-def]
    words = ("deepseek-ai/DeepSeek-V3", "--gpu", "H200", "-tp", "8", "--format", "json")
    plain = json.loads(serve(*words).out)
    config = '{"method": "deepseek_mtp", "num_speculative_tokens": 1}'
    mtp = json.loads(serve(*words, "--speculative-config", config).out)
    ngram = json.loads(serve(*words, "--speculative-config", config.replace("deepseek_mtp", "ngram")).out)
    assert mtp["budget"]["weights_bytes"] > plain["budget"]["weights_bytes"] == ngram["budget"]["weights_bytes"]
    assert '"num_speculative_tokens": 1' in mtp["command"]
    eagle = serve(*BASE, "--speculative-config", '{"model": "yuhuili/EAGLE3", "num_speculative_tokens": 3}')
    assert "the draft yuhuili/EAGLE3 is assumed to be one layer" in " ".join(eagle.out.split())


def test_the_command_realises_the_plan(serve) -> None:  # type: ignore[no-untyped-def]
    """Every option that sizes memory is in the command; given back to the planner it makes the same plan."""
    words = ("--num-gpu-blocks-override", "3000", "-tp", "16", "-dcp", "2", "--no-enable-chunked-prefill",
             "--max-num-seqs", "16", "--kv-cache-dtype", "fp8", "--enforce-eager")  # fmt: skip
    first = json.loads(serve(*BASE, *words, "--format", "json").out)
    again = first["command"].split()[2:]
    second = json.loads(serve(*again, "--gpu", "H100", "--format", "json").out)
    assert second["budget"] == first["budget"]
    assert second["kv_cache"] == first["kv_cache"]


def test_does_not_fit_always_says_by_how_much(serve) -> None:  # type: ignore[no-untyped-def]
    result = serve(*BASE, "--concurrency", "1000")
    assert result.status == 1
    assert ", 1,000 wanted: short by" in verdict(result)


def test_output_that_cannot_be_written() -> None:
    command = f"{sys.executable} -m planner.cli serve {LLAMA} --gpu H100"
    full = subprocess.run(f"{command} > /dev/full", shell=True, capture_output=True, text=True)
    assert (full.returncode, full.stderr.count("\n")) == (2, 1)
    closed = subprocess.run(f"{command} >&-", shell=True, capture_output=True, text=True)
    assert (closed.returncode, closed.stderr) == (0, "")


@pytest.mark.parametrize(
    "words",
    [
        ("-q", "none,zzz"),
        ("--kv-cache-dtype", "auto,zzz"),
        ("--concurrency", "0"),
        ("--gpu-memory-utilization", "5"),
        ("--tensor-parallel-size", "²"),
        ("--max-model-len", "8k,²"),
    ],
)
def test_compare_refuses_what_no_cell_can_have(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    result = run(capsys, monkeypatch, "compare", LLAMA, "--gpu", "H100", *words)
    assert (result.status, result.out, result.err.count("\n")) == (2, "", 1)


def test_a_quantised_checkpoint_says_so(serve) -> None:  # type: ignore[no-untyped-def]
    document = json.loads(serve("openai/gpt-oss-20b", "--gpu", "H100", "-q", "mxfp4", "--format", "json").out)
    assert document["deployment"]["quantization"] is None
    assert any(note.startswith("already quantised (mxfp4)") for note in document["notes"])
    assert "--quantization" not in document["command"]


def test_a_model_without_a_cache(serve) -> None:  # type: ignore[no-untyped-def]
    result = serve("BAAI/bge-m3", "--gpu", "4090")
    assert result.status == 0
    assert "this model keeps no cache" in verdict(result)
    assert "blocks of" not in result.out and "0.00 requests" not in result.out


def test_a_card_that_vllm_does_not_run_on_is_refused(serve) -> None:  # type: ignore[no-untyped-def]
    found = serve("Qwen/Qwen3-8B", "--gpu", "apple-m3-max-64gb")
    assert found.status == 2 and found.out.startswith("refused: ")
    assert "vLLM has no GPU engine for Apple M3 Max" in found.out


@pytest.mark.parametrize(
    "words",
    [
        (LLAMA, "--gpu", "H100"),
        (LLAMA, "--gpu", "4090", "--max-model-len", "131072"),
        ("meta-llama/Llama-3.1-70B-Instruct", "--gpu", "4090"),
        (LLAMA, "--gpu", "H100", "--kv-cache-memory-bytes", "20GiB"),
        (LLAMA, "--gpu", "H100", "--num-gpu-blocks-override", "600"),
        (LLAMA, "--gpu", "H100", "--engine-version", "0.8.5"),
        (LLAMA, "--gpu", "H100", "--engine-version", "0.33.0"),
    ],
)
def test_the_budget_always_adds_up(serve, words: tuple[str, ...]) -> None:  # type: ignore[no-untyped-def]
    """Also when the terms exceed the fraction (what is left is below zero), and when the pool's size is stated."""
    document = json.loads(serve(*words, "--format", "json").out)
    budget, outside = document["budget"], document["outside_budget"]
    assert sum(size for name, size in budget.items() if name != "requested_bytes") == budget["requested_bytes"]
    held = sum(outside[name] for name in ("context_bytes", "cuda_graph_bytes", "post_profile_bytes", "other_bytes"))
    assert outside["driver_total_bytes"] - budget["requested_bytes"] - held == outside["free_bytes"]


def test_the_program_may_stand_before_the_model(serve) -> None:  # type: ignore[no-untyped-def]
    assert serve("vllm", "serve", *BASE).out == serve(*BASE).out
    long = ("serve", LLAMA, "--gpu", "H100", "--max-model-len", "200000")
    assert serve("vllm", *long).status == 2  # beyond the positions: no card would help
    assert serve("VLLM_ALLOW_LONG_MAX_MODEL_LEN=1", "vllm", *long).status == 0
    assert serve(LLAMA, "vllm", "serve", "--gpu", "H100").status == 2


@pytest.mark.parametrize(
    ("word", "nearest"),
    [("--bogus", None), ("--zzz", None), ("--max-model-length", "--max-model-len"), ("--api-keys", "--api-key")],
)
def test_only_what_is_near_is_proposed(serve, word: str, nearest: str | None) -> None:  # type: ignore[no-untyped-def]
    result = serve(*BASE, word, "1")
    assert result.status == 2
    assert result.err == f"vram-planner: no such option: {word}{f'; nearest: {nearest}' if nearest else ''}\n"


@pytest.mark.parametrize(
    "words", [("serve", *BASE, "--format", "xml"), ("validate", "--by", "x"), ("compare", *BASE[:3], "-q", "zzz")]
)
def test_messages_name_the_option_and_no_library(words, capsys, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    result = run(capsys, monkeypatch, *words)
    option = "--quantization" if words[-2] == "-q" else words[-2]
    assert result.status == 2 and option in result.err and "Value error" not in result.err


def test_refused_rows_have_no_figures(capsys, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    """32 query heads cannot be dealt to three GPUs."""
    asked = ("compare", LLAMA, "--gpu", "H100", "-tp", "3", "--max-model-len", "8192")
    figures = ("weights_bytes", "bytes_per_token", "kv_cache_bytes", "tokens", "concurrency")
    row = json.loads(run(capsys, monkeypatch, *asked, "--format", "json").out)["rows"][0]
    assert row["verdict"] == "refused" and [row[name] for name in figures] == [None] * 5
    assert "0.00" not in run(capsys, monkeypatch, *asked).out


@pytest.mark.parametrize("text", [
    '{"max_position_embeddings": "x"}', '{"max_position_embeddings": -4}', '{"rope_scaling": "x"}',
    '{"rope_scaling": {"rope_type": "yarn", "factor": "a"}}', '{"rope_parameters": {"factor": 0}}',
])  # fmt: skip
def test_overrides_that_make_no_sense_are_refused(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_overrides(text, "--hf-overrides")
    assert caught.value.field == "hf_overrides"


def test_overrides_that_are_read() -> None:
    text = '{"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}'
    assert overrides_of(read_overrides(text, "--hf-overrides"), None) == json.loads(text)
    assert overrides_of(None, '{"rope_type": "yarn", "factor": 4.0}') == json.loads(text)
