"""Files to deploy a plan with: a command, a compose file, a Kubernetes manifest; `plan` reads them back as that plan.

Host memory is what the plan says the engine keeps there, and the weights once, which are read through the page cache;
shared memory what vLLM's and SGLang's deployment guides give a server whose ranks talk through it.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Final

from planner.contract.engine import command_line, find_engine
from planner.contract.plan import ServingPlan
from planner.errors import UsageError
from planner.units import GIB

FORMS: Final = ("command", "compose", "kubernetes")
# vLLM docs, deployment with Kubernetes: an emptyDir of 2Gi in memory at /dev/shm
_SHARED_GIB: Final = 2
_PORTS: Final = {"vllm": 8000, "sglang": 30000}
_WIDTH: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class _Parts:
    """A plan as containers need it."""

    name: str
    image: str
    environment: Mapping[str, str]
    words: tuple[str, ...]
    gpus: int
    host_gib: int
    port: int


def emit(plan: ServingPlan, form: str, *, image: str | None = None) -> str:
    """The text of a file, or of a command, that starts the plan.

    Args:
        image: the container's; None takes the engine's own at the planned release.

    Raises:
        UsageError: no such form, an engine without an image here, an export that nobody named.
    """
    if form == "command":
        return command_line(plan)
    if form not in FORMS:
        raise UsageError(f"--emit is {form[:40]!r}; expected {', '.join(FORMS)}", field="emit")
    parts = _parts(plan, image)
    document = _compose(parts) if form == "compose" else _kubernetes(parts)
    import yaml  # only a file needs it

    return str(yaml.safe_dump_all(document, sort_keys=False, width=_WIDTH)).rstrip("\n")


def _parts(plan: ServingPlan, image: str | None) -> _Parts:
    words = list(find_engine(plan.engine).command(plan))
    environment: dict[str, str] = {}
    while words and re.match(r"[A-Z_][A-Z0-9_]*=", words[0]):
        name, _, value = words.pop(0).partition("=")
        environment[name] = value
    exports = [word for word in words if word.startswith("<")]
    if exports:
        raise UsageError(
            f"--emit: {exports[0]} has no name yet; give the repository of the export as MODEL", field="emit"
        )
    row = _images().get(plan.engine)
    if row is None and image is None:
        raise UsageError(f"--emit: no image of {plan.engine} is known here; name one with --image", field="emit")
    cards = sum(device.count for device in plan.devices if device.kind == "gpu")
    weights = sum(
        part.best * device.count for device in plan.devices for part in device.components if part.name == "weights"
    )
    host = plan.load.host_bytes + weights
    return _Parts(
        name=re.sub(r"[^a-z0-9]+", "-", plan.model.id.rpartition("/")[2].lower()).strip("-")[:50] or "model",
        image=image or (row or {})["image"].format(version=_release(plan.engine_version)),
        environment=environment,
        words=tuple(words),
        gpus=cards,
        host_gib=-(-host // GIB) + _SHARED_GIB,
        port=_PORTS.get(plan.engine, 8000),
    )


def _release(version: str) -> str:
    """A release as images are tagged: three numbers."""
    numbers = version.split(".")
    return ".".join([*numbers, "0", "0"][:3]) if len(numbers) < 3 else version


def _compose(parts: _Parts) -> Sequence[Any]:
    service: dict[str, Any] = {
        "image": parts.image,
        "entrypoint": list(parts.words[:1]),
        "command": list(parts.words[1:]),
        "ports": [f"{parts.port}:{parts.port}"],
        "shm_size": f"{_SHARED_GIB}gb",
        "mem_limit": f"{parts.host_gib}gb",
        "deploy": {
            "resources": {
                "reservations": {"devices": [{"driver": "nvidia", "count": parts.gpus, "capabilities": ["gpu"]}]}
            }
        },
    }
    if parts.environment:
        service["environment"] = dict(parts.environment)
    return ({"services": {parts.name: service}},)


def _kubernetes(parts: _Parts) -> Sequence[Any]:
    asked = {"nvidia.com/gpu": str(parts.gpus), "memory": f"{parts.host_gib}Gi"}
    resources = {"limits": asked, "requests": dict(asked)}
    container: dict[str, Any] = {
        "name": "server",
        "image": parts.image,
        "command": list(parts.words[:1]),
        "args": list(parts.words[1:]),
        "ports": [{"containerPort": parts.port}],
        "resources": resources,
        "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}],
        "readinessProbe": {"httpGet": {"path": "/health", "port": parts.port}, "periodSeconds": 10},
    }
    if parts.environment:
        container["env"] = [{"name": name, "value": value} for name, value in parts.environment.items()]
    labels = {"app": parts.name}
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": parts.name},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": dict(labels)},
                "spec": {
                    "containers": [container],
                    "volumes": [{"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": f"{_SHARED_GIB}Gi"}}],
                },
            },
        },
    }
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": parts.name},
        "spec": {"selector": dict(labels), "ports": [{"port": parts.port, "targetPort": parts.port}]},
    }
    return (deployment, service)


@cache
def _images() -> dict[str, dict[str, str]]:
    text = files("planner.launches").joinpath("tables/emit_images.csv").read_text("utf-8")
    return {row["engine"]: row for row in csv.DictReader(text.splitlines())}
