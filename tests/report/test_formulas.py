"""Every formula that a plan prints evaluates to its result: the reader of formulas.py knows only what is printed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from planner import find_gpu, plan_serving
from planner.contract.component import Component
from planner.contract.engine import engine_names, find_engine
from planner.errors import PlannerError
from planner.model.names.bundled import bundled_names
from tests.report.formulas import pairs_that_disagree, total

EVERY = 40  # of about 1,170 bundled models
# a band around nothing: what it states is the band
BANDS = ("unvalidated_version",)


def test_the_reader_reads_what_a_person_reads() -> None:
    assert total("a 0.50 + b 1.25 GiB + 112.0 MiB that came later (n=3)").value == 1.75 * 2**30 + 112 * 2**20  # type: ignore[union-attr]
    assert total("2 x (3 + max(4, 1,000)) x 1 KiB").value == 2006 * 1024  # type: ignore[union-attr]
    assert pairs_that_disagree("2 x 3 x 1 KiB = 7,000 B") == ["2 x 3 x 1 KiB = 7,000 B: 6,144 is not 7,000"]
    assert pairs_that_disagree("w 1,024 x 1,048,576 = 1.00 + v 2 x 2 = 0.00 GiB") == []
    assert total("the larger of 2 x 4; 3 x 2").value == 8  # type: ignore[union-attr]
    assert total("words alone") is None


def plans(engine: str) -> Iterator[tuple[str, Any]]:
    found = find_engine(engine)
    for name in list(bundled_names())[::EVERY]:
        for gpu, cards in (("H100", 1), ("4090", 2)):
            ways = {found.axes.ways: cards} if found.axes.ways else {}
            try:
                yield f"{name} on {cards} {gpu}", plan_serving(name, found.Deployment(gpu=find_gpu(gpu), **ways))
            except PlannerError:
                continue


def faults(label: str, components: tuple[Component, ...]) -> Iterator[str]:
    for component in components:
        yield from (f"{label}: {component.name}: {odd}" for odd in pairs_that_disagree(component.formula))
        said = total(component.formula)
        if component.name not in BANDS and said is not None and abs(said.value - component.best) > said.open_by + 1:
            yield f"{label}: {component.name}: {component.formula} is {said.value:,.0f}, planned {component.best:,}"


@pytest.mark.parametrize("engine", engine_names())
def test_formulas_of_every_engine_are_true(engine: str) -> None:
    checked, odd = 0, []
    for label, plan in plans(engine):
        for device in plan.devices:
            checked += len(device.components)
            odd += faults(label, device.components)
    assert checked > 100
    assert odd == []
