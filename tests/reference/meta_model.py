"""What transformers builds from a config, on the meta device: the reference for every weight tensor."""

from __future__ import annotations

import json
from collections import Counter
from functools import cache
from pathlib import Path

import torch
import transformers
from transformers import AutoConfig

MODEL_CONFIGS = Path(__file__).resolve().parents[2] / "model_configs"
_OWN_KEYS = {"_source", "_hf_quant_config", "quantization_config"}


@cache
def class_names() -> dict[str, str | None]:
    """Model -> the transformers class its published count was made with (None: it has none)."""
    rows = (Path(__file__).with_name("param_counts.jsonl")).read_text().splitlines()
    return {row["model"]: row["class"] for row in map(json.loads, rows)}


def meta_model(values: dict[str, object], class_name: str) -> torch.nn.Module:
    """The model of `class_name` for a raw config, parameters on the meta device, nothing allocated.

    Of an Omni config the thinker, which is what engines load.
    """
    thinker = values.get("thinker_config")
    values = thinker if isinstance(thinker, dict) else values
    kept = {key: value for key, value in values.items() if key not in _OWN_KEYS}
    model_type = kept.pop("model_type")
    config = AutoConfig.for_model(model_type, **kept)
    with torch.device("meta"):
        return getattr(transformers, class_name)(config)


def parameter_shapes(model: torch.nn.Module) -> Counter[tuple[int, ...]]:
    """Multiset of parameter shapes, a tied parameter once."""
    return Counter(tuple(parameter.shape) for parameter in model.parameters())
