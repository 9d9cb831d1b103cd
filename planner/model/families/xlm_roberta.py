"""xlm-roberta: RoBERTa in many languages, or, with rotary positions, Jina's third encoder under its first name.

Source: jinaai/xlm-roberta-flash-implementation `configuration_xlm_roberta.py` (remote code): position_embedding_type
"rotary", lora_adaptations.
"""

from __future__ import annotations

from dataclasses import replace

from planner.model.config import RawConfig
from planner.model.families import bert, gte_new
from planner.model.spec import ModelSpec


def build(raw: RawConfig) -> ModelSpec:
    """The spec of an xlm-roberta config.

    Raises:
        ConfigError, UnsupportedArchitecture: as `bert.build` or `gte_new.build`.
    """
    if raw.text("position_embedding_type", default="absolute") != "rotary":
        return bert.build(raw)
    spec = gte_new.build(raw)
    if not raw.has("lora_adaptations", "lora_rank"):
        return spec
    note = "task adapters (lora_adaptations) are merged into the weights while loading and not counted"
    return replace(spec, notes=(*spec.notes, note))
