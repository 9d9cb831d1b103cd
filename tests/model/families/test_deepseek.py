"""DeepSeek-V2, V3 and V3.2, Kimi K2, GLM-4.7-Flash, GLM-5: caches, experts, indexers, drafts, shares, refusals."""

from __future__ import annotations

import pytest

from planner.errors import ConfigError, UnsupportedArchitecture
from planner.model.caches import IndexerCache, LatentCache
from planner.model.config import RawConfig
from planner.model.families import build_spec
from planner.model.tensors import active_parameters, parameters
from tests.model.families.reading import (
    buffers,
    cache_bytes,
    config_of,
    draft_parameters,
    expert_layers,
    shares,
    spec_of,
)

V2_LITE, V2 = "deepseek-ai/DeepSeek-V2-Lite", "deepseek-ai/DeepSeek-V2"
V3, V32 = "deepseek-ai/DeepSeek-V3", "deepseek-ai/DeepSeek-V3.2"
GLM_FLASH, GLM_5, GLM_52 = "zai-org/GLM-4.7-Flash", "zai-org/GLM-5", "zai-org/GLM-5.2"


def test_one_latent_a_token() -> None:
    spec = spec_of(V3)
    assert {layer.caches() for layer in spec.layers} == {(LatentCache(kv_lora_rank=512, qk_rope_head_dim=64),)}
    # 61 layers x (512 + 64) x 2 B
    assert cache_bytes(spec, 1) == 61 * 576 * 2 == 70_272
    assert cache_bytes(spec, 8_192) == 70_272 * 8_192 == 575_668_224
    assert cache_bytes(spec, 131_072) == 70_272 * 131_072 == 9_210_691_584


def test_an_indexer_adds_one_key_a_token() -> None:
    spec = spec_of(V32)
    assert spec.layers[0].caches() == (
        LatentCache(kv_lora_rank=512, qk_rope_head_dim=64),
        IndexerCache(index_head_dim=128),
    )
    # 128 bytes and one fp32 scale
    assert cache_bytes(spec, 8_192) == 61 * (576 * 2 + 132) * 8_192 == 641_630_208
    assert cache_bytes(spec, 131_072) == 61 * (576 * 2 + 132) * 131_072 == 10_266_083_328


def test_glm_52_shares_the_choice_of_an_earlier_indexer() -> None:
    spec = spec_of(GLM_52)
    choosing = [index for index, layer in enumerate(spec.layers) if len(layer.caches()) == 2]
    assert choosing == [0, 1, 2, *range(6, 78, 4)]
    assert cache_bytes(spec, 131_072) == (78 * 576 * 2 + 21 * 132) * 131_072 == 12_140_937_216
    # the same pattern from index_topk_freq 4 and index_skip_topk_offset 3, and from letters
    assert spec_of(GLM_52, indexer_types=None).layers == spec.layers
    letters = "".join("F" if index in choosing else "S" for index in range(78))
    assert spec_of(GLM_52, indexer_types=None, index_topk_pattern=letters).layers == spec.layers
    # GLM-5 has an indexer in every layer
    assert all(len(layer.caches()) == 2 for layer in spec_of(GLM_5).layers)


def test_deepseek_v3_by_hand() -> None:
    spec = spec_of(V3)
    hidden, heads = 7168, 128
    attention = (
        (hidden + 1) * 1536 + 1536 * heads * 192  # q_a with its norm, q_b
        + hidden * 576 + 512 + 512 * heads * 256  # kv_a, its norm, kv_b
        + heads * 128 * hidden
    )  # fmt: skip
    dense, expert = 3 * 18_432 * hidden, 3 * 2_048 * hidden
    total = 2 * 129_280 * hidden + hidden + 61 * (attention + 2 * hidden)
    total += 3 * dense + 58 * (256 * hidden + 257 * expert)
    assert parameters(spec) == total == 671_026_404_352
    assert active_parameters(spec) == total - 58 * (256 - 8) * expert == 37_552_282_624
    assert expert_layers(spec) == list(range(3, 61))


def test_weights_of_other_models_that_one_token_uses() -> None:
    # Kimi K2: 32B of 1T; 60 layers with 384 experts of 3 x 2048 x 7168, 8 used
    kimi = spec_of("moonshotai/Kimi-K2-Instruct")
    assert parameters(kimi) - active_parameters(kimi) == 60 * (384 - 8) * 3 * 2048 * 7168
    assert active_parameters(kimi) == 32_861_477_888
    # V2-Lite: 2.7B of 16B; 26 layers with 64 experts of 3 x 1408 x 2048, 6 used, 2 shared
    lite = spec_of(V2_LITE)
    assert parameters(lite) - active_parameters(lite) == 26 * (64 - 6) * 3 * 1408 * 2048
    assert active_parameters(lite) == 2_661_150_208


def test_queries_straight_from_the_hidden_state() -> None:
    names = shares(spec_of(V2_LITE))
    assert names["model.layers.0.self_attn.q_proj.weight"] == (16 * 192, 2048)
    assert not any("q_a_proj" in name for name in names)
    assert "model.layers.0.self_attn.q_a_proj.weight" in shares(spec_of(V2))


@pytest.mark.parametrize(
    ("model", "published", "copies"),
    [
        # copies: matrices [vocabulary, hidden] that the checkpoint repeats beside its draft layer
        (V32, 685_355_329_792, 2),
        (GLM_FLASH, 31_221_488_576, 2),
        (GLM_5, 753_864_139_008, 0),
        (GLM_52, 753_329_940_480, 0),
    ],
)
def test_the_published_total_counts_one_draft_layer(model: str, published: int, copies: int) -> None:
    spec = spec_of(model)
    assert len(spec.draft_layers) == 1
    found = parameters(spec) + draft_parameters(spec) + buffers(spec)
    assert found + copies * spec.vocab_size * spec.hidden_size == published


def test_the_draft_layer_of_deepseek_v3() -> None:
    spec = spec_of(V3)
    (draft,) = spec.draft_layers
    # an expert layer, [H, 2H], and norms of the embedding, of the hidden state and before the head
    assert draft_parameters(spec) == 11_507_286_016 + 2 * 7168**2 + 3 * 7168 == 11_610_067_968
    assert draft.caches() == spec.layers[0].caches()
    assert spec_of(V3, num_nextn_predict_layers=0).draft_layers == ()
    assert spec_of("moonshotai/Kimi-K2-Instruct").draft_layers == ()


def test_shares_at_tensor_parallel_eight() -> None:
    share = shares(spec_of(V32), tensor_parallel_size=8)
    attention = "model.layers.3.self_attn"
    assert share[f"{attention}.q_a_proj.weight"] == (1536, 7168)
    assert share[f"{attention}.q_b_proj.weight"] == (16 * 192, 1536)
    assert share[f"{attention}.kv_a_proj_with_mqa.weight"] == (576, 7168)
    assert share[f"{attention}.kv_b_proj.weight"] == (16 * 256, 512)
    assert share[f"{attention}.o_proj.weight"] == (7168, 16 * 128)
    assert share[f"{attention}.indexer.wq_b.weight"] == (64 * 128, 1536)
    assert share[f"{attention}.indexer.wk.weight"] == (128, 7168)
    assert share["model.layers.3.mlp.gate.weight"] == (256, 7168)
    assert share["model.layers.3.mlp.experts.gate_up_proj"] == (256, 2 * 256, 7168)
    assert share["model.layers.3.mlp.experts.down_proj"] == (256, 7168, 256)
    assert share["model.layers.3.mlp.shared_experts.down_proj.weight"] == (7168, 256)
    whole_experts = shares(spec_of(V3), tensor_parallel_size=8, enable_expert_parallel=True)
    assert whole_experts["model.layers.3.mlp.experts.down_proj"] == (32, 7168, 2048)


def test_keys_that_mean_nothing_to_latent_attention_are_not_held_against_it() -> None:
    assert spec_of(V3, num_key_value_heads=3, head_dim=7).layers == spec_of(V3).layers


@pytest.mark.parametrize(
    ("model", "changes", "error", "field"),
    [
        (V3, {"moe_layer_freq": 2}, UnsupportedArchitecture, "moe_layer_freq"),
        (V3, {"num_experts_per_tok": 257}, ConfigError, "num_experts_per_tok"),
        (V3, {"kv_lora_rank": 0}, ConfigError, "kv_lora_rank"),
        (V3, {"qk_rope_head_dim": -1}, ConfigError, "qk_rope_head_dim"),
        (V3, {"num_nextn_predict_layers": 1000}, ConfigError, "num_nextn_predict_layers"),
        (V3, {"mlp_layer_types": ["sparse"] * 60 + ["mixed"]}, UnsupportedArchitecture, "mlp_layer_types"),
        (V3, {"mlp_layer_types": ["sparse"]}, ConfigError, "mlp_layer_types"),
        (GLM_52, {"indexer_types": ["full"]}, ConfigError, "indexer_types"),
        (GLM_52, {"indexer_types": ["full"] * 77 + ["half"]}, UnsupportedArchitecture, "indexer_types"),
        (GLM_52, {"indexer_types": ["shared"] * 78}, ConfigError, "indexer_types"),
        (GLM_52, {"indexer_types": None, "index_topk_pattern": "FS"}, ConfigError, "index_topk_pattern"),
    ],
)
def test_refusals_name_the_field(model: str, changes: dict[str, object], error: type[ConfigError], field: str) -> None:
    with pytest.raises(error) as caught:
        spec_of(model, **changes)
    assert caught.value.field == field


def test_an_indexer_needs_compressed_queries() -> None:
    with pytest.raises(ConfigError, match="q_lora_rank is null"):
        build_spec(RawConfig({**config_of(V32), "q_lora_rank": None}))
