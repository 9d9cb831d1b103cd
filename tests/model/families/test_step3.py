"""Step 3.5 and 3.7 Flash: windows, heads by layer, gates, drafts with heads of their own, tower, shares, refusals."""

from __future__ import annotations

import pytest

from planner.errors import ConfigError, UnsupportedArchitecture
from planner.model.config import RawConfig
from planner.model.families import build_spec
from planner.model.kinds.attention import Attention
from planner.model.spec import ModelSpec
from planner.model.tensors import active_parameters, draft_tensors, parameters, tensors
from tests.model.families.reading import cache_bytes, config_of, expert_layers, shares, spec_of, windows

FLASH = "stepfun-ai/Step-3.7-Flash"
LAYER = "model.language_model.layers"


def attention(spec: ModelSpec, index: int) -> Attention:
    (mixer,) = spec.layers[index].mixers
    assert isinstance(mixer, Attention)
    return mixer


def test_three_windowed_layers_after_one_that_keeps_everything() -> None:
    spec = spec_of(FLASH)
    assert windows(spec) == ([None, 512, 512, 512] * 12)[:45]
    # 2 x 8 heads x 128 x 2 B = 4,096 B a token and layer; 12 layers keep all, 33 the last 512
    assert cache_bytes(spec, 8_192) == 4_096 * (12 * 8_192 + 33 * 512) == 471_859_200
    assert cache_bytes(spec, 131_072) == 4_096 * (12 * 131_072 + 33 * 512) == 6_511_656_960
    assert expert_layers(spec) == list(range(3, 45))


def test_windowed_layers_may_have_more_query_heads() -> None:
    setting = {"attention_type": "sliding_attention", "num_attention_heads": 96, "num_attention_groups": 8}
    for changes in ({"attention_other_setting": setting}, {"num_sliding_attention_heads": 96}):
        spec = spec_of(FLASH, **changes)
        assert [attention(spec, index).num_attention_heads for index in range(5)] == [64, 96, 96, 96, 64]
        names = {tensor.name: tensor.shape for tensor in tensors(spec)}
        assert names[f"{LAYER}.1.self_attn.g_proj.weight"] == (96, 4096)
        assert names[f"{LAYER}.1.self_attn.k_proj.weight"] == (8 * 128, 4096)
        # queries, output and gate of 32 more heads in 33 layers
        assert parameters(spec) - parameters(spec_of(FLASH)) == 33 * 32 * (2 * 128 + 1) * 4096


def test_11b_of_196b_are_active_in_the_decoder() -> None:
    spec = spec_of(FLASH, num_sliding_attention_heads=96)
    (stack,) = spec.stacks
    tower = sum(tensor.numel for tensor in stack.tensors) + 47 * sum(
        tensor.numel for tensor in stack.layers[0].tensors(stack.hidden_size)
    )
    assert tower == 1_955_848_960 + 25_165_824
    experts = 42 * 288 * 3 * 1280 * 4096
    assert active_parameters(spec) == parameters(spec) - experts + experts // 288 * 8
    # queries, keys, values, output and gate of 12 layers with 64 heads and 33 with 96; norms; 3 dense MLPs;
    # 42 routers with 8 routed experts and one shared
    expected = 4096 * (12 * (2 * 64 * 128 + 2 * 1024 + 64) + 33 * (2 * 96 * 128 + 2 * 1024 + 96))
    expected += 45 * (2 * 128 + 2 * 4096) + 4096 + 3 * 3 * 11_264 * 4096 + 42 * (288 + 9 * 3 * 1280) * 4096
    assert active_parameters(spec) - tower - 2 * 128_896 * 4096 == expected == 10_931_395_840


def test_drafts_have_heads_of_their_own() -> None:
    spec = spec_of(FLASH)
    assert len(spec.draft_layers) == 3
    assert [draft.caches() for draft in spec.draft_layers] == [spec.layers[1].caches()] * 3
    heads = [tensor for tensor in draft_tensors(spec) if tensor.name.endswith("shared_head.output.weight")]
    assert [tensor.shape for tensor in heads] == [(128_896, 4096)] * 3


def test_rotation_by_type_of_layer() -> None:
    spec = spec_of(FLASH, partial_rotary_factors=[0.5, 1.0, 1.0, 1.0] * 12)
    assert [attention(spec, index).rotary_dim for index in range(5)] == [64, 128, 128, 128, 64]
    assert {table.rotary_dim for table in spec.rope_tables} == {64, 128}
    by_type = {
        "full_attention": {"rope_theta": 5e6, "partial_rotary_factor": 0.5},
        "sliding_attention": {"rope_theta": 1e4},
    }
    nested = spec_of(FLASH, rope_parameters=by_type)
    assert [attention(nested, index).rotary_dim for index in range(2)] == [64, 128]


def test_an_image() -> None:
    (stack,) = spec_of(FLASH).stacks
    # 728 / 14 = 52 patches a side, 13 after folding; a crop of 504 has 36 and 9; 3,024 / 504 = 6 crops a side
    assert stack.patches_per_item == 52**2 + 36 * 36**2
    assert stack.tokens_per_item == (169 + 2) + 36 * (81 + 2) + 5


def test_the_decoder_may_be_nested_or_alone() -> None:
    flat = config_of(FLASH)
    inner = {key: value for key, value in flat.items() if key not in ("model_type", "_source", "architectures")}
    outer = {"model_type": "step3p7", "architectures": flat["architectures"]}
    nested = build_spec(RawConfig({**outer, "text_config": inner}))
    assert [t.name for t in tensors(nested)] == [t.name for t in tensors(spec_of(FLASH))]
    alone = build_spec(RawConfig({**inner, "model_type": "step3p5", "architectures": ["Step3p5ForCausalLM"]}))
    assert alone.stacks == ()
    assert alone.layers == spec_of(FLASH).layers


def test_shares_at_tensor_parallel_eight() -> None:
    share = shares(spec_of(FLASH), tensor_parallel_size=8)
    assert share[f"{LAYER}.0.self_attn.g_proj.weight"] == (8, 4096)
    assert share[f"{LAYER}.0.self_attn.k_proj.weight"] == (128, 4096)
    assert share[f"{LAYER}.0.mlp.down_proj.weight"] == (4096, 1408)
    assert share[f"{LAYER}.3.moe.gate.weight"] == (288, 4096)
    assert share[f"{LAYER}.3.moe.experts.gate_up_proj"] == (288, 320, 4096)


@pytest.mark.parametrize(
    ("changes", "error", "field"),
    [
        ({"gating": "per-element"}, UnsupportedArchitecture, "gating"),
        ({"use_head_wise_attn_gate": False}, UnsupportedArchitecture, "gating"),
        ({"num_sliding_attention_heads": 60}, ConfigError, "num_sliding_attention_heads"),
        ({"sliding_window": None}, ConfigError, "sliding_window"),
        ({"layer_types": ["chunked_attention"] * 45}, UnsupportedArchitecture, "layer_types"),
        ({"layer_types": ["full_attention"]}, ConfigError, "layer_types"),
        ({"mlp_layer_types": ["sparse"]}, ConfigError, "mlp_layer_types"),
        ({"moe_layers_enum": "3,four"}, ConfigError, "moe_layers_enum"),
        ({"partial_rotary_factors": [2.0] * 45}, ConfigError, "partial_rotary_factors"),
        ({"num_experts_per_tok": 289}, ConfigError, "moe_top_k"),
        ({"vision_config": {"mlp_ratio": 0}}, ConfigError, "mlp_ratio"),
    ],
)
def test_refusals_name_the_field(changes: dict[str, object], error: type[ConfigError], field: str) -> None:
    with pytest.raises(error) as caught:
        spec_of(FLASH, **changes)
    assert caught.value.field == field
