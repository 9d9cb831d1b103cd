"""Every line that can be pasted gives what it says: levers, plans, smallest cards, commands, of engines and of train.

The questions are drawn at random from a fixed seed; each printed flag or command is asked again as a user would.
"""

from __future__ import annotations

import contextlib
import io
import json
import random
import shlex
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import pytest

from planner.cli import run
from planner.contract.card import Card
from planner.contract.engine import find_engine
from planner.contract.inputs import inputs_of
from planner.contract.workload import Workload
from planner.errors import PlannerError
from planner.training.inputs import Recipe

MODELS = (
    "Qwen/QwQ-32B", "meta-llama/Llama-3.1-8B-Instruct", "Qwen/Qwen3-30B-A3B", "google/gemma-3-12b-it",
    "mistralai/Mixtral-8x7B-Instruct-v0.1", "openai/gpt-oss-20b", "microsoft/phi-4", "Qwen/Qwen2.5-VL-7B-Instruct",
    "deepseek-ai/DeepSeek-V2-Lite", "tiiuae/falcon-7b",
)  # fmt: skip
TRAINED = MODELS[:5]
GPUS = ("4090", "3090", "L40S", "A100-80GB", "H100", "T4", "RTX-A6000")
QUESTIONS = 3  # of each engine, in the gate


def asked(words: Sequence[str]) -> dict[str, Any]:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        run(words[0], [*words, "--format", "json"])
    return json.loads(out.getvalue())  # type: ignore[no-any-return]


@cache
def spellings(kind: type) -> dict[str, tuple[frozenset[str], bool]]:
    """Each spelling of an input with all its spellings and whether it takes no value."""
    found = {}
    for one in (*inputs_of(Card), *inputs_of(Workload), *inputs_of(kind)):
        names = frozenset(one.spellings)
        found |= {name: (names, one.is_switch) for name in names}
    return found


def applied(words: Sequence[str], flag: str, kind: type) -> list[str]:
    """The words with the options of a flag in place of their own values, as a person edits a line."""
    known, kept, new = spellings(kind), list(words), shlex.split(flag)
    for word in [word for word in new if word in known]:
        names, switch = known.get(word, (frozenset({word}), True))
        for index, old in enumerate(kept):
            if old in names:
                del kept[index : index + (1 if switch else 2)]
                break
    return [*kept, *new]


def faults(words: Sequence[str], kind: type, answer: dict[str, Any]) -> Iterator[str]:
    """Printed lines that, asked again, are not what was said of them."""
    for lever in answer["levers"]:
        again = asked(applied(words, lever["flag"], kind))
        if again["verdict"] != lever["verdict"]:
            yield f"{shlex.join(words)}: {lever['flag']} says {lever['verdict']}, is {again['verdict']}"
    for plan in answer["plans"]:
        flags = " ".join(lever["flag"] for lever in plan["levers"])
        again = asked(applied(words, flags, kind))
        if again["verdict"] != plan["verdict"]:
            yield f"{shlex.join(words)}: plan {flags} says {plan['verdict']}, is {again['verdict']}"
    relief = answer.get("relief") or {}
    for name in ("gpu_flag", "cards_flag"):
        if relief.get(name):
            again = asked(applied(words, relief[name], kind))
            if again["verdict"] not in ("fits", "tight"):
                yield f"{shlex.join(words)}: {relief[name]} is said to fit, is {again['verdict']}"


def serving_questions(engine: str, count: int) -> Iterator[list[str]]:
    chance = random.Random(f"lines of {engine}")
    while count:
        gpu = chance.choice(GPUS)
        words = ["serve", chance.choice(MODELS), "--engine", engine, "--gpu", gpu, "--levers"]
        ways = find_engine(engine).axes.ways
        if ways and chance.random() < 0.4:
            words += [
                next(one.spellings[0] for one in inputs_of(find_engine(engine).Deployment) if one.name == ways),
                "2",
            ]
        if chance.random() < 0.5:
            words += ["--concurrency", str(chance.choice((4, 16, 64)))]
        try:
            asked(words)
        except PlannerError:
            continue
        count -= 1
        yield words


@pytest.mark.parametrize("engine", ["vllm", "sglang", "transformers", "llama.cpp", "tensorrt-llm"])
def test_serving_lines(engine: str) -> None:
    kind = find_engine(engine).Deployment
    odd = [odd for words in serving_questions(engine, QUESTIONS) for odd in faults(words, kind, asked(words))]
    assert odd == []


@pytest.mark.parametrize("engine", ["vllm", "sglang", "transformers", "llama.cpp", "tensorrt-llm"])
def test_the_printed_command_is_the_plan(engine: str) -> None:
    for words in serving_questions(engine, QUESTIONS):
        answer = asked(words)
        command = shlex.split(answer["command"])
        if command[0] == "vram-planner":
            command = command[2:]
        rest = ["--gpu", words[words.index("--gpu") + 1], "--engine", engine]
        if "--concurrency" in words:
            rest += ["--concurrency", words[words.index("--concurrency") + 1]]
        again = asked(["serve", *command, *rest])
        for part in ("verdict", "devices", "kv_cache"):
            assert again.get(part) == answer.get(part), (words, command, part)


def training_questions(count: int) -> Iterator[list[str]]:
    chance = random.Random("lines of train")
    for _ in range(count):
        words = ["train", chance.choice(TRAINED), "--gpu", chance.choice(GPUS), "--levers"]
        words += ["--method", chance.choice(("full", "lora", "qlora"))]
        words += ["--max-seq-length", str(chance.choice((1024, 4096, 8192)))]
        if chance.random() < 0.4:
            words += ["--num-gpus", "4", "--sharding", chance.choice(("fsdp", "zero3", "ddp"))]
        yield words


def test_training_lines() -> None:
    odd = []
    for words in training_questions(QUESTIONS):
        odd += faults(words, Recipe, asked(words))
    assert odd == []
