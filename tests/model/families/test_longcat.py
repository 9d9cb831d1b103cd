"""LongCat-Flash: two latents in each layer, identity experts, shares, refusals."""

from __future__ import annotations

import pytest

from planner.errors import ConfigError, UnsupportedArchitecture
from planner.model.caches import LatentCache
from planner.model.config import RawConfig
from planner.model.families import build_spec
from planner.model.spec import ModelSpec
from planner.model.tensors import active_parameters, parameters, tensors
from tests.model.families.reading import cache_bytes, shares

LAYER = "model.layers.0"


def spec_with(**changes: object) -> ModelSpec:
    """LongCat-Flash-Chat, whose sizes are the class's own, with some keys changed."""
    values: dict[str, object] = {"model_type": "longcat_flash", "architectures": ["LongcatFlashForCausalLM"]}
    return build_spec(RawConfig(values | changes))


def test_every_layer_keeps_two_latents() -> None:
    spec = spec_with()
    latent = LatentCache(kv_lora_rank=512, qk_rope_head_dim=64)
    assert [layer.caches() for layer in spec.layers] == [(latent, latent)] * 28
    # 28 layers x 2 x (512 + 64) x 2 B = 64,512 B a token
    assert cache_bytes(spec, 8_192) == 28 * 2 * 576 * 2 * 8_192 == 528_482_304
    assert cache_bytes(spec, 131_072) == 64_512 * 131_072 == 8_455_716_864


def test_identity_experts_are_rows_of_the_router_only() -> None:
    shapes = {tensor.name: tensor for tensor in tensors(spec_with())}
    assert shapes[f"{LAYER}.mlp.router.classifier.weight"].shape == (512 + 256, 6144)
    assert shapes[f"{LAYER}.mlp.router.classifier.weight"].dtype == "float32"
    assert shapes[f"{LAYER}.mlp.experts.gate_up_proj"].shape == (512, 2 * 2048, 6144)
    expert = 3 * 2048 * 6144
    assert parameters(spec_with()) - active_parameters(spec_with()) == 28 * (512 - 12) * expert
    without = spec_with(zero_expert_num=0)
    assert parameters(spec_with()) - parameters(without) == 28 * 256 * 6144


def test_shares_at_tensor_parallel_eight() -> None:
    share = shares(spec_with(), tensor_parallel_size=8)
    for half in (0, 1):
        assert share[f"{LAYER}.self_attn.{half}.kv_a_proj_with_mqa.weight"] == (576, 6144)
        assert share[f"{LAYER}.self_attn.{half}.kv_b_proj.weight"] == (8 * 256, 512)
        assert share[f"{LAYER}.self_attn.{half}.o_proj.weight"] == (6144, 8 * 128)
        assert share[f"{LAYER}.mlps.{half}.gate_proj.weight"] == (1536, 6144)
        assert share[f"{LAYER}.input_layernorm.{half}.weight"] == (6144,)
    assert share[f"{LAYER}.mlp.router.classifier.weight"] == (768, 6144)
    assert share[f"{LAYER}.mlp.experts.down_proj"] == (512, 6144, 256)


def test_the_count_of_sublayers_is_understood_too() -> None:
    assert len(spec_with(num_layers=4, num_hidden_layers=8).layers) == 4
    assert len(spec_with(num_layers=4, num_hidden_layers=4).layers) == 4


@pytest.mark.parametrize(
    ("changes", "error", "field"),
    [
        ({"zero_expert_type": "copy"}, UnsupportedArchitecture, "zero_expert_type"),
        ({"attention_method": "GQA"}, UnsupportedArchitecture, "attention_method"),
        ({"emb_neighbor_num": 3}, UnsupportedArchitecture, "emb_neighbor_num"),
        ({"num_layers": 4, "num_hidden_layers": 5}, ConfigError, "num_hidden_layers"),
        ({"num_layers": 0}, ConfigError, "num_layers"),
        ({"qk_head_dim": 96}, ConfigError, "qk_head_dim"),
        ({"moe_topk": 769}, ConfigError, "moe_topk"),
        ({"zero_expert_num": -1}, ConfigError, "zero_expert_num"),
        ({"num_nextn_predict_layers": 65}, ConfigError, "num_nextn_predict_layers"),
    ],
)
def test_refusals_name_the_field(changes: dict[str, object], error: type[ConfigError], field: str) -> None:
    with pytest.raises(error) as caught:
        spec_with(**changes)
    assert caught.value.field == field
