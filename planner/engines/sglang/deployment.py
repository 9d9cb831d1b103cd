"""What SGLang is asked to do: every input of a serving plan, declared once, under its own argument names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final

from annotated_types import Ge, Gt, Le

from planner.contract.card import Card
from planner.contract.inputs import option
from planner.contract.reading import read_gib, read_memory, write_gib
from planner.engines.sglang.tables.releases import NEWEST

ENGINE: Final = "Engine"
PARALLEL: Final = "GPUs"
MODEL: Final = "Model and cache"
BATCH: Final = "Batch"
MEMORY: Final = "Memory"
GRAPHS: Final = "Graphs and kernels"
STATES: Final = "Recurrent states and windows"
ADAPTERS: Final = "Adapters and drafts"
ROLES: Final = "Host cache and disaggregation"

_COUNT: Final = 1 << 20
_TOKENS: Final = 1 << 40
_BYTES: Final = 1 << 60
_PATH: Final = 4096


def _allowed(text: str, _: str) -> bool | None:
    """SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN (environ.py)."""
    return True if text.strip().lower() in ("1", "true") else None


def read_algorithm(text: str, _: str) -> str:
    """A speculative algorithm in capitals; NEXTN is EAGLE (server_args.py 0.4.4 to 0.5.23)."""
    name = text.strip().upper()
    return "EAGLE" if name == "NEXTN" else name


def _read_gb(text: str, name: str) -> int:
    from planner.contract.reading import read_number

    return round(read_number(text, name) * 10**9)


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment(Card):
    """The inputs of a serving plan; None means the engine's default.

    Args:
        tp_size, pp_size, dp_size: cards of a stage, stages, and replicas (with dp attention: ranks of the attention).
        quantization: how to store a plain checkpoint; None keeps the config's own format.
        passed: words of the command that are options of SGLang and no input here.
    """

    engine_version: Annotated[str, option("Release of SGLang.", panel=ENGINE, ours=True, common=True)] = NEWEST
    tp_size: Annotated[
        int,
        Ge(1),
        Le(_COUNT),
        option(
            "GPUs that cut every matrix.", "--tp-size", "--tensor-parallel-size", "--tp", panel=PARALLEL, common=True
        ),
    ] = 1
    pp_size: Annotated[
        int,
        Ge(1),
        Le(_COUNT),
        option("Pipeline stages.", "--pp-size", "--pipeline-parallel-size", panel=PARALLEL),
    ] = 1
    dp_size: Annotated[
        int,
        Ge(1),
        Le(_COUNT),
        option(
            "Replicas; with --enable-dp-attention ranks of the attention.",
            "--dp-size",
            "--data-parallel-size",
            "--dp",
            panel=PARALLEL,
            common=True,
        ),
    ] = 1
    enable_dp_attention: Annotated[
        bool, option("Replicate attention, share the experts.", panel=PARALLEL, common=True)
    ] = False
    ep_size: Annotated[
        int,
        Ge(1),
        Le(_COUNT),
        option(
            "GPUs that whole experts are dealt over.", "--ep-size", "--expert-parallel-size", "--ep", panel=PARALLEL
        ),
    ] = 1
    moe_a2a_backend: Annotated[str, option("Exchange of experts: none, deepep, mooncake, ...", panel=PARALLEL)] = "none"
    dtype: Annotated[str, option("auto, bfloat16, float16 or float32.", panel=MODEL)] = "auto"
    quantization: Annotated[
        str | None, option("Plan the usual export of this name.", "--quantization", "-q", panel=MODEL, common=True)
    ] = None
    group_size: Annotated[int | None, option("Group of the export.", panel=MODEL, ours=True)] = None
    quantize_lm_head: Annotated[bool, option("The export quantises the head too.", panel=MODEL, ours=True)] = False
    kv_cache_dtype: Annotated[
        str, option("auto, bfloat16, fp8_e4m3, fp8_e5m2, fp4_e2m1, mxfp8.", panel=MODEL, common=True)
    ] = "auto"
    page_size: Annotated[int | None, Ge(1), Le(_COUNT), option("Tokens of a page.", panel=MODEL)] = None
    context_length: Annotated[
        int | None,
        Ge(1),
        Le(_TOKENS),
        option("Longest request in tokens.", panel=MODEL, unit="tokens", common=True),
    ] = None
    allow_longer_context: Annotated[
        bool,
        option(
            "As SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN=1, which is read too.",
            panel=MODEL,
            ours=True,
            environment={"SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN": _allowed},
        ),
    ] = False
    is_embedding: Annotated[bool, option("Serve embeddings.", panel=MODEL)] = False
    language_only: Annotated[
        bool, option("Leave the towers out.", "--language-only", "--language-model-only", panel=MODEL)
    ] = False
    max_running_requests: Annotated[
        int | None, Ge(1), Le(_COUNT), option("Requests that run at once.", panel=BATCH, common=True)
    ] = None
    chunked_prefill_size: Annotated[
        int | None,
        Ge(-1),
        Le(_TOKENS),
        option("Tokens of a prefill chunk; -1 does not cut.", panel=BATCH, unit="tokens", common=True),
    ] = None
    max_prefill_tokens: Annotated[
        int, Ge(1), Le(_TOKENS), option("Tokens of a prefill batch.", panel=BATCH, unit="tokens")
    ] = 16384
    disable_overlap_schedule: Annotated[bool, option("Schedule and run in turn.", panel=BATCH)] = False
    mem_fraction_static: Annotated[
        float | None,
        Gt(0),
        Le(1),
        option("Share of the free memory for weights and pools.", panel=MEMORY, common=True),
    ] = None
    max_total_tokens: Annotated[
        int | None, Ge(1), Le(_TOKENS), option("Most tokens of the pool.", panel=MEMORY, unit="tokens", common=True)
    ] = None
    cpu_offload_bytes: Annotated[
        int,
        Ge(0),
        Le(_BYTES),
        option(
            "Weights kept in host memory, GiB.",
            "--cpu-offload-gb",
            panel=MEMORY,
            unit="GiB",
            read=read_gib,
            write=write_gib,
        ),
    ] = 0
    safety_margin_bytes: Annotated[
        int,
        Ge(0),
        Le(_BYTES),
        option("Kept free by lowering the fraction (2GiB).", panel=MEMORY, unit="bytes", read=read_memory, ours=True),
    ] = 0
    attention_backend: Annotated[
        str | None, option("flashinfer, fa3, triton, trtllm_mla, aiter, ...", panel=GRAPHS)
    ] = None
    sparse_attention_backend: Annotated[
        str | None,
        option(
            "Kernels of sparse MLA models: flashmla_kv, trtllm, tilelang, ...",
            "--dsa-decode-backend",
            "--dsa-prefill-backend",
            "--nsa-decode-backend",
            "--nsa-prefill-backend",
            "--nsa-decode",
            "--nsa-prefill",
            panel=GRAPHS,
        ),
    ] = None
    disable_cuda_graph: Annotated[bool, option("No CUDA graphs.", panel=GRAPHS)] = False
    cuda_graph_max_bs: Annotated[
        int | None,
        Ge(1),
        Le(_COUNT),
        option(
            "Largest batch of a decode graph.",
            "--cuda-graph-max-bs",
            "--cuda-graph-max-bs-decode",
            panel=GRAPHS,
            common=True,
        ),
    ] = None
    enable_piecewise_cuda_graph: Annotated[bool, option("Capture prefill (to 0.5.9).", panel=GRAPHS)] = False
    disable_prefill_cuda_graph: Annotated[
        bool,
        option(
            "Do not capture prefill.", "--disable-prefill-cuda-graph", "--disable-piecewise-cuda-graph", panel=GRAPHS
        ),
    ] = False
    prefill_graph_max_tokens: Annotated[
        int | None,
        Ge(1),
        Le(_TOKENS),
        option(
            "Largest captured prefill.",
            "--cuda-graph-max-bs-prefill",
            "--piecewise-cuda-graph-max-tokens",
            panel=GRAPHS,
        ),
    ] = None
    enable_deterministic_inference: Annotated[bool, option("Same answers whatever the batch.", panel=GRAPHS)] = False
    disable_radix_cache: Annotated[bool, option("Do not keep prefixes.", panel=STATES, common=True)] = False
    swa_full_tokens_ratio: Annotated[
        float | None, Gt(0), Le(1), option("Tokens of the windows by tokens of the full pool.", panel=STATES)
    ] = None
    disable_hybrid_swa_memory: Annotated[bool, option("Keep windows at full length.", panel=STATES)] = False
    mamba_full_memory_ratio: Annotated[
        float, Gt(0), Le(100), option("Bytes of states by bytes of the cache.", panel=STATES)
    ] = 0.9
    max_mamba_cache_size: Annotated[int | None, Ge(1), Le(_TOKENS), option("State slots.", panel=STATES)] = None
    mamba_ssm_dtype: Annotated[
        str | None, option("Type of recurrent states.", panel=STATES, choices=("float32", "bfloat16", "float16"))
    ] = None
    mamba_radix_cache_strategy: Annotated[
        str,
        option(
            "How prefixes keep states.",
            "--mamba-radix-cache-strategy",
            "--mamba-scheduler-strategy",
            panel=STATES,
            choices=("auto", "no_buffer", "extra_buffer", "extra_buffer_lazy"),
        ),
    ] = "auto"
    enable_lora: Annotated[bool, option("Reserve adapter slots.", panel=ADAPTERS)] = False
    max_loras_per_batch: Annotated[int, Ge(1), Le(_COUNT), option("Adapter slots.", panel=ADAPTERS)] = 8
    max_lora_rank: Annotated[int | None, Ge(1), Le(_COUNT), option("Rank of a slot.", panel=ADAPTERS)] = None
    speculative_algorithm: Annotated[
        str | None, option("EAGLE, EAGLE3, NEXTN, STANDALONE, NGRAM, ...", panel=ADAPTERS, read=read_algorithm)
    ] = None
    speculative_draft_model_path: Annotated[
        str | None,
        option(
            "The draft's checkpoint.", "--speculative-draft-model-path", "--speculative-draft-model", panel=ADAPTERS
        ),
    ] = None
    speculative_num_steps: Annotated[int | None, Ge(1), Le(_COUNT), option("Draft steps.", panel=ADAPTERS)] = None
    speculative_eagle_topk: Annotated[int | None, Ge(1), Le(_COUNT), option("Branches.", panel=ADAPTERS)] = None
    speculative_num_draft_tokens: Annotated[
        int | None, Ge(1), Le(_COUNT), option("Tokens verified at once.", panel=ADAPTERS)
    ] = None
    enable_hierarchical_cache: Annotated[
        bool, option("Keep prefixes in host memory too.", panel=ROLES, memory="host")
    ] = False
    hicache_ratio: Annotated[
        float, Gt(0), Le(1000), option("Host cache by the card's.", panel=ROLES, memory="host")
    ] = 2.0
    hicache_size_bytes: Annotated[
        int,
        Ge(0),
        Le(_BYTES),
        option(
            "Host cache of a rank in GB (10^9).",
            "--hicache-size",
            panel=ROLES,
            unit="GB",
            memory="host",
            read=_read_gb,
            write=lambda value: f"{value / 10**9:g}",
        ),
    ] = 0
    disaggregation_mode: Annotated[
        str, option("null, prefill or decode.", panel=ROLES, choices=("null", "prefill", "decode"))
    ] = "null"
    passed: tuple[str, ...] = ()

    @property
    def attention_ranks(self) -> int:
        """Data-parallel ranks of the attention inside the tensor-parallel group."""
        return self.dp_size if self.enable_dp_attention else 1

    @property
    def cards(self) -> int:
        """Cards that the whole deployment takes."""
        replicas = 1 if self.enable_dp_attention else self.dp_size
        return self.tp_size * self.pp_size * replicas

    @staticmethod
    def settle(given: Mapping[str, Any]) -> dict[str, Any]:
        """As `Card.settle`."""
        return Card.settle(given)
