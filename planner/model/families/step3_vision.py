"""Step 3.7's image encoder: one view of the whole image and square crops of it, folded four by four.

Sources: transformers 5.24 configuration_, modeling_ and image_processing_step3p7; vLLM 0.33.0 models/step3_vl.py and
transformers_utils/processors/step3_vl.py (tokens of a view, of a crop, and between them).
"""

from __future__ import annotations

from typing import Final

from planner.model.config import RawConfig
from planner.model.families.vision import read_tower
from planner.model.kinds.attention import AttentionNames
from planner.model.kinds.tower import convolution, encoder_layer, parameter
from planner.model.spec import Stack
from planner.model.tensor import Role, layer_norm, linear

_VISION: Final = {
    "hidden_size": 1536,
    "width": 1536,
    "num_hidden_layers": 47,
    "layers": 47,
    "num_attention_heads": 16,
    "heads": 16,
    "patch_size": 14,
    "image_size": 728,
}
_RATIO = 8960 / 1536  # Step3p7VisionConfig.mlp_ratio
_CROP, _LARGEST = 504, 3024  # pixels a side of a crop and of the largest image (Step3p7ImageProcessor)
_FOLD = 4  # two convolutions of stride 2
_MODEL = "model.vision_model"


def tower(vision: RawConfig, text_size: int, *, bias: bool) -> Stack:
    """The tower with its projector.

    Raises:
        ConfigError: a size that is out of range.
    """
    sizes = read_tower(
        vision,
        _VISION,
        hidden="width" if vision.has("width") else "hidden_size",
        depth="layers" if vision.has("layers") else "num_hidden_layers",
        heads="heads" if vision.has("heads") else "num_attention_heads",
    )
    vision.has("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")  # the ratio decides
    hidden = sizes.hidden_size
    ratio = vision.number("mlp_ratio", default=_RATIO)
    if not 0 < ratio <= 64:
        raise vision.error("mlp_ratio", f"is {ratio}; expected above 0 and at most 64")
    tensors = (
        *convolution(
            f"{_MODEL}.embeddings.patch_embedding", hidden, sizes.channels, sizes.patch_size, sizes.patch_size
        ),
        parameter(f"{_MODEL}.embeddings.position_embedding.weight", sizes.patches, hidden),
        *layer_norm(f"{_MODEL}.pre_layernorm", hidden).tensors(),
        *convolution(f"{_MODEL}.downsampler1", 2 * hidden, hidden, 3, 3, bias=True),
        *convolution(f"{_MODEL}.downsampler2", 4 * hidden, 2 * hidden, 3, 3, bias=True),
        *linear("model.multi_modal_projector", text_size, 4 * hidden, Role.PROJECTOR, bias=bias),
    )
    layer = encoder_layer(
        hidden_size=hidden,
        num_heads=sizes.num_heads,
        intermediate_size=int(hidden * ratio),
        activation=vision.text("hidden_act", default="quick_gelu"),
        norms=(layer_norm("layernorm_before", hidden), layer_norm("layernorm_after", hidden)),
        attention_names=AttentionNames(output="out_proj"),
        rotary=True,
        extra=(parameter("lambda_1", hidden), parameter("lambda_2", hidden)),
    )
    view = _side_tokens(sizes.image_size // sizes.patch_size) ** 2
    crop = _side_tokens(_CROP // sizes.patch_size) ** 2
    crops = (_LARGEST // _CROP) ** 2
    rows = _LARGEST // _CROP - 1
    patches = sizes.patches + crops * (_CROP // sizes.patch_size) ** 2
    return Stack(
        name="vision",
        hidden_size=hidden,
        tensors=tensors,
        layers=(layer,) * sizes.num_layers,
        layer_prefix=f"{_MODEL}.layers",
        tokens_per_item=view + 2 + crops * (crop + 2) + rows,
        patches_per_item=patches,
        input_elements_per_item=sizes.channels * (sizes.image_size**2 + crops * _CROP**2),
        detail=f"the largest image, {_LARGEST:,} x {_LARGEST:,}, is one view of {view} tokens and {crops} crops of"
        f" {crop}, each between two marks, and {rows} marks between rows",
    )


def _side_tokens(patches: int) -> int:
    """Tokens along a side after two convolutions of kernel 3, stride 2 and padding 1."""
    return -(-patches // _FOLD)
