"""A deployment with every default applied: what the engine would run."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from planner.engines.llama_cpp.compute import style_of
from planner.engines.llama_cpp.deployment import Deployment
from planner.engines.llama_cpp.graph.context import Batch
from planner.engines.llama_cpp.graph.style import Style
from planner.engines.llama_cpp.layout.cache import CACHE_TYPES, CacheSettings, widest_value, window_of
from planner.engines.llama_cpp.layout.geometry import Geometry, geometry_of
from planner.engines.llama_cpp.layout.placement import Placement, check_overrides
from planner.engines.llama_cpp.layout.tensors import GgufTensor, gguf_tensors
from planner.engines.llama_cpp.tables.releases import Release, release_of
from planner.engines.llama_cpp.tables.variants import variants
from planner.errors import PlannerError, UsageError
from planner.model.model import Model

_ALL: Final = ("all", "auto", "-1", "-2")
_USUAL_DRAFTS: Final = 3  # common.h: speculative n_max of v0.5.0
_USUAL_ATTENTION_BATCH: Final = 256  # common/common.h of the fork, 37d82c231


class Refused(PlannerError):
    """The engine would not start, however much memory there were; the message is its own where it has one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What is run.

    Args:
        style: how the graph is built; tensors: every loaded one.
        dry: as the engine's own planner measures (`--fit`), which forgets where norms were placed.
    """

    release: Release
    style: Style
    tensors: tuple[GgufTensor, ...]
    geometry: Geometry
    placement: Placement
    cache: CacheSettings
    n_batch: int
    n_ubatch: int
    unified: bool
    outputs: int | None
    kv_offload: bool
    op_offload: bool
    backend: str
    fused_moe: bool = False
    attention_max_batch: int = 0
    dry: bool = False
    notes: tuple[str, ...] = ()

    @property
    def flash_attention(self) -> bool:
        """Whether attention is fused."""
        return self.cache.flash_attention

    def batch(self) -> Batch:
        """The worst micro-batch of this run."""
        release, geometry, cache = self.release, self.geometry, self.cache
        return Batch(
            tokens=geometry.tokens,
            sequences=geometry.slots,
            outputs=geometry.outputs,
            streams=geometry.streams,
            cells=geometry.cells,
            window_cells=geometry.window_cells,
            flash_attention=cache.flash_attention,
            key_bytes=float(CACHE_TYPES[cache.type_k]),
            value_bytes=float(CACHE_TYPES[cache.type_v]),
            rollback=cache.rollback,
            mask_item=2 if cache.flash_attention and release.has("half_mask") else 4,
            cast_mask=not release.has("half_mask"),
            mask_multiple=64 if release.has("padded_mask") else 1,
            rotates_cache=release.has("rotated_cache"),
            copies_cache=release.has("counted_copies") and self.backend in ("cuda", "rocm"),
            places_norms=self.placement.complete and not self.dry,
            embedding_inputs=2 if release.has("embedding_input") else 1,
            offload_cache=self.kv_offload,
            glu=release.has("glu"),
            row_indices=release.has("row_indices"),
            fused_moe=self.fused_moe,
            mla=cache.mla,
            attention_max_batch=self.attention_max_batch,
            fused_up_gate=release.fork and release.has("fused_up_gate"),
            attends_in_parts=release.has("parts_of_heads"),
            fork=release.fork,
        )


def resolve(model: Model, deployment: Deployment, *, outputs: int | None = None) -> Run:
    """The run of a deployment.

    Args:
        outputs: rows of logits, where another program than llama-server says so.

    Raises:
        Refused: the engine would not start.
        UsageError: an input that makes no sense.
        UnsupportedArchitecture, UnsupportedQuantization: not understood.
    """
    variant = variants()[deployment.variant]
    release = release_of(deployment.engine_version, fork=deployment.variant == "ik_llama.cpp")
    style = style_of(model)
    tensors, notes = gguf_tensors(model, _mix(model, deployment))
    flash = _flash_attention(deployment, variant.flash_attn, release)
    slots = deployment.parallel if deployment.parallel not in (None, -1, 0) else variant.parallel
    assert slots is not None
    unified = deployment.kv_unified
    if unified is None:
        unified = variant.unified and deployment.parallel in (None, -1)
    window = window_of(model.spec) if style.separate_caches and not release.fork else 0
    n_batch, n_ubatch = deployment.batch_size or variant.n_batch, deployment.ubatch_size or variant.n_ubatch
    drafted = 0
    if deployment.model_draft is not None or deployment.draft_max:
        drafted = _USUAL_DRAFTS if deployment.draft_max is None else deployment.draft_max
    if outputs is None and not deployment.embedding:
        outputs = slots * (1 + drafted)
    if deployment.embedding:
        n_batch = n_ubatch  # a server of embeddings computes a batch at once
        outputs = None
    geometry = geometry_of(
        release,
        n_ctx=_context(model, deployment, variant.ctx_size),
        n_batch=n_batch,
        n_ubatch=n_ubatch,
        slots=slots,
        unified=unified,
        window=window,
        swa_full=deployment.swa_full,
        flash_attention=flash,
        outputs=outputs,
    )
    placement = _placement(model, deployment, variant.n_gpu_layers, release)
    check_overrides(placement, tensors)
    return Run(
        release=release,
        style=style,
        tensors=tensors,
        geometry=geometry,
        placement=placement,
        cache=CacheSettings(
            type_k=deployment.cache_type_k,
            type_v=deployment.cache_type_v,
            flash_attention=flash,
            mla=_mla(deployment, release),
            rollback=drafted if model.is_recurrent else 0,
            split_windows=window > 0,
        ),
        n_batch=n_batch,
        n_ubatch=n_ubatch,
        unified=unified,
        outputs=outputs,
        kv_offload=deployment.kv_offload,
        op_offload=deployment.op_offload and not _for_a_cpu(deployment),
        backend=backend_of(deployment),
        fused_moe=release.fork
        and (release.has("fused_by_default") if deployment.fused_moe is None else deployment.fused_moe),
        attention_max_batch=_attention_max_batch(deployment, release),
        notes=notes,
    )


def _mla(deployment: Deployment, release: Release) -> int:
    """The MLA mode: as stated (the fork's), else the latent alone once files have MLA tensors."""
    if deployment.mla is not None:
        return deployment.mla
    return 3 if release.has("latent_cache") else 0


def _attention_max_batch(deployment: Deployment, release: Release) -> int:
    if deployment.attention_max_batch is not None:
        return deployment.attention_max_batch
    return _USUAL_ATTENTION_BATCH if release.has("small_attention_batch") else 0


def _for_a_cpu(deployment: Deployment) -> bool:
    """Whether host weights are interleaved (-rtr) in a type that no card computes with: all but the fork's own IQ ones.

    Source: ik_llama.cpp ggml-cuda.cu (supports_op lists iq2_k_r4 ... iq5_ks_r4 only).
    """
    return deployment.run_time_repack and (deployment.quantization or "").upper().startswith("Q")


def backend_of(deployment: Deployment) -> str:
    """The back end: as stated, or by the card's maker."""
    if deployment.backend is not None:
        return deployment.backend
    vendor = deployment.cards[0].vendor.lower() if deployment.cards else "nvidia"
    return {"nvidia": "cuda", "amd": "rocm", "apple": "metal"}.get(vendor, "vulkan")


def _mix(model: Model, deployment: Deployment) -> str | None:
    stored = any(tensor.name.startswith("blk.") for tensor in model.stored)
    named = model.spec.quantization_config or {}
    if deployment.quantization is None and named.get("quant_method") == "gguf" and not stored:
        return str(named.get("mix"))
    if deployment.quantization is None and named.get("quant_method") == "mxfp4":
        return "MXFP4_MOE"  # the converter keeps such experts as they are
    if deployment.quantization is None:
        return None if stored else "F16"
    if stored:
        raise UsageError(
            "--quantization: the file's tensors say how they are stored; leave it out, or name the model itself",
            field="quantization",
        )
    return deployment.quantization


def _flash_attention(deployment: Deployment, default: str, release: Release) -> bool:
    said = deployment.flash_attn or default
    flash = said != "off" if deployment.flash_attn or not release.fork else release.has("fused_by_default")
    if not flash and deployment.cache_type_v not in ("f32", "f16", "bf16"):
        raise Refused("quantized V cache was requested, but this requires Flash Attention", field="cache_type_v")
    return flash


def _context(model: Model, deployment: Deployment, default: int) -> int:
    asked = deployment.ctx_size if deployment.ctx_size is not None else default
    return asked or model.spec.max_position_embeddings


def _placement(model: Model, deployment: Deployment, default: str, release: Release) -> Placement:
    layers, cards = len(model.spec.layers), deployment.cards
    said = deployment.n_gpu_layers or default
    if said.lower() in _ALL:
        offloaded = layers + 1
    elif said.isdigit():
        offloaded = min(int(said), layers + 1)
    else:
        raise UsageError(f"--n-gpu-layers is {said[:40]!r}; expected a number, auto or all", field="n_gpu_layers")
    count = len(cards) if cards else 1
    split = deployment.tensor_split or ()
    if len(split) > count:
        raise UsageError(
            f"--tensor-split has {len(split)} shares for {count} card{'s' if count > 1 else ''}; name all cards with"
            " --gpus",
            field="tensor_split",
        )
    if deployment.main_gpu >= count:
        raise UsageError(f"--main-gpu {deployment.main_gpu}: there are {count} cards, counted from 0", field="main_gpu")
    if deployment.split_mode in ("row", "tensor") and count > 1:
        raise UsageError(
            f"--split-mode {deployment.split_mode} is not planned here yet; --split-mode layer is", field="split_mode"
        )
    if deployment.split_mode == "none":
        count, split = 1, ()
    free = tuple(float(card.total_memory_bytes) for card in cards) or (1.0,)
    hosted = layers if deployment.cpu_moe else min(deployment.n_cpu_moe or 0, layers)
    overrides = []
    for pair in deployment.override_tensor:
        pattern, _, name = pair.rpartition("=")
        overrides.append((pattern, _device(name, count)))
    return Placement(
        devices=count,
        layers=layers,
        offloaded=offloaded,
        split=(*split, *([0.0] * (count - len(split)))) if split else free[:count],
        overrides=tuple(overrides),
        experts_on_host=hosted,
        output_first=release.has("output_first"),
    )


def _device(name: str, count: int) -> int:
    word = name.strip().upper()
    if word.startswith("CPU"):
        return count
    digits = "".join(letter for letter in word if letter.isdigit())
    if digits and int(digits) < count:
        return int(digits)
    raise UsageError(
        f"--override-tensor: unknown buffer type {name[:20]!r}; CPU, or a card such as CUDA0", field="override_tensor"
    )


def value_width(model: Model, run: Run) -> int:
    """Elements of a transposed cache's row, the widest layer's."""
    return 0 if run.flash_attention else widest_value(model.spec)


def on_length(run: Run, n_ctx: int, model: Model) -> Run:
    """The same run with another context."""
    window = window_of(model.spec) if run.cache.split_windows else 0
    geometry = geometry_of(
        run.release,
        n_ctx=n_ctx,
        n_batch=run.n_batch,
        n_ubatch=run.n_ubatch,
        slots=run.geometry.slots,
        unified=run.unified,
        window=window,
        swa_full=run.geometry.window_cells == run.geometry.cells and window > 0,
        flash_attention=run.flash_attention,
        outputs=run.outputs,
    )
    return replace(run, geometry=geometry)
