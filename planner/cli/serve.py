"""`vram-planner serve` and `explain`: will it serve, and how many requests at once."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from planner.cli.words.questions import FORMATS, Question, ask
from planner.contract.inputs import option
from planner.contract.workload import Workload
from planner.report.serving import render_plan
from planner.report.verdict import exit_status

if TYPE_CHECKING:
    from planner.contract.plan import ServingPlan
    from planner.levers.advice import Advice

ANSWER = "Answer"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """How the answer is asked for and printed."""

    levers: Annotated[bool, option("Say what could be changed even if it fits.", panel=ANSWER, ours=True)] = False
    keep: Annotated[
        str | None,
        option("Inputs no advice may touch: max-model-len,concurrency,quantization,...", panel=ANSWER, ours=True),
    ] = None
    goal: Annotated[
        str | None,
        option("Solve for one: 'largest context at 16 users', 'largest batch', card, gpus.", panel=ANSWER, ours=True),
    ] = None
    format: Annotated[str, option("How to print.", panel=ANSWER, choices=FORMATS, ours=True, common=True)] = "table"
    explain: Annotated[bool, option("Show the arithmetic.", panel=ANSWER, ours=True)] = False
    emit: Annotated[
        str | None,
        option(
            "Print a file to deploy the plan with, instead.",
            panel=ANSWER,
            ours=True,
            choices=("command", "compose", "kubernetes"),
        ),
    ] = None
    image: Annotated[str | None, option("The container's image, for --emit.", panel=ANSWER, ours=True)] = None
    wide: Annotated[bool, option("Print all columns, however wide.", panel=ANSWER, ours=True)] = False


def serve(words: Sequence[str], *, explain: bool = False) -> int:
    """Plan a server: does MODEL fit, and how many requests does it hold.

    Options are spelled as the engine spells them, and a pasted command is taken as it is. Exit status: 0 fits or tight,
    1 does not fit, 2 wrong usage, refused or unknown.

    Examples: vram-planner serve Qwen/Qwen3-8B --gpu 4090 --max-model-len 16K; vram-planner serve
    meta-llama/Llama-3.1-8B-Instruct --gpu H100 --input-len p50=600,p95=4000 --output-len p50=200,p95=800
    """
    asked = ask(words, Workload, Answer, about=serve.__doc__ or "", name="explain" if explain else "serve")
    if asked is None:
        return 0
    answer, workload = asked.record(Answer), asked.record(Workload)
    plan = asked.engine.plan(asked.model, asked.deployment, workload)
    if answer.emit is not None:
        from planner.launches.emit import emit  # only a file to deploy needs it

        print(emit(plan, answer.emit, image=answer.image))
        return exit_status(plan.verdict, accepted=plan.accepted)
    advice = None
    wanted = answer.levers or answer.keep is not None or answer.goal is not None
    if wanted or (plan.verdict != "fits" and answer.format != "csv"):
        advice = _advice(asked, plan, answer)
    colour = answer.format == "table" and sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    print(
        render_plan(
            plan,
            format=answer.format,
            advice=advice,
            colour=colour,
            explain=answer.explain or explain,
            width=None if answer.wide else "terminal",
        )
    )
    return exit_status(plan.verdict, accepted=plan.accepted)


def explain(words: Sequence[str]) -> int:
    """Write out the arithmetic of a serving plan: every formula with its numbers, evidence and source.

    Takes the options of `serve`.

    Example: vram-planner explain Qwen/Qwen3-8B --gpu H100 --max-model-len 8192
    """
    return serve(words, explain=True)


def _advice(asked: Question, plan: ServingPlan, answer: Answer) -> Advice:
    from planner.levers.advice import advise, kept_inputs  # a plan that fits starts faster without
    from planner.levers.goal import parse_goal
    from planner.levers.question import ServingQuestion

    question = ServingQuestion(
        engine=asked.engine, model=asked.model, deployment=asked.deployment, workload=plan.workload
    )
    kept = kept_inputs(question, (part for part in (answer.keep or "").split(",") if part.strip()))
    return advise(question, plan, keep=kept, goal=parse_goal(answer.goal) if answer.goal is not None else None)
