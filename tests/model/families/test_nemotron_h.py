"""Nemotron-H and Nemotron 3: the layer pattern, cache bytes, latent experts, draft layers, refusals."""

from __future__ import annotations

import pytest

from planner.errors import ConfigError, UnsupportedArchitecture
from planner.memory.parallel.sharding import Parallelism, local_shape
from planner.model.kinds.feed_forward import Mlp, Moe
from planner.model.tensors import active_parameters, draft_tensors, parameters
from tests.model.families.reading import attention_layers, cache_bytes, kinds_of_state, spec_of, state_caches

NANO = "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16"
SUPER = "nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-FP8"
ULTRA = "nvidia/NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16"


def test_pattern():
    spec = spec_of(NANO)  # MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME
    assert attention_layers(spec) == [5, 12, 19, 26, 33, 42]
    assert kinds_of_state(spec) == {"mamba2": 23}
    assert sum(isinstance(layer.feed_forward, Moe) for layer in spec.layers) == 23
    assert len(spec.layers) == 52
    assert spec.rope_tables == ()


def test_cache_of_one_sequence():
    spec = spec_of(NANO)
    # conv 3 x (4096 + 2 x 8 x 128) in bf16, state 64 x 64 x 128 in fp32
    state = 23 * (3 * 6144 * 2 + 64 * 64 * 128 * 4)
    assert cache_bytes(spec, 8_192) == 6 * 2 * 2 * 128 * 2 * 8_192 + state == 99_414_016
    assert cache_bytes(spec, 131_072) == 6 * 2 * 2 * 128 * 2 * 131_072 + state == 854_388_736


def test_state_is_fp16_unless_the_config_says_otherwise():
    assert state_caches(spec_of("nvidia/Nemotron-H-8B-Base-8K"))[0].states[1].dtype == "float16"


def test_dense_layers_are_ungated():
    spec = spec_of("nvidia/Nemotron-H-8B-Base-8K")
    mlp = spec.layers[1].feed_forward
    assert isinstance(mlp, Mlp)
    assert {t.name: t.shape for t in mlp.tensors(4096)} == {
        "mixer.up_proj.weight": (21_504, 4096),
        "mixer.down_proj.weight": (4096, 21_504),
    }


def test_latent_experts():
    spec = spec_of(SUPER)
    layer = next(layer for layer in spec.layers if isinstance(layer.feed_forward, Moe))
    share = {t.name: local_shape(t, Parallelism(tensor_parallel_size=4)) for t in layer.tensors(4096)}
    assert share["mixer.experts.up_proj"] == (512, 2688 // 4, 1024)
    assert share["mixer.experts.down_proj"] == (512, 1024, 2688 // 4)
    assert share["mixer.fc1_latent_proj.weight"] == (1024, 4096)
    assert share["mixer.fc2_latent_proj.weight"] == (4096, 1024)
    assert share["mixer.shared_experts.up_proj.weight"] == (5376 // 4, 4096)
    assert share["mixer.gate.weight"] == (512, 4096)
    experts = 40 * 512 * 2 * 2688 * 1024
    assert active_parameters(spec) == parameters(spec) - experts + experts // 512 * 22


@pytest.mark.parametrize(
    ("model", "published", "counted", "hidden", "layers"),
    [
        (SUPER, 123_611_012_096, 120_668_687_360, 4096, 35_655_680 + 2_873_102_336),
        (ULTRA, 560_524_578_816, 549_308_968_960, 8192, 138_420_224 + 10_942_947_328),
    ],
)
def test_draft_layers_are_what_the_checkpoint_has_besides(model, published, counted, hidden, layers):
    spec = spec_of(model)
    drafts = sum(tensor.numel for tensor in draft_tensors(spec))
    assert parameters(spec) == counted
    assert drafts == published - counted == layers + 2 * hidden * hidden + 3 * hidden
    assert len(spec.draft_layers) == 2


def test_a_list_of_kinds_needs_no_layer_count():
    assert len(spec_of(ULTRA).layers) == 108


@pytest.mark.parametrize(
    ("changes", "error", "field"),
    [
        ({"hybrid_override_pattern": "MX*E"}, UnsupportedArchitecture, "hybrid_override_pattern"),
        ({"hybrid_override_pattern": None}, ConfigError, "layers_block_type"),
        ({"hybrid_override_pattern": ""}, ConfigError, "hybrid_override_pattern"),
        ({"num_hidden_layers": 51}, ConfigError, "num_hidden_layers"),
        ({"attention_bias": True}, UnsupportedArchitecture, "attention_bias"),
        ({"sliding_window": 4096}, UnsupportedArchitecture, "sliding_window"),
        ({"n_shared_experts": 2}, UnsupportedArchitecture, "n_shared_experts"),
        ({"attention_head_dim": 64}, ConfigError, "attention_head_dim"),
        ({"n_groups": 7}, ConfigError, "n_groups"),
        ({"num_nextn_predict_layers": 2}, ConfigError, "num_nextn_predict_layers"),
    ],
)
def test_refusals_name_the_field(changes, error, field):
    with pytest.raises(error) as caught:
        spec_of(NANO, **changes)
    assert caught.value.field == field
