"""A grid's cells agree with plans made one by one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from planner import Deployment, find_gpu, load_model, plan_serving
from planner.serving.grid import Axes, compare_cells

MODELS = ["meta-llama/Llama-3.1-8B-Instruct", "google/gemma-3-12b-it", "deepseek-ai/DeepSeek-V2-Lite"]


@pytest.mark.parametrize("version", ["0.19.0", "0.30.0"])
def test_cells_agree_with_plans(version: str) -> None:
    base = Deployment(engine_version=version, concurrency=2)
    cards = [replace(base, gpu=find_gpu(name)) for name in ("H100", "4090")]
    models = {name: load_model(name) for name in MODELS}
    axes = Axes(
        models=list(models.values()), gpus=cards, quantizations=[None, "fp8"], cache_dtypes=["auto", "fp8"],
        tensor_parallel_sizes=[1, 2, 3], lengths=[700, 8192, 100_000], concurrency=2,
    )  # fmt: skip
    cells = list(compare_cells(axes))
    assert len(cells) == axes.cells == 3 * 2 * 2 * 2 * 3 * 3
    for cell in cells:
        if cell.tensor_parallel_size == 3:
            assert cell.verdict == "refused" and "sizes that work" in cell.reason
            continue
        deployment = Deployment(
            engine_version=version, gpu=find_gpu(cell.gpu), kv_cache_dtype=cell.kv_cache_dtype,
            quantization="fp8" if cell.quantization.startswith("fp8") else None, max_model_len=cell.max_model_len,
            tensor_parallel_size=cell.tensor_parallel_size, concurrency=2,
        )  # fmt: skip
        plan = plan_serving(models[cell.model], deployment)
        weights = plan.budget.component("weights")
        assert weights is not None
        assert (cell.weights_bytes, cell.kv_cache_bytes, cell.tokens, cell.verdict, cell.bytes_per_token) == (
            weights.best, plan.kv_cache_bytes, plan.kv_tokens, plan.verdict, plan.sequence.bytes_per_token,
        )  # fmt: skip
        assert cell.concurrency == int(plan.max_concurrency)
