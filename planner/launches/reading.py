"""A text of any form to its launch: recognised, read within bounds, nothing run."""

from __future__ import annotations

import re
from typing import Any, Final

from planner.launches import recognise
from planner.launches.cleaning import clean_launch
from planner.launches.context import Context, Surroundings
from planner.launches.documents import Map, as_map, read_json, read_yaml
from planner.launches.engines.files import sglang_config
from planner.launches.engines.llama_cpp import read_kobold_settings
from planner.launches.engines.others import read_trtllm_options
from planner.launches.engines.server import config_given, start_plan
from planner.launches.engines.vllm import read_config_file
from planner.launches.manifests import compose, kubernetes, llama_swap, modelfile, ray, systemd, values
from planner.launches.record import Launch, LaunchError, LaunchPlan, Settings
from planner.launches.settling import apply_settings
from planner.launches.sharing import say_sharing
from planner.launches.shell.commands import read_shell
from planner.launches.shell.prompts import offer_cards, without_prompts
from planner.launches.shell.slurm import slurm_environment
from planner.launches.shell.wrappers import slurm_words
from planner.launches.trainers.files import read_file

LARGEST_TEXT: Final = 4 << 20
_SHELL_FENCES: Final = (
    "",
    "sh",
    "bash",
    "shell",
    "console",
    "zsh",
    "powershell",
    "pwsh",
    "bat",
    "cmd",
    "text",
    "shell-session",
    "terminal",
    "fish",
)


def read_launch(text: str, *, name: str = "", settings: Settings | None = None) -> Launch:
    """The launch that a text holds; what cannot be read is its `error`, never an exception.

    Args:
        name: of the file, for the form and for messages.
    """
    context = Context(launch=Launch(file=name, form="unknown"), settings=settings or Settings())
    launch = context.launch
    try:
        if len(text) > LARGEST_TEXT:
            raise LaunchError(f"the text is too large: more than {LARGEST_TEXT >> 20} MiB")
        read_text(context, text)
        if launch.error is None and not launch.plans:
            if launch.needs:
                launch.error = f"{launch.needs[0]}"
            else:
                launch.error = (
                    "nothing here starts a server or a training run: looked for servers, trainers, manifests and"
                    " scripts"
                )
        apply_settings(launch, context.settings.values)
        say_sharing(launch)
    except LaunchError as error:
        launch.error = str(error)
        launch.form = error.form if error.form not in ("unknown", "yaml", "json") else launch.form
        for need in error.needs:
            launch.needs.append(need)
    except (ValueError, OverflowError):
        launch.error = "a number in the text is none, or too large to be one"
    except (RecursionError, MemoryError):
        launch.error = "the text is nested too deep to be read"
    if launch.error is not None:
        launch.plans = []
    clean_launch(context)
    return launch


def read_text(context: Context, text: str, *, first_line: int = 1) -> None:
    """Put what a text holds into the context's launch, with its form where that is not known yet.

    Raises:
        LaunchError: broken, too large, a template, or of no known form.
    """
    name = context.file
    text = text.removeprefix("\ufeff")
    unix = text.replace("\r\n", "\n")
    if unix.lstrip().startswith("{") and _json(context, unix):
        return
    if recognise.is_unit(unix):
        _form(context, "systemd")
        systemd.read_unit(context, unix)
    elif recognise.is_template(unix):
        raise LaunchError(
            "this is a chart's template, not a manifest: give the output of 'helm template', or the chart's"
            " values file",
            form="helm-template",
            needs=tuple(recognise.template_needs(unix)),
        )
    elif recognise.looks_like_yaml(unix, name) and _yaml(context, unix, first_line):
        return
    elif recognise.is_modelfile(unix) and not re.search(r"^\s*RUN\s", unix, re.MULTILINE):
        _form(context, "modelfile")
        modelfile.read_modelfile(context, unix)
    elif recognise.is_dockerfile(unix):
        _form(context, "shell")
        modelfile.read_dockerfile(context, unix)
    elif recognise.looks_like_markdown(unix, name):
        _form(context, "shell")
        _markdown(context, unix)
    elif recognise.looks_like_python(unix, name):
        from planner.launches.python.reading import read_python

        _form(context, "python")
        read_python(context, unix, first_line=first_line)
    elif re.search(r"^#SBATCH\b", unix, re.MULTILINE):
        _form(context, "slurm")
        _slurm(context, text)
    elif recognise.looks_like_shell(unix):
        _form(context, "shell")
        _shell(context, text, first_line)


def _form(context: Context, form: str) -> None:
    if context.launch.form == "unknown":
        context.launch.form = form


def _shell(context: Context, text: str, first_line: int = 1) -> None:
    script = read_shell(context, without_prompts(text), first_line=first_line)
    offer_cards(context, script.comments)


def _slurm(context: Context, text: str) -> None:
    around = Surroundings()
    words: list[str] = []
    for line in text.replace("\r\n", "\n").split("\n"):
        found = re.match(r"#SBATCH\s+(.*)", line)
        if found:
            words += re.split(r"\s+#", found[1])[0].split()
    slurm_words(context, words, around)
    name = next((word.partition("=")[2] for word in words if word.startswith("--job-name=")), None)
    environment = slurm_environment(words, around)
    script = read_shell(context, text, around=around, environment=environment)
    offer_cards(
        context,
        [(line, comment) for line, comment in script.comments if not comment.startswith(("SBATCH", "#SBATCH", "!"))],
    )
    for plan in context.launch.plans:
        plan.name = plan.name or name


def _markdown(context: Context, text: str) -> None:
    lines = text.split("\n")
    prose: list[tuple[int, str]] = []
    index = 0
    while index < len(lines):
        fence = re.match(r"[ \t]{0,3}(```+|~~~+)\s*([\w+-]*)", lines[index])
        if fence is None:
            prose.append((index + 1, lines[index][:300]))
            index += 1
            continue
        start = index + 1
        index = start
        while index < len(lines) and not lines[index].lstrip().startswith(fence[1]):
            index += 1
        _block(context, fence[2].lower(), "\n".join(lines[start:index]), start + 1)
        index += 1
    offer_cards(context, prose)


def _block(context: Context, language: str, body: str, line: int) -> None:
    try:
        if language in ("yaml", "yml"):
            if recognise.is_template(body):
                context.launch.skip(f"a chart's template in the block of line {line}", matters=True)
            else:
                _yaml(context, body, line)
        elif language in ("python", "py"):
            from planner.launches.python.reading import read_python

            read_python(context, body, first_line=line)
        elif language in _SHELL_FENCES and recognise.looks_like_shell(body):
            _shell(context, body, line)
    except LaunchError as error:
        context.launch.skip(f"the block of line {line}: {error}", matters=True)


def _json(context: Context, text: str) -> bool:
    """A notebook, a DeepSpeed or FSDP config, a manifest; False for text that only begins like JSON."""
    name = context.file
    try:
        found = read_json(text, form="json")
    except LaunchError as error:
        keys = set(re.findall(r'"(\w+)"\s*:', text[:20_000]))
        form = (
            "notebook"
            if name.endswith(".ipynb") or {"cells", "nbformat"} <= keys
            else "deepspeed"
            if keys & {"zero_optimization", "train_micro_batch_size_per_gpu"}
            else "json"
        )
        if name.endswith((".json", ".ipynb")) or form != "json":
            raise LaunchError(str(error), form=form) from None
        return False
    if not isinstance(found, Map):
        return False
    if "cells" in found and "nbformat" in found:
        from planner.launches.python.notebook import read_notebook

        _form(context, "notebook")
        read_notebook(context, found)
        return True
    return _document(context, [found])


def _yaml(context: Context, text: str, first_line: int) -> bool:
    """One or several YAML documents of a known form; False when no form is told by the keys."""
    try:
        documents = read_yaml(text, first_line=first_line)
    except LaunchError as error:
        guessed = recognise.form_of_map(recognise.top_keys(text))
        if re.search(r"^\s*\{\{|:\s*\{\{", text, re.MULTILINE):
            raise LaunchError(
                "this is a template, not a manifest: give the output of 'helm template', or the values file",
                form="helm-template",
                needs=tuple(recognise.template_needs(text)),
            ) from None
        if guessed is None and not context.file.endswith((".yaml", ".yml")):
            return False
        raise LaunchError(f"{error}", form=guessed or "yaml") from None
    documents = [document for document in documents if document is not None]
    return _document(context, documents)


def _document(context: Context, documents: list[Any]) -> bool:
    if any(isinstance(one, Map) and {"apiVersion", "kind"} <= set(one) for one in documents):
        _form(context, kubernetes.form_of(documents))
        kubernetes.read_manifests(context, documents)
        return True
    known = False
    for document in documents:
        node = as_map(document)
        form = recognise.form_of_map([str(key) for key in node], node) if node else None
        if form is None:
            continue
        known = True
        _form(context, form)
        _of_form(context, form, node)
    return known


def _of_form(context: Context, form: str, node: Map) -> None:
    if form == "compose":
        compose.read_compose(context, node)
    elif form == "ray":
        ray.read_config(context, node)
    elif form == "helm-production-stack":
        values.read_production_stack(context, node)
    elif form == "helm-llm-d":
        values.read_llm_d(context, node)
    elif form == "llama-swap":
        llama_swap.read_llama_swap(context, node)
    elif form == "vllm-config":
        if (
            "model-path" in node
            or "model_path" in node
            or "mem-fraction-static" in node
            or "mem_fraction_static" in node
        ):
            sglang_config(context, node)
        else:
            _keep(context, read_config_file(context, node, Surroundings()))
    elif form == "koboldcpp-settings":
        _keep(context, read_kobold_settings(context, node))
    elif form == "tensorrt-llm-options":
        plan = start_plan(context, "tensorrt-llm", Surroundings(), {})
        read_trtllm_options(context, plan, node, context.file)
        context.launch.need("model", "an options file of trtllm-serve has none of its own", settle="model")
        plan.model = context.settings.values.get("model")
        context.add(plan)
    else:
        read_file(context, form, node)


def _keep(context: Context, plan: LaunchPlan | None) -> None:
    if plan is not None:
        context.add(plan)


__all__ = ["LARGEST_TEXT", "config_given", "read_launch", "read_text"]
