"""What vLLM makes of a deployment once its defaults are applied."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from planner.contract.inputs import check
from planner.engines.vllm.checks import check_block_size, check_capability, check_context_parallel, check_together
from planner.engines.vllm.deployment import Deployment
from planner.engines.vllm.json_inputs import override_notes, overrides_of, speculation_notes
from planner.engines.vllm.model.drafts import draft_of
from planner.engines.vllm.model.dtype import ELEMENT_BYTES, resolve_dtype
from planner.engines.vllm.model.tasks import task_note
from planner.engines.vllm.options import check_release, notes_on_options
from planner.engines.vllm.tables.architectures import architecture_note, newest_release
from planner.engines.vllm.tables.first_v1 import why_v0
from planner.engines.vllm.tables.profile import DEFAULT_VERSION, EngineProfile, parse_version, profile_with_runner
from planner.engines.vllm.tables.version_band import version_note
from planner.errors import UsageError
from planner.memory.ggml.mixes import is_mix
from planner.memory.schemes.stored_scheme import scheme_from_stored
from planner.model.caches import CompressedCache, StateCache
from planner.model.model import Model
from planner.model.positions import stretched_positions
from planner.units import GIB

_V0_CHUNKED_FROM: Final = 32_768
# DeepseekSparseSWABackend.get_preferred_block_size (vLLM 0.20.0 to 0.33.0)
_COMPRESSED_BLOCK: Final = 256
# MLA's block by compute capability (major) and the default backend of the version: FlashMLA 64, CUTLASS 128,
# FlashInfer 64 or its smallest, 32; FlashAttention and Triton take 16
_LATENT_BLOCKS: Final = {"cutlass": {9: 64, 10: 128}, "flashinfer": {9: 64, 10: 64}, "preferred": {10: 32}}


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """A deployment with every default applied, as the engine would run it.

    Args:
        asked: the deployment as given.
        profile: the engine version's rules.
        gpu_memory_bytes: total memory of one card, as the driver reports it.
        dtype: storage type of weights and activations.
        element_bytes: its size.
        positions: tokens of the longest request that the engine accepts for this model.
        hybrid_manager: groups of their own for windowed and recurrent layers.
        state_mode: how recurrent states are kept ("none", "align", "all").
        notes: what was decided on the user's behalf.
        unknown: terms that matter and that nothing here knows, each with what would settle it.
    """

    asked: Deployment
    profile: EngineProfile
    gpu_memory_bytes: int
    dtype: str
    element_bytes: int
    block_size: int
    positions: int
    max_model_len: int
    max_num_seqs: int
    max_num_batched_tokens: int
    gpu_memory_utilization: float
    enable_prefix_caching: bool
    hybrid_manager: bool
    state_mode: str
    notes: tuple[str, ...]
    unknown: tuple[str, ...] = ()


def resolve(model: Model, deployment: Deployment) -> Resolved:
    """Apply the engine version's defaults.

    Raises:
        UsageError: a value of another type or out of range, an unknown dtype, no card and no memory size; names the
            option.
    """
    check(deployment)
    deployment, chosen = _with_release(model, deployment)
    check_release(deployment)
    fallback = why_v0(model, deployment)
    profile = profile_with_runner(deployment.engine_version, "v0" if fallback else deployment.model_runner)
    check_together(deployment)
    check_context_parallel(model, deployment)
    check_capability(model, deployment)
    check_block_size(model, deployment, runner=profile.runner)
    notes: list[str] = [*chosen]
    if fallback is not None:
        notes.append(f"vLLM {profile.version} falls back to its V0 engine: {fallback}")
    total = deployment.total_bytes
    dtype = resolve_dtype(model, deployment, notes)
    utilization = deployment.gpu_memory_utilization
    if utilization is None:
        utilization = profile.gpu_memory_utilization
    overrides = overrides_of(deployment.hf_overrides, deployment.rope_scaling)
    positions = model.longest_request
    if overrides:
        positions = stretched_positions(overrides, positions)
    length = deployment.max_model_len or positions
    if length > positions and deployment.allow_long_max_model_len:
        notes.append(
            f"max_model_len {length:,} is more than the model's {positions:,} positions, and allowed by"
            " VLLM_ALLOW_LONG_MAX_MODEL_LEN: what is computed beyond them may be wrong"
        )
    notes += [*override_notes(deployment.hf_overrides), *speculation_notes(deployment.speculative_config)]
    draft = draft_of(model, deployment)
    unknown: tuple[str, ...] = ()
    if draft is not None:
        notes.append(f"--speculative-config: {draft.note}")
        unknown = (draft.note,) if draft.model is None else ()
    elif deployment.draft_tokens and not model.spec.draft_layers:
        unknown = ("the draft layers: the model has none of its own; name the draft model in --speculative-config",)
    notes += notes_on_options(deployment, profile)
    said = (
        architecture_note(model.spec.architecture, profile.version),
        version_note(profile),
        task_note(model, deployment),
    )
    notes += [note for note in said if note is not None]
    tokens, sequences = batch_defaults(model, deployment, profile, total, length)
    recurrent = any(isinstance(cache, StateCache) for cache in model.caches)
    prefix = deployment.enable_prefix_caching
    if prefix is None:
        prefix = profile.runner != "v0" and model.spec.decoder and (profile.hybrid_prefix_caching or not recurrent)
        if recurrent and all(isinstance(cache, StateCache) for cache in model.caches):
            prefix = False
    mode = _state_mode(model, profile) if prefix and recurrent else "none"
    if prefix and recurrent and mode == "none":
        notes.append(f"vLLM {profile.version} turns prefix caching off for this model's recurrent layers")
        prefix = False
    block_size = deployment.block_size or _block_size(model, deployment, profile)
    return Resolved(
        asked=deployment,
        profile=profile,
        gpu_memory_bytes=total,
        dtype=dtype,
        element_bytes=ELEMENT_BYTES[dtype],
        block_size=block_size,
        positions=positions,
        max_model_len=length,
        max_num_seqs=sequences,
        max_num_batched_tokens=tokens,
        gpu_memory_utilization=utilization,
        enable_prefix_caching=prefix,
        hybrid_manager=_hybrid_manager(model, deployment, profile, notes),
        state_mode=mode,
        notes=tuple(notes),
        unknown=unknown,
    )


# The last release that reads GGUF (model_executor/layers/quantization/gguf.py, in the tree to 0.22.1)
_LAST_WITH_GGUF: Final = "0.22.1"


def _with_release(model: Model, deployment: Deployment) -> tuple[Deployment, tuple[str, ...]]:
    """The deployment with the newest release that serves the model, where the user names none."""
    if deployment.engine_version is not DEFAULT_VERSION:
        return deployment, ()
    release = newest_release(model.spec.architecture, DEFAULT_VERSION)
    ggml = is_mix(deployment.quantization or "") or scheme_from_stored(model) is not None
    if ggml and parse_version(release) > parse_version(_LAST_WITH_GGUF):
        release = _LAST_WITH_GGUF
    if release == DEFAULT_VERSION:
        return deployment, ()
    what = "reads GGUF" if ggml else f"has {model.spec.architecture}"
    return replace(deployment, engine_version=release), (f"vLLM {release} is planned: the newest that {what}",)


def batch_defaults(
    model: Model, deployment: Deployment, profile: EngineProfile, total: int, length: int
) -> tuple[int, int]:
    """(max_num_batched_tokens, max_num_seqs) at this max_model_len, the user's own or the version's defaults.

    Args:
        total: memory of the card in bytes.
        length: max_model_len.

    Raises:
        UsageError: fewer tokens than sequences.

    Source: vLLM engine/arg_utils.py get_batch_defaults; config.py SchedulerConfig before V1.
    """
    tokens, sequences = deployment.max_num_batched_tokens, deployment.max_num_seqs
    if profile.batch_defaults == "v0":
        sequences = sequences or 256
        if tokens is None:
            chunked = deployment.enable_chunked_prefill
            if chunked is None:
                chunked = length > _V0_CHUNKED_FROM and not model.has_windows and not model.spec.stacks
            early = profile.accounting == "reserved"
            tokens = (512 if early else 2048) if chunked else max(length, 2048)
            if not chunked and model.spec.stacks and not early:
                tokens = max(tokens, 5120)
        return tokens, sequences
    name = deployment.gpu.name.lower() if deployment.gpu else ""
    huge = profile.huge_card_batches and total >= 160 * GIB
    large = huge or (total >= 70 * GIB and not (profile.a100_small_batches and "a100" in name))
    if profile.gb10_small_batches and not huge and deployment.gpu and deployment.gpu.capability == (12, 1):
        large = False
    api = deployment.usage_context == "api-server"
    default_sequences = 1024 if large else 256
    default_tokens = (8192 if api and not huge else 16384) if large else (2048 if api else 8192)
    if tokens is None:
        tokens = default_tokens
        if deployment.enable_chunked_prefill is False:
            tokens = max(length, tokens)
        tokens = min(tokens, (sequences or default_sequences) * length)
    if sequences is None:
        sequences = min(default_sequences, tokens)
    if tokens < sequences:
        raise UsageError(
            f"max_num_batched_tokens ({tokens}) must be greater than or equal to max_num_seqs ({sequences})",
            field="max_num_batched_tokens",
        )
    return tokens, sequences


def _block_size(model: Model, deployment: Deployment, profile: EngineProfile) -> int:
    """16 tokens; MLA takes its attention backend's (platforms/cuda.py, get_preferred_block_size)."""
    if not model.has_latent_cache or profile.runner == "v0":
        return 16
    if any(isinstance(cache, CompressedCache) for cache in model.caches):
        return _COMPRESSED_BLOCK
    if model.has_sparse_latent_cache:
        return 64
    major = (deployment.gpu.capability or (0, 0))[0] if deployment.gpu else 0
    return _LATENT_BLOCKS[profile.latent_blocks].get(major, 16)


def _hybrid_manager(model: Model, deployment: Deployment, profile: EngineProfile, notes: list[str]) -> bool:
    if deployment.disable_hybrid_kv_cache_manager or not profile.hybrid_manager:
        return False
    if deployment.kv_transfer_config is not None:
        notes.append("a KV connector switches vLLM's hybrid KV cache manager off: every layer is charged in full")
        return False
    if model.has_chunked_cache:
        notes.append("chunked attention switches vLLM's hybrid KV cache manager off: every layer is charged in full")
        return False
    return True


# Kinds whose kernels keep a state for every block (SupportsMambaPrefixCaching, vLLM 0.12.0 to 0.24.0)
_KEPT_BY_BLOCK = ("mamba1", "mamba2")


def _state_mode(model: Model, profile: EngineProfile) -> str:
    """How prefix caching keeps recurrent states (models/config.py MambaModelConfig); "none": it is turned off."""
    rule = profile.state_modes
    if rule == "align":
        return "align"
    by_block = all(cache.kind in _KEPT_BY_BLOCK for cache in model.caches if isinstance(cache, StateCache))
    if rule == "off" or not by_block:
        return "align" if rule == "modes" else "none"
    return "all"
