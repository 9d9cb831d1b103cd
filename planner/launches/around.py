"""What stands around a launch: the card, host sizes in each tool's units, and the version in an image's tag."""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files
from typing import Final

from planner.errors import PlannerError
from planner.hardware.gpus import find_gpu
from planner.units import format_size

_VERSION: Final = re.compile(
    r"v?(\d{1,4}\.\d{1,4}(?:\.\d{1,4})?(?:\.?post\d+|\.?rc\d+|\.?dev\d+|[ab]\d+)?)(?:[-+_].*)?"
)
_BUILD: Final = re.compile(r".*-(b\d{3,6})(?:-.*)?|(b\d{3,6})")
_MIG: Final = re.compile(r"-?MIG-(\d+g\.(\d+)gb(?:\.me|\+me)?)", re.IGNORECASE)
_MEMORY_UNITS: Final = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4, "p": 5}
_KUBERNETES: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?|\.[0-9]+)(?:([eE][-+]?[0-9]+)|(m|k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)?)")
_BINARY: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([kmgtp]?)(?:i?b)?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Card:
    """A card as stated, the table's id for it, and what must be said about it.

    Args:
        key: None where the name means none or several cards.
        gpus: of an instance type.
        need: what must be asked before it can be planned.
    """

    text: str
    key: str | None
    gpus: int | None = None
    need: str | None = None
    note: str | None = None


@cache
def _rows(name: str) -> tuple[dict[str, str], ...]:
    return tuple(csv.DictReader(files("planner.launches.tables").joinpath(name).read_text("utf-8").splitlines()))


def kubernetes_size(text: object) -> int | None:
    """Bytes of a Kubernetes quantity: G is 10^9, Gi 2^30, m a thousandth; None for what is none."""
    found = _KUBERNETES.fullmatch(str(text).strip()[:40])
    if found is None:
        return None
    number = float(found[1])
    if found[2]:
        return _bounded(number * float("1" + found[2]))
    unit = found[3] or ""
    if unit == "m":
        return _bounded(number / 1000)
    if unit.endswith("i"):
        return _bounded(number * 1024 ** _MEMORY_UNITS[unit[0].lower()])
    return _bounded(number * 1000 ** _MEMORY_UNITS[unit.lower()])


def binary_size(text: object, *, bare: int = 1) -> int | None:
    """Bytes of a size in steps of 2^10 (docker, compose, systemd, Slurm); None for what is none.

    Args:
        bare: what a number without a unit counts (Slurm: MiB).
    """
    found = _BINARY.fullmatch(str(text).strip()[:40])
    if found is None:
        return None
    unit = found[2].lower()
    scale = 1024 ** _MEMORY_UNITS[unit] if unit or str(text).strip()[-1:] in "bB" else bare
    return _bounded(float(found[1]) * scale)


def _bounded(size: float) -> int | None:
    return round(size) if 0 <= size < 1 << 60 else None


def image_engine(image: str) -> tuple[str | None, str | None, bool]:
    """(engine, version or None, whether its entrypoint is the server) of a container image."""
    name, _, digest = image.partition("@")
    head, colon, tag = name.rpartition(":")
    if not colon or "/" in tag:
        head, tag = name, ""
    bare = head.removeprefix("docker.io/").removeprefix("index.docker.io/")
    last = bare.rsplit("/", 1)[-1]
    for row in _rows("images.csv"):
        # a row with a star is a pattern of the last part, for copies in other registries
        if bare == row["repository"] or ("*" in row["repository"] and fnmatchcase(last, row["repository"])):
            version = None
            if not digest and row["versioned"] == "yes":
                found = _VERSION.fullmatch(tag)
                version = found[1] if found else None
            elif not digest and row["versioned"] == "build":
                built = _BUILD.fullmatch(tag)
                version = (built[1] or built[2]) if built else None
            return row["engine"], version, row["entrypoint"] == "server"
    return None, None, False


def version_of(text: str) -> str | None:
    """A release in a requirement such as "vllm==0.11.0" or "vllm[audio]==0.11"; None if it names none."""
    found = re.fullmatch(r"[A-Za-z0-9_.-]+(?:\[[^\]]*\])?\s*==\s*([0-9][0-9A-Za-z.+]*)", text.strip())
    return found[1] if found else None


def card_of(source: str, name: str) -> Card:
    """The card that a name means in this source: product, gke, karpenter, ray, instance, slurm, notebook."""
    name = name.strip()[:120]
    if source == "slurm":
        sized = re.fullmatch(r"([A-Za-z]+\d+[a-z]*)[-_](\d{2,3})(?:gb?)?", name, re.IGNORECASE)
        found = _product(f"{sized[1]} {sized[2]}gb" if sized else name)
        return Card(
            name, found.key, note=None if found.key else f"{name} does not name one card of the table: give --gpu"
        )
    if source == "product":
        return _product(name)
    for row in _rows("cards.csv"):
        if row["source"] != source:
            continue
        if source == "instance":
            matched = re.fullmatch(row["name"], name)
            if matched:
                count = int(matched[1]) if row["gpus"] == "group" else int(row["gpus"]) if row["gpus"] else None
                return Card(name, row["card"] or None, gpus=count)
        elif row["name"].lower() == name.lower():
            note = None if row["card"] else f"{name} is sold with more than one memory size: say which with --gpu"
            return Card(name, row["card"] or None, note=note)
    return _product(name) if source != "instance" else Card(name, None, note=f"{name}: an instance type without a row")


def _product(name: str) -> Card:
    slice_ = _MIG.search(name)
    if slice_:
        return Card(
            name,
            None,
            need=f"memory of the MIG slice {slice_[1]} (about {slice_[2]} GB, not the whole card's): give --gpu-memory",
            note="a MIG slice is not planned as the whole card; NCCL does not join slices for tensor parallelism",
        )
    shared = name.endswith("-SHARED")
    note = "the card is shared by time slicing (-SHARED): what other processes hold is not known" if shared else None
    try:
        return Card(name, find_gpu(name.removesuffix("-SHARED").replace("-", " ")).id, note=note)
    except PlannerError:
        pass
    try:
        return Card(name, find_gpu(name.removesuffix("-SHARED").replace("_", " ")).id, note=note)
    except PlannerError:
        return Card(name, None, note=f"{name} does not name one card of the table: give --gpu")


def device_count(text: str) -> tuple[int | None, str | None]:
    """(number, ids) of CUDA_VISIBLE_DEVICES and its like: "0,1" is 2; "all" and UUID lists count what they list."""
    text = text.strip().strip("'\"")
    if text.lower() in ("all", "void", "none", ""):
        return None, None
    ids = [one.strip() for one in text.split(",") if one.strip()]
    if "-1" in ids:
        return None, None
    return len(ids), ",".join(ids)


def host_shortfall(host: Mapping[str, int | bool], taken_bytes: int) -> str | None:
    """What to say when the host side of a job is more than its memory limit: the kernel kills with 137.

    Args:
        taken_bytes: what loading, offloading and pinned memory take; buffers and shared memory come on top. The page
            cache does not count.
    """
    limit = int(host.get("memory_limit_bytes", 0))
    shared = int(host.get("shm_bytes", 0)) if not host.get("ipc_host") else 0
    buffer = int(host.get("kv_offload_bytes", 0))
    total = taken_bytes + buffer
    if not limit or total <= limit:
        return None
    also = f", and up to {format_size(shared)} of shared memory count too" if shared else ""
    return (
        f"the host side takes {format_size(total)} and the memory limit is {format_size(limit)}{also}: the kernel kills"
        " it with 137 (OOMKilled)"
    )
