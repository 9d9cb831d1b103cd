"""`vram-planner pick`: which cards for this model or fine-tune, which models for this card."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Final

from annotated_types import Ge, Le

from planner.cli.words.questions import FORMATS, Asking, questioned
from planner.contract.engine import Engine, engine_names, find_engine
from planner.contract.inputs import check, option
from planner.contract.parser import Parsed
from planner.contract.reading import read_tokens
from planner.contract.workload import Workload
from planner.errors import PlannerError, UsageError
from planner.hardware.spelled import Cards, cards_of_listing, merged, parse_cards
from planner.model.load import load_model
from planner.model.names.bundled import bundled_names
from planner.report.pick import render_models, render_picks, render_runs
from planner.report.printer import Width
from planner.serving.pick.candidates import Pick, best_format_each, candidate_cards, picks, ranked
from planner.serving.pick.models import Wanted, by_parameters, models_that_run
from planner.serving.prices import PRICE, PRICE_FILE, Prices, all_prices, unused_notes
from planner.standard_input import read_standard_input

PICK: Final = "Pick"
_USUAL_LENGTH: Final = 8192
# asked of an engine to hear why it plans nothing on a card
_SMALL_MODEL: Final = "Qwen/Qwen3-0.6B"
_BILLION: Final = 1_000_000_000


def _counted(text: str, spelled: str) -> int:
    """Parameters: 7B, 500M or a plain number."""
    scale = {"b": _BILLION, "m": 1_000_000}.get(text.strip()[-1:].lower(), 1)
    digits = text.strip()[:-1] if scale != 1 else text.strip()
    try:
        return int(float(digits) * scale)
    except (ValueError, OverflowError):
        raise UsageError(f"{spelled} is {text[:20]!r}; expected a number such as 7B", field="min_parameters") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What may be picked, and how it is printed."""

    vendor: Annotated[
        str | None,
        option("Cards of this maker only.", panel=PICK, ours=True, common=True, choices=("nvidia", "amd", "intel")),
    ] = None
    max_gpus: Annotated[int, Ge(1), Le(64), option("Cards at most.", panel=PICK, ours=True, common=True)] = 8
    owned: Annotated[str | None, option("Only these cards: 4090,2x3090.", panel=PICK, ours=True, common=True)] = None
    formats: Annotated[
        tuple[str, ...], option("Formats to try; none is as stored.", panel=PICK, ours=True, common=True)
    ] = ()
    price: Annotated[tuple[str, ...], PRICE] = ()
    prices: Annotated[str | None, PRICE_FILE] = None
    task: Annotated[
        str,
        option(
            "What the models are for (with --gpu).",
            panel=PICK,
            ours=True,
            common=True,
            choices=("generate", "embed", "any"),
        ),
    ] = "generate"
    family: Annotated[
        str | None,
        option("A word of the models' architecture or name (with --gpu).", panel=PICK, ours=True, common=True),
    ] = None
    min_context: Annotated[
        int,
        Ge(0),
        option(
            "Tokens a request must have room for (with --gpu).",
            panel=PICK,
            unit="tokens",
            read=read_tokens,
            ours=True,
            common=True,
        ),
    ] = 0
    min_parameters: Annotated[
        int, Ge(0), option("Weights at least: 7B (with --gpu).", panel=PICK, read=_counted, ours=True, common=True)
    ] = 0
    limit: Annotated[int, Ge(1), option("Rows that a table shows.", panel=PICK, ours=True, common=True)] = 20
    format: Annotated[
        str,
        option("How to print.", panel=PICK, ours=True, common=True, choices=FORMATS),
    ] = "table"
    wide: Annotated[bool, option("Print all columns, however wide.", panel=PICK, ours=True)] = False

    @property
    def width(self) -> Width:
        """What the table may take."""
        return None if self.wide else "terminal"


def pick(words: Sequence[str]) -> int:
    """Pick the card for a model, or the models for a card.

    pick MODEL lists cards, counts and formats that hold it, by price where prices are given, else by total memory and
    number of cards. pick --gpu 4090 lists the bundled models that run there, the largest first. pick MODEL --train
    lists the cards that hold a fine-tune; options are then those of train. Exit status: 0 something fits, 1 nothing
    does, 2 wrong usage.

    Examples: vram-planner pick Qwen/Qwen3-32B --concurrency 8; vram-planner pick --gpu 2x3090 --min-context 32K;
    vram-planner pick Qwen/Qwen3-8B --train --method qlora
    """
    if "--train" in words:
        return _pick_for_run([word for word in words if word != "--train"])
    asked = questioned(
        words, Workload, Choice, about=pick.__doc__ or "", name="pick", subject="[MODEL]", lists=frozenset({"gpu"})
    )
    if asked is None:
        return 0
    engine, parsed = asked
    choice, workload = parsed.record(Choice), parsed.record(Workload)
    check(choice)
    check(workload)
    names = parsed.given.get("gpu", ())
    if parsed.positional and names:
        raise UsageError(
            "pick takes a MODEL or --gpu, not both: serve answers for one model on one card; --owned narrows the cards",
            field="gpu",
        )
    if parsed.positional:
        return _pick_card(engine, parsed, choice, workload)
    if names:
        return _pick_model(engine, parsed, choice, workload, _cards(names))
    raise UsageError("pick needs a MODEL, or --gpu for the models that run on a card", field="model")


def _cards(names: Iterable[str]) -> tuple[Cards, ...]:
    found: list[Cards] = []
    for name in names:
        found += (
            cards_of_listing(read_standard_input(1 << 20).decode("utf-8", "replace"))
            if name == "-"
            else parse_cards(name)
        )
    return merged(found)


def _base(engine: Engine, parsed: Parsed, card: str) -> Any:
    """The deployment that rows differ from: everything but card, layout and format as given."""
    given = {name: value for name, value in parsed.given.items() if name != "gpu"} | {"gpu": card}
    base = engine.deployment(replace(parsed, given=given))
    check(base)
    return base


def _formats(choice: Choice) -> tuple[str | None, ...] | None:
    """The formats that were asked for; None where none were."""
    return tuple(None if name == "none" else name for name in choice.formats) or None


def _prices(choice: Choice) -> Prices:
    return all_prices(choice.prices, choice.price)


def _pick_card(engine: Engine, parsed: Parsed, choice: Choice, workload: Workload) -> int:
    model = load_model(parsed.positional[0], assume_family=parsed.record(Asking).assume_family)
    owned = parse_cards(choice.owned) if choice.owned else ()
    cards = candidate_cards(choice.vendor, [one.gpu for one in owned])
    base = _base(engine, parsed, cards[0].id)
    length, assumed = engine.axes.length, []
    if length and getattr(base, length) is None and not workload.points:
        usual = min(_USUAL_LENGTH, model.longest_request)
        base = replace(base, **{length: usual})
        assumed.append(f"no length was given: requests of {usual:,} tokens are assumed (--max-model-len)")
    formats = _formats(choice)
    prices = _prices(choice)
    found = list(
        picks(
            engine,
            model,
            base,
            workload,
            cards=cards,
            formats=formats,
            max_gpus=choice.max_gpus,
            counts={one.gpu.id: one.count for one in owned},
            prices=prices,
        )
    )
    notes = assumed + unused_notes(prices, [one.gpu.id for one in found])
    everything = choice.format in ("json", "csv")
    shown = ranked(found) if everything else best_format_each(found)[: choice.limit]
    query: dict[str, object] = {
        "model": model.id,
        "engine": engine.name,
        "max_gpus": choice.max_gpus,
        "formats": [name or "none" for name in formats or ()],
    }
    print(render_picks(shown, prices=prices, notes=notes, query=query, format=choice.format, width=choice.width))
    return 0 if found else 1


def _pick_model(engine: Engine, parsed: Parsed, choice: Choice, workload: Workload, cards: tuple[Cards, ...]) -> int:
    if len(cards) > 1:
        named = ", ".join(f"{one.count} x {one.gpu.name}" for one in cards)
        raise UsageError(
            f"--gpu names unequal cards ({named}): {engine.title} shares a model over equal ones only; ask for one kind"
            " at a time, or for one model with llama.cpp, which splits layers over unequal cards: serve MODEL --engine"
            " llama.cpp --gpus 4090,3090",
            field="gpu",
        )
    base = _base(engine, parsed, cards[0].gpu.id)
    wanted = Wanted(
        task=choice.task, family=choice.family, min_context=choice.min_context, min_parameters=choice.min_parameters
    )
    length = getattr(base, engine.axes.length, None) if engine.axes.length else None
    found = by_parameters(
        _progress(
            models_that_run(
                engine,
                base,
                workload,
                names=bundled_names(),
                cards=cards[0],
                formats=_usual(engine, choice, cards[0]),
                wanted=wanted,
                length=length or _USUAL_LENGTH,
            )
        )
    )
    shown = found if choice.format in ("json", "csv") else found[: choice.limit]
    query: dict[str, object] = {
        "gpu": cards[0].gpu.name,
        "cards": cards[0].count,
        "engine": engine.name,
        "task": choice.task,
        "min_context": choice.min_context,
    }
    why = "" if found else _why_none(engine, parsed, cards[0].gpu.id)
    print(render_models(shown, total=len(found), query=query, format=choice.format, width=choice.width, why_none=why))
    return 0 if found else 1


def _why_none(engine: Engine, parsed: Parsed, card: str) -> str:
    """Why not even a small model is planned there, and which engines would plan it; "" where the engine would."""
    small = load_model(_SMALL_MODEL)

    def refusal(other: Engine) -> str:
        try:
            plan = other.plan(small, other.deployment(Parsed(positional=(), given={"gpu": card}, typed={})))
        except PlannerError as error:
            return str(error)
        return plan.startup_error.message if plan.verdict == "refused" and plan.startup_error else ""

    said = refusal(engine)
    if not said:
        return "what was asked for leaves none: fewer filters, a shorter context, or fewer requests at once"
    able = [name for name in engine_names() if name != engine.name and not refusal(find_engine(name))]
    return f"{said}; asked of another engine: --engine {' or '.join(able)}" if able else said


def _usual(engine: Engine, choice: Choice, cards: Cards) -> list[tuple[str, float]]:
    """The formats to try for plain checkpoints, the most bits first."""
    asked = _formats(choice)
    usual = engine.usual_formats(cards.gpu)
    if asked is None:
        return list(usual)
    bits = dict(usual)
    return [(name, bits.get(name, 0.0)) for name in asked if name is not None]


def _progress(found: Iterator[Pick]) -> Iterator[Pick]:
    """The picks, counted on a terminal's error stream while they are worked out."""
    if not sys.stderr.isatty():
        yield from found
        return
    for number, one in enumerate(found, start=1):
        print(f"\r{number} models fit ...", end="", file=sys.stderr, flush=True)
        yield one
    print("\r" + " " * 40 + "\r", end="", file=sys.stderr, flush=True)


def _pick_for_run(words: Sequence[str]) -> int:
    from planner.cli.train import read_run  # only a fine-tune asks
    from planner.training.recipe import Recipe
    from planner.training.trainer_words import TrainerWords

    text, recipe, parsed = read_run(words, (Recipe, TrainerWords, Workload, Choice, Asking))
    model = load_model(text, assume_family=parsed.record(Asking).assume_family)
    choice, accept = parsed.record(Choice), parsed.record(Workload).accept
    check(choice)
    from planner.serving.pick.fine_tunes import fine_tune_picks, ranked_runs

    owned = parse_cards(choice.owned) if choice.owned else ()
    prices = _prices(choice)
    found = ranked_runs(
        fine_tune_picks(
            model,
            recipe,
            cards=candidate_cards(choice.vendor, [one.gpu for one in owned]),
            max_gpus=choice.max_gpus,
            accept=accept,
            counts={one.gpu.id: one.count for one in owned},
            prices=prices,
        )
    )
    shown = found if choice.format in ("json", "csv") else found[: choice.limit]
    query: dict[str, object] = {"model": model.id, "method": recipe.method, "max_gpus": choice.max_gpus}
    print(render_runs(shown, prices=prices, query=query, format=choice.format, width=choice.width))
    return 0 if found else 1
