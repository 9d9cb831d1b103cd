"""Attention-free models: state bytes with the product written out, shares of a GPU, refusals."""

from __future__ import annotations

import pytest

from planner.errors import ConfigError, UsageError
from planner.memory.parallel.sharding import Parallelism, local_shape
from planner.model.tensors import parameters, tensors
from tests.model.families.reading import attention_layers, cache_bytes, kinds_of_state, spec_of, state_caches


def test_mamba_1_state_does_not_grow():
    spec = spec_of("state-spaces/mamba-2.8b-hf")
    assert kinds_of_state(spec) == {"mamba1": 64}
    assert attention_layers(spec) == []
    # 64 layers x inner 2 x 2560 x (kernel 4 - 1 + state 16) in bf16
    assert cache_bytes(spec, 8_192) == cache_bytes(spec, 131_072) == 64 * 5120 * (3 + 16) * 2 == 12_451_840


def test_mamba_2_state():
    spec = spec_of("mistralai/Mamba-Codestral-7B-v0.1")
    # conv 3 x (8192 + 2 x 8 groups x 128); state 128 heads x 64 x 128
    assert cache_bytes(spec, 8_192) == 64 * (3 * 10_240 + 128 * 64 * 128) * 2 == 138_149_888
    assert state_caches(spec)[0].elements(8) == 3 * (1024 + 2 * 128) + 16 * 64 * 128


def test_one_group_is_copied_to_every_gpu():
    cache = state_caches(spec_of("state-spaces/mamba2-2.7b"))[0]
    # 80 heads of 64, one group of 128: two GPUs keep half the channels and the whole group
    assert cache.elements(2) == 3 * (5120 // 2 + 2 * 128) + 40 * 64 * 128


def test_eight_groups_are_not_copied():
    with pytest.raises(UsageError, match="8 units"):
        state_caches(spec_of("mistralai/Mamba-Codestral-7B-v0.1"))[0].elements(16)


def test_shares_of_mamba_2_at_tensor_parallel_two():
    layer = spec_of("state-spaces/mamba2-2.7b").layers[0]
    share = {t.name: local_shape(t, Parallelism(tensor_parallel_size=2)) for t in layer.tensors(2560)}
    # gate 2560 + channels 2560 + B 128 + C 128 + time steps 40
    assert share["mixer.in_proj.weight"] == (2560 + 2560 + 128 + 128 + 40, 2560)
    assert share["mixer.conv1d.weight"] == (2560 + 256, 1, 4)
    assert share["mixer.norm.weight"] == (2560,)
    assert share["mixer.out_proj.weight"] == (2560, 2560)


def test_shares_of_mamba_1_at_tensor_parallel_two():
    layer = spec_of("tiiuae/falcon-mamba-7b").layers[0]
    share = {t.name: local_shape(t, Parallelism(tensor_parallel_size=2)) for t in layer.tensors(4096)}
    assert share["mixer.in_proj.weight"] == (8192, 4096)
    assert share["mixer.x_proj.weight"] == (256 + 2 * 16, 4096)
    assert share["mixer.dt_proj.weight"] == (4096, 256)
    assert share["mixer.A_log"] == (4096, 16)


def test_names_are_the_checkpoint_s_and_the_head_is_tied():
    names = {tensor.name for tensor in tensors(spec_of("state-spaces/mamba-130m-hf"))}
    assert {"backbone.embeddings.weight", "backbone.layers.0.mixer.in_proj.weight", "backbone.norm_f.weight"} <= names
    assert "lm_head.weight" not in names


def test_falcon_mamba_has_its_own_head():
    spec = spec_of("tiiuae/falcon-mamba-7b")
    assert parameters(spec) == 7_272_665_088


@pytest.mark.parametrize(
    ("model", "changes", "field"),
    [
        ("state-spaces/mamba2-2.7b", {"num_heads": 79}, "num_heads"),
        ("state-spaces/mamba2-2.7b", {"n_groups": 3}, "n_groups"),
        ("state-spaces/mamba-2.8b-hf", {"intermediate_size": 5000}, "intermediate_size"),
        ("state-spaces/mamba-2.8b-hf", {"expand": -1}, "intermediate_size"),
        ("state-spaces/mamba-2.8b-hf", {"time_step_rank": "wide"}, "time_step_rank"),
    ],
)
def test_refusals_name_the_field(model, changes, field):
    with pytest.raises(ConfigError) as caught:
        spec_of(model, **changes)
    assert caught.value.field == field
