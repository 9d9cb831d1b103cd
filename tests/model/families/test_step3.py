"""Step 3.5 and 3.7 Flash: more heads in windowed layers, gates, drafts, the tower, both layouts of the config."""

from __future__ import annotations

from typing import Any

import pytest

from planner.errors import ConfigError, UnsupportedArchitecture
from planner.model.config import RawConfig
from planner.model.families import build_spec
from planner.model.spec import ModelSpec
from planner.model.tensors import active_parameters, draft_tensors, parameters, tensors
from tests.model.families.reading import (
    buffers,
    cache_bytes,
    config_of,
    draft_parameters,
    expert_layers,
    shares,
    spec_of,
    windows,
)

STEP = "stepfun-ai/Step-3.7-Flash"
WIDER = {"attention_type": "sliding_attention", "num_attention_heads": 96}


def nested(**changes: Any) -> ModelSpec:
    """The published layout: the decoder in text_config, with what the bundled copy leaves out."""
    flat = config_of(STEP)
    whole = {key: flat.pop(key) for key in ("architectures", "model_type", "torch_dtype")}
    flat.pop("_source")
    text = {**flat, "attention_other_setting": WIDER, **changes}
    return build_spec(RawConfig({**whole, "text_config": text}))


def test_published_total() -> None:
    spec = nested()
    # 33 windowed layers have 32 heads of 128 more, in queries, outputs and gates
    assert parameters(spec) - parameters(spec_of(STEP)) == 33 * (2 * 32 * 128 + 32) * 4096
    # three draft layers: dense, windowed, a head of their own
    attention = 4096 * (2 * 96 * 128 + 2 * 8 * 128 + 96) + 2 * 128
    draft = attention + 3 * 4096 * 11_264 + 2 * 4096 * 4096 + 5 * 4096 + 128_896 * 4096
    assert draft_parameters(spec) == 3 * draft
    assert buffers(spec) == 42 * 288
    assert parameters(spec) + draft_parameters(spec) + buffers(spec) == 201_365_316_160


def test_every_fourth_layer_sees_everything() -> None:
    spec = nested()
    assert windows(spec) == ([None] + [512] * 3) * 11 + [None]
    assert expert_layers(spec) == list(range(3, 45))
    # 8 heads x (128 + 128) x 2 B; 12 layers keep all tokens, 33 the last 512
    for length in (8_192, 131_072):
        assert cache_bytes(spec, length) == 8 * 256 * 2 * (12 * length + 33 * 512)
    assert [len(layer.caches()) for layer in spec.draft_layers] == [1, 1, 1]


def test_active_parameters() -> None:
    spec = nested()
    experts = 42 * 288 * 3 * 4096 * 1280
    assert active_parameters(spec) == parameters(spec) - experts + experts // 288 * 8


def test_text_model_alone() -> None:
    flat = config_of(STEP)
    spec = build_spec(RawConfig({**flat, "model_type": "step3p5", "num_attention_groups": 8}))
    assert spec.stacks == ()
    assert parameters(spec) == sum(t.numel for t in tensors(spec_of(STEP)) if "vision" not in t.name) - 6144 * 4096


def test_tokens_of_the_largest_image() -> None:
    (tower,) = nested().stacks
    # 728 / 14 = 52 patches a side fold to 13; 36 crops of 504 / 14 = 36 patches fold to 9; marks around and between
    assert tower.tokens_per_item == 13 * 13 + 2 + 36 * (9 * 9 + 2) + 5 == 3_164
    assert tower.patches_per_item == 52 * 52 + 36 * 36 * 36
    tower_parameters = sum(t.numel for t in tensors(nested()) if "vision_model" in t.name)
    assert tower_parameters == 1_955_848_960


def test_rotary_parts_by_type_of_layer() -> None:
    spec = nested(partial_rotary_factors=[0.5, 1.0, 1.0, 1.0] * 12)
    assert [layer.mixers[0].rotary_dim for layer in spec.layers[:3]] == [64, 128, 128]
    assert [table.rotary_dim for table in spec.rope_tables] == [64, 128]
    assert windows(nested(moe_layers_enum="4,5")) == windows(spec)
    assert expert_layers(nested(moe_layers_enum="4, 5")) == [4, 5]


def test_gate_of_each_head_is_cut_with_the_heads() -> None:
    share = shares(nested(), tensor_parallel_size=8)
    assert share["model.language_model.layers.0.self_attn.g_proj.weight"] == (8, 4096)
    assert share["model.language_model.layers.1.self_attn.g_proj.weight"] == (12, 4096)
    assert share["model.language_model.layers.3.moe.gate.weight"] == (288, 4096)


def test_drafts_are_named_after_the_layers() -> None:
    names = {tensor.name for tensor in draft_tensors(nested())}
    assert "model.language_model.layers.45.shared_head.output.weight" in names
    assert "model.language_model.layers.47.eh_proj.weight" in names


@pytest.mark.parametrize(
    ("changes", "error", "field"),
    [
        ({"gating": "per-element"}, UnsupportedArchitecture, "gating"),
        ({"use_head_wise_attn_gate": False}, UnsupportedArchitecture, "gating"),
        ({"layer_types": ["full_attention"]}, ConfigError, "layer_types"),
        ({"layer_types": ["mystery"] * 45}, UnsupportedArchitecture, "layer_types"),
        ({"sliding_window": None}, ConfigError, "sliding_window"),
        ({"num_sliding_attention_heads": 97}, ConfigError, "num_sliding_attention_heads"),
        ({"partial_rotary_factors": ["half"] * 45}, ConfigError, "partial_rotary_factors"),
        ({"moe_layers_enum": "3,x"}, ConfigError, "moe_layers_enum"),
        ({"mlp_layer_types": ["dense"]}, ConfigError, "mlp_layer_types"),
        ({"moe_top_k": 289}, ConfigError, "moe_top_k"),
    ],
)
def test_refusals_name_the_field(changes: dict[str, object], error: type[Exception], field: str) -> None:
    with pytest.raises(error) as caught:
        nested(**changes)
    assert getattr(caught.value, "field", None) == field


def test_a_tower_of_no_width_is_refused() -> None:
    flat = config_of(STEP)
    with pytest.raises(ConfigError, match="mlp_ratio"):
        build_spec(RawConfig({**flat, "vision_config": {"mlp_ratio": 0}}))
