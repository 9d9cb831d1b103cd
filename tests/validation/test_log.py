# ruff: noqa: E501 (lines of logs stand as they are printed)
"""The start-up log reader: every line format that vLLM prints about memory, old and new, and every refusal."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from planner.engines.vllm.log.start_log import read_log
from planner.errors import NotRecognised, SourceError
from planner.validation.cases import Case
from planner.validation.logged import lines_of, read_start_log
from planner.validation.starts import Start, read_start
from tests.cli.running import run


def case_of(lines: list[str]) -> Case:
    """The case that a log's own words make."""
    start = read_log(lines)
    return Case(
        id="x",
        source="",
        model="",
        config=str(start.stated.get("model", "Qwen/Qwen3-8B")),
        quality="A",
        deployment=start.stated,
        measured=start.measured,
    )


V1_TP2 = """\
INFO 10-02 12:00:01 [api_server.py:1896] vLLM API server version 0.19.0
INFO 10-02 12:00:01 [utils.py:326] non-default args: {'model_tag': 'meta-llama/Llama-3.1-8B-Instruct', 'model': \
'meta-llama/Llama-3.1-8B-Instruct', 'max_model_len': 8192, 'tensor_parallel_size': 2, 'limit_mm_per_prompt': {}}
(EngineCore_DP0 pid=7) INFO 10-02 12:00:20 [core.py:77] Initializing a V1 LLM engine (v0.19.0) with config: \
model='meta-llama/Llama-3.1-8B-Instruct', speculative_config=None, dtype=torch.bfloat16, max_seq_len=8192, \
tensor_parallel_size=2, quantization=None, enforce_eager=False, kv_cache_dtype=auto, device_config=cuda
\x1b[1;36m(Worker_TP0 pid=11)\x1b[0;0m INFO 10-02 12:00:40 [gpu_model_runner.py:3600] Model loading took 7.51 GiB memory \
and 3.2 seconds
[1;36m(Worker_TP1 pid=12)[0;0m INFO 10-02 12:00:40 [gpu_model_runner.py:3600] Model loading took 7.52 GiB memory and 3 s
(Worker_TP0 pid=11) INFO 10-02 12:01:00 [gpu_worker.py:1] Overriding num_gpu_blocks=0 with num_gpu_blocks_override=512
(Worker_TP0 pid=11) INFO 10-02 12:01:10 [gpu_worker.py:298] Available KV cache memory: 59.71 GiB
(Worker_TP1 pid=12) INFO 10-02 12:01:10 [gpu_worker.py:298] Available KV cache memory: 59.7 GiB
(EngineCore_DP0 pid=7) INFO 10-02 12:01:11 [kv_cache_utils.py:1087] GPU KV cache size: 978,128 tokens
(EngineCore_DP0 pid=7) INFO 10-02 12:01:11 [kv_cache_utils.py:1091] Maximum concurrency for 8,192 tokens per request: 119.40x
(Worker_TP0 pid=11) INFO 10-02 12:01:30 [gpu_model_runner.py:3480] Graph capturing finished in 12 secs, took 0.85 GiB
"""

V0 = """\
INFO 02-12 10:00:00 llm_engine.py:234] Initializing a V0 LLM engine (v0.7.2) with config: model='facebook/opt-125m', \
speculative_config=None, tokenizer='facebook/opt-125m', dtype=torch.float16, max_seq_len=2048, tensor_parallel_size=1, \
quantization=None, enforce_eager=True, kv_cache_dtype=auto, enable_prefix_caching=False, chunked_prefill_enabled=False
INFO 02-12 10:00:09 model_runner.py:1115] Loading model weights took 0.2389 GB
INFO 02-12 10:00:10 worker.py:267] Memory profiling takes 0.63 seconds
INFO 02-12 10:00:10 worker.py:267] the current vLLM instance can use total_gpu_memory (14.74GiB) x gpu_memory_utilization \
(0.90) = 13.27GiB
INFO 02-12 10:00:10 worker.py:267] model weights take 0.24GiB; non_torch_memory takes 0.05GiB; PyTorch activation peak \
memory takes 0.47GiB; the rest of the memory reserved for KV Cache is 12.51GiB.
INFO 02-12 10:00:10 executor_base.py:111] # CUDA blocks: 22774, # CPU blocks: 7281
INFO 02-12 10:00:10 executor_base.py:116] Maximum concurrency for 2048 tokens per request: 177.92x
"""


def test_v1_of_two_ranks() -> None:
    log = read_log(V1_TP2.splitlines())
    assert log.version == "0.19.0"
    assert log.ranks == 2
    assert log.by_rank["weights_gib"] == {"Worker_TP0": 7.51, "Worker_TP1": 7.52}
    assert log.measured["weights_gib"] == 7.52  # the fullest rank
    assert log.measured["kv_cache_gib"] == 59.7  # the one that decides
    assert log.measured["kv_tokens"] == 978_128
    assert log.measured["max_concurrency"] == 119.40
    assert log.measured["max_concurrency_len"] == 8_192
    assert log.measured["cuda_graph_gib"] == 0.85
    assert "num_gpu_blocks" not in log.measured  # the graph probe's override is no figure of the pool
    assert log.stated["model"] == "meta-llama/Llama-3.1-8B-Instruct"
    assert log.stated["tensor_parallel"] == 2
    assert "quantization" not in log.stated


def test_v0_with_its_three_terms() -> None:
    log = read_log(V0.splitlines())
    assert [log.measured[name] for name in ("gpu_memory_gib", "gpu_memory_utilization", "requested_gib")] == [
        14.74, 0.90, 13.27,
    ]  # fmt: skip
    assert [log.measured[name] for name in ("weights_gib", "non_torch_gib", "activation_peak_gib", "kv_cache_gib")] == [
        0.24, 0.05, 0.47, 12.51,
    ]  # fmt: skip
    assert log.measured["num_gpu_blocks"] == 22_774
    start = read_start(case_of(V0.splitlines()))
    assert isinstance(start, Start)
    assert (start.deployment.model_runner, start.deployment.engine_version) == ("v0", "0.7.2")
    assert start.deployment.enforce_eager


@pytest.mark.parametrize(
    ("line", "figures"),
    [
        ("Loading model weights took 14.9888 GB", {"weights_gib": 14.9888}),
        ("Model loading took 14.9889 GiB and 3.141593 seconds", {"weights_gib": 14.9889}),
        ("Model loading took 15.0 GiB memory and 3.1 seconds", {"weights_gib": 15.0}),
        (
            "Memory profiling results: total_gpu_memory=79.11GiB initial_memory_usage=15.41GiB peak_torch_memory=16.21GiB"
            " memory_usage_post_profile=15.49GiB non_torch_memory=0.44GiB kv_cache_size=54.55GiB"
            " gpu_memory_utilization=0.90",
            {"gpu_memory_gib": 79.11, "peak_torch_gib": 16.21, "non_torch_gib": 0.44, "kv_cache_gib": 54.55},
        ),
        (
            "Memory profiling takes 1.50 seconds. Total non KV cache memory: 17.00GiB; torch peak memory increase:"
            " 1.89GiB; non-torch forward increase memory: 0.25GiB; weights memory: 14.99GiB.",
            {"activation_peak_gib": 1.89, "non_torch_gib": 0.25, "weights_gib": 14.99},
        ),
        (
            "Memory profiling takes 1.50 seconds. total consumed (from mem_get_info): 15.26GiB; ...",
            {"consumed_gib": 15.26},
        ),
        (
            "Initial free memory: 78.7 GiB; Requested memory: 0.920000 (util), 72.86 GiB",
            {"free_memory_gib": 78.7, "gpu_memory_utilization": 0.92, "requested_gib": 72.86},
        ),
        ("Available KV cache memory: 34.22 GiB", {"kv_cache_gib": 34.22}),
        ("Available KV cache memory: -2.14 GiB", {"kv_cache_gib": -2.14}),
        (
            "Profiling CUDA graph memory: PIECEWISE=51 (largest=512), FULL=35 (largest=256)",
            {"piecewise_graphs": 51, "full_graphs": 35},
        ),
        ("Estimated CUDA graph memory: 0.41 GiB total", {"cuda_graph_estimated_gib": 0.41}),
        (
            "CUDA graph memory profiling is enabled (default since v0.21.0). The current --gpu-memory-utilization=0.9200"
            " is equivalent to --gpu-memory-utilization=0.9141 without CUDA graph memory profiling.",
            {"gpu_memory_utilization": 0.92, "equivalent_utilization": 0.9141},
        ),
        (
            "GPU KV cache size: 460,496 tokens, Maximum concurrency for 131,072 tokens per request: 3.51x",
            {"kv_tokens": 460_496, "max_concurrency_len": 131_072, "max_concurrency": 3.51},
        ),
        ("# GPU blocks: 2131, # CPU blocks: 4681", {"num_gpu_blocks": 2_131}),
        ("# cuda blocks: 5691, # CPU blocks: 2048", {"num_gpu_blocks": 5_691}),
        ("Graph capturing finished in 25 secs, took 0.67 GiB", {"cuda_graph_gib": 0.67}),
        (
            "CUDA graph pool memory: 0.24 GiB (actual), 0.58 GiB (estimated), difference: 0.34 GiB (141.7%).",
            {"cuda_graph_gib": 0.24, "cuda_graph_estimated_gib": 0.58},
        ),
        (
            "Free memory on device (78.71/79.19 GiB) on startup. Desired GPU memory utilization is (0.9, 71.27 GiB)."
            " Actual usage is 14.99 GiB for weight, 4.71 GiB for peak activation, 0.07 GiB for non-torch memory, and 0.67"
            " GiB for CUDAGraph memory. Replace gpu_memory_utilization config with `--kv-cache-memory=1` to fit into"
            " requested memory, or `--kv-cache-memory=2` to fully utilize gpu memory. Current kv cache memory in use is"
            " 55295600640 bytes.",
            {"weights_gib": 14.99, "activation_peak_gib": 4.71, "cuda_graph_gib": 0.67, "kv_cache_bytes": 55_295_600_640},
        ),
        (
            "Free memory on device cuda:0 (78.71/79.19 GiB) on startup. Desired GPU memory utilization is (0.92, 72.86"
            " GiB). Actual usage is 15.26 GiB for consumed memory (weights + non-torch), 1.44 GiB for peak activation,"
            " and 0.23 GiB for CUDAGraph memory.",
            {"consumed_gib": 15.26, "activation_peak_gib": 1.44, "cuda_graph_gib": 0.23},
        ),
        (
            "Setting attention block size to 544 tokens to ensure that attention page size is >= mamba page size.",
            {"attention_block_size": 544},
        ),
        ("Padding mamba page size by 1.49% to ensure", {"state_padding_percent": 1.49}),
        ("Add 8 padding layers, may waste at most 13.33% KV cache memory", {"padding_layers": 8}),
        (
            "Encoder cache will be initialized with a budget of 8192 tokens, and profiled with 5 image items of the"
            " maximum feature size.",
            {"encoder_tokens": 8_192, "encoder_items": 5},
        ),
        (
            "Auto-fit max_model_len: reduced from 131072 to 40960 to fit in available KV cache memory (5.0 GiB)",
            {"max_model_len": 40_960},
        ),
        (
            "Sleep mode freed 62.10 GiB memory, 1.20 GiB memory is still in use.",
            {"sleep_freed_gib": 62.10, "sleep_kept_gib": 1.20},
        ),
        ("Using max model len 8192", {"max_model_len": 8_192}),
        ("Chunked prefill is enabled with max_num_batched_tokens=2048.", {"max_num_batched_tokens": 2_048}),
    ],
)  # fmt: skip
def test_lines(line: str, figures: dict[str, float]) -> None:
    log = read_log([f"INFO 10-02 12:00:01 [file.py:1] {line}"])
    for name, value in figures.items():
        assert log.measured[name] == value, name


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when"
         " initializing the engine.", "no_cache_blocks"),
        ("ValueError: The model's max seq len (131072) is larger than the maximum number of tokens that can be stored in"
         " KV cache (37696). Try increasing `gpu_memory_utilization`", "request_too_long"),
        ("ValueError: To serve at least one request with the models's max seq len (32768), (4.00 GiB KV cache is needed,"
         " which is larger than the available KV cache memory (1.71 GiB). Based on the available memory, the estimated"
         " maximum model length is 14000. Try increasing", "request_too_long"),
        ("ValueError: To serve at least one request with the model's max seq len (32768), (4.0 GiB KV cache is needed,"
         " which is larger than the available KV cache memory (1.71 GiB). Try increasing", "request_too_long"),
        ("ValueError: Free memory on device (20.1/79.19 GiB) on startup is less than desired GPU memory utilization (0.9,"
         " 71.27 GiB). Decrease GPU memory utilization", "free_memory"),
        ("ValueError: Free memory on device cuda:0 (20.1/79.19 GiB) on startup is less than desired GPU memory"
         " utilization (0.92, 72.86 GiB).", "free_memory"),
        ("AssertionError: Error in memory profiling. Initial free memory 10.0 GiB, current free memory 12.0 GiB.",
         "memory_profiling"),
        ("RuntimeError: CUDA out of memory occurred when warming up sampler with 1024 dummy requests. Please try lowering",
         "sampler_warm_up"),
        ("RuntimeError: CUDA out of memory occurred when warming up pooler (`embed`) with 256 dummy requests.",
         "sampler_warm_up"),
        ("Failed to load model - not enough GPU memory. Try lowering --gpu-memory-utilization", "weights_do_not_fit"),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 224.00 MiB. GPU 0 has a total capacity of 23.53"
         " GiB of which 100.00 MiB is free.", "cuda_out_of_memory"),
        ("ValueError: Cannot auto-fit max_model_len: not enough GPU memory available to serve even a single token.",
         "auto_fit_failed"),
        ("ValueError: Externally held weights on device cuda:0 exceed the desired GPU memory utilization",
         "external_weights"),
        ("NotImplementedError: The page size of the layer is not divisible by the maximum page size. Cannot unify",
         "pages_differ"),
        ("Layer model.layers.0: page size is not divisible by the maximum page size and cannot be padded", "pages_differ"),
        ("ValueError: Hybrid KV cache manager is disabled but failed to convert the KV cache specs to one unified type.",
         "specs_differ"),
        ("ValueError: max_num_batched_tokens (2048) is smaller than max_model_len (32768). This effectively limits",
         "batch_too_small"),
        ("ValueError: max_num_batched_tokens (64) must be greater than or equal to max_num_seqs (256).",
         "batch_too_small"),
        ("ValueError: Too large swap space. 64.00 GiB out of the 80.00 GiB total CPU memory is allocated for the swap"
         " space.", "swap_space"),
        ("ValueError: User-specified max_model_len (65536) is greater than the derived max_model_len"
         " (max_position_embeddings=8192 or model_max_length=None in model's config.json).", "length_of_config"),
        ("ValueError: Chunked MM input disabled but max_tokens_per_mm_item (16384) is larger than max_num_batched_tokens"
         " (2048).", "item_too_large"),
        ("AssertionError: Memory usage increased after sleeping.", "sleep_failed"),
    ],
)  # fmt: skip
def test_errors(text: str, kind: str) -> None:
    log = read_log([f"(EngineCore_0 pid=1) ERROR 10-02 12:00:01 [core.py:700] {text}"])
    assert [error.kind for error in log.errors] == [kind]


def test_refusal_as_a_case() -> None:
    text = (
        "To serve at least one request with the model's max seq len (32,768), (4.0 GiB KV cache is needed, which is larger"
        " than the available KV cache memory (1.71 GiB). Based on the available memory, the estimated maximum model length"
        " is 14000."
    )
    case = case_of([text])
    assert case.number("needed_kv_gib_for_one_request") == 4.0
    assert case.number("estimated_max_len") == 14_000
    assert case.given("max_model_len") == 32_768


def test_older_flags_and_command_lines() -> None:
    namespace = read_log(
        [
            "INFO args: Namespace(host=None, model='Qwen/Qwen3-8B', tensor_parallel_size=4, quantization='awq',"
            " gpu_memory_utilization=0.85, enable_lora=True, max_loras=4, max_model_len=None, enforce_eager=True)",
            "INFO # GPU blocks: 1, # CPU blocks: 1",
        ]
    ).stated
    assert namespace["tensor_parallel"] == 4
    assert namespace["gpu_memory_utilization"] == 0.85
    assert (namespace["other_flags"]["enable_lora"], namespace["other_flags"]["max_loras"]) == (True, 4)
    assert "max_model_len" not in namespace
    command = read_log(
        [
            "+ vllm serve Qwen/Qwen3-8B --max-model-len 4096 -tp 2 --enforce-eager --kv-cache-dtype=fp8",
            "# GPU blocks: 1",
        ]
    ).stated
    assert command["model"] == "Qwen/Qwen3-8B"
    assert (command["max_model_len"], command["enforce_eager"], command["kv_cache_dtype"]) == (4_096, True, "fp8")


def test_speculative_config_is_seen_through() -> None:
    line = "non-default args: {'speculative_config': {'method': 'mtp', 'num_speculative_tokens': 2}, 'max_num_seqs': 8}"
    flags = read_log([line, "# GPU blocks: 1"]).stated
    assert flags["other_flags"]["speculative"] == "mtp 2"
    assert flags["max_num_seqs"] == 8


def test_no_log_at_all(tmp_path: Path) -> None:
    assert read_log(["hello", ""]).recognised == 0
    (tmp_path / "hello.log").write_text("hello\n")
    with pytest.raises(NotRecognised):
        read_start_log(tmp_path / "hello.log")
    with pytest.raises(SourceError):
        read_start_log(tmp_path / "absent.log")
    with pytest.raises(SourceError):
        read_start_log(tmp_path)


def test_carriage_returns_utf16_and_long_lines(tmp_path: Path) -> None:
    path = tmp_path / "start.log"
    path.write_bytes("Available KV cache memory: 1.0 GiB\r\nx\rGPU KV cache size: 5 tokens".encode("utf-16"))
    assert read_log(lines_of(path)).measured["kv_tokens"] == 5
    path.write_bytes(b"a" * 3_000_000 + b" Available KV cache memory: 1.0 GiB\nAvailable KV cache memory: 2.0 GiB\n")
    log = read_log(lines_of(path))
    assert log.measured["kv_cache_gib"] == 2.0
    assert len(list(lines_of(path))) == 2


def test_hostile_lines_stay_bounded() -> None:
    lines = [f"(Worker_TP{n} pid={n}) Available KV cache memory: {n}.5 GiB" for n in range(5_000)]
    lines += ["Error in memory profiling"] * 500
    log = read_log(lines)
    assert len(log.by_rank["kv_cache_gib"]) == 256
    assert len(log.errors) == 50


def test_random_bytes_raise_nothing_else() -> None:
    random.seed(1)
    words = [
        "Namespace(",
        "model=",
        "'",
        "GiB",
        "Available KV cache memory:",
        "(",
        "\x1b[",
        "9" * 40,
        "max seq len",
        "{",
    ]
    for _ in range(300):
        line = " ".join(random.choice(words) for _ in range(30))
        case_of([line])


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "serve.log"
    path.write_text(V1_TP2, encoding="utf-8")
    shown = run(capsys, monkeypatch, "validate", "--log", str(path), "--gpu", "H100")
    assert shown.status == 0
    assert "kv_cache" in shown.out and "59.70" in shown.out
    answer = run(capsys, monkeypatch, "validate", "--log", str(path), "--gpu", "H100", "--format", "json")
    found = json.loads(answer.out)
    rows = {row["figure"]: row for row in found["rows"]}
    assert rows["kv_cache"]["measured"] == 59.7
    assert abs(rows["weights"]["error_percent"]) < 0.3
    (tmp_path / "case.jsonl").write_text(json.dumps(found["case"]) + "\n", encoding="utf-8")
    scored = run(capsys, monkeypatch, "validate", "--cases", str(tmp_path / "case.jsonl"), "--format", "json")
    assert scored.status == 0 and json.loads(scored.out)["rows"]


def test_command_mistakes(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "serve.log"
    path.write_text("Available KV cache memory: 1.0 GiB\n", encoding="utf-8")
    nameless = run(capsys, monkeypatch, "validate", "--log", str(path))
    assert nameless.status == 2 and "MODEL" in nameless.err
    stray = run(capsys, monkeypatch, "validate", "Qwen/Qwen3-8B")
    assert stray.status == 2 and "--log" in stray.err
