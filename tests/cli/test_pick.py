"""Pick: rows are plans that serve repeats, none with fewer cards is missing; cards and prices as people write them."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from planner.errors import PlannerError
from planner.hardware.gpus import find_gpu
from planner.hardware.spelled import cards_of_listing, parse_cards, parse_equal_cards
from planner.memory.quality.evidence import bands, has_evidence, rows_of, size_class
from planner.serving.prices import listed_prices, stated_prices
from tests.cli.running import run

Capture = pytest.CaptureFixture[str]
Patch = pytest.MonkeyPatch


def test_rows_are_plans_that_serve_repeats(capsys: Capture, monkeypatch: Patch) -> None:
    owned = "4090,2x3090,H100"
    got = run(capsys, monkeypatch, "pick", "Qwen/Qwen3-8B", "--owned", owned, "--concurrency", "2", "--format", "json")
    rows = json.loads(got.out)["rows"]
    assert got.status == 0 and {row["gpu_id"] for row in rows} == {"rtx-4090", "rtx-3090", "h100-sxm-80gb"}
    for row in rows:
        words = shlex.split(row["command"])
        again = run(
            capsys, monkeypatch, "serve", *words, "--gpu", row["gpu_id"], "--concurrency", "2", "--format", "json"
        )
        result = json.loads(again.out)
        assert result["verdict"] == row["verdict"]
        assert result["kv_cache"]["max_model_len_that_fits"] == row["max_model_len_that_fits"]
        assert sum(device["count"] for device in result["devices"] if device["kind"] == "gpu") == row["gpus"]


def test_no_card_that_holds_it_in_fewer_is_missing(capsys: Capture, monkeypatch: Patch) -> None:
    """Qwen3-32B in 16 bit on L40S, by trying each number of cards."""
    words = ("Qwen/Qwen3-32B", "--max-model-len", "8192")
    got = run(capsys, monkeypatch, "pick", *words, "--owned", "8xL40S", "--formats", "none", "--format", "json")
    picked = json.loads(got.out)["rows"][0]["gpus"]
    fewest = next(
        ways
        for ways in (1, 2, 4, 8)
        if run(capsys, monkeypatch, "serve", *words, "--gpu", "L40S", "-tp", str(ways)).status == 0
    )
    assert picked <= fewest


def test_models_for_a_card(capsys: Capture, monkeypatch: Patch) -> None:
    got = run(
        capsys, monkeypatch, "pick", "--gpu", "T4", "--family", "qwen2", "--min-parameters", "5B", "--format", "json"
    )
    rows = json.loads(got.out)["rows"]
    sizes = [row["parameters"] for row in rows]
    assert got.status == 0 and sizes == sorted(sizes, reverse=True) and min(sizes) >= 5_000_000_000
    assert all(row["gpus"] == 1 and row["verdict"] in ("fits", "tight") for row in rows)


def test_a_fine_tune(capsys: Capture, monkeypatch: Patch) -> None:
    words = ("Qwen/Qwen3-8B", "--method", "qlora", "--gradient-checkpointing")
    got = run(capsys, monkeypatch, "pick", *words, "--train", "--owned", "4090,T4", "--format", "json")
    rows = json.loads(got.out)["rows"]
    assert got.status == 0
    for row in rows:
        extra = ("--num-gpus", str(row["gpus"]), "--sharding", row["sharding"]) if row["gpus"] > 1 else ()
        again = run(capsys, monkeypatch, "train", *words, "--gpu", row["gpu_id"], *extra, "--format", "json")
        assert json.loads(again.out)["verdict"] == row["verdict"]


@pytest.mark.parametrize(
    ("text", "count", "card"),
    [
        ("2x3090", 2, "rtx-3090"),
        ("8xH100", 8, "h100-sxm-80gb"),
        ("p5.48xlarge", 8, "h100-sxm-80gb"),
        ("Standard_ND96isr_H100_v5", 8, "h100-sxm-80gb"),
        ("a2-highgpu-8g", 8, "a100-sxm-40gb"),
        ("2 x g6e.12xlarge", 8, "l40s"),
        ("H100 1g.10gb", 1, "h100-sxm-80gb-1g.10gb"),
    ],
)
def test_cards_as_people_write_them(text: str, count: int, card: str) -> None:
    found = parse_equal_cards(text)
    assert (found.count, found.gpu.id) == (count, card)


def test_unequal_cards_are_named() -> None:
    assert [one.gpu.id for one in parse_cards("4090,L40S")] == ["rtx-4090", "l40s"]
    with pytest.raises(PlannerError, match="unequal cards"):
        parse_equal_cards("4090,L40S")
    for text in ("", "0x3090", "99999x3090", "4090 1g.10gb extra", ",".join(["4090"] * 99)):
        with pytest.raises(PlannerError):
            parse_cards(text)


def test_a_mig_instance_has_its_share() -> None:
    whole, part = find_gpu("H100"), parse_equal_cards("H100 3g.40gb").gpu
    assert part.total_memory_bytes == 40 << 30
    assert part.sm_count == whole.sm_count * 3 // 7  # type: ignore[operator]


def test_a_pasted_listing() -> None:
    table = "|   0  NVIDIA GeForce RTX 3090     On  | 00000000:01:00.0 Off |\n" * 2
    assert [(one.gpu.id, one.count) for one in cards_of_listing(table)] == [("rtx-3090", 2)]
    query = "0, NVIDIA L4, 550.54, 23034 MiB\n"
    assert cards_of_listing(query)[0].gpu.id == "l4"


def test_prices(tmp_path: Path, capsys: Capture, monkeypatch: Patch) -> None:
    path = tmp_path / "prices.csv"
    path.write_text(
        "card,provider,usd_per_hour,date,gpus\nh100,Cheap,16,2026-11-30,8\nh100,Dear,3,2026-11-30,1\n"
        "l40s,Old,1,2020-01-01,1\n"
    )
    found = listed_prices(str(path))
    assert found["h100-sxm-80gb"].usd_per_hour == 2.0 and found["l40s"].old
    got = run(
        capsys,
        monkeypatch,
        "pick",
        "Qwen/Qwen3-8B",
        "--owned",
        "H100,L40S",
        "--prices",
        str(path),
        "--price",
        "4090=0.3",
        "--wide",
    )
    assert "(Cheap 2026-11-30)" in got.out and "older than 90 days" in got.out
    assert "the price of rtx-4090 is used by no row" in got.out
    path.write_text("card,provider,usd_per_hour,date\nh100,A,much,2026-11-30\n")
    with pytest.raises(PlannerError, match="line 2"):
        listed_prices(str(path))
    with pytest.raises(PlannerError):
        stated_prices(["h100=lots"])


def test_quality_is_the_rows_and_nothing_between() -> None:
    """AWQ at 3 to 14 B: min and max are those of the published rows; a format without rows has no band."""
    rows = rows_of("awq", "weights", 8_000_000_000)
    tasks = [row.change for row in rows if row.metric.startswith("MMLU") and row.change is not None]
    found = {band.metric: band for band in bands(rows)}
    assert has_evidence("awq", "weights", 8_000_000_000)
    assert found["knowledge"].least <= min(tasks) and found["knowledge"].most >= max(tasks)
    assert bands(rows_of("hqq", "weights", 500_000_000_000)) == ()
    assert [size_class(size * 10**9) for size in (1, 8, 32, 70)] == ["<3B", "3-14B", "15-40B", ">40B"]


@pytest.mark.parametrize("words", [(), ("Qwen/Qwen3-8B", "--gpu", "4090"), ("--gpu", "4090,L40S"), ("--max-gpus", "0")])
def test_wrong_questions(words: tuple[str, ...], capsys: Capture, monkeypatch: Patch) -> None:
    got = run(capsys, monkeypatch, "pick", *words)
    assert got.status in ((0, 2) if not words else (2,)) and (not words or len(got.err.splitlines()) == 1)
