"""What a checkpoint holds, to the last element: the model, its draft layers, and score corrections.

The published total of a checkpoint with draft layers is a check of those layers that transformers cannot give, since it
does not build them. Some checkpoints repeat the embedding, or embedding and head, beside the draft layer.
"""

from __future__ import annotations

import pytest

from planner.model.config import RawConfig
from planner.model.families import build_spec
from planner.model.spec import ModelSpec
from planner.model.tensors import active_parameters, parameters
from tests.model.families.reading import buffers, draft_parameters, spec_of

LONGCAT = {
    "model_type": "longcat_flash", "architectures": ["LongcatFlashForCausalLM"], "num_layers": 28,
    "hidden_size": 6144, "num_attention_heads": 64, "ffn_hidden_size": 12288, "expert_ffn_hidden_size": 2048,
    "n_routed_experts": 512, "zero_expert_num": 256, "zero_expert_type": "identity", "moe_topk": 12,
    "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
    "vocab_size": 131072, "max_position_embeddings": 131072, "torch_dtype": "bfloat16",
}  # fmt: skip


def checkpoint(spec: ModelSpec, copies: int = 0) -> int:
    """Elements of the checkpoint; `copies` matrices [vocabulary, hidden] are stored once more."""
    return parameters(spec) + draft_parameters(spec) + buffers(spec) + copies * spec.vocab_size * spec.hidden_size


@pytest.mark.parametrize(
    ("model", "changes", "copies", "published"),
    [
        ("zai-org/GLM-4.5", {}, 2, 358_337_791_296),
        ("zai-org/GLM-4.5-Air", {}, 2, 110_468_824_832),
        ("zai-org/GLM-4.6", {}, 0, 356_785_898_816),
        ("zai-org/GLM-4.7", {}, 2, 358_337_791_296),
        ("tencent/Hy3-preview", {}, 0, 298_786_155_776),
        ("LGAI-EXAONE/K-EXAONE-236B-A23B", {}, 0, 237_099_669_632),
        # two config files leave out what their checkpoints have: the draft layer, and the windowed layers' 96 heads
        ("baidu/ERNIE-4.5-21B-A3B-PT", {"num_nextn_predict_layers": 1}, 0, 21_948_655_808),
        ("stepfun-ai/Step-3.7-Flash", {"num_sliding_attention_heads": 96}, 0, 201_365_316_160),
    ],
)
def test_model_drafts_and_buffers_are_the_published_total(
    model: str, changes: dict[str, object], copies: int, published: int
) -> None:
    assert checkpoint(spec_of(model, **changes), copies) == published


def test_longcat_flash() -> None:
    spec = build_spec(RawConfig({**LONGCAT, "num_nextn_predict_layers": 1}))
    # meituan-longcat/LongCat-Flash-Chat, with the embedding once more beside the draft layer
    assert checkpoint(spec, 1) == 561_862_880_256
    # "560B, 18.6B to 31.3B active": without the embedding, a token that chooses no identity expert
    assert parameters(spec) == 560_664_958_976
    assert active_parameters(spec) - 131_072 * 6144 == 31_377_348_608


def test_gpt_oss_20b_by_hand() -> None:
    hidden = inner = 2880
    # q, k, v and o with biases, a sink for each of 64 heads
    attention = (hidden + 1) * (64 + 8 + 8) * 64 + (64 * 64 + 1) * hidden + 64
    expert = 2 * inner * (hidden + 1) + hidden * (inner + 1)
    router = 32 * (hidden + 1)
    total = 2 * 201_088 * hidden + hidden + 24 * (attention + 2 * hidden + router + 32 * expert)
    assert parameters(spec_of("openai/gpt-oss-20b")) == total == 20_914_757_184


def test_qwen3_30b_a3b_by_hand() -> None:
    hidden = 2048
    # 32 query, 4 key and 4 value heads of 128, the output, a norm for queries and one for keys
    attention = (32 + 4 + 4) * 128 * hidden + 32 * 128 * hidden + 2 * 128
    expert = 3 * 768 * hidden
    total = 2 * 151_936 * hidden + hidden + 48 * (attention + 2 * hidden + 128 * hidden + 128 * expert)
    assert parameters(spec_of("Qwen/Qwen3-30B-A3B")) == total == 30_532_122_624
