"""A model with the raw config behind it, so that it can be built elsewhere, or at less depth."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from planner.errors import SourceError
from planner.model.from_config import model_from_config
from planner.model.load import load_model
from planner.model.model import Model
from planner.model.names.bundled import bundled_config, known_names
from planner.model.shallow.depth import Depths, check_cut, cut_config, depths_for
from planner.model.sources.json_file import read_json_object

_OWN_KEYS: Final = ("_source", "_hf_quant_config")


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A model as it is planned, and its raw config to build from."""

    model: Model
    values: Mapping[str, object]

    def at_depth(self, layers: int) -> tuple[Model, dict[str, object]]:
        """The model and the config cut to this many layers.

        Raises:
            ConfigError: the config's depth cannot be cut there.
        """
        total = len(self.model.spec.layers)
        if layers == total:
            return self.model, dict(self.values)
        values = cut_config(self.values, layers, total=total)
        cut = model_from_config(values, name=self.model.id, origin=self.model.origin)
        check_cut(self.model, cut, layers)
        return cut, values

    def depths(self, wanted: int | None) -> Depths:
        """The depths to run at; the whole model when none is asked for."""
        layers = self.model.spec.layers
        return depths_for(layers, len(layers) if wanted is None else wanted)


def read_subject(source: str) -> Subject:
    """The model of a bundled name, a folder, a config.json or a Hub id, with its config.

    Raises:
        SourceError: as `load_model`, or MODEL is a file of weights, which has no config to build from.
        ConfigError, UnsupportedArchitecture: as `load_model`.
    """
    model = load_model(source)
    values = _values(source, model)
    return Subject(model=model, values={key: value for key, value in values.items() if key not in _OWN_KEYS})


def _values(source: str, model: Model) -> Mapping[str, object]:
    path = Path(source).expanduser()
    if path.is_dir():
        path = path / "config.json"
    if path.is_file() and path.suffix == ".json" and not path.name.endswith(".index.json"):
        return read_json_object(path)
    for bundled in (model.id, model.base):
        if bundled in known_names():
            return bundled_config(bundled)
    if path.exists():
        raise SourceError(
            f"{source}: a name, a folder or a config.json is needed here: the model is built from its config",
            field="model",
        )
    from planner.model.sources.hub import fetch_config

    return fetch_config(source)
