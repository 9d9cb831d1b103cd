"""What configs with experts have in common: which layers have them, the shared experts, the usual draft layer."""

from __future__ import annotations

from collections.abc import Sequence

from planner.errors import UnsupportedArchitecture
from planner.model.config import RawConfig
from planner.model.kinds.feed_forward import FeedForward, Mlp, MlpNames
from planner.model.spec import Layer, Mixer
from planner.model.tensor import Norm, Role, Tensor

DENSE = "dense"
SPARSE = "sparse"
MOST_EXPERTS = 1 << 16
LARGEST_WIDTH = 1 << 22
_MOST_DRAFTS = 64


def read_expert_counts(
    raw: RawConfig, experts: Sequence[str], active: Sequence[str], *, defaults: tuple[int | None, int | None]
) -> tuple[int, int]:
    """How many routed experts there are, and how many of them a token uses.

    Args:
        experts, active: the keys, standard name first.
        defaults: what the family's transformers config class assumes (None: the key is required).

    Raises:
        ConfigError: missing, out of range, or more used than there are.
    """
    total_default, active_default = defaults
    total = (
        raw.integer(*experts, minimum=1, maximum=MOST_EXPERTS)
        if total_default is None
        else raw.integer(*experts, default=total_default, minimum=1, maximum=MOST_EXPERTS)
    )
    if active_default is None:
        return total, raw.integer(*active, minimum=1, maximum=total)
    return total, raw.integer(*active, default=active_default, minimum=1, maximum=total)


def read_width(raw: RawConfig, *names: str, default: int | None = None) -> int:
    """The inner width of a feed-forward.

    Raises:
        ConfigError: missing without a default, or out of range.
    """
    if default is None:
        return raw.integer(*names, minimum=1, maximum=LARGEST_WIDTH)
    return raw.integer(*names, default=default, minimum=1, maximum=LARGEST_WIDTH)


def sparse_layers(raw: RawConfig, count: int, *, dense_default: int) -> list[bool]:
    """Which layers have experts: `mlp_layer_types`, else all but the first `first_k_dense_replace`.

    Args:
        dense_default: what the family's config class assumes for first_k_dense_replace.

    Raises:
        ConfigError: not one entry a layer, or a count that is out of range.
        UnsupportedArchitecture: an entry that is neither dense nor sparse.
    """
    types = raw.texts("mlp_layer_types")
    first = raw.integer("first_k_dense_replace", default=dense_default, maximum=LARGEST_WIDTH)
    if types is None:
        return [index >= first for index in range(count)]
    if len(types) < count:
        raise raw.error("mlp_layer_types", f"has {len(types)} entries; expected {count}")
    for kind in types:
        if kind not in (DENSE, SPARSE):
            raise UnsupportedArchitecture(
                f"{raw.path}: mlp_layer_types {kind[:40]!r} is not understood; expected dense or sparse",
                field="mlp_layer_types",
            )
    return [kind == SPARSE for kind in types[:count]]


def shared_experts(
    count: int, width: int, *, activation: str, block: str = "shared_experts", bias: bool = False
) -> Mlp | None:
    """The experts every token uses, as the one MLP of `count` times `width` that they are stored as."""
    if not count:
        return None
    return Mlp(
        intermediate_size=count * width,
        activation=activation,
        bias=bias,
        role=Role.SHARED_EXPERT,
        names=MlpNames(block=block),
    )


def pre_norms(hidden_size: int, kind: str = "rms") -> tuple[Norm, ...]:
    """The norms before attention and feed-forward, under their usual names."""
    return (
        Norm("input_layernorm", hidden_size, kind),
        Norm("post_attention_layernorm", hidden_size, kind),
    )


def draft_count(raw: RawConfig, *names: str, default: int = 0) -> int:
    """How many draft (multi-token prediction) layers the config states."""
    names = names or ("num_nextn_predict_layers",)
    return raw.integer(*names, default=default, maximum=_MOST_DRAFTS)


def draft_layer(mixers: tuple[Mixer, ...], feed_forward: FeedForward, hidden_size: int, kind: str = "rms") -> Layer:
    """DeepSeek's draft layer: an ordinary layer behind a matrix [H, 2H] that joins the normed embedding of the next
    token and the normed output of the stack, with a norm of its own before the head.

    A checkpoint may repeat the embedding and the head beside it; engines share the model's own (vLLM 0.19.1
    v1/spec_decode), so they are not counted.

    Source: DeepSeek-V3 (arXiv 2412.19437), section 2.2; vLLM 0.19.1 models/deepseek_mtp.py.
    """
    return Layer(
        mixers=mixers,
        feed_forward=feed_forward,
        norms=(
            Norm("enorm", hidden_size, kind),
            Norm("hnorm", hidden_size, kind),
            *pre_norms(hidden_size, kind),
            Norm("shared_head.norm", hidden_size, kind),
        ),
        extra=(Tensor("eh_proj.weight", (hidden_size, 2 * hidden_size), Role.DRAFT),),
    )
