"""llama-server, llama-cli and koboldcpp (llama.cpp common/arg.cpp)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from planner.launches.context import Context, Surroundings
from planner.launches.documents import Map
from planner.launches.engines.options import parse
from planner.launches.engines.server import from_environment, map_given, read_given, start_plan
from planner.launches.engines.settling import settle_gpus, settle_model
from planner.launches.record import LaunchPlan
from planner.launches.shell.expansion import Argument, Variable


def read_llama(
    context: Context,
    words: Sequence[Argument],
    environment: Mapping[str, Variable],
    around: Surroundings,
    *,
    variant: str | None = None,
    contained: bool = False,
) -> LaunchPlan | None:
    """The llama-server (or llama-cli) of these words and of its LLAMA_ARG_ environment."""
    tool = "koboldcpp" if variant == "koboldcpp" else "llama.cpp"
    plan = start_plan(context, "llama.cpp", around, environment)
    plan.variant = variant
    given, positional = parse(tool, words, exact=True)
    if tool == "koboldcpp":
        plan.tool = "koboldcpp"
        others = read_given(context, plan, given)
        plan.tool = "llama.cpp"
    else:
        others = read_given(context, plan, given)
        from_environment(context, plan, environment)
    if plan.get("mmap") is False:
        context.launch.note("--no-mmap: the whole file is copied into host memory on its way to the card")
    roles = {option.role: option for option in _llama_sources()}
    model: Argument | None = None
    for role in ("model", "hub", "url"):
        one = others.get(role)
        if one is not None and one.values:
            model = one.values[0]
            break
        variable = environment.get(roles[role].environment) if role in roles else None
        if variable is not None:
            model = Argument(variable.text, variable.line, "environment", variable.missing)
            break
    if model is None and tool == "koboldcpp" and positional:
        model = positional[0]
    if not settle_model(context, plan, model, around):
        return None
    hub_file = others.get("hubfile")
    if hub_file is not None and hub_file.values:
        plan.model = f"{plan.model}/{hub_file.values[0].text}"
    if "hub" in others and ":" not in (plan.model or "").rpartition("/")[2] and hub_file is None:
        context.launch.note("-hf without a quantisation takes Q4_K_M, else the first file of the repository")
    if "hub" in others:
        context.launch.note("-hf also loads the repository's projector (mmproj) when there is one")
    elif model is not None and plan.model is not None and not any(plan.model in need for need in context.launch.needs):
        context.launch.need("model", f"the GGUF file {plan.model} is not here", settle="model")
    _llama_devices(context, plan, around, environment)
    return plan


def read_kobold_settings(context: Context, node: Map) -> LaunchPlan | None:
    """koboldcpp's saved settings (.kcpps): its options as keys; most touch no memory."""
    words: list[Argument] = []
    for one in map_given("koboldcpp", node):
        if one.option is None or (one.option.kind == "switch" and one.negated):
            continue
        words += [Argument(one.option.spellings[0], one.line), *one.values]
    if "model" not in node or not node["model"]:
        words += [Argument(str(node.get("model_param") or ""), node.line_of("model_param"))]
    return read_llama(context, [word for word in words if word.text], {}, Surroundings(), variant="koboldcpp")


def _llama_sources() -> list[Any]:
    from planner.launches.engines.options import options

    return [option for option in options("llama.cpp") if option.role in ("model", "hub", "url")]


def _llama_devices(
    context: Context, plan: LaunchPlan, around: Surroundings, environment: Mapping[str, Variable]
) -> None:
    split = plan.get("tensor-split")
    devices = plan.get("device")
    settle_gpus(context, plan, around, environment)
    if isinstance(split, list) and plan.gpus is None:
        plan.gpus = len(split)
        if len(set(split)) > 1:
            context.launch.note(
                f"the split {','.join(str(one) for one in split)} means unequal parts on {len(split)} devices"
            )
    elif isinstance(devices, str) and plan.gpus is None and devices != "none":
        plan.gpus = len(devices.split(","))
    slots, total = plan.get("parallel"), plan.get("ctx-size")
    if isinstance(slots, int) and isinstance(total, int) and slots > 1 and total:
        context.launch.note(f"{total} tokens are the total: {total // slots} a slot with {slots} slots")
    value_type = plan.get("cache-type-v")
    if value_type not in (None, "f16", "f32", "bf16") and plan.get("flash-attn") == "off":
        context.launch.note(
            f"a {value_type} value cache needs flash attention, which is off: llama.cpp refuses to start"
        )
    if plan.host.get("memory_limit_bytes") and "cache-ram" not in plan.inputs:
        context.launch.note("--cache-ram is 8192 MiB of host memory by default: it counts to the container's limit")
