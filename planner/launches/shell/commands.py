"""Commands to plans: wrappers off, then the reader of the program that is left."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from planner.launches.around import image_engine
from planner.launches.context import Context, Surroundings
from planner.launches.documents import read_yaml
from planner.launches.engines.llama_cpp import read_llama
from planner.launches.engines.others import read_lms, read_ollama, read_sglang, read_trtllm
from planner.launches.engines.vllm import read_vllm, without_entrypoint
from planner.launches.record import LaunchError
from planner.launches.shell.containers import container
from planner.launches.shell.expansion import Argument, Variable
from planner.launches.shell.programs import (
    LLAMA,
    NAMED,
    Environment,
    Words,
    gather,
    keep,
    start_llama,
    start_module,
    start_named,
)
from planner.launches.shell.script import Command, Reader, Script
from planner.launches.shell.wrappers import base, skip_options, unwrap
from planner.launches.trainers.launchers import read_training

_CONTAINERS: Final = ("docker", "podman", "nerdctl")
_SHELLS: Final = ("sh", "bash", "zsh", "dash", "ash")
_PYTHON: Final = re.compile(r"python[0-9.]*")
_DEEPEST: Final = 8


def read_shell(
    context: Context,
    text: str,
    *,
    first_line: int = 1,
    around: Surroundings | None = None,
    environment: Mapping[str, Variable] | None = None,
) -> Script:
    """Every launch in a shell text becomes a plan of the context's launch."""
    reader = Reader(context.launch, context.secrets, context.settings.values, environment)
    script = reader.read(text, first_line=first_line)
    context.files.update(script.files)
    for command in script.commands:
        gather(context, command)
    before = len(context.launch.plans)
    for command in script.commands:
        read_command(context, command, around or Surroundings())
    if reader.defaulted and len(context.launch.plans) > before:
        taken = ", ".join(reader.defaulted)[:200]
        context.launch.note(
            f"values were taken from ${{VAR:-default}}: {taken}; the caller's environment may change them"
        )
    return script


def read_command(context: Context, command: Command, around: Surroundings) -> None:
    """One command of a script; what starts neither a server nor a run is left alone."""
    own = around.copy()
    environment = dict(command.environment)
    words = unwrap(context, list(command.words), environment, own)
    if not words:
        return
    before = len(context.launch.plans)
    try:
        _dispatch(context, words, environment, own, command)
    except LaunchError as error:
        error.form = context.launch.form if error.form == "unknown" else error.form
        raise
    for plan in context.launch.plans[before:]:
        if command.repeats > 1:
            plan.replicas = command.repeats
            context.launch.note(f"line {command.line}: the loop starts {command.repeats} servers of this kind")
        if any(block in ("if", "case") for block in command.blocks):
            context.launch.note(f"line {command.line}: the {plan.tool} command stands in a branch: it may not run")


def _dispatch(context: Context, words: Words, environment: Environment, around: Surroundings, command: Command) -> None:
    name = base(words[0].text)
    rest = words[1:]
    if name in _CONTAINERS:
        _in_container(context, words, environment, around, command)
        return
    if name == "kubectl" or (name == "oc" and rest):
        _kubectl(context, rest, environment, around, command)
        return
    if name in _SHELLS:
        _inner_shell(context, rest, environment, around, command)
        return
    if name == "ssh" and rest:
        count = skip_options(rest, ("-p", "-i", "-o", "-l", "-L", "-R", "-D", "-F", "-J"))
        inner = " ".join(word.text for word in rest[count + 1 :])
        if inner:
            _again(context, inner, command.line, environment, around)
        return
    if len(words) == 1 and " " in words[0].text:
        _again(context, words[0].text, command.line, environment, around)
        return
    if _PYTHON.fullmatch(name):
        count = skip_options(rest, ("-X", "-W", "--check-hash-based-pycs"))
        flags = [word.text for word in rest[:count]]
        rest = rest[count:]
        if "-c" in flags and rest:
            _python_text(context, rest[0].text, command.line)
            return
        if "-m" in flags and rest:
            start_module(context, rest[0].text, rest[1:], environment, around)
            return
        if (not rest or rest[0].text == "-") and command.heredoc is not None:
            _python_text(context, command.heredoc.body, command.heredoc.line)
            return
        if rest and base(rest[0].text) in LLAMA:
            start_llama(context, base(rest[0].text), rest[1:], environment, around)
            return
        read_training(context, [Argument("python", words[0].line), *rest], environment, around)
        return
    if name == "vllm":
        if rest and rest[0].text == "serve":
            keep(context, read_vllm(context, rest[1:], environment, around))
        elif rest and rest[0].text in ("bench", "chat", "complete"):
            context.launch.note(f"vllm {rest[0].text} is a client, not a server: it needs no plan")
        return
    if name == "sglang" and rest and rest[0].text == "serve":
        keep(context, read_sglang(context, rest[1:], environment, around))
    elif name == "trtllm-serve":
        keep(context, read_trtllm(context, rest, environment, around))
    elif name in LLAMA or re.fullmatch(r"koboldcpp[\w.-]*", name):
        start_llama(context, name, rest, environment, around)
    elif name == "ollama":
        keep(context, read_ollama(context, rest, environment, around))
    elif name == "lms":
        keep(context, read_lms(context, rest, environment, around))
    elif name in NAMED:
        keep(context, start_named(context, NAMED[name], rest, environment, around))
    else:
        read_training(context, words, environment, around)


def _again(context: Context, text: str, line: int, environment: Environment, around: Surroundings) -> None:
    """A string that another shell would read."""
    context.depth += 1
    if context.depth > _DEEPEST:
        raise LaunchError(f"line {line}: shells inside shells, nested too deep", form="shell")
    read_shell(context, text, first_line=line, around=around, environment=environment)
    context.depth -= 1


def _inner_shell(
    context: Context, rest: Words, environment: Environment, around: Surroundings, command: Command
) -> None:
    flags = [word for word in rest if re.fullmatch(r"-[a-z]*c[a-z]*|-[a-z]+", word.text)]
    if any("c" in word.text for word in flags):
        index = next(i for i, word in enumerate(rest) if "c" in word.text and word.text.startswith("-"))
        if index + 1 < len(rest):
            _again(context, rest[index + 1].text, rest[index + 1].line, environment, around)
    elif command.heredoc is not None:
        _again(context, command.heredoc.body, command.heredoc.line, environment, around)
    elif rest:
        found = context.file_text(rest[0].text)
        if found is not None:
            _again(context, found[0], found[1], environment, around)
        elif not rest[0].text.startswith("-"):
            context.launch.skip(f"the script {rest[0].text}", matters=True)


def _kubectl(context: Context, rest: Words, environment: Environment, around: Surroundings, command: Command) -> None:
    texts = [word.text for word in rest]
    if texts[:1] == ["exec"] and "--" in texts:
        inner = rest[texts.index("--") + 1 :]
        words = unwrap(context, inner, environment, around)
        if words:
            _dispatch(context, words, environment, around, command)
    elif command.heredoc is not None:
        from planner.launches.manifests.kubernetes import read_manifests

        body, line = command.heredoc.body, command.heredoc.line
        read_manifests(context, read_yaml(body, form="kubernetes", first_line=line))


def _in_container(
    context: Context, words: Words, environment: Environment, around: Surroundings, command: Command
) -> None:
    texts = [word.text for word in words]
    if texts[1:2] == ["exec"]:
        count = skip_options(words[2:], ("-e", "--env", "-u", "--user", "-w", "--workdir", "--env-file"))
        inner = unwrap(context, words[2 + count + 1 :], environment, around)
        if inner:
            _dispatch(context, inner, environment, around, command)
        return
    inside = dict(environment)
    found = container(context, words, inside, around)
    if found is None:
        return
    image, rest = found
    named = environment.get("NVIDIA_VISIBLE_DEVICES")
    if named is not None and "NVIDIA_VISIBLE_DEVICES" not in inside and around.gpus is None and not around.gpus_unknown:
        inside["NVIDIA_VISIBLE_DEVICES"] = named
    start_image(context, image, rest, inside, around, command, contained=True)


def start_image(
    context: Context,
    image: str,
    words: Words,
    environment: Environment,
    around: Surroundings,
    command: Command | None = None,
    *,
    contained: bool = True,
    replaced: bool = False,
) -> None:
    """What a container starts: its own words where they start something, else the image's entrypoint with them.

    Args:
        replaced: the words stand instead of the entrypoint.
    """
    engine, version, serves = image_engine(image)
    line = words[0].line if words else 1
    command = command or Command(words, line)
    before = len(context.launch.plans)
    first = words[0].text if words else ""
    launches = (
        bool(words)
        and not first.startswith("-")
        and starts_program(first)
        and not (engine == "vllm" and serves and not replaced and base(first) == "vllm")
    )
    if launches or replaced:
        inner = unwrap(context, list(words), environment, around)
        if inner:
            _dispatch(context, inner, environment, around, command)
    elif engine == "vllm" and (serves or any(word.text.startswith("--") for word in words)):
        rest, positional = without_entrypoint(context, list(words), version if serves else None)
        keep(context, read_vllm(context, rest, environment, around, positional_model=positional, contained=contained))
    elif engine == "llama.cpp":
        rest = [word for i, word in enumerate(words) if not (i == 0 and word.text in ("--server", "-s"))]
        keep(context, read_llama(context, rest, environment, around, contained=contained))
    elif engine == "ollama":
        verb = words or [Argument("serve", line)]
        keep(context, read_ollama(context, verb, environment, around, contained=contained))
    elif engine == "sglang" and words and first.startswith("-"):
        keep(context, read_sglang(context, words, environment, around, contained=contained))
    elif engine in ("tgi", "lmdeploy"):
        keep(context, start_named(context, engine, words, environment, around))
    if contained:
        from planner.launches.engines.settling import say_shared_memory

        for plan in context.launch.plans[before:]:
            if plan.kind == "serve":
                say_shared_memory(context, plan, contained=True)


def starts_program(text: str) -> bool:
    """Whether a word is a program that readers here know, or a shell, or a wrapper."""
    name = base(text)
    known = {
        *_SHELLS,
        *LLAMA,
        *NAMED,
        "vllm",
        "sglang",
        "trtllm-serve",
        "ollama",
        "env",
        "torchrun",
        "accelerate",
        "deepspeed",
        "trl",
        "swift",
        "tune",
        "axolotl",
        "llamafactory-cli",
        "nohup",
        "exec",
        "numactl",
        "mpirun",
        "uv",
        "conda",
        "tini",
        "dumb-init",
        "ray",
        "timeout",
        "stdbuf",
        "sudo",
    }
    return name in known or _PYTHON.fullmatch(name) is not None


def _python_text(context: Context, text: str, line: int) -> None:
    from planner.launches.python.reading import read_python

    read_python(context, text, first_line=line)
