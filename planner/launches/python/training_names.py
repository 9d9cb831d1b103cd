"""Names of transformers', TRL's, PEFT's and Unsloth's calls and of their arguments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from planner.launches.trainers.arguments import MEMORY_FIELDS

if TYPE_CHECKING:
    pass


# Calls that make a run, by last name; "support" alone is none.
TRAINING: Final = {
    **dict.fromkeys(
        (
            "TrainingArguments",
            "Seq2SeqTrainingArguments",
            "SFTConfig",
            "DPOConfig",
            "GRPOConfig",
            "KTOConfig",
            "ORPOConfig",
            "CPOConfig",
            "RewardConfig",
            "PPOConfig",
            "RLOOConfig",
            "UnslothTrainingArguments",
        ),
        "config",
    ),
    **dict.fromkeys(
        (
            "Trainer",
            "Seq2SeqTrainer",
            "SFTTrainer",
            "DPOTrainer",
            "GRPOTrainer",
            "KTOTrainer",
            "ORPOTrainer",
            "CPOTrainer",
            "RewardTrainer",
            "PPOTrainer",
            "RLOOTrainer",
            "UnslothTrainer",
        ),
        "trainer",
    ),
    "LoraConfig": "lora",
    "get_peft_model": "support",
    "BitsAndBytesConfig": "support",
    "from_pretrained": "support",
    "prepare_model_for_kbit_training": "support",
    "add_adapter": "support",
}


OBJECTIVE: Final = {
    "SFT": "sft",
    "DPO": "dpo",
    "GRPO": "grpo",
    "KTO": "kto",
    "ORPO": "orpo",
    "CPO": "orpo",
    "Reward": "reward",
    "PPO": "ppo",
    "RLOO": "grpo",
}


UNSLOTH: Final = ("FastLanguageModel", "FastModel", "FastVisionModel")


CAUSAL: Final = (
    "AutoModelFor",
    "ForCausalLM",
    "ForConditionalGeneration",
    "ForSequenceClassification",
    "AutoModel",
    "AutoLigerKernel",
)


LORA: Final = {
    "r": "lora_r",
    "lora_dropout": "lora_dropout",
    "target_modules": "lora_target_modules",
    "modules_to_save": "modules_to_save",
    "use_dora": "use_dora",
    "use_rslora": "use_rslora",
}


BITS: Final = ("load_in_4bit", "load_in_8bit", "bnb_4bit_quant_type", "bnb_4bit_use_double_quant")


CONFIG_FIELDS: Final = MEMORY_FIELDS | {
    "fsdp_config",
    "torch_compile",
    "activation_offloading",
    "vllm_gpu_memory_utilization",
    "beta",
    "num_generations",
    "use_liger_loss",
    "max_seq_length",
    "max_length",
}


NAMES: Final = {"r": "lora rank", "target_modules": "target_modules"}
