"""`vram-planner plan`: whatever launches a job, read and planned with the engine or trainer that it names."""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from typing import Annotated, Final

from planner.cli.words.help import print_help
from planner.contract.engine import engine_names
from planner.contract.inputs import option
from planner.contract.parser import parse
from planner.errors import PlannerError, UsageError
from planner.launches.around import host_shortfall
from planner.launches.engines.variants import open_question, own_inputs
from planner.launches.reading import read_launch
from planner.launches.record import Launch, LaunchPlan, Settings
from planner.launches.sharing import overcommitted
from planner.launches.sources import Source, sources_of
from planner.launches.words import framework_of, serve_words, shares_nothing, spelled_of, takes, train_words
from planner.report.launch import Planned, launch_csv, launches_json, launches_text
from planner.report.printer import Width
from planner.training.recipe import frameworks

ANSWER: Final = "Answer"
_FORMATS: Final = ("table", "json", "csv", "markdown", "html")
# A card large enough that what does not depend on the card can be read off a plan on it.
_ANY_CARD: Final = "4TiB"
# What --gpu or --gpu-memory settles.
_OF_THE_CARD: Final = ("the card", "memory of the MIG")


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What is asked beside the source."""

    gpu: Annotated[
        str | None, option("Card, where the source states none: 4090, H100, ...", ours=True, common=True)
    ] = None
    gpu_memory: Annotated[str | None, option("What the driver reports (79.19GiB).", ours=True, common=True)] = None
    set: Annotated[
        str | None, option("NAME=VALUE for what the source leaves open; may be given again.", ours=True, common=True)
    ] = None
    engine_version: Annotated[str | None, option("Release of the engine, where none is stated.", ours=True)] = None
    concurrency: Annotated[int | None, option("Requests that must fit at once.", ours=True)] = None
    input_len: Annotated[str | None, option("600, mean=600 or p50=600,p95=4000.", ours=True)] = None
    output_len: Annotated[str | None, option("As --input-len.", ours=True)] = None
    accept: Annotated[str | None, option("Verdict that counts as fitting: tight or fits.", ours=True)] = None
    format: Annotated[str, option("How to print.", panel=ANSWER, choices=_FORMATS, ours=True, common=True)] = "table"
    explain: Annotated[bool, option("Show the arithmetic.", panel=ANSWER, ours=True)] = False
    wide: Annotated[bool, option("Print all columns, however wide.", panel=ANSWER, ours=True)] = False


@dataclass(slots=True)
class Answers:
    """What was read, and the plans that were made of it."""

    launches: list[Launch] = field(default_factory=list)
    planned: list[Planned] = field(default_factory=list)

    @property
    def status(self) -> int:
        """The worst in the order 1, 2, 0."""
        found = {one.status for one in self.planned}
        found |= {2 for launch in self.launches if launch.error is not None or not launch.plans}
        return 1 if 1 in found else 2 if 2 in found else 0


def plan(words: Sequence[str]) -> int:
    """Plan whatever launches a job: a command in quotes, a file, a folder, or - for what is piped in.

    Commands, compose files, manifests, Helm values, systemd units, trainers' configs, scripts and notebooks are read
    and never run; what was read is printed with its lines, then the plan that `serve` or `train` makes of it. Exit
    status: 0 fits or tight, 1 does not fit, 2 something is missing or cannot be read.

    Examples: vram-planner plan "vllm serve Qwen/Qwen3-8B --max-model-len 16K" --gpu 4090; vram-planner plan
    docker-compose.yml --gpu L40S; vram-planner plan train.yaml --gpu H100 --set model=Qwen/Qwen3-8B
    """
    values, rest = _settled(words)
    if not rest or any(word in ("--help", "-h", "--help-all") for word in rest):
        print_help("plan", plan.__doc__ or "", (Asked,), everything=True, subject="SOURCE")
        return 0 if rest else 2
    parsed = parse((Asked,), rest)
    asked = parsed.record(Asked)
    if not parsed.positional:
        raise UsageError("no SOURCE: give a command in quotes, a file, a folder, or -", field="source")
    answers = answers_of(parsed.positional[0], asked, values)
    if not answers.launches:
        raise UsageError(
            f"{parsed.positional[0][:100]}: nothing here starts a server or a training run", field="source"
        )
    _print(answers, asked)
    _complain(answers.launches)
    return answers.status


def answers_of(text: str, asked: Asked, values: Mapping[str, str]) -> Answers:
    """What a SOURCE launches, read and planned.

    Raises:
        PlannerError: it cannot be read.
    """
    answers = Answers()
    for source in sources_of(text):
        launch = _read(source, values)
        if launch is not None:
            answers.launches.append(launch)
            answers.planned += [_plan(launch, one, asked) for one in launch.plans]
    return answers


def _settled(words: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """The --set NAME=VALUE words, and the rest.

    Raises:
        UsageError: not of that form.
    """
    values: dict[str, str] = {}
    rest: list[str] = []
    left = list(words)
    while left:
        word = left.pop(0)
        if word != "--set" and not word.startswith("--set="):
            rest.append(word)
            continue
        text = word[6:] if word.startswith("--set=") else left.pop(0) if left else ""
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise UsageError("--set takes NAME=VALUE, such as model=Qwen/Qwen3-8B", field="set")
        values[name] = value
    return values, rest


def _read(source: Source, values: Mapping[str, str]) -> Launch | None:
    launch = read_launch(source.text, name=source.name, settings=Settings(values=values, folder=source.folder))
    if source.optional and launch.form in ("unknown", "shell", "python", "yaml", "json") and not launch.plans:
        return None
    return launch


def _plan(launch: Launch, one: LaunchPlan, asked: Asked) -> Planned:
    """One server or run, planned as `serve` or `train` plans it."""
    card = {name: value for name, value in (("gpu", asked.gpu), ("gpu-memory", asked.gpu_memory)) if value is not None}
    if not card and one.card_key is not None:
        card = {"gpu": one.card_key}
    if one.kind == "serve" and one.tool not in engine_names():
        return Planned(one, "unknown", 2, message=f"{one.variant or one.tool} is read but not planned yet")
    question = open_question(one)
    if question is not None:
        return Planned(one, "unknown", 2, message=question)
    if one.kind == "train" and framework_of(one.tool) not in frameworks():
        return Planned(one, "unknown", 2, message=f"{one.tool} is read but not planned yet")
    needs = [need for need in launch.needs if not (card and need.startswith(_OF_THE_CARD))]
    if needs or one.model is None:
        return Planned(one, "unknown", 2, message=f"missing: {'; '.join(needs)[:400] or 'the model'}")
    if asked.gpu is not None and one.card is not None and one.card_key != asked.gpu:
        launch.note(f"--gpu {asked.gpu} is planned; the source states {one.card}")
    if one.kind == "serve" and overcommitted(launch):
        message = "the servers on one device ask for more than the whole card: the second does not start"
        return Planned(one, "does_not_fit", 1, message=message)
    if one.kind == "train" and "max-seq-length" not in {**one.defaults, **one.inputs}:
        message = "the sequence length is not stated, and the trainer has no default: give --set max_seq_length=N"
        return Planned(one, "unknown", 2, message=message)
    if one.kind == "serve" and one.version is None and asked.engine_version is not None:
        one.version = asked.engine_version
    if one.kind == "train" and shares_nothing(one):
        launch.note(f"{one.get('sharding')} shares nothing on one GPU, which is planned; --set num_gpus=N plans more")
    if not card:
        return _without_card(one, asked)
    words = _words(one, card, asked)
    for name, _ in own_inputs(one) if one.kind == "serve" else ():
        if not takes(one.tool, spelled_of(one.tool, name)):
            launch.note(f"{name} is read and is no input of {one.tool}'s planner")
    status, text = _run(one.kind, [*words, "--format", asked.format, *_printing(asked)])
    found = Planned(one, "", status, text=text, words=words)
    if asked.format == "json":
        found.result = json.loads(text)
        found.verdict = str(found.result.get("verdict"))
        if "error" in found.result:
            found.message, found.result = str(found.result["error"]), {}
    _host(launch, found, asked)
    return found


def _words(one: LaunchPlan, card: Mapping[str, str], asked: Asked) -> list[str]:
    words = serve_words(one, card) if one.kind == "serve" else train_words(one, card)
    if one.kind == "serve":
        for name in ("concurrency", "input_len", "output_len", "accept"):
            value = getattr(asked, name)
            if value is not None:
                words += [f"--{name.replace('_', '-')}", str(value)]
    elif asked.accept is not None:
        words += ["--accept", asked.accept]
    return words


def _printing(asked: Asked) -> list[str]:
    return [word for word, on in (("--explain", asked.explain), ("--wide", asked.wide)) if on]


def _run(kind: str, words: Sequence[str]) -> tuple[int, str]:
    """(exit status, what is printed) of `serve` or `train` with these words; a mistake is status 2 and its message."""
    from planner.cli import run

    command = "serve" if kind == "serve" else "train"
    out = io.StringIO()
    try:
        with redirect_stdout(out):
            status = run(command, [command, *words])
    except PlannerError as error:
        return 2, _mistake(str(error), words)
    except Exception as error:
        # usage errors of a command that typer reads
        said = getattr(error, "format_message", None)
        if said is None:
            raise
        return 2, _mistake(str(said()), words)
    return status if isinstance(status, int) else 0, out.getvalue().rstrip("\n")


def _mistake(text: str, words: Sequence[str]) -> str:
    return json.dumps({"verdict": "unknown", "error": text}) if "json" in words else f"unknown: {text}"


def _without_card(one: LaunchPlan, asked: Asked) -> Planned:
    """What does not depend on the card, read off a plan on one that holds anything."""
    words = _words(one, {"gpu-memory": _ANY_CARD}, asked)
    _, text = _run(one.kind, [*words, "--format", "json"])
    result = json.loads(text)
    found = Planned(
        one, "unknown", 2, message="no card is stated: give --gpu NAME; `vram-planner pick MODEL` lists cards"
    )
    if "error" in result:
        found.message = f"{found.message}; {result['error']}"
        return found
    found.words = _words(one, {"gpu": "NAME"}, asked)
    if one.kind == "serve":
        parts = [part for part in result["devices"][0]["components"] if part["name"].startswith("weights")]
        found.needed["weights"] = sum(part["best"] for part in parts)
        found.needed["cache_per_token"] = result["kv_cache"]["bytes_per_token"]
        found.needed["cache_per_sequence"] = result["kv_cache"]["bytes_per_sequence"]
    else:
        wanted = ("weights", "optimizer", "gradients", "adapters")
        for part in result["ranks"][0]["components"]:
            if part["name"] in wanted:
                found.needed[part["name"]] = part["best"]
    return found


def _host(launch: Launch, found: Planned, asked: Asked) -> None:
    """Exit 137 foretold: what the host side takes against the container's limit."""
    if "memory_limit_bytes" not in found.plan.host:
        return
    result = found.result
    if not result:
        _, text = _run(found.plan.kind, [*found.words, "--format", "json"])
        result = json.loads(text)
    taken = result.get("host_bytes") or (result.get("load") or {}).get("host_bytes") or 0
    ranks = (found.plan.gpus or 1) // max(1, found.plan.nodes)
    short = host_shortfall(found.plan.host, int(taken) * (ranks if found.plan.kind == "train" else 1))
    if short is not None:
        launch.note(f"{found.plan.name or found.plan.tool}: {short}")
        if found.status == 0:
            found.status, found.message = 1, short


def _print(answers: Answers, asked: Asked) -> None:
    if asked.format == "json":
        print(json.dumps(launches_json(answers.launches, answers.planned), indent=1))
    elif asked.format == "csv":
        print(launch_csv(answers.launches))
    elif asked.format == "html":
        from planner.report.html.launch import launches_page  # only a page pays for it

        print(launches_page(answers.launches, answers.planned))
    else:
        colour = asked.format == "table" and sys.stdout.isatty() and not os.environ.get("NO_COLOR")
        width: Width = None if asked.wide else "terminal"
        print(launches_text(answers.launches, answers.planned, colour=colour, width=width))


def _complain(launches: Sequence[Launch]) -> None:
    """One line on standard error for each source that could not be read."""
    for launch in launches:
        if launch.error is not None:
            print(f"vram-planner: {launch.file or 'the text'}: {launch.error}", file=sys.stderr)
