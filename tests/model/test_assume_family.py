"""--assume-family: any family may be tried on any config; the result is assumed, or a line says why there is none."""

from __future__ import annotations

import json
from typing import Any

import pytest

from planner.errors import PlannerError, UnsupportedArchitecture
from planner.model.config import RawConfig
from planner.model.families import build_spec, families_that_read
from planner.model.families.registry import MODULE_OF
from planner.model.names.bundled import bundled_names
from planner.model.tensors import parameters


def one_of_each_type() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for path in bundled_names().values():
        values = json.loads(path.read_text())
        found.setdefault(values["model_type"], values)
    return found


CONFIGS = one_of_each_type()


def test_every_family_on_every_config_is_a_model_or_a_line() -> None:
    built = 0
    for values in CONFIGS.values():
        for family in MODULE_OF:
            try:
                spec = build_spec(RawConfig(values), assume_family=family)
            except PlannerError:
                continue
            built += 1
            assert spec.assumed == (f"family {family}",)
            assert f"read as {family} by --assume-family" in spec.notes[-1]
            assert spec.model_type in (family, f"{family}_text") or spec.model_type in MODULE_OF
    assert built > 1_000


@pytest.mark.parametrize(
    ("model_type", "expected"),
    [
        ("qwen2", "llama"),
        ("bert", "bert"),
        ("mamba", "mamba"),
        ("qwen3_moe", "qwen2_moe"),
        ("deepseek_v3", "deepseek_v2"),
    ],
)
def test_a_suggestion_goes_by_the_shape(model_type: str, expected: str) -> None:
    values = {**CONFIGS[model_type], "model_type": "lamma_qween"}
    found = families_that_read(RawConfig(values))
    assert expected in found[:2]
    with pytest.raises(UnsupportedArchitecture, match=f"--assume-family {found[0]} reads a config of this shape"):
        build_spec(RawConfig(values))


def test_baichuan_read_as_llama() -> None:
    # Baichuan2-7B: W_pack is q, k and v in one, so the count is llama's
    values = {
        "model_type": "baichuan2", "architectures": ["BaichuanForCausalLM"], "hidden_size": 4096,
        "intermediate_size": 11008, "num_hidden_layers": 32, "num_attention_heads": 32, "vocab_size": 125696,
        "model_max_length": 4096, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
    }  # fmt: skip
    assert parameters(build_spec(RawConfig(values), assume_family="llama")) == 7_505_973_248
