"""What launched something, as the words of `serve` or `train`: for commands that compare it with what came of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from planner.contract.engine import engine_names
from planner.errors import UsageError
from planner.launches.reading import read_launch
from planner.launches.record import LaunchPlan, Settings
from planner.launches.sources import sources_of
from planner.launches.words import framework_of, serve_words, train_words
from planner.training.recipe import frameworks


@dataclass(frozen=True, slots=True, kw_only=True)
class Launched:
    """A server or a fine-tune that a source launches.

    Args:
        engine: its engine; None for a fine-tune.
        words: as `serve` or `train` takes them, MODEL among them where it is stated.
    """

    engine: str | None
    model: str | None
    words: tuple[str, ...]


def launched_by(text: str, *, engine: str | None = None) -> Launched:
    """The first that a SOURCE launches: a command in quotes, a file, a folder.

    Args:
        engine: only a server of this engine.

    Raises:
        PlannerError: it cannot be read, or launches nothing that is planned here.
    """
    error = "nothing here starts a server or a training run"
    seen = []
    for source in sources_of(text):
        launch = read_launch(source.text, name=source.name, settings=Settings(values={}, folder=source.folder))
        error = launch.error or error
        for one in launch.plans:
            seen.append(one.tool)
            found = _planned(one)
            if found is not None and engine in (None, found.engine):
                return found
    if seen:
        wanted = f"no server of {engine}" if engine else "nothing that is planned here"
        error = f"launches {', '.join(dict.fromkeys(seen))}, {wanted}"
    raise UsageError(f"--launch {text[:80]}: {error}", field="launch")


def _planned(one: LaunchPlan) -> Launched | None:
    card = {"gpu": one.card_key} if one.card_key is not None else {}
    if one.kind == "serve" and one.tool in engine_names():
        return Launched(engine=one.tool, model=one.model, words=tuple(_without_model(one, serve_words(one, card))))
    if one.kind == "train" and framework_of(one.tool) in frameworks():
        return Launched(engine=None, model=one.model, words=tuple(_without_model(one, train_words(one, card))))
    return None


def _without_model(one: LaunchPlan, words: list[str]) -> Iterator[str]:
    """The options; MODEL stands first and is told apart."""
    yield from words[1:] if words and words[0] == (one.model or "") else words
