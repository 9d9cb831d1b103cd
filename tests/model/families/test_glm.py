from typing import Any

import pytest

from planner.errors import UnsupportedArchitecture
from planner.model.rope import RopeTable
from planner.model.tensors import parameters
from tests.model.families.dense import bundled, config, kv_bytes, named, rotary_dims, spec_of


def test_glm_4_9b_shares_two_key_heads() -> None:
    spec = bundled("zai-org/glm-4-9b-chat-hf")
    # 40 layers x 2 heads x 256 x 2 B
    assert kv_bytes(spec, 8192) == 40 * 8192 * 1024 == 335_544_320
    assert kv_bytes(spec, 131_072) == 40 * 131_072 * 1024
    assert set(rotary_dims(spec)) == {64}
    names = named(spec)
    assert "model.layers.0.self_attn.q_proj.bias" in names
    assert "model.layers.0.self_attn.o_proj.bias" not in names


def test_glm_4_0414_has_four_norms_and_no_biases() -> None:
    spec = bundled("zai-org/GLM-4-32B-0414")
    assert len(spec.layers[0].norms) == 4
    assert not any(name.endswith(".bias") for name in named(spec))


def test_chatglm3_6b() -> None:
    spec = bundled("zai-org/chatglm3-6b")
    # layer: qkv (4096 + 2x256) x 4096 + bias, dense 4096^2, MLP 3 x 13696 x 4096, norms 2 x 4096
    layer = 4608 * 4096 + 4608 + 4096 * 4096 + 3 * 13_696 * 4096 + 2 * 4096
    assert parameters(spec) == 28 * layer + 2 * 65_024 * 4096 + 4096 == 6_243_584_000
    assert kv_bytes(spec, 8192) == 28 * 8192 * 2 * 256 * 2 == 234_881_024
    assert spec.rope_tables == (RopeTable(8192, 64),)
    assert "transformer.output_layer.weight" in named(spec)


def test_chatglm_without_grouped_keys_has_as_many_as_queries() -> None:
    spec = spec_of(config("zai-org/chatglm3-6b", multi_query_attention=False))
    assert kv_bytes(spec, 1) == 28 * 32 * 256 * 2


def test_chatglm_with_layer_norm_and_no_final_norm() -> None:
    names = named(spec_of(config("zai-org/chatglm3-6b", rmsnorm=False, post_layer_norm=False)))
    assert "transformer.encoder.layers.0.input_layernorm.bias" in names
    assert not any("final_layernorm" in name for name in names)


@pytest.mark.parametrize(
    "changes",
    [
        {"position_encoding_2d": True},
        {"inner_hidden_size": 16_384},
        {"vision_config": {"hidden_size": 1792}},
        {"pre_seq_len": 128},
    ],
)
def test_other_models_of_the_type_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedArchitecture, match=next(iter(changes))):
        spec_of(config("zai-org/chatglm3-6b", **changes))


def test_internlm2_names_and_fused_matrix() -> None:
    names = named(bundled("internlm/internlm2-chat-1_8b"))
    fused = names["model.layers.0.attention.wqkv.weight"]
    assert fused.shape == ((16 + 2 * 8) * 128, 2048)
    assert {"model.tok_embeddings.weight", "output.weight", "model.layers.0.feed_forward.w3.weight"} <= set(names)
