"""Buffers that the profile's forward leaves allocated: workspaces, states, tables."""

from __future__ import annotations

from typing import Final

from planner.engines.vllm.budget.encoder import encoder_inputs
from planner.engines.vllm.budget.runner import Term, distinct
from planner.engines.vllm.resolve import Resolved
from planner.engines.vllm.tables.profile import parse_version
from planner.hardware.cublas import cublas_workspace
from planner.memory import activations as terms
from planner.memory.cache.formats import cache_format
from planner.memory.cache.kv_cache import layer_caches
from planner.memory.parallel.sharding import Parallelism
from planner.model.caches import IndexerCache, LatentCache
from planner.model.kinds.feed_forward import Moe
from planner.model.model import Model


def kept_buffers(model: Model, resolved: Resolved, parallelism: Parallelism, layers: slice) -> tuple[Term, ...]:
    """What the profile run allocates and does not give back: library and expert workspaces of one GPU."""
    found = [Term("BLAS workspace", cublas_workspace(resolved.asked.gpu).size_bytes, "fixed")]
    sparse = sparse_workspace(model, resolved)
    shares = sparse is not None and parse_version(resolved.profile.version) >= SHARED_WORKSPACE
    shared = [sparse] if sparse is not None and shares else []
    if resolved.profile.expert_buffers == "workspace":
        buffers = [
            _expert_workspace(layer.feed_forward, model, resolved, parallelism)
            for layer in distinct(model.spec.layers[layers])
            if isinstance(layer.feed_forward, Moe)
        ]
        shared += buffers
    if shared:
        # one workspace serves all that ask for it in turn
        found.append(max(shared, key=lambda term: term.size))
    return tuple(term for term in found if term.size)


# v1/worker/workspace.py; before, the indexer's buffer is made in every forward
SHARED_WORKSPACE: Final = (0, 13, 0)
_INDEXER_PREFILL_LENGTHS: Final = 40
_FLASH_MLA_LENGTHS: Final = 5


def sparse_workspace(model: Model, resolved: Resolved) -> Term | None:
    """What sparse attention asks for a prefill: the indexer's keys of 40 requests, or FlashMLA's latents of 5.

    Source: vLLM 0.19.0 `v1/attention/backends/mla/indexer.py` get_max_prefill_buffer_size, `flashmla_sparse.py`: an fp8
    cache is read back into 16-bit latents.
    """
    if not model.has_sparse_latent_cache:
        return None
    length, candidates = resolved.max_model_len, []
    for cache in model.caches:
        if isinstance(cache, IndexerCache):
            slot = cache_format("auto", resolved.dtype).slot_bytes(cache, 1)
            size = _INDEXER_PREFILL_LENGTHS * length * slot
            candidates.append(Term("indexer workspace", size, f"{_INDEXER_PREFILL_LENGTHS} x {length:,} x {slot}"))
        if isinstance(cache, LatentCache) and resolved.asked.kv_cache_dtype.startswith("fp8"):
            slot = (cache.kv_lora_rank + cache.qk_rope_head_dim) * resolved.element_bytes
            size = _FLASH_MLA_LENGTHS * length * slot
            candidates.append(Term("FlashMLA workspace", size, f"{_FLASH_MLA_LENGTHS} x {length:,} x {slot}"))
    return max(candidates, key=lambda term: term.size, default=None)


def held_through_forward(model: Model, resolved: Resolved, parallelism: Parallelism, layers: slice) -> tuple[Term, ...]:
    """What stays referenced from the first layer to the sampler, and goes with the profile run."""
    found = encoder_inputs(model, resolved)
    if resolved.profile.runner == "v0" and model.is_recurrent:
        found.append(_recurrent_states(model, resolved, parallelism, layers))
    return tuple(term for term in found if term.size)


def _recurrent_states(model: Model, resolved: Resolved, parallelism: Parallelism, layers: slice) -> Term:
    """V0 makes the states of max_num_seqs sequences in the first forward (models/mamba_cache.py 0.8.5)."""
    entries = layer_caches(
        model.spec.layers[layers],
        cache_format("auto", resolved.dtype),
        state_dtype=resolved.dtype,
        tensor_parallel_size=parallelism.tensor_parallel_size,
        honour_model_state_dtype=False,
    )
    each = sum(entry.count * entry.state_bytes for entry in entries)
    size = resolved.max_num_seqs * each
    return Term("recurrent states", size, f"{resolved.max_num_seqs:,} sequences x {each:,}")


def latent_workspace_tokens(resolved: Resolved) -> int:
    """Tokens of MLA's chunked-prefill workspace (vLLM mla_attention.py determine_chunked_prefill_workspace_size)."""
    length, sequences = resolved.max_model_len, resolved.max_num_seqs
    wanted = max(8 * length, 4 * sequences * resolved.block_size)
    return max(min(wanted, resolved.profile.latent_workspace_cap), sequences * resolved.block_size)


def _expert_workspace(moe: Moe, model: Model, resolved: Resolved, parallelism: Parallelism) -> Term:
    if mxfp4(model):
        # the Triton MXFP4 kernels do not use the workspace manager
        return Term("expert workspaces", 0, "none")
    width = moe.expert_input_size or model.spec.hidden_size
    inner = expert_width(moe, parallelism)
    tokens = min(resolved.max_num_batched_tokens, resolved.profile.expert_chunk or resolved.max_num_batched_tokens)
    size = terms.expert_workspaces(
        tokens=tokens,
        hidden_size=width,
        moe_intermediate_size=inner,
        experts_per_token=moe.num_experts_per_tok,
        element_bytes=resolved.element_bytes,
        gated=moe.gated,
    )
    up = 2 * inner if moe.gated else inner
    formula = (
        f"{tokens:,} x {moe.num_experts_per_tok} x (max({inner:,}, {width:,}) + max({up:,}, {width:,}))"
        f" x {resolved.element_bytes}"
    )
    return Term("expert workspaces", size, formula)


def expert_width(moe: Moe, parallelism: Parallelism) -> int:
    """Width of the experts on one GPU."""
    if parallelism.enable_expert_parallel:
        return moe.moe_intermediate_size
    return -(-moe.moe_intermediate_size // parallelism.expert_parallel_size)


def mxfp4(model: Model) -> bool:
    """The experts are stored in MXFP4."""
    config = model.spec.quantization_config
    return config is not None and config.get("quant_method") == "mxfp4"
