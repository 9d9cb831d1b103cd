"""MODEL as the commands take it: a bundled name, a folder or config.json, a file of weights, or a Hub id."""

from __future__ import annotations

import difflib
import os
import re
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Final

from planner.errors import SourceError
from planner.model.config import RawConfig
from planner.model.families import build_spec
from planner.model.model import Model
from planner.model.positions import stretched_positions
from planner.model.sources.json_file import read_json_object
from planner.model.sources.stored import StoredTensor

_HUB_ID: Final = re.compile(r"[A-Za-z0-9][\w.\-]*/[\w.\-]+")
_LONGEST_NAME: Final = 300
# Endings of quantised exports, with the --quantization that plans the same from the base model.
_EXPORTS: Final = (
    ("-awq", "awq"), ("-gptq-int4", "gptq"), ("-gptq-int8", "gptq"), ("-gptq", "gptq"), ("-fp8-dynamic", "fp8"),
    ("-fp8", "fp8"), ("-bnb-4bit", "bitsandbytes"), ("-nvfp4", "nvfp4"), ("-quantized.w8a8", "w8a8"),
    ("-quantized.w4a16", "w4a16"), ("-gguf", "Q4_K_M"),
)  # fmt: skip


@cache
def bundled_folder() -> Path:
    """Where the bundled configs are: inside the installed package, or beside it in a checkout."""
    installed = Path(str(files("planner"))) / "model_configs"
    return installed if installed.is_dir() else Path(str(files("planner"))).parent / "model_configs"


@cache
def bundled_names() -> dict[str, Path]:
    """Hub id -> file of every bundled config."""
    folder = bundled_folder()
    files = sorted(name for name in os.listdir(folder) if name.endswith(".json"))
    return {name.removesuffix(".json").replace("--", "/", 1): folder / name for name in files}


def load_model(source: str | Path, *, assume_family: str | None = None, revision: str | None = None) -> Model:
    """Read a model.

    Args:
        source: a bundled name ("meta-llama/Llama-3.1-8B-Instruct", or its last part when that is unique), a folder
            with a config.json, a .json, .safetensors or .gguf file, or a Hub id.
        assume_family: read the config as this model_type; everything is then labelled assumed.
        revision: branch, tag or commit on the Hub.

    Raises:
        SourceError: no such file, bundled model or repository, or it cannot be read; says how to plan offline.
        ConfigError: the config does not describe a model.
        UnsupportedArchitecture: the model type is not understood.
    """
    text = str(source).strip()
    if not text or len(text) > _LONGEST_NAME or "\0" in text:
        raise SourceError("MODEL is empty or too long; pass a name, a folder, a config.json or a Hub id")
    path = Path(text).expanduser()
    bundled = _bundled(text)
    if bundled is not None and not _exists(path):
        return _from_json(bundled, bundled.stem.replace("--", "/", 1), "bundled config", assume_family)
    if _exists(path):
        return _from_path(path, assume_family)
    if path.suffix in (".json", ".gguf", ".safetensors") or text.startswith((".", "/", "~")):
        raise SourceError(f"{text}: no such file or folder")
    if not _HUB_ID.fullmatch(text):
        raise SourceError(f"{text!r} is neither a bundled model, a file nor a Hub id{_nearest(text)}")
    return _from_hub(text, revision, assume_family)


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:
        return False


def _bundled(name: str) -> Path | None:
    exact = bundled_folder() / f"{name.replace('/', '--', 1)}.json"
    if _HUB_ID.fullmatch(name) and _exists(exact):
        return exact
    names = bundled_names()
    wanted = name.lower()
    matches = [path for known, path in names.items() if known.lower() == wanted]
    if not matches and "/" not in name:
        matches = [path for known, path in names.items() if known.split("/", 1)[-1].lower() == wanted]
    if len(matches) > 1:
        options = ", ".join(path.stem.replace("--", "/", 1) for path in matches)
        raise SourceError(f"{name!r} names several bundled models: {options}")
    return matches[0] if matches else None


def _from_path(path: Path, assume_family: str | None) -> Model:
    if path.is_file() and path.suffix == ".json" and not path.name.endswith(".index.json"):
        return _from_json(path, str(path), "config file", assume_family)
    from planner.model.sources.weights import load_from_files

    return load_from_files(path, assume_family=assume_family)


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
    from planner.model.sources.hub import fetch_config
    from planner.model.sources.weights import model_of_repository

    try:
        values = fetch_config(repo_id, revision=revision)
    except SourceError as error:
        raise SourceError(f"{error}{_nearest(repo_id)}") from None
    return model_of_repository(repo_id, dict(values), revision=revision, assume_family=assume_family)


def _nearest(name: str) -> str:
    """What bundled model comes closest, and how a quantised export of one would be planned."""
    names = list(bundled_names())
    lowered = {known.lower(): known for known in names}
    makers_last = sorted(names, key=lambda known: not known.startswith(("unsloth/", "NousResearch/")))
    short = {known.split("/", 1)[-1].lower(): known for known in makers_last}
    wanted = name.lower()
    for ending, method in _EXPORTS:
        if wanted.endswith(ending):
            base = wanted[: -len(ending)]
            known = lowered.get(base) or short.get(base.split("/", 1)[-1])
            if known:
                return f"; the base model is bundled: plan {known} with --quantization {method}"
    # "qwen3" is the beginning of a family's names, not a misspelt model
    begins = [known for known in short if known.startswith(wanted.split("/", 1)[-1])]
    close = difflib.get_close_matches(wanted, begins, n=1, cutoff=0.0)
    if not close:
        close = difflib.get_close_matches(wanted, lowered, n=1, cutoff=0.5)
    if not close:
        close = difflib.get_close_matches(wanted.split("/", 1)[-1], short, n=1, cutoff=0.5)
    if close:
        return f"; nearest bundled model: {lowered.get(close[0]) or short[close[0]]}"
    return "; `vram-planner models` lists what is bundled"
