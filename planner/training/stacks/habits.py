"""What a model's own code in transformers does differently from Llama's: `habits.json`, by model_type."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files


@cache
def _rows() -> dict[str, frozenset[str]]:
    text = files("planner.training").joinpath("stacks/habits.json").read_text("utf-8")
    return {habit: frozenset(row["models"]) for habit, row in json.loads(text).items()}


def has_habit(model_type: str, habit: str) -> bool:
    """The model's code does it that way."""
    return model_type in _rows()[habit]
