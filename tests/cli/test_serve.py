"""`vram-planner serve` and `explain`: output, exit status, and one line for every mistake."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from planner import Deployment, find_gpu, load_model, plan_serving
from planner.report.serving import plan_json
from tests.cli.running import Run, run

LLAMA = "meta-llama/Llama-3.1-8B-Instruct"


@pytest.fixture
def serve(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")

    def call(*arguments: str) -> Run:
        return run(capsys, monkeypatch, "serve", *arguments)

    return call


def test_the_api_and_the_command_say_the_same(serve) -> None:  # type: ignore[no-untyped-def]
    result = serve(LLAMA, "--gpu", "H100", "--max-model-len", "8192", "--format", "json")
    assert result.status == 0
    plan = plan_serving(load_model(LLAMA), Deployment(gpu=find_gpu("H100"), max_model_len=8192))
    assert json.loads(result.out) == json.loads(json.dumps(plan_json(plan)))


def test_json_has_the_contract(serve) -> None:  # type: ignore[no-untyped-def]
    result = serve(LLAMA, "--gpu", "H100", "--max-model-len", "8192", "--format", "json")
    document = json.loads(result.out)
    assert list(document) == [
        "schema", "engine", "engine_version", "model", "deployment", "devices", "ranks", "budget", "outside_budget",
        "kv_cache", "workload", "load", "verdict", "shortfall_bytes", "startup_error", "unknown", "levers", "plans",
        "command", "notes",
    ]  # fmt: skip
    assert document["schema"] == 2
    (card,) = document["devices"]
    assert (card["name"], card["kind"], card["count"]) == ("NVIDIA H100 80GB HBM3", "gpu", 1)
    assert card["components"] == document["ranks"][0]["components"]
    assert card["cache_bytes"] == document["budget"]["kv_cache_bytes"]
    budget = document["budget"]
    assert sum(size for name, size in budget.items() if name != "requested_bytes") == budget["requested_bytes"]
    cache = document["kv_cache"]
    assert cache["bytes_per_token"] == 131_072
    assert cache["bytes_per_sequence"] == 131_072 * 8_192
    assert cache["num_blocks"] == budget["kv_cache_bytes"] // 2_097_152
    assert cache["tokens"] == cache["num_blocks"] * 16
    assert document["verdict"] == "fits"


def test_a_pasted_command_becomes_a_plan(serve) -> None:  # type: ignore[no-untyped-def]
    result = serve(
        LLAMA, "--gpu-memory-utilization", "0.88", "--max-model-len", "4096", "--max-num-seqs", "128", "--block-size",
        "16", "--swap-space", "16", "--tensor-parallel-size", "1", "--gpu", "A100 80GB", "--format", "json",
    )  # fmt: skip
    document = json.loads(result.out)
    assert result.status == 0
    assert document["deployment"]["gpu_memory_utilization"] == 0.88
    assert document["deployment"]["max_num_seqs"] == 128
    assert document["load"]["host_bytes"] == 0
    assert any("--swap-space" in note for note in document["notes"])


def test_swap_space_takes_host_memory_in_v0(serve) -> None:  # type: ignore[no-untyped-def]
    arguments = (LLAMA, "--gpu", "H100", "--swap-space", "16", "-tp", "2", "--engine-version", "0.6.6")
    document = json.loads(serve(*arguments, "--max-model-len", "4096", "--format", "json").out)
    assert document["load"]["host_bytes"] == 2 * 16 * 2**30


def test_flags_that_do_not_touch_memory_are_noted(serve) -> None:  # type: ignore[no-untyped-def]
    result = serve(
        LLAMA, "--gpu", "H100", "--max-model-len", "8k", "--port", "8000", "--api-key", "x", "--trust-remote-code"
    )
    assert result.status == 0
    assert "accepted, no effect on memory here: --port, --api-key, --trust-remote-code" in result.out


def test_what_does_not_fit_exits_1_with_the_engines_words(serve) -> None:  # type: ignore[no-untyped-def]
    result = serve("meta-llama/Llama-3.1-8B-Instruct", "--gpu", "4090", "--format", "json")
    document = json.loads(result.out)
    assert result.status == 1
    assert document["verdict"] == "does_not_fit"
    assert document["startup_error"]["kind"] == "request_too_long"
    # 131,072 tokens x 131,072 B = 16 GiB
    assert "(131072), (16.0 GiB KV cache is needed" in document["startup_error"]["message"]


def test_the_safety_margin_is_realised_by_the_command(serve) -> None:  # type: ignore[no-untyped-def]
    arguments = (LLAMA, "--gpu-memory", "80GiB", "--max-model-len", "8192", "--format", "json")
    plain = json.loads(serve(*arguments).out)
    careful = json.loads(serve(*arguments, "--safety-margin", "2GiB").out)
    # 0.9 - 2/80 = 0.875
    assert "--gpu-memory-utilization 0.875" in careful["command"]
    assert plain["budget"]["kv_cache_bytes"] - careful["budget"]["kv_cache_bytes"] == 2 * 2**30


def test_workload(serve) -> None:  # type: ignore[no-untyped-def]
    result = serve(
        LLAMA, "--gpu", "H100", "--max-model-len", "8192", "--input-len", "mean=900,p50=600,p95=4000", "--output-len",
        "mean=250,p50=200,p95=800", "--format", "json",
    )  # fmt: skip
    document = json.loads(result.out)
    blocks = document["kv_cache"]["num_blocks"]
    rows = {row["at"]: row for row in document["workload"]}
    assert rows["max_model_len"]["concurrency"] == blocks // 512  # 8,192 tokens are 512 blocks of 16
    assert rows["p95"]["concurrency"] == blocks // 300  # 4,800 tokens are 300 blocks
    assert rows["mean"]["concurrency"] == blocks // 72  # 1,150 tokens are 71.9 blocks
    assert any("no admission limit" in note for note in document["notes"])


def test_table_csv_and_markdown(serve) -> None:  # type: ignore[no-untyped-def]
    arguments = (LLAMA, "--gpu", "H100", "--max-model-len", "8192")
    table = serve(*arguments).out
    assert table.startswith(f"fits: {LLAMA} on 1 x ")
    assert table.rstrip().splitlines()[-1].startswith(f"vllm serve {LLAMA} ")
    assert "\x1b" not in table
    rows = list(csv.DictReader(io.StringIO(serve(*arguments, "--format", "csv").out)))
    assert {row["component"] for row in rows} >= {"weights", "activation_peak", "non_torch", "kv_cache", "context"}
    assert "| - weights" in serve(*arguments, "--format", "markdown").out


def test_explain_writes_the_arithmetic(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    result = run(capsys, monkeypatch, "explain", LLAMA, "--gpu", "H100", "--max-model-len", "8192")
    assert result.status == 0
    assert "weights = 16,094,076,928 B (14.99 GiB) [exact]" in result.out
    assert "1,024 x 128,256 x (2 + 12)" in result.out
    assert "source:" in result.out


def test_a_folder_and_a_file_are_models(serve, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    values = {
        "model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
        "num_attention_heads": 4, "vocab_size": 1000, "max_position_embeddings": 2048, "torch_dtype": "bfloat16",
    }  # fmt: skip
    path = tmp_path / "config.json"
    path.write_text(json.dumps(values))
    for source in (str(tmp_path), str(path)):
        document = json.loads(serve(source, "--gpu", "4090", "--format", "json").out)
        # 2 x 1000 x 64 embeddings + 2 x (4 x 64 x 64 + 3 x 64 x 128 + 2 x 64) + 64
        assert document["model"]["parameters"] == 2 * 64_000 + 2 * (16_384 + 24_576 + 128) + 64


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("no/such-file.json", "--gpu", "H100"), "no such file"),
        ((LLAMA,), "--gpu"),
        ((LLAMA, "--gpu", "H100", "--gpu-memory-utilization", "0"), "--gpu-memory-utilization"),
        ((LLAMA, "--gpu", "H100", "--gpu-memory-utilization", "1.5"), "--gpu-memory-utilization"),
        ((LLAMA, "--gpu", "H100", "--max-model-len", "0"), "--max-model-len"),
        ((LLAMA, "--gpu", "H100", "--max-model-len", "long"), "--max-model-len"),
        ((LLAMA, "--gpu", "H100", "--input-len", "0"), "--input-len"),
        ((LLAMA, "--gpu", "H100", "--input-len", "p95=10,p50=20"), "--input-len"),
        ((LLAMA, "--gpu", "H100", "-tp", "3"), "sizes that work: 1, 2, 4, 8, 16, 32"),
        ((LLAMA, "--gpu", "H100", "-tp", "0"), "--tensor-parallel-size"),
        ((LLAMA, "--gpu", "H100", "-pp", "33"), "more than the model's 32 layers"),
        ((LLAMA, "--gpu", "a100"), "'a100 40gb' (39.49 GiB), 'a100 80gb'"),
        ((LLAMA, "--gpu", "GTX 9999"), "GTX 9999"),
        ((LLAMA, "--gpu-memory", "much"), "--gpu-memory"),
        ((LLAMA, "--gpu-memory", "0GiB"), "--gpu-memory"),
        ((LLAMA, "--gpu", "H100", "--engine-version", "9.9"), "vLLM 0.4 to 0.33"),
        ((LLAMA, "--gpu", "H100", "--engine", "abacus"), "--engine"),
        ((LLAMA, "--gpu", "H100", "--max-modl-len", "8192"), "--max-model-len"),
        ((LLAMA, "--gpu", "H100", "--max-seq-len-to-capture", "8192"), "vLLM 0.19.0 has no --max-seq-len-to-capture"),
        ((LLAMA, "--gpu", "H100", "--dtype", "int7"), "--dtype"),
        ((LLAMA, "--gpu", "H100", "--kv-cache-dtype", "fp3"), "fp3"),
        ((LLAMA, "--gpu", "H100", "--quantization", "q99"), "q99"),
        ((LLAMA, "--gpu", "H100", "--safety-margin", "79GiB"), "--safety-margin"),
        ((LLAMA, "--gpu", "H100", "--max-num-batched-tokens", "64", "--max-num-seqs", "128"), "max_num_seqs"),
        ((LLAMA, "--gpu", "H100", "--limit-mm-per-prompt", "{{"), "--limit-mm-per-prompt"),
        ((LLAMA, "--gpu", "H100", "--concurrency", "-1"), "--concurrency"),
        (("meta-llama/Llama-3.1-8B-Instrukt", "--gpu", "H100"), LLAMA),
        (("someone/Qwen2.5-7B-Made-Up-GPTQ-Int4", "--gpu", "H100"), "nearest bundled model: Qwen/Qwen2.5"),
        (("", "--gpu", "H100"), "MODEL"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_line_and_exit_2(serve, arguments: tuple[str, ...], words: str) -> None:  # type: ignore[no-untyped-def]
    result = serve(*arguments)
    assert result.status == 2
    assert result.out == ""
    assert result.err.count("\n") == 1
    assert words in result.err
    assert "Traceback" not in result.err


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"[1, 2]", "a list"),
        (b"{", "not valid JSON"),
        (b"\xff\xfe\x00", "UTF-8"),
        (b'{"model_type": "llama"}', "hidden_size is missing"),
        (b"{}", "model_type is missing"),
        (b'{"model_type": "frobnicator"}', "'frobnicator' is not understood"),
        (b'{"model_type": ["llama"]}', "model_type must be a string"),
        (b"[" * 100_000, "levels deep"),
        (b'{"model_type": "llama", "hidden_size": ' + b"9" * 5000 + b"}", "an integer of 5000 digits"),
        (b'{"model_type": "llama", "hidden_size": NaN}', "hidden_size must be a whole number, not nan"),
    ],
)
def test_a_bad_config_is_one_line(serve, tmp_path: Path, content: bytes, words: str) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "config.json"
    path.write_bytes(content)
    result = serve(str(path), "--gpu", "H100")
    assert (result.status, result.out) == (2, "")
    assert result.err.count("\n") == 1
    assert words in result.err


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("num_hidden_layers", -1, "num_hidden_layers is -1"),
        ("num_hidden_layers", 10**9, "num_hidden_layers is 1000000000"),
        ("num_hidden_layers", True, "must be a whole number"),
        ("num_hidden_layers", "32", "must be a whole number"),
        ("num_attention_heads", 7, "does not divide hidden_size"),
        ("num_key_value_heads", 3, "does not divide num_attention_heads"),
        ("vocab_size", 0, "vocab_size is 0"),
        ("torch_dtype", "int3", "int3"),
        ("head_dim", 0, "head_dim"),
    ],
)
def test_an_absurd_field_is_named(serve, tmp_path: Path, field: str, value: object, words: str) -> None:  # type: ignore[no-untyped-def]
    values: dict[str, object] = {
        "model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
        "num_attention_heads": 4, "vocab_size": 1000, "max_position_embeddings": 2048,
    }  # fmt: skip
    path = tmp_path / "config.json"
    path.write_text(json.dumps(values | {field: value}))
    result = serve(str(path), "--gpu", "H100")
    assert (result.status, result.out) == (2, "")
    assert result.err.count("\n") == 1
    assert words in result.err
