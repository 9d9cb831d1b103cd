"""A question about one server, read from the words of a command line: the engine, the model, the deployment."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, TypeVar

from planner.cli.words.help import print_help
from planner.contract.engine import Engine, engine_names, find_engine, program_of
from planner.contract.inputs import inputs_of, option
from planner.contract.parser import Parsed, dashed, parse
from planner.contract.words.config_file import words_of_file
from planner.contract.words.export_name import read_export
from planner.errors import UsageError
from planner.hardware.spelled import parse_equal_cards
from planner.model.load import load_model
from planner.model.model import Model

Record = TypeVar("Record")
DEFAULT_ENGINE = "vllm"
FORMATS = ("table", "json", "csv", "markdown", "html")


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """What is asked of whom."""

    engine: Annotated[str, option("Serving engine.", panel="Engine", ours=True, common=True)] = DEFAULT_ENGINE
    config: Annotated[
        str | None,
        option("YAML file of options, as the engine reads it; the command line beats it.", panel="Engine", ours=True),
    ] = None
    model: Annotated[
        str | None,
        option(
            "MODEL, where it stands as an option.",
            "--model",
            "--model-path",
            "-m",
            "-hf",
            "--hf-repo",
            panel="Engine",
            ours=True,
        ),
    ] = None
    assume_family: Annotated[
        str | None, option("Read an unknown model_type as this one.", panel="Engine", ours=True)
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A question as it was asked; `parsed` has what the records of the command are made of."""

    engine: Engine
    model: Model
    deployment: Any
    parsed: Parsed

    def record(self, kind: type[Record]) -> Record:
        """One of the command's own records."""
        return self.parsed.record(kind)


def ask(words: Sequence[str], *records: type, about: str, name: str) -> Question | None:
    """The question that words ask; None where they ask for help, which is then printed.

    Args:
        records: what the command declares beside the engine's inputs.
        about: its text, and name, for help.

    Raises:
        PlannerError: wrong words, an unknown model or card.
    """
    asked = questioned(words, *records, about=about, name=name)
    if asked is None:
        return None
    engine, parsed = asked
    asking = parsed.record(Asking)
    text = parsed.positional[0] if parsed.positional else asking.model
    if text is None:
        raise UsageError("no MODEL: give a bundled name, a folder, a file or a Hub id", field="model")
    if parsed.positional and asking.model not in (None, text):
        raise UsageError(f"--model {str(asking.model)[:60]} and {text[:60]} are two models", field="model")
    text, export = read_export(text)
    deployment = engine.deployment(parsed, **export)
    return Question(
        engine=engine, model=load_model(text, assume_family=asking.assume_family), deployment=deployment, parsed=parsed
    )


def questioned(
    words: Sequence[str], *records: type, about: str, name: str, subject: str = "MODEL", **settings: Any
) -> tuple[Engine, Parsed] | None:
    """The engine and what was given; None where the words ask for help, which is then printed.

    Args:
        settings: as `parse` takes them; `lists` may be a function of the engine.
    """
    engine, words = _engine_of(words)
    if callable(settings.get("lists")):
        settings["lists"] = settings["lists"](engine)
    kinds = (engine.Deployment, *records, Asking)
    if any(word in ("--help", "-h", "--help-all") for word in words) or not words:
        print_help(name, about, kinds, engine=engine, everything="--help-all" in words, subject=subject)
        return None
    return engine, read(engine, kinds, words, **settings)


def read(engine: Engine, kinds: Sequence[type], words: Sequence[str], **settings: Any) -> Parsed:
    """Words by the declarations, those of a `--config` file below them.

    Raises:
        UsageError: as `parse`.
    """

    def reading(some: Sequence[str]) -> Parsed:
        return parse(
            kinds,
            some,
            other=engine.takes,
            environment=os.environ,
            hint=lambda name: _hint(name, kinds, engine),
            **settings,
        )

    parsed = _with_count(engine, reading(words))
    path = parsed.given.get("config")
    if path is None:
        return parsed
    below = reading(words_of_file(path))
    return Parsed(
        positional=parsed.positional or below.positional,
        given={**below.given, **parsed.given},
        typed={**below.typed, **parsed.typed},
        passed=(*below.passed, *parsed.passed),
        environment=parsed.environment,
    )


def _with_count(engine: Engine, parsed: Parsed) -> Parsed:
    """Several cards in --gpu (2x3090) are shared by as many ways, where the line does not say how."""
    text, ways = parsed.given.get("gpu"), engine.axes.ways
    if not ways or not isinstance(text, str):
        return parsed
    count = parse_equal_cards(text, memory_bytes=parsed.given.get("gpu_memory_bytes")).count
    if count == 1:
        return parsed
    asked = parsed.given.get(ways)
    if asked is None:
        return replace(parsed, given={**parsed.given, ways: count})
    if asked > count:
        spelled = parsed.typed.get(ways, ways)
        raise UsageError(f"{spelled} {asked} takes more cards than --gpu {text[:40]} names", field=ways)
    return parsed


def _engine_of(words: Sequence[str]) -> tuple[Engine, list[str]]:
    """The engine that --engine names, or whose command was pasted, and the words without its program."""
    name, rest = None, list(words)
    for index, word in enumerate(rest):
        if word == "--engine" and index + 1 < len(rest):
            name = rest[index + 1]
        elif word.startswith("--engine="):
            name = word.partition("=")[2]
    start = next((index for index, word in enumerate(rest) if "=" not in word or word.startswith("-")), len(rest))
    pasted = program_of(rest[start:])
    if pasted is not None:
        return find_engine(name or pasted[0]), rest[:start] + rest[start + pasted[1] :]
    if name is None and any(word.lower().endswith(".gguf") for word in rest):
        name = "llama.cpp"
    return find_engine(name or DEFAULT_ENGINE), rest


def _hint(name: str, kinds: Sequence[type], engine: Engine) -> str:
    """What was probably meant: an option of another engine, or the nearest of this one's."""
    import difflib  # only a wrong name needs it

    for other in engine_names():
        found = find_engine(other)
        if other != engine.name and any(
            dashed(name) in map(dashed, one.spellings) for one in inputs_of(found.Deployment)
        ):
            return f"; it is an option of --engine {other}"
    own = {dashed(text).lstrip("-"): text for kind in kinds for one in inputs_of(kind) for text in one.spellings}
    own |= {text.lstrip("-"): text for text in engine.options()}
    near = difflib.get_close_matches(dashed(name).lstrip("-"), own, n=1)
    return f"; nearest: {own[near[0]]}" if near else ""
