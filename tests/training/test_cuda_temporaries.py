"""What CUDA kernels allocate beside their results: sizes by hand, and a source for every operation of the tape."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from planner.hardware.gpus import find_gpu
from planner.model.load import load_model
from planner.training.plan import plan_training
from planner.training.recipe import Recipe
from planner.training.tape import cuda
from planner.units import GIB

_TRAINING = Path(__file__).parents[2] / "planner" / "training"
# Functions that put a node on the tape under a name of their own in the table.
_NAMES = {
    "_fused": "fused_norm", "_written_over": "written_over", "_compiled": "compiled_cross_entropy",
    "_fused_linear": "fused_linear_cross_entropy", "_recomputed_chunks": "recomputed_chunks",
    "_base_linear": "quantised_product", "stacked_linear": "quantised_product", "_with_fused_adapter": "fused_adapter",
    "_silu_mul": "fused_gate", "_convolved": "product", "_padded": "copy", "_math": "sdpa_math", "matmul": "product",
    "softmax_fp32": "softmax", "_minus": "add", "_log_probabilities": "log_probabilities", "_sum": "cross_entropy",
}  # fmt: skip


def test_every_operation_on_the_tape_has_a_source() -> None:
    recording: set[str] = set()
    for path in _TRAINING.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.FunctionDef) and any(
                isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "record"
                for call in ast.walk(node)
            ):
                recording.add(_NAMES.get(node.name, node.name))
    assert recording - set(cuda.temporaries()) == set()
    assert all(row["source"] for row in cuda.temporaries().values())


def test_sizes_by_hand() -> None:
    assert cuda.softmax_backward_bytes(16 * 4096 * 4096, 4) == 1_073_741_824
    # fp32 dq 8192 x 4096 x 4, dk and dv at 32 heads 2 x 8192 x 4096 x 2, a row sum 8192 x 32 x 4
    assert cuda.flash_backward_bytes(8192, 32, 128, 8) == 134_217_728 + 134_217_728 + 1_048_576
    assert cuda.flash_backward_bytes(8192, 32, 128, 32) == 134_217_728 + 1_048_576
    assert cuda.embedding_backward_bytes(16_384, 4096) == 268_435_456
    assert cuda.embedding_backward_bytes(3000, 4096) == 0
    assert cuda.masked_scatter_bytes(8192 * 3584) == 264_241_152


@pytest.mark.parametrize(("dtype", "bytes_a_cell"), [("float16", 14), ("bfloat16", 16)])
@pytest.mark.parametrize("name", ["HuggingFaceTB/SmolLM2-135M", "google/gemma-2b", "openai-community/gpt2"])
def test_eager_attention_grows_with_every_score(name: str, dtype: str, bytes_a_cell: int) -> None:
    """Softmax backward: the fp32 result, its gradient, their product in fp32, and the gradient of the scores."""
    model = load_model(name)
    heads = model.spec.layers[0].mixers[0].num_attention_heads  # type: ignore[union-attr]

    def peak(seq: int) -> int:
        recipe = Recipe(
            method="lora", lora_target_modules=("all-linear",), lora_dropout=0.0, dtype=dtype, max_seq_length=seq,
            attn_implementation="eager", loss="liger", gradient_checkpointing=True, modules_to_save=(),
        )  # fmt: skip
        return plan_training(model, recipe, find_gpu("H100"), gpu_memory_bytes=1 << 40).allocated_bytes

    if name == "openai-community/gpt2":
        bytes_a_cell = 8  # its softmax is in 16 bit: result, gradient, product and the scores' gradient
    grown = (peak(4096) - peak(2048)) / (heads * (4096**2 - 2048**2))
    assert bytes_a_cell <= grown <= bytes_a_cell + 4


@pytest.mark.parametrize(("dtype", "right"), [("float16", 3.721), ("bfloat16", 4.221)])
def test_a_small_model_in_eager_attention(tmp_path: Path, dtype: str, right: float) -> None:
    config = (
        '{"model_type": "llama", "hidden_size": 1024, "intermediate_size": 2048, "num_hidden_layers": 2,'
        ' "num_attention_heads": 16, "num_key_value_heads": 16, "head_dim": 64, "vocab_size": 1000,'
        ' "tie_word_embeddings": false, "max_position_embeddings": 8192, "rms_norm_eps": 1e-5, "hidden_act": "silu"}'
    )
    (tmp_path / "config.json").write_text(config)
    recipe = Recipe(
        method="lora", lora_target_modules=("all-linear",), dtype=dtype, autocast="none", max_seq_length=4096,
        attn_implementation="eager", gradient_checkpointing=True,
    )  # fmt: skip
    plan = plan_training(load_model(str(tmp_path)), recipe, None, gpu_memory_bytes=80 * GIB)
    assert plan.allocated_bytes / GIB == pytest.approx(right, abs=0.03)
