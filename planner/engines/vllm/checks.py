"""What an engine refuses before it looks at memory, and values of options that make no plan.

Sources: vLLM 0.19.0 `config/lora.py` (ranks), `engine/arg_utils.py` 0.4 to 0.8 and `config/cache.py` from 0.9 (choices
of --block-size), `v1/attention/backends` (block sizes of the kernels), `config/cache.py` (state types),
`config/model.py` verify_with_parallel_config and `config/parallel.py` (decode context parallel), `platforms/cuda.py`
(bfloat16).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from planner.contract.inputs import input_named
from planner.engines.vllm.json_inputs import draft_tokens_of
from planner.engines.vllm.tables.profile import parse_version
from planner.errors import UsageError
from planner.model.caches import CrossCache, KeyValueCache
from planner.model.kinds.attention import Attention
from planner.model.model import Model

if TYPE_CHECKING:
    from planner.engines.vllm.deployment import Deployment

_LORA_RANKS: Final = (1, 8, 16, 32, 64, 128, 256, 320, 512)


def check_together(deployment: Deployment) -> None:
    """Pairs of options that contradict each other, and values that only some others allow.

    Raises:
        UsageError: names the option, its value and what it may be.
    """
    if deployment.max_model_len == 0:
        raise UsageError("--max-model-len is 0; expected 1 or more, or -1 for what fits", field="max_model_len")
    counted, config = deployment.num_speculative_tokens, deployment.speculative_config
    if counted and config is not None and counted != draft_tokens_of(config):
        raise UsageError(
            "--num-speculative-tokens and --speculative-config say different numbers of tokens; give the second",
            field="num_speculative_tokens",
        )
    if deployment.lora_slots and deployment.max_lora_rank not in _LORA_RANKS:
        ranks = ", ".join(str(rank) for rank in _LORA_RANKS)
        raise UsageError(f"--max-lora-rank is {deployment.max_lora_rank}; vLLM takes {ranks}", field="max_lora_rank")
    if deployment.quantization is None and (deployment.group_size is not None or deployment.quantize_lm_head):
        name = "group_size" if deployment.group_size is not None else "quantize_lm_head"
        option = input_named(type(deployment), name).spelling
        raise UsageError(f"{option} describes an export; name it with --quantization", field=name)


# Choices of --block-size from a version on; from 0.18 on the parser takes every whole number.
_BLOCK_CHOICES: Final = (
    ((0, 18, 0), ()),
    ((0, 11, 0), (1, 8, 16, 32, 64, 128, 256)),
    ((0, 9, 0), (1, 8, 16, 32, 64, 128)),
    ((0, 6, 5), (8, 16, 32, 64, 128)),
    ((0, 0, 0), (8, 16, 32)),
)
# FlashAttention and Triton take multiples of 16, FlashInfer some of them; V0's paged attention stops at 32.
_KERNEL_BLOCK: Final = 16
_V0_LARGEST_BLOCK: Final = 32


def check_block_size(model: Model, deployment: Deployment, *, runner: str) -> None:
    """The engine's argument parser knows the block size, and its attention kernels on NVIDIA cards do.

    Args:
        runner: "v0" or another, of the profile.

    Raises:
        UsageError: with the parser's text, or what the kernels take.
    """
    size = deployment.block_size
    if size is None:
        return
    version = parse_version(deployment.engine_version)
    choices = next(sizes for first, sizes in _BLOCK_CHOICES if version >= first)
    if choices and size not in choices:
        listed = ", ".join(str(choice) for choice in choices)
        raise UsageError(
            f"argument --block-size: invalid choice: {size} (vLLM {deployment.engine_version}: choose from {listed})",
            field="block_size",
        )
    card = deployment.gpu
    if (card is not None and card.vendor not in (None, "", "NVIDIA")) or model.is_recurrent:
        return  # other kernels; recurrent layers have the block size raised
    if runner == "v0" and size > _V0_LARGEST_BLOCK and not model.has_latent_cache:
        raise UsageError(
            f"--block-size {size}: CUDA Paged Attention kernel only supports block sizes up to {_V0_LARGEST_BLOCK}",
            field="block_size",
        )
    if runner != "v0" and size % _KERNEL_BLOCK:
        raise UsageError(
            f"--block-size {size}: vLLM's attention kernels on NVIDIA cards take multiples of {_KERNEL_BLOCK}",
            field="block_size",
        )


def check_capability(model: Model, deployment: Deployment) -> None:
    """The card's compute capability is enough for how the weights are stored.

    Raises:
        UsageError: vLLM refuses the method on so old a card.
    """
    card, config = deployment.gpu, model.spec.quantization_config
    name = config.get("quant_method") if config is not None else deployment.quantization
    if not isinstance(name, str) or card is None or card.capability is None:
        return
    # plain models need not read the table
    from planner.engines.vllm.tables.capabilities import least_capability

    least = least_capability(name, deployment.engine_version)
    if least is not None and card.capability < least:
        raise UsageError(
            f"vLLM {deployment.engine_version} takes {name} on compute capability {least[0]}.{least[1]} and later;"
            f" {card.name} has {card.capability[0]}.{card.capability[1]}",
            field="quantization",
        )


def check_context_parallel(model: Model, deployment: Deployment) -> None:
    """Decode context parallel shares the GPUs of tensor parallel, where key-value heads are copied.

    Raises:
        UsageError: sizes that vLLM refuses; says which work.
    """
    ways, tensor = deployment.decode_context_parallel_size, deployment.tensor_parallel_size
    if ways == 1:
        return
    if tensor % ways:
        raise UsageError(
            f"--decode-context-parallel-size {ways} must divide --tensor-parallel-size {tensor}, whose GPUs it uses",
            field="decode_context_parallel_size",
        )
    heads = max(
        (cache.num_key_value_heads for cache in model.caches if isinstance(cache, KeyValueCache | CrossCache)),
        default=0,
    )
    if not heads:
        return
    copies = tensor // heads
    queries = max(
        (
            mixer.num_attention_heads
            for layer in model.spec.layers
            for mixer in layer.mixers
            if isinstance(mixer, Attention)
        ),
        default=heads,
    )
    if ways > copies or queries // heads % ways:
        raise UsageError(
            f"--decode-context-parallel-size {ways}: the model has {heads} key-value heads, so tensor parallel {tensor}"
            f" keeps {max(copies, 1)} copies of each; vLLM takes at most that many, dividing its {queries // heads}"
            " query heads per key-value head",
            field="decode_context_parallel_size",
        )
