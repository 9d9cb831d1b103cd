"""A value of the wrong type is the input's fault: one line that names the field, never a TypeError."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

import pytest

from planner import Deployment, PlannerError, Recipe, find_gpu, load_model, parse_lengths, parse_size, plan_serving
from planner.errors import UsageError
from planner.field_types import check_field_types

LLAMA = load_model("meta-llama/Llama-3.1-8B-Instruct")
H100 = find_gpu("H100")


@dataclass(frozen=True)
class Record:
    count: int = 1
    share: float | None = None
    name: str = "a"
    on: bool = False
    sizes: tuple[int, ...] | None = None


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"count": "1"}, "count"), ({"count": 1.0}, "count"), ({"count": True}, "count"), ({"count": None}, "count"),
        ({"share": "0.9"}, "share"), ({"share": False}, "share"), ({"name": 19}, "name"), ({"on": "no"}, "on"),
        ({"on": 1}, "on"), ({"on": None}, "on"), ({"sizes": [1]}, "sizes"), ({"sizes": (1, "2")}, "sizes"),
        ({"sizes": (True,)}, "sizes"),
    ],
)  # fmt: skip
def test_what_is_refused(options: dict[str, object], field: str) -> None:
    with pytest.raises(UsageError, match=f"^--{field} is .*; expected ") as caught:
        check_field_types(Record(**options), option=lambda name: f"--{name}")  # type: ignore[arg-type]
    assert caught.value.field == field


@pytest.mark.parametrize(
    "options", [{}, {"share": 1}, {"share": 0.5}, {"share": math.nan}, {"sizes": ()}, {"sizes": (1, 2)}]
)
def test_what_passes(options: dict[str, object]) -> None:
    check_field_types(Record(**options))  # type: ignore[arg-type]


def test_the_records_that_users_fill_in() -> None:
    check_field_types(Deployment(gpu=H100))
    check_field_types(Recipe())
    with pytest.raises(UsageError, match="max_seq_length"):
        check_field_types(Recipe(max_seq_length="long"))  # type: ignore[arg-type]


@pytest.mark.parametrize("field", [field.name for field in fields(Deployment)])
@pytest.mark.parametrize("value", ["x", b"x", 1.5, math.nan, [], {}, object(), (), ("x",), -1, True])
def test_no_value_of_a_deployment_is_a_crash(field: str, value: object) -> None:
    options = {"gpu": H100, "max_model_len": 8192} | {field: value}
    try:
        plan_serving(LLAMA, Deployment(**options))  # type: ignore[arg-type]
    except PlannerError as error:
        assert "\n" not in str(error)


@pytest.mark.parametrize(
    "options",
    [
        {"max_model_len": "x"}, {"gpu_memory_utilization": "0.9"}, {"tensor_parallel_size": "2"},
        {"engine_version": 19}, {"gpu": "H100"}, {"enforce_eager": "no"}, {"max_model_len": 8192.5},
        {"concurrency": 1.5}, {"engine": "sglang"}, {"cudagraph_capture_sizes": (-4,)},
    ],
)  # fmt: skip
def test_what_crashed_or_was_accepted(options: dict[str, object]) -> None:
    with pytest.raises(UsageError) as caught:
        plan_serving(LLAMA, Deployment(**{"gpu": H100, **options}))  # type: ignore[arg-type]
    assert caught.value.field == next(iter(options))


def test_numbers_where_text_is_meant() -> None:
    assert find_gpu(4090).name == "NVIDIA GeForce RTX 4090"  # type: ignore[arg-type]
    assert parse_size(1024) == 1024  # type: ignore[arg-type]
    assert parse_lengths(600, option="x").points == (("all", 600),)  # type: ignore[arg-type]
    for call in (lambda: find_gpu(None), lambda: parse_size(None), lambda: parse_lengths(None, option="x")):  # type: ignore[arg-type]
        with pytest.raises(PlannerError):
            call()
    with pytest.raises(UsageError, match="parse_lengths"):
        plan_serving(LLAMA, Deployment(gpu=H100), input_lengths="600")  # type: ignore[arg-type]
