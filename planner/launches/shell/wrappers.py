"""Programs that start another one: looked through, by a table of which of their options take a word."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from planner.launches.around import binary_size, card_of, device_count, image_engine, version_of
from planner.launches.context import Context, Surroundings
from planner.launches.shell.script import Argument, Variable

_ASSIGNS = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)


@cache
def _table(name: str) -> Any:
    return json.loads(files("planner.launches.tables").joinpath(name).read_text("utf-8"))


def base(text: str) -> str:
    """The program's name without its folder."""
    return re.split(r"[/\\]", text)[-1].removesuffix(".exe")


def skip_options(words: Sequence[Argument], valued: Sequence[str], pairs: Sequence[str] = ()) -> int:
    """How many words at the beginning are options, with the words that belong to them."""
    index = 0
    while index < len(words) and words[index].text.startswith("-") and words[index].text != "-":
        text = words[index].text
        index += 1
        if text == "--":
            break
        if text in pairs:
            index += 2
        elif text in valued:
            index += 1
    return index


def unwrap(
    context: Context, words: list[Argument], environment: dict[str, Variable], around: Surroundings
) -> list[Argument]:
    """The words of the program that is started in the end; what is said on the way is gathered."""
    for _ in range(30):
        if not words:
            return []
        name = base(words[0].text)
        if name == "env":
            words = _through_env(context, words[1:], environment)
            continue
        assigned = _ASSIGNS.fullmatch(words[0].text)
        if assigned and len(words) > 1:
            environment[assigned[1]] = Variable(assigned[2], words[0].line, words[0].how, words[0].missing)
            context.secrets.keep(assigned[1], assigned[2])
            words = words[1:]
            continue
        if name == "tmux":
            inner = next((word for word in reversed(words[1:]) if " " in word.text), None)
            return [inner] if inner is not None else []
        rule = _table("wrappers.json").get(name)
        if rule is None:
            return words
        words = _through(context, words, rule, around)
    return words


def _through_env(context: Context, words: list[Argument], environment: dict[str, Variable]) -> list[Argument]:
    index = 0
    while index < len(words):
        text = words[index].text
        if text in ("-u", "--unset", "-C", "--chdir"):
            index += 2
        elif text in ("-S", "--split-string"):
            index += 1
            break
        elif text.startswith("-"):
            index += 1
        else:
            found = _ASSIGNS.fullmatch(text)
            if found is None:
                break
            environment[found[1]] = Variable(found[2], words[index].line, words[index].how, words[index].missing)
            context.secrets.keep(found[1], found[2])
            index += 1
    return words[index:]


def _through(context: Context, words: list[Argument], rule: Mapping[str, Any], around: Surroundings) -> list[Argument]:
    name = base(words[0].text)
    rest = words[1:]
    verbs = rule.get("verb")
    valued = rule.get("values", [])
    if verbs:
        ahead = skip_options(rest, valued)
        if ahead >= len(rest) or rest[ahead].text not in verbs:
            return []
        rest = rest[:ahead] + rest[ahead + 1 :]
    count = skip_options(rest, valued, rule.get("pairs", ()))
    said = rest[:count]
    for index, word in enumerate(said):
        head, equals, value = word.text.partition("=")
        if head in rule.get("requires", ()):
            text = value if equals else said[index + 1].text if index + 1 < len(said) else ""
            state_version(context, text, f"{name} {head}")
    if rule.get("slurm"):
        slurm_words(context, [word.text for word in said], around)
    return rest[count + int(rule.get("skip", 0)) :]


def state_version(context: Context, requirement: str, source: str) -> None:
    """Keep the release that a requirement pins."""
    version = version_of(requirement)
    if version is None:
        return
    package = re.split(r"[\[=\s]", requirement.strip(), maxsplit=1)[0].lower().replace("_", "-")
    context.versions[package] = (version, source)


def slurm_words(context: Context, words: Sequence[str], around: Surroundings) -> None:
    """What sbatch's directives and srun's options say of nodes, GPUs and memory."""
    said: dict[str, str] = {}
    index = 0
    while index < len(words):
        head, equals, value = words[index].partition("=")
        index += 1
        if not head.startswith("-"):
            continue
        if re.fullmatch(r"-[NnGCcJpmA]\S+", head):
            head, value, equals = head[:2], head[2:] + equals + value, "="
        if not equals and index < len(words) and not words[index].startswith("-"):
            value = words[index]
            index += 1
        said[head] = value
    nodes = re.match(r"\d+", said.get("--nodes", said.get("-N", "")))
    if nodes:
        around.nodes = int(nodes[0])
    per_node = None
    for option in ("--gres", "--gpus-per-node", "--gpus-per-task", "--gpus", "-G"):
        text = said.get(option)
        if text is None:
            continue
        found = re.search(r"(?:^|,)(?:gres:)?(?:gpu:?)?(?:([A-Za-z][\w.+-]*):)?(\d+)?(?=$|,|\()", text)
        found = (
            found if found and (found[1] or found[2]) else re.search(r"gpu(?::([A-Za-z][\w.+-]*))?(?::(\d+))?", text)
        )
        if not found:
            continue
        count = int(found[2] or 1)
        if found[1] and found[1] != "gpu":
            card = card_of("slurm", found[1])
            around.card, around.card_key = card.text, card.key
            if card.note:
                context.launch.note(f"{found[1]} is the site's own name of a card; {card.note}")
        if option == "--gpus-per-task":
            tasks = re.match(r"\d+", said.get("--ntasks-per-node", "1"))
            count *= int(tasks[0]) if tasks else 1
        if option in ("--gpus", "-G"):
            around.gpus = count
            return _slurm_memory(said, around)
        per_node = count
        break
    if per_node is not None:
        around.gpus = per_node * (around.nodes or 1)
    constraint = said.get("--constraint", said.get("-C"))
    if constraint and around.card is None:
        card = card_of("slurm", constraint)
        if card.key:
            around.card, around.card_key = card.text, card.key
        else:
            context.launch.note(f"--constraint {constraint[:40]} is the site's own name: a hint at the card only")
    return _slurm_memory(said, around)


def _slurm_memory(said: Mapping[str, str], around: Surroundings) -> None:
    whole, each = said.get("--mem"), said.get("--mem-per-gpu")
    size = binary_size(whole, bare=1 << 20) if whole else None
    if size:
        around.host["memory_limit_bytes"] = size
    elif each and around.gpus:
        per_gpu = binary_size(each, bare=1 << 20)
        if per_gpu:
            around.host["memory_limit_bytes"] = per_gpu * around.gpus // (around.nodes or 1)
    elif said.get("--mem-per-cpu"):
        cpus = re.match(r"\d+", said.get("--cpus-per-task", said.get("-c", "")))
        tasks = re.match(r"\d+", said.get("--ntasks-per-node", "1"))
        per_cpu = binary_size(said["--mem-per-cpu"], bare=1 << 20)
        if cpus and per_cpu:
            around.host["memory_limit_bytes"] = per_cpu * int(cpus[0]) * int(tasks[0] if tasks else 1)


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
    valued = set(_table("docker_values.json"))
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
        found = _ASSIGNS.fullmatch(text)
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
    if bare.isdigit():
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
