"""Programs that start another one: looked through, by a table of which of their options take a word."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from planner.launches.around import binary_size, card_of, version_of
from planner.launches.context import Context, Surroundings
from planner.launches.shell.expansion import Argument, Variable

ASSIGNS = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)


@cache
def table_of(name: str) -> Any:
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
        assigned = ASSIGNS.fullmatch(words[0].text)
        if assigned and len(words) > 1:
            environment[assigned[1]] = Variable(assigned[2], words[0].line, words[0].how, words[0].missing)
            context.secrets.keep(assigned[1], assigned[2])
            words = words[1:]
            continue
        if name == "tmux":
            inner = next((word for word in reversed(words[1:]) if " " in word.text), None)
            return [inner] if inner is not None else []
        rule = table_of("wrappers.json").get(name)
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
            found = ASSIGNS.fullmatch(text)
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
    left = rest[count + int(rule.get("skip", 0)) :]
    return left[1:] if left and left[0].text == "--" else left


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
