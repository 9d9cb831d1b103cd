"""Gemma 3 with images: SigLIP at 896 x 896, its 64 x 64 patches averaged to 16 x 16 and projected by one matrix.

Sources: the Gemma 3 report (arXiv 2503.19786); transformers 5.24 models/gemma3. vLLM 0.19 models/gemma3_mm.py keeps the
projection whole on every GPU and cuts the tower (models/siglip.py).
"""

from __future__ import annotations

from dataclasses import replace

from planner.model.config import RawConfig
from planner.model.families.nested import multimodal, text_spec
from planner.model.families.vision import read_vision_section, siglip
from planner.model.kinds.tower import parameter
from planner.model.spec import ModelSpec
from planner.model.tensor import Norm, Role

_PROJECTOR = "model.multi_modal_projector"


def build(raw: RawConfig) -> ModelSpec:
    """The spec of a gemma3 config.

    Raises:
        ConfigError: a field that is missing or makes no sense.
        UnsupportedArchitecture: a text_config of another family.
    """
    text = text_spec(raw, text_type="gemma3_text", tie_default=True)
    vision = read_vision_section(raw)
    tower = siglip(vision, "model.vision_tower")
    hidden = tower.stack.hidden_size
    tokens = raw.integer("mm_tokens_per_image", default=256, minimum=1, maximum=tower.positions)
    stack = replace(
        tower.stack,
        tensors=(
            *tower.stack.tensors,
            parameter(f"{_PROJECTOR}.mm_input_projection_weight", hidden, text.hidden_size, role=Role.PROJECTOR),
            *Norm(f"{_PROJECTOR}.mm_soft_emb_norm", hidden, "rms_offset").tensors(),
        ),
        tokens_per_item=tokens,
        patches_per_item=tower.positions,
        input_elements_per_item=tower.sizes.pixels,
        detail=f"every image is scaled to {tower.sizes.image_size} x {tower.sizes.image_size}, {tower.positions:,}"
        f" patches, pooled to mm_tokens_per_image = {tokens} (transformers Gemma3Processor, pan and scan off)",
    )
    return multimodal(raw, text, (stack,), vision)
