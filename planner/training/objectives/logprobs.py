"""The log-probability head of reinforcement learning: bytes for each token and vocabulary entry, by implementation.

Measured as live storages with tokens x vocabulary large against the rest; `logprobs.csv`.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from importlib.resources import files

from planner.training.recipe import Recipe


@dataclass(frozen=True, slots=True, kw_only=True)
class LogProbs:
    """Bytes a token and vocabulary entry: kept for backward, at the peak of forward and backward, without a graph."""

    code: str
    kept: Fraction
    forward: Fraction
    backward: Fraction
    no_grad: Fraction
    source: str

    def bytes(self, moment: str, tokens: int, vocabulary: int) -> int:
        """Bytes at a moment ("kept", "forward", "backward" or "no_grad")."""
        return int(getattr(self, moment) * tokens * vocabulary)


def log_probs(recipe: Recipe) -> LogProbs:
    """What a recipe's stack runs."""
    if recipe.framework == "verl":
        return implementation("verl-entropy" if recipe.entropy_coeff else "verl")
    if recipe.framework == "openrlhf":
        return implementation("openrlhf")
    if recipe.framework == "nemo-rl":
        return implementation("nemo-rl")
    return implementation("trl-fp32" if recipe.dtype == "float32" and recipe.autocast == "none" else "trl")


@cache
def implementation(code: str) -> LogProbs:
    """The row of that name."""
    text = files("planner.training").joinpath("objectives/logprobs.csv").read_text("utf-8")
    row = next(row for row in csv.DictReader(text.splitlines()) if row["code"] == code)
    numbers = {name: Fraction(row[name]) for name in ("kept", "forward", "backward", "no_grad")}
    return LogProbs(code=code, source=row["source"], **numbers)
