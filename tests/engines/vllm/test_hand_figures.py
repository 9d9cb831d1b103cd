"""Reference figures worked out by hand."""

from __future__ import annotations

import pytest

from planner import Deployment, Model, find_gpu, load_model, plan_serving
from planner.memory.cache.formats import cache_format
from planner.memory.cache.kv_cache import layer_caches, sequence_cost
from planner.model.load import model_from_config
from planner.serving.capacity import requests_that_fit
from planner.units import GIB, KIB

HALF_GIB = GIB // 2


def llama(key_value_heads: int) -> Model:
    """32 layers, head_dim 128: the shape of the textbook example."""
    return model_from_config(
        {
            "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
            "num_attention_heads": 32, "num_key_value_heads": key_value_heads, "vocab_size": 128256,
            "max_position_embeddings": 131072, "torch_dtype": "bfloat16",
        },
        name="example", origin="test",
    )  # fmt: skip


def test_what_is_left_of_80_gib() -> None:
    assert requests_that_fit((80 - 48 - 20 - 4) * GIB, HALF_GIB) == 16
    assert requests_that_fit((80 - 48 - 20 - 4) * GIB, GIB) == 8
    assert requests_that_fit((80 - 48 - 28 - 4) * GIB, HALF_GIB) == 0


@pytest.mark.parametrize(
    ("heads", "length", "expected"),
    [
        (8, 1, 131_072),  # 2 x 32 layers x 8 heads x 128 x 2 B
        (8, 8_192, 1 * GIB),  # 131,072 x 8,192
        (8, 32_768, 4 * GIB),
        (32, 1, 512 * KIB),  # four times the heads
    ],
)
def test_cache_bytes(heads: int, length: int, expected: int) -> None:
    caches = layer_caches(llama(heads).spec.layers, cache_format("bfloat16", "bfloat16"))
    assert sequence_cost(caches, length).total_bytes == expected


def test_eight_sequences_of_8k_take_8_gib() -> None:
    caches = layer_caches(llama(8).spec.layers, cache_format("auto", "bfloat16"))
    assert 8 * sequence_cost(caches, 8_192).total_bytes == 8 * GIB


def test_key_value_heads_are_copied_beyond_their_number() -> None:
    # 8 heads over 16 GPUs: each holds one, so a token costs 32 layers x 1 head x 128 x 2 (K and V) x 2 B = 16,384 B
    form = cache_format("auto", "bfloat16")
    layers = llama(8).spec.layers
    assert sequence_cost(layer_caches(layers, form, tensor_parallel_size=8), 1).total_bytes == 16_384
    assert sequence_cost(layer_caches(layers, form, tensor_parallel_size=16), 1).total_bytes == 16_384


def test_spec_worked_example() -> None:
    """Llama-3.1-8B on an H100 by hand.

    weights  8,030,261,248 x 2 + rotary 131,072 x 128 x 2 = 16,094,076,928 B = 14.9888 GiB, as vLLM prints
    block    2 x 32 x 8 x 128 x 2 B x 16 tokens = 2,097,152 B; 131,072 tokens are 8,192 blocks = 16 GiB
    """
    model = load_model("meta-llama/Llama-3.1-8B-Instruct")
    plan = plan_serving(model, Deployment(gpu=find_gpu("H100"), engine_version="0.19.0"))
    weights = plan.budget.component("weights")
    assert weights is not None
    assert weights.low == weights.best == weights.high == 8_030_261_248 * 2 + 131_072 * 128 * 2
    assert plan.pool.bytes_per_block == 2_097_152
    assert plan.needed_bytes == 16 * GIB
    assert plan.num_blocks == plan.kv_cache_bytes // 2_097_152
    assert plan.kv_tokens == plan.num_blocks * 16
    assert plan.resolved.max_num_seqs == 1024
    assert plan.resolved.max_num_batched_tokens == 8192
