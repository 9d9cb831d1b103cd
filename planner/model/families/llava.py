"""LLaVA, LLaVA-NeXT (Granite Vision is one) and Mistral 3: a vision tower, a projector, any decoder.

llava       two linear layers from the tower to the decoder; Pixtral-12B is one with Pixtral's tower
llava_next  the image in tiles, chosen from image_grid_pinpoints, and once whole; a learned end of row
llava_onevision  the same with SigLIP and Qwen2, scaled down to as many features as anyres_max_9 says
mistral3    Pixtral's tower, then 2 x 2 patches merged into one before the two linear layers

Sources: transformers 5.24 llava, llava_next, mistral3, pixtral (modeling_, configuration_, processing_,
image_processing_); vLLM 0.19 models/llava.py, llava_next.py, mistral3.py, pixtral.py.
"""

from __future__ import annotations

from dataclasses import replace

from planner.errors import ConfigError
from planner.model.config import RawConfig
from planner.model.families.decoder import refuse
from planner.model.families.nested import multimodal, text_spec
from planner.model.families.vision import Tower, read_vision_section, vision_tower
from planner.model.kinds.tower import parameter, projector
from planner.model.spec import ModelSpec, Stack
from planner.model.tensor import Norm, Role, Tensor, linear

_TOWER = "model.vision_tower"
_PROJECTOR = "model.multi_modal_projector"
_LARGEST_GRID = 64
_LLAVA_NEXT_PINPOINTS = ((336, 672), (672, 336), (672, 672), (1008, 336), (336, 1008))


def build(raw: RawConfig) -> ModelSpec:
    """The spec of a llava, llava_next, llava_onevision or mistral3 config.

    Raises:
        ConfigError: a field that is missing or makes no sense.
        UnsupportedArchitecture: a tower, a decoder or a value that is not understood.
    """
    model_type = raw.text("model_type", default="llava")
    merging = model_type == "mistral3"
    # vLLM reads Mistral's own repositories in their own format, whose tower every GPU holds whole; a quantised export
    # is in the Hugging Face format, whose tower is cut (logs of both under tensor parallel 2: docs/method.md)
    original = merging and not raw.has("quantization_config")
    onevision = model_type == "llava_onevision"
    decoder = "mistral" if merging else "qwen2" if onevision else "llama"
    text = text_spec(raw, text_type=decoder, tie_default=merging)
    vision = read_vision_section(raw)
    tower = vision_tower(vision, _TOWER, replicated=original)
    bias = raw.flag("multimodal_projector_bias", default=not merging)
    tensors = tower.stack.tensors
    if merging:
        tensors += _merger(raw, tower)
    tensors += projector(
        _PROJECTOR,
        (_projector_input(raw, tower), text.hidden_size, text.hidden_size),
        bias=bias,
        sharded=not original,
    )
    if model_type in ("llava_next", "llava_onevision"):
        tensors += (parameter("model.image_newline", text.hidden_size, role=Role.PROJECTOR),)
    default = -2 if model_type in ("llava", "llava_next") else -1
    unread = _unread_layers(raw.raw("vision_feature_layer"), len(tower.stack.layers), default)
    stack = replace(tower.stack, tensors=tensors, unread_layers=unread)
    count = {"llava_next": _tiled, "llava_onevision": _onevision, "mistral3": _merged}.get(model_type, _whole)
    return multimodal(raw, text, (count(raw, tower, stack),), vision)


def _unread_layers(chosen: object, count: int, default: int) -> int:
    """Layers behind the deepest one that features are taken from; -1 is the last one's output."""
    listed = chosen if isinstance(chosen, list) and chosen else [chosen]
    places = [place if isinstance(place, int) else default for place in listed]
    deepest = max(place if place >= 0 else count + place + 1 for place in places)
    return min(max(0, count - deepest), count)


def _projector_input(raw: RawConfig, tower: Tower) -> int:
    """Features of several layers are laid side by side."""
    chosen = raw.raw("vision_feature_layer")
    return tower.stack.hidden_size * (len(chosen) if isinstance(chosen, list) and chosen else 1)


def _merger(raw: RawConfig, tower: Tower) -> tuple[Tensor, ...]:
    merge = raw.integer("spatial_merge_size", default=2, minimum=1, maximum=16)
    hidden = tower.stack.hidden_size
    return (
        *Norm(f"{_PROJECTOR}.norm", hidden).tensors(),
        *linear(f"{_PROJECTOR}.patch_merger.merging_layer", hidden, hidden * merge**2, Role.PROJECTOR),
    )


def _drops_class_token(raw: RawConfig) -> bool:
    """vision_feature_select_strategy: "default" drops the first position, "full" keeps all.

    Raises:
        UnsupportedArchitecture: another strategy.
    """
    strategy = raw.text("vision_feature_select_strategy", default="default")
    if strategy not in ("default", "full"):
        raise refuse(raw, "vision_feature_select_strategy", f"{strategy[:40]!r} is not understood")
    return strategy == "default"


def _whole(raw: RawConfig, tower: Tower, stack: Stack) -> Stack:
    sizes = tower.sizes
    if tower.stack.layer_prefix.endswith("transformer.layers"):
        return _rows(raw, tower, stack, merge=1)
    tokens = tower.positions - (1 if _drops_class_token(raw) else 0)
    return replace(
        stack,
        tokens_per_item=tokens,
        patches_per_item=tower.positions,
        input_elements_per_item=sizes.pixels,
        detail=f"every image is scaled to {sizes.image_size} x {sizes.image_size}: {tokens:,} features of patches of"
        f" {sizes.patch_size} (transformers LlavaProcessor)",
    )


def _onevision(raw: RawConfig, tower: Tower, stack: Stack) -> Stack:
    """A base image, and tiles whose features are scaled down to at most `anyres_max_N` times those of one tile."""
    aspect = raw.text("vision_aspect_ratio", default="anyres_max_9")
    times = aspect.rpartition("_")[2]
    if not aspect.startswith("anyres_max_") or not times.isdigit() or not 0 < int(times) <= _LARGEST_GRID:
        raise refuse(raw, "vision_aspect_ratio", f"{aspect[:40]!r} is not understood; expected anyres_max_9")
    sizes, points = tower.sizes, raw.items("image_grid_pinpoints") or []
    per_side = sizes.image_size // sizes.patch_size
    tiles = max((_grid_tiles(raw, point, sizes.image_size) for point in points), default=36)
    # one learned end of row for each row of the tiles' features
    rows = round(per_side * int(times) ** 0.5)
    tokens = per_side**2 + per_side**2 * int(times) + rows
    return replace(
        stack,
        tokens_per_item=tokens,
        patches_per_item=(tiles + 1) * tower.positions,
        input_elements_per_item=(tiles + 1) * sizes.pixels,
        detail=f"an overview of {per_side**2:,} features and tiles scaled to {times} times as many, with {rows} ends of"
        " rows (transformers LlavaOnevisionProcessor)",
    )


def _grid_tiles(raw: RawConfig, point: object, side: int) -> int:
    if not isinstance(point, list) or len(point) != 2 or not all(isinstance(size, int) and size > 0 for size in point):
        raise raw.error("image_grid_pinpoints", "must hold pairs of positive whole numbers")
    rows, columns = (-(-int(size) // side) for size in point)
    return min(_LARGEST_GRID**2, rows * columns)


def _merged(raw: RawConfig, tower: Tower, stack: Stack) -> Stack:
    merge = raw.integer("spatial_merge_size", default=2, minimum=1, maximum=16)
    if tower.stack.layer_prefix.endswith("transformer.layers"):
        return _rows(raw, tower, stack, merge=merge)
    raise refuse(raw, "vision_config", "is not Pixtral's tower, which Mistral 3 needs")


def _rows(raw: RawConfig, tower: Tower, stack: Stack, *, merge: int) -> Stack:
    """Pixtral: rows of patches, each row ended by a break token; the longest side is image_size."""
    sizes = tower.sizes
    raw.has("image_seq_length")
    rows = max(1, sizes.image_size // (sizes.patch_size * merge))
    return replace(
        stack,
        tokens_per_item=rows * (rows + 1),
        patches_per_item=(rows * merge) ** 2,
        input_elements_per_item=sizes.channels * (rows * merge * sizes.patch_size) ** 2,
        detail=f"longest side {sizes.image_size}: {rows} rows of {rows} tokens (patches of {sizes.patch_size}, merged"
        f" {merge} x {merge}) and a break each (transformers PixtralProcessor, longest_edge as published)",
    )


def _tiled(raw: RawConfig, tower: Tower, stack: Stack) -> Stack:
    """LLaVA-NeXT: the tiling of image_grid_pinpoints with most tokens, an end of row for each row, the whole image."""
    sizes = tower.sizes
    across = sizes.image_size // sizes.patch_size
    base = tower.positions - (1 if _drops_class_token(raw) else 0)
    tokens, tiles = 0, 0
    for height, width in _pinpoints(raw):
        down, right = -(-height // sizes.image_size), -(-width // sizes.image_size)
        if down * right > _LARGEST_GRID:
            raise raw.error("image_grid_pinpoints", f"holds {height} x {width}, more than {_LARGEST_GRID} tiles")
        tokens = max(tokens, down * right * across**2 + down * across + base)
        tiles = max(tiles, down * right + 1)
    return replace(
        stack,
        tokens_per_item=tokens,
        patches_per_item=tiles * tower.positions,
        input_elements_per_item=tiles * sizes.pixels,
        detail=f"at most {tiles} tiles of {sizes.image_size} x {sizes.image_size} with the overview; a square image"
        f" fills {tokens:,} tokens (transformers LlavaNextProcessor)",
    )


def _pinpoints(raw: RawConfig) -> list[tuple[int, int]]:
    """image_grid_pinpoints as pairs.

    Raises:
        ConfigError: not pairs of sizes.
    """
    value = raw.raw("image_grid_pinpoints")
    if value is None:
        return list(_LLAVA_NEXT_PINPOINTS)
    if not isinstance(value, list) or not 0 < len(value) <= 1000:
        raise _not_pairs(raw)
    pairs = []
    for entry in value:
        if not isinstance(entry, list) or len(entry) != 2:
            raise _not_pairs(raw)
        height, width = entry
        if not all(type(size) is int and 0 < size < 1 << 16 for size in entry):
            raise _not_pairs(raw)
        pairs.append((height, width))
    return pairs


def _not_pairs(raw: RawConfig) -> ConfigError:
    return raw.error("image_grid_pinpoints", "must be a list of [height, width] in pixels")
