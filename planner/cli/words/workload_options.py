"""What ran, as serve and train declare it: the workload that `diagnose` compares a text with."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

from planner.contract.card import Card
from planner.contract.engine import Engine, find_engine
from planner.contract.inputs import inputs_of, option
from planner.contract.parser import Parsed, dashed, parse
from planner.contract.words.export_name import read_export
from planner.contract.workload import Workload as Requests
from planner.errors import UsageError
from planner.model.load import load_model
from planner.training.recipe import Recipe
from planner.training.trainer_words import TrainerWords, recipe_of_words

if TYPE_CHECKING:
    from planner.cli.words.launched import Launched
    from planner.diagnosis.expectation.workload import Workload
    from planner.diagnosis.result import Diagnosis

_ENGINE = "vllm"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """The words that say what ran: a server's, or a fine-tune's when `engine` is None."""

    parsed: Parsed
    engine: Engine | None

    def workload(self, text: str, diagnosis: Diagnosis) -> Workload:
        """The workload as a question that can be planned; without a card, on that of the text.

        Raises:
            PlannerError: an unknown model or card, a size that is none, no card anywhere.
        """
        from planner.diagnosis.expectation.workload import on_card_of

        parsed = self.parsed
        named = "gpu" in parsed.given or "gpu_memory_bytes" in parsed.given
        printed = None if named else _capacity(diagnosis)
        if printed:
            parsed = replace(parsed, given={**parsed.given, "gpu_memory_bytes": printed})
        workload = _trained(text, parsed) if self.engine is None else _served(text, parsed, self.engine)
        return on_card_of(workload, printed) if printed else workload


def read_words(words: Sequence[str], own: type, *, most_positional: int, launched: Launched | None = None) -> Ran:
    """The words by the declarations of serve, or with --train of train, beside the command's own.

    Args:
        launched: what launched it; the words beat it.

    Raises:
        UsageError: as `parse`; or an option of the other kind of workload.
    """
    if launched is not None and launched.engine not in (None, _ENGINE):
        started, planned = find_engine(str(launched.engine)).title, find_engine(_ENGINE).title
        raise UsageError(
            f"--launch starts {started}; messages are set beside a plan of {planned} or of a fine-tune",
            field="launch",
        )
    trains = any(dashed(word.partition("=")[0]) == "--train" for word in words)
    if launched is not None:
        trains = launched.engine is None
    engine = None if trains else find_engine(_ENGINE)
    records: tuple[type, ...] = (Card, Recipe, TrainerWords) if engine is None else (engine.Deployment, Requests)
    try:
        parsed = parse(
            (*records, own),
            words,
            most_positional=most_positional,
            other=None if engine is None else engine.takes,
            environment={} if engine is None else os.environ,
        )
    except UsageError:
        known = _spellings((*records, own))
        for word in words:
            name = dashed(word.partition("=")[0])
            if name.startswith("-") and name not in known and says_what_ran(name):
                kind = "a server: leave --train out" if trains else "a fine-tune: give --train"
                raise UsageError(f"{name} is an option of {kind}", field=name) from None
        raise
    if launched is not None:
        takes = None if engine is None else engine.takes
        below = parse((*records, _Unprinted), launched.words, other=takes)
        parsed = replace(
            parsed,
            given={**below.given, **parsed.given},
            typed={**below.typed, **parsed.typed},
            passed=(*below.passed, *parsed.passed),
        )
    return Ran(parsed=parsed, engine=engine)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Unprinted:
    """What a launch says and no plan of it needs."""

    engine: Annotated[str | None, option("Serving engine.", ours=True)] = None


def says_what_ran(name: str) -> bool:
    """Whether an option is one of serve or of train."""
    return name in _spellings((find_engine(_ENGINE).Deployment, Requests, Card, Recipe, TrainerWords))


def _spellings(records: Sequence[type]) -> set[str]:
    return {dashed(spelling) for record in records for one in inputs_of(record) for spelling in one.spellings}


def _served(text: str, parsed: Parsed, engine: Engine) -> Workload:
    from planner.diagnosis.expectation.workload import ServingWorkload
    from planner.levers.question import ServingQuestion

    name, export = read_export(text)
    deployment = engine.deployment(parsed, **export)
    question = ServingQuestion(
        engine=engine, model=load_model(name), deployment=deployment, workload=parsed.record(Requests)
    )
    return ServingWorkload(question=question)


def _trained(text: str, parsed: Parsed) -> Workload:
    from planner.diagnosis.expectation.workload import TrainingWorkload
    from planner.levers.training import TrainingQuestion

    card = parsed.record(Card)
    names = {one.name for one in inputs_of(Recipe)}
    given = {name: value for name, value in parsed.given.items() if name in names}
    recipe = Recipe(**recipe_of_words(parsed.record(TrainerWords), given))
    assert card.gpu is not None
    question = TrainingQuestion(model=load_model(text), recipe=recipe, gpu=card.gpu, gpu_memory_bytes=card.total_bytes)
    return TrainingWorkload(question=question)


def _capacity(diagnosis: Diagnosis) -> int | None:
    """The device memory that the text prints, None if it prints none or several."""
    found = {f.message.bytes_of("total_bytes") for f in diagnosis.findings if f.failure != "host_memory"} - {None}
    return found.pop() if len(found) == 1 else None
