"""MODEL as the commands take it: a name, a folder or config.json, a file of weights, or a Hub id."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from planner.errors import SourceError
from planner.model.from_config import model_from_config, with_quantiser_file
from planner.model.model import Model
from planner.model.names.bundled import bundled_config, bundled_file, find_exact, is_hub_id, siblings
from planner.model.sources.json_file import read_json_object

if TYPE_CHECKING:
    from planner.model.names.resolve import Resolved

__all__ = ["load_model", "model_from_config"]

_LONGEST_NAME: Final = 300
_ADAPTER: Final = "adapter_config.json"
_MISTRAL: Final = "params.json"


def load_model(source: str | Path, *, assume_family: str | None = None, revision: str | None = None) -> Model:
    """Read a model.

    Args:
        source: a bundled name ("meta-llama/Llama-3.1-8B-Instruct", or its last part when that is unique), a name that
            rests on one by rule (an export, a copy, Ollama's tag, a quantisation after a colon), a folder with a
            config.json or Mistral's params.json, an adapter's folder, a .json, .safetensors or .gguf file, or a Hub
            id.
        assume_family: read the config as this model_type; everything is then labelled assumed.
        revision: branch, tag or commit on the Hub; with it no name is read by rule.

    Raises:
        SourceError: no such file, bundled model or repository, or it cannot be read; says how to plan offline.
        ConfigError: the config does not describe a model.
        UnsupportedArchitecture: the model type is not understood.
    """
    text = str(source).strip()
    if not text or len(text) > _LONGEST_NAME or "\0" in text:
        raise SourceError("MODEL is empty or too long; pass a name, a folder, a config.json or a Hub id")
    path = Path(text).expanduser()
    if _exists(path):
        return _from_path(path, assume_family)
    found = find_exact(text)
    if found is None:
        # the rules of names are read when no bundled model has this very name
        from planner.model.names.resolve import nearest_to, resolve_bundled, resolve_name

        found = resolve_bundled(text)
        resolved = resolve_name(text) if found is None and revision is None else None
        if resolved is not None:
            return _from_resolved(text, resolved, assume_family)
    if found is not None:
        return _from_bundled(found, assume_family)
    if path.suffix in (".json", ".gguf", ".safetensors") or text.startswith((".", "/", "~")):
        raise SourceError(f"{text}: no such file or folder")
    if not is_hub_id(text):
        raise SourceError(f"{text!r} is neither a bundled model, a file nor a Hub id{nearest_to(text)}")
    return _from_hub(text, revision, assume_family)


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:
        return False


def _from_path(path: Path, assume_family: str | None) -> Model:
    if path.is_file() and path.suffix == ".json" and not path.name.endswith(".index.json"):
        if path.name == _ADAPTER:
            return _from_adapter(path, assume_family)
        return _from_json(path, str(path), "config file", assume_family)
    if path.is_dir() and not _exists(path / "config.json"):
        if _exists(path / _ADAPTER):
            return _from_adapter(path / _ADAPTER, assume_family)
        if _exists(path / _MISTRAL):
            return _from_json(path / _MISTRAL, str(path), "params.json of a folder", assume_family)
    from planner.model.sources.weights import load_from_files

    return load_from_files(path, assume_family=assume_family)


def _from_adapter(path: Path, assume_family: str | None) -> Model:
    """The base model of an adapter, which says what adapts it.

    Raises:
        SourceError: the base is itself an adapter, or cannot be found.
    """
    from planner.model.sources.adapter import read_adapter

    adapter = read_adapter(read_json_object(path), origin=str(path))
    if _exists(Path(adapter.base).expanduser() / _ADAPTER):
        raise SourceError(f"{path}: its base model {adapter.base[:80]} is an adapter itself; merge that one first")
    model = load_model(adapter.base, assume_family=assume_family)
    targets = ", ".join(adapter.target_modules) or "the targets that are usual for the model"
    note = (
        f"{path.parent.name or path}: an adapter of rank {adapter.rank} on {targets} of {adapter.base}, the model"
        f" planned here; served beside it with --enable-lora --max-lora-rank {adapter.rank}"
    )
    model.adapter = adapter
    model.notes = (note, *model.notes)
    return model


def _from_resolved(name: str, resolved: Resolved, assume_family: str | None) -> Model:
    values = resolved.config()
    origin = f"bundled config of {resolved.base}"
    model = model_from_config(values, name=name, origin=origin, assume_family=assume_family, notes=(resolved.note,))
    model.base = resolved.base
    if resolved.assumed:
        model.spec = replace(model.spec, assumed=(*model.spec.assumed, resolved.assumed))
    return model


def _from_bundled(name: str, assume_family: str | None) -> Model:
    if bundled_file(name).is_file():
        return _from_json(bundled_file(name), name, "bundled config", assume_family)
    row = siblings()[name]
    note = f"{name} has the shape of {row.base} ({row.evidence})"
    model = model_from_config(
        bundled_config(name), name=name, origin="bundled config", assume_family=assume_family, notes=(note,)
    )
    model.base = row.base
    if row.published is None:
        model.spec = replace(model.spec, assumed=(*model.spec.assumed, f"the shape of {row.base}"))
    return model


def _from_json(path: Path, name: str, origin: str, assume_family: str | None) -> Model:
    values = read_json_object(path)
    if path.name == _MISTRAL and "model_type" not in values:
        from planner.model.sources.mistral_params import config_from_params

        values = config_from_params(values, origin=str(path))
    elif origin != "bundled config":
        values = with_quantiser_file(values, path)
    return model_from_config(values, name=name, origin=origin, assume_family=assume_family)


def _from_hub(repo_id: str, revision: str | None, assume_family: str | None) -> Model:
    from planner.model.names.resolve import nearest_to
    from planner.model.sources.hub import fetch_config
    from planner.model.sources.weights import model_of_repository

    try:
        values = fetch_config(repo_id, revision=revision)
    except SourceError as error:
        raise SourceError(f"{error}{nearest_to(repo_id)}") from None
    return model_of_repository(repo_id, dict(values), revision=revision, assume_family=assume_family)
