"""Towers several families share: layout, shards, sizes that are refused."""

from __future__ import annotations

import pytest

from planner.errors import ConfigError, UnsupportedArchitecture, UsageError
from planner.memory.parallel.sharding import Parallelism, local_shape
from planner.model.config import RawConfig
from planner.model.families.vision import vision_tower
from planner.model.tensor import Role
from planner.model.tensors import layer_tensors

CLIP = {
    "model_type": "clip_vision_model", "hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16,
    "intermediate_size": 4096, "image_size": 336, "patch_size": 14,
}  # fmt: skip


def tower(replicated=False, **changes):
    return vision_tower(RawConfig(CLIP | changes), "vision", replicated=replicated)


def count(built):
    stack = built.stack
    own = sum(tensor.numel for tensor in stack.tensors)
    return own + sum(t.numel for t in layer_tensors(stack.layers, stack.hidden_size, stack.layer_prefix))


def test_clip_is_vit_l_14():
    layer = 4 * (1024 * 1024 + 1024) + 2 * 4096 * 1024 + 4096 + 1024 + 4 * 1024
    around = 1024 + 1024 * 3 * 14 * 14 + 577 * 1024 + 4 * 1024
    assert count(tower()) == 24 * layer + around == 303_507_456
    assert tower().positions == 577


def test_siglip_has_no_class_token_and_a_head_unless_told():
    siglip = {"model_type": "siglip_vision_model"}
    with_head, without = tower(**siglip), tower(**siglip, vision_use_head=False)
    # probe, one attention with biases, a norm, an MLP
    head = 1024 + 4 * (1024 * 1024 + 1024) + 2 * 1024 + 2 * 4096 * 1024 + 4096 + 1024
    assert count(with_head) - count(without) == head
    assert without.positions == 576


def test_tower_layers_keep_nothing_of_a_sequence():
    assert tower().stack.layers[0].caches() == ()


def test_linear_layers_are_cut_and_the_rest_is_whole():
    (layer,) = set(tower().stack.layers)
    shapes = {t.name: local_shape(t, Parallelism(tensor_parallel_size=4)) for t in layer.tensors(1024)}
    assert shapes["self_attn.q_proj.weight"] == (256, 1024)
    assert shapes["self_attn.out_proj.weight"] == (1024, 256)
    assert shapes["mlp.fc1.weight"] == (1024, 1024)
    assert shapes["mlp.fc2.bias"] == (1024,)
    assert all(t.split is None for t in tower().stack.tensors)


def test_replicated_tower_is_whole_on_every_gpu():
    (layer,) = set(tower(replicated=True).stack.layers)
    assert all(t.split is None for t in layer.tensors(1024))


def test_heads_must_be_shared_evenly():
    (layer,) = set(tower().stack.layers)
    with pytest.raises(UsageError, match="16 units"):
        [local_shape(t, Parallelism(tensor_parallel_size=32)) for t in layer.tensors(1024)]


def test_quantisers_may_convert_the_linear_layers_only():
    built = tower()
    (layer,) = set(built.stack.layers)
    assert {t.name for t in layer.tensors(1024) if t.linear} == {
        "self_attn.q_proj.weight", "self_attn.k_proj.weight", "self_attn.v_proj.weight", "self_attn.out_proj.weight",
        "mlp.fc1.weight", "mlp.fc2.weight",
    }  # fmt: skip
    assert not any(t.linear for t in built.stack.tensors)
    assert {t.role for t in built.stack.tensors} == {Role.VISION, Role.NORM}


@pytest.mark.parametrize(
    ("changes", "error", "field"),
    [
        ({"model_type": "dinov2"}, UnsupportedArchitecture, "vision_config"),
        ({"num_attention_heads": 15}, ConfigError, "num_attention_heads"),
        ({"hidden_size": 0}, ConfigError, "hidden_size"),
        ({"num_hidden_layers": 10_000}, ConfigError, "num_hidden_layers"),
        ({"image_size": 7}, ConfigError, "image_size"),
        ({"image_size": [336, 448]}, UnsupportedArchitecture, "image_size"),
        ({"image_size": [336]}, ConfigError, "image_size"),
        ({"patch_size": "14"}, ConfigError, "patch_size"),
        ({"model_type": "pixtral", "head_dim": 80}, UnsupportedArchitecture, "head_dim"),
    ],
)
def test_refusals_name_the_field(changes, error, field):
    with pytest.raises(error) as caught:
        tower(**changes)
    assert caught.value.field == field
