"""`vram-planner diagnose`: which failure an out-of-memory error is, and what to do about it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from annotated_types import Ge

from planner.contract.card import Card
from planner.contract.inputs import check, inputs_of, option
from planner.contract.parser import Parsed, dashed, parse
from planner.diagnosis.diagnosis import diagnose as diagnose_sources
from planner.diagnosis.length_tiers import (
    DEFAULT_MULTIPLE,
    DEFAULT_WASTE_PERCENT,
    Buckets,
    bucket_lengths,
    parse_lengths,
)
from planner.errors import SourceError, UsageError
from planner.report.diagnosis import render_diagnosis
from planner.standard_input import read_standard_input

if TYPE_CHECKING:
    from planner.cli.words.launched import Launched

FORMATS = ("table", "json", "csv", "markdown", "html")
_MOST_LENGTHS_BYTES = 256 << 20
_MOST_FILES = 256
_LENGTHS = "Lengths of sequences"
_RAN = "What ran"
_ANSWER = "Answer"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What is asked of the text, and how the answer is printed."""

    model: Annotated[
        str | None,
        option(
            "The model that ran; with it the inputs of serve are read, or those of train.",
            "--model",
            panel=_RAN,
            ours=True,
            common=True,
        ),
    ] = None
    launch: Annotated[
        str | None,
        option(
            "What launched it: a command in quotes, a file, a folder; in place of --model and the inputs.",
            "--launch",
            panel=_RAN,
            ours=True,
            common=True,
        ),
    ] = None
    train: Annotated[
        bool, option("It was a fine-tune, not a server.", "--train", panel=_RAN, ours=True, common=True)
    ] = False
    lengths: Annotated[
        str | None,
        option(
            "Sequence lengths in tokens, a file or figures (512, 512x20): pad to what?",
            "--lengths",
            panel=_LENGTHS,
            ours=True,
            common=True,
        ),
    ] = None
    max_waste: Annotated[
        float, option("The most padding, in per cent of all padded tokens.", "--max-waste", panel=_LENGTHS, ours=True)
    ] = DEFAULT_WASTE_PERCENT
    multiple: Annotated[
        int, Ge(1), option("Padded lengths are multiples of this.", "--multiple", panel=_LENGTHS, ours=True)
    ] = DEFAULT_MULTIPLE
    more: Annotated[
        bool,
        option(
            "After the first screen: figures, reasons, cautions, all remedies.",
            "--more",
            panel=_ANSWER,
            ours=True,
            common=True,
        ),
    ] = False
    format: Annotated[
        str, option("How to print.", "--format", panel=_ANSWER, choices=FORMATS, ours=True, common=True)
    ] = "table"


def diagnose(words: Sequence[str]) -> int:
    """Read an out-of-memory error and say what happened, whose memory it was, and what to do first.

    Reads whole logs with colours, prefixes and several messages, memory_summary dumps, memory snapshots and nvidia-smi
    output, alone or together: one case. - is standard input, and the default when something is piped in. It only looks:
    no command is run, nothing in a snapshot is executed. A pipe or device without an end is read for 2 GiB, or until no
    byte has come for 60 seconds. Exit status: 0 something was recognised (also: "this is no memory failure"), 2 nothing
    was, or the input cannot be read.

    With --gpu the card's capacity is known where the text prints none; with --model and the options of serve (or
    --train and those of train) the plan of what ran stands beside each figure; --launch takes the command, manifest or
    config that launched it instead.

    Examples: vram-planner diagnose train.log; vram-planner diagnose oom.txt snapshot.pickle --format json; vram-planner
    diagnose serve.log --model Qwen/Qwen3-8B --gpu 4090 --max-model-len 32768; vram-planner diagnose train.log --model
    Qwen/Qwen3-8B --gpu 4090 --train --method qlora; vram-planner diagnose serve.log --launch compose.yaml; vram-planner
    diagnose --lengths lengths.txt --max-waste 5
    """
    if any(word in ("--help", "-h", "--help-all") for word in words):
        from planner.cli.words.help import print_help

        print_help("diagnose", diagnose.__doc__ or "", (Asked, Card), subject="[FILE]...")
        return 0
    launched = _launched(words)
    if launched is not None or _names_a_model(words):
        from planner.cli.words.workload_options import (
            read_words,  # only with a model: declarations of engines and trainers
        )

        ran = read_words(words, Asked, most_positional=_MOST_FILES, launched=launched)
        parsed = ran.parsed
    else:
        ran, parsed = None, _without_model(words)
    asked = parsed.record(Asked)
    check(asked)
    sources = _sources(parsed.positional, asked.lengths)
    given = {name for name in ("gpu", "gpu_memory_bytes") if name in parsed.given}
    card = parsed.record(Card) if given else None
    names = (Path(name) if name != "-" else name for name in sources)
    diagnosis = diagnose_sources(*names, capacity_bytes=card.total_bytes if card else None) if sources else None
    if ran is not None and diagnosis is not None:
        from planner.diagnosis.expectation.beside_plan import with_plan  # only with a plan: a tenth of a second

        model = asked.model or (launched.model if launched is not None else None)
        if model is None:
            raise UsageError("--launch names no model: give --model too", field="model")
        diagnosis = with_plan(diagnosis, ran.workload(model, diagnosis))
    buckets = _buckets(asked) if asked.lengths is not None else None
    print(render_diagnosis(diagnosis, format=asked.format, buckets=buckets, more=asked.more))
    return 0


def _launched(words: Sequence[str]) -> Launched | None:
    """What --launch says was launched.

    Raises:
        UsageError: it launches nothing that is planned here.
    """
    source = next((word for word in words if dashed(word.partition("=")[0]) == "--launch"), None)
    if source is None:
        return None
    from planner.cli.words.launched import launched_by  # readers of every form; only for this

    place = words.index(source)
    text = source.partition("=")[2] or (words[place + 1] if place + 1 < len(words) else "")
    return launched_by(text)


def _names_a_model(words: Sequence[str]) -> bool:
    return any(dashed(word.partition("=")[0]) == "--model" for word in words)


def _without_model(words: Sequence[str]) -> Parsed:
    """The words by the command's own declaration.

    Raises:
        UsageError: an option that says what ran, without --model; or as `parse`.
    """
    try:
        parsed = parse((Asked, Card), words, most_positional=_MOST_FILES)
    except UsageError:
        from planner.cli.words.workload_options import says_what_ran  # only a wrong word needs the declarations

        for word in words:
            name = dashed(word.partition("=")[0])
            if name.startswith("-") and says_what_ran(name):
                raise UsageError(f"{name} says what ran: give --model too", field="model") from None
        raise
    own = {one.name for one in inputs_of(Card)} - {"gpu", "gpu_memory_bytes"}
    wrong = next((name for name in parsed.given if name == "train" or name in own), None)
    if wrong is not None:
        raise UsageError(f"{parsed.typed.get(wrong, wrong)} says what ran: give --model too", field="model")
    return parsed


def _sources(positional: Sequence[str], lengths: str | None) -> list[str]:
    piped = sys.stdin is not None and not sys.stdin.closed and not sys.stdin.isatty()
    sources = list(positional) or (["-"] if lengths is None and piped else [])
    if not sources and lengths is None:
        raise UsageError("give a file, or - for standard input, or --lengths", field="FILE")
    if sources.count("-") + (lengths == "-") > 1:
        raise UsageError("standard input can be read only once; give - once", field="FILE")
    return sources


def _buckets(asked: Asked) -> Buckets:
    """The tiers for lengths given as a file, as standard input or as figures."""
    lengths = parse_lengths(_lengths_text(asked.lengths or ""))
    return bucket_lengths(lengths, max_waste_percent=asked.max_waste, multiple=asked.multiple)


def _lengths_text(lengths: str) -> str:
    if lengths == "-":
        return _read(read_standard_input(_MOST_LENGTHS_BYTES + 1), "standard input")
    path = Path(lengths)
    try:
        if not path.is_file():
            return lengths
        with path.open("rb") as stream:
            return _read(stream.read(_MOST_LENGTHS_BYTES + 1), lengths)
    except (OSError, ValueError) as error:
        raise SourceError(f"{lengths[:80]}: {getattr(error, 'strerror', None) or error}") from None


def _read(data: bytes, name: str) -> str:
    if len(data) > _MOST_LENGTHS_BYTES:
        raise SourceError(f"{name}: more than 256 MiB of lengths; give a sample")
    return data.decode("utf-8", "replace")
