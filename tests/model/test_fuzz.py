"""Mutated real configs: a spec or a one-line error, never anything else, never slow."""

from __future__ import annotations

import copy
import json
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.errors import PlannerError
from planner.model.config import RawConfig
from planner.model.families import build_spec
from planner.model.tensors import parameters

CONFIGS = sorted((Path(__file__).resolve().parents[2] / "model_configs").glob("*.json"))
SLOWEST_SECONDS = 0.5  # an unknown type is held against one type of every family

ODD = st.sampled_from(
    [None, True, False, -1, 0, 1, 3, 7, 2**31, 2**63, -(2**40), 10**18, 0.5, 1e300, "", "a", "32", [], [0], [None] * 3,
     ["full_attention"], {}, {"a": {"b": 1}}, [[1]], {"rope_type": "yarn", "factor": -3}, [-1] * 40, ["x"] * 200]
)  # fmt: skip


@st.composite
def mutated(draw: st.DrawFn) -> dict[str, object]:
    path = draw(st.sampled_from(CONFIGS))
    values: dict[str, object] = json.loads(path.read_text())
    for _ in range(draw(st.integers(1, 3))):
        target = values
        nested = [key for key, value in values.items() if isinstance(value, dict) and value]
        if nested and draw(st.booleans()):
            target = values[draw(st.sampled_from(nested))]  # type: ignore[assignment]
        if not target:
            continue
        key = draw(st.sampled_from(sorted(target)))
        if draw(st.booleans()):
            target.pop(key)
        else:
            target[key] = copy.deepcopy(draw(ODD))  # a later mutation may change it
    return values


@settings(max_examples=400, deadline=None)
@given(mutated())
def test_a_mutated_config_is_read_or_refused_in_one_line(values: dict[str, object]) -> None:
    if _read(values) > SLOWEST_SECONDS:
        # the machine may be busy: the best of a few counts
        assert min(_read(values) for _ in range(5)) < SLOWEST_SECONDS


def _read(values: dict[str, object]) -> float:
    started = time.perf_counter()
    try:
        spec = build_spec(RawConfig(values))
        assert parameters(spec) > 0
    except PlannerError as error:
        assert "\n" not in str(error)
        assert 0 < len(str(error)) < 600
    return time.perf_counter() - started


@pytest.mark.parametrize("path", CONFIGS[::40], ids=lambda path: path.stem)
def test_a_config_is_built_quickly(path: Path) -> None:
    values = json.loads(path.read_text())
    assert min(_read(values) for _ in range(3)) < SLOWEST_SECONDS
