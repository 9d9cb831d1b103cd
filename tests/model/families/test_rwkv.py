"""RWKV-4: state bytes, tensors that stay in fp32, names."""

from __future__ import annotations

from planner.model.tensors import tensors
from tests.model.families.reading import cache_bytes, kinds_of_state, spec_of

MODEL = "RWKV/rwkv-4-14b-pile"


def test_state_does_not_grow():
    spec = spec_of(MODEL)
    assert kinds_of_state(spec) == {"rwkv": 40}
    # two last inputs of 5120 in the cache dtype, three vectors of 5120 in fp32
    assert cache_bytes(spec, 8_192) == cache_bytes(spec, 131_072) == 40 * (2 * 5120 * 2 + 3 * 5120 * 4) == 3_276_800


def test_decay_and_bonus_stay_in_fp32():
    kept = {t.name for t in spec_of(MODEL).layers[1].tensors(5120) if t.dtype == "float32"}
    assert kept == {"attention.time_decay", "attention.time_first"}


def test_only_the_first_block_has_a_norm_before_it():
    names = [t.name for t in tensors(spec_of(MODEL)) if ".pre_ln." in t.name]
    assert names == ["rwkv.blocks.0.pre_ln.weight", "rwkv.blocks.0.pre_ln.bias"]
    assert "head.weight" in {t.name for t in tensors(spec_of(MODEL))}
