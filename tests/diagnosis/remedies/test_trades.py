"""No remedy belongs to another trade, and every one is said as the program that failed says it."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from planner.diagnosis import Finding, diagnose_text
from planner.diagnosis.messages.programs import TRADES
from planner.diagnosis.remedies.catalogue import belongs, catalogue
from planner.diagnosis.remedies.choice import actions
from tests.diagnosis.accuracy import messages
from tests.diagnosis.rules.test_rules import torch_message

FULL = torch_message("1.16 GiB", "23.64 GiB", "0.55 GiB", "22.31 GiB", "0.10 GiB", in_use="23.02 GiB")
HUGE = torch_message("12.00 GiB", "23.64 GiB", "11.00 GiB", "11.00 GiB", "0 bytes")
SLACK = torch_message("2.00 GiB", "23.64 GiB", "1.00 GiB", "14.00 GiB", "8.00 GiB")
PACKAGES = "/venv/lib/python3.12/site-packages"
# words that only one trade knows
FOREIGN = {
    "serve": re.compile(r"accumulat|gradient|micro.?batch|optimi[sz]er|\bdel\b|checkpoint activ|loss", re.IGNORECASE),
    "train": re.compile(r"gpu-memory-utilization|max-num-seqs|mem-fraction|max-model-len|num_ctx|-ngl\b|KV cache"),
    "generate": re.compile(r"gpu-memory-utilization|accumulat|max-num-seqs|KV cache|num_ctx|-ngl\b"),
    "infer": re.compile(r"gpu-memory-utilization|accumulat|max-num-seqs|mem-fraction|-ngl\b|optimi[sz]er"),
}


def traceback(*frames: tuple[str, str, str]) -> str:
    lines = "".join(f'  File "{path}", line 10, in {function}\n    {code}\n' for path, function, code in frames)
    return f"Traceback (most recent call last):\n{lines}"


def first(text: str) -> Finding:
    return diagnose_text(text).findings[0]


PROGRAMS = {
    "vllm": (f"{PACKAGES}/vllm/v1/worker/gpu_model_runner.py", "execute_model", "x"),
    "sglang": (f"{PACKAGES}/sglang/srt/model_executor/model_runner.py", "forward_decode", "x"),
    "tgi": (f"{PACKAGES}/text_generation_server/models/flash_causal_lm.py", "prefill", "x"),
    "trainer": (f"{PACKAGES}/transformers/trainer.py", "training_step", "self.accelerator.backward(loss)"),
    "axolotl": (f"{PACKAGES}/axolotl/train.py", "train", "trainer.train()"),
    "llama-factory": (f"{PACKAGES}/llamafactory/train/sft/workflow.py", "run_sft", "trainer.train()"),
    "comfyui": ("/home/me/ComfyUI/comfy/ldm/flux/model.py", "forward", "x"),
    "diffusers": (f"{PACKAGES}/diffusers/pipelines/flux/pipeline_flux.py", "__call__", "x"),
    "transformers": (f"{PACKAGES}/transformers/generation/utils.py", "_sample", "outputs = self(**model_inputs)"),
}


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("message", [FULL, HUGE, SLACK], ids=["full", "huge", "slack"])
def test_remedies_are_of_the_trade_and_in_the_programs_spelling(program: str, message: str) -> None:
    finding = first(traceback(PROGRAMS[program]) + message)
    assert finding.message.context["engine"] == program
    trade = finding.message.context["trade"]
    assert trade == TRADES[program]
    said = [f"{a.do} {a.setting or ''} {a.why}" for a in finding.actions]
    assert said and not [text for text in said if FOREIGN[trade].search(text)]
    assert all(belongs(action.name, trade) for action in finding.actions)


@pytest.mark.parametrize(
    ("program", "setting"),
    [
        ("vllm", "--gpu-memory-utilization 0."),
        ("sglang", "--mem-fraction-static 0."),
        ("tgi", "--cuda-memory-fraction 0."),
        ("trainer", "--per_device_train_batch_size 1 --gradient_accumulation_steps"),
        ("axolotl", "micro_batch_size: 1, gradient_accumulation_steps:"),
        ("llama-factory", "per_device_train_batch_size: 1"),
        ("comfyui", "--lowvram"),
        ("diffusers", "pipe.enable_model_cpu_offload()"),
    ],
)
def test_settings_are_those_of_the_program(program: str, setting: str) -> None:
    found = first(traceback(PROGRAMS[program]) + FULL).actions[:2]
    assert any((action.setting or "").startswith(setting) for action in found)


def test_no_bundled_message_gets_a_remedy_of_another_trade() -> None:
    for row in messages():
        for finding in diagnose_text(row["text"]).findings:
            trade = finding.message.context.get("trade", "")
            assert all(belongs(action.name, trade) for action in finding.actions), row["id"]
            if trade in FOREIGN:
                said = " ".join(f"{a.do} {a.setting or ''}" for a in finding.actions)
                assert not FOREIGN[trade].search(said), row["id"]


@pytest.mark.parametrize("trade", ["serve", "train", "generate", "infer", ""])
def test_what_the_catalogue_gives_to_a_trade_stays_in_it(trade: str) -> None:
    """Whatever the class, phase and program: an action of another trade is never chosen."""
    finding = first(FULL)
    for phase in ("", "load", "graph_capture", "sampler", "loss", "backward", "optimizer", "evaluation", "save"):
        for failure in ("device_full", "single_huge", "fragmentation_clue", "other_process", "engine_budget"):
            context = {"trade": trade, "phase": phase}
            message = replace(finding.message, context=context)
            verdict = replace(finding.verdict, failure=failure, advise=tuple(catalogue()["actions"]))
            assert all(belongs(a.name, trade) for a in actions(message, verdict))


def test_a_remedy_is_bounded_by_what_the_message_prints() -> None:
    """0.97 of the card is in force: there is no larger fraction to advise; 256 warm-up requests failed: fewer."""
    log = "INFO engine args: gpu_memory_utilization=0.97\nValueError: No available memory for the cache blocks."
    assert all(a.name != "raise_utilization" for a in first(log).actions)
    sampler = "CUDA out of memory occurred when warming up sampler with 256 dummy requests."
    assert any(a.setting == "--max-num-seqs 64" for a in first(sampler).actions)
    assert any(
        a.setting == "--max-batch-prefill-tokens 2048 --max-input-tokens 2047"
        for a in first("Not enough memory to handle 4096 prefill tokens.").actions
    )


def test_a_context_that_serves_nothing_is_not_the_first_remedy() -> None:
    text = (
        "To serve at least one request with the model's max seq len ({}), ({} GiB KV cache is needed, which is larger "
        "than the available KV cache memory ({} GiB). Based on the available memory, the estimated maximum model "
        "length is {}."
    )
    assert first(text.format(131072, "16.0", "6.0", 49152)).actions[0].name == "lower_max_model_len"
    assert all(a.name != "lower_max_model_len" for a in first(text.format(131072, "16.0", "0.1", 816)).actions[:2])
