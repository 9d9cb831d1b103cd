"""Image tokens in the text's sequence, and patches in the tower, by family.

Source: transformers 5.24 processors: image_processing_qwen2_vl.py smart_resize, processing_internvl.py,
processing_pixtral.py, processing_gemma3.py.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import ceil, floor, sqrt
from typing import Final

from planner.errors import UnsupportedArchitecture, UsageError

_SIZE: Final = re.compile(r"([1-9][0-9]{0,4})[x*]([1-9][0-9]{0,4})", re.ASCII)
_QWEN: Final = {"qwen2_vl": 28, "qwen2_5_vl": 28, "qwen3_vl": 32}
_LIMITS: Final = {"qwen2_vl": 1_003_520, "qwen2_5_vl": 12_845_056, "qwen3_vl": 16_777_216}
_LEAST: Final = {"qwen2_vl": 3136, "qwen2_5_vl": 3136, "qwen3_vl": 65_536}


@dataclass(frozen=True, slots=True)
class Picture:
    """An image as the model has it."""

    tokens: int
    patches: int


def read_size(text: str) -> tuple[int, int]:
    """(width, height) of "1920x1080".

    Raises:
        UsageError: not a size.
    """
    found = _SIZE.fullmatch(text.strip().lower())
    if found is None:
        raise UsageError(
            f"--image-size is {text[:30]!r}; expected width x height such as 1920x1080", field="image_size"
        )
    return int(found[1]), int(found[2])


def smart_resize(height: int, width: int, factor: int, least: int, most: int) -> tuple[int, int]:
    """(height, width) in multiples of `factor`, with at least and at most so many pixels."""
    high, wide = (max(factor, round(side / factor) * factor) for side in (height, width))
    if high * wide > most:
        scale = sqrt(height * width / most)
        return tuple(max(factor, floor(side / scale / factor) * factor) for side in (height, width))  # type: ignore[return-value]
    if high * wide < least:
        scale = sqrt(least / (height * width))
        return tuple(ceil(side * scale / factor) * factor for side in (height, width))  # type: ignore[return-value]
    return high, wide


def picture(family: str, width: int, height: int, max_pixels: int | None = None) -> Picture:
    """Tokens and patches of one image for a family of towers.

    Raises:
        UnsupportedArchitecture: how this family cuts images is not known here.
    """
    if family in _QWEN:
        factor = _QWEN[family]
        high, wide = smart_resize(height, width, factor, _LEAST[family], max_pixels or _LIMITS[family])
        patches = 4 * (high // factor) * (wide // factor)
        return Picture(patches // 4, patches)
    if family == "siglip":  # Gemma 3: 896 x 896 in patches of 14, pooled 4 x 4
        return Picture(256, 4096)
    if family == "pixtral":
        return pixtral_picture(width, height)
    if family in ("gemma4", "gemma4_unified"):
        return gemma4_picture()
    if family in ("internvl", "internvl_chat"):
        return internvl_picture(max(1, min(12, round(width / 448) * round(height / 448))))
    if family == "clip":
        return Picture(576, 577)
    raise UnsupportedArchitecture(
        f"how {family} cuts images is not known; give --max-seq-length with their tokens", field="image_size"
    )


def pixtral_picture(width: int, height: int, patch: int = 16, longest: int = 1024) -> Picture:
    """Rows of patches with one break or end token each."""
    ratio = max(width / longest, height / longest, 1)
    rows, columns = ceil(height / ratio / patch), ceil(width / ratio / patch)
    return Picture(rows * (columns + 1), rows * columns)


def internvl_picture(tiles: int) -> Picture:
    """Tiles of 448 x 448, a thumbnail where there is more than one, and two tokens around them."""
    shown = tiles + (tiles > 1)
    return Picture(256 * shown + 2, 1025 * shown)


def gemma4_picture(soft_tokens: int = 280) -> Picture:
    """So many soft tokens, of 3 x 3 patches each."""
    return Picture(soft_tokens, 9 * soft_tokens)
