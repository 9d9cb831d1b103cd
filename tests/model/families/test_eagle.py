"""Draft heads that call themselves llama: counts by hand, and what they keep."""

from __future__ import annotations

import pytest

from planner.model.config import RawConfig
from planner.model.families import build_spec
from planner.model.tensors import parameters

SIZES = {
    "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 1,
    "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256, "tie_word_embeddings": False,
}  # fmt: skip
H, QKV, MLP = 4096, 4096 + 1024 + 1024, 3 * 4096 * 14336


@pytest.mark.parametrize(
    ("architecture", "more", "expected"),
    [
        # embedding, fc of 3 H, q k v of 2 H, o, MLP, four norms, the draft's own output matrix
        (
            "LlamaForCausalLMEagle3",
            {"draft_vocab_size": 32000},
            128256 * H + 3 * H * H + 2 * H * QKV + H * H + MLP + 4 * H + 32000 * H,
        ),
        # embedding, fc of 2 H, q k v, o, MLP, one norm; the output matrix is the target's
        ("EagleLlamaForCausalLM", {}, 128256 * H + 2 * H * H + H * QKV + H * H + MLP + H),
    ],
)
def test_a_head_by_hand(architecture: str, more: dict[str, int], expected: int) -> None:
    spec = build_spec(RawConfig({**SIZES, "architectures": [architecture], **more}))
    assert parameters(spec) == expected
    (cache,) = spec.layers[0].caches()
    assert cache.num_key_value_heads == 8  # type: ignore[union-attr]
    assert "draft head" in spec.notes[-1]
