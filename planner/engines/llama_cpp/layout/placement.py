"""Which device holds which tensor: layers from the end, the output layer first, then overrides.

    first layer on a device   max(n_layer + 1 - n_gpu_layers, 0); before mid-2026 max(n_layer - n_gpu_layers, 0), and
                              the output layer only beyond n_layer
    device of a layer         the first whose share of the split, added up, exceeds (layer - first) / layers offloaded

Source: llama.cpp v0.5.0 `src/llama-model.cpp` (load_tensors), `common/arg.cpp` (--n-cpu-moe, --cpu-moe).
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from planner.engines.llama_cpp.layout.tensors import EXPERTS, GgufTensor
from planner.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Devices by layer and tensor; the host is the number after the last device.

    Args:
        devices: how many cards.
        layers: layers of the model; the output layer is the one after them.
        offloaded: layers on cards, the output layer among them.
        split: shares of the cards.
        overrides: (pattern, device) in the order given; the first that matches wins.
        experts_on_host: experts of that many layers from the front stay in host memory.
        output_first: the output layer is the first that goes to a card.
    """

    devices: int
    layers: int
    offloaded: int
    split: tuple[float, ...] = ()
    overrides: tuple[tuple[str, int], ...] = ()
    experts_on_host: int = 0
    output_first: bool = True

    @property
    def host(self) -> int:
        """The number of the host."""
        return self.devices

    @property
    def first(self) -> int:
        """The first layer on a card."""
        return max(self.layers + self.output_first - self.offloaded, 0)

    @property
    def complete(self) -> bool:
        """Every layer and the output layer are on cards."""
        return self.devices > 0 and self.offloaded > self.layers

    @property
    def pipelined(self) -> bool:
        """Whether the engine keeps copies for pipeline parallelism: several cards, everything on them, no overrides."""
        return self.devices > 1 and self.complete and not self.overrides and not self.experts_on_host

    def device_of(self, layer: int) -> int:
        """Where a layer is; the input side is on the host."""
        if layer < self.first or layer < 0 or not self.devices:
            return self.host
        if layer == self.layers and not self.output_first and self.offloaded <= self.layers:
            return self.host
        if self.devices == 1:
            return 0
        total = sum(self.split)
        edges = [edge / total for edge in accumulate(self.split)]
        share = (layer - self.first) / min(self.offloaded, self.layers + 1)
        return min(bisect_right(edges, share), self.devices - 1)

    def device_of_tensor(self, tensor: GgufTensor) -> int:
        """Where a tensor is."""
        if tensor.layer < 0:
            return self.host
        for pattern, device in self.overrides:
            if re.search(pattern, tensor.name):
                return device
        if 0 <= tensor.layer < self.experts_on_host and EXPERTS.search(tensor.name):
            return self.host
        return self.device_of(tensor.layer)


def check_overrides(placement: Placement, tensors: Sequence[GgufTensor]) -> None:
    """Every override names some tensor.

    Raises:
        UsageError: one does not, or is no regular expression.
    """
    for pattern, _ in placement.overrides:
        try:
            compiled = re.compile(pattern)
        except re.error as error:
            raise UsageError(
                f"--override-tensor {pattern[:60]!r} is no regular expression ({error})", field="override_tensor"
            ) from None
        if not any(compiled.search(tensor.name) for tensor in tensors):
            raise UsageError(
                f"--override-tensor {pattern[:60]!r} matches no tensor of this model; names look like"
                " blk.0.ffn_up_exps.weight",
                field="override_tensor",
            )
