"""What every part of a graph needs to know: the batch, the caches, where weights are, and the shared inputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import prod

from planner.engines.llama_cpp.graph.style import Style
from planner.engines.llama_cpp.graph.tensor import F16, F32, I32, I64, Graph, Tensor
from planner.model.tensor import Norm


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """One graph's worst case.

    Args:
        tokens: of a micro-batch, a multiple of `sequences`.
        sequences: slots; a recurrent layer works on each by itself.
        outputs: rows of logits.
        streams: caches that stand beside each other (1: one for all slots).
        cells: cache cells of a full layer in a stream; `window_cells` those of a windowed layer.
        flash_attention: one fused operation instead of a matrix of scores.
        key_bytes, value_bytes: bytes per cached element.
        rollback: states kept for drafted tokens.
        mask_item: bytes of one element of the mask on the host.
        cast_mask: the device casts the mask to F16 first (before 2026-05).
        rotates_cache: keys and values of a quantised cache go through a Hadamard matrix first.
        copies_cache: kernels for quantised caches keep F16 copies in the compute buffer.
        places_norms: norms run where their layer is (with every layer on devices; the engine's dry runs lose it).
        embedding_inputs: embedding-sized inputs on the host.
        offload_cache: a layer's cache is where the layer is.
        mask_multiple: the mask's rows are padded to a multiple.
        glu: gate and up meet in an operation of its own rather than in two in place.
        row_indices: cache rows are written by index rather than copied into views.
        fork, fused_moe, mla, attention_max_batch: ik_llama.cpp's graph and options.
        fused_up_gate: its dense gate and up are one operation.
        attends_in_parts: its MLA modes attend to each part of the heads before they make the next one's keys.
    """

    tokens: int
    sequences: int = 1
    outputs: int
    streams: int = 1
    cells: int
    window_cells: int = 0
    flash_attention: bool = True
    key_bytes: float = 2.0
    value_bytes: float = 2.0
    rollback: int = 0
    mask_item: int = F16
    cast_mask: bool = False
    rotates_cache: bool = True
    copies_cache: bool = True
    places_norms: bool = False
    embedding_inputs: int = 2
    offload_cache: bool = True
    mask_multiple: int = 1
    glu: bool = True
    row_indices: bool = True
    fused_moe: bool = False
    mla: int = 3
    attention_max_batch: int = 0
    fused_up_gate: bool = False
    attends_in_parts: bool = False
    fork: bool = False


@dataclass(slots=True)
class Context:
    """A graph under construction, with the inputs that its parts share."""

    batch: Batch
    style: Style
    hidden_size: int
    host: int
    home_of: Callable[[int, str], int]
    bytes_of: Callable[[int, str, int], int]
    device_of: Callable[[int], int]
    value_width: int = 0
    graph: Graph = field(default_factory=Graph)
    inputs: dict[str, Tensor] = field(default_factory=dict)

    def input(self, name: str, *ne: int, item: int = F32) -> Tensor:
        """A named input, made when first asked for."""
        found = self.inputs.get(name)
        if found is None:
            found = self.inputs[name] = self.graph.new_input(*ne, item=item)
        return found

    def weight(self, layer: int, name: str, *ne: int) -> Tensor:
        """A weight, by its GGUF name without "blk.N." and ".weight"; -1 stands for no layer."""
        home = self.home_of(layer, name)
        return self.graph.weight(home, *ne, nbytes=self.bytes_of(layer, name, prod(ne)) if home == self.host else 0)

    def linear(self, layer: int, name: str, x: Tensor, out: int, *, bias: bool = False) -> Tensor:
        """A linear layer, with its bias if it has one."""
        result = self.graph.mul_mat(self.weight(layer, name, x.ne[0], out), x)
        return self.graph.same("add", result, self.weight(layer, f"{name}.bias", out)) if bias else result

    def norm(self, layer: int, name: str, x: Tensor, kind: Norm | None = None, *, placed: bool = True) -> Tensor:
        """A norm with its scale, and its shift if it has one; `placed` ones run where their layer is."""
        plain = kind is not None and kind.kind == "layer"
        if self.batch.fork and not plain and (kind is None or (kind.weight and not kind.bias)):
            # ggml_fused_rms_norm: one operation with a result of its own, where its scale is
            return self.graph.same("fused_rms_norm", x, self.weight(layer, name, x.ne[0]))
        result = self.graph.same("norm" if plain else "rms_norm", x)
        if kind is not None and not kind.weight and not kind.bias:
            return result
        if placed and self.batch.places_norms and layer >= 0:
            result.backend = self.device_of(layer)
        if kind is None or kind.weight:
            result = self.graph.same("mul", result, self.weight(layer, name, x.ne[0]))
        if kind is not None and kind.bias:
            result = self.graph.same("add", result, self.weight(layer, f"{name}.bias", x.ne[0]))
        return result

    def unary(self, x: Tensor) -> Tensor:
        """An activation."""
        return self.graph.same("unary", x)

    def rope(self, x: Tensor) -> Tensor:
        """Rotary positions."""
        return self.graph.same("rope", x, self.positions())

    def positions(self) -> Tensor:
        """Positions of the batch's tokens; models with images have four for each."""
        return self.input("positions", self.batch.tokens * self.style.positions, item=I32)

    def output_rows(self) -> Tensor:
        """Which tokens get logits."""
        return self.input("output_rows", self.batch.outputs, item=I32)

    def mask(self, windowed: bool) -> Tensor:
        """The attention mask of full or of windowed layers."""
        batch = self.batch
        name = "window_mask" if windowed else "mask"
        cells = batch.window_cells if windowed else batch.cells
        made = name in self.inputs
        rows = -(-batch.tokens // batch.streams // batch.mask_multiple) * batch.mask_multiple
        mask = self.input(name, cells, rows, 1, batch.streams, item=batch.mask_item)
        if not batch.cast_mask or not batch.flash_attention:
            return mask
        if not made:
            self.inputs[f"{name} cast"] = self.graph.cast(mask, F16)
        return self.inputs[f"{name} cast"]

    def cache_rows(self, name: str, count: int) -> Tensor:
        """Places in a cache that the batch's tokens are written to."""
        return self.input(name, count, item=I64)

    def state_rows(self) -> tuple[Tensor, Tensor]:
        """States that the batch's sequences continue from, and the (empty) rest."""
        slots = self.batch.sequences
        rows = self.input("states", slots, item=I32)
        if "states main" not in self.inputs:
            self.inputs["states main"] = self.graph.view(rows, (slots,))
            self.inputs["states rest"] = self.graph.view(rows, (0,))
        return self.inputs["states main"], self.inputs["states rest"]
