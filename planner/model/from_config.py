"""A model from a parsed config.json, and what a quantiser wrote in a file of its own beside it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from planner.model.config import RawConfig
from planner.model.families import build_spec
from planner.model.model import Model
from planner.model.positions import stretched_positions
from planner.model.sources.json_file import read_json_object
from planner.model.sources.stored import StoredTensor

# Quantisers that keep their description beside the config (NVIDIA ModelOpt; AutoGPTQ before it moved).
_QUANTISERS: Final = ("hf_quant_config.json", "quantize_config.json")


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
    if isinstance(packed, dict):
        # bundled configs keep in this key what ModelOpt writes in a file of its own
        values = joined_quantisation(values, packed)
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


def with_quantiser_file(values: dict[str, object], config: Path) -> dict[str, object]:
    """The config with what a quantiser wrote beside it.

    hf_quant_config.json and quantize_config.json belong to the config.json of their folder, `NAME.hf_quant_config.json`
    to `NAME.json`.

    Raises:
        SourceError: such a file that cannot be read.
    """
    beside = [config.with_name(f"{config.stem}.{_QUANTISERS[0]}")]
    if config.name == "config.json":
        beside = [config.with_name(name) for name in _QUANTISERS]
    for path in beside:
        if _exists(path):
            values = joined_quantisation(values, read_json_object(path))
    return values


def joined_quantisation(values: dict[str, object], written: Mapping[str, object]) -> dict[str, object]:
    """The config with a quantiser's own file as its quantization_config; the config's own goes first.

    ModelOpt's cache type may stand in its file alone, and is added to a quantization_config without one.
    """
    inner = written.get("quantization")
    if isinstance(inner, Mapping):
        producer = written.get("producer")
        name = producer.get("name", "modelopt") if isinstance(producer, Mapping) else "modelopt"
        found: dict[str, object] = {"quant_method": str(name), **inner}
    else:
        found = {"quant_method": "gptq", **written}
    own = values.get("quantization_config")
    if not isinstance(own, dict):
        return values | {"quantization_config": found}
    cache = found.get("kv_cache_quant_algo")
    if cache is None or own.get("kv_cache_scheme") is not None or own.get("kv_cache_quant_algo") is not None:
        return values
    return values | {"quantization_config": own | {"kv_cache_quant_algo": cache}}


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:
        return False
