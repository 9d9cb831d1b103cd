"""DeepSeek-V4's pools: bytes of a full token, the window's and the compressors' share included.

    L          layers, the draft's one among them; n4, n128 those that compress 4 and 128 tokens into one
    kv         nope + 2 x rope + 8 bytes of an entry
    windows    r x kv x L, r = --swa-full-tokens-ratio (0.1)
    compressed kv / 4 x n4 + kv / 128 x n128 + (indexer width + 4 per 128) / 4 x n4
    states     r x (ring / window) x 4 B x (4 head + 4 indexer) x n4 + r x (ring / window) x 8 B x head x n128

With speculation the sum is raised by (L + 1) / L for the draft. Rings hold 8 and 128 rows, twice that with speculation.

Source: SGLang 0.5.12 model_executor/pool_configurator.py DSV4PoolConfigurator; later releases move the states and, by
default, the windows to fixed pools and are not followed.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Final

from planner.model.kinds.compressed import CompressedAttention
from planner.model.spec import ModelSpec

DEFAULT_WINDOW_RATIO: Final = 0.1
_PAGE: Final = 128
_RINGS: Final = {4: 8, 128: 128}


def compressed_layers(spec: ModelSpec) -> tuple[CompressedAttention, ...]:
    """The attention of every layer, the drafts' included; empty for other models."""
    return tuple(
        mixer
        for layer in (*spec.layers, *spec.draft_layers)
        for mixer in layer.mixers
        if isinstance(mixer, CompressedAttention)
    )


def full_token_bytes(layers: tuple[CompressedAttention, ...], *, window_ratio: float, speculative: bool) -> Fraction:
    """Bytes of one token of context in all pools together, as an exact fraction."""
    first = layers[0]
    indexer = max(layer.index_head_dim for layer in layers)
    entry = first.head_dim - first.rotary_dim + 2 * first.rotary_dim + 8
    count = len(layers)
    fours = sum(layer.compress_ratio == 4 for layer in layers)
    long = sum(layer.compress_ratio == 128 for layer in layers)
    ratio = Fraction(str(window_ratio))
    rings = {key: Fraction(ring * (2 if speculative else 1), first.sliding_window) for key, ring in _RINGS.items()}
    size = (
        ratio * entry * count
        + Fraction(entry, 4) * fours
        + Fraction(entry, 128) * long
        + Fraction(indexer + indexer // _PAGE * 4, 4) * fours
        + ratio * rings[4] * 4 * (4 * first.head_dim + 4 * indexer) * fours
        + ratio * rings[128] * 4 * 2 * first.head_dim * long
    )
    return size * (count + 1) / count if speculative else size
