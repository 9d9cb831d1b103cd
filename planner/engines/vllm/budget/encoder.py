"""What a multimodal encoder adds to the profile run: its own forward, and the inputs and outputs held after it."""

from __future__ import annotations

import csv
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import Final

from planner.engines.vllm.budget.runner import Term, distinct
from planner.engines.vllm.resolve import Resolved
from planner.engines.vllm.tables.profile import parse_version
from planner.hardware.cublas import cublas_workspace
from planner.memory import activations as terms
from planner.memory.parallel.sharding import Parallelism
from planner.model.kinds.feed_forward import Mlp
from planner.model.model import Model
from planner.model.spec import Stack


@dataclass(frozen=True, slots=True, kw_only=True)
class Items:
    """What the profile run sends through the encoder: so many items, and what one of them takes at most."""

    stack: Stack
    count: int
    tokens: int
    patches: int
    elements: int


def encoder_items(model: Model, resolved: Resolved) -> Items | None:
    """The items of the profile run; None when the encoder does not run in it.

    V1: of the largest modality max(1, min(budget // tokens, max_num_seqs x items per prompt)), budget = max(T, tokens).
    V0: every image that a prompt may have, in each of min(max_num_seqs, T // their tokens) sequences.

    Source: vLLM 0.19.0 `multimodal/encoder_budget.py`; 0.7.3 `worker/model_runner.py` profile_run.
    """
    asked = resolved.asked
    stack = max(model.spec.stacks, key=lambda stack: stack.tokens_per_item or 0, default=None)
    if asked.skip_mm_profiling or asked.language_model_only or stack is None or not stack.tokens_per_item:
        return None
    image = _image(model, resolved, stack)
    if resolved.profile.runner == "v0":
        return None if asked.limit_images == 0 else _v0_items(model, resolved, image)
    video = _video_tokens(model, resolved, image.tokens)
    if asked.limit_images == 0 and not video:
        return None
    largest = max(image.tokens if asked.limit_images != 0 else 0, video)
    per_prompt = resolved.max_model_len // largest
    if video < largest and asked.limit_images is not None:
        per_prompt = min(per_prompt, asked.limit_images)
    budget = max(resolved.max_num_batched_tokens, largest)
    count = max(1, min(budget // largest, resolved.max_num_seqs * per_prompt))
    return _scaled(image, largest, image.tokens, count=count)


def _image(model: Model, resolved: Resolved, stack: Stack) -> Items:
    """The largest image: as the model's processor allows, or as the command limits its pixels."""
    tokens, patches, elements = (
        stack.tokens_per_item or 0,
        stack.patches_per_item or 0,
        stack.input_elements_per_item or 0,
    )
    image = Items(stack=stack, count=1, tokens=tokens, patches=patches, elements=elements)
    pixels = resolved.asked.image_pixels
    if pixels is None or model.spec.model_type not in _towers():
        return image
    published = elements // _ELEMENTS_A_PIXEL
    return _scaled(image, min(pixels, published), published, count=1)


def _scaled(items: Items, part: int, whole: int, *, count: int) -> Items:
    return replace(
        items,
        count=count,
        tokens=max(1, items.tokens * part // whole),
        patches=items.patches * part // whole,
        elements=items.elements * part // whole,
    )


def _v0_items(model: Model, resolved: Resolved, image: Items) -> Items | None:
    asked = resolved.asked
    images = 1 if asked.limit_images is None else asked.limit_images
    videos = 0
    if int(_towers().get(model.spec.model_type, {}).get("video_frames", 0)):
        videos = 1 if asked.limit_videos is None else asked.limit_videos
    wanted = image.tokens * (images + _V0_VIDEO_IMAGES * videos)
    batch = resolved.max_num_batched_tokens
    sequences = max(1, min(resolved.max_num_seqs, batch // wanted))
    if wanted > batch // sequences and parse_version(resolved.profile.version) < _V0_KEEPS_IMAGES:
        # they do not fit the sequence: a text of its length is run in their place
        return None
    return replace(image, count=sequences * images)


def _video_tokens(model: Model, resolved: Resolved, image_tokens: int) -> int:
    """Tokens of the longest video that V1 profiles, in frames as large as an image, two of them together; 0: none."""
    row = _towers().get(model.spec.model_type)
    frames = int(row["video_frames"]) if row else 0
    if not frames or resolved.asked.limit_videos == 0:
        return 0
    left = (resolved.max_model_len - image_tokens) // image_tokens
    return image_tokens * max(1, min(frames // 2, left))


def encoder_inputs(model: Model, resolved: Resolved) -> list[Term]:
    """Dummy inputs and encoder outputs, which profile_run still references while the text model runs."""
    items = encoder_items(model, resolved)
    if items is None:
        return []
    element, width = resolved.element_bytes, model.spec.hidden_size * items.stack.output_widths
    return [
        Term(
            "encoder outputs",
            items.count * items.tokens * width * element,
            f"{items.count} x {items.tokens:,} x {width:,} x {element}",
        ),
        _inputs(items, element),
    ]


def _inputs(items: Items, element: int) -> Term:
    size = items.count * items.elements * element
    return Term("encoder inputs", size, f"{items.count} x {items.elements:,} x {element}")


def encoder_run(model: Model, resolved: Resolved, parallelism: Parallelism) -> tuple[Term, ...]:
    """The encoder on the profile run's items: its inputs, and the fullest moment inside one of its layers."""
    items = encoder_items(model, resolved)
    if items is None or not items.patches or not items.stack.layers:
        return ()
    stack, ways, own = items.stack, parallelism.tensor_parallel_size, items.count
    if resolved.asked.mm_encoder_tp_mode == "data":
        # whole towers share the items between the GPUs
        ways, own = 1, -(-own // ways)
    element, patches = resolved.element_bytes, own * items.patches
    peaks = []
    for layer in distinct(stack.layers):
        block = layer.feed_forward
        if isinstance(block, Mlp):
            inner = block.intermediate_size if block.replicated else -(-block.intermediate_size // ways)
            peak = terms.gated_mlp_peak if block.gated else terms.plain_mlp_peak
            size = peak(tokens=patches, hidden_size=stack.hidden_size, intermediate_size=inner, element_bytes=element)
            formula = f"{patches:,} x ({3 if block.gated else 2} x {inner:,} + 3 x {stack.hidden_size:,}) x {element}"
            peaks.append(Term(f"{stack.name} layer", size, formula))
    if not peaks:
        return ()
    if model.spec.model_type in _towers():
        peaks.append(_rotated(stack, resolved, patches=patches, ways=ways))
    found = [
        Term("BLAS workspace", cublas_workspace(resolved.asked.gpu).size_bytes, "fixed"),
        _inputs(items, element),
        max(peaks, key=lambda term: term.size),
    ]
    if stack.kept_states:
        size = stack.kept_states * patches * stack.hidden_size * element
        formula = f"{stack.kept_states} x {patches:,} x {stack.hidden_size:,} x {element}"
        found.append(Term("kept states", size, formula))
    return tuple(found)


# Three channels, and an image is its own pair of frames
_ELEMENTS_A_PIXEL: Final = 6
# V0 counts a video as two of the largest images (0.8.2: 15 images and a video are 17 x 16,384 tokens)
_V0_VIDEO_IMAGES: Final = 2
# Until then images that do not fit the profiled sequence are left out of it; afterwards they are kept, with a warning
_V0_KEEPS_IMAGES: Final = (0, 8, 3)
# From here on vLLM turns a tower's queries and keys together (models/qwen2_5_vl.py)
_JOINED: Final = (0, 11, 0)
_FLASH_ATTENTION: Final = (8, 0)


def _rotated(stack: Stack, resolved: Resolved, *, patches: int, ways: int) -> Term:
    """A tower's attention while its queries and keys are turned in fp32, in widths of the tower.

    Residual and normed input; query, key and value as they come (3); then either queries and keys joined (2), their
    fp32 copy (4) and the fp32 result (4); or, before 0.11, three contiguous copies, and of one of them the fp32 copy
    (2), its result (2) and that in 16 bit (1), where the flash-attention kernel turns it, else four fp32 products (8).
    """
    card = resolved.asked.gpu
    local = 3 + 2 + 4 + 4
    if parse_version(resolved.profile.version) < _JOINED:
        kernel = card is None or card.capability is None or card.capability >= _FLASH_ATTENTION
        local = 3 + 3 + (5 if kernel else 8)
    whole, cut = 2 * stack.hidden_size, local * -(-stack.hidden_size // ways)
    size = patches * (whole + cut) * resolved.element_bytes
    formula = f"{patches:,} x (2 x {stack.hidden_size:,} + {local} x {stack.hidden_size:,} / {ways}) x"
    return Term(f"{stack.name} attention in fp32", size, f"{formula} {resolved.element_bytes}")


@cache
def _towers() -> dict[str, dict[str, str]]:
    """Towers whose attention turns queries and keys in fp32, by the model's type."""
    text = files("planner.engines.vllm.tables").joinpath("towers.csv").read_text("utf-8")
    return {row["model_type"]: row for row in csv.DictReader(text.splitlines())}
