"""`train` takes what trainers take, and prints a command that means the same."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.cli.train import _RECORDS
from planner.contract.inputs import inputs_of
from planner.contract.parser import parse
from planner.errors import UsageError
from planner.training.recipe import Recipe
from planner.training.trainer_words import TrainerWords, command, recipe_of_words, without_launcher


def recipe(*words: str) -> Recipe:
    parsed = parse(_RECORDS, without_launcher(words))
    names = {one.name for one in inputs_of(Recipe)}
    given = {name: value for name, value in parsed.given.items() if name in names}
    return Recipe(**recipe_of_words(parsed.record(TrainerWords), given))


@pytest.mark.parametrize(("words", "values"), [
    ("--per_device_train_batch_size 2 --bf16 True --gradient_checkpointing True --lora_r 16 --use_liger_kernel True",
     {"per_device_train_batch_size": 2, "autocast": "bf16", "gradient_checkpointing": True, "lora_rank": 16,
      "loss": "liger"}),
    ("--load_in_4bit", {"method": "qlora"}),
    ("--quantization_bit 4 --finetuning_type lora", {"method": "qlora"}),
    ("--fsdp 'full_shard auto_wrap offload' --num_processes 4",
     {"sharding": "fsdp", "offload_parameters": True, "num_gpus": 4}),
    ("--cutoff_len 4096 --packing --lora_target all --stage dpo",
     {"max_seq_length": 4096, "packing": True, "lora_target_modules": ("all-linear",), "objective": "dpo"}),
    ("--max-length p50=600,p99=4000", {"max_seq_length": 4000}),
    ("accelerate launch --num_processes 8 --use_deepspeed --zero_stage 2 train.py --torch_dtype bf16",
     {"num_gpus": 8, "sharding": "zero2", "dtype": "bfloat16"}),
    ("--flash_attn fa2 --micro-batch-size 4 --optimizer adamw_8bit",
     {"attn_implementation": "flash_attention_2", "per_device_train_batch_size": 4, "optim": "adamw_8bit"}),
])  # fmt: skip
def test_words_of_trainers(words: str, values: dict[str, object]) -> None:
    import shlex

    found = recipe(*shlex.split(words))
    assert {name: getattr(found, name) for name in values} == values


def test_a_deepspeed_file(tmp_path: Path) -> None:
    zero = {"stage": 3, "reduce_bucket_size": "auto", "overlap_comm": True, "sub_group_size": 1e9,
            "offload_optimizer": {"device": "cpu", "pin_memory": True}}  # fmt: skip
    path = tmp_path / "ds.json"
    path.write_text(json.dumps({"zero_optimization": zero}))
    found = recipe("--deepspeed", str(path))
    assert (found.sharding, found.reduce_bucket_size, found.offload_optimizer) == ("zero3", None, True)
    path.write_text("[1, 2")
    with pytest.raises(UsageError, match="JSON"):
        recipe("--deepspeed", str(path))


def test_two_words_that_differ() -> None:
    with pytest.raises(UsageError, match="twice"):
        recipe("--method", "full", "--load_in_4bit", "--finetuning_type", "lora")


recipes = st.builds(
    Recipe,
    method=st.sampled_from(["lora", "qlora", "full", "dora", "freeze"]),
    dtype=st.sampled_from([None, "bfloat16", "float32"]),
    autocast=st.sampled_from([None, "none", "bf16", "fp16"]),
    loss=st.sampled_from([None, "hf", "liger", "chunked"]),
    per_device_train_batch_size=st.integers(1, 64),
    max_seq_length=st.sampled_from([512, 2048, 8192]),
    gradient_checkpointing=st.sampled_from([None, True, False]),
    lora_rank=st.sampled_from([None, 8, 64]),
    lora_target_modules=st.sampled_from([(), ("all-linear",), ("q_proj", "v_proj"), (".*layers.*q_proj",)]),
    num_gpus=st.sampled_from([1, 8]),
    sharding=st.sampled_from([None, "zero1", "zero3", "fsdp", "fsdp2"]),
    offload_parameters=st.booleans(),
    padding=st.sampled_from([None, False, True]),
    optim=st.sampled_from([None, "adamw_torch", "paged_adamw_8bit"]),
    pin_memory=st.booleans(),
)


@settings(max_examples=150, deadline=None)
@given(recipes)
def test_the_printed_command_means_the_recipe(asked: Recipe) -> None:
    if asked.num_gpus == 1 and asked.sharding in ("zero1", "zero3"):
        return  # no launcher says so, and the plan refuses it
    assert recipe(*command("Qwen/Qwen2.5-7B", asked)) == asked
