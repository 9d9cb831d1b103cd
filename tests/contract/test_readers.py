"""Every reader of every declared input, with text that fits it and text that does not: a value or one clear line."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from planner.contract.engine import engine_names, find_engine
from planner.contract.inputs import Input, inputs_of, read_value
from planner.contract.workload import Workload
from planner.errors import PlannerError
from planner.training.recipe import Recipe

TEXTS = (
    *(
        "1",
        "0",
        "-1",
        "1.5",
        "auto",
        "true",
        "4GiB",
        "32K",
        "1,2",
        "q_proj,v_proj",
        '{"a": 1}',
        "[1, 2]",
        "",
        "x" * 500,
    ),
    *("\x1b[31m", "🙂", "p50=600,p99=4000", "nan", "1e400", "٣"),
)


def declared() -> Iterator[tuple[str, Input]]:
    for record in (Recipe, Workload):
        yield from ((record.__name__, one) for one in inputs_of(record))
    for name in engine_names():
        yield from ((name, one) for one in inputs_of(find_engine(name).Deployment))


@pytest.mark.parametrize("text", TEXTS)
def test_a_reader_gives_a_value_or_one_clear_line(text: str) -> None:
    checked = 0
    for _, one in declared():
        if one.is_switch or not one.spellings:
            continue
        checked += 1
        try:
            read_value(one, text, spelled=one.spellings[0])
        except PlannerError as error:
            assert "\n" not in str(error) and len(str(error)) < 1000
    assert checked > 200
