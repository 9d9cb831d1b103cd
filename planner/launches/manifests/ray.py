"""Ray Serve LLM: RayService objects, and plain YAML of applications or llm_configs (ray 2.43 to 2.50)."""

from __future__ import annotations

from typing import Any

from planner.launches.around import card_of
from planner.launches.context import Context, Surroundings
from planner.launches.documents import Map, as_list, as_map, at_path, read_yaml, text_of
from planner.launches.engines.server import start_plan
from planner.launches.engines.vllm import finish, put_keyword
from planner.launches.manifests.pod_cards import pod_card
from planner.launches.manifests.pods import devices, memory
from planner.launches.shell.commands import read_shell
from planner.launches.shell.expansion import Argument


def read_object(context: Context, one: Map, name: str) -> None:
    """A RayService with its serve config; a RayJob's entrypoint is a command."""
    spec = as_map(one.get("spec"))
    cluster = as_map(spec.get("rayClusterConfig") or spec.get("rayClusterSpec")) or spec
    text = spec.get("serveConfigV2")
    if isinstance(text, str):
        documents = read_yaml(text, form="ray", first_line=spec.line_of("serveConfigV2") + 1)
        read_config(context, as_map(documents[0] if documents else None), workers=cluster)
        image = text_of(at_path(cluster, "headGroupSpec.template.spec.containers.0.image")) or ""
        tag = image.rpartition(":")[2]
        if tag and "ray" in image:
            context.launch.note(f"the image names Ray {tag[:40]}, not a vLLM version")
    entrypoint = text_of(spec.get("entrypoint"))
    if entrypoint:
        around = Surroundings(name=name)
        _workers(context, cluster, around)
        read_shell(context, entrypoint, first_line=spec.line_of("entrypoint"), around=around)


def _workers(context: Context, cluster: Map, around: Surroundings) -> int | None:
    """GPUs of all workers of the first group with any; the pod's memory into the surroundings."""
    for group in as_list(cluster.get("workerGroupSpecs")):
        pod = as_map(at_path(group, "template.spec"))
        container = as_map((as_list(pod.get("containers")) or [Map()])[0])
        probe = Surroundings()
        devices(context, container, probe)
        if probe.gpus is None:
            continue
        memory(container, pod, around)
        card = pod_card(context, pod)
        if card is not None:
            around.card, around.card_key = card.text, card.key
        count = as_map(group).get("replicas")
        return probe.gpus * (count if isinstance(count, int) else 1)
    return None


def read_config(context: Context, config: Map, *, workers: Map | None = None) -> None:
    """applications[].args.llm_configs[], or llm_configs at the top."""
    found: list[Any] = []
    for application in as_list(config.get("applications")):
        arguments = as_map(as_map(application).get("args"))
        found += as_list(arguments.get("llm_configs"))
    found += as_list(config.get("llm_configs"))
    if not found and "model_loading_config" in config:
        found = [config]
    for item in found:
        if isinstance(item, str):
            beside = context.file_text(item)
            if beside is None:
                context.launch.skip(f"the file {item}", matters=True)
                context.launch.need(f"the file {item}", "is not here; a model's config stands in it")
                continue
            documents = read_yaml(beside[0], form="ray", first_line=beside[1])
            item = as_map(documents[0] if documents else None)
        _llm(context, as_map(item), workers)


def _llm(context: Context, one: Map, workers: Map | None) -> None:
    loading = as_map(one.get("model_loading_config"))
    around = Surroundings(name=text_of(loading.get("model_id")))
    total = _workers(context, workers, around) if workers is not None else None
    scaling = as_map(at_path(one, "deployment_config.autoscaling_config"))
    low, high = scaling.get("min_replicas"), scaling.get("max_replicas")
    fixed = at_path(one, "deployment_config.num_replicas")
    if isinstance(fixed, int):
        around.replicas = fixed
    elif isinstance(high, int):
        low = low if isinstance(low, int) else 1
        around.replicas = f"{low}..{high}" if high > low else high
    stated = text_of(one.get("accelerator_type"))
    if stated:
        card = card_of("ray", stated)
        around.card, around.card_key = card.text, card.key
        if card.note:
            context.launch.note(card.note)
    plan = start_plan(context, "vllm", around, {})
    engine = as_map(one.get("engine_kwargs"))
    for key, value in engine.items():
        put_keyword(context, plan, str(key), value, engine.line_of(key))
    lora = as_map(one.get("lora_config"))
    if lora:
        context.launch.note("lora_config brings adapters: slots and rank stand in engine_kwargs")
    source = loading.get("model_source")
    name = text_of(source) or text_of(at_path(loading, "model_source.bucket_uri")) or text_of(loading.get("model_id"))
    where = loading.line_of("model_source") if "model_source" in loading else loading.line_of("model_id")
    done = finish(context, plan, Argument(name, where) if name else None, {}, around, {})
    if done is None:
        return
    context.add(done)
    replicas = around.replicas
    most = int(str(replicas).rpartition("..")[2])
    if total is not None and done.gpus is not None and most * done.gpus > total:
        context.launch.note(f"with {most} replicas {most * done.gpus} GPUs are needed and the worker group has {total}")
    bundles = as_list(at_path(one, "placement_group_config.bundles"))
    if bundles:
        context.launch.note(f"placement_group_config asks for {len(bundles)} bundles")
