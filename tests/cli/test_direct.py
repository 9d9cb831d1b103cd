"""A command called straight from its declaration prints what typer's reading of the same words prints."""

from __future__ import annotations

import contextlib
import io

import pytest
from planner.cli.direct import direct_call

from planner import cli
from planner.cli.serve import serve
from planner.errors import UsageError

PLAIN = [
    ["openai-community/gpt2", "--gpu", "H100-SXM-80GB"],
    ["openai-community/gpt2", "--gpu", "H100-SXM-80GB", "--format", "json"],
    ["openai-community/gpt2", "--gpu=H100-SXM-80GB", "--max-model-len=512", "--gpu-memory-utilization", "0.5"],
    ["--gpu", "L4", "openai-community/gpt2", "--kv-cache-dtype", "fp8", "-tp", "1", "--enforce-eager"],
    ["openai-community/gpt2", "--gpu", "L4", "--max-num-seqs", "16", "--max-num-seqs", "32", "--format", "json"],
]

LEFT_TO_TYPER = [
    ["--help"],
    ["openai-community/gpt2", "--no-such-option"],
    ["openai-community/gpt2", "--tensor-parallel-size", "two"],
    ["openai-community/gpt2", "--tensor-parallel-size"],
    ["openai-community/gpt2", "--gpu-memory-utilization", "nan"],
    ["openai-community/gpt2", "another"],
    ["openai-community/gpt2", "--enforce-eager=yes"],
    ["--gpu", "L4"],
    ["openai-community/gpt2", "--", "--gpu"],
]


def _printed(words: list[str], monkeypatch: pytest.MonkeyPatch, *, direct: bool) -> tuple[object, str, str]:
    out, err = io.StringIO(), io.StringIO()
    with monkeypatch.context() as patch, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        if not direct:
            patch.setattr(cli, "direct_call", lambda *_: None)
        patch.setattr("sys.argv", ["vram-planner", "serve", *words])
        with pytest.raises(SystemExit) as stopped:
            cli.main()
    return stopped.value.code, out.getvalue(), err.getvalue()


@pytest.mark.parametrize("words", PLAIN, ids=" ".join)
def test_plain_words_print_the_same_either_way(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert direct_call(serve, words) is not None
    by_typer = _printed(words, monkeypatch, direct=False)
    assert by_typer[1]
    assert _printed(words, monkeypatch, direct=True) == by_typer


@pytest.mark.parametrize("words", LEFT_TO_TYPER, ids=" ".join)
def test_other_words_are_left_to_typer(words: list[str]) -> None:
    assert direct_call(serve, words) is None


@pytest.mark.parametrize("spelling", ["-dp", "--data-parallel-size"])
def test_every_spelling_of_an_option_is_checked_against_the_release(spelling: str) -> None:
    """vLLM 0.7.3 has no --data-parallel-size, whichever way it is given."""
    words = ["Qwen/Qwen3-8B", "--gpu", "H100", "--engine-version", "0.7.3", spelling, "2"]
    call = direct_call(serve, words)
    assert call is not None
    with pytest.raises(UsageError, match="has no --data-parallel-size"):
        call()
