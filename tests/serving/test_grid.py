"""A grid's cells agree with plans made one by one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from planner import Deployment, find_gpu, load_model, plan_serving
from planner.contract.engine import find_engine
from planner.contract.workload import Workload
from planner.serving.grid import Grid, grid_cells

VLLM = find_engine("vllm")
MODELS = ["meta-llama/Llama-3.1-8B-Instruct", "google/gemma-3-12b-it", "deepseek-ai/DeepSeek-V2-Lite"]
# what a length changes beside the batch: recurrent blocks, images of a prompt, windows of compressed caches
LENGTH_MATTERS = {
    "state-spaces/mamba2-2.7b": "0.12.0",
    "tiiuae/Falcon-H1-34B-Base": "0.8.5",
    "Qwen/Qwen3.6-35B-A3B": "0.19.0",
    "OpenGVLab/InternVL3-38B-hf": "0.22.1",
    "mistralai/Ministral-3-14B-Instruct-2512": "0.33.0",
    "deepseek-ai/DeepSeek-V4-Flash": "0.28.0",
    "moonshotai/Kimi-Linear-48B-A3B-Instruct": "0.12.0",
}


@pytest.mark.parametrize("version", ["0.19.0", "0.30.0"])
def test_cells_agree_with_plans(version: str) -> None:
    base, two = Deployment(engine_version=version), Workload(concurrency=2)
    cards = [replace(base, gpu=find_gpu(name)) for name in ("H100", "4090")]
    models = {name: load_model(name) for name in MODELS}
    grid = Grid(
        engine=VLLM,
        models=list(models.values()),
        deployments=cards,
        quantizations=[None, "fp8"],
        cache_dtypes=["auto", "fp8"],
        ways=[1, 2, 3],
        lengths=[700, 8192, 100_000],
        workload=two,
    )
    cells = list(grid_cells(grid))
    assert len(cells) == grid.cells == 3 * 2 * 2 * 2 * 3 * 3
    for cell in cells:
        if cell.tensor_parallel_size == 3:
            assert cell.verdict == "refused" and "sizes that work" in cell.reason
            continue
        deployment = Deployment(
            engine_version=version, gpu=find_gpu(cell.gpu), kv_cache_dtype=cell.kv_cache_dtype,
            quantization="fp8" if cell.quantization.startswith("fp8") else None, max_model_len=cell.max_model_len,
            tensor_parallel_size=cell.tensor_parallel_size,
        )  # fmt: skip
        plan = plan_serving(models[cell.model], deployment, two)
        weights = plan.budget.component("weights")
        assert weights is not None
        assert (cell.weights_bytes, cell.kv_cache_bytes, cell.tokens, cell.verdict, cell.bytes_per_token) == (
            weights.best, plan.kv_cache_bytes, plan.kv_tokens, plan.verdict, plan.sequence.bytes_per_token,
        )  # fmt: skip
        assert cell.concurrency == int(plan.max_concurrency)


@pytest.mark.parametrize("name", LENGTH_MATTERS)
def test_cells_agree_where_the_length_matters(name: str) -> None:
    version, model = LENGTH_MATTERS[name], load_model(name)
    base = Deployment(engine_version=version, gpu=find_gpu("H200"))
    grid = Grid(
        engine=VLLM,
        models=[model],
        deployments=[base],
        cache_dtypes=["auto", "fp8"],
        ways=[1, 2],
        lengths=[100, 512, 5000, 40_000],
        workload=Workload(concurrency=3),
    )
    for cell in grid_cells(grid):
        asked = replace(
            base, kv_cache_dtype=cell.kv_cache_dtype, tensor_parallel_size=cell.tensor_parallel_size,
            max_model_len=cell.max_model_len,
        )  # fmt: skip
        plan = plan_serving(model, asked, grid.workload)
        assert (cell.kv_cache_bytes, cell.tokens, cell.verdict, cell.bytes_per_token, cell.concurrency) == (
            plan.kv_cache_bytes, plan.kv_tokens, plan.verdict, plan.sequence.bytes_per_token, int(plan.max_concurrency),
        )  # fmt: skip


def test_cells_know_what_loading_takes() -> None:
    """Mistral-Large, 123 B weights: online fp8 of an old version lays out 228 GiB in 16 bit first."""
    model = load_model("mistralai/Mistral-Large-Instruct-2411")
    base = Deployment(engine_version="0.6.6", gpu=find_gpu("H200"))
    grid = Grid(engine=VLLM, models=[model], deployments=[base], quantizations=["fp8"], lengths=[512])
    (cell,) = grid_cells(grid)
    plan = plan_serving(model, replace(base, quantization="fp8", max_model_len=512))
    assert cell.verdict == plan.verdict == "does_not_fit"
