"""Requests longer than the model's positions, or than max_model_len, are refused; so are block sizes of no kernel."""

from __future__ import annotations

from dataclasses import replace

import pytest

from planner import Deployment, ServingPlan, find_gpu, load_model, plan_serving
from planner.contract.engine import command_line, find_engine
from planner.contract.lengths import parse_lengths
from planner.contract.workload import Workload
from planner.errors import UsageError
from planner.levers.advice import advise
from planner.levers.goal import parse_goal
from planner.levers.question import ServingQuestion
from planner.model.positions import stretched_positions
from planner.serving.grid import Grid, grid_cells
from tests.cli.running import run

NAME = "meta-llama/Llama-3.1-8B-Instruct"
LLAMA = load_model(NAME)
H100 = find_gpu("H100")
VLLM = find_engine("vllm")


def plan(**options: object) -> ServingPlan:
    return plan_serving(LLAMA, Deployment(gpu=H100, **options))  # type: ignore[arg-type]


def test_more_than_the_positions_is_refused_whatever_the_memory() -> None:
    assert plan(max_model_len=131_072).verdict == "fits"
    found = plan(max_model_len=131_073)
    assert (found.verdict, found.shortfall_bytes) == ("refused", 0)
    error = found.startup_error
    assert error is not None and error.kind == "max_model_len"
    # the engine's own words, as users report them
    assert error.message.startswith(
        "User-specified max_model_len (131073) is greater than the derived max_model_len"
        " (max_position_embeddings=131072 or model_max_length=None in model's config.json)."
    )


def test_unless_it_is_allowed() -> None:
    found = plan(max_model_len=200_000, allow_long_max_model_len=True)
    assert (found.verdict, found.startup_error) == ("fits", None)
    assert command_line(found).startswith("VLLM_ALLOW_LONG_MAX_MODEL_LEN=1 vllm serve ")
    assert any("131,072" in note and "VLLM_ALLOW_LONG_MAX_MODEL_LEN" in note for note in found.notes)
    assert command_line(plan(max_model_len=8192, allow_long_max_model_len=True)).startswith("vllm serve ")


@pytest.mark.parametrize(
    ("config", "positions", "expected"),
    [
        ({}, 32_768, 32_768),
        ({"rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32_768}},
         40_960, 131_072),
        ({"rope_parameters": {"rope_type": "linear", "factor": 4.0}}, 16_384, 65_536),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, 131_072, 131_072),
        ({"rope_scaling": {"type": "longrope", "factor": 32.0}}, 131_072, 131_072),
        ({"text_config": {"model_type": "gemma3_text", "rope_scaling": {"rope_type": "linear", "factor": 8.0}}},
         131_072, 131_072),
        ({"max_position_embeddings": 65_536}, 32_768, 65_536),
        ({"rope_scaling": {"factor": None, "type": "video_rope"}}, 4096, 4096),
        ({"rope_parameters": {"full_attention": {"rope_type": "yarn", "factor": 2.0}}}, 8192, 16_384),
        ({"rope_scaling": "junk", "text_config": 7}, 4096, 4096),
    ],
)  # fmt: skip
def test_rope_scaling_stretches_the_positions(config: dict[str, object], positions: int, expected: int) -> None:
    assert stretched_positions(config, positions) == expected


def test_the_command_line(capsys, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    asked = ("serve", "Qwen/Qwen2.5-7B-Instruct", "--gpu", "H100", "--max-model-len", "131072")
    refused = run(capsys, monkeypatch, *asked)
    # no amount of memory helps: wrong usage, not a card too small
    assert refused.status == 2 and "would stop with (max_model_len)" in refused.out
    assert refused.out.startswith("refused: ")
    assert "fits no listed card" not in refused.out
    scaling = '{"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}}'
    assert run(capsys, monkeypatch, *asked, "--hf-overrides", scaling).status == 0
    assert run(capsys, monkeypatch, *asked, "--allow-long-max-model-len").status == 0
    monkeypatch.setenv("VLLM_ALLOW_LONG_MAX_MODEL_LEN", "1")
    assert run(capsys, monkeypatch, *asked).status == 0


@pytest.mark.parametrize("value", ['{"num_hidden_layers": 2', "[1, 2", '"text"', "7"])
def test_overrides_that_are_no_object(value: str, capsys, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    result = run(
        capsys, monkeypatch, "serve", NAME, "--gpu", "H100", "--max-model-len", "8192", "--hf-overrides", value
    )
    assert result.status == 2 and "--hf-overrides" in result.err


def test_other_flags_with_broken_json(capsys, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    asked = ("serve", NAME, "--gpu", "H100", "--max-model-len", "8192", "--override-generation-config")
    assert run(capsys, monkeypatch, *asked, '{"temperature": 0.5').status == 2
    assert run(capsys, monkeypatch, *asked, '{"temperature": 0.5}').status == 0


def test_compare_agrees() -> None:
    lengths = (8192, 131_072, 131_073)
    base = Deployment(gpu=H100, gpu_memory_bytes=H100.total_memory_bytes)
    grid = Grid(engine=VLLM, models=[LLAMA], deployments=[base], lengths=lengths)
    cells = list(grid_cells(grid))
    assert [cell.verdict for cell in cells] == [plan(max_model_len=length).verdict for length in lengths]
    assert [bool(cell.reason) for cell in cells] == [False, False, True]
    allowed = replace(grid, deployments=[replace(base, allow_long_max_model_len=True)])
    assert [cell.verdict for cell in grid_cells(allowed)] == ["fits"] * 3


def asked(concurrency: int = 1, **options: object) -> ServingQuestion:
    return ServingQuestion(
        engine=VLLM,
        model=LLAMA,
        deployment=Deployment(gpu=H100, **options),  # type: ignore[arg-type]
        workload=Workload(
            concurrency=concurrency,
            input_len=parse_lengths("p50=600,p95=4000", option="--input-len"),
            output_len=parse_lengths("200", option="--output-len"),
        ),
    )


def test_requests_that_the_server_would_refuse_are_refused() -> None:
    question = asked(max_model_len=4096)
    found = question.ask({})
    assert (found.verdict, found.startup_error) == ("refused", None)
    assert [(point.at, point.tokens_per_request, point.concurrency) for point in found.points] == [
        ("max_model_len", 4096, 108), ("p50", 800, 554), ("p95", 4200, 0),
    ]  # fmt: skip
    assert any("refuses requests of 4,200 tokens (p95)" in note and "raise it to 4200" in note for note in found.notes)
    advice = advise(question, found)
    assert [setting.flag for setting in advice.plans[0].settings] == ["--max-model-len 4200"]
    assert question.ask(advice.plans[0].settings[0].changes).verdict == "fits"


def test_no_lever_goes_below_a_stated_length() -> None:
    """500 requests at p95: fewer requests or more cards, never a context that refuses the p95."""
    question = asked(max_model_len=8192, concurrency=500)
    advice = advise(question, question.ask({}))
    lengths = [
        setting.changes["max_model_len"]
        for one in (*(effect.setting for effect in advice.levers), *(s for p in advice.plans for s in p.settings))
        for setting in [one]
        if "max_model_len" in setting.changes
    ]
    assert advice.plans and all(isinstance(length, int) and length >= 4200 for length in lengths)


def test_the_largest_context_serves_what_was_stated() -> None:
    """The largest context is looked for above the stated lengths only: a shorter one would refuse them."""
    question = asked(max_model_len=8192)
    solved = advise(question, question.ask({}), goal=parse_goal("largest context")).solved
    assert solved is not None and solved.value == "131072"


def test_why_the_cache_is_blamed() -> None:
    """16 GiB of cache are wanted beside 15 of weights in both; only in the second they are what is short."""
    crowded = ServingQuestion(engine=VLLM, model=LLAMA, deployment=Deployment(gpu=H100, gpu_memory_utilization=1.0))
    plan_of = crowded.ask({})
    assert plan_of.verdict == "does_not_fit"
    assert not any("KV cache is the problem" in note for note in advise(crowded, plan_of).notes)
    many = ServingQuestion(engine=VLLM, model=LLAMA, deployment=Deployment(gpu=H100), workload=Workload(concurrency=8))
    assert any("KV cache is the problem" in note for note in advise(many, many.ask({})).notes)


@pytest.mark.parametrize(
    ("version", "size", "fine"),
    [
        ("0.5.5", 16, True), ("0.5.5", 64, False), ("0.7.3", 32, True), ("0.7.3", 7, False), ("0.7.3", 64, False),
        ("0.10.2", 128, True), ("0.10.2", 256, False), ("0.12.0", 256, True), ("0.12.0", 48, False),
        ("0.19.0", 7, False), ("0.19.0", 8, False), ("0.19.0", 16, True), ("0.19.0", 48, True),
    ],
)  # fmt: skip
def test_block_sizes(version: str, size: int, fine: bool) -> None:
    if fine:
        assert plan(engine_version=version, block_size=size, max_model_len=4096).pool.block_size == size
    else:
        with pytest.raises(UsageError, match="block-size"):
            plan(engine_version=version, block_size=size, max_model_len=4096)
