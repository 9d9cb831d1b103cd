"""Qwen3-Next and Qwen3.5's text part: cache bytes, layer pattern, shares of a GPU, draft layers, refusals."""

from __future__ import annotations

import pytest

from planner.errors import ConfigError, UnsupportedArchitecture, UsageError
from planner.memory.parallel.sharding import Parallelism, local_shape
from planner.model.config import RawConfig
from planner.model.families.qwen3_next import text_spec
from planner.model.kinds.attention import Attention
from planner.model.tensors import active_parameters, draft_tensors, parameters, tensors
from tests.model.families.reading import attention_layers, cache_bytes, config_of, kinds_of_state, spec_of, state_caches

NEXT = "Qwen/Qwen3-Next-80B-A3B-Instruct"


@pytest.fixture(scope="module")
def spec():
    return spec_of(NEXT)


def test_every_fourth_layer_attends(spec):
    assert attention_layers(spec) == [3, 7, 11, 15, 19, 23, 27, 31, 35, 39, 43, 47]
    assert kinds_of_state(spec) == {"gated_delta_net": 36}


def test_cache_of_one_sequence(spec):
    # conv (4 - 1) x (2 x 16 x 128 + 32 x 128) = 3 x 8192; state 32 x 128 x 128
    state = 36 * (3 * 8192 + 32 * 128 * 128) * 2
    assert cache_bytes(spec, 8_192) == 12 * 2 * 2 * 256 * 2 * 8_192 + state == 240_844_800
    assert cache_bytes(spec, 131_072) == 12 * 2 * 2 * 256 * 2 * 131_072 + state == 3_260_743_680


def test_state_page_at_tensor_parallel_two(spec):
    # the log of vLLM 0.10.2 pads this page to 544 tokens of 1,024 bytes
    page = state_caches(spec)[0].elements(2) * 2
    assert page == 3 * 4096 * 2 + 16 * 128 * 128 * 2 == 548_864


def test_speculative_tokens_lengthen_the_convolution_only(spec):
    assert state_caches(spec)[0].elements(2, speculative_tokens=2) == 5 * 4096 + 16 * 128 * 128


def test_state_refuses_more_gpus_than_heads_divide(spec):
    with pytest.raises(UsageError, match="16 units"):
        state_caches(spec)[0].elements(32)


def test_parameters(spec):
    assert parameters(spec) == 79_674_391_296
    # experts hold 48 x 512 x 3 x 512 x 2048; a token uses 10 of each 512
    experts = 48 * 512 * 3 * 512 * 2048
    assert active_parameters(spec) == 79_674_391_296 - experts + experts // 512 * 10


def test_draft_layer_is_what_the_checkpoint_has_besides(spec):
    # published 81,324,862,720; one attention layer with experts, a [H, 2H] matrix, three norms
    drafts = sum(tensor.numel for tensor in draft_tensors(spec))
    assert drafts == 81_324_862_720 - 79_674_391_296 == 1_642_076_672 + 2 * 2048 * 2048 + 3 * 2048
    assert len(spec.draft_layers) == 1


def test_gate_doubles_the_query_projection_and_a_quarter_of_a_head_turns(spec):
    attention = spec.layers[3].mixers[0]
    assert isinstance(attention, Attention)
    shapes = {tensor.name: tensor.shape for tensor in attention.tensors(2048)}
    assert shapes["self_attn.q_proj.weight"] == (2 * 16 * 256, 2048)
    assert shapes["self_attn.o_proj.weight"] == (2048, 16 * 256)
    assert attention.rotary_dim == 64
    assert [(table.positions, table.rotary_dim) for table in spec.rope_tables] == [(262_144, 64)]


def test_shares_of_the_delta_net_at_tensor_parallel_four(spec):
    share = {t.name: local_shape(t, Parallelism(tensor_parallel_size=4)) for t in spec.layers[0].tensors(2048)}
    assert share["linear_attn.in_proj_qkvz.weight"] == ((2 * 2048 + 2 * 4096) // 4, 2048)
    assert share["linear_attn.in_proj_ba.weight"] == (64 // 4, 2048)
    assert share["linear_attn.conv1d.weight"] == (8192 // 4, 1, 4)
    assert share["linear_attn.A_log"] == (8,)
    assert share["linear_attn.norm.weight"] == (128,)
    assert share["linear_attn.out_proj.weight"] == (2048, 1024)
    assert share["mlp.gate.weight"] == (512, 2048)
    assert share["mlp.shared_expert.gate_proj.weight"] == (128, 2048)


def test_equal_layers_are_one_object(spec):
    assert len({id(layer) for layer in spec.layers}) == 2


def test_dense_layers_where_the_config_says_so():
    changed = spec_of(NEXT, mlp_only_layers=[0], decoder_sparse_step=2)
    names = [{t.name for t in layer.tensors(2048)} for layer in changed.layers[:4]]
    assert ["mlp.gate.weight" in found for found in names] == [False, True, False, True]


@pytest.mark.parametrize(
    ("model", "drafts"),
    [
        ("Qwen/Qwen3.5-27B", 372_255_232 + 2 * 5120 * 5120 + 3 * 5120),
        ("Qwen/Qwen3.5-35B-A3B", 836_246_016 + 2 * 2048 * 2048 + 3 * 2048),
    ],
)
def test_text_part_of_qwen3_5(model, drafts):
    text = config_of(model)["text_config"]
    spec = text_spec(RawConfig(text), prefix="model.language_model")
    names = {tensor.name for tensor in tensors(spec)}
    assert "model.language_model.embed_tokens.weight" in names
    assert "model.language_model.layers.0.linear_attn.in_proj_qkv.weight" in names
    assert "model.language_model.norm.weight" in names
    assert sum(tensor.numel for tensor in draft_tensors(spec)) == drafts
    # mamba_ssm_dtype is float32: the state, not the convolution
    assert [state.dtype for state in state_caches(spec)[0].states] == [None, "float32"]
    # M-RoPE allocates four times the positions
    assert [(table.positions, table.rotary_dim) for table in spec.rope_tables] == [(4 * 262_144, 64)]
    assert spec.notes == ()


def test_cache_of_qwen3_5_27b():
    spec = text_spec(RawConfig(config_of("Qwen/Qwen3.5-27B")["text_config"]))
    # 16 layers x 4 heads x (256 + 256) x 2 B a token; 48 states of 3 x 10,240 in bf16 and 48 x 128 x 128 in fp32
    state = 48 * (3 * (2 * 2048 + 6144) * 2 + 48 * 128 * 128 * 4)
    assert cache_bytes(spec, 8_192) == 16 * 4 * 512 * 2 * 8_192 + state
    assert cache_bytes(spec, 8_192, plain_state=True) == 16 * 4 * 512 * 2 * 8_192 + 48 * (30_720 + 786_432) * 2


def test_wrapper_decides_whether_embeddings_are_tied():
    text = RawConfig(config_of("Qwen/Qwen3.5-27B")["text_config"])
    assert not any(t.name == "lm_head.weight" for t in tensors(text_spec(text, tie_word_embeddings=True)))


@pytest.mark.parametrize(
    ("changes", "error", "field"),
    [
        ({"use_sliding_window": True}, UnsupportedArchitecture, "use_sliding_window"),
        ({"attn_output_gate": False}, UnsupportedArchitecture, "attn_output_gate"),
        ({"mtp_use_dedicated_embeddings": True}, UnsupportedArchitecture, "mtp_use_dedicated_embeddings"),
        ({"layer_types": ["linear_attention"] * 47 + ["chunked_attention"]}, UnsupportedArchitecture, "layer_types"),
        ({"layer_types": ["linear_attention"] * 3}, ConfigError, "layer_types"),
        ({"linear_num_value_heads": 33}, ConfigError, "linear_num_value_heads"),
        ({"num_experts_per_tok": 513}, ConfigError, "num_experts_per_tok"),
        ({"num_experts": 0, "intermediate_size": None}, ConfigError, "intermediate_size"),
        ({"mamba_ssm_dtype": "int3"}, UnsupportedArchitecture, "mamba_ssm_cache_dtype"),
        ({"model_type": "qwen3_5_moe_text", "mlp_only_layers": [1]}, ConfigError, "mlp_only_layers"),
    ],
)
def test_refusals_name_the_field(changes, error, field):
    with pytest.raises(error) as caught:
        spec_of(NEXT, **changes)
    assert caught.value.field == field
