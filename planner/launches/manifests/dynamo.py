"""NVIDIA Dynamo's DynamoGraphDeployment (v1alpha1 services, v1beta1 components)."""

from __future__ import annotations

from planner.launches.around import kubernetes_size
from planner.launches.context import Context, Surroundings
from planner.launches.documents import Map, as_list, as_map, at_path, text_of
from planner.launches.manifests.pod_cards import pod_card
from planner.launches.manifests.pods import PodPlace, container_words, pod_environment, read_container
from planner.launches.shell.commands import start_image
from planner.launches.shell.containers import say_tag


def read_object(context: Context, one: Map) -> None:
    """Each worker service becomes a plan; a frontend has no GPU."""
    spec = as_map(one.get("spec"))
    for name, service in as_map(spec.get("services")).items():
        _service(context, str(name), as_map(service))
    for component in as_list(spec.get("components")):
        _component(context, as_map(component))


def _service(context: Context, name: str, service: Map) -> None:
    if text_of(service.get("componentType")) in ("frontend", "planner", "main"):
        return
    pod = as_map(service.get("extraPodSpec"))
    container = as_map(pod.get("mainContainer"))
    replicas = service.get("replicas")
    around = Surroundings(name=name, replicas=replicas if isinstance(replicas, int) else 1)
    limits = as_map(at_path(service, "resources.limits")) or as_map(at_path(service, "resources.requests"))
    count = text_of(limits.get("gpu")) or text_of(limits.get("nvidia.com/gpu"))
    nodes = at_path(service, "multinode.nodeCount")
    if count and count.isdecimal():
        group = nodes if isinstance(nodes, int) and nodes > 1 else 1
        around.gpus, around.group_gpus = int(count) * group, group > 1
        around.nodes = group if group > 1 else None
    limit = kubernetes_size(limits.get("memory")) if "memory" in limits else None
    if limit is not None:
        around.host["memory_limit_bytes"] = limit
    shared = at_path(service, "sharedMemory.size")
    size = kubernetes_size(shared) if shared is not None else None
    if size is not None:
        around.host["shm_bytes"] = size
    card = pod_card(context, pod)
    if card is not None:
        around.card, around.card_key = card.text, card.key
    environment = pod_environment(context, service) | pod_environment(context, container)
    words = container_words(context, container, environment)
    before = len(context.launch.plans)
    image = text_of(container.get("image")) or ""
    start_image(
        context, image, words, environment, around, contained=False, replaced=bool(as_list(container.get("command")))
    )
    if len(context.launch.plans) > before and image:
        say_tag(context, image)


def _component(context: Context, component: Map) -> None:
    if text_of(component.get("type")) in ("frontend", "planner"):
        return
    pod = as_map(at_path(component, "podTemplate.spec"))
    name = text_of(component.get("name")) or "component"
    replicas = component.get("replicas")
    place = PodPlace(name, replicas if isinstance(replicas, int) else 1, plain_name=True)
    before = len(context.launch.plans)
    for container in as_list(pod.get("containers")):
        read_container(context, pod, as_map(container), place, pod_card(context, pod), {})
    size = component.get("sharedMemorySize")
    if size is not None:
        found = kubernetes_size(size)
        for plan in context.launch.plans[before:]:
            if found is not None:
                plan.host["shm_bytes"] = found
