"""GLM-4.5, ERNIE 4.5, Hunyuan-A13B, Hy3, K-EXAONE and DBRX: layers, caches, experts, refusals."""

from __future__ import annotations

import pytest

from planner.errors import ConfigError, UnsupportedArchitecture
from planner.model.caches import KeyValueCache
from planner.model.kinds.attention import Attention
from planner.model.spec import ModelSpec
from planner.model.tensors import active_parameters, draft_tensors, parameters, tensors
from tests.model.families.reading import (
    cache_bytes,
    draft_parameters,
    expert_layers,
    shares,
    spec_of,
    windows,
)

AIR, GLM = "zai-org/GLM-4.5-Air", "zai-org/GLM-4.6"
ERNIE, ERNIE_LARGE = "baidu/ERNIE-4.5-21B-A3B-PT", "baidu/ERNIE-4.5-300B-A47B-Base-PT"
HUNYUAN, HY3 = "tencent/Hunyuan-A13B-Instruct", "tencent/Hy3-preview"
EXAONE, DBRX = "LGAI-EXAONE/K-EXAONE-236B-A23B", "databricks/dbrx-instruct"


def attention(spec: ModelSpec, layer: int) -> Attention:
    (mixer,) = spec.layers[layer].mixers
    assert isinstance(mixer, Attention)
    return mixer


# (layers, key heads, bytes of a token in one layer)
@pytest.mark.parametrize(
    ("model", "token"),
    [
        (AIR, 46 * 2 * 8 * 128 * 2),
        (ERNIE, 28 * 2 * 4 * 128 * 2),
        (HUNYUAN, 32 * 2 * 8 * 128 * 2),
        (HY3, 80 * 2 * 8 * 128 * 2),
        (DBRX, 40 * 2 * 8 * 128 * 2),
    ],
)
def test_bytes_of_a_sequence_without_windows(model: str, token: int) -> None:
    spec = spec_of(model)
    assert cache_bytes(spec, 8_192) == token * 8_192
    assert cache_bytes(spec, 131_072) == token * 131_072


@pytest.mark.parametrize(
    ("model", "total", "layers", "experts", "width", "used"),
    [
        (AIR, 106_852_245_504, 45, 128, 3 * 4096 * 1408, 8),
        (ERNIE, 21_825_437_888, 27, 64, 3 * 2560 * 1536, 6),
        (HUNYUAN, 80_393_183_232, 32, 64, 3 * 4096 * 3072, 8),
        (HY3, 295_033_528_320, 79, 192, 3 * 4096 * 1536, 8),
        (EXAONE, 236_571_150_336, 47, 128, 3 * 6144 * 2048, 8),
        (DBRX, 131_596_523_520, 40, 16, 3 * 6144 * 10_752, 4),
    ],
)
def test_active_parameters(model: str, total: int, layers: int, experts: int, width: int, used: int) -> None:
    spec = spec_of(model)
    assert parameters(spec) == total
    assert active_parameters(spec) == total - layers * (experts - used) * width


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (AIR, range(1, 46)),
        (GLM, range(3, 92)),
        (ERNIE, range(1, 28)),
        (ERNIE_LARGE, range(3, 54)),
        (HUNYUAN, range(32)),
        (HY3, range(1, 80)),
        (EXAONE, range(1, 48)),
        (DBRX, range(40)),
    ],
)
def test_which_layers_have_experts(model: str, expected: range) -> None:
    assert expert_layers(spec_of(model)) == list(expected)


def test_glm_norms_its_heads_only_where_told() -> None:
    names = {model: {tensor.name for tensor in spec_of(model).layers[0].tensors(4096)} for model in (AIR, GLM)}
    assert "self_attn.q_norm.weight" not in names[AIR]
    assert "self_attn.q_norm.weight" in names[GLM]
    assert "self_attn.q_proj.bias" in names[AIR]
    assert "self_attn.o_proj.bias" not in names[AIR]
    assert attention(spec_of(AIR), 0).rotary_dim == 64


def test_ernie_interval_and_end() -> None:
    spec = spec_of(ERNIE, moe_layer_start_index=2, moe_layer_end_index=9, moe_layer_interval=3)
    assert expert_layers(spec) == [2, 5, 8]
    # the draft layer is dense, behind a matrix and two norms
    drafted = spec_of(ERNIE, num_nextn_predict_layers=1)
    assert draft_parameters(drafted) == 110_105_600 + 2 * 2560 * 2560 + 2 * 2560
    assert parameters(drafted) == parameters(spec_of(ERNIE))


def test_ernie_correction_is_a_parameter() -> None:
    found = {tensor.name: tensor for tensor in spec_of(ERNIE).layers[1].tensors(2560)}
    correction = found["mlp.gate.moe_statics.e_score_correction_bias"]
    assert correction.shape == (1, 64)
    assert not correction.buffer


def test_hunyuan_states_a_number_once_or_for_each_layer() -> None:
    listed = spec_of(HUNYUAN, num_experts=[64] * 32, moe_topk=[8] * 32, num_shared_expert=[1] * 32)
    assert active_parameters(listed) == active_parameters(spec_of(HUNYUAN))


def test_exaone_windows_positions_and_draft() -> None:
    spec = spec_of(EXAONE)
    assert windows(spec) == [128, 128, 128, None] * 12
    assert [attention(spec, index).rotary_dim for index in range(4)] == [128, 128, 128, 0]
    # 8 heads x (128 + 128) x 2 B: 12 layers keep all tokens, 36 the last 128
    for length in (8_192, 131_072):
        assert cache_bytes(spec, length) == 8 * 256 * 2 * (12 * length + 36 * 128)
    assert windows(spec_of(EXAONE, layer_types=None)) == windows(spec)
    assert windows(spec_of(EXAONE, layer_types=None, sliding_window_pattern=4)) == windows(spec)
    (draft,) = spec.draft_layers
    assert draft.caches() == (KeyValueCache(num_key_value_heads=8, key_head_dim=128, value_head_dim=128),)
    assert not any(tensor.num_experts for tensor in draft_tensors(spec))


def test_dbrx_experts_are_plain_matrices() -> None:
    spec = spec_of(DBRX)
    shapes = {tensor.name: tensor.shape for tensor in tensors(spec)}
    assert shapes["transformer.blocks.0.ffn.experts.mlp.w1"] == (16 * 10_752, 6144)
    assert shapes["transformer.blocks.0.norm_attn_norm.attn.Wqkv.weight"] == (6144 + 2 * 8 * 128, 6144)
    assert "transformer.norm_f.bias" not in shapes
    cut = shares(spec, tensor_parallel_size=8)
    assert cut["transformer.blocks.0.ffn.experts.mlp.w2"] == (16 * 10_752 // 8, 6144)
    assert cut["transformer.blocks.0.norm_attn_norm.attn.Wqkv.weight"] == (768 + 2 * 128, 6144)
    dealt = shares(spec, tensor_parallel_size=8, enable_expert_parallel=True)
    assert dealt["transformer.blocks.0.ffn.experts.mlp.w2"] == (2 * 10_752, 6144)


def test_positions_everywhere_where_exaone_windows_nothing() -> None:
    spec = spec_of(EXAONE, layer_types=["full_attention"] * 48)
    assert {attention(spec, index).rotary_dim for index in range(48)} == {128}


def test_ernie_biases_where_the_config_has_them() -> None:
    found = {tensor.name: tensor.shape for tensor in tensors(spec_of(ERNIE_LARGE, use_bias=True))}
    assert found["model.layers.0.self_attn.o_proj.bias"] == (8192,)
    assert found["model.layers.0.mlp.down_proj.bias"] == (8192,)
    assert found["lm_head.bias"] == (103_424,)


def test_routers_that_engines_keep_in_fp32() -> None:
    for model, expected in ((AIR, "float32"), (ERNIE, "float32"), (HY3, "float32"), (HUNYUAN, None), (EXAONE, None)):
        layer = spec_of(model).layers[-1].tensors(spec_of(model).hidden_size)
        routers = {tensor.dtype for tensor in layer if tensor.name in ("mlp.gate.weight", "mlp.gate.wg.weight")}
        assert routers == {expected}, model


def test_dbrx_by_hand() -> None:
    hidden = 6144
    attention_size = (48 + 8 + 8) * 128 * hidden + hidden * hidden
    # two norms without shifts, a router, 16 experts of three matrices
    layer = attention_size + 2 * hidden + 16 * hidden + 16 * 3 * 10_752 * hidden
    assert parameters(spec_of(DBRX)) == 2 * 100_352 * hidden + hidden + 40 * layer == 131_596_523_520


@pytest.mark.parametrize(
    ("model", "ways", "layer", "expected"),
    [
        (
            AIR, 8, "model.layers.1",
            {
                "self_attn.q_proj.bias": (12 * 128,), "self_attn.k_proj.weight": (128, 4096),
                "mlp.gate.weight": (128, 4096), "mlp.experts.gate_up_proj": (128, 2 * 176, 4096),
                "mlp.shared_experts.up_proj.weight": (176, 4096),
            },
        ),
        (
            ERNIE, 4, "model.layers.1",
            {
                "self_attn.k_proj.weight": (128, 2560), "mlp.experts.down_proj": (64, 2560, 384),
                "mlp.shared_experts.down_proj.weight": (2560, 2 * 1536 // 4),
            },
        ),
        (
            HUNYUAN, 8, "model.layers.0",
            {
                "self_attn.query_layernorm.weight": (128,), "mlp.gate.wg.weight": (64, 4096),
                "mlp.shared_mlp.gate_proj.weight": (384, 4096), "mlp.experts.down_proj": (64, 4096, 384),
            },
        ),
        (
            EXAONE, 8, "model.layers.1",
            {
                "mlp.gate.weight": (128, 6144), "mlp.experts.gate_up_proj": (128, 512, 6144),
                "mlp.shared_experts.down_proj.weight": (6144, 256),
            },
        ),
    ],
)  # fmt: skip
def test_shares_of_a_gpu(model: str, ways: int, layer: str, expected: dict[str, tuple[int, ...]]) -> None:
    found = shares(spec_of(model), tensor_parallel_size=ways)
    assert {name: found[f"{layer}.{name}"] for name in expected} == expected


@pytest.mark.parametrize(
    ("model", "changes", "error", "field"),
    [
        (AIR, {"n_shared_experts": -1}, ConfigError, "n_shared_experts"),
        (AIR, {"mlp_layer_types": ["sparse"]}, ConfigError, "mlp_layer_types"),
        (ERNIE, {"moe_layer_interval": 0}, ConfigError, "moe_layer_interval"),
        (ERNIE, {"moe_k": 65}, ConfigError, "moe_k"),
        (HUNYUAN, {"use_cla": True}, UnsupportedArchitecture, "use_cla"),
        (HUNYUAN, {"use_mla": True}, UnsupportedArchitecture, "use_mla"),
        (HUNYUAN, {"use_qk_norm": False}, UnsupportedArchitecture, "use_qk_norm"),
        (HUNYUAN, {"use_mixed_mlp_moe": False}, UnsupportedArchitecture, "use_mixed_mlp_moe"),
        (HUNYUAN, {"num_shared_expert": 2}, UnsupportedArchitecture, "num_shared_expert"),
        (HUNYUAN, {"moe_intermediate_size": [3072, 1024]}, UnsupportedArchitecture, "moe_intermediate_size"),
        (HUNYUAN, {"moe_intermediate_size": 1024}, UnsupportedArchitecture, "moe_intermediate_size"),
        (HUNYUAN, {"num_experts": []}, ConfigError, "num_experts"),
        (HUNYUAN, {"moe_topk": 65}, ConfigError, "moe_topk"),
        (HY3, {"num_shared_experts": 0}, ConfigError, "num_shared_experts"),
        (EXAONE, {"layer_types": ["chunked_attention"] * 48}, UnsupportedArchitecture, "layer_types"),
        (DBRX, {"tie_word_embeddings": True}, UnsupportedArchitecture, "tie_word_embeddings"),
        (DBRX, {"attn_config": {"kv_n_heads": 7}}, ConfigError, "kv_n_heads"),
        (DBRX, {"ffn_config": []}, ConfigError, "ffn_config"),
    ],
)
def test_refusals_name_the_field(model: str, changes: dict[str, object], error: type[ConfigError], field: str) -> None:
    with pytest.raises(error) as caught:
        spec_of(model, **changes)
    assert caught.value.field == field
