"""What pick lists: every row is planned again by its command, and no card that holds the model is left out."""

from __future__ import annotations

import shlex
from dataclasses import replace

import pytest

from planner.contract.engine import find_engine
from planner.contract.parser import parse
from planner.contract.workload import Workload
from planner.errors import PlannerError
from planner.hardware.gpus import find_gpu
from planner.model.load import load_model
from planner.serving.pick.candidates import candidate_cards, picks

# small cards, cards without bf16, of AMD, of a data centre: what differs beside the memory
CARDS = ("rtx-a2000-12gb", "t4", "rtx-4090", "a10", "rx-6700-xt", "h100-sxm-80gb", "mi300x")


@pytest.mark.parametrize(
    ("name", "engine"),
    [("Qwen/Qwen3-32B", "vllm"), ("Qwen/Qwen3-8B", "sglang"), ("Qwen/Qwen3-8B", "llama.cpp")],
)
def test_no_card_and_no_smaller_count_is_left_out(name: str, engine: str) -> None:
    """By trying every layout on every card, without any bound."""
    asked, model, workload = find_engine(engine), load_model(name), Workload(concurrency=2)
    cards = [find_gpu(card) for card in CARDS]
    base = asked.Deployment(gpu=cards[0], **{asked.axes.length: 16_384})
    found = {
        (pick.gpu.id, pick.quantization): pick.cards
        for pick in picks(asked, model, base, workload, cards=cards, max_gpus=8)
    }
    expected = {}
    for card in cards:
        for format in (None, *(one for one, _ in asked.usual_formats(card))):
            for layout in asked.layouts(model, base):
                changes = dict(asked.axes.on_cards) | dict(layout.changes) | {"gpu": card}
                if format is not None:
                    changes[asked.axes.quantization] = format
                try:
                    fits = layout.cards <= 8 and asked.plan(model, replace(base, **changes), workload).accepted
                except PlannerError:
                    continue
                if fits:
                    expected[card.id, format] = layout.cards
                    break
    assert found == expected


@pytest.mark.parametrize(("name", "concurrency"), [("Qwen/Qwen3-8B", 8), ("openai/gpt-oss-20b", 2)])
def test_every_row_is_repeated_by_its_command(name: str, concurrency: int) -> None:
    """The printed words, read by the engine's parser for the row's card, give the row's plan."""
    engine, model, workload = find_engine("vllm"), load_model(name), Workload(concurrency=concurrency)
    cards = candidate_cards("nvidia")[::7]
    base = engine.Deployment(gpu=cards[0], max_model_len=8192)
    for pick in picks(engine, model, base, workload, cards=cards, max_gpus=8):
        words = [word for word in shlex.split(pick.command) if "=" not in word or word.startswith("-")]
        options = [*words[words.index("serve") + 2 :], "--gpu", pick.gpu.id]
        if pick.quantization is not None:
            options += ["--quantization", pick.quantization]
        again = engine.plan(model, engine.deployment(parse([engine.Deployment], options)), workload)
        assert (again.verdict, again.devices, again.cache) == (pick.plan.verdict, pick.plan.devices, pick.plan.cache)
