"""Command lines as people and programs write them, and one line for every mistake."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from planner import Deployment
from planner.contract.parser import parse
from planner.errors import UsageError
from tests.cli.running import Run, run

MODEL = "Qwen/Qwen3-0.6B"


def given(*words: str) -> dict[str, Any]:
    return dict(parse([Deployment], words).given)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--max-model-len", "32K"), {"max_model_len": 32_768}),
        (("--max_model_len=32k",), {"max_model_len": 32_000}),
        (("--max-model-len", "-1"), {"max_model_len": -1}),
        (("-tp", "2"), {"tensor_parallel_size": 2}),
        (("-tp=2",), {"tensor_parallel_size": 2}),
        (("--tensor-parallel", "2"), {"tensor_parallel_size": 2}),  # a prefix, as argparse takes it
        (("--enforce-eager",), {"enforce_eager": True}),
        (("--enforce_eager", "True"), {"enforce_eager": True}),
        (("--enforce-eager", "1"), {"enforce_eager": True}),
        (("--enforce-eager=false",), {"enforce_eager": False}),
        (("--no-enforce-eager",), {"enforce_eager": False}),
        (("--no-enable-prefix-caching",), {"enable_prefix_caching": False}),
        (("--enable-prefix-caching", "model"), {"enable_prefix_caching": True}),  # the word is the model
        (("--cudagraph-capture-sizes", "1", "2", "4"), {"cudagraph_capture_sizes": (1, 2, 4)}),
        (("--cpu-offload-gb", "10"), {"cpu_offload_bytes": 10 << 30}),
        (("--gpu-memory", "79.19GiB"), {"gpu_memory_bytes": 85_029_615_043}),
        (("--limit-mm-per-prompt.image", "2"), {"limit_mm_per_prompt": '{"image": 2}'}),
        (("--limit-mm-per-prompt", "image=2"), {"limit_mm_per_prompt": '{"image": 2}'}),
        (
            ("--speculative-config.method", "mtp", "--speculative-config.num_speculative_tokens", "1"),
            {"speculative_config": '{"method": "mtp", "num_speculative_tokens": 1}'},
        ),
        (("--max-num-seqs", "8", "--max_num_seqs=8"), {"max_num_seqs": 8}),  # twice the same is the same
        (("VLLM_USE_V1=0", "X=1"), {"model_runner": "v0"}),
    ],
)
def test_spellings(words: tuple[str, ...], expected: dict[str, Any]) -> None:
    assert given(*words) == expected


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--max-num-seqs", "8", "--max_num_seqs", "9"), "--max-num-seqs is given twice, as 8 and as 9"),
        (("-tp", "2", "--tensor-parallel-size=4"), "-tp is given twice, as 2 and as 4 (--tensor-parallel-size)"),
        (("--max-num-seqs",), "--max-num-seqs: expected a value"),
        (("--max-num-seqs", "many"), "--max-num-seqs is 'many'; expected a whole number"),
        (("--max-model-len", "8X"), "expected a number of tokens such as 8192 or 32K"),
        (("--enforce-eager=perhaps",), "--enforce-eager is 'perhaps'; expected true or false"),
        (("--usage-context", "banana"), "expected api-server, llm-class"),
        (("--max", "3"), "--max is short for several options"),
        (("--nonsense",), "no such option: --nonsense"),
        (("one", "two"), "'two' is not an option"),
        (("--speculative-config.a", "1", "--speculative-config.a.b", "2"), "given as a value and as an object"),
    ],
)
def test_mistakes(words: tuple[str, ...], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        given(*words)
    assert message in str(caught.value)


def test_too_many_words_are_not_read() -> None:
    with pytest.raises(UsageError, match="at most 4,096"):
        given(*["--enforce-eager"] * 5000)


@pytest.fixture
def serve(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]
    def call(*words: str) -> Run:
        return run(capsys, monkeypatch, "serve", MODEL, "--gpu", "H100", *words)

    return call


def test_the_file_that_config_names_is_read_and_the_command_line_beats_it(serve, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "serve.yaml"
    path.write_text("max-model-len: 4K\nmax_num_seqs: 16\nenforce-eager: true\nport: 80\n")
    found = json.loads(serve("--config", str(path), "--max-num-seqs", "32", "--format", "json").out)
    asked = found["deployment"]
    assert (asked["max_model_len"], asked["max_num_seqs"], asked["enforce_eager"]) == (4096, 32, True)
    assert "--config" not in found["command"] and "--enforce-eager" in found["command"]
    assert any("no effect on memory here: --port" in note for note in found["notes"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("max-model-length: 3", "no such option: --max-model-length"),
        ("- a\n- b", "expected one mapping"),
        ("a: &x 1\nb: *x", "aliases"),
        ("a: [", "line"),
        ("max-model-len: !!python/object/apply:os.system [ls]", "could not determine a constructor"),
    ],
)
def test_a_file_that_is_no_list_of_options(serve, tmp_path: Path, text: str, message: str) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "serve.yaml"
    path.write_text(text)
    result = serve("--config", str(path))
    assert (result.status, result.out, result.err.count("\n")) == (2, "", 1) and message in result.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--max-model-length", "3"), "no such option: --max-model-length; nearest: --max-model-len"),
        (("--attn-implementation", "sdpa"), "it is an option of --engine transformers"),
        (("--engine", "transformers", "--kv-cache-dtype", "fp8"), "it is an option of --engine vllm"),
        (("--engine", "vlm"), "did you mean vllm?"),
    ],
)
def test_what_was_probably_meant(serve, words: tuple[str, ...], message: str) -> None:  # type: ignore[no-untyped-def]
    result = serve(*words)
    assert (result.status, result.out, result.err.count("\n")) == (2, "", 1) and message in result.err
