"""The recipe of a fine-tune: every input declared once, under the trainers' own names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final

from annotated_types import Ge, Le

from planner.contract.inputs import option
from planner.training.choices import (
    AUTOCASTS,
    BATCH,
    DTYPES,
    EVALUATION,
    LOSSES,
    MANY,
    METHOD,
    METHODS,
    OBJECTIVES,
    PRECISION,
    QUANTISATIONS,
    RL,
    ROLLOUTS,
    SHARDINGS,
    VISION,
    read_attention,
    read_dtype,
    read_expandable,
    read_length,
    read_names,
)
from planner.training.reinforcement import Reinforcement

_PAIRS: Final = ("dpo", "orpo", "simpo", "cpo", "reward", "embedding")
_PACK_PAIRS: Final = ("swift", "megatron")  # chosen and rejected in one row of the length asked for
DEEPSPEED: Final = ("zero1", "zero2", "zero3")
_ADAPTERS: Final = ("lora", "qlora", "dora", "qdora", "rslora")
_MOST: Final = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe(Reinforcement):
    """A fine-tune. None means the framework's default.

    Args:
        method: what is trained: everything, adapters, adapters on a quantised base, the last layers, a prompt, or a few
            layers at a time (badam: one; lisa: two, with embeddings and head).
        objective: supervised, or a preference or reinforcement set-up with its further models.
        dtype: stored weights. autocast: what matrix operations compute in. master_weights: an fp32 copy in the
            optimizer. grad_dtype: of the gradients that are kept (None: the weights').
        loss: how logits become a loss: "hf" (whole, in fp32), "in-place" (gradient written over the logits),
            "chunked" (a part of the tokens at a time), "liger" and "cce" (never whole).
        keep_outputs: the model's output object, and with it the logits, lives through backward.
        dequantize: a quantised checkpoint's weights become `dtype` when they are loaded.
        lora_target_modules: names, or "all-linear"; () is the framework's choice.
        torch_compile: blocks and loss are compiled.
        transformers_version: of the stacks built on it; decides how logits are copied.
        framework_version: release of a framework that runs its own modules (None: the newest that is known).
        bitsandbytes_version: decides what a 4-bit layer keeps (None: the newest that is known).
        freeze_layers: layers from the bottom that are frozen (method "freeze").
        checkpoint_every: layers in one checkpointed segment.
        use_cache: keys and values are kept in a cache object while training (transformers does unless told).
        packing: rows are filled with sequences up to the length.
        padding: batches hold sequences of different lengths, so attention gets a mask (False: packed, or all full).
        reduce_bucket_size, overlap_comm, stage3_max_live_parameters, sub_group_size, pin_memory: of DeepSpeed's JSON
            (reduce_bucket_size None: the HF integration's "auto", hidden_size squared).
        offload_optimizer, offload_parameters: to host memory.
        keep_gradients: gradients of the step before lie beside the forward (a loop that sets them to zero, or that
            calls zero_grad after it).
        ema: a second copy of the trained weights.
        image_size, max_pixels: what a processor is given, and the limit it scales to.
        eval_samples, compute_metrics: an evaluation that keeps its logits on the card.
        generation_share: fraction of the card that a generation engine beside the trainer takes (PPO, GRPO).
    """

    method: Annotated[
        str,
        option(
            "What is trained: all, adapters, adapters on a 4-bit base, some layers.",
            panel=METHOD,
            choices=METHODS,
            ours=True,
            common=True,
        ),
    ] = "lora"
    objective: Annotated[
        str,
        option(
            "Supervised, preference, reinforcement, or without a vocabulary.",
            panel=METHOD,
            choices=OBJECTIVES,
            ours=True,
        ),
    ] = "sft"
    framework: Annotated[
        str, option("Stack whose defaults and kernels are planned.", panel=METHOD, ours=True, common=True)
    ] = "transformers"
    dtype: Annotated[
        str | None,
        option(
            "Stored weights: bfloat16, float16, float32.",
            "--dtype",
            "--torch-dtype",
            panel=PRECISION,
            read=read_dtype,
            common=True,
        ),
    ] = None
    autocast: Annotated[
        str | None,
        option("none, bf16 or fp16; HF: --bf16, --fp16.", panel=PRECISION, choices=tuple(AUTOCASTS), ours=True),
    ] = None
    master_weights: Annotated[
        str | None,
        option("none or fp32: a copy in the optimizer.", panel=PRECISION, choices=("none", "fp32"), ours=True),
    ] = None
    grad_dtype: Annotated[
        str | None,
        option(
            "Gradients that are kept: fp32, bf16 or fp16.",
            panel=PRECISION,
            choices=("fp32", "bf16", "fp16", *DTYPES),
            ours=True,
        ),
    ] = None
    base_quantization: Annotated[
        str | None,
        option(
            "What the frozen base is quantised to.",
            "--base-quantization",
            "--quantization-method",
            panel=PRECISION,
            choices=QUANTISATIONS,
            ours=True,
        ),
    ] = None
    dequantize: Annotated[
        bool, option("A quantised checkpoint becomes 16 bit on loading.", panel=PRECISION, ours=True)
    ] = False
    bnb_4bit_use_double_quant: Annotated[
        bool,
        option(
            "Scales quantised too.",
            "--bnb-4bit-use-double-quant",
            "--use-bnb-nested-quant",
            "--double-quantization",
            panel=PRECISION,
        ),
    ] = False
    prepare_kbit: Annotated[
        bool | None, option("PEFT's prepare_model_for_kbit_training.", panel=PRECISION, ours=True)
    ] = None
    optim: Annotated[
        str | None,
        option(
            "As the HF Trainer names them: adamw_torch, adamw_bnb_8bit, ...",
            "--optim",
            "--optimizer",
            panel=METHOD,
            common=True,
        ),
    ] = None
    per_device_train_batch_size: Annotated[
        int,
        Ge(1),
        Le(_MOST),
        option(
            "Sequences of a micro-batch.",
            "--per-device-train-batch-size",
            "-b",
            "--micro-batch-size",
            panel=BATCH,
            common=True,
        ),
    ] = 1
    gradient_accumulation_steps: Annotated[int, Ge(1), Le(_MOST), option("Micro-batches of a step.", panel=BATCH)] = 1
    max_seq_length: Annotated[
        int,
        Ge(1),
        Le(_MOST),
        option(
            "Tokens of a sequence; 4K is 4096; a distribution such as p50=600,p99=4000 plans its longest.",
            "--max-seq-length",
            "--max-target-length",
            "--max-length",
            "--cutoff-len",
            "--sequence-len",
            "--seq-length",
            panel=BATCH,
            read=read_length,
            unit="tokens",
            common=True,
        ),
    ] = 2048
    max_source_length: Annotated[
        int | None,
        Ge(1),
        Le(_MOST),
        option("Tokens of an encoder's source; left out: as long as the target.", panel=BATCH, unit="tokens"),
    ] = None
    gradient_checkpointing: Annotated[
        bool | None,
        option(
            "Run layers again in backward.",
            "--gradient-checkpointing",
            "--use-gradient-checkpointing",
            panel=BATCH,
            common=True,
        ),
    ] = None
    checkpoint_every: Annotated[
        int, Ge(1), Le(_MOST), option("Layers of one checkpointed segment.", panel=BATCH, ours=True)
    ] = 1
    activation_offload: Annotated[
        bool | None,
        option("Checkpointed inputs in host memory.", "--activation-offload", "--activation-offloading", panel=BATCH),
    ] = None
    attn_implementation: Annotated[
        str | None,
        option(
            "Attention: eager, sdpa, flash_attention_2, ...",
            "--attn-implementation",
            "--attn-impl",
            "--flash-attn",
            panel=BATCH,
            read=read_attention,
        ),
    ] = None
    loss: Annotated[
        str | None, option("hf, in-place, chunked, liger or cce.", panel=BATCH, choices=LOSSES, ours=True)
    ] = None
    keep_outputs: Annotated[
        bool | None,
        option("The outputs object lives through backward.", panel=BATCH, switched_off=("--drop-outputs",), ours=True),
    ] = None
    logits_to_keep: Annotated[
        int | None, Ge(1), Le(_MOST), option("Last positions whose logits are made.", panel=BATCH, ours=True)
    ] = None
    use_cache: Annotated[bool | None, option("Keep keys and values.", panel=BATCH, ours=True)] = None
    padding: Annotated[bool | None, option("Batches are padded: SDPA gets a mask.", panel=BATCH, ours=True)] = None
    packing: Annotated[bool | None, option("Sequences are packed into rows.", panel=BATCH)] = None
    lora_rank: Annotated[
        int | None,
        Ge(1),
        Le(_MOST),
        option("Rank of the adapters.", "--lora-r", "--lora-rank", panel=METHOD, common=True),
    ] = None
    lora_target_modules: Annotated[
        tuple[str, ...],
        option(
            "q_proj,v_proj, all-linear, or a regular expression.",
            "--lora-target-modules",
            "--lora-target",
            "--target-modules",
            panel=METHOD,
            read=read_names,
            common=True,
        ),
    ] = ()
    lora_dropout: Annotated[float | None, Ge(0), Le(0.999), option("On the adapters' input.", panel=METHOD)] = None
    adapter_dtype: Annotated[
        str | None, option("Type of the adapters (PEFT: float32).", panel=METHOD, read=read_dtype, ours=True)
    ] = None
    modules_to_save: Annotated[
        tuple[str, ...],
        option(
            "Modules trained in full beside the adapters.",
            "--modules-to-save",
            "--lora-modules-to-save",
            panel=METHOD,
            read=read_names,
        ),
    ] = ()
    prompt_tokens: Annotated[
        int,
        Ge(1),
        Le(_MOST),
        option("Virtual tokens (method prompt).", "--prompt-tokens", "--num-virtual-tokens", panel=METHOD, ours=True),
    ] = 20
    freeze_layers: Annotated[
        int | None, option("Layers frozen from the bottom (method freeze).", panel=METHOD, ours=True)
    ] = None
    torch_compile: Annotated[bool | None, option("Blocks and loss compiled.", panel=BATCH)] = None
    transformers_version: Annotated[
        str | None, option("Release of transformers below the stack.", panel=METHOD, ours=True)
    ] = None
    framework_version: Annotated[
        str | None, option("Release of a stack with modules of its own.", panel=METHOD, ours=True)
    ] = None
    bitsandbytes_version: Annotated[
        str | None, option("Release of bitsandbytes (before 0.43.2: inputs are kept).", panel=PRECISION, ours=True)
    ] = None
    optimizer_in_backward: Annotated[bool, option("Gradients are used at once.", panel=METHOD, ours=True)] = False
    optimizer_rank: Annotated[
        int,
        Ge(1),
        Le(_MOST),
        option(
            "Rank of GaLore and APOLLO.", "--optimizer-rank", "--galore-rank", "--apollo-rank", panel=METHOD, ours=True
        ),
    ] = 128
    keep_gradients: Annotated[
        bool | None,
        option(
            "Gradients of the step before lie beside the forward.",
            panel=METHOD,
            switched_off=("--drop-gradients",),
            ours=True,
        ),
    ] = None
    expandable_segments: Annotated[
        bool,
        option(
            "Allocator segments that grow (PYTORCH_ALLOC_CONF).",
            panel=BATCH,
            ours=True,
            environment={"PYTORCH_CUDA_ALLOC_CONF": read_expandable, "PYTORCH_ALLOC_CONF": read_expandable},
        ),
    ] = False
    ema: Annotated[bool, option("Keep an averaged copy.", panel=METHOD, ours=True)] = False
    num_gpus: Annotated[
        int,
        Ge(1),
        Le(_MOST),
        option(
            "All GPUs of the run.",
            "--num-gpus",
            "--num-processes",
            "--nproc-per-node",
            panel=MANY,
            ours=True,
            common=True,
        ),
    ] = 1
    sharding: Annotated[
        str | None, option("How states are divided.", panel=MANY, choices=SHARDINGS, ours=True, common=True)
    ] = None
    shard_group: Annotated[int | None, Ge(1), Le(_MOST), option("Ranks of a group (hsdp).", panel=MANY, ours=True)] = (
        None
    )
    tensor_parallel_size: Annotated[
        int,
        Ge(1),
        Le(_MOST),
        option(
            "GPUs that cut every matrix.", "--tensor-parallel-size", "-tp", "--tensor-model-parallel-size", panel=MANY
        ),
    ] = 1
    pipeline_parallel_size: Annotated[
        int,
        Ge(1),
        Le(_MOST),
        option("Pipeline stages.", "--pipeline-parallel-size", "-pp", "--pipeline-model-parallel-size", panel=MANY),
    ] = 1
    context_parallel_size: Annotated[
        int, Ge(1), Le(_MOST), option("GPUs that share a sequence.", "--context-parallel-size", "-cp", panel=MANY)
    ] = 1
    expert_parallel_size: Annotated[
        int,
        Ge(1),
        Le(_MOST),
        option(
            "GPUs that deal out experts.", "--expert-parallel-size", "-ep", "--expert-model-parallel-size", panel=MANY
        ),
    ] = 1
    sequence_parallel: Annotated[bool, option("Norms on parts of the sequence.", panel=MANY)] = False
    reduce_bucket_size: Annotated[
        int | None,
        Ge(1),
        Le(_MOST),
        option("DeepSpeed's; left out: HF's auto, hidden_size squared.", panel=MANY, ours=True),
    ] = None
    overlap_comm: Annotated[bool | None, option("DeepSpeed's: two buckets.", panel=MANY, ours=True)] = None
    stage3_max_live_parameters: Annotated[
        int, Ge(1), Le(_MOST), option("DeepSpeed's: gathered parameters at most.", panel=MANY, ours=True)
    ] = 1_000_000_000
    sub_group_size: Annotated[
        int, Ge(1), Le(_MOST), option("DeepSpeed's: elements of a step's part.", panel=MANY, ours=True)
    ] = 1_000_000_000
    pin_memory: Annotated[
        bool, option("Offloaded tensors are pinned (powers of two).", panel=MANY, memory="host", ours=True)
    ] = True
    offload_optimizer: Annotated[bool, option("Optimizer in host memory.", panel=MANY, ours=True)] = False
    offload_parameters: Annotated[
        bool, option("Weights in host memory.", "--offload-parameters", "--offload-param", panel=MANY, ours=True)
    ] = False
    generation_share: Annotated[
        float | None,
        Ge(0),
        Le(0.999),
        option(
            "Fraction of the card of a generation engine.",
            "--generation-share",
            "--vllm-gpu-memory-utilization",
            panel=RL,
        ),
    ] = None
    num_labels: Annotated[int, Ge(1), Le(_MOST), option("Classes of a classification or score head.", panel=METHOD)] = 2
    checkpoint_policy: Annotated[
        str,
        option(
            "What a checkpoint keeps: its input, or results of products too (torchtitan).",
            "--checkpoint-policy",
            "--activation-checkpoint-mode",
            panel=BATCH,
            choices=("full", "selective"),
            ours=True,
        ),
    ] = "full"
    max_completion_length: Annotated[
        int | None,
        Ge(1),
        Le(_MOST),
        option(
            "Generated tokens whose logits are made (GRPO, PPO).",
            "--max-completion-length",
            "--response-length",
            panel=RL,
        ),
    ] = None
    entropy_coeff: Annotated[float, Ge(0), option("Entropy in the loss: its softmax has a gradient.", panel=RL)] = 0.0
    vllm_mode: Annotated[
        str | None,
        option("Where the engine runs: none, colocate or server.", panel=RL, choices=("none", "colocate", "server")),
    ] = None
    vllm_enable_sleep_mode: Annotated[
        bool | None, option("The engine gives its memory back while training.", panel=RL)
    ] = None
    images_per_sample: Annotated[int, Ge(0), Le(_MOST), option("Images of a sequence.", panel=VISION, ours=True)] = 0
    image_size: Annotated[str | None, option("Width and height of an image: 1920x1080.", panel=VISION, ours=True)] = (
        None
    )
    max_pixels: Annotated[
        int | None,
        Ge(1),
        Le(_MOST),
        option("Pixels that a processor leaves of an image.", "--max-pixels", "--image-max-pixels", panel=VISION),
    ] = None
    freeze_vision_tower: Annotated[
        bool, option("The tower is not trained.", "--freeze-vision-tower", "--freeze-vit", panel=VISION)
    ] = True
    vit_gradient_checkpointing: Annotated[
        bool | None, option("The tower's layers run again in backward.", panel=VISION)
    ] = None
    eval_samples: Annotated[
        int, Ge(0), Le(_MOST), option("Samples of an evaluation (0: none is planned).", panel=EVALUATION, ours=True)
    ] = 0
    per_device_eval_batch_size: Annotated[
        int, Ge(1), Le(_MOST), option("Sequences of an evaluation batch.", panel=EVALUATION)
    ] = 8
    eval_accumulation_steps: Annotated[
        int | None, Ge(1), Le(_MOST), option("Batches after which kept logits go to the host.", panel=EVALUATION)
    ] = None
    compute_metrics: Annotated[
        bool, option("Logits of every batch are kept for the metrics.", panel=EVALUATION, ours=True)
    ] = False

    @property
    def has_logits(self) -> bool:
        """The vocabulary's matrix is in the model, and its logits in the loss."""
        return self.objective not in ("classification", "embedding", "reranker", "reward")

    @property
    def rolls_out(self) -> bool:
        """Completions are generated between updates."""
        return self.objective in ROLLOUTS

    @property
    def scores(self) -> int:
        """Rows of the head that takes the vocabulary's place."""
        return self.num_labels if self.objective == "classification" else 1

    @property
    def adapters(self) -> bool:
        """Low-rank adapters are trained beside a frozen base."""
        return self.method in _ADAPTERS

    @property
    def tokens(self) -> int:
        """Tokens of one micro-batch on one GPU, padding included."""
        return self.sequences * self.max_seq_length

    @property
    def sequences(self) -> int:
        """Sequences of one micro-batch; preference pairs count twice, but where a packed row holds both.

        Source: ms-swift 4 template/base.py encode: a row's length is the sum of chosen and rejected.
        """
        packed = self.packing and self.framework in _PACK_PAIRS
        return self.per_device_train_batch_size * (2 if self.objective in _PAIRS and not packed else 1)
