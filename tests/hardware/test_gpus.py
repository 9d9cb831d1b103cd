"""The table of cards and the lookup by name. Expected sizes are the table's readings, written out by hand."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.errors import UnknownGpu
from planner.hardware.gpus import Gpu, find_gpu, load_gpus, unnamed_gpu
from planner.units import GIB, MIB

IDS = [gpu.id for gpu in load_gpus()]


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("4090", "rtx-4090"),
        ("RTX 4090", "rtx-4090"),
        ("rtx-4090", "rtx-4090"),
        ("rtx4090", "rtx-4090"),
        ("GeForce RTX 4090 24GB", "rtx-4090"),
        ("NVIDIA GeForce RTX 4090", "rtx-4090"),
        ("4090 laptop", "rtx-4090-laptop"),
        ("4090D", "rtx-4090d"),
        ("GeForce RTX 3090", "rtx-3090"),
        ("3090 24 GB", "rtx-3090"),
        ("RTX3080Ti", "rtx-3080-ti"),
        ("4070 ti super", "rtx-4070-ti-super"),
        ("4080", "rtx-4080"),
        ("4080 super", "rtx-4080-super"),
        ("4060ti 16gb", "rtx-4060-ti-16gb"),
        ("H100", "h100-sxm-80gb"),
        ("h100 sxm5", "h100-sxm-80gb"),
        ("H100-80GB", "h100-sxm-80gb"),
        ("NVIDIA H100 80GB HBM3", "h100-sxm-80gb"),
        ("NVIDIA H100 PCIe", "h100-pcie-80gb"),
        ("H100 NVL", "h100-nvl-94gb"),
        ("H100 94GB", "h100-nvl-94gb"),
        ("a100 80gb", "a100-sxm-80gb"),
        ("A100 40G", "a100-sxm-40gb"),
        ("A100-SXM4-80GB", "a100-sxm-80gb"),
        ("NVIDIA A100 80GB PCIe", "a100-pcie-80gb"),
        ("v100-32g", "v100-sxm2-32gb"),
        ("mi300x", "mi300x"),
        ("AMD Instinct MI300X", "mi300x"),
        ("L40S", "l40s"),
        ("Tesla T4", "t4"),
        ("RTX 6000 Ada", "rtx-6000-ada"),
        ("rtx a6000", "rtx-a6000"),
        ("NVIDIA RTX A2000", "rtx-a2000-6gb"),  # what the driver calls the 6 GB card; the other one says 12GB
        ("rtx pro 6000", "rtx-pro-6000-workstation"),
        ("titan rtx", "titan-rtx"),
        ("dgx spark", "gb10-dgx-spark"),
        ("strix halo", "strix-halo-8060s"),
        ("M3 Max 64GB", "apple-m3-max-64gb"),
        ("7900xtx", "rx-7900-xtx"),
        ("intel arc a770", "arc-a770-16gb"),
    ],
)
def test_what_people_type_finds_the_card(typed: str, expected: str) -> None:
    assert find_gpu(typed).id == expected


@pytest.mark.parametrize(
    ("typed", "choices"),
    [
        ("a100", ["'a100 40gb' (39.49 GiB)", "'a100 80gb' (79.25 GiB)"]),
        ("NVIDIA V100", ["'nvidia v100 16gb' (15.77 GiB)", "'nvidia v100 32gb' (31.74 GiB)"]),
        ("3080", ["'3080 10gb' (9.61 GiB)", "'3080 12gb' (11.83 GiB)"]),
        ("4060 ti", ["'4060 ti 8gb' (7.62 GiB)", "'4060 ti 16gb' (15.70 GiB)"]),
        ("5060ti", ["'5060ti 8gb' (7.57 GiB)", "'5060ti 16gb' (15.48 GiB)"]),
        ("a100 sxm", ["'a100 sxm 40gb' (39.49 GiB)", "'a100 sxm 80gb' (79.25 GiB)"]),
        ("gh200", ["'gh200 96gb' (94.50 GiB)", "'gh200 144gb' (144 GB)"]),
        ("rtx 6000", ["'quadro-rtx-6000' (23.47 GiB)", "'rtx-6000-ada' (47.50 GiB)"]),
        ("m1", ["'m1 8gb' (5.33 GiB)", "'m1 16gb' (10.67 GiB)"]),
    ],
)
def test_a_name_whose_cards_differ_in_memory_is_refused_with_what_to_type(typed: str, choices: list[str]) -> None:
    with pytest.raises(UnknownGpu) as refusal:
        find_gpu(typed)
    for choice in choices:
        assert choice in str(refusal.value)
        assert find_gpu(choice.split("'")[1]) is not None


@pytest.mark.parametrize(
    ("typed", "hint"),
    [
        ("4091", "nearest: 4090"),
        ("B200 192gb", "b200 (180 GB)"),
        ("2x RTX 3090", "--tensor-parallel-size"),
        ("super", "vram-planner gpus"),
        ("", "vram-planner gpus"),
        ("rtx", "vram-planner gpus"),
        ("80gb", "vram-planner gpus"),
        ("x" * 10_000, "vram-planner gpus"),
    ],
)
def test_an_unknown_name_is_refused_with_a_way_on(typed: str, hint: str) -> None:
    with pytest.raises(UnknownGpu) as refusal:
        find_gpu(typed)
    assert hint in str(refusal.value)
    assert "\n" not in str(refusal.value)
    assert len(str(refusal.value)) < 400


# Names that more than one card of different memory has; every other alias and id of the table means its own card.
AMBIGUOUS_ALIASES = {
    "2060", "rtx2060", "3050", "rtx3050", "a2000", "a100 sxm", "v100 sxm", "pro 5000", "agx orin",
}  # fmt: skip


@pytest.mark.parametrize("gpu", load_gpus(), ids=IDS)
def test_ids_and_aliases_mean_their_own_card(gpu: Gpu) -> None:
    assert find_gpu(gpu.id) == gpu
    for alias in gpu.aliases:
        if alias in AMBIGUOUS_ALIASES:
            with pytest.raises(UnknownGpu, match="differ in memory"):
                find_gpu(alias)
        else:
            assert find_gpu(alias).id == gpu.id


@pytest.mark.parametrize("gpu", load_gpus(), ids=IDS)
def test_the_drivers_name_and_memory_together_mean_one_card(gpu: Gpu) -> None:
    if gpu.reported_memory_bytes is None or gpu.name == "Orin":
        return
    found = find_gpu(gpu.name, memory_bytes=gpu.reported_memory_bytes)
    assert found.total_memory_bytes == gpu.reported_memory_bytes
    assert found.name == gpu.name


def test_cards_of_one_memory_size_with_different_totals_are_noted() -> None:
    assert find_gpu("H100").notes == ()
    (note,) = find_gpu("a800").notes
    assert "A800-SXM4-80GB reports 79.25 GiB" in note


def test_h100_is_the_sxm_card_with_what_its_driver_reports() -> None:
    gpu = find_gpu("H100")
    # 79.19 GiB × 2^30, rounded
    assert gpu.total_memory_bytes == 85_029_615_043
    assert (gpu.min_memory_bytes, gpu.max_memory_bytes) == (round(79.10 * GIB), round(79.25 * GIB))
    assert gpu.nvidia_smi_bytes == 81_559 * MIB
    assert gpu.capability == (9, 0)
    assert gpu.sm_count == 132
    assert gpu.bandwidth_bytes_per_second == 3_350_000_000_000
    assert gpu.dense_ops("bf16") == 989 * 10**12
    assert gpu.dense_ops("fp8") == 1979 * 10**12
    assert gpu.dense_ops("fp4") is None
    assert gpu.evidence == "measured"
    assert (gpu.supports_bf16, gpu.supports_fp8, gpu.supports_fp4) == (True, True, False)


def test_totals_by_rule_or_from_memory_are_assumed() -> None:
    by_rule = find_gpu("4070 super")
    assert "torch typical by rule" in by_rule.sources
    assert by_rule.evidence == "assumed"
    assert by_rule.min_memory_bytes == by_rule.total_memory_bytes - 110 * MIB
    assert by_rule.max_memory_bytes == by_rule.total_memory_bytes + 250 * MIB
    assert find_gpu("3080 ti").evidence == "assumed"  # nvidia_smi_mib: recall
    assert find_gpu("p40").evidence == "measured"  # only its int8 rate is recalled


@pytest.mark.parametrize("gpu", load_gpus(), ids=IDS)
def test_every_row_is_sound(gpu: Gpu) -> None:
    assert gpu.sources
    assert gpu.confidence in ("high", "medium", "low")
    if gpu.reported_memory_bytes is None:
        with pytest.raises(UnknownGpu, match="--gpu-memory"):
            _ = gpu.total_memory_bytes
        return
    assert gpu.min_memory_bytes is not None
    assert gpu.max_memory_bytes is not None
    assert gpu.min_memory_bytes <= gpu.reported_memory_bytes <= gpu.max_memory_bytes
    memory_recalled = "torch typical by rule" in gpu.sources or "nvidia_smi_mib: recall" in gpu.sources
    assert gpu.evidence == ("assumed" if memory_recalled or gpu.vendor == "Apple" else "measured")
    if gpu.marketing_gb is not None and gpu.vendor != "Apple":
        assert 0.9 * gpu.marketing_gb * 10**9 < gpu.reported_memory_bytes < 1.075 * gpu.marketing_gb * 10**9
    if gpu.nvidia_smi_bytes is not None:
        # CUDA total = nvidia-smi total - reserve; reserves seen run from 81 MiB (GTX 1060) to 1103 MiB (GH200)
        assert 80 * MIB <= gpu.nvidia_smi_bytes - gpu.reported_memory_bytes <= 1104 * MIB


def test_ids_are_unique_and_every_card_is_there() -> None:
    assert len(set(IDS)) == len(IDS)
    assert len({gpu.id for gpu in load_gpus() if gpu.vendor != "Apple"}) == 155


def test_given_memory_settles_a_shared_name_and_replaces_the_table() -> None:
    gpu = find_gpu("a100", memory_bytes=84_000_000_000)
    assert gpu.id == "a100-sxm-80gb"
    assert gpu.total_memory_bytes == 84_000_000_000
    assert gpu.evidence == "exact"
    assert find_gpu("strix halo", memory_bytes=64 * GIB).total_memory_bytes == 64 * GIB
    with pytest.raises(UnknownGpu):
        find_gpu("no such card", memory_bytes=GIB)
    assert unnamed_gpu(24 * GIB).total_memory_bytes == 24 * GIB


def test_apple_chips_get_the_share_that_macos_allows() -> None:
    gpu = find_gpu("m4 max 128gb")
    assert gpu.total_memory_bytes == 98_304 * MIB  # 3/4 of 128 GiB
    assert gpu.max_memory_bytes == 110_100 * MIB  # one log of a newer macOS
    assert gpu.unified_memory
    assert gpu.evidence == "assumed"
    assert find_gpu("m2 24gb").total_memory_bytes == 16_384 * MIB  # 2/3


@given(st.text(max_size=40))
def test_any_text_is_a_card_or_unknown(text: str) -> None:
    try:
        assert isinstance(find_gpu(text), Gpu)
    except UnknownGpu as refusal:
        assert "\n" not in str(refusal)


NAME_PARTS = st.sampled_from(
    """nvidia rtx 4090 3080 a100 h100 v100 ti super laptop 16gb 80gb sxm pcie
    max pro ada m3 quadro 6000 orin x 2x""".split()  # noqa: SIM905
)


@given(st.lists(NAME_PARTS, max_size=5), st.none() | st.integers(1, 1 << 40))
def test_any_mix_of_familiar_words_is_a_card_or_unknown(parts: list[str], memory_bytes: int | None) -> None:
    try:
        gpu = find_gpu(" ".join(parts), memory_bytes=memory_bytes)
    except UnknownGpu:
        return
    if memory_bytes is not None:
        assert gpu.total_memory_bytes == memory_bytes


@given(st.sampled_from(load_gpus()), st.sampled_from(["-", " ", "_", "  "]), st.booleans())
def test_spelling_does_not_matter(gpu: Gpu, separator: str, upper: bool) -> None:
    typed = gpu.id.replace("-", separator)
    try:
        found = find_gpu(typed.upper() if upper else typed)
    except UnknownGpu as error:
        # "rtx 2060" was sold with 6 and with 12 GB: the name alone is refused whatever its spelling
        assert "differ in memory" in str(error)
    else:
        assert found.id == gpu.id


def test_finding_a_card_is_quick() -> None:
    find_gpu("4090")
    start = time.perf_counter()
    for _ in range(20):
        find_gpu("H100")
    assert (time.perf_counter() - start) / 20 < 0.005
