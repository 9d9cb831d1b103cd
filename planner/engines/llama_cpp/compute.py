"""The compute buffers: a graph of the worst micro-batch, run through ggml's scheduler and allocator.

Of layers that repeat three are built, of groups of layers two and as many as make the rest even: by then the allocator
finds the holes of the round before, or alternates between two patterns. Results are kept by what they depend on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from planner.engines.llama_cpp.graph.context import Batch, Context
from planner.engines.llama_cpp.graph.decoder import build
from planner.engines.llama_cpp.graph.schedule import PIPELINE_COPIES, reserved_bytes
from planner.engines.llama_cpp.graph.style import Style, styles
from planner.engines.llama_cpp.graph.tensor import Graph
from planner.engines.llama_cpp.layout.placement import Placement
from planner.engines.llama_cpp.layout.tensors import GgufTensor
from planner.errors import UnsupportedArchitecture
from planner.model.model import Model

DEVICE_ALIGNMENT = 128  # ggml-cuda.cu; the host's is 32 (ggml-backend.cpp)
HOST_ALIGNMENT = 32
_LONGEST_PERIOD = 16
_ROUNDS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the compute buffers depend on beside the model and the batch."""

    placement: Placement
    value_width: int
    op_offload: bool = True
    pipeline: bool = True


def style_of(model: Model) -> Style:
    """How llama.cpp builds this model's graph.

    Raises:
        UnsupportedArchitecture: not known here.
    """
    found = styles().get(model.spec.model_type)
    if found is None:
        raise UnsupportedArchitecture(
            f"no llama.cpp graph is known for model_type {model.spec.model_type[:40]!r}", field="model"
        )
    return found


def compute_bytes(
    model: Model, batch: Batch, settings: Settings, tensors: Sequence[GgufTensor], style: Style | None = None
) -> tuple[int, ...]:
    """Bytes of every device's compute buffer, the host's last.

    Raises:
        UnsupportedArchitecture: the graph is not known here.
    """
    key = ("llama.cpp compute", batch, settings, style, id(tensors))
    found = model.memo.get(key)
    if found is None:
        found = model.memo[key] = _reserved(model, batch, settings, tensors, style or style_of(model))
    assert isinstance(found, tuple)
    return found


def _reserved(
    model: Model, batch: Batch, settings: Settings, tensors: Sequence[GgufTensor], style: Style
) -> tuple[int, ...]:
    spec, placement = model.spec, settings.placement
    placed = _Placed(placement, tensors)
    context = Context(
        batch=batch,
        style=style,
        hidden_size=spec.hidden_size,
        host=placement.host,
        home_of=placed.home_of,
        bytes_of=placed.bytes_of,
        device_of=placement.device_of,
        value_width=settings.value_width,
        graph=Graph(rows_by_expert=batch.fork),
    )
    kinds = [(id(layer), placement.device_of(index), placed.on_host(index)) for index, layer in enumerate(spec.layers)]
    build(context, spec, representatives(kinds))
    alignments = [DEVICE_ALIGNMENT] * placement.devices + [HOST_ALIGNMENT]
    copies = PIPELINE_COPIES if settings.pipeline and placement.pipelined and batch.offload_cache else 1
    return reserved_bytes(context.graph, alignments, copies=copies, op_offload=settings.op_offload)


class _Placed:
    """Where a graph's weights are, by layer and name without "blk.N." and ".weight"."""

    def __init__(self, placement: Placement, tensors: Sequence[GgufTensor]) -> None:
        self.placement = placement
        self.special = placement.overrides or placement.experts_on_host
        self.by_name: dict[tuple[int, str], GgufTensor] = {}
        self.hosted: dict[int, tuple[str, ...]] = {}
        wanted = self.special or placement.first > 0
        for tensor in tensors:
            if wanted or tensor.layer < 0:
                base = tensor.name.partition(f"blk.{tensor.layer}.")[2] or tensor.name
                self.by_name[-1 if tensor.layer in (-1, placement.layers) else tensor.layer, base] = tensor
        if wanted and self.special:
            for tensor in tensors:
                if tensor.layer >= 0 and placement.device_of_tensor(tensor) == placement.host:
                    base = tensor.name.partition(f"blk.{tensor.layer}.")[2] or tensor.name
                    self.hosted[tensor.layer] = (*self.hosted.get(tensor.layer, ()), base)

    def home_of(self, layer: int, name: str) -> int:
        placement = self.placement
        if layer < 0:
            first = name in ("token_embd", "per_layer_token_embd", "per_layer_model_proj", "position_embd")
            return placement.host if first else placement.device_of(placement.layers)
        if self.special:
            tensor = self.by_name.get((layer, f"{name}.weight"))
            if tensor is not None:
                return placement.device_of_tensor(tensor)
        return placement.device_of(layer)

    def bytes_of(self, layer: int, name: str, elements: int) -> int:
        tensor = self.by_name.get((layer, f"{name}.weight"))
        return tensor.nbytes if tensor is not None else elements * 4

    def on_host(self, layer: int) -> tuple[str, ...]:
        return self.hosted.get(layer, ())


def representatives(kinds: Sequence[object]) -> list[int]:
    """The layers that stand for all: of a run that repeats with a period, its first periods and its end.

    The last layer always stands for itself, since its graph differs.
    """
    count = len(kinds)
    kept: list[int] = []
    index = 0
    while index < count - 1:
        best, saved = 1, 0
        for period in range(1, min(_LONGEST_PERIOD, count - 1 - index) + 1):
            end = index + period
            while end < count - 1 and kinds[end] == kinds[end - period]:
                end += 1
            rounds, even = (_ROUNDS, 1) if period == 1 else (_ROUNDS - 1, 2)
            spare = ((end - index) // period - rounds) // even * even * period
            if spare > saved:
                best, saved = period, spare
        if saved:
            rounds = _ROUNDS if best == 1 else _ROUNDS - 1
            kept += range(index, index + rounds * best)
            index += rounds * best + saved
        else:
            kept.append(index)
            index += 1
    kept.append(count - 1)
    # where little repeats, the pieces that do are not what the allocator is used to
    return kept if 2 * len(kept) <= count else list(range(count))
