"""A deployment with SGLang's defaults of its release, card and model applied.

Source: SGLang server_args.py __post_init__ (0.3.6 to 0.5.18), arg_groups/ (0.5.19 to 0.5.23).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from planner.contract.runs_on import check_card
from planner.engines.sglang.attention import (
    default_backend,
    extra_buffer,
    is_compressed,
    page_size,
    settled_cache_format,
    sparse_backend,
    splits_windows,
)
from planner.engines.sglang.budget.defaults import (
    FractionInputs,
    card_defaults,
    default_fraction,
    lowered_for_vision,
    prefill_graphs_on,
)
from planner.engines.sglang.budget.spread import Spread
from planner.engines.sglang.deployment import Deployment
from planner.engines.sglang.tables.releases import Release, parse_release, rules_at
from planner.errors import UsageError
from planner.hardware.gpus import Gpu, unnamed_gpu
from planner.memory.cache.formats import CacheFormat
from planner.model.caches import StateCache
from planner.model.model import Model
from planner.units import MIB

_SPECULATIVE_REQUESTS: Final = 48
_COMPRESSED_REQUESTS: Final = 256
_AITER_CONTEXT: Final = 8192
# server_args.py auto_choose_speculative_params: (steps, branches, tokens verified at once)
_WIDE_DRAFTS: Final = ("LlamaForCausalLM", "Grok1ForCausalLM", "Grok1VForCausalLM")
_DRAFTS: Final = {True: (5, 4, 8), False: (3, 1, 4)}
_BASE_DTYPES: Final = ("bfloat16", "float16", "float32")
# vision configs that say `depth`: the engine looks for num_hidden_layers, finds none and takes 24
_DEPTH_TOWERS: Final = (
    "qwen2_vl",
    "qwen2_5_vl",
    "qwen3_vl",
    "qwen3_vl_moe",
    "qwen3_5",
    "qwen3_5_moe",
    "glm4v",
    "glm4v_moe",
)
_UNNAMED_LAYERS: Final = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Drafts:
    """Speculative decoding as resolved: algorithm, steps, branches, and tokens verified at once."""

    algorithm: str
    steps: int
    topk: int
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """A deployment with every default applied, under the engine's names.

    Args:
        memory_mib: what nvidia-smi prints for the card, which the defaults follow from.
        fraction, fraction_formula: the share of free memory that the budget is made with, and how it came about.
        given_factor: what a fraction given on the command line is multiplied by.
        requests_asked: --max-running-requests of one attention rank, or what the engine sets by itself; None.
        prefill_graph_tokens: largest captured prefill; 0: none is captured.
        extra_state_buffer: prefixes keep states in slots of their own.
        aiter: AMD's AITER kernels run the attention.
    """

    asked: Deployment
    release: Release
    gpu: Gpu
    memory_mib: int
    dtype: str
    cache_format: CacheFormat
    spread: Spread
    context_length: int
    page_size: int
    chunked_prefill_size: int
    graph_max_batch: int
    graphs: bool
    prefill_graph_tokens: int
    fraction: float
    fraction_formula: str
    given_factor: float
    requests_asked: int | None
    drafts: Drafts | None
    window_ratio: float
    split_windows: bool
    sparse_backend: str
    extra_state_buffer: bool
    aiter: bool
    notes: tuple[str, ...]

    @property
    def mem_fraction_static(self) -> float:
        """--mem-fraction-static that gives this budget."""
        return self.fraction / self.given_factor


# "SGLang only supports sm75 and above"
_OLDEST, _OLDEST_SOURCE = (7, 5), "SGLang model_executor/model_runner.py"


def resolve(model: Model, asked: Deployment) -> Resolved:
    """Apply the defaults.

    Raises:
        UsageError: a card that it does not run on; an option out of range for this release, or two that contradict
            each other.
        UnsupportedQuantization: a cache format that is not understood.
    """
    release = parse_release(asked.engine_version)
    check_card("SGLang", asked.gpu, vendors=("NVIDIA", "AMD"), oldest=_OLDEST, source=_OLDEST_SOURCE)
    rules = rules_at(release)
    gpu = asked.gpu or unnamed_gpu(asked.total_bytes)
    memory = (gpu.nvidia_smi_bytes or asked.total_bytes) // MIB
    notes: list[str] = []
    sparse = model.has_sparse_latent_cache and not is_compressed(model)
    ranks = _attention_ranks(asked, release, sparse, notes)
    card = card_defaults(release, memory, asked.tp_size)
    chunk = card.chunked_prefill_size if asked.chunked_prefill_size is None else asked.chunked_prefill_size
    if ranks > 1 and chunk > 0:
        chunk = chunk // ranks
    graphs_at = _graphs_at(asked, release, card.graph_max_batch)
    drafts = _drafts(model, asked)
    context = asked.context_length or model.longest_request
    backend = asked.attention_backend or default_backend(model, gpu, asked.tp_size)
    prefill = _prefill_graph_tokens(model, asked, release, chunk, ranks, gpu)
    fraction, formula = _fraction(
        model,
        asked,
        release,
        FractionInputs(
            memory_mib=memory,
            tensor_parallel_size=asked.tp_size,
            pipeline_parallel_size=asked.pp_size,
            data_parallel_size=ranks,
            chunked_prefill_size=chunk,
            max_prefill_tokens=asked.max_prefill_tokens,
            graph_max_batch=graphs_at,
            graphs=not asked.disable_cuda_graph,
            prefill_graph_tokens=prefill,
            latent=model.has_latent_cache,
            data_parallel_attention=ranks > 1,
            speculation=drafts.algorithm if drafts else "",
            draft_tokens=drafts.tokens if drafts else 0,
            role=asked.disaggregation_mode,
            max_running_requests=asked.max_running_requests,
            expert_exchange=asked.moe_a2a_backend,
        ),
    )
    aiter = backend == "aiter" and context > _AITER_CONTEXT and float(rules["aiter_factor"]) < 1
    fraction, formula = _lowered(asked, fraction, formula, float(rules["aiter_factor"]) if aiter else 1.0)
    dtype = _computing(model.spec.dtype, asked)
    return Resolved(
        asked=asked,
        release=release,
        gpu=gpu,
        memory_mib=memory,
        dtype=dtype,
        cache_format=settled_cache_format(asked, dtype, sparse, gpu),
        spread=Spread(tensor_parallel_size=asked.tp_size, attention_ranks=ranks, expert_parallel_size=_experts(asked)),
        context_length=context,
        page_size=page_size(model, asked, backend, sparse),
        chunked_prefill_size=chunk,
        graph_max_batch=graphs_at,
        graphs=not asked.disable_cuda_graph and asked.disaggregation_mode != "prefill",
        prefill_graph_tokens=prefill,
        fraction=fraction,
        fraction_formula=formula,
        given_factor=_given_factor(model, asked, release, aiter=aiter),
        requests_asked=_requests(model, asked, drafts, ranks, notes),
        drafts=drafts,
        window_ratio=asked.swa_full_tokens_ratio or (0.1 if is_compressed(model) else 0.8),
        split_windows=splits_windows(model, asked, release, gpu),
        sparse_backend=sparse_backend(asked, release, gpu),
        extra_state_buffer=extra_buffer(model, asked, release),
        aiter=aiter,
        notes=tuple(notes),
    )


def _lowered(asked: Deployment, fraction: float, formula: str, factor: float) -> tuple[float, str]:
    """(fraction, how it comes about) with AITER's factor and the margin that the user keeps."""
    if factor < 1:
        fraction *= factor
        formula += f", x {factor} for AITER kernels with a context above {_AITER_CONTEXT}"
    if asked.safety_margin_bytes:
        margin = asked.safety_margin_bytes / asked.total_bytes
        fraction, formula = max(0.0, fraction - margin), f"{formula}, less a margin of {margin:.3f}"
    return fraction, formula


def _graphs_at(asked: Deployment, release: Release, default: int) -> int:
    """The largest batch that is captured."""
    if asked.cuda_graph_max_bs is not None:
        return asked.cuda_graph_max_bs or default
    within = asked.max_running_requests is not None and rules_at(release)["graphs_within_requests"] == "yes"
    return min(default, asked.max_running_requests or default) if within else default


def _attention_ranks(asked: Deployment, release: Release, sparse: bool, notes: list[str]) -> int:
    ranks = asked.attention_ranks
    if sparse and rules_at(release)["sparse_data_parallel"] == "yes" and asked.tp_size > 1:
        ranks = asked.tp_size
        notes.append("this release turns data-parallel attention on for sparse MLA models, one rank a card")
    if ranks > asked.tp_size or asked.tp_size % ranks:
        raise UsageError(
            f"--dp-size {ranks} ranks of attention do not divide --tp-size {asked.tp_size}", field="dp_size"
        )
    if asked.enable_dp_attention and asked.dp_size == 1:
        raise UsageError("--enable-dp-attention wants --dp-size above 1, at most --tp-size", field="dp_size")
    return ranks


def _computing(stored: str | None, asked: Deployment) -> str:
    """The computing type; "auto" is the checkpoint's half precision, float16 for float32 (model_config.py)."""
    dtype = asked.dtype
    if dtype == "auto":
        dtype = "float16" if stored == "float32" else stored or "bfloat16"
    if dtype not in _BASE_DTYPES:
        raise UsageError(f"--dtype {asked.dtype}: expected auto, {', '.join(_BASE_DTYPES)}", field="dtype")
    return dtype


def _experts(asked: Deployment) -> int:
    return asked.tp_size if asked.moe_a2a_backend not in ("none", "") else asked.ep_size


def _drafts(model: Model, asked: Deployment) -> Drafts | None:
    algorithm = asked.speculative_algorithm
    if algorithm is None:
        return None
    wide = model.spec.architecture in _WIDE_DRAFTS and algorithm != "STANDALONE"
    steps, topk, tokens = _DRAFTS[wide]
    if asked.speculative_num_steps is not None:
        steps, topk = asked.speculative_num_steps, asked.speculative_eagle_topk or 1
        tokens = steps + 1
    return Drafts(
        algorithm=algorithm,
        steps=steps,
        topk=asked.speculative_eagle_topk or topk,
        tokens=asked.speculative_num_draft_tokens or tokens,
    )


def _requests(model: Model, asked: Deployment, drafts: Drafts | None, ranks: int, notes: list[str]) -> int | None:
    """What one attention rank is asked for."""
    wanted = asked.max_running_requests
    if wanted is None and drafts is not None:
        wanted = _SPECULATIVE_REQUESTS
        notes.append(f"speculation sets --max-running-requests to {wanted} where it is not given")
    if wanted is None and is_compressed(model):
        wanted = _COMPRESSED_REQUESTS
        notes.append(f"DeepSeek-V4 sets --max-running-requests to {wanted} where it is not given")
    return None if wanted is None else max(1, wanted // ranks)


def _fraction(model: Model, asked: Deployment, release: Release, inputs: FractionInputs) -> tuple[float, str]:
    if asked.mem_fraction_static is not None:
        fraction, formula = asked.mem_fraction_static, "as given"
    else:
        fraction, formula = default_fraction(release, inputs)
    tower = _tower(model)
    text_only = asked.language_only or asked.disaggregation_mode == "decode"
    if tower is not None and not text_only:
        lowered = lowered_for_vision(release, fraction, tower, given=asked.mem_fraction_static is not None)
        if lowered != fraction:
            formula += f", x {lowered / fraction:.4g} for the vision tower"
        fraction = lowered
    return fraction, formula


def _given_factor(model: Model, asked: Deployment, release: Release, *, aiter: bool) -> float:
    """What a fraction given on the command line is multiplied by."""
    factor, tower = 1.0, _tower(model)
    if tower is not None and not asked.language_only:
        factor = lowered_for_vision(release, factor, tower, given=True)
    return factor * float(rules_at(release)["aiter_factor"]) if aiter else factor


def _tower(model: Model) -> tuple[int, int] | None:
    """Layers and width of the vision tower as the engine reads them from the config."""
    for stack in model.spec.stacks:
        if stack.name == "vision":
            layers = _UNNAMED_LAYERS if model.spec.model_type in _DEPTH_TOWERS else len(stack.layers)
            # qwen2_vl's vision config calls the language model's width hidden_size
            width = model.spec.hidden_size if model.spec.model_type == "qwen2_vl" else stack.hidden_size
            return layers, width
    return None


def _prefill_graph_tokens(model: Model, asked: Deployment, release: Release, chunk: int, ranks: int, gpu: Gpu) -> int:
    states = {cache.kind for cache in model.caches if isinstance(cache, StateCache)}
    reasons = {
        "speculation": asked.speculative_algorithm is not None,
        "data_parallel_attention": ranks > 1,
        "pipeline": asked.pp_size > 1,
        "not_nvidia": gpu.vendor not in ("NVIDIA", ""),
        "expert_exchange": asked.moe_a2a_backend not in ("none", ""),
        "lora": asked.enable_lora,
        "vision": any(stack.name == "vision" for stack in model.spec.stacks),
        "gguf": bool(model.stored) and model.origin.endswith("gguf"),
        "host_cache": asked.enable_hierarchical_cache or asked.cpu_offload_bytes > 0,
        "disaggregation": asked.disaggregation_mode != "null",
        "latent": model.has_latent_cache,
        "sparse_latent": model.has_sparse_latent_cache,
        "compressed": is_compressed(model),
        "qwen3_next": model.spec.architecture == "Qwen3NextForCausalLM",
        "nemotron_h": model.spec.architecture == "NemotronHForCausalLM",
        "kimi_delta": "kimi_delta" in states,
    }
    on = prefill_graphs_on(
        release,
        asked=asked.enable_piecewise_cuda_graph,
        disabled=asked.disable_prefill_cuda_graph or asked.disable_cuda_graph,
        reasons={name for name, holds in reasons.items() if holds},
    )
    if not on or asked.disaggregation_mode == "decode":
        return 0
    if asked.prefill_graph_max_tokens is not None:
        return asked.prefill_graph_max_tokens
    rules = rules_at(release)
    largest = chunk if chunk > 0 else asked.max_prefill_tokens
    if model.has_latent_cache:
        cap = int(rules["latent_prefill_tokens"])
        largest = cap if cap < 8192 else min(cap, largest)
    limits = [size for size in (asked.max_total_tokens, asked.context_length) if size is not None]
    return min([largest, *limits])
