"""What an engine answers, and the table of engines: names, and the module that is imported when one is asked for."""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from planner.contract.lever import Changes, Lever
from planner.contract.parser import Parsed, Takes
from planner.contract.plan import ServingPlan, Verdict
from planner.contract.section import Section
from planner.contract.workload import ONE_REQUEST, Workload
from planner.errors import UsageError

if TYPE_CHECKING:
    from planner.hardware.gpus import Gpu
    from planner.model.model import Model


class AtLength(NamedTuple):
    """A plan's figures at one length, in bytes on the fullest GPU.

    Args:
        weights_as: how the weights are stored, in words.
        bytes_per_token: growth of one sequence by a token at this length.
        cache_bytes: what is left for the cache (0 where nothing is).
        tokens: what the engine says that it holds.
        concurrency: requests of this length that it holds.
        reason: why it is refused, or why the engine would not start.
    """

    max_model_len: int
    weights_as: str
    weights_bytes: int
    bytes_per_token: int
    cache_bytes: int
    tokens: int
    concurrency: int
    verdict: Verdict
    reason: str = ""


class Prepared(Protocol):
    """A deployment of which everything but the length is settled."""

    def at(self, max_model_len: int) -> AtLength:
        """The figures at this length; the verdict is that of `Engine.plan`."""
        ...


@dataclass(frozen=True, slots=True)
class PlannedEach:
    """A `Prepared` that plans every length anew, for engines whose plans are quick; `length` names their input."""

    engine: Engine
    model: Model
    deployment: Any
    workload: Workload
    length: str

    def at(self, max_model_len: int) -> AtLength:
        """The figures of the plan at this length."""
        changed = replace(self.deployment, **{self.length: max_model_len})
        plan = self.engine.plan(self.model, changed, self.workload)
        cache, error = plan.cache, plan.startup_error
        return AtLength(
            max_model_len=max_model_len,
            weights_as=str(self.engine.section(plan).inputs.get("weight_format", "as stored")),
            weights_bytes=sum(part.best for part in plan.devices[0].components if part.name == "weights"),
            bytes_per_token=cache.bytes_per_token,
            cache_bytes=cache.reserved_bytes,
            tokens=cache.tokens or 0,
            concurrency=int(cache.max_concurrency),
            verdict=plan.verdict,
            reason=error.message if error is not None and error.refused else "",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Axes:
    """The inputs of an engine that comparisons run over; "" where it has none such.

    Args:
        slots: where requests at once are a matter of the command alone: how many there are.
        length_of_all: `length` is that of all slots together.
        caches: types of cache that people compare, the engine's own default first.
        on_cards: inputs that keep every weight on the cards, of an engine that would else move some to the host.
    """

    quantization: str = ""
    cache: str = ""
    ways: str = ""
    length: str = ""
    slots: str = ""
    length_of_all: bool = False
    caches: tuple[str, ...] = ("auto", "fp8")
    on_cards: tuple[tuple[str, object], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """A way to spread a model over equal cards: how many, in how many pipeline stages, and the inputs that say so."""

    cards: int
    stages: int
    changes: Changes


class Engine(Protocol):
    """The rules of one engine. Stateless; everything it is asked comes with the question."""

    @property
    def name(self) -> str:
        """As `--engine` spells it."""
        ...

    @property
    def title(self) -> str:
        """As people write it."""
        ...

    @property
    def Deployment(self) -> type[Any]:
        """Its inputs, declared once."""
        ...

    @property
    def axes(self) -> Axes:
        """Its inputs that comparisons run over."""
        ...

    def usual_formats(self, gpu: Gpu | None) -> Sequence[tuple[str, float]]:
        """The formats of weights that people compare on a card, the most bits first, beside the one as stored.

        Each is its name and the bits that a weight takes at least.
        """
        ...

    @property
    def lever_table(self) -> str:
        """Where its kinds of lever are listed, "package:file"; "" where it has none."""
        ...

    @property
    def versions(self) -> tuple[str, str]:
        """The oldest and the newest release that is described."""
        ...

    def takes(self, option: str) -> Takes | None:
        """What an option of the engine takes that is no input here; None for what it never had."""
        ...

    def options(self) -> Iterable[str]:
        """Every option of the engine that is no input here, for near-miss hints."""
        ...

    def deployment(self, parsed: Parsed, **more: object) -> Any:
        """The deployment of a command line; words that are options of the engine and no input stay in `passed`.

        Raises:
            UsageError: an option that this release does not have, a value that is none, no card.
        """
        ...

    def plan(
        self, model: Model, deployment: Any, workload: Workload = ONE_REQUEST, *, notes: tuple[str, ...] = ()
    ) -> ServingPlan:
        """The plan of one deployment; `notes` are what the caller wants said with it."""
        ...

    def prepare(self, model: Model, deployment: Any, workload: Workload = ONE_REQUEST) -> Prepared:
        """What many lengths share."""
        ...

    def command(self, plan: Any) -> Sequence[str]:
        """Environment first, then words; planned again they give the same plan."""
        ...

    def section(self, plan: Any) -> Section:
        """What reports print of a plan beside what every plan has."""
        ...

    def levers(self, plan: Any) -> Iterable[Lever]:
        """What could be changed, the cheapest first."""
        ...

    def layouts(self, model: Model, deployment: Any) -> Iterable[Layout]:
        """The ways in which the engine spreads a model over equal cards, the fewest cards first."""
        ...


_ENGINES: Final[dict[str, str]] = {}
_PROGRAMS: Final[dict[tuple[str, ...], str]] = {}
_NOT_PLANNED: Final[dict[str, str]] = {}


def register(name: str, home: str, *programs: str) -> None:
    """Enter an engine.

    Args:
        home: "module:attribute", imported only when the engine is asked for.
        programs: the words that start it, before MODEL, as they stand in commands.
    """
    _ENGINES[name] = home
    for program in programs:
        _PROGRAMS[tuple(program.split())] = name


def recognise(name: str, title: str, *programs: str) -> None:
    """Enter an engine that is known by name and not planned, so that it is refused as what it is."""
    _NOT_PLANNED[name] = title
    for program in programs:
        _PROGRAMS[tuple(program.split())] = name


def program_of(words: Sequence[str]) -> tuple[str, int] | None:
    """(engine, words of its program) of a command that begins with an engine's program."""
    engine_names()
    for program, name in _PROGRAMS.items():
        if tuple(words[: len(program)]) == program:
            return name, len(program)
    return None


def engine_names() -> tuple[str, ...]:
    """Every engine that can be planned."""
    if not _ENGINES:
        import_module("planner.engines")
    return tuple(_ENGINES)


def find_engine(name: str) -> Engine:
    """The engine of this name.

    Raises:
        UsageError: none is; names the nearest.
    """
    names = engine_names()
    asked = name.strip().lower().replace("_", "-")
    squeezed = {known.replace(".", "").replace("-", ""): known for known in names}
    found = squeezed.get(asked.replace(".", "").replace("-", ""))
    if asked in _NOT_PLANNED:
        raise UsageError(
            f"--engine {asked}: {_NOT_PLANNED[asked]} is recognised and not planned here; plan with one of"
            f" {', '.join(names)}",
            field="engine",
        )
    if found is None:
        near = difflib.get_close_matches(asked, names, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise UsageError(f"--engine {name[:40]!r} is not known here; expected {', '.join(names)}{hint}", field="engine")
    module, _, attribute = _ENGINES[found].partition(":")
    engine: Engine = getattr(import_module(module), attribute)
    return engine


def command_line(plan: ServingPlan) -> str:
    """The command that realises a plan, quoted for a shell."""
    return shlex.join(find_engine(plan.engine).command(plan))
