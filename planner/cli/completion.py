"""`vram-planner completion`: what a shell offers at Tab, from the declarations that the commands are read by."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from importlib import import_module
from typing import Any, Final

import typer

from planner.cli import COMMANDS, TYPED, build_app
from planner.cli.words.help import Declared, declared_by
from planner.contract.engine import engine_names
from planner.contract.inputs import Input
from planner.contract.parser import dashed
from planner.errors import PlannerError, UsageError

_BASH: Final = """\
_vram_planner() {
    local IFS=$'\\n'
    COMPREPLY=($(vram-planner completion --words "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
}
complete -o default -o bashdefault -F _vram_planner vram-planner
"""
_ZSH: Final = """\
#compdef vram-planner
_vram_planner() {
    local -a found
    found=("${(@f)$(vram-planner completion --words "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    [[ -n $found ]] && compadd -- $found || _files
}
compdef _vram_planner vram-planner
"""
_FISH: Final = """\
complete -c vram-planner -a '(vram-planner completion --words (commandline -opc)[2..-1] (commandline -ct) 2>/dev/null)'
"""
_SHELLS: Final = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}
_MOST_WORDS: Final = 1024
# Inputs whose value is a name out of a table
_CARDS: Final = ("gpu", "gpus", "owned")
_MODELS: Final = ("model", "model_name_or_path")
# Commands whose word beside the options is a model
_OF_A_MODEL: Final = ("serve", "train", "explain", "pick", "compare", "size", "probe", "validate", "formats", "models")


def completion(words: Sequence[str]) -> int:
    """Print the completion of a shell: options, choices, engines, cards and bundled models.

    Examples: source <(vram-planner completion bash); vram-planner completion zsh > "${fpath[1]}/_vram-planner";
    vram-planner completion fish > ~/.config/fish/completions/vram-planner.fish
    """
    if words and words[0] == "--words":
        print("\n".join(candidates(words[1:])))
        return 0
    if not words or words[0] in ("--help", "--help-all"):
        from planner.cli.words.help import print_help

        print_help("completion", completion.__doc__ or "", (), everything=True, subject="|".join(_SHELLS))
        return 0 if words else 2
    if len(words) > 1 or words[0] not in _SHELLS:
        raise UsageError(f"completion {' '.join(words)[:40]!r}: expected {', '.join(_SHELLS)}", field="shell")
    print(_SHELLS[words[0]], end="")
    return 0


def candidates(words: Sequence[str]) -> list[str]:
    """What may stand in the place of the last word, those before it given; nothing where a file may."""
    # bash takes --x=y for three words
    words = [word for word in words[:_MOST_WORDS] if word != "="] or [""]
    *before, typed = words
    if not before:
        return _matching((*COMMANDS, "--help", "--version"), typed)
    command, given = before[0], before[1:]
    if command not in COMMANDS:
        return []
    try:
        declared = declared_of(command, given)
    except PlannerError:
        return []  # words that the command will refuse
    if declared.commands and not given and not typed.startswith("-"):
        return _matching(declared.commands, typed)
    name, equals, value = typed.partition("=")
    option = name if equals else given[-1] if given else ""
    one = _named(declared, option)
    if one is not None and not one.is_switch and (equals or not typed.startswith("-")):
        found = _matching(_values(one), value if equals else typed)
        return [f"{name}={text}" for text in found] if equals else found
    if typed.startswith("-"):
        return _matching(_options(command, declared), typed)
    if command == "completion":
        return _matching(_SHELLS, typed)
    return _matching(_subjects(command), typed)


def declared_of(command: str, given: Sequence[str]) -> Declared:
    """What a command declares; `given` are its words so far, of which the engine decides."""
    if command in TYPED or command == "completion":
        return Declared()
    module, function = COMMANDS[command]
    asked: list[str] = list(given[:1]) if command == "probe" else []
    for index, word in enumerate(given):
        if word == "--engine" and index + 1 < len(given):
            asked += [word, given[index + 1]]
        elif word.startswith("--engine=") or word == "--train":
            asked.append(word)
    return declared_by(getattr(import_module(module), function), asked)


def _named(declared: Declared, option: str) -> Input | None:
    """The input that this option sets."""
    if not option.startswith("-"):
        return None
    return next((one for one in declared.inputs if dashed(option) in map(dashed, one.spellings)), None)


def _options(command: str, declared: Declared) -> Iterator[str]:
    yield "--help"
    if command in TYPED:
        for parameter in _typed_parameters(command):
            yield from (name for name in parameter.opts if name.startswith("--"))
        return
    yield "--help-all"
    for one in declared.inputs:
        for spelling in one.spellings:
            if spelling.startswith("--"):
                yield dashed(spelling)
        if one.is_switch:
            yield f"--no-{dashed(one.spelling).lstrip('-')}"


def _typed_parameters(command: str) -> list[Any]:
    group: Any = typer.main.get_command(build_app([command]))
    return list(group.commands[command].params)


def _values(one: Input) -> Iterable[str]:
    if one.option.choices:
        return one.option.choices
    if one.name == "engine":
        return engine_names()
    if one.name in _CARDS:
        return _cards()
    if one.name == "quantization":
        from planner.memory.exports import EXPORTS

        return EXPORTS
    return _models() if one.name in _MODELS else ()


def _subjects(command: str) -> Iterable[str]:
    if command == "gpus":
        return _cards()
    if command == "schema":
        from planner.report.contracts.table import contract_names

        return contract_names()
    return _models() if command in _OF_A_MODEL else ()


def _cards() -> list[str]:
    from planner.hardware.gpus import load_gpus

    return [gpu.id for gpu in load_gpus()]


def _models() -> list[str]:
    from planner.model.names.bundled import bundled_names, siblings

    return sorted({*bundled_names(), *siblings()})


def _matching(names: Iterable[str], typed: str) -> list[str]:
    """The names that begin so; where none does, the one that holds it (4090, of a longer name)."""
    every, wanted = list(dict.fromkeys(names)), dashed(typed).lower()
    found = [name for name in every if name.lower().startswith(wanted)]
    within = [name for name in every if wanted in name.lower()] if not found else []
    return found or (within if len(within) == 1 else [])
