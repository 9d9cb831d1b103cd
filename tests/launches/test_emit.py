"""Files to deploy a plan with: what is written is read back as the same plan."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from tests.cli.running import run

Capture = pytest.CaptureFixture[str]
Patch = pytest.MonkeyPatch
PLANNED = [
    ("Qwen/Qwen3-8B", "--gpu", "H100", "--max-model-len", "8192", "--engine-version", "0.19.0"),
    ("Qwen/Qwen3-8B", "--gpu", "L40S", "-tp", "2", "--enforce-eager", "--engine-version", "0.19.0"),
    ("Qwen/Qwen3-8B", "--gpu", "H100", "--engine", "sglang", "--context-length", "8192"),
]


@pytest.mark.parametrize("form", ["compose", "kubernetes", "command"])
@pytest.mark.parametrize("words", PLANNED, ids=["plain", "two cards", "sglang"])
def test_what_is_written_is_read_back(
    form: str, words: tuple[str, ...], tmp_path: Path, capsys: Capture, monkeypatch: Patch
) -> None:
    asked = json.loads(run(capsys, monkeypatch, "serve", *words, "--format", "json").out)
    text = run(capsys, monkeypatch, "serve", *words, "--emit", form).out
    path = tmp_path / ("launch.sh" if form == "command" else "launch.yaml")
    path.write_text(text)
    gpu = words[words.index("--gpu") + 1]
    version = ["--engine-version", asked["engine_version"]] if form == "command" else []
    again = json.loads(run(capsys, monkeypatch, "plan", str(path), "--gpu", gpu, *version, "--format", "json").out)
    result = again["plans"][0]["result"]
    assert result["devices"] == asked["devices"] and result["verdict"] == asked["verdict"]
    assert result["kv_cache"] == asked["kv_cache"]


def test_a_manifest_asks_for_what_the_plan_takes(capsys: Capture, monkeypatch: Patch) -> None:
    """Qwen3-8B: 8,190,735,360 weights x 2 B = 15.26 GiB, read through the page cache: 16, and 2 of shared memory."""
    text = run(
        capsys,
        monkeypatch,
        "serve",
        "Qwen/Qwen3-8B",
        "--gpu",
        "H100",
        "--emit",
        "kubernetes",
        "--engine-version",
        "0.19.0",
    ).out
    deployment, service = yaml.safe_load_all(text)
    container = deployment["spec"]["template"]["spec"]["containers"][0]
    assert container["resources"]["limits"] == {"nvidia.com/gpu": "1", "memory": "18Gi"}
    assert container["image"] == "vllm/vllm-openai:v0.19.0" and service["spec"]["ports"][0]["port"] == 8000


@pytest.mark.parametrize("words", [("-q", "awq"), ("--engine", "transformers")])
def test_what_has_no_name_or_image_is_refused(words: tuple[str, ...], capsys: Capture, monkeypatch: Patch) -> None:
    got = run(capsys, monkeypatch, "serve", "Qwen/Qwen3-8B", "--gpu", "H100", *words, "--emit", "compose")
    assert got.status == 2 and "--emit" in got.err and not got.out


def test_check_says_a_line_each_and_the_worst_decides(tmp_path: Path, capsys: Capture, monkeypatch: Patch) -> None:
    (tmp_path / "fits.sh").write_text("vllm serve Qwen/Qwen3-8B --max-model-len 8192\n")
    got = run(capsys, monkeypatch, "check", str(tmp_path), "--gpu", "H100")
    assert got.status == 0 and got.out.startswith("fits: ")
    (tmp_path / "large.sh").write_text("vllm serve meta-llama/Llama-3.3-70B-Instruct\n")
    got = run(capsys, monkeypatch, "check", str(tmp_path), "--gpu", "H100", "--format", "json")
    rows = json.loads(got.out)["rows"]
    assert got.status == 1 and sorted(row["verdict"] for row in rows) == ["does_not_fit", "fits"]
    (tmp_path / "large.sh").write_text("vllm serve $MODEL\n")
    assert run(capsys, monkeypatch, "check", str(tmp_path), "--gpu", "H100").status == 2
