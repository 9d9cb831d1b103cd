"""Zamba and Zamba2: shared blocks once, a cache at every use, adapters, refusals."""

from __future__ import annotations

import pytest

from planner.errors import ConfigError, UnsupportedArchitecture
from planner.model.tensors import parameters, tensors
from tests.model.families.reading import attention_layers, cache_bytes, kinds_of_state, spec_of

ZAMBA = "Zyphra/Zamba-7B-v1"
ZAMBA2 = "Zyphra/Zamba2-2.7B"


def test_zamba_shares_one_block():
    spec = spec_of(ZAMBA)
    assert attention_layers(spec) == [2, *range(7, 76, 6)]
    assert kinds_of_state(spec) == {"mamba1": 76}
    owners = [t.name for t in tensors(spec) if t.name.endswith("shared_transf.self_attn.q_proj.weight")]
    assert owners == ["model.layers.2.shared_transf.self_attn.q_proj.weight"]
    assert sum(t.name.endswith(".linear.weight") for t in tensors(spec)) == 13
    assert parameters(spec) == 7_232_490_496


def test_zamba_cache_is_kept_at_every_use():
    spec = spec_of(ZAMBA)
    # 13 uses x 2 x 16 heads x 464 x 2 B a token; 76 states of 7424 x (3 + 16)
    state = 76 * 7424 * (3 + 16) * 2
    assert cache_bytes(spec, 8_192) == 13 * 2 * 16 * 464 * 2 * 8_192 + state == 3_183_945_728


def test_zamba2_alternates_two_blocks():
    spec = spec_of(ZAMBA2)
    assert attention_layers(spec) == [6, 12, 18, 24, 30, 36, 42, 47, 51]
    owners = [t.name.split(".")[2] for t in tensors(spec) if t.name.endswith("self_attn.q_proj.weight")]
    assert owners == ["6", "12"]
    # gate and up adapters of rank 128 at each of the nine uses
    adapters = [t.shape for t in tensors(spec) if "adapter_list" in t.name]
    assert adapters == [(128, 2560), (2 * 10_240, 128)] * 9
    state = 54 * (3 * (5120 + 2 * 64) + 80 * 64 * 64) * 2
    assert cache_bytes(spec, 8_192) == 9 * 2 * 32 * 160 * 2 * 8_192 + state == 1_547_039_232


def test_zamba2_attention_adapters_and_positions():
    spec = spec_of("Zyphra/Zamba2-1.2B-instruct")
    adapters = [t.shape for t in tensors(spec) if "linear_q_adapter_list.3." in t.name]
    assert adapters == [(128, 4096), (4096, 128)]
    assert [(table.positions, table.rotary_dim) for table in spec.rope_tables] == [(4096, 128)]
    long = spec_of("Zyphra/Zamba2-1.2B-instruct", use_long_context=True)
    assert long.max_position_embeddings == 16_384


@pytest.mark.parametrize(
    ("model", "changes", "error", "field"),
    [
        (ZAMBA, {"attention_hidden_size": 3712}, ConfigError, "attention_hidden_size"),
        (ZAMBA, {"attention_head_dim": 128}, ConfigError, "attention_head_dim"),
        (ZAMBA, {"n_mamba_heads": 3}, ConfigError, "n_mamba_heads"),
        (ZAMBA2, {"layers_block_type": ["mamba"] * 53 + ["moe"]}, UnsupportedArchitecture, "layers_block_type"),
        (ZAMBA2, {"layers_block_type": None, "num_hidden_layers": 53}, ConfigError, "layers_block_type"),
        (ZAMBA2, {"mamba_ngroups": 3}, ConfigError, "mamba_ngroups"),
    ],
)
def test_refusals_name_the_field(model, changes, error, field):
    with pytest.raises(error) as caught:
        spec_of(model, **changes)
    assert caught.value.field == field
