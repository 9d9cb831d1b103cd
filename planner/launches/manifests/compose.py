"""docker compose: services with their commands, devices and limits (compose specification, docker compose v2)."""

from __future__ import annotations

import os
import re
from typing import Any

from planner.launches.around import binary_size, device_count, image_engine
from planner.launches.context import Context, Surroundings
from planner.launches.documents import Map, Seq, as_list, as_map, at_path, text_of
from planner.launches.record import LaunchError
from planner.launches.shell.commands import start_image
from planner.launches.shell.containers import say_tag
from planner.launches.shell.expansion import Argument, Variable
from planner.launches.shell.lexer import lex
from planner.launches.shell.tokens import Token

_VARIABLE = re.compile(r"\$\$|\$\{([A-Za-z_]\w*)(?:(:?[-?+])((?:[^{}]|\$\{[^{}]*\})*))?\}|\$([A-Za-z_]\w*)")


def read_compose(context: Context, document: Map) -> None:
    """Every service that serves or trains becomes a plan."""
    reader = _Compose(context)
    for key in ("include",):
        if key in document:
            context.launch.skip(key, matters=True)
    services = as_map(document.get("services"))
    for name, service in services.items():
        reader.service(str(name), as_map(service), services)
    reader.say_defaults()


class _Compose:
    def __init__(self, context: Context) -> None:
        self.context = context
        self.values = self._env_file()
        self.defaults: list[str] = []

    def _env_file(self) -> dict[str, str]:
        """`.env` beside the file, which compose reads by itself."""
        found = self.context.file_text(".env") if self.context.settings.folder is not None else None
        values = parse_env(found[0]) if found is not None and os.path.basename(found[2]) == ".env" else {}
        for name, value in values.items():
            self.context.secrets.keep(name, value)
        return values

    def say_defaults(self) -> None:
        if self.defaults:
            names = ", ".join(dict.fromkeys(self.defaults))
            self.context.launch.note(
                f"defaults of ${{VAR:-...}} were used for {names}; a .env beside the file may change them"
            )

    def fill(self, text: str, line: int, *, quiet: bool = False) -> Argument:
        """The text with ${V}, ${V:-d} and their kin put in, as compose does before anything else."""
        missing: list[str] = []
        hows: list[str] = []

        def put(found: re.Match[str]) -> str:
            if found[0] == "$$":
                return "\0"
            name, operator, rest = found[1] or found[4], found[2] or "", found[3] or ""
            value = self.context.settings.values.get(name, self.values.get(name))
            if value is not None and (value or not operator.startswith(":")):
                hows.append("--set" if name in self.context.settings.values else ".env")
                return self.fill(rest, line).text if operator in (":+", "+") else value
            if operator in (":-", "-"):
                if not quiet:
                    self.defaults.append(name)
                hows.append(f"default of ${{{name}{operator}...}}")
                return self.fill(rest, line, quiet=quiet).text
            if operator in (":+", "+"):
                return ""
            missing.append(name)
            return found[0]

        return Argument(
            _VARIABLE.sub(put, text).replace("\0", "$"), line, hows[0] if hows else "stated", tuple(missing)
        )

    def service(self, name: str, service: Map, services: Map) -> None:
        context = self.context
        extended = service.get("extends")
        if extended is not None:
            base = extended if isinstance(extended, str) else text_of(as_map(extended).get("service"))
            if isinstance(extended, Map) and "file" in extended:
                context.launch.skip(f"{name}: extends {text_of(extended.get('file'))}", matters=True)
            elif base is not None and base in services:
                merged = Map(service.line)
                for part in (as_map(services[base]), service):
                    for key, value in part.items():
                        merged[key], merged.lines[key] = value, part.line_of(key)
                        if key in part.raw:
                            merged.raw[key] = part.raw[key]
                service = merged
        image = self.fill(text_of(service.get("image")) or "", service.line_of("image"))
        around = Surroundings(name=name)
        environment = self.environment(name, service)
        engine, version, _ = image_engine(image.text)
        if image.missing and (engine is not None):
            version = None
        if version is not None:
            around.version = version
            around.version_source = "image tag" if image.how == "stated" else "image tag by its default"
        self.devices(service, around, environment)
        self.host(service, around)
        replicas = at_path(service, "deploy.replicas") or service.get("scale")
        if isinstance(replicas, int):
            around.replicas = replicas
        entrypoint = self.words(service, "entrypoint", name)
        command = self.words(service, "command", name)
        before = len(context.launch.plans)
        start_image(
            context,
            image.text,
            [*entrypoint, *command],
            environment,
            around,
            contained=True,
            replaced=bool(entrypoint),
        )
        if len(context.launch.plans) == before:
            return
        if engine is not None and version is None:
            say_tag(context, image.text)
        if "env_file" in service:
            self.say_env_file(service)
        if service.get("profiles"):
            context.launch.note(f"{name} runs only with its profile")

    def say_env_file(self, service: Map) -> None:
        listed = service["env_file"] if isinstance(service["env_file"], list) else [service["env_file"]]
        for one in listed:
            name = text_of(as_map(one).get("path")) if isinstance(one, Map) else text_of(one)
            if name and self.context.file_text(name) is None:
                self.context.launch.skip(f"env_file {name}", matters=True)

    def environment(self, name: str, service: Map) -> dict[str, Variable]:
        """env_file that lies beside, then `environment` as list or map."""
        found: dict[str, Variable] = {}
        files = service.get("env_file")
        for one in files if isinstance(files, list) else [files] if files else []:
            path = text_of(as_map(one).get("path")) if isinstance(one, Map) else text_of(one)
            beside = self.context.file_text(path) if path else None
            if beside is not None:
                for key, value in parse_env(beside[0]).items():
                    found[key] = Variable(value, 1, f"env_file {path}")
                    self.context.secrets.keep(key, value)
        stated = service.get("environment")
        pairs: list[tuple[str, str | None, int]] = []
        if isinstance(stated, Map):
            pairs = [
                (str(key), stated.raw.get(key) or text_of(value), stated.line_of(key)) for key, value in stated.items()
            ]
        elif isinstance(stated, Seq):
            for index, item in enumerate(stated):
                key, equals, value = (text_of(item) or "").partition("=")
                pairs.append((key, value if equals else None, stated.lines[index]))
        for key, text, line in pairs:
            if text is None:
                if key in self.values or key in self.context.settings.values:
                    found[key] = Variable(self.context.settings.values.get(key, self.values.get(key, "")), line)
                continue
            filled = self.fill(text, line, quiet=True)
            self.context.secrets.keep(key, filled.text)
            found[key] = Variable(filled.text, line, filled.how, filled.missing)
        return found

    def words(self, service: Map, key: str, name: str) -> list[Argument]:
        """A command as list, or as a text that is split by shell words; no shell runs."""
        stated = service.get(key)
        line = service.line_of(key)
        if stated is None:
            return []
        found: list[Argument] = []
        if isinstance(stated, Seq):
            for index, item in enumerate(stated):
                word = self.fill(stated.raw[index] or text_of(item) or "", stated.lines[index])
                if re.fullmatch(r"--?[A-Za-z][\w-]*\s+\S.*", word.text) and not word.text.startswith("--="):
                    self.context.launch.note(
                        f"{name}: the list item {word.text.split()[0]!r} (line {word.line}) holds two words,"
                        " which the server"
                        " sees as one: it does not know it"
                    )
                    parts = word.text.split(None, 1)
                    found += [Argument(part, word.line, word.how, word.missing) for part in parts]
                    continue
                found.append(word)
            return found
        filled = self.fill(text_of(stated) or "", line)
        multi = service.raw.get(key, "")
        first = line + 1 if "\n" in multi else line
        try:
            tokens = lex(filled.text.replace("$", "\ue000"), first_line=first).tokens
        except LaunchError as error:
            raise LaunchError(f"{key} of {name}: {error}", form="compose") from None
        words = [token.word for token in tokens if isinstance(token, Token) and token.word is not None]
        for one in words:
            text = (one.literal or "").replace("\ue000", "$")
            if text.strip() != text or text.strip() == "\\":
                self.context.launch.note(
                    f"{name}: a backslash in a folded command glues a blank to {text.strip()[:40]!r}: the"
                    " server does not know it"
                )
                text = text.strip().strip("\\")
                if not text:
                    continue
            missing = tuple(name for name in filled.missing if f"${{{name}" in text or f"${name}" in text)
            found.append(Argument(text, first if len(words) else line, filled.how, missing))
        return found

    def devices(self, service: Map, around: Surroundings, environment: dict[str, Variable]) -> None:
        """deploy's device reservations, the short `gpus`, CDI devices."""
        stated: list[Any] = as_list(at_path(service, "deploy.resources.reservations.devices"))
        short = service.get("gpus")
        if isinstance(short, str) and short == "all":
            around.gpus_unknown = True
        elif isinstance(short, int):
            around.gpus = short
        elif isinstance(short, list):
            stated = [*stated, *short]
        for device in [as_map(one) for one in stated]:
            capabilities = as_list(device.get("capabilities"))
            if device.get("driver") not in (None, "nvidia", "cdi", "amd") and "gpu" not in capabilities:
                continue
            ids = [text_of(one) or "" for one in as_list(device.get("device_ids"))]
            count = device.get("count")
            if isinstance(count, str):
                count = self.fill(count, device.line_of("count")).text
            if ids and count is not None:
                self.context.launch.note("count and device_ids exclude each other: compose refuses both")
            if ids:
                filled = [self.fill(one, device.line).text for one in ids]
                around.gpus, around.device = len(filled), ",".join(filled)
            elif str(count) == "all" or count is None:
                around.gpus_unknown = True
            elif str(count).isdecimal():
                around.gpus = int(str(count))
        for one in as_list(service.get("devices")):
            found = re.match(r"nvidia\.com/gpu=(.+)", text_of(one) or "")
            if found and found[1] == "all":
                around.gpus_unknown = True
            elif found:
                around.device = f"{around.device},{found[1]}" if around.device else found[1]
                around.gpus = len(around.device.split(","))
        visible = environment.get("NVIDIA_VISIBLE_DEVICES")
        if visible is not None and around.gpus is None and not visible.missing:
            around.gpus, around.device = device_count(visible.text)
            around.gpus_unknown = around.gpus is None
        elif service.get("runtime") == "nvidia" and around.gpus is None and not around.gpus_unknown:
            around.gpus_unknown = True

    def host(self, service: Map, around: Surroundings) -> None:
        """Memory limits in steps of 2^10, shared memory, the host's IPC."""
        limit = at_path(service, "deploy.resources.limits.memory") or service.get("mem_limit")
        request = at_path(service, "deploy.resources.reservations.memory") or service.get("mem_reservation")
        for name, value in (
            ("memory_limit_bytes", limit),
            ("memory_request_bytes", request),
            ("shm_bytes", service.get("shm_size")),
        ):
            text = self.fill(text_of(value) or "", service.line).text
            size = binary_size(text) if text else None
            if size:
                around.host[name] = size
        if service.get("ipc") == "host":
            around.host["ipc_host"] = True
        for volume in as_list(service.get("volumes")):
            text = self.fill(text_of(volume) or "", service.line).text if not isinstance(volume, Map) else ""
            parts = text.split(":")
            if isinstance(volume, Map) and volume.get("type") == "bind":
                around.mounts[str(volume.get("target"))] = str(volume.get("source"))
            elif len(parts) >= 2 and parts[1].startswith("/") and re.match(r"[./~]", parts[0]):
                around.mounts[parts[1].rstrip("/")] = parts[0]


def parse_env(text: str) -> dict[str, str]:
    """NAME=value lines of an env file; quotes are taken off."""
    found: dict[str, str] = {}
    for line in text.split("\n")[:5000]:
        match = re.fullmatch(r"\s*(?:export\s+)?([A-Za-z_]\w*)\s*=\s*(.*?)\s*", line)
        if match:
            value = match[2]
            if len(value) > 1 and value[0] == value[-1] and value[0] in "'\"":
                value = value[1:-1]
            else:
                value = re.split(r"\s+#", value)[0]
            found[match[1]] = value
    return found
