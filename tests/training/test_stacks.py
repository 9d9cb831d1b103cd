"""What stacks, releases, quantisers and optimizers let be trained, and what they keep."""

from __future__ import annotations

from pathlib import Path

import pytest

from planner.errors import PlannerError, UsageError
from planner.hardware.gpus import find_gpu
from planner.model.load import load_model
from planner.model.model import Model
from planner.training.plan import TrainingPlan, plan_training
from planner.training.recipe import Recipe, resolve
from planner.training.stacks.quantisers import quantisers
from planner.training.states.optimizers import optimizer
from planner.training.states.trainable import inventory
from planner.units import GIB

_CONFIGS = Path(__file__).parents[2] / "model_configs"


def plan(name: str, gpu: str = "H200", **options: object) -> TrainingPlan:
    return plan_training(load_model(name), Recipe(**options), find_gpu(gpu))  # type: ignore[arg-type]


def models() -> list[Model]:
    found = []
    for path in sorted(_CONFIGS.glob("*.json")):
        try:
            found.append(load_model(path.stem.replace("--", "/")))
        except PlannerError:
            continue
    return found


def test_logits_have_tokens_times_vocabulary_elements() -> None:
    """Over every bundled model: the output matrix is vocabulary x hidden, however heads name their parts."""
    checked = 0
    for model in models():
        spec = model.spec
        if not spec.embeddings:
            continue
        try:
            found = inventory(model, resolve(Recipe(method="inference")))
        except PlannerError:
            continue
        if found.output is None:
            assert not spec.tie_word_embeddings
            continue
        assert found.output.numel == found.output.shape[0] * found.output.shape[1]
        assert found.output.shape[0] >= spec.vocab_size, spec.model_type
        checked += 1
    assert checked > 150


def test_a_masked_language_model_in_full() -> None:
    """bert-base, 8 x 128 in fp32: states 16 B x 109,514,298 are 1.63 GiB; a copy of the logits 125,018,112 B."""
    result = plan("google-bert/bert-base-uncased", method="full", dtype="float32", per_device_train_batch_size=8,
                  max_seq_length=128)  # fmt: skip
    assert result.states.trained_numel == 109_514_298
    assert result.allocated_bytes < 5 * GIB
    assert 125_018_112 <= result.step.logits_bytes <= 4 * 125_018_112


def test_default_adapters_find_their_targets_in_bert() -> None:
    assert plan("google-bert/bert-base-uncased", method="lora", max_seq_length=128).states.trained_numel > 0


@pytest.mark.parametrize(("name", "dequantised_gib"), [("openai/gpt-oss-20b", 38.96), ("Qwen/Qwen3-30B-A3B-FP8", 56.9)])
def test_a_quantiser_that_cannot_train(name: str, dequantised_gib: float) -> None:
    options: dict[str, object] = {"method": "lora", "max_seq_length": 1024, "gradient_checkpointing": True}
    with pytest.raises(UsageError, match="--dequantize"):
        plan(name, **options)
    result = plan(name, dequantize=True, **options)
    assert result.sharded.weights / GIB == pytest.approx(dequantised_gib, abs=0.1)


@pytest.mark.parametrize(("name", "options", "field"), [
    ("Qwen/Qwen2.5-7B-Instruct-AWQ", {"base_quantization": "none"}, "base_quantization"),
    ("Qwen/Qwen2.5-7B-Instruct-AWQ", {"dequantize": True}, "dequantize"),
    ("Qwen/Qwen2.5-7B", {"dequantize": True}, "dequantize"),
    ("nvidia/Gemma-4-31B-IT-NVFP4", {}, "method"),
])  # fmt: skip
def test_what_a_quantised_checkpoint_refuses(name: str, options: dict[str, object], field: str) -> None:
    with pytest.raises(UsageError) as caught:
        plan(name, **options)
    assert caught.value.field == field


def test_every_quantiser_says_whether_it_trains() -> None:
    transformers = pytest.importorskip("transformers.quantizers.auto")
    names = set(transformers.AUTO_QUANTIZER_MAPPING) - {"bitsandbytes_4bit", "bitsandbytes_8bit"}
    unstated = {"fouroversix", "metal", "sinq", "gemma"}  # on the fly, or on other hardware
    assert names - unstated <= set(quantisers())


def test_every_optimizer_of_the_trainer_is_modelled_or_refused_as_such() -> None:
    arguments = pytest.importorskip("transformers.training_args")
    refused = []
    for name in (one.value for one in arguments.OptimizerNames):
        try:
            optimizer(name)
        except UsageError as error:
            assert "not modelled" in str(error)
            refused.append(name)
    assert refused == ["adamw_torch_xla", "adamw_torch_npu_fused"]


@pytest.mark.parametrize(("name", "bytes_a_parameter"), [
    ("schedule_free_adamw", 4), ("ademamix", 12), ("grokadamw", 6), ("rmsprop_bnb", 4), ("schedule_free_sgd", 2),
])  # fmt: skip
def test_states_of_further_optimizers(name: str, bytes_a_parameter: int) -> None:
    assert sum(optimizer(name).state_tensors((4096, 4096), 2)) == bytes_a_parameter * 4096 * 4096


@pytest.mark.parametrize(
    ("method", "trained"), [("badam", 218_112_000), ("lisa", 2 * 218_112_000 + 2 * 525_336_576 + 4096)]
)
def test_methods_that_train_some_layers_at_a_time(method: str, trained: int) -> None:
    """A layer of Llama-3.1-8B has 218,112,000 parameters; embedding and head 525,336,576 each, the last norm 4,096."""
    assert plan("meta-llama/Llama-3.1-8B", method=method).states.trained_numel == trained


def test_an_early_bitsandbytes_keeps_the_inputs_of_quantised_layers() -> None:
    """Llama-2-7B, 1 x 512: q, k, v 4096 + o 4096 + gate and up 4096 + down 11008 elements of 2 B a token and layer."""
    options = {"method": "qlora", "framework": "litgpt", "max_seq_length": 512, "lora_rank": 8}
    new = plan("meta-llama/Llama-2-7b-hf", bitsandbytes_version="0.43.2", **options)
    old = plan("meta-llama/Llama-2-7b-hf", bitsandbytes_version="0.43.1", **options)
    grown = old.step.saved_bytes - new.step.saved_bytes
    assert grown == 512 * 32 * 2 * (4096 + 4096 + 4096 + 11008)


def test_an_early_bitsandbytes_under_a_checkpoint_that_is_not_reentrant() -> None:
    options = {"method": "qlora", "base_quantization": "nf4", "prepare_kbit": False, "gradient_checkpointing": True}
    new, old = (plan("Qwen/Qwen2.5-7B", bitsandbytes_version=version, **options) for version in ("0.45", "0.42"))
    assert old.step.saved_bytes > 4 * new.step.saved_bytes


@pytest.mark.parametrize(("options", "field"), [
    ({"framework": "trl", "framework_version": "99.0"}, "framework_version"),
    ({"framework": "torchtune", "framework_version": "99.0"}, "framework_version"),
    ({"transformers_version": "99.0"}, "transformers_version"),
    ({"bitsandbytes_version": "banana"}, "bitsandbytes_version"),
])  # fmt: skip
def test_releases_that_change_nothing_are_refused(options: dict[str, object], field: str) -> None:
    with pytest.raises(UsageError) as caught:
        plan("Qwen/Qwen2.5-7B", **options)
    assert caught.value.field == field


def test_torchtune_before_chunked_losses() -> None:
    """8B LoRA at 8192 ran out of 24 GB with the defaults of torchtune 0.1."""
    old = plan("meta-llama/Meta-Llama-3-8B", "4090", framework="torchtune", framework_version="0.1", method="lora",
               max_seq_length=8192)  # fmt: skip
    assert old.recipe.loss == "hf" and not old.recipe.torch_compile
    assert old.verdict == "does_not_fit"


def test_an_offloaded_load_peaks_on_the_host() -> None:
    result = plan("meta-llama/Llama-2-70b-hf", "4090", method="qlora", num_gpus=2, sharding="fsdp",
                  offload_parameters=True, gradient_checkpointing=True)  # fmt: skip
    loading = next(phase for phase in result.phases if phase.name == "loading")
    assert loading.allocated_bytes < 4 * GIB


def test_a_bare_qlora_hears_of_prepare_kbit() -> None:
    bare = plan("meta-llama/Llama-3.1-8B", method="qlora", base_quantization="nf4", prepare_kbit=False)
    assert any("--prepare-kbit" in note for note in bare.notes)
