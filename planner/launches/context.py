"""What the readers of one source share: the launch that grows, its secrets, files it names, versions it states."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from typing import Final

from planner.launches.record import Launch, LaunchPlan, Settings
from planner.launches.secrets import Secrets
from planner.launches.shell.expansion import Argument

_LARGEST_BESIDE: Final = 1 << 20


@dataclass(slots=True)
class Surroundings:
    """What a wrapper, a container or a scheduler says about the command inside it."""

    gpus: int | None = None
    gpus_unknown: bool = False
    device: str | None = None
    version: str | None = None
    version_source: str | None = None
    engine_image: str | None = None
    host: dict[str, int | bool] = field(default_factory=dict)
    mounts: dict[str, str] = field(default_factory=dict)
    models: dict[str, str] = field(default_factory=dict)
    model_sources: dict[str, str] = field(default_factory=dict)
    nodes: int | None = None
    group_gpus: bool = False
    name: str | None = None
    replicas: int | str = 1
    card: str | None = None
    card_key: str | None = None
    processes: int | None = None
    working_folder: str | None = None

    def copy(self) -> Surroundings:
        """One of its own for a command inside."""
        return replace(
            self,
            host=dict(self.host),
            mounts=dict(self.mounts),
            models=dict(self.models),
            model_sources=dict(self.model_sources),
        )


@dataclass(slots=True)
class Context:
    """The state of reading one source."""

    launch: Launch
    settings: Settings
    secrets: Secrets = field(default_factory=Secrets)
    files: dict[str, tuple[str, int]] = field(default_factory=dict)
    versions: dict[str, tuple[str, str]] = field(default_factory=dict)
    downloads: dict[str, str] = field(default_factory=dict)
    depth: int = 0

    @property
    def file(self) -> str:
        return self.launch.file

    def file_text(self, name: str) -> tuple[str, int, str] | None:
        """(text, first line, name) of a file that the source writes, or names relatively and that lies beside it."""
        if name in self.files:
            body, line = self.files[name]
            return body, line, self.file
        for written, (body, line) in self.files.items():
            if os.path.basename(written) == os.path.basename(name):
                return body, line, self.file
        folder = self.settings.folder
        if folder is None or os.path.isabs(name) or ".." in name.replace("\\", "/").split("/") or not name:
            return None
        path = os.path.join(folder, name)
        try:
            if os.path.islink(path) or not os.path.isfile(path) or os.path.getsize(path) > _LARGEST_BESIDE:
                return None
            with open(path, encoding="utf-8", errors="replace") as file:
                return file.read(_LARGEST_BESIDE), 1, name
        except OSError:
            return None

    def add(self, plan: LaunchPlan) -> None:
        """Keep a plan."""
        self.launch.plans.append(plan)

    def missing(self, argument: Argument, what: str) -> None:
        """A memory input whose word holds a variable without a value."""
        for name in argument.missing:
            bare = name if name.isidentifier() or name.isdecimal() else what.lstrip("-")
            self.launch.need(name, f"has no value in the text ({what})", settle=bare)
