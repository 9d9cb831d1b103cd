"""`docker run` and its likes: options end at the image (docker, podman, nerdctl)."""

from __future__ import annotations

import re
from collections.abc import Mapping

from planner.launches.around import binary_size, device_count, image_engine
from planner.launches.context import Context, Surroundings
from planner.launches.shell.expansion import Argument, Variable
from planner.launches.shell.wrappers import ASSIGNS, table_of


def container(
    context: Context, words: list[Argument], environment: dict[str, Variable], around: Surroundings
) -> tuple[str, list[Argument]] | None:
    """(image, words behind it) of `docker run` and its likes; options end at the image. None for other verbs."""
    at = 1
    if len(words) > 2 and words[1].text == "container":
        at = 2
    if len(words) <= at or words[at].text not in ("run", "create"):
        return None
    rest = words[at + 1 :]
    valued = set(table_of("docker_values.json"))
    said: list[tuple[str, Argument]] = []
    index = 0
    while index < len(rest) and rest[index].text.startswith("-"):
        word = rest[index]
        index += 1
        head, equals, value = word.text.partition("=")
        if head in valued and equals:
            said.append((head, Argument(value, word.line, word.how, word.missing)))
        elif head in valued and index < len(rest):
            said.append((head, rest[index]))
            index += 1
        elif re.fullmatch(r"-[emvp]\S+", word.text):
            said.append((word.text[:2], Argument(word.text[2:], word.line, word.how, word.missing)))
        else:
            said.append((word.text, Argument("", word.line)))
    if index >= len(rest):
        return None
    own: dict[str, Variable] = {}
    entrypoint = None
    for option, given in said:
        if option == "--entrypoint":
            entrypoint = given
        else:
            _container_option(context, option, given, own, environment, around)
    environment.clear()
    environment.update(own)
    image = rest[index]
    engine, version, _ = image_engine(image.text)
    around.engine_image = engine
    if version is not None and not image.missing:
        around.version, around.version_source = version, _tag_source(image)
    elif engine is not None:
        say_tag(context, image.text)
    inside = rest[index + 1 :]
    return image.text, ([entrypoint, *inside] if entrypoint is not None and entrypoint.text else inside)


def _tag_source(image: Argument) -> str:
    return "image tag" if image.how == "stated" else "image tag by its default"


def say_tag(context: Context, image: str) -> None:
    """A tag that is no release of the engine."""
    name, _, digest = image.partition("@")
    tag = name.rpartition(":")[2] if ":" in name.rpartition("/")[2] else ""
    if "$" in tag:
        context.launch.note("the image's tag is a variable without a value: no version is stated")
    elif digest or tag in ("", "latest", "nightly") or tag.startswith("nightly"):
        shown = "a digest" if digest else tag or "no tag"
        context.launch.note(f"the image has {shown}: no version is stated, the newest known release is planned")
    else:
        context.launch.note(f"the tag {tag[:40]} is the image's own version, not the engine's: none is stated")


def _container_option(
    context: Context,
    option: str,
    value: Argument,
    own: dict[str, Variable],
    outside: Mapping[str, Variable],
    around: Surroundings,
) -> None:
    text = value.text
    if option in ("-e", "--env"):
        found = ASSIGNS.fullmatch(text)
        if found:
            own[found[1]] = Variable(found[2], value.line, value.how, value.missing)
            context.secrets.keep(found[1], found[2])
        elif text in outside:
            own[text] = outside[text]
    elif option == "--gpus":
        _gpus(text, around)
    elif option == "--device":
        found = re.fullmatch(r"nvidia\.com/gpu=(.+)", text)
        if found and found[1] == "all":
            around.gpus_unknown = True
        elif found:
            around.device = f"{around.device},{found[1]}" if around.device else found[1]
            around.gpus = len(around.device.split(","))
    elif option in ("-m", "--memory"):
        _host(around, "memory_limit_bytes", text)
    elif option == "--memory-reservation":
        _host(around, "memory_request_bytes", text)
    elif option == "--shm-size":
        _host(around, "shm_bytes", text)
    elif option == "--ipc" and text == "host":
        around.host["ipc_host"] = True
    elif option == "--name":
        around.name = text
    elif option == "--env-file":
        context.launch.skip(f"--env-file {text}", matters=True)
    elif option in ("-v", "--volume"):
        parts = text.split(":")
        if len(parts) >= 2 and parts[1].startswith("/"):
            around.mounts[parts[1].rstrip("/")] = parts[0]
    elif option == "--mount":
        pairs = dict(part.split("=", 1) for part in text.split(",") if "=" in part)
        inside = pairs.get("target") or pairs.get("dst") or pairs.get("destination")
        if inside and (pairs.get("source") or pairs.get("src")):
            around.mounts[inside.rstrip("/")] = pairs.get("source") or pairs.get("src") or ""


def _host(around: Surroundings, name: str, text: str) -> None:
    size = binary_size(text)
    if size:
        around.host[name] = size


def _gpus(text: str, around: Surroundings) -> None:
    bare = text.strip("'\"")
    if bare.isdecimal():
        around.gpus = int(bare)
        return
    found = re.search(r"(?:^|[,\"'])device=([^\"']+)", bare)
    if found:
        around.gpus, around.device = device_count(found[1].split(",capabilities")[0])
        return
    count = re.search(r"count=(\d+)", bare)
    if count:
        around.gpus = int(count[1])
        return
    around.gpus_unknown = True
