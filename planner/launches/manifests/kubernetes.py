"""Kubernetes manifests: where each kind keeps its pods, and what runs there (v1, apps/v1, batch/v1, LWS, Kubeflow)."""

from __future__ import annotations

from typing import Any, Final

from planner.launches.context import Context
from planner.launches.documents import Map, as_list, as_map, at_path, text_of
from planner.launches.manifests import dynamo, kserve, ray
from planner.launches.manifests.pods import PodPlace, read_pod

_POD_AT: Final = {
    "Pod": "spec",
    "Deployment": "spec.template.spec",
    "StatefulSet": "spec.template.spec",
    "DaemonSet": "spec.template.spec",
    "ReplicaSet": "spec.template.spec",
    "ReplicationController": "spec.template.spec",
    "Job": "spec.template.spec",
    "CronJob": "spec.jobTemplate.spec.template.spec",
    "Rollout": "spec.template.spec",
    "PodTemplate": "template.spec",
}
_KSERVE: Final = (
    "InferenceService",
    "ServingRuntime",
    "ClusterServingRuntime",
    "LLMInferenceService",
    "LLMInferenceServiceConfig",
)
_RAY: Final = ("RayService", "RayCluster", "RayJob")
_TRAINING: Final = ("PyTorchJob", "MPIJob", "TFJob", "XGBoostJob", "PaddleJob")


def form_of(documents: list[Any]) -> str:
    """The form of a set of manifests: the most particular kind in it."""
    kinds = [str(one.get("kind")) for one in listed(documents)]
    if any(kind == "DynamoGraphDeployment" for kind in kinds):
        return "dynamo"
    if any(kind in _KSERVE for kind in kinds):
        return "kserve"
    if any(kind in _RAY for kind in kinds):
        return "ray"
    if any(kind == "LeaderWorkerSet" for kind in kinds):
        return "lws"
    return "kubernetes"


def listed(documents: list[Any]) -> list[Map]:
    """Every object, those of a List included."""
    found: list[Map] = []
    for document in documents:
        node = as_map(document)
        if str(node.get("kind", "")).endswith("List") and isinstance(node.get("items"), list):
            found += [as_map(item) for item in as_list(node.get("items"))]
        elif "kind" in node:
            found.append(node)
    return found


def read_manifests(context: Context, documents: list[Any]) -> None:
    """Every server and run in the objects becomes a plan."""
    objects = listed(documents)
    for one in objects:
        _config_maps(context, one)
    for one in objects:
        kind = str(one.get("kind"))
        name = text_of(at_path(one, "metadata.name")) or text_of(at_path(one, "metadata.generateName")) or kind
        if kind in _KSERVE:
            kserve.read_object(context, one, name, objects)
        elif kind in _RAY:
            ray.read_object(context, one, name)
        elif kind == "DynamoGraphDeployment":
            dynamo.read_object(context, one)
        elif kind == "LeaderWorkerSet":
            _leader_worker(context, one, name)
        elif kind in _TRAINING:
            _training_job(context, one, name)
        elif kind == "TrainJob":
            _train_job(context, one, name)
        elif kind in _POD_AT:
            _workload(context, one, kind, name)
    for one in objects:
        if "spec" not in one and str(one.get("kind")) in _POD_AT:
            near = [str(key)[:40] for key in one if str(key) not in ("apiVersion", "kind", "metadata", "status")]
            context.launch.note(f"{one.get('kind')} has no spec{f' (it has {near[0]})' if near else ''}")


def _config_maps(context: Context, one: Map) -> None:
    """Files of a ConfigMap that a container may name."""
    if one.get("kind") == "ConfigMap":
        data = as_map(one.get("data"))
        for key, text in data.items():
            if isinstance(text, str) and len(text) < 1 << 20:
                context.files[str(key)] = (text, data.line_of(key) + 1)


def _workload(context: Context, one: Map, kind: str, name: str) -> None:
    spec = as_map(at_path(one, _POD_AT[kind]))
    replicas = at_path(one, "spec.replicas")
    count = replicas if isinstance(replicas, int) and not isinstance(replicas, bool) else 1
    if kind in ("Job", "CronJob"):
        count = 1
        completions = at_path(one, "spec.parallelism")
        if isinstance(completions, int) and completions > 1:
            context.launch.note(f"the job runs {completions} pods at once")
    if kind == "DaemonSet":
        context.launch.note("a DaemonSet runs one pod a node: their number is not stated")
    if count == 0:
        context.launch.note(f"{name}: replicas is 0: nothing runs until it is scaled up")
    read_pod(context, spec, PodPlace(name, count))


def _leader_worker(context: Context, one: Map, name: str) -> None:
    template = as_map(at_path(one, "spec.leaderWorkerTemplate"))
    size = template.get("size")
    group = size if isinstance(size, int) and size > 0 else 1
    replicas = at_path(one, "spec.replicas")
    count = replicas if isinstance(replicas, int) else 1
    leader = as_map(at_path(template, "leaderTemplate.spec"))
    worker = as_map(at_path(template, "workerTemplate.spec"))
    before = len(context.launch.plans)
    read_pod(context, leader or worker, PodPlace(name, count, group=group))
    if len(context.launch.plans) == before and leader:
        read_pod(context, worker, PodPlace(name, count, group=group))
    elif leader:
        context.launch.note(
            f"a group has {group} pods: the worker pods join the leader's server and are not planned apart"
        )


def _training_job(context: Context, one: Map, name: str) -> None:
    specs = as_map(one.get("spec"))
    roles = next((as_map(value) for key, value in specs.items() if str(key).endswith("ReplicaSpecs")), Map())
    total = 0
    for value in roles.values():
        count = as_map(value).get("replicas")
        total += count if isinstance(count, int) else 1
    first = next((as_map(value) for key, value in roles.items() if str(key) in ("Master", "Launcher", "Chief")), None)
    if first is None:
        first = next((as_map(value) for value in roles.values()), Map())
    before = len(context.launch.plans)
    read_pod(context, as_map(at_path(first, "template.spec")), PodPlace(name, 1))
    for plan in context.launch.plans[before:]:
        if plan.kind == "train" and plan.nodes < total:
            context.launch.note(f"the job has {total} pods; the command says {plan.nodes} nodes")


def _train_job(context: Context, one: Map, name: str) -> None:
    trainer = as_map(at_path(one, "spec.trainer"))
    container = Map(trainer.line)
    for key, value in trainer.items():
        container[{"resourcesPerNode": "resources"}.get(str(key), str(key))] = value
        container.lines[str(key)] = trainer.line_of(key)
    container["name"] = "trainer"
    spec = Map(trainer.line)
    spec["containers"] = [container]
    read_pod(context, spec, PodPlace(name, 1))
