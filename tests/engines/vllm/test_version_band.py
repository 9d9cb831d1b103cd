"""A version that no measured start covers says so, and leaves its cache a wider band."""

from __future__ import annotations

import math

import pytest

from planner import Deployment, find_gpu, load_model, plan_serving
from planner.contract.workload import Workload
from planner.engines.vllm.plan import VllmPlan
from planner.errors import UsageError
from planner.units import MIB
from planner.validation.cases import bundled_vllm_cases
from planner.validation.starts import Start, read_start

LLAMA = load_model("meta-llama/Llama-3.1-8B-Instruct")


def plan(version: str, concurrency: int = 1, **more: object) -> VllmPlan:
    options = {"gpu": find_gpu("H100"), "max_model_len": 8192, "engine_version": version} | more
    return plan_serving(LLAMA, Deployment(**options), Workload(concurrency=concurrency))  # type: ignore[arg-type]


def said(found: VllmPlan) -> list[str]:
    return [note for note in found.notes if "not validated" in note]


@pytest.mark.parametrize("version", ["0.19.0", "0.19", "v0.19.1"])
def test_a_validated_version_has_neither(version: str) -> None:
    found = plan(version)
    assert said(found) == [] and found.budget.component("unvalidated_version") is None


@pytest.mark.parametrize(
    ("version", "mib", "where"),
    [
        # half a GiB for 0.17 to 0.30, 0.15 for 0.9 to 0.16 and late V0, one GiB from 0.31 on
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
    # independent spreads meet in quadrature: the low end of the cache lies by their root below the best
    best = sum(part.best for part in found.budget.inside)
    spreads = [part.high - part.best for part in found.budget.inside]
    assert mib * MIB in spreads
    root = math.sqrt(sum(spread**2 for spread in spreads))
    assert found.kv_cache_low_bytes == pytest.approx(found.budget.requested_bytes - best - root, abs=1)


def test_what_several_gpus_leave_open_is_in_the_rows_of_their_link() -> None:
    band = plan("0.24.0", tensor_parallel_size=2).budget.component("unvalidated_version")
    assert band is not None and band.high == 512 * MIB


def test_a_forced_runner_is_another_version() -> None:
    assert said(plan("0.10.2", model_runner="v0"))


def test_what_fits_by_less_than_the_band_is_tight() -> None:
    """Requests of half a GiB: 56.16 GiB at the low end holds 112, 56.69 at best estimates 113.

    Without the band the low end were 56.69 - sqrt(189.2^2 + 21^2) MiB = 56.51 GiB, and 113 would fit.
    """
    found = plan("0.24.0", max_model_len=4096)
    assert found.pool.blocks_for(4096) * found.pool.bytes_per_block == 512 * MIB
    spreads = {part.name: part.high - part.best for part in found.budget.inside if part.high > part.best}
    band = spreads.pop("unvalidated_version")
    assert band == 512 * MIB
    without = found.kv_cache_bytes - math.hypot(*spreads.values())
    assert found.kv_cache_low_bytes // (512 * MIB) == 112 and without // (512 * MIB) == 113
    assert plan("0.24.0", max_model_len=4096, concurrency=112).verdict == "fits"
    assert plan("0.24.0", max_model_len=4096, concurrency=113).verdict == "tight"


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
    [
        ("0.7.3", ("v0", "v1")),
        ("0.10.2", ("v0", "v1")),
        ("0.19.0", ("v1",)),
        ("0.27.1", ("v1", "v2")),
        ("0.33.0", ("v1", "v2")),
    ],
)
def test_every_runner_of_a_release_can_be_planned(version: str, runners: tuple[str, ...]) -> None:
    for runner in runners:
        assert plan(version, model_runner=runner).kv_cache_bytes > 40 * 1024 * MIB
    with pytest.raises(UsageError, match="runner"):
        plan(version, model_runner="v2" if "v2" not in runners else "v0")
