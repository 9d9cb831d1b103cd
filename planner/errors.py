"""Every error that a user can cause.

PlannerError                 one line, exit status 2
├── ConfigError              a model's config.json cannot be read as a model; names the field
├── UnsupportedArchitecture  the model type, or a value in it, is not understood
├── UnsupportedQuantization  the storage format is not understood, or not by this engine
├── UnknownGpu               no card, or more than one, has this name
├── UsageError               an option's value is wrong, or two contradict each other
├── SourceError              a file, folder or Hub repository cannot be read
├── NotRecognised            a text holds nothing that the reader looks for
└── ProbeError               a measurement could not be made here: a library or a device is missing, or memory
"""

from __future__ import annotations


class PlannerError(Exception):
    """Base of every error that is the input's fault.

    Args:
        message: one line: what is wrong, where, and what to do about it.
        field: the config key or option concerned, when there is one.
    """

    code = "error"

    def __init__(self, message: str, *, field: str | None = None) -> None:
        super().__init__(" ".join(message.split()))
        self.field = field


class ConfigError(PlannerError):
    """A config.json that does not describe a model: a missing, contradictory or absurd value."""

    code = "config"


class UnsupportedArchitecture(PlannerError):
    """A model type, or a value inside one, that is not understood."""

    code = "unsupported_architecture"


class UnsupportedQuantization(PlannerError):
    """A weight or cache format that is not understood, or not supported where it is asked for."""

    code = "unsupported_quantization"


class UnknownGpu(PlannerError):
    """No card has this name, or several with different memory have it."""

    code = "unknown_gpu"


class UsageError(PlannerError):
    """An option's value is out of range, or two options contradict each other."""

    code = "usage"


class SourceError(PlannerError):
    """A file, folder or Hub repository that cannot be read, or is not what its name says."""

    code = "source"


class NotRecognised(PlannerError):
    """A text in which nothing was found of what the reader looks for."""

    code = "not_recognised"


class ProbeError(PlannerError):
    """A measurement that could not be made here: no such device, a library is missing, or too little free memory."""

    code = "probe"
