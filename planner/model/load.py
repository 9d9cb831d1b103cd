"""MODEL as the commands take it: a name, a folder or config.json, a file of weights, or a Hub id."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from planner.errors import SourceError
from planner.model.config import RawConfig
from planner.model.families import build_spec
from planner.model.model import Model
from planner.model.names.bundled import bundled_file, find_exact, is_hub_id
from planner.model.positions import stretched_positions
from planner.model.sources.json_file import read_json_object
from planner.model.sources.stored import StoredTensor

if TYPE_CHECKING:
    from planner.model.names.resolve import Resolved

_LONGEST_NAME: Final = 300


def load_model(source: str | Path, *, assume_family: str | None = None, revision: str | None = None) -> Model:
    """Read a model.

    Args:
        source: a bundled name ("meta-llama/Llama-3.1-8B-Instruct", or its last part when that is unique), a name that
            rests on one by rule (an export, a copy, Ollama's tag, a quantisation after a colon), a folder with a
            config.json, a .json, .safetensors or .gguf file, or a Hub id.
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
        return _from_json(bundled_file(found), found, "bundled config", assume_family)
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
        return _from_json(path, str(path), "config file", assume_family)
    from planner.model.sources.weights import load_from_files

    return load_from_files(path, assume_family=assume_family)


def _from_resolved(name: str, resolved: Resolved, assume_family: str | None) -> Model:
    values = resolved.config()
    origin = f"bundled config of {resolved.base}"
    model = model_from_config(values, name=name, origin=origin, assume_family=assume_family, notes=(resolved.note,))
    model.base = resolved.base
    if resolved.assumed:
        model.spec = replace(model.spec, assumed=(*model.spec.assumed, resolved.assumed))
    return model


def _from_json(path: Path, name: str, origin: str, assume_family: str | None) -> Model:
    return model_from_config(read_json_object(path), name=name, origin=origin, assume_family=assume_family)


def model_from_config(
    values: dict[str, object],
    *,
    name: str,
    origin: str,
    assume_family: str | None = None,
    stored_bytes: int | None = None,
    stored: tuple[StoredTensor, ...] = (),
    notes: tuple[str, ...] = (),
) -> Model:
    """A model from a parsed config.json.

    Raises:
        ConfigError, UnsupportedArchitecture: as `load_model`.
    """
    packed = values.get("_hf_quant_config")
    if "quantization_config" not in values and isinstance(packed, dict):
        # modelopt exports keep their quantisation in a file of its own, hf_quant_config.json
        values = values | {"quantization_config": packed}
    raw = RawConfig(values, path="config.json" if origin == "bundled config" else name)
    spec = build_spec(raw, assume_family=assume_family)
    source = values.get("_source")
    confidence = source.get("confidence", "") if isinstance(source, dict) else ""
    return Model(
        id=name,
        spec=spec,
        origin=origin,
        confidence=str(confidence),
        stored_bytes=stored_bytes,
        stored=stored,
        stretched=stretched_positions(values, spec.max_position_embeddings),
        notes=notes,
    )


def _from_hub(repo_id: str, revision: str | None, assume_family: str | None) -> Model:
    from planner.model.names.resolve import nearest_to
    from planner.model.sources.hub import fetch_config
    from planner.model.sources.weights import model_of_repository

    try:
        values = fetch_config(repo_id, revision=revision)
    except SourceError as error:
        raise SourceError(f"{error}{nearest_to(repo_id)}") from None
    return model_of_repository(repo_id, dict(values), revision=revision, assume_family=assume_family)
