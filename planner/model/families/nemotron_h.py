"""Nemotron-H and Nemotron 3: layers of one mixer or one feed-forward each, in an explicit pattern.

`layers_block_type` lists them, or `hybrid_override_pattern` spells them: M Mamba 2, * attention, - MLP, E experts.
Attention has no positions, the MLPs are ungated squared ReLU. In Nemotron 3 Super and Ultra the experts work on
`moe_latent_size` channels between two projections; `num_nextn_predict_layers` adds draft layers.

Source: transformers 5.24 configuration_nemotron_h, modeling_nemotron_h; vLLM models/nemotron_h.py, nemotron_h_mtp.py
(latent projections and routers whole on every GPU; state in fp16 unless the config says otherwise, 0.19.1).
"""

from __future__ import annotations

from dataclasses import replace

from planner.errors import UnsupportedArchitecture
from planner.model.config import LARGEST_LAYER_COUNT, RawConfig
from planner.model.families.decoder import Dimensions, assemble, read_dimensions
from planner.model.families.recurrent import FULL, LINEAR, check_layer_types, read_state_dtype, refuse_unless, stack
from planner.model.kinds.attention import Attention, AttentionNames
from planner.model.kinds.feed_forward import Mlp, MlpNames, Moe, MoeNames
from planner.model.kinds.mamba import Mamba2
from planner.model.spec import Layer, ModelSpec
from planner.model.tensor import Norm, Role, Tensor, linear

_MLP, _MOE = "mlp", "moe"
_KINDS = (LINEAR, FULL, _MLP, _MOE)
_LETTERS = {"M": LINEAR, "*": FULL, "-": _MLP, "E": _MOE}
_OLD_NAMES = {"mamba": LINEAR, "attention": FULL}


def build(raw: RawConfig) -> ModelSpec:
    """The spec of a nemotron_h config.

    Raises:
        ConfigError: a field that is missing or makes no sense.
        UnsupportedArchitecture: a value that selects a variant which is not modelled.
    """
    kinds = _read_kinds(raw, "layers_block_type", "hybrid_override_pattern")
    if kinds is None:
        raise raw.error("layers_block_type", "is missing (or hybrid_override_pattern); it is needed to size the model")
    if raw.integer("num_hidden_layers", default=len(kinds)) != len(kinds):
        raise raw.error("num_hidden_layers", f"does not match the {len(kinds)} entries of the layer pattern")
    # Nemotron 3 Ultra states only the list; the shared reader wants the count
    raw = RawConfig({**raw.mapping(), "num_hidden_layers": len(kinds)}, path=raw.path)
    raw.has("layers_block_type", "hybrid_override_pattern", "intermediate_size", "time_step_rank")  # read or idle
    refuse_unless(raw, "attention_bias", False)
    if raw.has("sliding_window"):
        raise UnsupportedArchitecture(
            f"{raw.path}: sliding_window is not understood in nemotron_h", field="sliding_window"
        )
    dims = read_dimensions(raw, head_dim_default=128)
    if raw.integer("attention_head_dim", default=dims.head_dim) != dims.head_dim:
        raise raw.error("attention_head_dim", f"does not agree with head_dim {dims.head_dim}")
    made = {kind: _layer(raw, dims, kind) for kind in dict.fromkeys(kinds)}
    draft_layers, draft_tensors = _drafts(raw, dims)
    spec = assemble(
        raw,
        dims,
        stack(kinds, made.__getitem__),
        final_norm=Norm("backbone.norm_f", dims.hidden_size),
        layer_prefix="backbone.layers",
        embedding_name="backbone.embeddings.weight",
    )
    return replace(spec, draft_layers=draft_layers, draft_tensors=draft_tensors)


def _read_kinds(raw: RawConfig, list_field: str, pattern_field: str) -> list[str] | None:
    """The kind of each layer, from the list or the pattern; None when the config has neither."""
    raw.has(list_field, pattern_field)
    types = raw.texts(list_field)
    if types is None:
        pattern = raw.optional_text(pattern_field)
        if pattern is None:
            return None
        types = [_LETTERS.get(letter, letter) for letter in pattern]
        list_field = pattern_field
    if not 1 <= len(types) <= LARGEST_LAYER_COUNT:
        raise raw.error(list_field, f"has {len(types)} entries; expected 1 to {LARGEST_LAYER_COUNT:,}")
    return check_layer_types(raw, list_field, [_OLD_NAMES.get(kind, kind) for kind in types], _KINDS)


def _layer(raw: RawConfig, dims: Dimensions, kind: str) -> Layer:
    norms = (Norm("norm", dims.hidden_size),)
    if kind == LINEAR:
        return Layer(mixers=(_mamba2(raw),), feed_forward=None, norms=norms)
    if kind == FULL:
        attention = Attention(
            num_attention_heads=dims.num_attention_heads,
            num_key_value_heads=dims.num_key_value_heads,
            head_dim=dims.head_dim,
            names=AttentionNames(block="mixer"),
        )
        return Layer(mixers=(attention,), feed_forward=None, norms=norms)
    if kind == _MLP:
        mlp = _mlp(raw, raw.integer("intermediate_size", default=21504, minimum=1), "mixer", Role.MLP)
        return Layer(mixers=(), feed_forward=mlp, norms=norms)
    latent = raw.optional_integer("moe_latent_size", minimum=1)
    return Layer(
        mixers=(), feed_forward=_moe(raw, latent), norms=norms, extra=_latent_projections(raw, dims.hidden_size, latent)
    )


def _mlp(raw: RawConfig, inner: int, block: str, role: Role) -> Mlp:
    return Mlp(
        intermediate_size=inner,
        gated=False,
        activation=raw.text("mlp_hidden_act", default="relu2"),
        bias=raw.flag("mlp_bias", default=False),
        role=role,
        names=MlpNames(block=block),
    )


def _moe(raw: RawConfig, latent: int | None) -> Moe:
    refuse_unless(raw, "n_shared_experts", 1)
    experts = raw.integer("n_routed_experts", "num_local_experts", default=8, minimum=1, maximum=1 << 16)
    inner = raw.integer("moe_shared_expert_intermediate_size", default=7688, minimum=1)
    return Moe(
        num_experts=experts,
        num_experts_per_tok=raw.integer("num_experts_per_tok", default=2, minimum=1, maximum=experts),
        moe_intermediate_size=raw.integer("moe_intermediate_size", default=7688, minimum=1),
        gated=False,
        activation=raw.text("mlp_hidden_act", default="relu2"),
        router_dtype="float32",
        correction_bias=True,
        shared=_mlp(raw, inner, "shared_experts", Role.SHARED_EXPERT),
        expert_input_size=latent,
        names=MoeNames(block="mixer"),
    )


def _latent_projections(raw: RawConfig, hidden_size: int, latent: int | None) -> tuple[Tensor, ...]:
    """What takes the residual stream to the experts' width and back, whole on every GPU."""
    if latent is None:
        return ()
    bias = raw.flag("mlp_bias", default=False)
    down = linear("mixer.fc1_latent_proj", latent, hidden_size, Role.MLP, bias=bias)
    return down + linear("mixer.fc2_latent_proj", hidden_size, latent, Role.MLP, bias=bias)


def _mamba2(raw: RawConfig) -> Mamba2:
    heads = raw.integer("mamba_num_heads", default=128, minimum=1, maximum=1 << 16)
    groups = raw.integer("mamba_n_groups", "n_groups", default=8, minimum=1, maximum=heads)
    if heads % groups:
        raise raw.error("n_groups", f"is {groups}, which does not divide mamba_num_heads {heads}")
    return Mamba2(
        num_heads=heads,
        head_dim=raw.integer("mamba_head_dim", default=64, minimum=1, maximum=1 << 16),
        state_size=raw.integer("ssm_state_size", default=128, minimum=1, maximum=1 << 16),
        n_groups=groups,
        conv_kernel=raw.integer("mamba_d_conv", "conv_kernel", default=4, minimum=1, maximum=1 << 10),
        chunk_size=raw.integer("mamba_chunk_size", "chunk_size", default=128, minimum=1, maximum=1 << 16),
        use_bias=raw.flag("use_bias", default=False),
        conv_bias=raw.flag("mamba_conv_bias", "use_conv_bias", default=True),
        state_dtype=read_state_dtype(raw, default="float16"),
    )


def _drafts(raw: RawConfig, dims: Dimensions) -> tuple[tuple[Layer, ...], tuple[Tensor, ...]]:
    """Multi-token prediction: layers of the model's own kinds, and what joins them to the stack."""
    count = raw.integer("num_nextn_predict_layers", default=0, maximum=1)
    kinds = _read_kinds(raw, "mtp_layers_block_type", "mtp_hybrid_override_pattern") or [FULL, _MOE]
    if not count:
        return (), ()
    hidden = dims.hidden_size
    tensors = linear("mtp.layers.0.eh_proj", hidden, 2 * hidden, Role.DRAFT)
    for name in ("mtp.layers.0.enorm", "mtp.layers.0.hnorm", f"mtp.layers.{len(kinds) - 1}.final_layernorm"):
        tensors += Norm(name, hidden).tensors()
    return stack(kinds, lambda kind: _layer(raw, dims, kind)), tensors
