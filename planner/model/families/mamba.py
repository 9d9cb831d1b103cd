"""Attention-free state-space models: Mamba, Falcon-Mamba (Mamba 1) and Mamba-2.

Each layer is one norm and one mixer, without a feed-forward. They have no maximum length of their own;
max_position_embeddings is taken as absent ones are (2,048) unless the config states one.

Source: transformers 5.24 configuration_mamba, configuration_falcon_mamba, configuration_mamba2.
"""

from __future__ import annotations

from planner.model.config import RawConfig
from planner.model.families.decoder import Dimensions, assemble, read_dtype, read_layer_count
from planner.model.families.recurrent import read_state_dtype
from planner.model.kinds.mamba import Mamba1, Mamba2
from planner.model.spec import Layer, ModelSpec
from planner.model.tensor import Norm


def build(raw: RawConfig) -> ModelSpec:
    """The spec of a mamba, falcon_mamba or mamba2 config.

    Raises:
        ConfigError: a field that is missing or makes no sense.
    """
    model_type = raw.text("model_type", default="mamba")
    hidden_size = raw.integer("hidden_size", "d_model", minimum=1, maximum=1 << 20)
    mixer = _mamba2(raw, hidden_size) if model_type == "mamba2" else _mamba1(raw, hidden_size)
    dims = Dimensions(
        hidden_size=hidden_size,
        num_hidden_layers=read_layer_count(raw, "num_hidden_layers", "n_layer"),
        num_attention_heads=1,
        num_key_value_heads=1,
        head_dim=1,
        vocab_size=raw.integer("vocab_size", minimum=1, maximum=1 << 27),
        max_position_embeddings=raw.integer("max_position_embeddings", default=2048, minimum=1, maximum=1 << 31),
        dtype=read_dtype(raw),
        tie_word_embeddings=raw.flag("tie_word_embeddings", default=model_type != "mamba2"),
    )
    layer = Layer(mixers=(mixer,), feed_forward=None, norms=(Norm("norm", hidden_size),))
    return assemble(
        raw,
        dims,
        (layer,) * dims.num_hidden_layers,
        final_norm=Norm("backbone.norm_f", hidden_size),
        layer_prefix="backbone.layers",
        embedding_name="backbone.embeddings.weight",
    )


def read_time_step_rank(raw: RawConfig, hidden_size: int, *names: str) -> int:
    """Width of the time step: a number, or "auto" for hidden_size / 16 rounded up."""
    if raw.raw(*names) in (None, "auto"):
        return -(-hidden_size // 16)
    return raw.integer(*names, minimum=1, maximum=1 << 20)


def _mamba1(raw: RawConfig, hidden_size: int) -> Mamba1:
    inner = int(raw.number("expand", default=2.0) * hidden_size)
    declared = raw.integer("intermediate_size", "d_inner", default=inner, minimum=1)
    if declared != inner:
        raise raw.error("intermediate_size", f"is {declared}; expected expand x hidden_size = {inner}")
    return Mamba1(
        intermediate_size=inner,
        state_size=raw.integer("state_size", default=16, minimum=1, maximum=1 << 16),
        conv_kernel=raw.integer("conv_kernel", default=4, minimum=1, maximum=1 << 10),
        time_step_rank=read_time_step_rank(raw, hidden_size, "time_step_rank"),
        use_bias=raw.flag("use_bias", default=False),
        conv_bias=raw.flag("use_conv_bias", default=True),
        state_dtype=read_state_dtype(raw),
    )


def _mamba2(raw: RawConfig, hidden_size: int) -> Mamba2:
    heads = raw.integer("num_heads", default=128, minimum=1, maximum=1 << 16)
    head_dim = raw.integer("head_dim", default=64, minimum=1, maximum=1 << 16)
    inner = int(raw.number("expand", default=2.0) * hidden_size)
    if heads * head_dim != inner:
        raise raw.error("num_heads", f"{heads} x head_dim {head_dim} is not expand x hidden_size = {inner}")
    groups = raw.integer("n_groups", default=8, minimum=1, maximum=heads)
    if heads % groups:
        raise raw.error("n_groups", f"is {groups}, which does not divide num_heads {heads}")
    return Mamba2(
        num_heads=heads,
        head_dim=head_dim,
        state_size=raw.integer("state_size", default=128, minimum=1, maximum=1 << 16),
        n_groups=groups,
        conv_kernel=raw.integer("conv_kernel", default=4, minimum=1, maximum=1 << 10),
        chunk_size=raw.integer("chunk_size", default=256, minimum=1, maximum=1 << 16),
        use_bias=raw.flag("use_bias", default=False),
        conv_bias=raw.flag("use_conv_bias", default=True),
        state_dtype=read_state_dtype(raw),
    )
