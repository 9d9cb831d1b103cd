"""`vram-planner plan`: the plan of a source is that of the same options given to `serve` or `train`."""

from __future__ import annotations

import io
import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.report.contracts.table import contract
from tests.cli.running import Run, run
from tests.launches.comparing import DATA, expectation, fixtures


@pytest.fixture
def plan(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    def call(*words: str) -> Run:
        return run(capsys, monkeypatch, "plan", *words)

    return call


def asked(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *words: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run(capsys, monkeypatch, *words, "--format", "json").out)
    return found


SERVED = [
    (
        "vllm serve openai-community/gpt2 --max-model-len 512 --gpu-memory-utilization 0.5",
        "--max-model-len 512 --gpu-memory-utilization 0.5",
    ),
    (
        "python -m vllm.entrypoints.openai.api_server --model=openai-community/gpt2 --max_num_seqs=16 -tp 2",
        "--max-num-seqs 16 -tp 2",
    ),
    ("nohup env CUDA_VISIBLE_DEVICES=0 vllm serve openai-community/gpt2 --enforce-eager &", "--enforce-eager"),
    (
        "sglang serve --model-path openai-community/gpt2 --mem-fraction-static 0.7",
        "--engine sglang --mem-fraction-static 0.7",
    ),
]


@pytest.mark.parametrize(("source", "words"), SERVED)
def test_server_is_planned_as_serve_plans_it(
    source: str, words: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = asked(capsys, monkeypatch, "serve", "openai-community/gpt2", "--gpu", "L4", *shlex.split(words))
    found = asked(capsys, monkeypatch, "plan", source, "--gpu", "L4")
    assert found["plans"][0]["result"] == expected


@settings(max_examples=15, deadline=None)
@given(
    length=st.integers(64, 1024),
    sequences=st.integers(1, 64),
    fraction=st.integers(30, 95),
    eager=st.booleans(),
    form=st.sampled_from(("command", "compose", "pod", "config", "script")),
)
def test_every_form_gives_the_plan_of_the_same_options(
    length: int, sequences: int, fraction: int, eager: bool, form: str
) -> None:
    from planner.launches.reading import read_launch
    from planner.launches.words import serve_words

    flags = [
        "--max-model-len",
        str(length),
        "--max-num-seqs",
        str(sequences),
        "--gpu-memory-utilization",
        str(fraction / 100),
    ]
    flags += ["--enforce-eager"] if eager else []
    texts = {
        "command": ("x.sh", f"vllm serve a/b {' '.join(flags)}"),
        "compose": (
            "x.yml",
            f"services:\n  s:\n    image: vllm/vllm-openai\n    command: --model a/b {' '.join(flags)}\n",
        ),
        "pod": (
            "x.yaml",
            "apiVersion: v1\nkind: Pod\nmetadata: {name: x}\nspec:\n  containers:\n  - name: v\n"
            f"    command: [vllm, serve, a/b]\n    args: {json.dumps(flags)}\n",
        ),
        "config": (
            "x.yaml",
            f"model: a/b\nmax-model-len: {length}\nmax-num-seqs: {sequences}\n"
            f"gpu-memory-utilization: {fraction / 100}\n" + ("enforce-eager: true\n" if eager else ""),
        ),
        "script": (
            "x.py",
            f"from vllm import LLM\nLLM('a/b', max_model_len={length}, max_num_seqs={sequences},"
            f" gpu_memory_utilization={fraction / 100}{', enforce_eager=True' if eager else ''})\n",
        ),
    }
    name, text = texts[form]
    [one] = read_launch(text, name=name).plans
    words = serve_words(one, {})
    expected = ["a/b", *flags]
    if form == "script":
        assert "--usage-context" in words
        words = [word for word in words if word not in ("--usage-context", "llm-class")]
    assert sorted(words) == sorted(expected)


def test_run_is_planned_as_train_plans_it(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    source = (
        "torchrun --nproc_per_node 2 run_clm.py --model_name_or_path openai-community/gpt2 --output_dir o --bf16 True"
        " --per-device-train-batch-size 2 --block_size 512 --optim adamw_torch_fused --gradient_checkpointing"
    )
    found = asked(capsys, monkeypatch, "plan", source, "--gpu", "L4")
    words = shlex.split(
        "train openai-community/gpt2 --gpu L4 --method full --num-gpus 2 --sharding ddp --autocast bf16"
        " --per-device-train-batch-size 2 --max-seq-length 512 --optim adamw_torch_fused --gradient-checkpointing"
    )
    assert found["plans"][0]["result"] == asked(capsys, monkeypatch, *words)


def test_without_a_card_the_verdict_is_unknown_and_says_what_does_not_depend_on_it(plan: Any) -> None:
    done = plan("vllm serve openai-community/gpt2 --dtype float16", "--engine-version", "0.19.0", "--format", "json")
    found = json.loads(done.out)
    assert done.status == 2 and found["verdict"] == "unknown"
    assert "--gpu" in found["plans"][0]["message"]
    # 12 layers of keys and values of 768 half-precision numbers; 124,439,808 parameters of two bytes, and buffers
    assert found["plans"][0]["needed"]["cache_per_token_bytes"] == 12 * 2 * 768 * 2
    assert 0 <= found["plans"][0]["needed"]["weights_bytes"] - 124_439_808 * 2 < 8 << 20


def test_card_of_the_source_is_used_and_replaced_by_gpu(plan: Any) -> None:
    pod = (
        "apiVersion: v1\nkind: Pod\nmetadata: {name: x}\nspec:\n  nodeSelector:"
        " {cloud.google.com/gke-accelerator: nvidia-l4}\n"
        "  containers:\n  -"
        " {name: v, command: [vllm, serve, openai-community/gpt2], resources: {limits: {nvidia.com/gpu: 1}}}\n"
    )
    stated = json.loads(plan(pod, "--format", "json").out)
    assert stated["plans"][0]["result"]["deployment"]["gpu"] == "NVIDIA L4"
    replaced = json.loads(plan(pod, "--gpu", "H100", "--format", "json").out)
    assert replaced["plans"][0]["result"]["deployment"]["gpu"] == "NVIDIA H100 80GB HBM3"


def test_templated_value_is_asked_for_and_settled(plan: Any) -> None:
    source = "vllm serve openai-community/gpt2 --max-model-len $LENGTH"
    asked_for = plan(source, "--gpu", "L4")
    assert asked_for.status == 2 and "--set LENGTH=VALUE" in " ".join(asked_for.out.split())
    settled = json.loads(plan(source, "--gpu", "L4", "--set", "LENGTH=256", "--format", "json").out)
    assert settled["plans"][0]["result"]["deployment"]["max_model_len"] == 256


def test_host_memory_below_what_loading_takes_is_exit_137_foretold(plan: Any) -> None:
    words = "deepspeed --num_gpus=2 run_clm.py --model_name_or_path=Qwen/Qwen2.5-7B --output_dir=o --block_size=1024"
    words += " --per_device_train_batch_size=1 --bf16=True --gradient_checkpointing --deepspeed"
    config = {"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}}}
    container = {
        "name": "t",
        "command": [*words.split(), json.dumps(config)],
        "resources": {"limits": {"memory": "16Gi", "nvidia.com/gpu": 2}},
    }
    spec = {"template": {"spec": {"containers": [container]}}}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": spec}
    done = plan(json.dumps(job, indent=1), "--gpu", "h100-sxm-80gb")
    # AdamW's two states and the master copy: 12 bytes for each of 7.6e9 parameters
    assert done.status == 1 and "137" in done.out


def test_two_servers_that_ask_for_more_than_one_card_do_not_fit(plan: Any) -> None:
    done = plan(str(DATA / "61-two-servers-one-card.yml"))
    assert done.status == 1 and "does not fit" in done.out


def test_engine_that_is_not_planned_is_read_whole_and_named(plan: Any) -> None:
    done = plan("text-generation-launcher --model-id Qwen/Qwen2.5-7B-Instruct", "--gpu", "L4")
    assert done.status == 2 and "tgi" in done.out and "not planned" in done.out and "Qwen2.5-7B" in done.out


def test_folder_is_read_file_by_file(plan: Any, tmp_path: Path) -> None:
    (tmp_path / "serve.sh").write_text("vllm serve openai-community/gpt2 --config c.yaml\n")
    (tmp_path / "c.yaml").write_text("model: ignored/here\nmax-model-len: 256\n")
    (tmp_path / "notes.txt").write_text("nothing")
    found = json.loads(plan(str(tmp_path), "--gpu", "L4", "--format", "json").out)
    assert [one["form"] for one in found["launch"]] == ["vllm-config", "shell"]
    assert found["launch"][1]["plans"][0]["inputs"]["max-model-len"]["value"] == 256


def test_standard_input_is_read(plan: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"vllm serve openai-community/gpt2\n")))
    assert plan("-", "--gpu", "L4").status == 0


@pytest.mark.parametrize("name", fixtures())
def test_exit_status_and_contract(name: str, plan: Any) -> None:
    expected = expectation(name)
    if any(one["kind"] == "train" for one in expected["plans"]):
        pytest.skip("the contract of training is held by its own cases")
    done = plan(str(DATA / expected["file"]), "--format", "json")
    contract("plan").model_validate_json(done.out)
    if expected["error"] is not None:
        assert done.status == expected["error"]["exit"]
        assert len(done.err.strip().split("\n")) == 1
    for secret in expected["never_print"]:
        assert secret not in done.out + done.err


@pytest.mark.parametrize("words", [(), ("nofile",), ("vllm serve a/b", "--set", "x"), ("vllm serve a/b", "--nonsense")])
def test_wrong_use_is_one_line_and_exit_2(words: tuple[str, ...], plan: Any) -> None:
    done = plan(*words)
    assert done.status == 2
    assert not words or len(done.err.strip().split("\n")) == 1
