"""GPT-2 to Falcon: learned positions, ALiBi, fused matrices, multi-query."""

from typing import Any

import pytest

from planner.errors import ConfigError, PlannerError, UnsupportedArchitecture
from planner.model.rope import RopeTable
from planner.model.tensor import Role
from planner.model.tensors import parameters
from tests.model.families.dense import bundled, config, kv_bytes, named, rotary_dims, spec_of, windows, without


def test_gpt2_stores_its_matrices_input_first() -> None:
    spec = bundled("openai-community/gpt2")
    fused = named(spec)["transformer.h.0.attn.c_attn.weight"]
    assert (fused.shape, fused.input_dim) == ((768, 2304), 0)
    assert fused.split is not None
    assert (fused.split.dim, [part.units for part in fused.split.parts]) == (1, [12, 12, 12])
    assert spec.rope_tables == ()
    # 12 layers x 12 heads x (64 + 64) x 2 B
    assert kv_bytes(spec, 1024) == 12 * 1024 * 12 * 128 * 2 == 37_748_736
    assert named(spec)["transformer.wpe.weight"].role is Role.POSITION


def test_gpt2_as_a_decoder_of_an_encoder_is_refused() -> None:
    with pytest.raises(UnsupportedArchitecture, match="add_cross_attention"):
        spec_of(config("openai-community/gpt2", add_cross_attention=True))


def test_gpt_neo_windows_every_other_layer() -> None:
    spec = bundled("EleutherAI/gpt-neo-1.3B")
    assert windows(spec) == [None, 256] * 12
    # 16 heads x (128 + 128) x 2 B = 8,192 B a token and layer
    assert kv_bytes(spec, 2048) == 12 * 2048 * 8192 + 12 * 256 * 8192 == 226_492_416


@pytest.mark.parametrize(
    "types",
    [
        [["global", 12]],
        [[["global", "remote"], 12]],
        [[["global"], 2_000_000_000]],
        [[["local"], 3]],
        [["x"]],
        "x",
        [7],
    ],
)
def test_attention_types_that_do_not_describe_the_layers_are_refused(types: object) -> None:
    with pytest.raises(ConfigError, match="attention_types"):
        spec_of(config("EleutherAI/gpt-neo-1.3B", attention_types=types))


def test_gpt_j_head_has_a_bias_cut_with_the_vocabulary() -> None:
    spec = bundled("EleutherAI/gpt-j-6b")
    bias = named(spec)["lm_head.bias"]
    assert bias.shape == (50_400,)
    assert bias.split is not None
    assert bias.split.vocabulary
    assert set(rotary_dims(spec)) == {64}
    assert spec.rope_tables == (RopeTable(2048, 64),)


def test_neox_rotates_a_quarter_of_each_head_and_ignores_key_heads() -> None:
    spec = spec_of(config("EleutherAI/pythia-1.4b", num_key_value_heads=2))
    assert set(rotary_dims(spec)) == {32}
    assert kv_bytes(spec, 1) == 24 * 16 * 256 * 2
    assert named(spec)["embed_out.weight"].role is Role.LM_HEAD


def test_opt_has_two_spare_positions() -> None:
    spec = bundled("facebook/opt-125m")
    assert named(spec)["model.decoder.embed_positions.weight"].shape == (2050, 768)
    assert kv_bytes(spec, 2048) == 12 * 2048 * 12 * 128 * 2 == 75_497_472


def test_opt_350m_embeds_into_a_narrower_space() -> None:
    values = config(
        "facebook/opt-1.3b",
        hidden_size=1024,
        num_attention_heads=16,
        ffn_dim=4096,
        word_embed_proj_dim=512,
        do_layer_norm_before=False,
    )
    names = named(spec_of(values))
    assert names["model.decoder.project_in.weight"].shape == (1024, 512)
    assert names["model.decoder.project_out.weight"].shape == (512, 1024)
    assert "model.decoder.final_layer_norm.weight" not in names
    # facebook/opt-350m as published: 331,196,416
    assert parameters(spec_of(values)) == 331_196_416


def test_bloom_norms_its_embedding() -> None:
    spec = bundled("bigscience/bloom-7b1")
    assert named(spec)["transformer.word_embeddings_layernorm.bias"].shape == (4096,)
    assert spec.rope_tables == ()
    assert kv_bytes(spec, 8192) == 30 * 8192 * 32 * 256 * 2 == 4_026_531_840


@pytest.mark.parametrize(
    ("name", "key_heads", "bytes_per_token"),
    [
        ("tiiuae/falcon-7b", 1, 32 * 1 * 128 * 2),
        ("tiiuae/falcon-40b", 8, 60 * 8 * 128 * 2),
        ("tiiuae/falcon-11B", 8, 60 * 8 * 256 * 2),
    ],
)
def test_falcon_key_heads(name: str, key_heads: int, bytes_per_token: int) -> None:
    spec = bundled(name)
    fused = named(spec)["transformer.h.0.self_attention.query_key_value.weight"]
    assert fused.split is not None
    assert [part.units for part in fused.split.parts][1:] == [key_heads] * 2
    assert kv_bytes(spec, 8192) == 8192 * bytes_per_token
    assert kv_bytes(spec, 131_072) == 131_072 * bytes_per_token


def test_falcon_with_alibi_does_not_rotate() -> None:
    assert spec_of(config("tiiuae/falcon-7b", alibi=True)).rope_tables == ()


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"no_bias": False}, "no_bias"),
        ({"attn_config": {"attn_type": "grouped_query_attention"}}, "attn_type"),
        ({"attn_config": {"qk_ln": True}}, "qk_ln"),
        ({"attn_config": {"alibi": False}}, "alibi"),
    ],
)
def test_mpt_switches_that_change_weights_are_refused(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(UnsupportedArchitecture, match=field) as caught:
        spec_of(config("mosaicml/mpt-7b", **changes))
    assert caught.value.field == field


def test_mpt_has_no_bias_anywhere() -> None:
    spec = bundled("mosaicml/mpt-7b")
    assert not any(name.endswith("bias") for name in named(spec))
    assert kv_bytes(spec, 2048) == 32 * 2048 * 32 * 256 * 2 == 1_073_741_824


def test_phi_2_has_biases_everywhere_and_rotates_two_fifths() -> None:
    spec = bundled("microsoft/phi-2")
    assert set(rotary_dims(spec)) == {32}
    names = named(spec)
    weights = {name.removesuffix(".weight") for name, tensor in names.items() if tensor.linear}
    assert weights == {name.removesuffix(".bias") for name in names if name.endswith(".bias") and "norm" not in name}


def test_stablelm_2_12b_norms_every_head_by_a_module_of_its_own() -> None:
    values = config("stabilityai/stablelm-2-1_6b", qk_layernorm=True, use_parallel_residual=True)
    names = named(spec_of(values))
    assert names["model.layers.0.self_attn.q_layernorm.norms.31.weight"].shape == (64,)
    assert "model.layers.0.post_attention_layernorm.weight" not in names


def test_nemotron_mini_and_apertus_have_two_matrices_in_the_mlp() -> None:
    mini = named(bundled("nvidia/Nemotron-Mini-4B-Instruct"))
    apertus = named(bundled("swiss-ai/Apertus-8B-Instruct-2509"))
    assert not any("gate_proj" in name for name in (*mini, *apertus))
    assert mini["model.layers.0.input_layernorm.bias"].shape == (3072,)
    assert apertus["model.layers.0.mlp.act_fn.alpha_p"].shape == (1,)
    assert set(rotary_dims(bundled("nvidia/Nemotron-Mini-4B-Instruct"))) == {64}


@pytest.mark.parametrize(
    "name",
    ["openai-community/gpt2", "facebook/opt-125m", "bigscience/bloom-1b1", "tiiuae/falcon-7b", "mosaicml/mpt-7b"],
)
def test_a_config_without_its_sizes_names_what_is_missing(name: str) -> None:
    values = without(config(name), "n_layer", "n_layers", "num_hidden_layers")
    with pytest.raises(PlannerError, match="num_hidden_layers is missing"):
        spec_of(values)
