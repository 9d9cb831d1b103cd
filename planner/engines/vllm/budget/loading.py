"""What loading takes, before anything is profiled: the peak on one GPU, and host memory.

    online fp8     up to 0.14 the whole model is laid out in 16 bit and then converted; from 0.16 layer by layer
    everything     one layer twice while its kernel's layout is made
    host           offloaded weights, V0's CPU blocks, and what sleep mode backs up

Sources: vLLM 0.12.0 and 0.17.1 `model_executor/layers/quantization/fp8.py` (process_weights_after_loading, meta
device), 0.8.5 `config.py` (swap_space), `v1/worker/gpu_worker.py` sleep.
"""

from __future__ import annotations

from typing import Final

from planner.contract.plan import Load
from planner.engines.vllm.budget.budget import StageBudget, weights_of
from planner.engines.vllm.resolve import Resolved
from planner.engines.vllm.tables.profile import parse_version
from planner.memory.parallel.sharding import Parallelism
from planner.memory.quantisation import plain_scheme
from planner.model.model import Model
from planner.units import GIB, format_size

_LAYERWISE_FP8: Final = (0, 15, 0)
_CONSUMED_COUNTS_SLEEP: Final = (0, 27, 0)
_DEFAULT_SWAP_BYTES: Final = 4 * GIB


def converts_whole_model(model: Model, resolved: Resolved) -> bool:
    """A 16-bit checkpoint is loaded whole and only then converted to fp8."""
    online = resolved.asked.quantization == "fp8" and model.spec.quantization_config is None
    return online and parse_version(resolved.profile.version) < _LAYERWISE_FP8


def load_of(model: Model, resolved: Resolved, parallelism: Parallelism, stage: StageBudget, *, stages: int) -> Load:
    """Loading of one stage's fullest GPU, and host memory of every rank."""
    weights = stage.component("weights")
    assert weights is not None
    asked = resolved.asked
    peak = weights.best + stage.weights.largest_layer_bytes
    if converts_whole_model(model, resolved):
        whole = weights_of(
            model,
            resolved,
            plain_scheme(resolved.dtype),
            parallelism,
            layers=stage.layers,
            first=stage.stage == 0,
            last=stage.stage == stages - 1,
        )
        peak = max(peak, whole.total_bytes - min(asked.cpu_offload_bytes, whole.total_bytes))
    ranks = asked.tensor_parallel_size * stages
    host = asked.cpu_offload_bytes * ranks
    if resolved.profile.swap_space == "blocks":
        host += (_DEFAULT_SWAP_BYTES if asked.swap_space_bytes is None else asked.swap_space_bytes) * ranks
    if asked.enable_sleep_mode:
        host += weights.best * ranks
    return Load(gpu_peak_bytes=peak, host_bytes=host)


def load_notes(model: Model, resolved: Resolved, load: Load) -> tuple[str, ...]:
    """What a reader should know about loading, sleeping and shared memory."""
    found, version = [], resolved.profile.version
    if converts_whole_model(model, resolved):
        found.append(
            f"vLLM {version} lays the whole model out in 16 bit before it converts to fp8:"
            f" {format_size(load.gpu_peak_bytes)} while loading; 0.16 and later convert layer by layer"
        )
    if resolved.asked.enable_sleep_mode:
        late = ""
        if parse_version(version) < _CONSUMED_COUNTS_SLEEP:
            late = "; before 0.27 its allocator is not counted in full, and the pool printed can be larger than planned"
        found.append(f"sleep mode: level 1 keeps the weights in host memory, level 2 drops them{late}")
    card = resolved.asked.gpu
    if card is not None and card.unified_memory:
        found.append(
            "unified memory: page cache, other programs and the engine's own host memory take from the same total;"
            " free memory is what the system calls available (0.14 and later)"
        )
    return tuple(found)
