"""What a declaration gives: kinds, ranges and choices with their messages, and the words that give a value back."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Annotated, Any

import pytest
from annotated_types import Ge, Gt, Le
from hypothesis import given
from hypothesis import strategies as st

from planner import Deployment, Recipe, Workload
from planner.contract.inputs import check, echo, inputs_of, option, words_of
from planner.contract.parser import parse
from planner.contract.reading import read_gib, read_tokens, write_gib
from planner.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class Thing:
    """An input of every kind, and a field that is none."""

    count: Annotated[int, Ge(1), Le(8), option("A count.", "--count", "-c")] = 1
    share: Annotated[float | None, Gt(0), Le(1), option("A share.")] = None
    name: Annotated[str, option("A name.")] = "x"
    colour: Annotated[str, option("A choice.", choices=("red", "blue"))] = "red"
    quick: Annotated[bool, option("A switch.")] = False
    maybe: Annotated[bool | None, option("A switch that is not said.")] = None
    sizes: Annotated[tuple[int, ...] | None, Ge(1), option("Several.")] = None
    length: Annotated[int | None, option("Tokens.", read=read_tokens)] = None
    host_bytes: Annotated[int | None, option("GiB.", read=read_gib, write=write_gib)] = None
    secret: Annotated[int, option("No option of the program.", ours=True)] = 0
    other: tuple[str, ...] = ()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"count": "2"}, "--count is '2'; expected a whole number"),
        ({"count": True}, "--count is True; expected a whole number"),
        ({"count": 2.0}, "--count is 2.0; expected a whole number"),
        ({"count": 0}, "--count is 0; expected 1 or more"),
        ({"count": 9}, "--count is 9; expected at most 8"),
        ({"share": "half"}, "--share is 'half'; expected a number"),
        ({"share": 0}, "--share is 0; expected above 0 and at most 1"),
        ({"share": 1.5}, "--share is 1.5; expected above 0 and at most 1"),
        ({"share": float("nan")}, "--share is nan; expected above 0 and at most 1"),
        ({"name": 3}, "--name is 3; expected text"),
        ({"name": None}, "--name is None; expected text"),
        ({"colour": "green"}, "--colour is 'green'; expected red, blue"),
        ({"quick": 1}, "--quick is 1; expected true or false"),
        ({"sizes": 3}, "--sizes is 3; expected several of a whole number"),
        ({"sizes": (1, True)}, "--sizes is (1, True); expected several of a whole number"),
        ({"sizes": (4, 0)}, "--sizes is (4, 0); expected 1 or more"),
        ({"name": ["a"] * 99}, "expected text"),
    ],
)
def test_a_wrong_value_names_the_option_and_what_it_may_be(values: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        check(Thing(**values))
    assert message in str(caught.value) and len(str(caught.value)) < 120
    assert caught.value.field == next(iter(values))


def test_whole_numbers_are_numbers_and_none_is_what_it_says() -> None:
    check(Thing(share=1, maybe=None, sizes=(1, 2), length=None))
    assert "other" not in echo(Thing()) and echo(Thing(sizes=(1, 2)))["sizes"] == [1, 2]


@given(
    st.builds(
        Thing,
        count=st.integers(1, 8),
        share=st.none() | st.floats(0.01, 1),
        name=st.text("abcXYZ09 ./", min_size=1),
        colour=st.sampled_from(["red", "blue"]),
        quick=st.booleans(),
        maybe=st.sampled_from([None, True, False]),
        sizes=st.none() | st.lists(st.integers(1, 99), min_size=1, max_size=4).map(tuple),
        length=st.none() | st.integers(0, 1 << 30),
        host_bytes=st.none() | st.integers(0, 1 << 12).map(lambda mib: mib << 20),
    )
)
def test_what_is_written_is_read_back(thing: Thing) -> None:
    assert parse([Thing], list(words_of(thing))).record(Thing) == thing


def test_what_is_ours_stands_in_no_command() -> None:
    assert list(words_of(Thing(secret=3))) == []
    assert list(words_of(Thing(maybe=False))) == ["--no-maybe"]


@pytest.mark.parametrize("record", [Deployment, Workload, Recipe])
def test_every_field_of_a_record_is_declared_with_a_help_text(record: type) -> None:
    """But what is passed through, and what reads a file of its own."""
    declared = {one.name: one for one in inputs_of(record)}
    assert all(one.option.help.endswith(".") for one in declared.values())
    left = {field.name for field in dataclasses.fields(record)} - declared.keys()
    assert left <= {"passed"}
    spellings = [spelling for one in declared.values() for spelling in one.spellings]
    assert len(spellings) == len(set(spellings))
