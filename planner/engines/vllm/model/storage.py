"""Which storage scheme a deployment's weights have: the checkpoint's own, or the export that was asked for."""

from __future__ import annotations

from typing import Final

from planner.engines.vllm.resolve import Resolved
from planner.engines.vllm.tables.profile import parse_version
from planner.errors import UnsupportedQuantization
from planner.memory.formats import BitsPerWeight, RowBlocks
from planner.memory.quantisation import WeightScheme, plain_scheme, scheme_from_config, scheme_from_name
from planner.memory.runtime import runtime_scheme
from planner.memory.schemes.stored_scheme import scheme_from_stored
from planner.model.model import Model

# vLLM model_loader/bitsandbytes_loader.py: nested scales become fp32 while loading from here on
_EXPANDS_NESTED_SCALES: Final = (0, 9, 2)
_LAST_WITH_GGUF: Final = (0, 22, 1)
_FIRST_WITH_MLA: Final = (0, 7, 0)


def scheme_for(model: Model, resolved: Resolved) -> WeightScheme:
    """The scheme as the engine holds it in memory after loading.

    A checkpoint that is already quantised is planned as it is, whatever --quantization names.

    Raises:
        UnsupportedQuantization: a format that is not understood, or not by this engine version.
    """
    asked = resolved.asked
    capability = asked.gpu.capability if asked.gpu else None
    key = (
        "scheme",
        resolved.dtype,
        asked.quantization,
        asked.group_size,
        asked.quantize_lm_head,
        resolved.profile.version,
        capability,
    )
    found = model.memo.get(key)
    if isinstance(found, WeightScheme):
        return found
    scheme: WeightScheme
    stored = scheme_from_stored(model)
    if stored is not None:
        # a GGUF file says the type of every tensor
        scheme = stored
    elif model.spec.quantization_config is not None:
        scheme = scheme_from_config(model.spec, dtype=resolved.dtype)
    elif asked.quantization is not None:
        scheme = scheme_from_name(
            _export_name(asked.quantization, resolved),
            model.spec,
            dtype=resolved.dtype,
            group_size=asked.group_size,
            quantize_lm_head=asked.quantize_lm_head,
        )
    else:
        scheme = plain_scheme(resolved.dtype)
    scheme = as_loaded(scheme, parse_version(resolved.profile.version), compute_capability=capability)
    model.memo[key] = scheme
    return scheme


def as_loaded(
    scheme: WeightScheme,
    version: tuple[int, ...],
    *,
    compute_capability: tuple[int, int] | None = (9, 0),
    backend: str | None = None,
) -> WeightScheme:
    """The scheme as this release holds it in memory after loading.

    Args:
        compute_capability: of the GPU; None is taken as Hopper.
        backend: MoE kernels for MXFP4; None: what vLLM chooses for the GPU.

    Raises:
        UnsupportedQuantization: a format that this release does not read, or an unknown backend.
    """
    for found in scheme.assignment.formats if scheme.assignment is not None else ():
        if isinstance(found, BitsPerWeight):
            raise UnsupportedQuantization(f"vLLM does not read {found.name}; ExLlama does", field="quantization")
        if isinstance(found, RowBlocks) and version > _LAST_WITH_GGUF:
            raise UnsupportedQuantization(
                f"vLLM {'.'.join(map(str, version))} no longer reads GGUF (0.22.1 was the last); plan with llama.cpp, "
                "or choose another export",
                field="quantization",
            )
    return runtime_scheme(
        scheme,
        compute_capability=compute_capability,
        backend=backend,
        expands_scales=version >= _EXPANDS_NESTED_SCALES,
        absorbs=version >= _FIRST_WITH_MLA,
    )


def _export_name(name: str, resolved: Resolved) -> str:
    """bitsandbytes' scales are quantised again while loading (compress_statistics), and kept so until 0.9.2."""
    nested = parse_version(resolved.profile.version) < _EXPANDS_NESTED_SCALES
    return "nf4-dq" if nested and name.strip().lower() == "bitsandbytes" else name


def is_plain(scheme: WeightScheme) -> bool:
    """Nothing is quantised: every weight is in the model's own type."""
    return scheme.assignment is None or not scheme.assignment.formats
