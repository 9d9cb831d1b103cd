"""PaliGemma: SigLIP, one linear layer, a Gemma or Gemma 2 decoder.

Source: arXiv 2407.07726; transformers 5.24 models/paligemma (configuration_, modeling_).
"""

from __future__ import annotations

from dataclasses import replace

from planner.model.config import RawConfig
from planner.model.families.nested import multimodal, text_spec
from planner.model.families.vision import read_vision_section, vision_tower
from planner.model.kinds.tower import projector
from planner.model.spec import ModelSpec


def build(raw: RawConfig) -> ModelSpec:
    """The spec of a paligemma config.

    Raises:
        ConfigError: a field that is missing or makes no sense.
        UnsupportedArchitecture: a tower or a decoder that is not understood.
    """
    text = text_spec(raw, text_type="gemma", tie_default=True)
    vision = read_vision_section(raw)
    raw.has("projection_dim")
    tower = vision_tower(vision, "model.vision_tower")
    tokens = tower.positions
    stack = replace(
        tower.stack,
        tensors=(
            *tower.stack.tensors,
            *projector(
                "model.multi_modal_projector",
                (tower.sizes.hidden_size, text.hidden_size),
                sharded=False,
                names=("linear",),
            ),
        ),
        tokens_per_item=tokens,
        patches_per_item=tokens,
        input_elements_per_item=tower.sizes.pixels,
        detail=f"every image is scaled to {tower.sizes.image_size} x {tower.sizes.image_size}: {tokens:,} tokens",
    )
    return multimodal(raw, text, (stack,), vision)
