"""Driver memory of several GPUs by link, release, runner and eager mode; figures read on other people's machines."""

from __future__ import annotations

import pytest

from planner import Deployment, ServingPlan, find_gpu, load_model, plan_serving
from planner.errors import UsageError
from planner.hardware.links import link_of, reach_of
from planner.units import GIB


def plan(gpu: str, version: str, name: str = "Qwen/Qwen2.5-32B-Instruct", **more: object) -> ServingPlan:
    options = {"gpu": find_gpu(gpu), "max_model_len": 8192, "engine_version": version, "tensor_parallel_size": 4} | more
    return plan_serving(load_model(name), Deployment(**options))  # type: ignore[arg-type]


def growth(found: ServingPlan) -> float:
    part = found.budget.component("non_torch")
    assert part is not None and part.low <= part.best <= part.high
    return part.best / GIB


@pytest.mark.parametrize(
    ("gpu", "reach", "kind"),
    [
        ("rtx-3090", "none", "pcie"),  # a bridge is bought apart
        ("rtx-4090", "none", "pcie"),
        ("rtx-a6000", "peer", "pcie"),
        ("l40s", "peer", "pcie"),
        ("h100-nvl-94gb", "peer", "pcie"),
        ("a100-sxm-80gb", "nvlink", "nvlink"),
        ("b200", "nvlink", "nvlink"),
        ("mi300x", "xgmi", "nvlink"),
    ],
)
def test_what_a_card_is_linked_by(gpu: str, reach: str, kind: str) -> None:
    card = find_gpu(gpu)
    link = link_of(card)
    assert reach_of(card) == reach and link is not None and link.kind == kind


def test_a_stated_link_wins() -> None:
    card = find_gpu("rtx-3090")
    bridged = link_of(card, "nvlink")
    assert reach_of(card, "nvlink") == "nvlink" and bridged is not None and bridged.bytes_per_second == 56_250_000_000
    assert reach_of(find_gpu("h100"), "pcie") == "peer" and reach_of(find_gpu("h100"), "none") == "none"
    with pytest.raises(UsageError, match="has no NVLink"):
        reach_of(find_gpu("rtx-4090"), "nvlink")


def test_four_3090_print_5_24() -> None:
    """A printed start: 4 x 3090, eager, one sequence, 0.88, vLLM 0.18.1."""
    found = plan(
        "rtx-3090", "0.18.1", max_model_len=32768, max_num_seqs=1, max_num_batched_tokens=2048,
        gpu_memory_utilization=0.88, enforce_eager=True,
    )  # fmt: skip
    assert abs(found.kv_cache_bytes / GIB - 5.24) <= 0.2


@pytest.mark.parametrize(
    ("gpu", "version", "ways", "options", "low", "high"),
    [
        # without peer access: 0 to 0.33 GiB, before and after the communicators left the window
        ("rtx-4090", "0.7.3", 2, {}, 0.15, 0.34),
        ("rtx-5090", "0.8.5", 2, {}, 0.15, 0.34),
        ("rtx-3090", "0.19.0", 4, {}, 0.0, 0.28),
        ("t4", "0.15.0", 2, {"dtype": "float16"}, 0.0, 0.28),
        ("l40s", "0.10.2", 8, {}, 0.15, 0.37),
        # NVLink: 0.59 on 2 x H100 with 0.12.0, 2.14 with the graph probe of 0.19, 1.11 eager on eight
        ("h100", "0.12.0", 2, {}, 0.5, 0.7),
        ("h100", "0.19.0", 2, {}, 2.0, 2.2),
        ("h100", "0.19.0", 8, {}, 2.3, 2.4),
        ("h100", "0.19.0", 8, {"enforce_eager": True}, 1.0, 1.2),
        ("h100", "0.19.0", 2, {"enforce_eager": True}, 0.5, 0.7),
        ("h200", "0.11.0", 2, {}, 1.3, 1.5),
        # GH200: 0.07 on the V2 runner, 0.07 to 0.63 on V1
        ("gh200-96gb", "0.23.1", 4, {"model_runner": "v2"}, 0.06, 0.1),
        ("gh200-96gb", "0.23.1", 4, {"model_runner": "v1"}, 0.07, 0.2),
        ("gb200", "0.26.0", 4, {"model_runner": "v1"}, 0.9, 1.7),
        # one GPU of an MI300X with 0.6.5 printed 6.07 GiB, the context among them
        ("mi300x", "0.6.5", 1, {}, 5.9, 6.2),
    ],
)
def test_driver_memory(gpu: str, version: str, ways: int, options: dict[str, object], low: float, high: float) -> None:
    name = "Qwen/Qwen3-32B" if ways == 8 else "Qwen/Qwen2.5-7B-Instruct"
    assert low <= growth(plan(gpu, version, name, tensor_parallel_size=ways, **options)) <= high


@pytest.mark.parametrize("version", ["0.24.0", "0.28.0"])
def test_a_pair_of_consumer_cards_is_not_charged_for_nvlink(version: str) -> None:
    found = plan("rtx-4090", version, "Qwen/Qwen2.5-7B-Instruct", tensor_parallel_size=2)
    part = found.budget.component("non_torch")
    assert part is not None and part.high <= 0.3 * GIB


@pytest.mark.parametrize(
    ("gpu", "version", "name"), [("h100", "0.19.0", "nccl_outside"), ("h100", "0.10.2", "non_torch")]
)
def test_the_custom_all_reduce_can_be_left_out(gpu: str, version: str, name: str) -> None:
    """Two shared buffers and the ranks' table, 8 MiB each, where the cards reach each other."""
    ways = {"tensor_parallel_size": 2, "name": "Qwen/Qwen2.5-7B-Instruct"}
    parts = [
        plan(gpu, version, disable_custom_all_reduce=off, **ways).budget.component(name)  # type: ignore[arg-type]
        for off in (False, True)
    ]
    assert parts[0] is not None and parts[1] is not None
    assert parts[0].best - parts[1].best == 24 << 20
    without = [
        plan("rtx-4090", version, disable_custom_all_reduce=off, **ways).budget.component(name)  # type: ignore[arg-type]
        for off in (False, True)
    ]
    assert without[0] == without[1]


def test_layers_of_the_stages_as_the_environment_says() -> None:
    even = plan("h100", "0.19.0", "Qwen/Qwen3-32B", tensor_parallel_size=1, pipeline_parallel_size=2)
    asked = plan("h100", "0.19.0", "Qwen/Qwen3-32B", tensor_parallel_size=1, pipeline_parallel_size=2,
                 pipeline_layer_partition=(40, 24))  # fmt: skip
    assert [stage.layers.stop - stage.layers.start for stage in even.stages] == [32, 32]
    assert [stage.layers.stop - stage.layers.start for stage in asked.stages] == [40, 24]
    with pytest.raises(UsageError, match="VLLM_PP_LAYER_PARTITION"):
        plan("h100", "0.19.0", "Qwen/Qwen3-32B", tensor_parallel_size=1, pipeline_parallel_size=2,
             pipeline_layer_partition=(40, 25))  # fmt: skip


@pytest.mark.parametrize(("version", "stated", "inside"), [("0.19.0", True, True), ("0.20.0", False, False)])
def test_graphs_in_the_fraction_as_the_environment_says(version: str, stated: bool, inside: bool) -> None:
    found = plan("h100", version, "Qwen/Qwen3-8B", tensor_parallel_size=1, estimate_cudagraphs=stated)
    assert ("cuda_graphs" in {part.name for part in found.budget.inside}) is inside
