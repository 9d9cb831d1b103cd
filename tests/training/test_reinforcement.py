"""Reinforcement learning and pictures in whole plans: phases, engines, towers; and advice in a practitioner's order."""

from __future__ import annotations

import pytest

from planner.errors import UsageError
from planner.hardware.gpus import find_gpu
from planner.levers.training import TrainingQuestion, training_levers
from planner.model.load import load_model
from planner.training.plan import TrainingPlan, plan_training
from planner.training.recipe import Recipe, resolve
from planner.training.states.trainable import inventory
from planner.training.step.segments import Segments
from planner.units import GIB


def plan(name: str, gpu: str = "H200", **options: object) -> TrainingPlan:
    return plan_training(load_model(name), Recipe(**options), find_gpu(gpu), replays=False)  # type: ignore[arg-type]


def part(found: TrainingPlan, name: str) -> int:
    return sum(one.best for one in found.components if one.name == name)


_GRPO: dict[str, object] = {"objective": "grpo", "framework": "trl", "method": "lora", "loss": "hf",
                            "max_completion_length": 1024, "max_seq_length": 2048}  # fmt: skip


def test_an_engine_beside_asleep_and_elsewhere() -> None:
    beside = plan("Qwen/Qwen2.5-7B", generation_share=0.3, vllm_mode="colocate", **_GRPO)
    assert part(beside, "generation_engine") == int(beside.gpu_memory_bytes * 0.3)
    elsewhere = plan("Qwen/Qwen2.5-7B", vllm_mode="server", **_GRPO)
    assert part(elsewhere, "generation_engine") == 0
    asleep = plan("Qwen/Qwen2.5-7B", generation_share=0.3, vllm_enable_sleep_mode=True, **_GRPO)
    assert part(asleep, "generation_engine") < part(beside, "generation_engine")


@pytest.mark.parametrize(("framework", "entropy", "bytes_a_logit"), [
    ("trl", 0.0, 8.1), ("verl", 0.0, 8.3), ("verl", 0.001, 14.4), ("openrlhf", 0.0, 8.4),
])  # fmt: skip
def test_the_head_of_every_stack(framework: str, entropy: float, bytes_a_logit: float) -> None:
    """Two lengths apart: what a token's 152,064 logits cost at their peak."""
    options: dict[str, object] = {"objective": "grpo", "framework": framework, "method": "lora", "dtype": "bfloat16",
                                  "autocast": "none", "loss": "hf", "entropy_coeff": entropy}  # fmt: skip
    peaks = []
    for tokens in (4096, 8192):
        sizes = {"max_seq_length": tokens, "max_completion_length": tokens}
        step = plan("Qwen/Qwen2.5-7B", **options, **sizes).step
        peaks.append(next(p.activation_bytes for p in step.phases if p.name == "loss backward") - step.saved_bytes)
    assert (peaks[1] - peaks[0]) / 4096 / 152_064 == pytest.approx(bytes_a_logit, abs=0.2)


def test_a_picture_in_a_tower_that_is_trained_checkpointed_or_outside() -> None:
    """One image of 5,120 patches in Qwen2.5-VL: 10.05 GiB trained, 0.39 checkpointed inside the graph, 0 outside."""
    options: dict[str, object] = {"images_per_sample": 1, "image_size": "896x1120", "max_seq_length": 2048}
    pixels = 5120 * 1176 * 4

    def saved(**more: object) -> float:
        text = plan("Qwen/Qwen2.5-VL-7B-Instruct", max_seq_length=2048, **more).step.saved_bytes
        return (plan("Qwen/Qwen2.5-VL-7B-Instruct", **options, **more).step.saved_bytes - text - pixels) / GIB

    assert saved(method="full", freeze_vision_tower=False) == pytest.approx(10.05, abs=0.01)
    assert saved(method="lora", gradient_checkpointing=True) == pytest.approx(0.39, abs=0.01)
    assert saved(method="lora", gradient_checkpointing=True, transformers_version="4.57") == 0
    assert saved(method="lora") == 0


def test_an_evaluation_that_keeps_its_logits() -> None:
    """200 x 2,048 x 128,256 x 4 B = 195.7 GiB."""
    kept = plan("meta-llama/Llama-3.1-8B", eval_samples=200, compute_metrics=True)
    assert kept.peak_phase == "evaluation" and kept.verdict == "does_not_fit"
    plain = plan("meta-llama/Llama-3.1-8B", eval_samples=200)
    assert next(one.allocated_bytes for one in kept.phases if one.name == "evaluation") - next(
        one.allocated_bytes for one in plain.phases if one.name == "evaluation"
    ) == 210_134_630_400  # fmt: skip


def test_selective_checkpoints_keep_products() -> None:
    """Llama-3-8B, 8,192 tokens: 63,616 B a token and layer against 8,192 of the input alone."""
    options: dict[str, object] = {"framework": "torchtitan", "method": "full", "max_seq_length": 8192}
    full, some = (
        plan("meta-llama/Meta-Llama-3-8B", checkpoint_policy=policy, **options) for policy in ("full", "selective")
    )
    assert some.step.saved_bytes - full.step.saved_bytes == 16_676_552_704 - 2_147_483_648


@pytest.mark.parametrize(("name", "options"), [
    ("meta-llama/Llama-3.1-8B", {"method": "lora", "per_device_train_batch_size": 4, "max_seq_length": 4096}),
    ("Qwen/Qwen2.5-7B", {"method": "full", "attn_implementation": "eager"}),
])  # fmt: skip
def test_advice_comes_in_a_practitioners_order(name: str, options: dict[str, object]) -> None:
    question = TrainingQuestion(model=load_model(name), recipe=Recipe(**options), gpu=find_gpu("4090"))  # type: ignore[arg-type]
    names = [lever.kind.name for lever in training_levers(question.ask({}))]
    assert names.index("gradient-checkpointing") < names.index("per-device-train-batch-size") if (
        "per-device-train-batch-size" in names) else names  # fmt: skip
    assert names.index("gradient-checkpointing") < names.index("num-gpus") < names.index("max-seq-length")
    assert names[-1] == "max-seq-length"


def phases(found: TrainingPlan) -> dict[str, int]:
    return {phase.name: phase.allocated_bytes for phase in found.phases}


def test_a_rollout_shows_its_phases_and_which_decides() -> None:
    """TRL's beta is 0 unless given: no reference. With 0.04 a full fine-tune keeps one, 7,615,616,512 x 2 B."""
    options: dict[str, object] = {**_GRPO, "method": "full", "max_prompt_length": 512, "vllm_mode": "colocate",
                                  "generation_share": 0.3, "vllm_enable_sleep_mode": True}  # fmt: skip
    options.pop("max_seq_length")
    without, reference = (plan("Qwen/Qwen2.5-7B", beta=beta, **options) for beta in (None, 0.04))
    assert without.recipe.max_seq_length == 512 + 1024
    assert [name for name in phases(without)][1:3] == ["rollout", "log-probabilities"]
    assert phases(reference)["rollout"] - phases(without)["rollout"] == 7_615_616_512 * 2
    by_name = {phase.name: phase.engine_bytes for phase in reference.phases}
    assert by_name["rollout"] == int(reference.gpu_memory_bytes * 0.3) and by_name["optimizer step"] == 0
    assert reference.peak_phase == "rollout"


def test_log_probabilities_take_micro_batches_of_their_own() -> None:
    """verl: 2.1 B for each of 1 or 8 sequences x 2,048 tokens x 152,064 entries."""
    sizes = [
        phases(plan("Qwen/Qwen2.5-7B", objective="grpo", framework="verl", method="full", num_gpus=8,
                    per_device_train_batch_size=8, log_prob_micro_batch_size=rows))["log-probabilities"]
        for rows in (1, 8)
    ]  # fmt: skip
    assert sizes[1] - sizes[0] >= 7 * 2048 * 152_064 * 2.1


def test_models_of_other_sizes_stand_beside_the_policy() -> None:
    """A reward model of 0.5B, 494,032,768 x 2 B, and a trained value model of that size: 2 B and 14 / 8 B."""
    found = plan("Qwen/Qwen2.5-7B", objective="ppo", method="full", framework="trl", num_gpus=8, sharding="zero2",
                 reward_model="Qwen/Qwen2.5-0.5B", critic_model="Qwen/Qwen2.5-0.5B")  # fmt: skip
    small = 494_032_768
    assert part(found, "other_models") == 7_615_616_512 * 2 + small * 2 + small * 2 + small * 14 // 8
    teacher = plan("Qwen/Qwen2.5-0.5B", objective="distillation", method="full", teacher_model="Qwen/Qwen2.5-7B")
    assert part(teacher, "other_models") == 7_615_616_512 * 2
    with pytest.raises(UsageError, match="--teacher-model"):
        plan("Qwen/Qwen2.5-0.5B", objective="distillation", method="full")


def test_groups_of_completions_are_whole() -> None:
    with pytest.raises(UsageError, match="--num-generations 8 does not divide the 4 sequences"):
        plan_training(load_model("Qwen/Qwen2.5-0.5B"), Recipe(objective="grpo", framework="trl", num_generations=8,
                      per_device_train_batch_size=4), find_gpu("H200"))  # fmt: skip


def test_a_packed_row_of_ms_swift_holds_both_of_a_pair() -> None:
    packed, apart = (
        Recipe(objective="dpo", framework="swift", max_seq_length=8192, packing=packing) for packing in (True, None)
    )
    assert (packed.tokens, apart.tokens) == (8192, 16_384)


def test_megatron_divides_the_optimizer_alone() -> None:
    """2 B weights and 4 B gradients a parameter whole, 12 B over 4 ranks; nothing of DeepSpeed's buffers."""
    found = plan("Qwen/Qwen2.5-7B", method="full", framework="megatron", num_gpus=4, sharding="zero1")
    held, numel = found.sharded, found.states.trained_numel
    assert (held.gradients, held.buckets, held.step_temporary) == (4 * numel, 0, 0)
    assert held.optimizer == pytest.approx(12 * numel / 4, rel=1e-3)


def test_masked_language_models_make_all_logits() -> None:
    found = plan("google-bert/bert-base-uncased", objective="mlm", method="full", dtype="float32",
                 per_device_train_batch_size=8, max_seq_length=128)  # fmt: skip
    assert found.step.vocabulary == 30_522 and found.allocated_bytes < 5 * GIB
    with pytest.raises(UsageError, match="decoder"):
        plan("Qwen/Qwen2.5-0.5B", objective="mlm", method="full")


def tower_bytes(name: str, **options: object) -> int:
    """What two images of 1,024 x 768 leave in a step beside the pixels."""
    more: dict[str, object] = {"max_seq_length": 2048, "method": "full", "freeze_vision_tower": False, **options}
    text, seen = (plan(name, images_per_sample=images, image_size="1024x768", **more) for images in (0, 2))
    return seen.step.saved_bytes - text.step.saved_bytes


def test_a_tower_inside_another_class_is_told_by_its_gate() -> None:
    """Pixtral's in LLaVA's class: 64 x 48 patches of (24 h + 8 f + 4 nh + 8) B, h 1024, f 4096, 16 heads, 24 layers."""
    block = 24 * 1024 + 8 * 4096 + 4 * 16 + 8
    assert tower_bytes("mistral-community/pixtral-12b") == 2 * 64 * 48 * (block * 24 + 3 * 2 * 14 * 14 * 4)


@pytest.mark.parametrize("name", ["google/gemma-4-E4B-it", "zai-org/GLM-4.1V-9B-Thinking", "OpenGVLab/InternVL3-8B"])
def test_a_tower_without_a_row_is_run_on_the_tape(name: str) -> None:
    trained, again = (tower_bytes(name, gradient_checkpointing=on) for on in (False, True))
    assert trained > 2 * again > 0


def test_the_tape_keeps_of_a_tower_what_was_measured() -> None:
    """SigLIP's layer: 16 h + 4 f + 4 nh + 8 trained, 12 h + 2 f + 4 nh + 8 frozen, and 8 B more of fp32 statistics."""
    model = load_model("google/gemma-3-4b-it")
    recipe = resolve(Recipe(method="full", padding=False))
    run = Segments(model, inventory(model, recipe), recipe, exact_sizes=True)
    stack = next(one for one in model.spec.stacks if one.name == "vision")
    h, f, nh = 1152, 4304, 16
    assert run._taped(stack, trained=True) == 16 * h + 4 * f + 4 * nh + 8 + 8
    assert run._taped(stack, trained=False) == 12 * h + 2 * f + 4 * nh + 8 + 8


def test_megatron_deals_experts_over_tensor_ranks() -> None:
    """Tensor parallel 2, experts over all 8 GPUs: each holds 16 of 128 whole experts, 3 x 768 x 2,048 in 48 layers."""
    found = plan("Qwen/Qwen3-30B-A3B", framework="megatron", method="full", num_gpus=8, tensor_parallel_size=2,
                 expert_parallel_size=8, sharding="zero1")  # fmt: skip
    experts = 16 * 3 * 768 * 2048 * 48
    assert experts < found.states.trained_numel < experts + 1_600_000_000
