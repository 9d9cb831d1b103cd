"""Pieces that encoders and towers are made of, beside attention and MLP: convolutions, tables, norms, projectors.

A tower's layer is an ordinary `Layer` of bidirectional attention and a plain or gated MLP.
"""

from __future__ import annotations

from collections.abc import Sequence

from planner.model.kinds.attention import Attention, AttentionNames
from planner.model.kinds.feed_forward import Mlp, MlpNames
from planner.model.spec import Layer
from planner.model.tensor import Norm, Role, Tensor, linear, whole

FC_NAMES = MlpNames(up="fc1", down="fc2")


def parameter(name: str, *shape: int, role: Role = Role.VISION) -> Tensor:
    """A table or a free parameter, whole on every GPU."""
    return Tensor(name, shape, role)


def convolution(
    name: str, out_channels: int, in_channels: int, *kernel: int, bias: bool = False, role: Role = Role.VISION
) -> tuple[Tensor, ...]:
    """A convolution: weight [out, in, *kernel] and, if it has one, its bias; whole on every GPU."""
    weight = Tensor(f"{name}.weight", (out_channels, in_channels, *kernel), role)
    return (weight, Tensor(f"{name}.bias", (out_channels,), role)) if bias else (weight,)


def projector(
    name: str, sizes: Sequence[int], *, bias: bool = True, sharded: bool = True, names: tuple[str, ...] = ()
) -> tuple[Tensor, ...]:
    """Linear layers from a tower's width to the language model's.

    Args:
        sizes: widths from the input of the first layer to the output of the last.
        sharded: tensor parallelism cuts outputs and inputs in turn; False: whole on every GPU.
        names: modules below `name` (default linear_1, linear_2, ...).
    """
    names = names or tuple(f"linear_{index}" for index in range(1, len(sizes)))
    found: list[Tensor] = []
    for index, (module, in_size, out_size) in enumerate(zip(names, sizes[:-1], sizes[1:], strict=True)):
        column = whole(out_size) if sharded and index % 2 == 0 else None
        row = whole(in_size) if sharded and index % 2 else None
        found += linear(f"{name}.{module}", out_size, in_size, Role.PROJECTOR, bias=bias, column=column, row=row)
    return tuple(found)


def encoder_layer(
    *,
    hidden_size: int,
    num_heads: int,
    intermediate_size: int,
    activation: str,
    norms: tuple[Norm, ...],
    attention_names: AttentionNames,
    mlp_names: MlpNames = FC_NAMES,
    gated: bool = False,
    fused: bool = False,
    attention_bias: bool = True,
    output_bias: bool | None = None,
    mlp_bias: bool = True,
    query_norm: Norm | None = None,
    key_norm: Norm | None = None,
    rotary: bool = False,
    attention_replicated: bool = False,
    mlp_replicated: bool = False,
    role: Role | None = Role.VISION,
    extra: tuple[Tensor, ...] = (),
) -> Layer:
    """One layer that sees its whole input at once and keeps nothing.

    Args:
        attention_bias: of query, key and value; `output_bias` defaults to the same.
        rotary: positions by rotary embedding of whole heads.
        role: of its linear layers; None: attention and MLP, as in a text encoder.
    """
    head_dim = hidden_size // num_heads
    return Layer(
        mixers=(
            Attention(
                num_attention_heads=num_heads,
                num_key_value_heads=num_heads,
                head_dim=head_dim,
                rotary_dim=head_dim if rotary else 0,
                query_bias=attention_bias,
                key_bias=attention_bias,
                value_bias=attention_bias,
                output_bias=attention_bias if output_bias is None else output_bias,
                fused=fused,
                query_norm=query_norm,
                key_norm=key_norm,
                causal=False,
                replicated=attention_replicated,
                role=role or Role.ATTENTION,
                names=attention_names,
            ),
        ),
        feed_forward=Mlp(
            intermediate_size=intermediate_size,
            gated=gated,
            activation=activation,
            bias=mlp_bias,
            replicated=mlp_replicated,
            role=role or Role.MLP,
            names=mlp_names,
        ),
        norms=norms,
        extra=extra,
    )
