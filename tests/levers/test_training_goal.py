"""`train --goal`: the value fits, the next does not, and it is what the same command with the flag says."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from planner.errors import UsageError
from planner.levers.goal import Goal
from planner.levers.training_goal import parse_training_goal
from tests.cli.running import Run, run

MODEL = "meta-llama/Llama-3.1-8B-Instruct"
LORA = ("--method", "lora", "--lora-target-modules", "all-linear", "--gradient-checkpointing")

Train = Callable[..., Run]


@pytest.fixture
def train(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Train:
    return lambda *words: run(capsys, monkeypatch, "train", *words)


def asked(train: Train, *words: str) -> dict[str, object]:
    found = train(MODEL, "--no-largest", "--format", "json", *words)
    return dict(json.loads(found.out))


@pytest.mark.parametrize(
    ("goal", "flag"),
    [
        ("largest batch", "--per-device-train-batch-size"),
        ("longest sequence", "--max-seq-length"),
        ("highest rank", "--lora-rank"),
    ],
)
def test_the_value_fits_and_the_next_does_not(train: Train, goal: str, flag: str) -> None:
    solved = asked(train, *LORA, "--gpu", "4090", "--goal", goal)["goal"]
    assert isinstance(solved, dict)
    value = int(solved["value"])
    assert solved["flag"] == f"{flag} {value}"
    # a goal accepts what the exit status accepts: tight is fitting
    assert asked(train, *LORA, "--gpu", "4090", flag, str(value))["verdict"] == solved["verdict"]
    assert solved["verdict"] in ("fits", "tight")
    assert asked(train, *LORA, "--gpu", "4090", flag, str(value + 1))["verdict"] == "does_not_fit"


def test_fewest_gpus(train: Train) -> None:
    """8B parameters of 16 bytes, in full precision of their optimizer: 128 GB are more than one card."""
    recipe = (
        "--method",
        "full",
        "--gpu",
        "h100",
        "--gradient-checkpointing",
        "--dtype",
        "float32",
        "--autocast",
        "bf16",
    )
    solved = asked(train, *recipe, "--goal", "fewest GPUs")["goal"]
    assert isinstance(solved, dict)
    assert solved["flag"] == "--num-gpus 4 --sharding zero3"
    assert asked(train, *recipe, "--num-gpus", "4", "--sharding", "zero3")["verdict"] == "fits"
    assert asked(train, *recipe, "--num-gpus", "2", "--sharding", "zero3")["verdict"] != "fits"


def test_smallest_card(train: Train) -> None:
    solved = asked(train, *LORA, "--gpu", "t4", "--goal", "cheapest card")["goal"]
    assert isinstance(solved, dict)
    card = str(solved["flag"]).removeprefix("--gpu ")
    assert asked(train, *LORA, "--gpu", card)["verdict"] == "fits"


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("Largest batch", "per-device-train-batch-size"),
        ("longest  context", "max-seq-length"),
        ("rank", "lora-rank"),
        ("smallest card", "gpu"),
        ("fewest GPUs", "gpus"),
    ],
)
def test_goals_as_people_say_them(text: str, what: str) -> None:
    assert parse_training_goal(text) == Goal(what=what)


@pytest.mark.parametrize("text", ["", "happiness", "largest", "batch at 3", "x" * 100, "largest batch; rm"])
def test_other_goals_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--goal"):
        parse_training_goal(text)


def test_a_rank_needs_adapters(train: Train) -> None:
    found = train(MODEL, "--gpu", "h100", "--method", "full", "--goal", "highest rank")
    assert (found.status, found.out) == (2, "")
    assert found.err == "vram-planner: --goal rank: --method full has no adapters\n"
