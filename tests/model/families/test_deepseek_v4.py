"""DeepSeek-V4: windows, compressed vectors, compressor states, hyper-connections, the published totals."""

from __future__ import annotations

from collections import Counter

import pytest

from planner.errors import ConfigError, UnsupportedArchitecture
from planner.memory.parallel.sharding import Parallelism, local_shape
from planner.model.caches import CompressedCache, IndexerCache
from planner.model.config import RawConfig
from planner.model.families import build_spec
from planner.model.kinds.compressed import CompressedAttention
from planner.model.tensors import active_parameters, draft_tensors, parameters
from tests.model.families.reading import cache_bytes, spec_of

SPARSE = "compressed_sparse_attention"
FLASH, PRO = "deepseek-ai/DeepSeek-V4-Flash", "deepseek-ai/DeepSeek-V4-Pro"


@pytest.fixture(scope="module")
def spec():
    return spec_of(FLASH)


def ratios(spec) -> list[int]:
    found = []
    for layer in spec.layers:
        (mixer,) = layer.mixers
        assert isinstance(mixer, CompressedAttention)
        found.append(mixer.compress_ratio)
    return found


def test_two_windowed_layers_then_both_compressions_in_turn(spec):
    assert ratios(spec) == [0, 0] + [4, 128] * 20 + [4]
    assert ratios(spec_of(PRO)) == [128, 128] + [4, 128] * 29 + [4]
    assert ratios(build_spec(RawConfig({"model_type": "deepseek_v4"})))[:5] == [128, 128, 128, 4, 128]


def test_caches_of_each_kind_of_layer(spec):
    window = CompressedCache(width=512, compress_ratio=1, sliding_window=128)
    assert spec.layers[0].caches() == (window,)
    assert spec.layers[2].caches() == (
        window,
        CompressedCache(width=512, compress_ratio=4),
        IndexerCache(index_head_dim=128, compress_ratio=4),
        # keys and scores of two runs of 4 tokens, twice as wide for the overlap
        CompressedCache(width=2 * 1024, compress_ratio=1, sliding_window=8, dtype="float32"),
        CompressedCache(width=2 * 256, compress_ratio=1, sliding_window=8, dtype="float32"),
    )
    assert spec.layers[3].caches() == (
        window,
        CompressedCache(width=512, compress_ratio=128),
        CompressedCache(width=2 * 512, compress_ratio=1, sliding_window=128, dtype="float32"),
    )


@pytest.mark.parametrize("length", [8_192, 131_072])
def test_bytes_of_a_sequence(spec, length):
    windows = 43 * 128 * 512 * 2
    overlapping = 21 * (length // 4) * (512 * 2 + 132)
    heavy = 20 * (length // 128) * 512 * 2
    states = 21 * 8 * (2048 + 512) * 4 + 20 * 128 * 1024 * 4
    assert cache_bytes(spec, length) == windows + overlapping + heavy + states


def test_short_sequence_keeps_its_tokens_once(spec):
    # three tokens: three slots in each window, one vector of each compression, three slots of state
    expected = 43 * 3 * 512 * 2 + 21 * (512 * 2 + 132) + 20 * 512 * 2 + 3 * 4 * (21 * 2560 + 20 * 1024)
    assert cache_bytes(spec, 3) == expected


@pytest.mark.parametrize(
    ("model", "total", "published"),
    [(FLASH, 284_332_230_231, 290_944_616_402), (PRO, 1_572_997_179_491, 1_598_839_674_782)],
)
def test_published_total_is_model_draft_layer_and_buffers(model, total, published):
    spec = spec_of(model)
    assert parameters(spec) == total
    buffers = sum(
        tensor.numel
        for layer in (*spec.layers, *spec.draft_layers)
        for tensor in layer.tensors(spec.hidden_size)
        if tensor.buffer
    )
    assert total + sum(tensor.numel for tensor in draft_tensors(spec)) + buffers == published


def test_active_parameters(spec):
    experts = 43 * 256 * 3 * 4096 * 2048
    assert active_parameters(spec) == 284_332_230_231 - experts + experts // 256 * 6


def test_first_layers_choose_experts_by_a_table(spec):
    buffers = [Counter(tensor.name for tensor in layer.tensors(4096) if tensor.buffer) for layer in (*spec.layers[:4],)]
    assert buffers == [Counter({"ffn.gate.tid2eid": 1})] * 3 + [Counter({"ffn.gate.bias": 1})]


def test_draft_layer_sees_its_window_only(spec):
    (draft,) = spec.draft_layers
    assert draft.caches() == (CompressedCache(width=512, compress_ratio=1, sliding_window=128),)
    names = {tensor.name for tensor in draft_tensors(spec)}
    assert {"layers.43.e_proj.weight", "layers.43.h_proj.weight", "layers.43.hc_head_fn"} <= names


def test_hyper_connections_are_fp32_and_whole(spec):
    found = {tensor.name: tensor for tensor in spec.layers[0].tensors(4096)}
    assert found["hc_attn_fn"].shape == ((2 + 4) * 4, 4 * 4096)
    assert found["hc_attn_fn"].dtype == "float32"
    assert found["hc_attn_fn"].split is None


def test_shares_at_tensor_parallel_eight(spec):
    share = {t.name: local_shape(t, Parallelism(tensor_parallel_size=8)) for t in spec.layers[2].tensors(4096)}
    assert share["attn.wq_a.weight"] == (1024, 4096)
    assert share["attn.wq_b.weight"] == (64 * 512 // 8, 1024)
    assert share["attn.wkv.weight"] == (512, 4096)
    assert share["attn.wo_a.weight"] == (8 * 1024 // 8, 64 * 512 // 8)
    assert share["attn.wo_b.weight"] == (4096, 8 * 1024 // 8)
    assert share["attn.attn_sink"] == (8,)
    assert share["attn.compressor.wkv.weight"] == (1024, 4096)
    assert share["attn.indexer.wq_b.weight"] == (64 * 128, 1024)


def test_compressors_are_not_quantised(spec):
    linear = {tensor.name: tensor.linear for tensor in spec.layers[2].tensors(4096)}
    assert not linear["attn.compressor.wkv.weight"]
    assert not linear["attn.indexer.weights_proj.weight"]
    assert linear["attn.wo_a.weight"]


@pytest.mark.parametrize(
    ("changes", "error", "field"),
    [
        ({"compress_ratios": [0, 4]}, ConfigError, "compress_ratios"),
        ({"compress_ratios": [2] * 43}, UnsupportedArchitecture, "compress_ratios"),
        ({"layer_types": ["full_attention"] * 43}, UnsupportedArchitecture, "layer_types"),
        ({"mlp_layer_types": ["dense"] * 43}, UnsupportedArchitecture, "mlp_layer_types"),
        ({"mlp_layer_types": ["moe"]}, ConfigError, "mlp_layer_types"),
        ({"compress_rates": {SPARSE: 8}}, UnsupportedArchitecture, SPARSE),
        ({"compress_rate_csa": 8}, UnsupportedArchitecture, "compress_rate_csa"),
        ({"num_key_value_heads": 2}, UnsupportedArchitecture, "num_key_value_heads"),
        ({"n_shared_experts": 2}, UnsupportedArchitecture, "n_shared_experts"),
        ({"o_groups": 7}, ConfigError, "o_groups"),
        ({"partial_rotary_factor": 2, "qk_rope_head_dim": None}, ConfigError, "partial_rotary_factor"),
    ],
)
def test_refusals_name_the_field(changes, error, field):
    with pytest.raises(error) as caught:
        spec_of(FLASH, **changes)
    assert caught.value.field == field
