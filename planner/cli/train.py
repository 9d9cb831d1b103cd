"""`vram-planner train`: does the fine-tune fit, and how large can it be."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from planner.cli.words.help import print_help
from planner.contract.card import Card
from planner.contract.inputs import inputs_of, option
from planner.contract.parser import Parsed, dashed, parse
from planner.contract.words.config_file import words_of_file
from planner.contract.workload import Accept
from planner.errors import UsageError
from planner.hardware.contexts import cuda_context
from planner.model.load import load_model
from planner.report.training import render_shape, render_training
from planner.report.verdict import exit_status
from planner.training.largest import largest_that_fits
from planner.training.plan import TrainingPlan, plan_training
from planner.training.recipe import Recipe, near
from planner.training.stacks.megatron_shape import MegatronShape, megatron_peak
from planner.training.trainer_words import TrainerWords, command, recipe_of_words, without_launcher

if TYPE_CHECKING:
    from planner.levers.advice import Advice

ANSWER = "Answer"
FORMATS = ("table", "json", "csv", "markdown", "html")
_RECORDS: tuple[type, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """How the answer is asked for and printed."""

    config: Annotated[
        str | None, option("YAML file of options; the command line beats it.", panel=ANSWER, ours=True)
    ] = None
    assume_family: Annotated[str | None, option("Read an unknown model_type as this.", panel=ANSWER, ours=True)] = None
    largest: Annotated[bool, option("Solve for the largest that fits.", panel=ANSWER, ours=True)] = True
    levers: Annotated[bool, option("Say what could be changed even if it fits.", panel=ANSWER, ours=True)] = False
    keep: Annotated[
        str | None, option("Inputs no advice may touch: max-seq-length,method,...", panel=ANSWER, ours=True)
    ] = None
    goal: Annotated[
        str | None,
        option(
            "Solve for one: 'largest batch', 'longest sequence', 'highest rank', card, gpus.", panel=ANSWER, ours=True
        ),
    ] = None
    accept: Annotated[
        Accept, option("Which verdict counts as fitting, here and in every proposal.", panel=ANSWER, ours=True)
    ] = "tight"
    format: Annotated[str, option("How to print.", panel=ANSWER, choices=FORMATS, ours=True, common=True)] = "table"
    explain: Annotated[bool, option("Show the arithmetic.", panel=ANSWER, ours=True)] = False


_RECORDS = (Card, Recipe, TrainerWords, Answer)


def train(words: Sequence[str]) -> int:
    """Plan a fine-tune: does it fit the card, which phase is the peak, and what is the largest that fits.

    Options are spelled as the HF Trainer, PEFT, bitsandbytes and LLaMA-Factory spell them, with dashes or underscores;
    what is left out is the framework's default. Exit status: 0 fits or tight, 1 does not fit, 2 wrong usage.

    Examples: vram-planner train Qwen/Qwen2.5-7B-Instruct --gpu 4090 --method qlora --lora-target-modules all-linear
    --gradient-checkpointing; vram-planner train meta-llama/Llama-3.1-8B --gpu H100 --method full --num-gpus 8
    --sharding fsdp --max-seq-length 8192
    """
    if not words or any(word in ("--help", "-h", "--help-all") for word in words):
        print_help("train", train.__doc__ or "", (*_RECORDS, MegatronShape), everything="--help-all" in words)
        return 0
    if any(dashed(word).partition("=")[0] == "--hidden-size" for word in words):
        return _shape(_parsed(words, (*_RECORDS, MegatronShape)))
    text, recipe, parsed = read_run(words, _RECORDS)
    answer, card = parsed.record(Answer), parsed.record(Card)
    model = load_model(text, assume_family=answer.assume_family)
    plan = plan_training(model, recipe, card.gpu, gpu_memory_bytes=card.total_bytes)
    assert card.gpu is not None
    solved = answer.largest and answer.format != "csv"
    largest = (
        largest_that_fits(model, recipe, card.gpu, gpu_memory_bytes=card.total_bytes, accept=answer.accept)
        if solved
        else None
    )
    wanted = answer.levers or answer.keep is not None or answer.goal is not None
    advice = _advice(plan, recipe, card, answer) if wanted or _is_short(plan, answer) else None
    colour = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    print(
        render_training(
            plan,
            largest,
            format=answer.format,
            advice=advice,
            colour=colour,
            explain=answer.explain,
            command=command(text, recipe),
        )
    )
    return exit_status(plan.verdict, accepted=_accepted(plan, answer))


def read_run(words: Sequence[str], records: tuple[type, ...]) -> tuple[str, Recipe, Parsed]:
    """MODEL and the recipe of a command line, and what else was given.

    Args:
        records: everything that the command declares, the recipe and the trainers' words among it.

    Raises:
        UsageError: wrong words, no MODEL.
    """
    parsed = _parsed(words, records)
    trainer = parsed.record(TrainerWords)
    text = parsed.positional[0] if parsed.positional else trainer.model_name_or_path
    if text is None:
        raise UsageError("no MODEL: give a bundled name, a folder, a file or a Hub id", field="model")
    names = {one.name for one in inputs_of(Recipe)}
    given = {name: value for name, value in parsed.given.items() if name in names}
    return text, Recipe(**recipe_of_words(trainer, given)), parsed


def _shape(parsed: Parsed) -> int:
    """A Megatron-core encoder-decoder or BERT of which only the shape is given."""
    shape, answer, card = parsed.record(MegatronShape), parsed.record(Answer), parsed.record(Card)
    given = parsed.given
    if parsed.positional:
        raise UsageError(f"--hidden-size gives a shape, and {parsed.positional[0][:60]} a model", field="hidden_size")
    if given.get("pipeline_parallel_size", 1) != 1 or given.get("context_parallel_size", 1) != 1:
        raise UsageError("a shape is planned on one pipeline stage and context rank", field="pipeline_parallel_size")
    ways = given.get("tensor_parallel_size", 1)
    ranks = max(1, given.get("num_gpus", ways) // ways)
    peak = megatron_peak(
        shape,
        batch=given.get("per_device_train_batch_size", 1),
        ways=ways,
        ranks=ranks,
        sequence_parallel=given.get("sequence_parallel", False),
        seq=given.get("max_seq_length"),
    )
    size = peak.allocated_bytes + (cuda_context(card.gpu).best_bytes if card.gpu else 0)
    verdict = "fits" if size <= card.total_bytes else "does_not_fit"
    print(render_shape(peak, verdict, size, card.total_bytes, format=answer.format))
    return 0 if verdict == "fits" else 1


def _accepted(plan: TrainingPlan, answer: Answer) -> bool:
    return plan.verdict == "fits" or (plan.verdict == "tight" and answer.accept == "tight")


def _is_short(plan: TrainingPlan, answer: Answer) -> bool:
    return plan.verdict != "fits" and answer.format != "csv"


def _parsed(words: Sequence[str], records: tuple[type, ...]) -> Parsed:
    """The words by the declarations, those of a `--config` file below them."""
    parsed = _read(without_launcher(words), records)
    path = parsed.given.get("config")
    if path is None:
        return parsed
    below = _read(words_of_file(path), records)
    return Parsed(
        positional=parsed.positional or below.positional,
        given={**below.given, **parsed.given},
        typed={**below.typed, **parsed.typed},
    )


def _read(words: Sequence[str], records: tuple[type, ...]) -> Parsed:
    known = tuple(dashed(spelling) for record in records for one in inputs_of(record) for spelling in one.spellings)
    return parse(
        records,
        words,
        environment=os.environ,
        hint=lambda name: near(dashed(name), known) if name.startswith("--") else "",
    )


def _advice(plan: TrainingPlan, recipe: Recipe, card: Card, answer: Answer) -> Advice:
    from planner.levers.training import TrainingQuestion, advise_training, kept_recipe_inputs

    question = TrainingQuestion(
        model=plan.model, recipe=recipe, gpu=card.gpu, gpu_memory_bytes=card.total_bytes, accept=answer.accept
    )
    solved: Any = None
    if answer.goal is not None:
        from planner.levers.training_goal import parse_training_goal, solve_training

        solved = solve_training(question, parse_training_goal(answer.goal))
    return advise_training(question, plan, keep=kept_recipe_inputs(answer.keep or ""), solved=solved)
