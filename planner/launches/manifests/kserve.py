"""KServe: InferenceService with its runtimes, LLMInferenceService (serving.kserve.io v1alpha1, v1alpha2, v1beta1)."""

from __future__ import annotations

import re
from typing import Any

from planner.launches.around import image_engine
from planner.launches.context import Context, Surroundings
from planner.launches.documents import Map, as_list, as_map, at_path, text_of
from planner.launches.engines.options import Given, options, parse
from planner.launches.engines.server import read_given, start_plan
from planner.launches.engines.vllm import finish
from planner.launches.manifests.pod_cards import pod_card
from planner.launches.manifests.pods import PodPlace, container_words, devices, memory, pod_environment, read_pod
from planner.launches.record import LaunchPlan, Value
from planner.launches.shell.expansion import Argument, Variable
from planner.launches.shell.script import Reader

_MOUNT = "/mnt/models"
_HUB = re.compile(r"(?:hf|huggingface)://(.+)")


def read_object(context: Context, one: Map, name: str, objects: list[Map]) -> None:
    """One KServe object."""
    kind = str(one.get("kind"))
    if kind == "InferenceService":
        _service(context, one, name, objects)
    elif kind.startswith("LLMInferenceService"):
        _llm_service(context, one, name)
    elif not any(str(other.get("kind")) == "InferenceService" for other in objects):
        before = len(context.launch.plans)
        read_pod(context, as_map(one.get("spec")), PodPlace(name, 1, plain_name=True))
        if len(context.launch.plans) == before and as_list(at_path(one, "spec.containers")):
            context.launch.need("model", "a runtime has none of its own: the InferenceService names it", settle="model")


def _replicas(spec: Map) -> int | str:
    low, high = spec.get("minReplicas"), spec.get("maxReplicas")
    low = low if isinstance(low, int) else 1
    return f"{low}..{high}" if isinstance(high, int) and high > low else low


def _storage(context: Context, uri: str | None) -> tuple[dict[str, str], str | None]:
    """({folder: model} of a storage URI, the model itself)."""
    if not uri:
        return {}, None
    found = _HUB.fullmatch(uri)
    if found:
        model = found[1].partition("@")[0]
        model = model.rsplit(":", 1)[0] if ":" in model else model
        return {_MOUNT: model}, model
    return {_MOUNT: uri}, uri


def _service(context: Context, one: Map, name: str, objects: list[Map]) -> None:
    predictor = as_map(at_path(one, "spec.predictor"))
    replicas = _replicas(predictor)
    model = as_map(predictor.get("model"))
    if not model:
        framework = next(
            (as_map(predictor[key]) for key in ("huggingface", "vllm", "triton") if key in predictor), Map()
        )
        model = framework
    if not model:
        read_pod(context, predictor, PodPlace(name, replicas, plain_name=True))
        return
    models, source = _storage(context, text_of(model.get("storageUri")) or text_of(at_path(model, "storage.path")))
    runtime_name = text_of(model.get("runtime"))
    runtime = next(
        (
            r
            for r in objects
            if str(r.get("kind")).endswith("ServingRuntime") and at_path(r, "metadata.name") == runtime_name
        ),
        None,
    )
    environment = pod_environment(context, model)
    words = container_words(context, model, environment)
    around = Surroundings(models=models, replicas=replicas, name=name)
    devices(context, model, around)
    memory(model, predictor, around)
    card = pod_card(context, predictor)
    if card is not None:
        around.card, around.card_key = card.text, card.key
        for text in (card.note, card.need):
            if text:
                context.launch.note(text)
    worker = as_map(predictor.get("workerSpec"))
    if runtime is not None:
        container = as_map((as_list(at_path(runtime, "spec.containers")) or [Map()])[0])
        below = pod_environment(context, container)
        _, version, _ = image_engine(text_of(container.get("image")) or "")
        if version is not None:
            around.version, around.version_source = version, "image tag"
        words = [*container_words(context, container, below), *words]
        environment = {**below, **environment}
        if around.gpus is None:
            devices(context, container, around)
        if "memory_limit_bytes" not in around.host:
            memory(container, as_map(runtime.get("spec")), around)
    elif runtime_name:
        context.launch.skip(f"the runtime {runtime_name}", matters=True)
    format_name = (text_of(at_path(model, "modelFormat.name")) or "").lower()
    if format_name not in ("huggingface", "vllm", "") and not any("vllm" in word.text for word in words):
        context.launch.need("engine", f"the model format {format_name} is not served by an engine that is known here")
        return
    plan = _hugging_face(context, words, environment, around, source, worker)
    if plan is not None:
        context.add(plan)
        if format_name == "huggingface":
            context.launch.note(
                "the huggingface runtime serves with vLLM where the architecture allows; its vLLM release depends on"
                " KServe's, which is not stated"
            )


def _hugging_face(
    context: Context,
    words: list[Argument],
    environment: dict[str, Variable],
    around: Surroundings,
    source: str | None,
    worker: Map,
) -> LaunchPlan | None:
    """The huggingface runtime's arguments: --model_id and --model_name beside vLLM's own."""
    plan = start_plan(context, "vllm", around, environment)
    given, _ = parse("vllm", [word for word in words if word.text.startswith("-") or not _program(word.text)])
    ids = [g for g in given if g.spelled.replace("_", "-") == "--model-id"]
    others = read_given(context, plan, given)
    for key, option in (
        ("tensorParallelSize", "tensor-parallel-size"),
        ("pipelineParallelSize", "pipeline-parallel-size"),
    ):
        size = worker.get(key)
        if isinstance(size, int) and option not in plan.inputs:
            plan.inputs[option] = Value(size, worker.line_of(key), context.file)
    if worker:
        pods = plan.get("pipeline-parallel-size", 1)
        around.group_gpus, around.nodes = True, pods
        around.gpus = around.gpus * pods if around.gpus is not None else None
    stated = ids[-1] if ids else others.get("model") if not source else None
    model = stated.values[0] if stated is not None and stated.values else Argument(_MOUNT, 1) if source else None
    if model is None and "model" in others and others["model"].values:
        model = others["model"].values[0]
    if any(g.spelled.replace("_", "-") == "--model-name" for g in given):
        context.launch.note("--model_name is an alias, not the model")
    if plan.tool == "vllm" and model is not None and "{{" in model.text:
        model = None
    return finish(context, plan, model, environment, around, others, contained=True)


def _program(text: str) -> bool:
    return (
        text in ("python", "python3", "vllm", "serve")
        or text.startswith("vllm.")
        or text.endswith(("python", "python3"))
    )


def _llm_service(context: Context, one: Map, name: str) -> None:
    spec = as_map(one.get("spec"))
    uri = text_of(at_path(spec, "model.uri"))
    models, source = _storage(context, uri)
    if spec.get("baseRefs"):
        context.launch.skip("baseRefs", matters=True)
    for part, suffix in ((spec, ""), (as_map(spec.get("prefill")), "/prefill")):
        if suffix and not part:
            continue
        _llm_part(context, part, name + suffix, source, models)


def _llm_part(context: Context, spec: Map, name: str, source: str | None, models: dict[str, str]) -> None:
    template = as_map(spec.get("template"))
    containers = [as_map(c) for c in as_list(template.get("containers"))]
    container = next(
        (c for c in containers if c.get("name") == "main"), containers[0] if containers else Map(spec.line)
    )
    environment = pod_environment(context, container)
    replicas = spec.get("replicas")
    around = Surroundings(models=models, name=name, replicas=replicas if isinstance(replicas, int) else 1)
    devices(context, container, around)
    memory(container, template, around)
    if as_map(spec.get("worker")):
        around.group_gpus = True
    card = pod_card(context, template)
    if card is not None:
        around.card, around.card_key = card.text, card.key
        for text in (card.note, card.need):
            if text:
                context.launch.note(text)
    plan = start_plan(context, "vllm", around, environment)
    parallel = as_map(spec.get("parallelism"))
    given = [*parallel_given(parallel)]
    words = [word for word in container_words(context, container, environment) if not _program(word.text)]
    extra = environment.get("VLLM_ADDITIONAL_ARGS")
    if extra is not None and not extra.missing:
        reader = Reader(context.launch, context.secrets, context.settings.values, environment)
        inner = reader.read("x " + extra.text, first_line=extra.line).commands
        words += inner[0].words[1:] if inner else []
    more, positional = parse("vllm", words)
    others = read_given(context, plan, [*given, *more])
    model: Argument | None = Argument(source, as_map(spec.get("model")).line_of("uri")) if source else None
    if model is None and positional:
        model = positional[0]
    found = finish(context, plan, model, environment, around, others, contained=True)
    if found is not None:
        context.add(found)


def parallel_given(parallel: Map) -> list[Given]:
    """The parallel sizes of an LLMInferenceService or an llm-d value as options."""
    table: dict[str, Any] = {option.name: option for option in options("vllm")}
    names = {"tensor": "tensor-parallel-size", "data": "data-parallel-size", "pipeline": "pipeline-parallel-size"}
    given = []
    for key, option in names.items():
        size = parallel.get(key)
        if isinstance(size, int) and not isinstance(size, bool):
            if size == 1:
                continue
            line = parallel.line_of(key)
            given.append(Given(table[option], f"--{option}", (Argument(str(size), line),), line))
    if parallel.get("expert") is True:
        line = parallel.line_of("expert")
        given.append(Given(table["enable-expert-parallel"], "--enable-expert-parallel", (), line))
    return given
