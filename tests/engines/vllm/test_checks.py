"""Values that make no plan, and what vLLM refuses before it looks at memory; rules read from vLLM 0.19.0 config/."""

from __future__ import annotations

import pytest

from planner import Deployment, find_gpu, load_model, plan_serving
from planner.contract.inputs import inputs_of
from planner.contract.lengths import parse_lengths
from planner.contract.workload import Workload
from planner.errors import PlannerError, UnsupportedQuantization, UsageError
from planner.hardware.gpus import load_gpus
from planner.memory.cache.formats import cache_formats

GIB = 1 << 30
LLAMA = load_model("meta-llama/Llama-3.1-8B-Instruct")  # 32 heads, 8 key-value heads
H100 = find_gpu("H100")


def plan(model=LLAMA, **options):  # type: ignore[no-untyped-def]
    return plan_serving(model, Deployment(**({"gpu": H100, "max_model_len": 4096} | options)))


@pytest.mark.parametrize(
    "field", [one.name for one in inputs_of(Deployment) if int in one.kinds and float not in one.kinds]
)
@pytest.mark.parametrize("value", [-(1 << 70), -7, 1 << 70])
def test_no_number_makes_a_plan_of_nonsense(field: str, value: int) -> None:
    """Every whole number is bounded on both sides, memory by more than any card or host has."""
    options = {field: value} | ({"enable_lora": True} if field == "max_lora_rank" else {})
    options |= {"quantization": "awq"} if field == "group_size" else {}
    with pytest.raises(PlannerError):
        plan(**options)


@pytest.mark.parametrize("field", ["kv_cache_memory_bytes", "already_used_bytes"])
def test_more_memory_than_the_card_has_does_not_fit(field: str) -> None:
    assert plan(**{field: 1 << 40}).verdict == "does_not_fit"


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"enable_lora": True, "max_lora_rank": 17}, "max_lora_rank"),
        ({"group_size": 128}, "group_size"),
        ({"quantize_lm_head": True}, "quantize_lm_head"),
        ({"mamba_ssm_cache_dtype": "int3"}, "mamba_ssm_cache_dtype"),
        ({"gpu": find_gpu("v100 16gb"), "dtype": "bfloat16"}, "dtype"),
        ({"max_cudagraph_capture_size": 0}, "max_cudagraph_capture_size"),
    ],
)
def test_refusals_name_the_option(options: dict[str, object], field: str) -> None:
    with pytest.raises(UsageError) as caught:
        plan(**options)
    assert caught.value.field == field


def test_a_state_type_of_auto_is_the_models_own() -> None:
    hybrid = load_model("Qwen/Qwen3-Coder-Next")
    auto, none = plan(hybrid, mamba_ssm_cache_dtype="auto"), plan(hybrid)
    assert auto.sequence == none.sequence


@pytest.mark.parametrize(
    ("tensor", "context", "starts"),
    [
        (16, 2, True),  # 16 / 8 heads = 2 copies
        (32, 4, True),
        (32, 2, True),
        (8, 2, False),  # no copies
        (16, 4, False),  # 4 > 2 copies
        (2, 3, False),  # does not divide
        (1, 2, False),
    ],
)
def test_decode_context_parallel_shares_copies_only(tensor: int, context: int, starts: bool) -> None:
    options = {"tensor_parallel_size": tensor, "decode_context_parallel_size": context}
    if starts:
        alone = plan(tensor_parallel_size=tensor)
        assert plan(**options).kv_tokens == context * alone.kv_tokens
    else:
        with pytest.raises(UsageError, match="decode-context-parallel-size"):
            plan(**options)


@pytest.mark.parametrize(
    "name",
    [
        form.name
        for form in cache_formats().values()
        if form.engine not in ("any", "vllm", "llama.cpp") or form.name.startswith(("q", "iq"))
    ],
)
def test_caches_of_other_engines_are_refused(name: str) -> None:
    with pytest.raises(UnsupportedQuantization):
        plan(kv_cache_dtype=name)


def test_a_cache_format_needs_its_version() -> None:
    with pytest.raises(UnsupportedQuantization, match=r"0\.20"):
        plan(kv_cache_dtype="nvfp4", engine_version="0.19.0")
    # 8 key-value heads x 2 x (128 / 16) x 9 B x 32 layers
    assert plan(kv_cache_dtype="nvfp4", engine_version="0.20.0").sequence.bytes_per_token == 8 * 2 * 8 * 9 * 32


def test_short_names_of_plain_caches() -> None:
    short = plan(kv_cache_dtype="bf16")
    assert short.sequence.bytes_per_token == 131_072
    assert short.cache_format.name == "bfloat16"


@pytest.mark.parametrize("size", [1, 16, 64, 100])
def test_blocks_that_cannot_hold_a_compressed_vector(size: int) -> None:
    model = load_model("deepseek-ai/DeepSeek-V4-Flash")
    with pytest.raises(UsageError, match="block-size"):
        plan(model, engine_version="0.24.0", block_size=size)


def test_a_model_that_no_vllm_has_says_so() -> None:
    assert any("RwkvForCausalLM" in note for note in plan(load_model("RWKV/rwkv-4-14b-pile")).notes)
    assert not any("ForCausalLM" in note for note in plan().notes)
    gemma = load_model("google/gemma-4-31B-it")
    old = plan(gemma, engine_version="0.12.0").notes
    assert any("first seen in vLLM" in note for note in old)


def test_a_number_of_blocks_is_a_size_of_the_pool() -> None:
    """600 blocks of 2 MiB are 1,200 MiB; a hundred million do not fit any card."""
    few = plan(num_gpu_blocks_override=600)
    assert (few.num_blocks, few.kv_cache_bytes, few.kv_tokens) == (600, 1200 << 20, 9600)
    assert few.verdict == "fits"
    assert plan(num_gpu_blocks_override=100_000_000).verdict == "does_not_fit"
    short = plan(num_gpu_blocks_override=200, engine_version="0.28.0")  # 3,200 tokens; from 0.29 one block is kept
    assert short.verdict == "does_not_fit"
    assert short.shortfall_bytes == (256 - 200) * (2 << 20)


def test_towers_left_out_need_not_divide() -> None:
    """Qwen3.5-0.8B: the tower has 12 heads, the text model 8."""
    model = load_model("Qwen/Qwen3.5-0.8B")
    with pytest.raises(UsageError, match="visual"):
        plan(model, tensor_parallel_size=8)
    assert plan(model, tensor_parallel_size=8, language_model_only=True).verdict == "fits"


@pytest.mark.parametrize("version", ["0.6.3", "0.6.4", "0.8.0", "0.8.5"])
def test_the_context_is_counted_once(version: str) -> None:
    """Where the engine counts the CUDA context inside its fraction, the rest of the card does not hold it again."""
    found = plan(engine_version=version)
    names = [part.name for part in found.budget.inside + found.budget.outside]
    assert names.count("context") <= 1
    outside = sum(part.best for part in found.budget.outside)
    assert found.outside.free_bytes == H100.total_memory_bytes - found.budget.requested_bytes - outside


def test_auto_fit_of_what_cannot_load_is_a_plan_that_does_not_fit() -> None:
    found = plan(load_model("deepseek-ai/DeepSeek-V3"), max_model_len=-1)
    assert found.verdict == "does_not_fit"
    assert any("Cannot auto-fit max_model_len" in note for note in found.notes)


def test_the_shortfall_of_a_refused_start_is_never_nothing() -> None:
    small = Deployment(gpu=find_gpu("4090"), max_model_len=131_072, engine_version="0.28.0")
    found = plan_serving(LLAMA, small, Workload(input_len=parse_lengths("100", option="--input-len")))
    # one request of 131,072 tokens needs 16 GiB, whatever the requests that come
    assert found.startup_error is not None
    assert found.shortfall_bytes == 16 * GIB - found.kv_cache_bytes


def test_every_stage_has_its_own_rest_of_the_card() -> None:
    found = plan(tensor_parallel_size=1, pipeline_parallel_size=3, model=load_model("Qwen/Qwen3-0.6B"))
    for index, stage in enumerate(found.stages):
        outside = sum(part.best for part in stage.outside)
        assert found.free_bytes(index) == H100.total_memory_bytes - stage.requested_bytes - outside


def test_more_requests_than_the_engine_runs_is_said() -> None:
    found = plan_serving(LLAMA, Deployment(gpu=H100, max_model_len=4096, max_num_seqs=8), Workload(concurrency=64))
    assert any("max_num_seqs lets 8 of 64" in note for note in found.notes)


@pytest.mark.parametrize("gpu", [gpu for gpu in load_gpus() if not gpu.supports_bf16][:5], ids=lambda gpu: gpu.id)
def test_cards_without_bfloat16_take_float16_by_themselves(gpu) -> None:  # type: ignore[no-untyped-def]
    if gpu.reported_memory_bytes is None:
        pytest.skip("no memory size in the table")
    assert plan(gpu=gpu).resolved.dtype == "float16"


@pytest.mark.parametrize(
    ("card", "name", "version", "starts"),
    [
        ("v100 16gb", "fp8", "0.19.0", False),  # 7.0 < 7.5
        ("v100 16gb", "awq", "0.19.0", False),
        ("v100 16gb", "gptq", "0.19.0", True),  # 6.0
        ("v100 16gb", "bitsandbytes", "0.19.0", True),  # 7.0
        ("t4", "fp8", "0.19.0", True),  # 7.5
        ("t4", "fp8", "0.12.0", False),  # 8.0 then
        ("t4", "mxfp4", "0.19.0", False),
        ("4090", "nvfp4", "0.8.5", False),  # 10.0 then
    ],
)
def test_old_cards_and_quantisation(card: str, name: str, version: str, starts: bool) -> None:
    options = {"gpu": find_gpu(card), "quantization": name, "engine_version": version}
    if starts:
        assert plan(**options).budget.weights.total_bytes > 0
    else:
        with pytest.raises(UsageError, match="compute capability"):
            plan(**options)


def test_whole_towers_on_every_gpu() -> None:
    """GLM-4.5V: the tower's 12 heads do not divide by 8; data mode keeps its weights whole, and the rest is cut."""
    from planner.model.tensors import tensors

    model = load_model("zai-org/GLM-4.5V")
    with pytest.raises(UsageError, match="--mm-encoder-tp-mode data"):
        plan(model, tensor_parallel_size=8)
    whole = plan(model, tensor_parallel_size=8, mm_encoder_tp_mode="data")
    bare = plan(model, tensor_parallel_size=8, language_model_only=True)
    towers = sum(2 * tensor.numel for tensor in tensors(model.spec) if tensor.name.startswith("model.visual."))
    both = (dict(found.budget.weights.by_role) for found in (whole, bare))
    assert sum(next(both).values()) - sum(next(both).values()) == towers
