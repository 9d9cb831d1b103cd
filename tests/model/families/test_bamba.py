"""Bamba, Granite 4 and Falcon-H1: layer patterns, cache bytes, shares of a GPU, refusals."""

from __future__ import annotations

import pytest

from planner.errors import ConfigError, UnsupportedArchitecture
from planner.memory.parallel.sharding import Parallelism, local_shape
from planner.model.kinds.attention import Attention
from planner.model.kinds.mamba import Mamba2
from planner.model.tensors import active_parameters, parameters
from tests.model.families.reading import attention_layers, cache_bytes, kinds_of_state, spec_of, state_caches

BAMBA = "ibm-ai-platform/Bamba-9B-v1"
GRANITE = "ibm-granite/granite-4.0-h-small"
FALCON = "tiiuae/Falcon-H1-34B-Base"


def test_bamba():
    spec = spec_of(BAMBA)
    assert attention_layers(spec) == [9, 18, 27]
    # conv 3 x (8192 + 2 x 128); state 128 heads x 64 x 128
    state = 29 * (3 * 8448 + 128 * 64 * 128) * 2
    assert cache_bytes(spec, 8_192) == 3 * 2 * 8 * 128 * 2 * 8_192 + state == 162_950_656
    assert cache_bytes(spec, 131_072) == 3 * 2 * 8 * 128 * 2 * 131_072 + state == 1_672_900_096
    assert [(table.positions, table.rotary_dim) for table in spec.rope_tables] == [(4096, 64)]


def test_granite_hybrid_with_experts():
    spec = spec_of(GRANITE)
    assert attention_layers(spec) == [5, 15, 25, 35]
    assert kinds_of_state(spec) == {"mamba2": 36}
    state = 36 * (3 * 8448 + 128 * 64 * 128) * 2
    assert cache_bytes(spec, 8_192) == 4 * 2 * 8 * 128 * 2 * 8_192 + state == 211_539_968
    assert cache_bytes(spec, 131_072) == 4 * 2 * 8 * 128 * 2 * 131_072 + state == 2_224_805_888
    experts = 40 * 72 * 3 * 768 * 4096
    assert active_parameters(spec) == parameters(spec) - experts + experts // 72 * 10
    assert spec.rope_tables == ()
    names = {tensor.name for tensor in spec.layers[0].tensors(4096)}
    assert {"block_sparse_moe.router.weight", "shared_mlp.input_linear.weight", "mamba.in_proj.weight"} <= names


def test_granite_without_mamba_is_a_dense_decoder():
    spec = spec_of("ibm-granite/granite-4.0-350m")
    assert attention_layers(spec) == list(range(28))
    # 28 layers x 2 x 4 heads x 64 x 2 B
    assert cache_bytes(spec, 8_192) == 28_672 * 8_192
    assert [(table.positions, table.rotary_dim) for table in spec.rope_tables] == [(32_768, 64)]
    assert spec.notes == ()


def test_falcon_h1_runs_both_mixers_in_every_layer():
    spec = spec_of(FALCON)
    assert attention_layers(spec) == list(range(72))
    assert [type(mixer) for mixer in spec.layers[0].mixers] == [Mamba2, Attention]
    # conv 3 x (4096 + 2 x 2 groups x 256); state 32 heads x 128 x 256
    state = 72 * (3 * 5120 + 32 * 128 * 256) * 2
    assert cache_bytes(spec, 8_192) == 72 * 2 * 4 * 128 * 2 * 8_192 + state == 1_361_166_336
    assert cache_bytes(spec, 131_072) == 72 * 2 * 4 * 128 * 2 * 131_072 + state == 19_480_559_616
    assert state_caches(spec)[0].elements(2) == 3 * 2560 + 16 * 128 * 256


def test_falcon_h1_shares_at_tensor_parallel_two():
    share = {
        t.name: local_shape(t, Parallelism(tensor_parallel_size=2)) for t in spec_of(FALCON).layers[0].tensors(5120)
    }
    # half of gate 4096, channels 4096, B 512, C 512, time steps 32
    assert share["mamba.in_proj.weight"] == ((4096 + 4096 + 512 + 512 + 32) // 2, 5120)
    assert share["mamba.norm.weight"] == (2048,)
    assert share["self_attn.k_proj.weight"] == (256, 5120)


def test_falcon_h1_inner_norm_is_optional():
    names = {tensor.name for tensor in spec_of("tiiuae/Falcon-H1-0.5B-Base").layers[0].tensors(1024)}
    assert "mamba.norm.weight" not in names


@pytest.mark.parametrize(
    ("model", "changes", "error", "field"),
    [
        (BAMBA, {"attn_layer_indices": [9, 32]}, ConfigError, "attn_layer_indices"),
        (BAMBA, {"mamba_n_heads": 127}, ConfigError, "mamba_n_heads"),
        (BAMBA, {"mamba_d_head": 32}, ConfigError, "mamba_d_head"),
        (BAMBA, {"mamba_n_groups": 3}, ConfigError, "mamba_n_groups"),
        (GRANITE, {"position_embedding_type": "alibi"}, UnsupportedArchitecture, "position_embedding_type"),
        (GRANITE, {"layer_types": ["mamba3"] * 40}, UnsupportedArchitecture, "layer_types"),
        (GRANITE, {"num_experts_per_tok": 0}, ConfigError, "num_experts_per_tok"),
    ],
)
def test_refusals_name_the_field(model, changes, error, field):
    with pytest.raises(error) as caught:
        spec_of(model, **changes)
    assert caught.value.field == field
