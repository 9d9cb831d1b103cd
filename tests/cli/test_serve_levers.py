"""Levers, plans, --keep and --goal of `serve`, and that a plan that fits does not load them."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys

import pytest

from tests.cli.running import Run, run

LLAMA = "meta-llama/Llama-3.1-8B-Instruct"
SHORT = (LLAMA, "--gpu", "4090", "--max-model-len", "32K", "--concurrency", "8")


@pytest.fixture
def serve(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]
    def call(*arguments: str) -> Run:
        return run(capsys, monkeypatch, "serve", *arguments)

    return call


def test_levers_and_plans_have_the_contract(serve) -> None:  # type: ignore[no-untyped-def]
    result = serve(*SHORT, "--format", "json")
    document = json.loads(result.out)
    assert result.status == 1
    for lever in document["levers"]:
        assert list(lever) == [
            "name", "phase", "from", "to", "flag", "detail", "saves_bytes", "verdict", "fits_alone", "cost",
        ]  # fmt: skip
        assert lever["fits_alone"] == (lever["verdict"] in ("fits", "tight"))  # what is accepted by default
        assert lever["cost"] in ("nothing", "inputs", "concurrency", "context", "quality", "speed", "cards")
    assert 1 <= len(document["plans"]) <= 5
    assert document["relief"]["terms_beyond_the_card"][0]["name"] == "kv_cache"


def with_flags(words: tuple[str, ...], flags: list[str]) -> list[str]:
    """The words with these options instead of their own: one given twice, differently, is refused."""
    found = list(words)
    for option, *value in map(shlex.split, flags):
        if option in found:
            found[found.index(option) : found.index(option) + 2] = []
        found += [option, *value]
    return found


@pytest.mark.parametrize("accept", ["tight", "fits"])
def test_the_flags_of_a_plan_can_be_pasted(serve, accept: str) -> None:  # type: ignore[no-untyped-def]
    words = (*SHORT, "--accept", accept, "--format", "json")
    document = json.loads(serve(*words).out)
    assert document["plans"]
    for plan in document["plans"]:
        again = json.loads(serve(*with_flags(words, [lever["flag"] for lever in plan["levers"]])).out)
        assert again["verdict"] == plan["verdict"]
        assert plan["verdict"] in (("fits", "tight") if accept == "tight" else ("fits",))
        assert again["command"] == plan["command"]


def test_keep_and_goal(serve) -> None:  # type: ignore[no-untyped-def]
    kept = json.loads(serve(*SHORT, "--keep", "max-model-len,concurrency", "--format", "json").out)
    names = {lever["name"] for plan in kept["plans"] for lever in plan["levers"]}
    assert not names & {"max-model-len", "concurrency"} and names
    card = (LLAMA, "--gpu", "h100", "--accept", "fits", "--format", "json")
    goal = json.loads(serve(*card, "--max-model-len", "8192", "--goal", "largest context at 16 users").out)["goal"]
    assert goal["what"] == "max-model-len" and goal["at_requests"] == 16
    again = json.loads(serve(*card, "--max-model-len", goal["value"], "--concurrency", "16").out)
    assert again["verdict"] == goal["verdict"] == "fits"


def test_a_plan_that_fits_says_nothing_unless_asked(serve) -> None:  # type: ignore[no-untyped-def]
    words = (LLAMA, "--gpu", "h100", "--max-model-len", "8192", "--format", "json")
    assert json.loads(serve(*words).out)["levers"] == []
    assert json.loads(serve(*words, "--levers").out)["levers"]


@pytest.mark.parametrize(
    ("words", "said"),
    [(("--keep", "colour"), "--keep"), (("--goal", "happiness"), "--goal")],
)
def test_mistakes(serve, words: tuple[str, ...], said: str) -> None:  # type: ignore[no-untyped-def]
    result = serve(*SHORT, *words)
    assert result.status == 2 and said in result.err and result.err.count("\n") == 1 and not result.out


def test_levers_are_loaded_only_when_needed() -> None:
    script = (
        "import sys; from planner.cli import main; sys.argv = ['x', 'serve', "
        f"'{LLAMA}', '--gpu', 'h100', '--max-model-len', '8192', '--format', 'json']\n"
        "try: main()\nexcept SystemExit: pass\n"
        "print([name for name in sys.modules if name.startswith('planner.levers')], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"
