from typing import Any

import pytest

from planner.errors import ConfigError, UnsupportedArchitecture
from planner.model.tensors import parameters
from tests.model.families.dense import bundled, config, kv_bytes, named, spec_of

SUPER = "nvidia/Llama-3_3-Nemotron-Super-49B-v1"


def test_super_49b_keeps_a_cache_in_49_of_80_layers() -> None:
    spec = bundled(SUPER)
    assert sum(bool(layer.caches()) for layer in spec.layers) == 49
    # 64 query heads in groups of 8: 8 key heads x (128 + 128) x 2 B = 4,096 B a token and layer
    assert kv_bytes(spec, 8192) == 49 * 8192 * 4096 == 1_644_167_168
    assert kv_bytes(spec, 131_072) == 49 * 131_072 * 4096 == 26_306_674_688
    assert parameters(spec) == 49_867_145_216


def test_ultra_253b() -> None:
    spec = bundled("nvidia/Llama-3_1-Nemotron-Ultra-253B-v1")
    assert parameters(spec) == 253_401_268_224
    # 128 query heads in groups of 16: 8 key heads of 128
    with_attention = sum(bool(layer.caches()) for layer in spec.layers)
    assert kv_bytes(spec, 8192) == with_attention * 8192 * 4096


def one_block(attention: dict[str, Any], ffn: dict[str, Any], **more: Any) -> dict[str, Any]:
    block = {"attention": attention, "ffn": ffn} | more
    return config(SUPER, num_hidden_layers=1, block_configs=[block])


ATTENTION = {"n_heads_in_group": 8}
FFN = {"ffn_mult": 1.0}


def test_inner_width_is_a_multiple_of_256() -> None:
    # 2/3 x 1.0 x 8192 = 5461, up to 5632
    names = named(spec_of(one_block(ATTENTION, FFN)))
    assert names["model.layers.0.mlp.gate_proj.weight"].shape == (5632, 8192)


def test_what_is_left_out_has_no_norm_either() -> None:
    names = named(spec_of(one_block({"no_op": True}, {"no_op": True})))
    assert not any("layers.0" in name for name in names)


def test_one_matrix_in_place_of_a_block() -> None:
    spec = spec_of(one_block({"replace_with_linear": True}, {"replace_with_linear": True}))
    layer = {name: tensor.shape for name, tensor in named(spec).items() if "layers.0" in name}
    assert layer == {
        "model.layers.0.input_layernorm.weight": (8192,),
        "model.layers.0.post_attention_layernorm.weight": (8192,),
        "model.layers.0.self_attn.linear_attn.weight": (8192, 8192),
        "model.layers.0.mlp.linear_mlp.weight": (8192, 8192),
    }
    assert spec.layers[0].caches() == ()


def test_a_block_with_a_window() -> None:
    spec = spec_of(one_block(ATTENTION | {"window_length": 1024}, FFN))
    assert kv_bytes(spec, 8192) == 1024 * 4096


@pytest.mark.parametrize(
    ("values", "field"),
    [
        (one_block(ATTENTION | {"sparsify": ["2:4"]}, FFN), "sparsify"),
        (one_block(ATTENTION, FFN | {"sparsify": ["2:4"]}), "sparsify"),
        (one_block(ATTENTION | {"num_sink_tokens": 4}, FFN), "num_sink_tokens"),
        (one_block(ATTENTION, FFN, parallel_blocks=[{}]), "parallel_blocks"),
    ],
)
def test_blocks_that_are_not_understood_are_refused(values: dict[str, Any], field: str) -> None:
    with pytest.raises(UnsupportedArchitecture, match=field) as caught:
        spec_of(values)
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("values", "field"),
    [
        (one_block({"n_heads_in_group": 7}, FFN), "n_heads_in_group"),
        (one_block({}, FFN), "n_heads_in_group"),
        (one_block(ATTENTION, {"ffn_mult": -1}), "ffn_mult"),
        (one_block(ATTENTION, {"ffn_mult": 1e9}), "ffn_mult"),
        (one_block(ATTENTION, {}), "intermediate_size"),
        (config(SUPER, block_configs=None), "block_configs"),
        (config(SUPER, block_configs=[]), "block_configs"),
        (config(SUPER, num_hidden_layers=1, block_configs=[3]), "block_configs"),
        (config(SUPER, num_hidden_layers=1, block_configs=[{"ffn": FFN}]), "block_configs"),
    ],
)
def test_blocks_that_make_no_sense_name_the_field(values: dict[str, Any], field: str) -> None:
    with pytest.raises(ConfigError, match=field):
        spec_of(values)
