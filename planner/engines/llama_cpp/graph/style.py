"""How llama.cpp builds each architecture's graph, where that does not follow from the model's sizes."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from importlib.resources import files
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Style:
    """One architecture's way.

    Args:
        architecture: GGUF's name of it.
        block: where norms and residuals stand: "pre", "post" (norms only behind), "sandwich" (both), "parallel"
            (attention and feed-forward side by side).
        rows: when tokens without logits are dropped: "last" (in the last layer, before the residual), "norm"
            (after the final norm), "end" (before it).
        keys_first: the cache is written keys before values (llama.cpp's window caches do so anyway).
        scaled_query: the query is scaled by itself rather than inside the attention.
        scaled_embedding: the embedding is scaled.
        positions: position ids a token.
        gating: how expert scores become weights: "softmax", "sigmoid", "chosen" (softmax over the chosen).
        normalised: the chosen experts' weights are divided by their sum.
        scaled_weights: and multiplied by a constant.
        separate_caches: windowed layers have a cache of their own.
        fused_gate: gate and up of a dense feed-forward are one matrix.
        fused_copies: the parts of a fused query-key-value matrix are copied out of its result.
        norm_after_rope: head norms stand behind the rotation.
        value_norm: values are normalised.
        post_norm_in_layer: the last norm of a sandwich counts as the layer's own when work is placed.
        residual_first, last_residual_first: the residual is the sum's first term, always or behind the feed-forward.
        mixer_first: of the terms of a parallel block the mixer's is first.
        split_projections: a checkpoint's fused query-key-value matrix is stored as three.
        tempered: queries of layers without rotation are scaled by position (Llama 4).
        learned_positions: positions have embeddings. embedding_norm: embeddings are normalised.
        deepstack: layers that image features are added to; inputs are that many times wider.
        joint_projection: a delta net's rates come out of one small matrix.
        inner_norm: Mamba's inner norms are there.
        weights_first: experts' inputs rather than outputs are weighted.
        fused_experts: gate and up of all experts are one matrix.
        groups, groups_used: experts are chosen in this many groups first.
    """

    architecture: str
    block: str = "pre"
    rows: str = "last"
    scaled_query: bool = False
    scaled_embedding: bool = False
    positions: int = 1
    gating: str = "softmax"
    normalised: bool = True
    scaled_weights: bool = False
    separate_caches: bool = False
    fused_gate: bool = False
    fused_copies: bool = False
    norm_after_rope: bool = False
    value_norm: bool = False
    post_norm_in_layer: bool = False
    residual_first: bool = False
    last_residual_first: bool = False
    mixer_first: bool = False
    split_projections: bool = False
    tempered: bool = False
    learned_positions: bool = False
    embedding_norm: bool = False
    deepstack: int = 0
    joint_projection: bool = False
    inner_norm: bool = False
    weights_first: bool = False
    fused_experts: bool = False
    groups: int = 0
    groups_used: int = 0


_FLAGS = tuple(field.name for field in fields(Style) if isinstance(field.default, bool))


@cache
def styles() -> Mapping[str, Style]:
    """By `model_type` of a config."""
    text = files("planner.engines.llama_cpp.graph").joinpath("styles.csv").read_text(encoding="utf-8")
    found = {}
    for row in csv.DictReader(text.splitlines()):
        words = row["flags"].split()
        said: dict[str, Any] = {name: name in words for name in _FLAGS}
        said |= {name: int(value) for name, _, value in (word.partition("=") for word in words) if value}
        style = Style(
            architecture=row["architecture"],
            block=row["block"],
            rows=row["rows"],
            positions=int(row["positions"]),
            gating=row["gating"],
            **said,
        )
        found[row["model_type"]] = style
    return found
