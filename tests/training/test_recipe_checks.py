"""What a recipe may not ask for: one line that names the option; and what changes with options that few set."""

from __future__ import annotations

import time

import pytest

from planner.errors import UsageError
from planner.hardware.gpus import find_gpu
from planner.model.load import load_model
from planner.training.plan import TrainingPlan, plan_training
from planner.training.recipe import Recipe, kernels, resolve

_GPU = find_gpu("H100")
_DENSE, _EXPERTS = "Qwen/Qwen3-8B", "Qwen/Qwen3-30B-A3B"


def plan(name: str, **options: object) -> TrainingPlan:
    return plan_training(load_model(name), Recipe(**options), _GPU)  # type: ignore[arg-type]


@pytest.mark.parametrize(("name", "options", "field"), [
    (_DENSE, {"num_gpus": 8, "sharding": "hsdp", "shard_group": -5}, "shard_group"),
    (_DENSE, {"num_gpus": 8, "sharding": "hsdp", "shard_group": 3}, "shard_group"),
    (_DENSE, {"num_gpus": 8, "sharding": "hsdp", "shard_group": 16}, "shard_group"),
    (_DENSE, {"num_gpus": 8, "sharding": "fsdp", "shard_group": 4}, "shard_group"),
    (_DENSE, {"logits_to_keep": 0}, "logits_to_keep"),
    (_DENSE, {"logits_to_keep": -200_000}, "logits_to_keep"),
    (_DENSE, {"method": "full", "offload_parameters": True}, "offload_parameters"),
    (_DENSE, {"method": "full", "num_gpus": 4, "sharding": "zero2", "offload_parameters": True}, "offload_parameters"),
    (_DENSE, {"expert_parallel_size": 2, "num_gpus": 2}, "expert_parallel_size"),
    (_EXPERTS, {"expert_parallel_size": 128}, "expert_parallel_size"),
    (_EXPERTS, {"expert_parallel_size": 8, "num_gpus": 4}, "expert_parallel_size"),
    (_EXPERTS, {"expert_parallel_size": 3, "num_gpus": 3}, "expert_parallel_size"),
    (_DENSE, {"tensor_parallel_size": 3, "num_gpus": 3}, "tensor_parallel_size"),
    (_DENSE, {"pipeline_parallel_size": 50, "num_gpus": 50}, "pipeline_parallel_size"),
    (_DENSE, {"transformers_version": "-1"}, "transformers_version"),
    (_DENSE, {"transformers_version": "٤.٤٨"}, "transformers_version"),
    (_DENSE, {"transformers_version": "v4"}, "transformers_version"),
    (_DENSE, {"freeze_layers": 3}, "freeze_layers"),
    (_DENSE, {"checkpoint_every": 5}, "checkpoint_every"),
    (_DENSE, {"sequence_parallel": True}, "sequence_parallel"),
    (_DENSE, {"method": "full", "optimizer_in_backward": True, "gradient_accumulation_steps": 4},
     "optimizer_in_backward"),
    (_DENSE, {"lora_target_modules": ("embed_tokens", "q_proj")}, "lora_target_modules"),
    (_DENSE, {"lora_target_modules": (r".*layers\.[01]\.self_attn.*",)}, "lora_target_modules"),
    ("Qwen/Qwen3-0.6B", {"lora_target_modules": ("lm_head",)}, "lora_target_modules"),
    ("Qwen/Qwen3-0.6B", {"modules_to_save": ("lm_head",)}, "modules_to_save"),
    ("Qwen/Qwen2.5-7B-Instruct-AWQ", {"method": "full"}, "method"),
    ("Qwen/Qwen2.5-7B-Instruct-AWQ", {"method": "galore"}, "method"),
    ("Qwen/Qwen2.5-7B-Instruct-AWQ", {"method": "freeze"}, "method"),
    ("Qwen/Qwen2.5-7B-Instruct-AWQ", {"method": "qlora", "base_quantization": "nf4"}, "base_quantization"),
])  # fmt: skip
def test_refused(name: str, options: dict[str, object], field: str) -> None:
    with pytest.raises(UsageError) as caught:
        plan(name, **options)
    assert caught.value.field == field
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("expression", ["(.+)+x", "(model|.*)*proj$X", "(a+)+$", "(.{1,16}){1,16}x", ".*.*.*.*.*x",
                                        "(" * 500, "x" * 2000 + "*", "("])  # fmt: skip
def test_an_expression_that_could_take_for_ever_is_refused_at_once(expression: str) -> None:
    begin = time.monotonic()
    with pytest.raises(UsageError) as caught:
        plan(_DENSE, lora_target_modules=(expression,))
    assert caught.value.field == "lora_target_modules"
    assert time.monotonic() - begin < 5


@pytest.mark.parametrize("expression", [r".*\.(self_attn|mlp)\.(q|k)_proj", r".*layers\.(1[0-9]|2[0-9]).*q_proj",
                                        r"model\.layers\.\d+\.mlp\.(gate|up|down)_proj", ".*proj"])  # fmt: skip
def test_expressions_in_use_are_taken(expression: str) -> None:
    assert plan(_DENSE, lora_target_modules=(expression,)).states.trained_numel > 0


def test_a_major_version_is_its_first_release() -> None:
    assert kernels(resolve(Recipe(transformers_version="5"))) == kernels(resolve(Recipe(transformers_version="5.0")))
    assert kernels(resolve(Recipe(transformers_version="4"))) == kernels(resolve(Recipe(transformers_version="4.0.1")))
    assert kernels(resolve(Recipe(transformers_version="5"))) != kernels(resolve(Recipe(transformers_version="4.57")))


def test_qlora_on_a_quantised_checkpoint_is_lora_on_it() -> None:
    name = "Qwen/Qwen2.5-7B-Instruct-AWQ"
    asked, plain = plan(name, method="qlora"), plan(name, method="lora")
    assert asked.allocated_bytes == plain.allocated_bytes
    assert any("quantised" in note for note in asked.notes)


def test_experts_dealt_out_are_not_divided_twice() -> None:
    """30.53e9 parameters x 8 B over 8 GPUs: 28.43 GiB a GPU, whatever the experts' share of the ways is."""
    whole = plan(_EXPERTS, method="full", num_gpus=8, sharding="fsdp")
    dealt = plan(_EXPERTS, method="full", num_gpus=8, sharding="fsdp", expert_parallel_size=8)
    for one in (whole, dealt):
        held = one.sharded
        assert held.weights + held.gradients + held.optimizer == pytest.approx(30_532_122_624 * 8 / 8, rel=1e-3)


def test_the_fullest_stage_is_found_in_the_middle() -> None:
    """GLM-4.5-Air on 8 stages: 46 layers are 5 and 6; the middle stages have 6, none of them the first or last."""
    options = {"method": "full", "num_gpus": 8, "pipeline_parallel_size": 8, "gradient_accumulation_steps": 8}
    found = plan("zai-org/GLM-4.5-Air", **options)
    layers = load_model("zai-org/GLM-4.5-Air").spec.layers
    largest = max(sum(t.numel for t in layer.tensors(4096) if not t.buffer) for layer in layers)
    assert found.states.trained_numel >= 6 * largest


@pytest.mark.parametrize("sharding", ["fsdp", "fsdp2", "hsdp"])
@pytest.mark.parametrize("framework", ["trl", "torchtitan"])
def test_accumulating_never_takes_less(sharding: str, framework: str) -> None:
    options = {"method": "full", "framework": framework, "num_gpus": 8, "sharding": sharding}
    one, two = (plan(_DENSE, **options, gradient_accumulation_steps=steps) for steps in (1, 2))
    assert two.allocated_bytes >= one.allocated_bytes


def test_accelerate_accumulates_whole_gradients() -> None:
    """no_sync: 8.19e9 bf16 gradients on every GPU beside the next micro-batch."""
    options = {"method": "full", "framework": "trl", "num_gpus": 8, "sharding": "fsdp"}
    found = plan(_DENSE, **options, gradient_accumulation_steps=2)
    assert found.sharded.waiting == pytest.approx(8_190_735_360 * 2, rel=1e-3)


@pytest.mark.parametrize("every", [4, 12])
def test_a_longer_checkpoint_does_not_hold_more_gradients_under_fsdp(every: int) -> None:
    options = {
        "method": "full", "framework": "trl", "num_gpus": 16, "sharding": "fsdp", "max_seq_length": 512,
        "gradient_checkpointing": True,
    }  # fmt: skip
    one, many = plan(_DENSE, **options), plan(_DENSE, **options, checkpoint_every=every)
    layer = 192_946_432 * 2  # bytes of one layer's gradients
    assert many.allocated_bytes < one.allocated_bytes + layer


def test_more_gpus_never_need_more_under_zero1() -> None:
    options = {"method": "freeze", "gradient_checkpointing": True, "sharding": "zero1"}
    needs = [plan("zai-org/GLM-4.5-Air", **options, num_gpus=count).needed_best for count in (2, 3, 4, 8)]
    assert needs == sorted(needs, reverse=True)


def test_gradients_of_the_step_before() -> None:
    """8.19e9 bf16 gradients beside the forward, unless the loop sets them to None."""
    kept, dropped = (plan(_DENSE, method="full", keep_gradients=keep) for keep in (True, False))
    assert kept.phases[1].allocated_bytes - dropped.phases[1].allocated_bytes == pytest.approx(16.38e9, rel=1e-3)
    assert plan(_DENSE, method="full").allocated_bytes == kept.allocated_bytes
    assert any("--drop-gradients" in note for note in kept.notes)


@pytest.mark.parametrize(("options", "field"), [
    ({"method": 3}, "method"), ({"lora_rank": "x"}, "lora_rank"), ({"num_gpus": "2"}, "num_gpus"),
    ({"lora_target_modules": "all-linear"}, "lora_target_modules"), ({"gradient_checkpointing": "no"},
     "gradient_checkpointing"), ({"per_device_train_batch_size": 1.5}, "per_device_train_batch_size"),
])  # fmt: skip
def test_a_value_of_another_type_names_the_field(options: dict[str, object], field: str) -> None:
    with pytest.raises(UsageError) as caught:
        plan(_DENSE, **options)
    assert caught.value.field == field


@pytest.mark.parametrize("options", [
    {"method": "full", "framework": "litgpt", "max_seq_length": 1},
    {"method": "full", "framework": "torchtune", "max_seq_length": 1},
    {"method": "lora", "framework": "litgpt", "max_seq_length": 1},
    {"method": "prompt", "num_gpus": 2, "pipeline_parallel_size": 2},
    {"method": "prompt", "num_gpus": 4, "pipeline_parallel_size": 4},
])  # fmt: skip
def test_the_smallest_runs_are_planned(options: dict[str, object]) -> None:
    found = plan(_DENSE, **options)
    assert all(part.best >= 0 for part in found.components)
    assert found.allocated_bytes > 0
