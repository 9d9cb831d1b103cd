"""Servers that a script builds: vLLM's LLM and engine arguments, Ray Serve's LLMConfig, SGLang's Engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from planner.launches.around import card_of
from planner.launches.context import Surroundings
from planner.launches.engines.options import options
from planner.launches.engines.server import start_plan
from planner.launches.engines.vllm import finish, put_keyword
from planner.launches.python.module import FoundCall
from planner.launches.python.values import Known, Unknown, unknown_in
from planner.launches.record import LaunchPlan, Value
from planner.launches.shell.expansion import Argument

if TYPE_CHECKING:
    from planner.launches.python.reading import Script

SERVERS: Final = {
    "LLM": "llm",
    "AsyncEngineArgs": "engine",
    "EngineArgs": "engine",
    "LLMConfig": "ray",
    "sgl.Engine": "sglang",
    "sglang.Engine": "sglang",
    "Llama": "llama",
}
_LLAMA: Final = {
    "n_ctx": "ctx-size",
    "n_gpu_layers": "n-gpu-layers",
    "n_batch": "batch-size",
    "n_ubatch": "ubatch-size",
    "flash_attn": "flash-attn",
    "use_mmap": "mmap",
    "use_mlock": "mlock",
    "tensor_split": "tensor-split",
}


def read_server(script: Script, call: FoundCall, around: Surroundings) -> None:
    """The server of one call."""
    kind = SERVERS.get(call.name) or SERVERS[call.last]
    source = script.imports.get(call.last, script.imports.get(call.name.partition(".")[0], ""))
    if kind == "llm" and "tensorrt_llm" in source:
        _simple(script, call, around, "tensorrt-llm", ("model",))
    elif kind == "llm" and ("vllm" in source or not source):
        _vllm(script, call, around, usage="llm-class")
    elif kind == "engine":
        _vllm(script, call, around, usage=None)
    elif kind == "ray":
        _ray(script, call, around)
    elif kind == "sglang":
        _simple(script, call, around, "sglang", ("model_path",))
    elif kind == "llama" and "llama_cpp" in source:
        _llama(script, call, around)


def _visible(script: Script) -> dict[str, Any]:
    """CUDA_VISIBLE_DEVICES that the script sets: os.environ["X"] = "0,1"."""
    import ast

    from planner.launches.shell.expansion import Variable

    found: dict[str, Any] = {}
    for node in script.environment_assignments():
        key, value = node
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            found[key] = Variable(value.value, 1)
            script.context.secrets.keep(key, value.value)
    return found


def _vllm(script: Script, call: FoundCall, around: Surroundings, *, usage: str | None) -> None:
    context = script.context
    environment = _visible(script)
    plan = start_plan(context, "vllm", around, environment)
    if usage is not None:
        plan.inputs["usage-context"] = Value(usage, script.line(call.node), script.file)
    arguments = script.arguments(call, ("model",))
    model: Argument | None = None
    hows: list[str] = []
    known = {option.name.replace("-", "_"): option for option in options("vllm")}
    for name, (value, line, _) in arguments.items():
        if name == "model":
            model = _model(value, line)
            continue
        inner = unknown_in(value.value) if isinstance(value, Known) else None
        value = inner or value
        if isinstance(value, Unknown):
            option = known.get(name)
            if option is not None and option.role in ("input", "compilation"):
                context.launch.need(f"{name} (line {line})", value.why, settle=value.settle or name)
            continue
        if value.how not in ("stated",):
            hows.append(f"{name} ({value.how})")
        put_keyword(context, plan, name, value.value, line, value.how)
    _say_defaults(script, hows, model)
    done = finish(context, plan, model, environment, around, {})
    if done is not None:
        context.add(done)


def _say_defaults(script: Script, hows: list[str], model: Argument | None) -> None:
    if model is not None and model.how != "stated":
        hows = [f"model ({model.how})", *hows]
    if hows:
        script.context.launch.note(
            f"defaults of the script's own options were used: {', '.join(hows)[:300]}; a caller may change them"
        )


def _model(value: Known | Unknown, line: int) -> Argument:
    if isinstance(value, Known) and isinstance(value.value, str):
        return Argument(value.value, line, value.how)
    why = value.why if isinstance(value, Unknown) else "is no text"
    settle = value.settle if isinstance(value, Unknown) and value.settle else "model"
    return Argument("model", line, missing=(settle if settle.isidentifier() else why,))


def _ray(script: Script, call: FoundCall, around: Surroundings) -> None:
    context = script.context
    arguments = script.arguments(call)

    def part(name: str) -> dict[str, Any]:
        value = arguments.get(name)
        return (
            value[0].value
            if value is not None and isinstance(value[0], Known) and isinstance(value[0].value, dict)
            else {}
        )

    loading, engine = part("model_loading_config"), part("engine_kwargs")
    scaling = part("deployment_config").get("autoscaling_config")
    around = around.copy()
    around.name = str(loading.get("model_id")) if loading.get("model_id") else None
    if isinstance(scaling, dict) and isinstance(scaling.get("max_replicas"), int):
        low, high = scaling.get("min_replicas", 1), scaling["max_replicas"]
        around.replicas = f"{low}..{high}" if isinstance(low, int) and high > low else high
    stated = arguments.get("accelerator_type")
    if stated is not None and isinstance(stated[0], Known):
        card = card_of("ray", str(stated[0].value))
        around.card, around.card_key = card.text, card.key
    plan = start_plan(context, "vllm", around, {})
    line = script.line(call.node)
    for name, value in engine.items():
        inner = unknown_in(value)
        if inner is not None:
            context.launch.need(f"{name} (line {line})", inner.why, settle=inner.settle or name)
        else:
            put_keyword(context, plan, name, value, line)
    source = loading.get("model_source") or loading.get("model_id")
    model = Argument(source, line) if isinstance(source, str) else None
    done = finish(context, plan, model, {}, around, {})
    if done is not None:
        context.add(done)


def _simple(script: Script, call: FoundCall, around: Surroundings, engine: str, positional: tuple[str, ...]) -> None:
    from planner.launches.engines.server import map_given, read_given
    from planner.launches.engines.settling import settle_gpus, settle_model

    context = script.context
    plan = start_plan(context, engine, around, {})
    arguments = script.arguments(call, positional)
    model: Argument | None = None
    for name, (value, line, _) in arguments.items():
        if name in ("model", "model_path"):
            model = _model(value, line)
        elif isinstance(value, Known) and unknown_in(value.value) is None:
            given = map_given(engine, {name: value.value})
            read_given(
                context, plan, [type(g)(g.option, g.spelled, g.values, line, g.negated) for g in given], how=value.how
            )
        elif isinstance(value, Unknown) and any(option.name.replace("-", "_") == name for option in options(engine)):
            context.launch.need(f"{name} (line {line})", value.why, settle=value.settle or name)
    if settle_model(context, plan, model, around):
        settle_gpus(context, plan, around, _visible(script))
        context.add(plan)


def _llama(script: Script, call: FoundCall, around: Surroundings) -> None:
    context = script.context
    plan: LaunchPlan = start_plan(context, "llama.cpp", around, {})
    arguments = script.arguments(call, ("model_path",))
    for name, (value, line, _) in arguments.items():
        if name in _LLAMA and isinstance(value, Known) and unknown_in(value.value) is None:
            plan.inputs[_LLAMA[name]] = Value(value.value, line, script.file, value.how)
    path = arguments.get("model_path") or arguments.get("repo_id")
    if path is not None:
        plan.model = path[0].value if isinstance(path[0], Known) else None
    context.launch.need("model", f"the file {plan.model} is not here", settle="model")
    context.add(plan)
