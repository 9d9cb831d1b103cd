"""What Gemma 3n and Gemma 4 have in common: layers that read an earlier layer's cache, and per-layer embeddings.

The last `num_kv_shared_layers` layers have no keys and values of their own: each reads those of the last layer before
them that has its type (sliding or full). Per-layer embeddings add a small vector to each layer's input: one table
[vocabulary, layers x width], a projection of the token's embedding to the same, and two small matrices a layer.

Sources: transformers 5.24 gemma3n and gemma4 (kv_sharing_modes, project_per_layer_inputs). vLLM 0.19 models/gemma3n.py,
gemma4.py: the table is cut like an embedding, the joint projection by columns, the matrices in the layers are whole.
"""

from __future__ import annotations

from planner.model.config import RawConfig
from planner.model.families.decoder import refuse
from planner.model.families.recurrent import check_layer_types
from planner.model.tensor import Norm, Role, Tensor, linear, vocabulary_matrix, whole

SLIDING = "sliding_attention"
FULL = "full_attention"


def layer_types(raw: RawConfig, count: int, *, pattern: int) -> list[str]:
    """The type of each layer; without the key every `pattern`-th is full.

    Raises:
        ConfigError: not one entry a layer.
        UnsupportedArchitecture: a type that is not understood.
    """
    types = raw.texts("layer_types", length=count)
    if types is None:
        return [SLIDING if (index + 1) % pattern else FULL for index in range(count)]
    return check_layer_types(raw, "layer_types", types, (SLIDING, FULL))


def first_shared_layer(raw: RawConfig, types: list[str], *, default: int) -> int:
    """The first layer without a cache of its own (the number of layers when none is shared).

    Raises:
        ConfigError: more shared layers than layers, or a type of layer that no earlier layer has.
    """
    count = len(types)
    shared = raw.integer("num_kv_shared_layers", default=default, maximum=count)
    first = count - shared
    missing = set(types) - set(types[:first])
    if missing:
        raise raw.error(
            "num_kv_shared_layers", f"is {shared}; no layer before them has the type {sorted(missing)[0]} to share"
        )
    return first


def read_window(raw: RawConfig, *, default: int) -> int:
    """sliding_window, halved where attention reaches both ways ("all").

    Raises:
        UnsupportedArchitecture: another use_bidirectional_attention than null, "vision" and "all".
    """
    window = raw.integer("sliding_window", default=default, minimum=1)
    both_ways = raw.raw("use_bidirectional_attention")
    if both_ways not in (None, False, "vision", "all"):
        raise refuse(raw, "use_bidirectional_attention", f"{str(both_ways)[:40]!r} is not understood")
    return window // 2 + 1 if both_ways == "all" else window


def layer_inputs(width: int, hidden_size: int) -> tuple[Tensor, ...]:
    """One layer's two matrices for its per-layer embedding of `width`, and their norm."""
    return (
        *linear("per_layer_input_gate", width, hidden_size, Role.OTHER),
        *linear("per_layer_projection", hidden_size, width, Role.OTHER),
        *Norm("post_per_layer_input_norm", hidden_size).tensors(),
    )


def layer_embeddings(prefix: str, *, vocab_size: int, layers: int, width: int, hidden_size: int) -> tuple[Tensor, ...]:
    """The table of per-layer embeddings and the joint projection beside it.

    The table's role is OTHER: it is no token embedding that a head could be tied to.
    """
    total = layers * width
    return (
        vocabulary_matrix(f"{prefix}.embed_tokens_per_layer.weight", vocab_size, total, Role.OTHER),
        *linear(f"{prefix}.per_layer_model_projection", total, hidden_size, Role.OTHER, column=whole(total)),
        *Norm(f"{prefix}.per_layer_projection_norm", width).tensors(),
    )
