"""A version that no measured start covers says so, and leaves its cache a wider band."""

from __future__ import annotations

import math

import pytest

from planner import Deployment, ServingPlan, find_gpu, load_model, plan_serving
from planner.contract.workload import Workload
from planner.errors import UsageError
from planner.units import MIB
from planner.validation.cases import bundled_vllm_cases
from planner.validation.starts import Start, read_start

LLAMA = load_model("meta-llama/Llama-3.1-8B-Instruct")


def plan(version: str, **more: object) -> ServingPlan:
    options = {"gpu": find_gpu("H100"), "max_model_len": 8192, "engine_version": version} | more
    return plan_serving(LLAMA, Deployment(**options))  # type: ignore[arg-type]


def said(found: ServingPlan) -> list[str]:
    return [note for note in found.notes if "not validated" in note]


@pytest.mark.parametrize("version", ["0.19.0", "0.19", "v0.19.1"])
def test_a_validated_version_has_neither(version: str) -> None:
    found = plan(version)
    assert said(found) == [] and found.budget.component("unvalidated_version") is None


@pytest.mark.parametrize(
    ("version", "mib", "where"),
    [
        # half a GiB from 0.17 on, 0.15 for 0.9 to 0.16 and late V0
        ("0.10.2", 154, "older than 0.19"),
        ("0.18.1", 512, "older than 0.19"),
        ("0.24.0", 512, "newer than 0.19"),
        ("0.33.0", 512, "newer than 0.19"),
    ],
)
def test_another_has_both(version: str, mib: int, where: str) -> None:
    found = plan(version)
    band = found.budget.component("unvalidated_version")
    assert band is not None and (band.low, band.best, band.high) == (-mib * MIB, 0, mib * MIB)
    assert band.evidence == "assumed"
    assert len(said(found)) == 1 and where in said(found)[0] and f"vLLM {version} " in said(found)[0]
    # independent terms are added in quadrature
    spreads = [part.high - part.best for part in found.budget.inside]
    best = found.budget.requested_bytes - sum(part.best for part in found.budget.inside)
    assert abs(found.kv_cache_low_bytes - (best - math.hypot(*spreads))) <= 1


def test_several_gpus_have_the_spread_of_their_link() -> None:
    found = plan("0.24.0", tensor_parallel_size=2)
    band, link = (found.budget.component(name) for name in ("unvalidated_version", "non_torch"))
    assert band is not None and band.high == 512 * MIB
    assert link is not None and link.high - link.low > 0


def test_a_forced_runner_is_another_version() -> None:
    assert said(plan("0.10.2", model_runner="v0"))


def test_what_fits_by_less_than_the_band_is_tight() -> None:
    """One request of 1,024 tokens takes 128 MiB, a fraction of the band."""
    found = plan("0.24.0", max_model_len=1024)
    needed = found.pool.blocks_for(1024) * found.pool.bytes_per_block
    most = found.kv_cache_low_bytes // needed
    assert needed == 128 * MIB
    verdicts = [
        plan_serving(LLAMA, found.deployment, Workload(concurrency=count)).verdict for count in (most, most + 1)
    ]
    assert verdicts == ["fits", "tight"]


def test_measured_starts_lie_in_the_bands_more_often() -> None:
    """Of starts known in full, the bands of unvalidated versions hold more than those of their terms alone."""
    inside = alone = 0
    for case in bundled_vllm_cases():
        start = read_start(case)
        measured = case.measured.get("kv_cache_gib")
        if not isinstance(start, Start) or start.unknown or not isinstance(measured, int | float):
            continue
        try:
            budget = start.plan().budget
        except ValueError:
            continue
        band = budget.component("unvalidated_version")
        if band is not None:
            size = measured * (1 << 30)
            inside += budget.available("high") <= size <= budget.available("low")
            alone += budget.available("high") + band.high <= size <= budget.available("low") + band.low
    assert inside > alone > 0


@pytest.mark.parametrize(
    ("version", "runners"),
    [("0.7.3", ("v0", "v1")), ("0.10.2", ("v0", "v1")), ("0.19.0", ("v1",)), ("0.27.1", ("v1", "v2")),
     ("0.33.0", ("v1", "v2"))],
)  # fmt: skip
def test_every_runner_of_a_release_can_be_planned(version: str, runners: tuple[str, ...]) -> None:
    for runner in runners:
        assert plan(version, model_runner=runner).kv_cache_bytes > 40 * 1024 * MIB
    with pytest.raises(UsageError, match="runner"):
        plan(version, model_runner="v2" if "v2" not in runners else "v0")
