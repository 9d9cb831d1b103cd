"""vLLM's command lines and option files: `vllm serve`, api_server, --config, LLM(...), what others hand on.

Source: vllm/utils/argparse_utils.py, vllm/entrypoints/openai/cli_args.py, vllm/engine/arg_utils.py (0.6.6 to main of
2026-09).
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

from planner.launches.context import Context, Surroundings
from planner.launches.engines.options import Given, human_int, parse, read_value
from planner.launches.engines.server import config_given, from_environment, map_given, read_given, start_plan
from planner.launches.engines.settling import say_shared_memory, settle_gpus, settle_model
from planner.launches.record import LaunchError, LaunchPlan, Value
from planner.launches.shell.expansion import Argument, Variable

TOOL = "vllm"
_RELEASE = re.compile(r"(\d+)\.(\d+)(?:\.(\d+))?")
# The image's entrypoint is the api_server module until about here, `vllm serve` from then on (vllm#27389, #37133).
_SERVE_IMAGE_FROM = (0, 12)


def read_vllm(
    context: Context,
    words: Sequence[Argument],
    environment: Mapping[str, Variable],
    around: Surroundings,
    *,
    positional_model: bool = True,
    contained: bool = False,
) -> LaunchPlan | None:
    """The server that these words behind `vllm serve` (or the module) start; None when there is no model."""
    plan = start_plan(context, TOOL, around, environment)
    given, positional = parse(TOOL, words)
    config = next((one for one in given if one.option is not None and one.option.name == "config"), None)
    model_word = None
    if config is not None and config.values:
        model_word = _read_config(context, plan, config)
    others = read_given(context, plan, given)
    doubled = [one for one in positional if one.text in ("serve", "vllm")]
    if doubled:
        context.launch.note(
            f"line {doubled[0].line}: {doubled[0].text!r} is doubled: the server does not start like this"
        )
        positional = [one for one in positional if one.text not in ("serve", "vllm")]
    stated = others["model"].values[0] if "model" in others and others["model"].values else None
    first = positional[0] if positional else None
    if first is not None and not first.missing and any(c.isspace() for c in first.text):
        context.launch.note(
            f"line {first.line}: one argument holds several words; the server would not know them apart"
        )
    extra = positional[1:] if positional_model and first is not None and stated is None else positional
    glued = [one for one in extra if one.text.startswith(" --") or one.text.strip().startswith("--")]
    if glued:
        context.launch.note(f"line {glued[0].line}: a blank is glued to an option: the server does not know it")
        context.launch.skip(f"{glued[0].text.strip().split(' ')[0][:60]} (line {glued[0].line})", matters=True)
    model = stated or (first if positional_model else None) or model_word
    if stated is not None and first is not None and positional_model and first.text != stated.text:
        raise LaunchError(f"line {first.line}: two models are named, {first.text[:100]} and {stated.text[:100]}")
    return finish(context, plan, model, environment, around, others, contained=contained)


def finish(
    context: Context,
    plan: LaunchPlan,
    model: Argument | None,
    environment: Mapping[str, Variable],
    around: Surroundings,
    others: Mapping[str, Given],
    *,
    contained: bool = False,
) -> LaunchPlan | None:
    """The plan with its model, environment, number of GPUs and what must be said."""
    if not settle_model(context, plan, model, around):
        return None
    from_environment(context, plan, environment)
    _release_environment(context, plan, environment)
    if "lora" in others:
        context.launch.note("--lora-modules brings adapters: they take memory only with --enable-lora and its slots")
    if around.nodes is None and "nodes" in others and others["nodes"].values:
        around = around.copy()
        around.nodes = read_value("int", others["nodes"].values[0].text, name="--nnodes", line=others["nodes"].line)
    backend = others.get("backend")
    if backend is not None and backend.values and backend.values[0].text == "ray":
        around = around.copy()
        around.group_gpus = True
    settle_gpus(context, plan, around, environment)
    say_shared_memory(context, plan, contained=contained)
    buffer = plan.further.get("kv-offloading-size")
    if buffer is not None and re.fullmatch(r"\d+(\.\d+)?", str(buffer.value)):
        plan.host["kv_offload_bytes"] = round(float(buffer.value) * (1 << 30))
    return plan


def _read_config(context: Context, plan: LaunchPlan, config: Given) -> Argument | None:
    """--config FILE: below the command line; with `=` behind the option it is not pulled in."""
    name = config.values[0].text
    found = None if config.values[0].missing else context.file_text(name)
    if found is None:
        context.launch.skip(f"--config {name} (line {config.line})", matters=True)
        context.launch.need(f"the file {name}", "is not here; options may stand in it")
        return None
    given, raw = config_given(context, TOOL, found[0], found[1], found[2])
    others = read_given(context, plan, given, file=found[2], how=f"--config {name}")
    context.launch.note(f"the command line wins over {name}")
    dropped_false(context, raw)
    return others["model"].values[0] if "model" in others and others["model"].values else None


def dropped_false(context: Context, config: Mapping[str, Any]) -> None:
    """`some_name: false` with underscores is dropped by vLLM's own reader of such files."""
    for key, value in config.items():
        if value is False and "_" in str(key):
            context.launch.note(
                f"{str(key)[:60]}: false is spelt with underscores: vLLM drops it silently; write dashes"
            )


def read_config_file(context: Context, config: Mapping[str, Any], around: Surroundings) -> LaunchPlan | None:
    """A file of flags by itself, as `vllm serve --config FILE` takes it."""
    plan = start_plan(context, TOOL, around, {})
    given = map_given(TOOL, config)
    others = read_given(context, plan, given)
    dropped_false(context, config)
    context.launch.note("a command line given with the file would win over it")
    model = others["model"].values[0] if "model" in others and others["model"].values else None
    if model is None and "model_tag" in config:
        model = Argument(str(config["model_tag"]), 1)
    return finish(context, plan, model, {}, around, others)


def put_keyword(context: Context, plan: LaunchPlan, name: str, value: Any, line: int, how: str = "stated") -> None:
    """One keyword of LLM(...), AsyncEngineArgs(...), engine_kwargs: names as the options, values as Python has them."""
    if name in ("model", "model_id", "model_source"):
        return
    if isinstance(value, str) and name in ("max_model_len", "max_num_batched_tokens", "kv_cache_memory_bytes"):
        try:
            value = human_int(value)
        except ValueError:
            context.launch.need(name, f"line {line}: not a number")
            return
    given = map_given(TOOL, {name: value})
    placed = [
        Given(g.option, g.spelled, tuple(Argument(v.text, line) for v in g.values), line, g.negated) for g in given
    ]
    read_given(context, plan, placed, how=how)


def _release_environment(context: Context, plan: LaunchPlan, environment: Mapping[str, Variable]) -> None:
    """Variables that only some releases read."""
    rows = csv.DictReader(files("planner.launches.tables").joinpath("environment.csv").read_text("utf-8").splitlines())
    for row in rows:
        variable = environment.get(row["variable"])
        if variable is None or row["engine"] != TOOL:
            continue
        value = dict(pair.split("=") for pair in row["values"].split(";")).get(variable.text.strip().lower())
        bounded = bool(row["from"] or row["below"])
        if value is None or (bounded and not _within(plan.version, row["from"], row["below"])):
            if bounded:
                context.launch.note(
                    f"{row['variable']} has no effect here: it is of releases {row['from']} to"
                    f" {row['below'] or 'the newest'}"
                )
            continue
        read = True if value == "true" else value
        plan.inputs[row["input"]] = Value(read, variable.line, context.file, "environment")
    if "VLLM_ATTENTION_BACKEND" in environment:
        context.launch.note("VLLM_ATTENTION_BACKEND is set: the attention backend is not an input here")


def _within(version: str | None, low: str, high: str) -> bool:
    if version is None:
        return False
    asked = release(version)
    return (not low or release(low) <= asked) and (not high or asked < release(high))


def release(version: str) -> tuple[int, int, int]:
    """Major, minor and patch of a version."""
    found = _RELEASE.match(version)
    return (int(found[1]), int(found[2]), int(found[3] or 0)) if found else (0, 0, 0)


def without_entrypoint(context: Context, words: list[Argument], version: str | None) -> tuple[list[Argument], bool]:
    """(the server's own words behind the image, whether a positional model is taken)."""
    serves = version is None or release(version)[:2] >= _SERVE_IMAGE_FROM
    texts = [word.text for word in words[:3]]
    for doubled, count in (("vllm serve", 2), ("serve", 1)):
        if " ".join(texts[:count]) == doubled:
            context.launch.note(
                f"the image starts the server itself: {doubled!r} doubled does not start; planned as it was meant"
            )
            return words[count:], True
    if texts[:1] and not texts[0].startswith("-") and not serves:
        context.launch.note(
            f"the image's entrypoint at {version} is the api_server module, which takes no positional model:"
            " write --model"
        )
    return words, True
