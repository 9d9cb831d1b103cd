"""What vLLM is asked to do: every input of a serving plan, declared once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final

from annotated_types import Ge, Gt, Le

from planner.contract.card import Card
from planner.contract.inputs import option
from planner.contract.reading import read_bytes, read_gib, read_memory, read_tokens, write_gib
from planner.engines.vllm.json_inputs import (
    draft_tokens_of,
    images_of,
    items_of,
    pixels_of,
    proposed_tokens_of,
    read_json,
    read_limits,
    read_overrides,
    read_speculation,
)
from planner.engines.vllm.tables.environment import (
    read_allowed,
    read_flashinfer_sampler,
    read_layer_partition,
    read_switch,
    read_use_v1,
    read_use_v2,
)
from planner.engines.vllm.tables.profile import DEFAULT_VERSION

ENGINE: Final = "Engine"
PARALLEL: Final = "GPUs"
MODEL: Final = "Model and cache"
BATCH: Final = "Batch"
MEMORY: Final = "Memory"
GRAPHS: Final = "Graphs and kernels"
ADAPTERS: Final = "Adapters and drafts"
MEDIA: Final = "Images and video"

_COUNT: Final = 1 << 20
_TOKENS: Final = 1 << 40
_BYTES: Final = 1 << 60
_POOLING_TASKS: Final = frozenset({"embedding", "embed", "classify", "score", "reward"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment(Card):
    """The inputs of a serving plan, under vLLM's own argument names; None means the engine's default.

    Args:
        quantization: how to store a plain checkpoint; None keeps the config's own format.
        allow_long_max_model_len: requests beyond the model's positions, as VLLM_ALLOW_LONG_MAX_MODEL_LEN=1 allows.
        hf_overrides, rope_scaling, speculative_config, limit_mm_per_prompt: JSON, as the command line has it.
        instances: equal instances that share each card.
        passed: words of the command that are options of vLLM and no input here.
    """

    engine_version: Annotated[
        str,
        option("Release of vLLM.", panel=ENGINE, ours=True, common=True),
    ] = DEFAULT_VERSION
    usage_context: Annotated[
        str,
        option(
            "api-server (vllm serve) or llm-class (LLM(...)).",
            panel=ENGINE,
            ours=True,
            choices=("api-server", "llm-class"),
        ),
    ] = "api-server"
    model_runner: Annotated[
        str,
        option(
            "What VLLM_USE_V1 and VLLM_USE_V2_MODEL_RUNNER force.",
            panel=ENGINE,
            ours=True,
            choices=("auto", "v0", "v1", "v2"),
            environment={"VLLM_USE_V1": read_use_v1, "VLLM_USE_V2_MODEL_RUNNER": read_use_v2},
        ),
    ] = "auto"
    instances: Annotated[
        int, Ge(1), Le(64), option("Equal instances that share each card.", panel=ENGINE, ours=True)
    ] = 1
    tensor_parallel_size: Annotated[
        int,
        Ge(1),
        Le(_COUNT),
        option("GPUs that cut every matrix.", "--tensor-parallel-size", "-tp", panel=PARALLEL, common=True),
    ] = 1
    pipeline_parallel_size: Annotated[
        int, Ge(1), Le(_COUNT), option("Pipeline stages.", "--pipeline-parallel-size", "-pp", panel=PARALLEL)
    ] = 1
    data_parallel_size: Annotated[
        int, Ge(1), Le(_COUNT), option("Engines beside each other.", "--data-parallel-size", "-dp", panel=PARALLEL)
    ] = 1
    enable_expert_parallel: Annotated[
        bool, option("Deal experts out whole.", "--enable-expert-parallel", "-ep", panel=PARALLEL)
    ] = False
    decode_context_parallel_size: Annotated[
        int,
        Ge(1),
        Le(_COUNT),
        option("GPUs that share a sequence's cache.", "--decode-context-parallel-size", "-dcp", panel=PARALLEL),
    ] = 1
    interconnect: Annotated[
        str,
        option(
            "How the cards reach each other: nvlink, pcie, or none (PCIe without peer access).",
            panel=PARALLEL,
            ours=True,
            choices=("auto", "nvlink", "pcie", "none"),
        ),
    ] = "auto"
    disable_custom_all_reduce: Annotated[bool, option("Leave sums to NCCL.", panel=PARALLEL)] = False
    pipeline_layer_partition: Annotated[
        tuple[int, ...] | None,
        Ge(1),
        Le(_COUNT),
        option(
            "Layers of each stage (32,28).",
            panel=PARALLEL,
            ours=True,
            environment={"VLLM_PP_LAYER_PARTITION": read_layer_partition},
        ),
    ] = None
    runner: Annotated[
        str, option("Generate tokens, or pool vectors.", panel=MODEL, choices=("auto", "generate", "pooling", "draft"))
    ] = "auto"
    convert: Annotated[
        str,
        option(
            "What a pooling model is made into.",
            panel=MODEL,
            choices=("auto", "none", "embed", "classify", "reward"),
        ),
    ] = "auto"
    task: Annotated[
        str,
        option(
            "The task (older releases).",
            panel=MODEL,
            choices=("auto", "generate", "embedding", "embed", "classify", "score", "reward", "transcription", "draft"),
        ),
    ] = "auto"
    dtype: Annotated[str, option("auto, bfloat16, float16 or float32.", panel=MODEL)] = "auto"
    quantization: Annotated[
        str | None,
        option("Plan the usual export of this name.", "--quantization", "-q", panel=MODEL, common=True),
    ] = None
    group_size: Annotated[int | None, option("Group of the export.", panel=MODEL, ours=True)] = None
    quantize_lm_head: Annotated[bool, option("The export quantises the head too.", panel=MODEL, ours=True)] = False
    kv_cache_dtype: Annotated[str, option("auto, bfloat16, fp8, ...", panel=MODEL, common=True)] = "auto"
    block_size: Annotated[int | None, Ge(1), Le(_COUNT), option("Tokens of a block.", panel=MODEL)] = None
    max_model_len: Annotated[
        int | None,
        Ge(-1),
        Le(_TOKENS),
        option(
            "Longest request in tokens; 32K is 32768 and 32k 32000, as in vLLM; -1 fits.",
            panel=MODEL,
            unit="tokens",
            read=read_tokens,
            common=True,
        ),
    ] = None
    allow_long_max_model_len: Annotated[
        bool,
        option(
            "As VLLM_ALLOW_LONG_MAX_MODEL_LEN=1, which is read too.",
            panel=MODEL,
            ours=True,
            environment={"VLLM_ALLOW_LONG_MAX_MODEL_LEN": read_allowed},
        ),
    ] = False
    hf_overrides: Annotated[
        str | None, option("JSON laid over config.json.", panel=MODEL, unit="JSON", read=read_overrides)
    ] = None
    rope_scaling: Annotated[
        str | None, option("JSON of the rope scaling (older releases).", panel=MODEL, unit="JSON", read=read_overrides)
    ] = None
    mamba_ssm_cache_dtype: Annotated[
        str | None,
        option("Type of recurrent states.", panel=MODEL, choices=("auto", "float32", "float16", "bfloat16")),
    ] = None
    enable_prefix_caching: Annotated[bool | None, option("Keep prefixes.", panel=MODEL)] = None
    disable_hybrid_kv_cache_manager: Annotated[bool, option("Charge windows in full.", panel=MODEL)] = False
    kv_transfer_config: Annotated[
        str | None,
        option("JSON of the KV connector, which turns the hybrid cache manager off.", panel=MODEL, unit="JSON"),
    ] = None
    max_num_seqs: Annotated[
        int | None, Ge(1), Le(_TOKENS), option("Requests in a batch.", panel=BATCH, common=True)
    ] = None
    max_num_batched_tokens: Annotated[
        int | None,
        Ge(1),
        Le(_TOKENS),
        option("Tokens in a batch.", panel=BATCH, unit="tokens", read=read_tokens, common=True),
    ] = None
    enable_chunked_prefill: Annotated[bool | None, option("Cut long prompts.", panel=BATCH)] = None
    gpu_memory_utilization: Annotated[
        float | None, Gt(0), Le(1), option("Fraction of the card the engine takes.", panel=MEMORY, common=True)
    ] = None
    kv_cache_memory_bytes: Annotated[
        int | None,
        Ge(0),
        Le(_BYTES),
        option(
            "KV cache size, instead of the fraction.",
            "--kv-cache-memory-bytes",
            panel=MEMORY,
            unit="bytes",
            read=read_bytes,
        ),
    ] = None
    num_gpu_blocks_override: Annotated[
        int | None, Ge(1), Le(_TOKENS), option("Blocks, instead of what fits.", panel=MEMORY)
    ] = None
    swap_space_bytes: Annotated[
        int | None,
        Ge(0),
        Le(_BYTES),
        option(
            "Host memory per GPU in GiB (V0).", panel=MEMORY, unit="GiB", read=read_gib, write=write_gib, memory="host"
        ),
    ] = None
    cpu_offload_bytes: Annotated[
        int,
        Ge(0),
        Le(_BYTES),
        option(
            "Weights kept in host memory, GiB per GPU.",
            "--cpu-offload-gb",
            panel=MEMORY,
            unit="GiB",
            read=read_gib,
            write=write_gib,
        ),
    ] = 0
    enable_sleep_mode: Annotated[bool, option("Back weights up in host memory.", panel=MEMORY, memory="host")] = False
    safety_margin_bytes: Annotated[
        int,
        Ge(0),
        Le(_BYTES),
        option("Kept free by lowering the fraction (2GiB).", panel=MEMORY, unit="bytes", read=read_memory, ours=True),
    ] = 0
    enforce_eager: Annotated[bool, option("No CUDA graphs.", panel=GRAPHS)] = False
    cudagraph_capture_sizes: Annotated[
        tuple[int, ...] | None, Ge(1), Le(_COUNT), option("Batches captured as graphs.", panel=GRAPHS)
    ] = None
    max_cudagraph_capture_size: Annotated[
        int | None, Ge(1), Le(_COUNT), option("Largest batch captured as a graph.", panel=GRAPHS)
    ] = None
    estimate_cudagraphs: Annotated[
        bool | None,
        option(
            "Whether the fraction holds the estimated graphs; None leaves it to the release.",
            panel=GRAPHS,
            ours=True,
            environment={"VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS": read_switch},
        ),
    ] = None
    sampler: Annotated[
        str,
        option(
            "What VLLM_USE_FLASHINFER_SAMPLER forces.",
            panel=GRAPHS,
            ours=True,
            choices=("auto", "pytorch", "flashinfer", "triton"),
            environment={"VLLM_USE_FLASHINFER_SAMPLER": read_flashinfer_sampler},
        ),
    ] = "auto"
    enable_lora: Annotated[bool, option("Reserve adapter slots.", panel=ADAPTERS)] = False
    max_loras: Annotated[int, Ge(1), Le(1 << 16), option("Adapter slots.", panel=ADAPTERS)] = 1
    max_lora_rank: Annotated[int, Ge(1), option("Rank of a slot.", panel=ADAPTERS)] = 16
    num_speculative_tokens: Annotated[
        int,
        Ge(0),
        Le(1 << 10),
        option("Tokens the model's own draft layers propose.", panel=ADAPTERS, ours=True),
    ] = 0
    speculative_config: Annotated[
        str | None,
        option(
            "JSON with method and num_speculative_tokens.",
            "--speculative-config",
            "-sc",
            panel=ADAPTERS,
            unit="JSON",
            read=read_speculation,
        ),
    ] = None
    limit_mm_per_prompt: Annotated[
        str | None, option("Items of a prompt: image=1 or JSON.", panel=MEDIA, unit="JSON", read=read_limits)
    ] = None
    mm_processor_kwargs: Annotated[
        str | None,
        option("JSON for the processor: max_pixels, size.", panel=MEDIA, unit="JSON", read=read_json),
    ] = None
    skip_mm_profiling: Annotated[bool, option("Do not profile the encoder.", panel=MEDIA)] = False
    language_model_only: Annotated[bool, option("Leave the towers out.", panel=MEDIA)] = False
    mm_encoder_tp_mode: Annotated[
        str, option("weights cuts the towers, data keeps them whole.", panel=MEDIA, choices=("weights", "data"))
    ] = "weights"
    passed: tuple[str, ...] = ()

    @property
    def lora_slots(self) -> int:
        """Adapter slots that are reserved."""
        return self.max_loras if self.enable_lora else 0

    @property
    def pools(self) -> bool:
        """The model gives vectors or scores, not tokens: no head over the vocabulary, and nothing is sampled."""
        return (
            self.runner == "pooling" or self.convert in ("embed", "classify", "reward") or self.task in _POOLING_TASKS
        )

    @property
    def limit_images(self) -> int | None:
        """Images of a prompt; None leaves it to the engine."""
        return images_of(self.limit_mm_per_prompt)

    @property
    def limit_videos(self) -> int | None:
        """Videos of a prompt; None leaves it to the engine."""
        return items_of(self.limit_mm_per_prompt, "video")

    @property
    def image_pixels(self) -> int | None:
        """Pixels of an image at most, where the command says so."""
        return pixels_of(self.mm_processor_kwargs, self.limit_mm_per_prompt)

    @property
    def draft_tokens(self) -> int:
        """Tokens that the model's own draft layers propose."""
        return self.num_speculative_tokens or draft_tokens_of(self.speculative_config)

    @property
    def proposed_tokens(self) -> int:
        """Tokens that are proposed at once, by draft layers, a separate model or from the text."""
        return self.num_speculative_tokens or proposed_tokens_of(self.speculative_config)

    @staticmethod
    def settle(given: Mapping[str, Any]) -> dict[str, Any]:
        """As `Card.settle`."""
        return Card.settle(given)
