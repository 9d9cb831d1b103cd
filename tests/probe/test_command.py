# ruff: noqa: E501 (lines of logs stand as they are printed)
"""The command: exit statuses, dry runs, records that validate scores, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.running import run
from tests.probe.tiny import write_config

torch = pytest.importorskip("torch")
Fixtures = tuple[pytest.CaptureFixture[str], pytest.MonkeyPatch]


@pytest.fixture
def fixtures(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Fixtures:
    return capsys, monkeypatch


def test_serve_and_train_records_round_trip_through_validate(fixtures: Fixtures, tmp_path: Path) -> None:
    model, cases = write_config(tmp_path, "llama"), tmp_path / "mine.jsonl"
    common = ("--device", "cpu", "--record", str(cases), "--format", "json")
    served = run(*fixtures, "probe", "serve", model, "--input-len", "64", "--output-len", "2", *common)
    trained = run(*fixtures, "probe", "train", model, "--method", "full", "--max-seq-length", "64", *common)
    cut = run(*fixtures, "probe", "serve", model, "--layers", "3", "--input-len", "64", *common)
    assert (served.status, trained.status, cut.status) == (0, 0, 0), served.err + trained.err + cut.err
    rows = [json.loads(line) for line in cases.read_text().splitlines()]
    assert [row["deployment"]["probe"] for row in rows] == ["serve", "train", "serve"]
    assert {"torch", "transformers"} <= set(rows[0]["deployment"]["versions"])
    assert rows[2]["deployment"]["num_hidden_layers"] == 3
    assert rows[0]["measured"]["weights_gib"] == pytest.approx(rows[2]["inferred"]["weights_gib"])

    scored = run(*fixtures, "validate", "--cases", str(cases), "--format", "json")
    assert scored.status == 0, scored.err
    found = {row["component"]: row for row in json.loads(scored.out)["rows"]}
    assert found["weights"]["n"] == 3 and found["weights"]["worst_percent"] == 0
    assert found["kv_cache"]["n"] == 2 and found["kv_cache"]["worst_percent"] == 0
    assert found["optimizer"]["n"] == 1 and found["optimizer"]["worst_percent"] == 0
    shown = {row["figure"]: row["error"] for row in json.loads(trained.out)["rows"]}
    # one case: validate says of it what the probe said
    assert found["saved_activations"]["worst_percent"] == pytest.approx(100 * shown["saved_activations"], abs=0.01)


def test_adapters_are_made_without_warnings(
    fixtures: Fixtures, tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    """PEFT asks transformers for a property by its old name, of which a reader can change nothing."""
    model = write_config(tmp_path, "llama")
    trained = run(*fixtures, "probe", "train", model, "--method", "lora", "--max-seq-length", "64", "--device", "cpu")
    assert trained.status == 0, trained.err
    assert [str(w.message) for w in recwarn if issubclass(w.category, FutureWarning)] == []


def test_outside_the_tolerance_is_status_1(fixtures: Fixtures, tmp_path: Path) -> None:
    model = write_config(tmp_path, "llama")
    found = run(
        *fixtures, "probe", "train", model, "--device", "cpu", "--max-seq-length", "64", "--tolerance", "0.0001"
    )
    assert found.status == 1 and found.out.startswith("not within 0%")


@pytest.mark.parametrize("format", ("table", "json", "csv", "markdown"))
def test_a_dry_run_measures_nothing(fixtures: Fixtures, format: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("planner.probe.session.meter_for", None)
    wanted = ("--layers", "4", "--dry-run", "--format", format)
    found = run(*fixtures, "probe", "serve", "meta-llama/Llama-3.1-8B-Instruct", *wanted)
    assert found.status == 0, found.err
    if format == "json":
        rows = json.loads(found.out)["planned"]
        # 8,030,261,248 parameters in bf16, as published
        assert rows[-1]["layers"] == 32 and rows[-1]["weights"] == 2 * 8_030_261_248
        assert json.loads(found.out)["runs_at_layers"] == [2, 4]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("serve", "{model}", "--device", "tpu"), "--device"),
        (("serve", "{model}", "--input-len", "0"), "--input-len"),
        (("serve", "{model}", "--dtype", "int8"), "--dtype"),
        (("serve", "{model}", "--layers", "9"), "1 to 4"),
        (("train", "{model}", "--method", "galore"), "plain loop"),
        (("train", "{model}", "--optim", "lomo"), "--optim"),
        (("engine", "{model}"), "--log"),
        (("engine", "{model}", "--url", "http://example.com", "--gpu", "H100"), "localhost"),
        (("serve", "meta-llama/Llama-3.1-405B-Instruct",), "short"),
        (("serve", "nothing-like-this",), "neither"),
    ],
)  # fmt: skip
def test_what_cannot_run_is_one_line_and_status_2(
    fixtures: Fixtures, tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    model = write_config(tmp_path, "llama")
    found = run(*fixtures, "probe", *(word.format(model=model) for word in arguments))
    assert found.status == 2 and message in found.err and found.err.count("\n") == 1


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is an accelerator")
def test_no_accelerator(fixtures: Fixtures, tmp_path: Path) -> None:
    found = run(*fixtures, "probe", "serve", write_config(tmp_path, "llama"), "--device", "cuda")
    assert found.status == 2 and "--device cpu" in found.err


def test_the_machine_itself(fixtures: Fixtures) -> None:
    found = run(*fixtures, "probe", "card", "--device", "cpu", "--format", "json")
    assert found.status == 0
    assert json.loads(found.out)["device"]["total_bytes"] > 1 << 30


def test_without_the_extra(fixtures: Fixtures, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> object:
        raise ModuleNotFoundError(name=name)

    monkeypatch.setattr("planner.probe.extras.import_module", missing)
    found = run(*fixtures, "probe", "serve", write_config(tmp_path, "llama"), "--device", "cpu")
    assert found.status == 2 and "pip install 'vram-planner[probe]'" in found.err


# A start-up log as vLLM 0.19 prints it; the cache's tokens follow from its size: 128 KiB a token.
# 59.7 GiB / (16 x 131,072 B) = 30,566 blocks = 489,056 tokens; / 8,192 = 59.70
LOG = """\
INFO 10-02 12:00:01 [api_server.py:1896] vLLM API server version 0.19.0
INFO 10-02 12:00:01 [utils.py:326] non-default args: {'model': 'meta-llama/Llama-3.1-8B-Instruct', 'max_model_len': 8192}
(EngineCore_DP0 pid=7) INFO 10-02 12:01:10 [gpu_worker.py:298] Available KV cache memory: 59.7 GiB
(EngineCore_DP0 pid=7) INFO 10-02 12:01:11 [kv_cache_utils.py:1087] GPU KV cache size: 489,056 tokens
(EngineCore_DP0 pid=7) INFO 10-02 12:01:11 [kv_cache_utils.py:1091] Maximum concurrency for 8,192 tokens per request: 59.70x
"""


def test_the_log_of_an_engine(fixtures: Fixtures, tmp_path: Path) -> None:
    log = tmp_path / "vllm.log"
    log.write_text(LOG)
    model = "meta-llama/Llama-3.1-8B-Instruct"
    found = run(
        *fixtures,
        "probe",
        "engine",
        model,
        "--log",
        str(log),
        "--gpu",
        "H100",
        "--tolerance",
        "0.15",
        "--format",
        "json",
    )
    assert found.status == 0, found.err + found.out
    rows = {row["figure"]: row for row in json.loads(found.out)["rows"]}
    assert rows["tokens"]["planned"] == rows["tokens"]["measured"] == 489_056


def test_the_metrics_of_an_engine(fixtures: Fixtures, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pool of 1,000 blocks is not what an H100 has: the difference is shown, and the status is 1."""
    from planner.probe.metrics import parse_metrics

    info = parse_metrics('vllm:cache_config_info{num_gpu_blocks="1000",block_size="16",cache_dtype="auto"} 1.0')
    monkeypatch.setattr("planner.probe.metrics.read_metrics", lambda _: info)
    model = "meta-llama/Llama-3.1-8B-Instruct"
    arguments = ("--url", "http://localhost:8000", "--gpu", "H100", "--max-model-len", "8192", "--format", "json")
    found = run(*fixtures, "probe", "engine", model, *arguments)
    assert found.status == 1, found.err
    rows = {row["figure"]: row for row in json.loads(found.out)["rows"]}
    assert rows["blocks"]["measured"] == 1_000 and rows["tokens"]["measured"] == 16_000
    assert rows["blocks"]["planned"] > 20_000
