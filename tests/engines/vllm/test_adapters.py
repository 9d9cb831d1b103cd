"""LoRA slots by hand: rank x (input + output) of every linear layer, experts included."""

from __future__ import annotations

import pytest

from planner import Deployment, find_gpu, load_model, plan_serving


def slots(name: str, **options: object) -> int:
    asked = {"gpu": find_gpu("H100"), "max_model_len": 4096, "enable_lora": True, "max_lora_rank": 16} | options
    part = plan_serving(load_model(name), Deployment(**asked)).budget.component("lora_adapters")
    assert part is not None
    return part.best


LLAMA, QWEN, GPT = "meta-llama/Llama-3.1-8B-Instruct", "Qwen/Qwen3-30B-A3B", "openai/gpt-oss-20b"


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        # q, k, v, o, gate, up, down of 32 layers, and the head
        (LLAMA, {}, 2 * 16 * (32 * (8192 + 2 * 5120 + 8192 + 3 * 18432) + 4096 + 128256)),
        (LLAMA, {"max_loras": 4}, 4 * 2 * 16 * (32 * (8192 + 2 * 5120 + 8192 + 3 * 18432) + 4096 + 128256)),
        # two GPUs: outputs of q, k, v, gate, up are cut, inputs of o and down
        (
            LLAMA,
            {"tensor_parallel_size": 2},
            2 * 16 * (32 * (6144 + 2 * (4096 + 512) + 2048 + 4096 + 2 * (4096 + 7168) + 7168 + 4096) + 4096 + 128256),
        ),
        # sixteen: a key-value head of 128 on each
        (
            LLAMA,
            {"tensor_parallel_size": 16},
            2 * 16 * (32 * (4352 + 2 * (4096 + 128) + 256 + 4096 + 2 * (4096 + 896) + 896 + 4096) + 4096 + 128256),
        ),
        # 128 experts: gate and up 2 x 2048 + 1536, down 768 + 2048; router 2048 + 128
        (
            QWEN,
            {},
            2 * 16 * (48 * (6144 + 2 * 2560 + 6144 + 2176 + 128 * (2 * 2048 + 1536 + 768 + 2048)) + 2048 + 151936),
        ),
        # before 0.12 experts are not adapted, and the embedding is
        (QWEN, {"engine_version": "0.10.2"}, 2 * 16 * (48 * (6144 + 2 * 2560 + 6144 + 2176) + 2 * (2048 + 151936))),
        # 32 experts of one matrix: 2880 + 5760, 2880 + 2880; router 2880 + 32
        (GPT, {}, 2 * 16 * (24 * (6976 + 2 * 3392 + 6976 + 2912 + 32 * (8640 + 5760)) + 2880 + 201088)),
    ],
)  # fmt: skip
def test_slots(name: str, options: dict[str, object], expected: int) -> None:
    assert slots(name, **options) == expected
