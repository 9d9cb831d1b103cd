"""systemd units: ExecStart with systemd's own expansion, environment, memory limits (systemd.exec, .service)."""

from __future__ import annotations

import re

from planner.launches.around import binary_size
from planner.launches.context import Context, Surroundings
from planner.launches.manifests.compose import parse_env
from planner.launches.shell.commands import read_command
from planner.launches.shell.expansion import Argument, Variable
from planner.launches.shell.lexer import lex
from planner.launches.shell.script import Command
from planner.launches.shell.tokens import Token

_VARIABLE = re.compile(r"\$\$|\$\{([A-Za-z_]\w*)\}|\$([A-Za-z_]\w*)")
_HINT = re.compile(r"(vllm|sglang|llama\.cpp)[-_/]v?(\d+\.\d+(?:\.\d+)?)")


def read_unit(context: Context, text: str) -> None:
    """The servers that ExecStart= starts; drop-ins' empty ExecStart= resets."""
    environment: dict[str, Variable] = {}
    starts: list[tuple[str, int]] = []
    around = Surroundings()
    section = ""
    for line, key, value in _settings(text):
        if key == "[":
            section = value
        elif section != "Service":
            continue
        elif key == "Environment":
            for word in _words(value, line):
                name, equals, content = word.partition("=")
                if equals:
                    environment[name] = Variable(content, line)
                    context.secrets.keep(name, content)
        elif key == "EnvironmentFile":
            _environment_file(context, value, environment)
        elif key == "ExecStart":
            starts = [*starts, (value, line)] if value else []
        elif key in ("MemoryMax", "MemoryHigh", "MemoryLimit"):
            _memory(context, key, value, around)
    for value, line in starts:
        _start(context, value, line, environment, around)


def _settings(text: str) -> list[tuple[int, str, str]]:
    """(line, key, value) in order; a section is the key "["; continued lines are joined by a blank."""
    found: list[tuple[int, str, str]] = []
    lines = text.split("\n")
    index = 0
    while index < len(lines) and len(found) < 10_000:
        start, line = index + 1, lines[index]
        index += 1
        if not line.strip() or line.lstrip().startswith(("#", ";")):
            continue
        parts = [line]
        while parts[-1].endswith("\\") and index < len(lines):
            parts[-1] = parts[-1][:-1]
            following = lines[index]
            index += 1
            if following.lstrip().startswith(("#", ";")):
                parts.append("\\")
                continue
            parts.append(following)
        joined = "\n".join(part for part in parts if part != "\\")
        section = re.fullmatch(r"\s*\[(\w+)\]\s*", joined)
        key, equals, value = joined.partition("=")
        if section:
            found.append((start, "[", section[1]))
        elif equals:
            found.append((start, key.strip(), value.strip()))
    return found


def _words(text: str, line: int) -> list[str]:
    tokens = lex(text.replace("$", "\ue000"), first_line=line).tokens
    return [
        (t.word.literal or "").replace("\ue000", "$") for t in tokens if isinstance(t, Token) and t.word is not None
    ]


def _environment_file(context: Context, value: str, environment: dict[str, Variable]) -> None:
    name = value.lstrip("-")
    found = context.file_text(name)
    if found is None:
        context.launch.skip(name, matters=True)
        return
    for key, content in parse_env(found[0]).items():
        environment[key] = Variable(content, 1, f"EnvironmentFile {name}")
        context.secrets.keep(key, content)


def _memory(context: Context, key: str, value: str, around: Surroundings) -> None:
    if value.endswith("%"):
        context.launch.note(f"{key} {value} is a share of this machine's memory, which is not known")
        return
    size = binary_size(value)
    if size and key != "MemoryHigh":
        around.host["memory_limit_bytes"] = size
        context.launch.note(f"{key} kills with 137 (SIGKILL) when the host side grows past {size / (1 << 30):g} GiB")


def _start(context: Context, value: str, line: int, environment: dict[str, Variable], around: Surroundings) -> None:
    tokens = lex(value.lstrip("@-:+!").replace("$", "\ue000").replace("\n", "\\\n"), first_line=line).tokens
    arguments: list[Argument] = []
    for token in tokens:
        if isinstance(token, Token) and token.word is not None:
            raw = "".join(part.text for part in token.word.parts).replace("\ue000", "$")
            arguments += _expanded(context, raw, token.line, environment)
    if not arguments:
        return
    hint = _HINT.search(arguments[0].text)
    if hint:
        context.launch.note(f"the path says {hint[1]} {hint[2]}: a hint at the version, not a statement")
    read_command(context, Command(arguments, line, dict(environment)), around)


def _expanded(context: Context, text: str, line: int, environment: dict[str, Variable]) -> list[Argument]:
    """${X} stays one word, a bare $X is split; there are no defaults and no shell."""
    given = context.settings.values
    whole = re.fullmatch(r"\$([A-Za-z_]\w*)", text)
    if whole:
        value = given.get(whole[1]) or (environment[whole[1]].text if whole[1] in environment else None)
        if value is None:
            return [Argument(text, line, missing=(whole[1],))]
        return [Argument(word, line, "environment") for word in value.split()]
    missing: list[str] = []

    def put(found: re.Match[str]) -> str:
        name = found[1] or found[2]
        if name is None:
            return "$"
        if name in given:
            return given[name]
        if name in environment:
            return environment[name].text
        missing.append(name)
        return found[0]

    filled = _VARIABLE.sub(put, text)
    specifier = re.search(r"%[a-zA-Z]", filled)
    if specifier and not filled.startswith("-") and "/" in filled and specifier[0] in ("%i", "%I"):
        missing.append(specifier[0])
    return [Argument(filled.replace("%%", "%"), line, missing=tuple(missing))]
