"""Every buffer of a run, by device: what the engine prints while it loads."""

from __future__ import annotations

from dataclasses import dataclass

from planner.engines.llama_cpp.compute import DEVICE_ALIGNMENT, HOST_ALIGNMENT, Settings, compute_bytes
from planner.engines.llama_cpp.layout.cache import layer_bytes
from planner.engines.llama_cpp.layout.tensors import GgufTensor
from planner.engines.llama_cpp.resolve import Run, value_width
from planner.model.model import Model

_ROW_PADDING = 512  # ggml-cuda.cu MATRIX_ROW_PADDING
_FLOAT = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Buffers:
    """Bytes of each device, the host's last.

    Args:
        model: weights. full, window: caches of full and of windowed layers. state: recurrent states.
        compute: the compute buffer. output: logits on the host.
    """

    model: tuple[int, ...]
    full: tuple[int, ...]
    window: tuple[int, ...]
    state: tuple[int, ...]
    compute: tuple[int, ...]
    output: int

    def cache(self, device: int) -> int:
        """Keys, values and states on a device."""
        return self.full[device] + self.window[device] + self.state[device]

    def on(self, device: int) -> int:
        """Everything on a device."""
        return self.model[device] + self.cache(device) + self.compute[device]

    @property
    def caches(self) -> int:
        """Keys, values and states everywhere."""
        return sum(self.full) + sum(self.window) + sum(self.state)


def buffers_of(model: Model, run: Run) -> Buffers:
    """The buffers of a run.

    Raises:
        UnsupportedArchitecture: a graph that is not known here.
    """
    placement, spec = run.placement, model.spec
    width = value_width(model, run)
    full, window, state = cache_by_device(model, run)
    compute = compute_bytes(
        model,
        run.batch(),
        Settings(
            placement=placement,
            value_width=width,
            op_offload=run.op_offload,
            pipeline=not run.release.fork or not run.placement.overrides,
        ),
        run.tensors,
        run.style,
    )
    return Buffers(
        model=weight_bytes(model, run),
        full=full,
        window=window,
        state=state,
        compute=compute,
        output=spec.vocab_size * max(run.geometry.slots, 1) * _FLOAT,
    )


def cache_by_device(model: Model, run: Run) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """(full caches, window caches, states) of each device."""
    placement, width = run.placement, value_width(model, run)
    full, window, state = ([0] * (placement.devices + 1) for _ in range(3))
    sizes: dict[int, tuple[int, int, int]] = {}
    for index, layer in enumerate(model.spec.layers):
        if id(layer) not in sizes:
            sizes[id(layer)] = layer_bytes(layer, run.geometry, run.cache, width)
        home = placement.device_of(index) if run.kv_offload else placement.host
        for kind, size in zip((full, window, state), sizes[id(layer)], strict=True):
            kind[home] += size
    return tuple(full), tuple(window), tuple(state)


def weight_bytes(model: Model, run: Run) -> tuple[int, ...]:
    """Bytes of weights on each device, aligned and padded as its buffer wants."""
    placement = run.placement
    found = [0] * (placement.devices + 1)
    if placement.overrides:
        for tensor in run.tensors:
            device = placement.device_of_tensor(tensor)
            found[device] += _size(tensor, on_host=device == placement.host)
        return tuple(found)
    for layer, (card, host, expert_card, expert_host) in _by_layer(model, run).items():
        device = placement.device_of(layer)
        if device == placement.host:
            found[device] += host
        elif 0 <= layer < placement.experts_on_host:
            found[device] += card - expert_card
            found[placement.host] += expert_host
        else:
            found[device] += card
    return tuple(found)


def _by_layer(model: Model, run: Run) -> dict[int, tuple[int, int, int, int]]:
    """(on a card, on the host, of which experts on a card, on the host) of each layer."""
    key = ("llama.cpp weights by layer", id(run.tensors))
    found = model.memo.get(key)
    if found is None:
        sums: dict[int, list[int]] = {}
        for tensor in run.tensors:
            own = sums.setdefault(tensor.layer, [0, 0, 0, 0])
            card, host = _size(tensor, on_host=False), _size(tensor, on_host=True)
            own[0] += card
            own[1] += host
            if tensor.expert:
                own[2] += card
                own[3] += host
        found = model.memo[key] = {layer: tuple(sizes) for layer, sizes in sums.items()}
    return found  # type: ignore[return-value]


def _size(tensor: GgufTensor, *, on_host: bool) -> int:
    """Bytes with alignment; on a card quantised rows are padded once a tensor."""
    size = tensor.nbytes
    if on_host:
        return -(-size // HOST_ALIGNMENT) * HOST_ALIGNMENT
    bits = size * 8 / max(1, tensor.elements)
    if bits < 16 and tensor.row % _ROW_PADDING:
        size += round((_ROW_PADDING - tensor.row % _ROW_PADDING) * bits / 8)
    return -(-size // DEVICE_ALIGNMENT) * DEVICE_ALIGNMENT
