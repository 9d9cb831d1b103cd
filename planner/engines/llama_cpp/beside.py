"""What stands beside the model on the first card: an image encoder, a draft model, the model's own draft layers.

Each is a context of its own, with its own cache and compute buffer.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from planner.contract.component import Component, exact
from planner.engines.llama_cpp.buffers import buffers_of
from planner.engines.llama_cpp.deployment import Deployment
from planner.engines.llama_cpp.layout.cache import layer_bytes
from planner.engines.llama_cpp.resolve import Run, resolve
from planner.errors import PlannerError
from planner.memory.ggml.mixes import ggml_mix
from planner.model.load import load_model
from planner.model.model import Model
from planner.model.tensors import draft_tensors
from planner.units import MIB, format_size

_FLOAT = 4


def beside_model(model: Model, deployment: Deployment, run: Run) -> tuple[list[Component], list[str]]:
    """(components of the first card, what is not known)."""
    found: list[Component] = []
    missing: list[str] = []
    if deployment.mmproj is not None:
        _images(deployment.mmproj, found, missing)
    if deployment.model_draft is not None:
        _draft_model(deployment, run, found, missing)
    elif deployment.draft_max and model.spec.draft_layers:
        found += _draft_layers(model, deployment, run)
    return found, missing


def _images(path: str, found: list[Component], missing: list[str]) -> None:
    try:
        size = Path(path).expanduser().stat().st_size
    except OSError:
        missing.append(f"--mmproj: {path[:60]} is no file here, so its size is not known")
        return
    found.append(
        Component(
            name="mmproj",
            low=size,
            best=size + 248 * MIB,
            high=size + 1136 * MIB,
            evidence="assumed",
            formula=f"a file of {format_size(size)}, and 0, 248 or 1136 MiB to compute with",
            source="a 27B's image encoder: 248 MiB of compute buffer printed, 1136 MiB taken off by --fit",
        )
    )


def _draft_model(deployment: Deployment, run: Run, found: list[Component], missing: list[str]) -> None:
    name = str(deployment.model_draft)
    try:
        draft = load_model(name)
        asked = replace(
            deployment,
            model_draft=None,
            draft_max=None,
            mmproj=None,
            n_gpu_layers="all",
            n_cpu_moe=None,
            cpu_moe=False,
            override_tensor=(),
            quantization=None if draft.stored else deployment.quantization,
            ctx_size=run.geometry.n_ctx,
        )
        buffers = buffers_of(draft, resolve(draft, asked, outputs=run.geometry.slots))
    except PlannerError as error:
        missing.append(f"--model-draft: {error}")
        return
    found.append(
        exact(
            "draft_model",
            buffers.on(0),
            f"{format_size(buffers.model[0])} of weights, {format_size(buffers.cache(0))} of cache,"
            f" {format_size(buffers.compute[0])} to compute with",
            "as the model itself",
        )
    )


def _draft_layers(model: Model, deployment: Deployment, run: Run) -> list[Component]:
    """The model's own draft layers: weights and a cache of their own; their graph is bounded by the model's."""
    mix, _ = ggml_mix(deployment.quantization or "F16", model.spec)
    weights = 0
    for tensor in draft_tensors(model.spec):
        stored = mix.format_of(tensor)
        weights += stored.bytes(tensor.shape, tensor.input_dim) if stored is not None else 0
    cache = sum(sum(layer_bytes(layer, run.geometry, run.cache, 0)) for layer in model.spec.draft_layers)
    batch = run.batch()
    mask = batch.cells * batch.tokens * batch.mask_item
    streams = 6 * model.spec.hidden_size * batch.tokens * _FLOAT
    return [
        Component(
            name="draft_layers",
            low=weights + cache + mask,
            best=weights + cache + mask + streams,
            high=weights + cache + mask + 2 * streams,
            evidence="assumed",
            formula=f"{format_size(weights)} of weights, {format_size(cache)} of cache, a mask of {format_size(mask)},"
            " about six residual streams",
            source="a 27B's draft context at 32,768 tokens printed 128 MiB of cache and 130 MiB to compute with",
        )
    ]
