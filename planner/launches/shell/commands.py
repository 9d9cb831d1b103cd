"""Commands to plans: wrappers off, then the reader of the program that is left."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

from planner.launches.around import image_engine
from planner.launches.context import Context, Surroundings
from planner.launches.documents import read_yaml
from planner.launches.engines.others import read_llama, read_lms, read_ollama, read_sglang, read_trtllm
from planner.launches.engines.server import start_plan
from planner.launches.engines.vllm import read_vllm, without_entrypoint
from planner.launches.record import LaunchError, LaunchPlan, Value
from planner.launches.shell.script import Argument, Command, Reader, Script, Variable
from planner.launches.shell.wrappers import base, container, skip_options, state_version, unwrap
from planner.launches.trainers.launchers import read_training

Words = list[Argument]
Environment = dict[str, Variable]

_CONTAINERS: Final = ("docker", "podman", "nerdctl")
_SHELLS: Final = ("sh", "bash", "zsh", "dash", "ash")
_PYTHON: Final = re.compile(r"python[0-9.]*")
_INSTALLERS: Final = ("pip", "pip3", "uv", "conda", "mamba", "poetry", "pipx")
_DEEPEST: Final = 8
_LLAMA: Final = {
    "llama-server": None,
    "llama-cli": None,
    "llama-run": None,
    "koboldcpp": "koboldcpp",
    "koboldcpp.py": "koboldcpp",
    "llama-server-ik": "ik_llama.cpp",
}
# Engines that are told apart and that no release of the planner plans.
_NAMED: Final = {
    "text-generation-launcher": "tgi",
    "lmdeploy": "lmdeploy",
    "mlc_llm": "mlc-llm",
    "tritonserver": "triton",
}


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
        _gather(context, command)
    before = len(context.launch.plans)
    for command in script.commands:
        read_command(context, command, around or Surroundings())
    if reader.defaulted and len(context.launch.plans) > before:
        taken = ", ".join(reader.defaulted)[:200]
        context.launch.note(
            f"values were taken from ${{VAR:-default}}: {taken}; the caller's environment may change them"
        )
    return script


def _gather(context: Context, command: Command) -> None:
    """Versions of pip lines, and models that are downloaded to a folder."""
    texts = [word.text for word in command.words]
    if base(texts[0]) in (*_INSTALLERS, "python", "python3") and "install" in texts[:5] + ["install"] * (
        texts[1:2] == ["add"]
    ):
        for text in texts[2:]:
            state_version(context, text, "pip install line")
    download_of(context, texts)


def download_of(context: Context, texts: list[str]) -> None:
    """`hf download REPO --local-dir DIR` and its likes: the model that a folder will hold."""
    if len(texts) < 3:
        return
    name = base(texts[0])
    start = 2 if (name in ("hf", "huggingface-cli", "modelscope") and texts[1] == "download") else None
    if name == "ollama" and texts[1] == "pull":
        context.downloads[texts[2]] = texts[2]
        return
    if start is None:
        return
    repository = folder = None
    index = start
    while index < len(texts):
        head, equals, value = texts[index].partition("=")
        if head in (
            "--local-dir",
            "--local_dir",
            "--cache-dir",
            "--revision",
            "--include",
            "--exclude",
            "--token",
            "--model",
        ):
            value = value if equals else texts[index + 1] if index + 1 < len(texts) else ""
            index += 0 if equals else 1
            folder = value.rstrip("/") if head in ("--local-dir", "--local_dir") else folder
            repository = value if head == "--model" else repository
        elif not texts[index].startswith("-") and repository is None:
            repository = texts[index]
        index += 1
    if repository and folder:
        context.downloads[folder] = repository


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
            _module(context, rest[0].text, rest[1:], environment, around)
            return
        if (not rest or rest[0].text == "-") and command.heredoc is not None:
            _python_text(context, command.heredoc.body, command.heredoc.line)
            return
        if rest and base(rest[0].text) in _LLAMA:
            _llama(context, base(rest[0].text), rest[1:], environment, around)
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
    elif name in _LLAMA or re.fullmatch(r"koboldcpp[\w.-]*", name):
        _llama(context, name, rest, environment, around)
    elif name == "ollama":
        keep(context, read_ollama(context, rest, environment, around))
    elif name == "lms":
        keep(context, read_lms(context, rest, environment, around))
    elif name in _NAMED:
        keep(context, _named(context, _NAMED[name], rest, environment, around))
    else:
        read_training(context, words, environment, around)


def keep(context: Context, plan: LaunchPlan | None) -> None:
    """Keep what a reader found."""
    if plan is not None:
        context.add(plan)


def _llama(context: Context, name: str, rest: Words, environment: Environment, around: Surroundings) -> None:
    variant = "koboldcpp" if name.startswith("koboldcpp") else _LLAMA.get(name)
    keep(context, read_llama(context, rest, environment, around, variant=variant))


def _named(
    context: Context, engine: str, rest: Words, environment: Environment, around: Surroundings
) -> LaunchPlan | None:
    """An engine that is only named: its model, so that people see what was read."""
    model = None
    for index, word in enumerate(rest):
        head, equals, value = word.text.partition("=")
        if head in ("--model-id", "--model", "--model-path") and (equals or index + 1 < len(rest)):
            model = value if equals else rest[index + 1].text
    plan = start_plan(context, engine, around, environment)
    plan.model, plan.gpus = model, around.gpus
    if model is None:
        context.launch.need("model", "none is stated", settle="model")
    return plan


def _module(context: Context, module: str, rest: Words, environment: Environment, around: Surroundings) -> None:
    if module in ("vllm.entrypoints.openai.api_server", "vllm.entrypoints.api_server", "dynamo.vllm"):
        keep(context, read_vllm(context, rest, environment, around, positional_model=False))
    elif module == "vllm.entrypoints.cli.main" and rest[:1] and rest[0].text == "serve":
        keep(context, read_vllm(context, rest[1:], environment, around))
    elif module in ("sglang.launch_server", "dynamo.sglang"):
        keep(context, read_sglang(context, rest, environment, around))
    elif module == "dynamo.trtllm":
        moved = [Argument(word.text, word.line, word.how, word.missing) for word in rest]
        model = next((i for i, word in enumerate(moved) if word.text in ("--model-path", "--model")), None)
        if model is not None and model + 1 < len(moved):
            moved = [moved[model + 1], *moved[:model], *moved[model + 2 :]]
        keep(context, read_trtllm(context, moved, environment, around))
    elif module in ("tensorrt_llm.commands.serve",):
        keep(context, read_trtllm(context, rest, environment, around))
    elif module == "llama_cpp.server":
        context.launch.note("llama_cpp.server spells its options in its own way: only the shared ones are read")
        keep(context, read_llama(context, rest, environment, around))
    else:
        read_training(
            context,
            [Argument("python", 0), Argument("-m", 0), Argument(module, rest[0].line if rest else 0), *rest],
            environment,
            around,
        )


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
        keep(context, _named(context, engine, words, environment, around))
    if contained:
        from planner.launches.engines.server import say_shared_memory

        for plan in context.launch.plans[before:]:
            if plan.kind == "serve":
                say_shared_memory(context, plan, contained=True)


def starts_program(text: str) -> bool:
    """Whether a word is a program that readers here know, or a shell, or a wrapper."""
    name = base(text)
    known = {
        *_SHELLS,
        *_LLAMA,
        *_NAMED,
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


def comment_hints(context: Context, script: Script, cards: Callable[[str], str | None]) -> None:
    """A card that a comment names is offered, not taken."""
    for line, text in script.comments[:2000]:
        card = cards(text)
        if card is not None:
            context.launch.note(
                f"line {line}: the words {card!r} stand in a comment: they may be offered as --gpu, not assumed"
            )


def stated(value: object, line: int, context: Context) -> Value:
    """A value of this source."""
    return Value(value, line, context.file)
