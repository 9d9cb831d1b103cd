"""Pods: containers with their commands, environment, devices, memory and the card that the node selector states."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Final

from planner.launches.around import Card, image_engine, kubernetes_size
from planner.launches.context import Context, Surroundings
from planner.launches.documents import Map, as_list, as_map, text_of
from planner.launches.manifests.pod_cards import pod_card
from planner.launches.shell.commands import start_image
from planner.launches.shell.containers import say_tag
from planner.launches.shell.expansion import Argument, Variable
from planner.launches.shell.programs import download_of

_GPU_KEYS: Final = re.compile(r"(?:nvidia|amd|gpu\.intel)\.com/(?:gpu(?:\.shared)?|mig-.+|i915|xe)|nvidia\.com/gpu|gpu")
_REFERENCE: Final = re.compile(r"\$\$|\$\(([A-Za-z_][A-Za-z0-9_.-]*)\)")
_KNOWN_CONTAINER_KEYS: Final = frozenset(
    [
        "name",
        "image",
        "command",
        "args",
        "env",
        "envFrom",
        "resources",
        "volumeMounts",
        "volumeDevices",
        "ports",
        "workingDir",
        "imagePullPolicy",
        "lifecycle",
        "livenessProbe",
        "readinessProbe",
        "startupProbe",
        "securityContext",
        "terminationMessagePath",
        "terminationMessagePolicy",
        "stdin",
        "stdinOnce",
        "tty",
        "restartPolicy",
        "resizePolicy",
    ]
)


@dataclass(slots=True)
class PodPlace:
    """Where a pod stands: the workload's name, its replicas, pods of a group, and what it knows of its model."""

    name: str
    replicas: int | str = 1
    group: int = 1
    models: dict[str, str] = field(default_factory=dict)
    only_named: str | None = None
    plain_name: bool = False


def read_pod(context: Context, spec: Map, place: PodPlace) -> None:
    """Every server or run among the pod's containers becomes a plan."""
    card = pod_card(context, spec)
    downloads, sources = dict(place.models), dict[str, str]()
    for container in [as_map(one) for one in as_list(spec.get("initContainers"))]:
        if container.get("restartPolicy") == "Always":
            continue
        words = container_words(context, container, pod_environment(context, container))
        before = dict(context.downloads)
        download_of(context, [word.text for word in words])
        for inner in words:
            if "\n" in inner.text or " " in inner.text:
                for line in inner.text.split("\n"):
                    download_of(context, line.split())
        for folder, model in context.downloads.items():
            if folder not in before:
                downloads[folder] = model
                sources[folder] = f"downloaded to {folder} by the init container"
                context.launch.note(
                    f"where the model id came from: {model} is downloaded to {folder} by the init container"
                )
    containers = [as_map(one) for one in as_list(spec.get("containers"))]
    containers += [
        as_map(one) for one in as_list(spec.get("initContainers")) if as_map(one).get("restartPolicy") == "Always"
    ]
    for container in containers:
        read_container(context, spec, container, place, card, downloads, sources)


def read_container(
    context: Context,
    spec: Map,
    container: Map,
    place: PodPlace,
    card: Card | None,
    models: dict[str, str],
    sources: dict[str, str] | None = None,
) -> None:
    """One container, if it starts something."""
    environment = pod_environment(context, container)
    around = Surroundings(models=models, model_sources=sources or {}, replicas=place.replicas)
    name = text_of(container.get("name")) or ""
    around.name = place.name if place.plain_name or not name else f"{place.name}/{name}"
    image = text_of(container.get("image")) or ""
    engine, version, _ = image_engine(image)
    if version is not None:
        around.version, around.version_source = version, "image tag"
    devices(context, container, around, place.group)
    memory(container, spec, around, context)
    if card is not None:
        around.card, around.card_key = card.text, card.key
    unknown = [str(key)[:40] for key in container if key not in _KNOWN_CONTAINER_KEYS]
    before = len(context.launch.plans)
    words = container_words(context, container, environment)
    start_image(
        context, image, words, environment, around, contained=True, replaced=bool(as_list(container.get("command")))
    )
    if len(context.launch.plans) == before:
        said = [word.text for word in words] + list(environment)
        if any(one.partition("=")[0] in ("--model", "MODEL", "MODEL_ID", "MODEL_NAME") for one in said):
            context.launch.note(f"{around.name} is no server: its --model or MODEL is not the server's")
    else:
        if unknown:
            context.launch.note(f"{around.name}: unknown fields {', '.join(unknown)} are ignored by the cluster")
        if engine is not None and version is None:
            say_tag(context, image)
        if card is not None and card.need:
            context.launch.need("the card", card.need)
        if card is not None and card.note:
            context.launch.note(card.note)
        if "envFrom" in container:
            context.launch.skip(f"{around.name}: envFrom", matters=True)


def container_words(context: Context, container: Map, environment: dict[str, Variable]) -> list[Argument]:
    """command and args as words, with $(VAR) put in."""
    words: list[Argument] = []
    for key in ("command", "args"):
        listed = container.get(key)
        if isinstance(listed, str):
            context.launch.note(f"{key} is a text and not a list: the cluster refuses it")
            listed = [listed]
        items: list[Any] = as_list(listed)
        lines = getattr(items, "lines", [container.line_of(key)] * len(items))
        raws = getattr(items, "raw", [""] * len(items))
        for index, item in enumerate(items):
            text = raws[index] or text_of(item) or ""
            words.append(_filled(text, lines[index] if index < len(lines) else container.line_of(key), environment))
    return words


def _filled(text: str, line: int, environment: dict[str, Variable]) -> Argument:
    missing: list[str] = []
    hows: list[str] = []

    def put(found: re.Match[str]) -> str:
        if found[0] == "$$":
            return "$"
        variable = environment.get(found[1])
        if variable is None:
            missing.append(found[1])
            return found[0]
        missing.extend(variable.missing)
        hows.append("environment")
        return variable.text

    return Argument(_REFERENCE.sub(put, text), line, hows[0] if hows else "stated", tuple(missing))


def pod_environment(context: Context, container: Map) -> dict[str, Variable]:
    """The container's env in order; what valueFrom gives is not known."""
    found: dict[str, Variable] = {}
    for item in as_list(container.get("env")):
        entry = as_map(item)
        name = text_of(entry.get("name"))
        if not name:
            continue
        line = entry.line_of("value") if "value" in entry else entry.line
        if name in context.settings.values:
            found[name] = Variable(context.settings.values[name], line, "--set")
        elif "valueFrom" in entry:
            found[name] = Variable(f"$({name})", line, missing=(name,))
        else:
            text = entry.raw.get("value") or text_of(entry.get("value")) or ""
            context.secrets.keep(name, text)
            value = _filled(text, line, found)
            found[name] = Variable(value.text, line, value.how, value.missing)
    return found


def devices(context: Context, container: Map, around: Surroundings, group: int = 1) -> None:
    """GPUs of the limits (requests where there are none), times the pods of a group."""
    resources = as_map(container.get("resources"))
    for part in ("limits", "requests"):
        for key, value in as_map(resources.get(part)).items():
            if not _GPU_KEYS.fullmatch(str(key)):
                continue
            text = text_of(value) or ""
            if text.isdecimal():
                around.gpus = int(text) * group
                around.group_gpus = group > 1
                around.nodes = group if group > 1 else around.nodes
                if "mig-" in str(key):
                    slice_ = str(key).partition("mig-")[2]
                    around.card = around.card or f"MIG-{slice_}"
                    context.launch.need(
                        f"memory of the MIG slice {slice_}", "the card behind it is not stated: give --gpu-memory"
                    )
            elif text:
                context.launch.need(f"{key}", "the number of GPUs is not a number in the text", settle="gpus")
        if around.gpus is not None:
            break
    memory_gpu = as_map(resources.get("limits")).get("nvidia.com/gpumem")
    if memory_gpu is not None:
        context.launch.note(
            f"nvidia.com/gpumem {text_of(memory_gpu)}: the GPU's memory is limited to so many MiB: give --gpu-memory"
        )
    if as_list(resources.get("claims")):
        around.gpus_unknown = True
        context.launch.note("GPUs come by resourceClaims (DRA): their number is not stated here")


def memory(container: Map, spec: Map, around: Surroundings, context: Context | None = None) -> None:
    """Memory limit and request, and the memory volume at /dev/shm."""
    resources = as_map(container.get("resources"))
    limit = kubernetes_size(as_map(resources.get("limits")).get("memory"))
    request = kubernetes_size(as_map(resources.get("requests")).get("memory"))
    if limit is not None:
        around.host["memory_limit_bytes"] = limit
    stated = str(as_map(resources.get("limits")).get("memory", ""))
    if context is not None and stated.endswith("m"):
        context.launch.note(f"the memory limit {stated[:20]} is in thousandths of a byte: Mi is meant")
    if request is not None and request != limit:
        around.host["memory_request_bytes"] = request
    if spec.get("hostIPC") is True:
        around.host["ipc_host"] = True
    mounts = {
        str(as_map(one).get("name")): str(as_map(one).get("mountPath"))
        for one in as_list(container.get("volumeMounts"))
    }
    for volume in [as_map(one) for one in as_list(spec.get("volumes"))]:
        empty = volume.get("emptyDir")
        if (
            mounts.get(str(volume.get("name")), "").rstrip("/") == "/dev/shm"
            and isinstance(empty, Map)
            and empty.get("medium") == "Memory"
        ):
            size = kubernetes_size(empty.get("sizeLimit")) if "sizeLimit" in empty else None
            if size is not None:
                around.host["shm_bytes"] = size
            elif limit is not None:
                around.host["shm_bytes"] = limit
