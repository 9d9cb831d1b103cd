"""How an engine holds a checkpoint's weights after loading, where that differs from the file.

    GPTQ          vLLM's Marlin kernels drop zero points and g_idx (act-order keeps two indices per input)
    8-bit         scales per output row become fp32
    bitsandbytes  double-quantised scales are expanded to fp32
    MXFP4, NVFP4  padded to the tiles of the kernel
    MLA           a 16-bit copy of kv_b_proj, split for absorbed attention

Source: vLLM 0.19.1 `model_executor/layers/quantization/`, `v1/attention/backends/mla/common.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from planner.errors import UnsupportedQuantization
from planner.memory.format_table import weight_format
from planner.memory.formats import (
    FlatBlocks,
    Grouped,
    Microscaled,
    Scaled,
    WeightFormat,
    WithCopy,
)
from planner.memory.schemes.scheme import Assignment, WeightScheme
from planner.model.tensor import Tensor

_MARLIN_BITS: Final = (4, 8)
_MARLIN_GROUPS: Final = (0, 32, 64, 128)
_MARLIN_CAPABILITY: Final = (8, 0)
_FP8_CAPABILITY: Final = (8, 9)


@dataclass(frozen=True, slots=True)
class Mxfp4Padding:
    """What a backend pads MXFP4 experts to.

    Args:
        inner, hidden: multiples of the experts' inner width and of the hidden size.
        value_inputs: multiple of the inputs of the packed values, scales aside.
        scale_tile: rows x columns of the scales.
        float_biases: biases are kept in fp32.
    """

    inner: int
    hidden: int
    value_inputs: int = 1
    scale_tile: tuple[int, int] = (1, 1)
    float_biases: bool = False


# vLLM 0.19.1 quantization/mxfp4.py; triton_kernels tensor_details/layout_details/hopper_*.py for the swizzled layout.
# Read back on gpt-oss-20b, vLLM 0.19.0, H100 (triton): 13.64 GiB on one GPU, 7.01 on each of two; on gpt-oss-120b,
# vLLM 0.10.1 (Marlin): 65.97 on one, 17.22 on each of four; gpt-oss-20b on an RTX 3090 (triton-strided): 12.88.
MXFP4_PADDING: Final = {
    "marlin": Mxfp4Padding(128, 256),
    "trtllm": Mxfp4Padding(256, 256, float_biases=True),
    "cutlass": Mxfp4Padding(128, 128),
    "triton": Mxfp4Padding(128, 1, value_inputs=256, scale_tile=(256, 2), float_biases=True),
    "triton-strided": Mxfp4Padding(64, 1, float_biases=True),
}
_NVFP4_SCALE_TILE: Final = (128, 4)


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """What decides how weights are stored.

    Args:
        compute_capability: of the GPU.
        mxfp4_backend: key of MXFP4_PADDING.
        expands_scales: bitsandbytes' double-quantised scales are held in fp32.
    """

    compute_capability: tuple[int, int]
    mxfp4_backend: str
    expands_scales: bool

    def stored(self, tensor: Tensor, found: WeightFormat) -> WeightFormat:
        """The format that this tensor has in memory."""
        if isinstance(found, Grouped):
            return self.integers(found)
        if isinstance(found, Scaled):
            return self._scaled(found)
        if isinstance(found, FlatBlocks) and found.nested_block and self.expands_scales:
            return weight_format(found.name.removesuffix("_dq"))
        if isinstance(found, Microscaled):
            return self._microscaled(tensor, found)
        return found

    def integers(self, found: Grouped) -> Grouped:
        """GPTQ as its kernel takes it; other packings as they are."""
        if found.packing != "gptq":
            return found
        marlin = (
            found.bits in _MARLIN_BITS
            and found.symmetric
            and found.group_size in _MARLIN_GROUPS
            and self.compute_capability >= _MARLIN_CAPABILITY
        )
        if not marlin:
            return found
        return replace(found, name=f"{found.name} (Marlin)", zero_bits=0, index_bytes=8 if found.ordered else 0)

    def _scaled(self, found: Scaled) -> Scaled:
        if found.tile == (1, 0) and found.scale_bytes == 2:
            return replace(found, scale_bytes=4)
        if found.tile == (0, 0) and found.name == "fp8" and self.compute_capability < _FP8_CAPABILITY:
            return replace(found, name="fp8 (Marlin)", scale_bytes=2, tile=(1, 0))
        return found

    def _microscaled(self, tensor: Tensor, found: Microscaled) -> Microscaled:
        if found.name == "nvfp4":
            return replace(found, scale_tile=_NVFP4_SCALE_TILE) if self.compute_capability >= (10, 0) else found
        if found.name != "mxfp4" or not tensor.num_experts:
            return found
        padding = MXFP4_PADDING[self.mxfp4_backend]
        out, inputs = padding.inner * (2 if "gate_up" in tensor.name else 1), padding.hidden
        if tensor.name.endswith("down_proj"):
            out, inputs = padding.hidden, padding.inner
        return replace(
            found,
            name=f"mxfp4 ({self.mxfp4_backend})",
            out_multiple=out,
            in_multiple=inputs,
            value_in_multiple=padding.value_inputs,
            scale_tile=padding.scale_tile,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """An assignment as an engine stores it.

    Args:
        checkpoint: what the file has; None: all plain.
        plain: the scheme's plain format.
        absorbs: MLA's quantised up-projection is held a second time in 16 bit.
        float_expert_biases: the experts' biases are kept in fp32.
    """

    checkpoint: Assignment | None
    plain: WeightFormat
    engine: Engine
    absorbs: bool
    float_expert_biases: bool = False

    @property
    def formats(self) -> tuple[WeightFormat, ...]:
        """Those of the checkpoint."""
        return self.checkpoint.formats if self.checkpoint is not None else ()

    @property
    def same_for_every_layer(self) -> bool:
        """As in the checkpoint."""
        return self.checkpoint is None or self.checkpoint.same_for_every_layer

    def format_of(self, tensor: Tensor) -> WeightFormat | None:
        """The format in memory, or None when plain."""
        if self.float_expert_biases and tensor.num_experts and not tensor.linear:
            return weight_format("float32")
        found = self.checkpoint.format_of(tensor) if self.checkpoint is not None else None
        stored = self.engine.stored(tensor, found) if found is not None else None
        if stored is not None and self.absorbs and tensor.name.endswith("kv_b_proj.weight"):
            # W_UK and W_UV are views of a plain kv_b_proj, and dequantised copies of a quantised one
            # (vLLM 0.19.0 mla_attention.py process_weights_after_loading)
            return WithCopy(name=f"{stored.name} and 16-bit copy", stored=stored)
        return stored


def runtime_scheme(
    scheme: WeightScheme,
    *,
    compute_capability: tuple[int, int] | None = (9, 0),
    backend: str | None = None,
    expands_scales: bool = False,
    absorbs: bool = False,
) -> WeightScheme:
    """The scheme as an engine with Marlin's and Triton's kernels holds it in memory after loading.

    Args:
        compute_capability: of the GPU; None is taken as Hopper.
        backend: MoE kernels for MXFP4, a key of MXFP4_PADDING (None: what is chosen for the GPU).
        expands_scales: bitsandbytes' double-quantised scales are held in fp32.
        absorbs: MLA's quantised up-projection is held a second time in 16 bit.

    Raises:
        UnsupportedQuantization: an unknown backend.
    """
    capability = compute_capability or (9, 0)
    if backend is None:
        backend = "triton" if capability[0] == 9 else "trtllm" if capability[0] == 10 else "marlin"
    if backend not in MXFP4_PADDING:
        raise UnsupportedQuantization(
            f"MXFP4 backend {backend!r} is not known; one of {', '.join(MXFP4_PADDING)}", field="backend"
        )
    formats = scheme.assignment.formats if scheme.assignment is not None else ()
    holder = Engine(compute_capability=capability, mxfp4_backend=backend, expands_scales=expands_scales)
    loaded = Loaded(
        checkpoint=scheme.assignment,
        plain=scheme.plain,
        engine=holder,
        absorbs=absorbs,
        float_expert_biases=_has_mxfp4(formats) and MXFP4_PADDING[backend].float_biases,
    )
    return replace(scheme, assignment=loaded, notes=scheme.notes + _notes(formats, holder))


def _notes(formats: tuple[WeightFormat, ...], engine: Engine) -> tuple[str, ...]:
    notes = []
    if any(isinstance(found, Grouped) and found.packing == "gptq" for found in formats):
        kept = [engine.integers(found) for found in formats if isinstance(found, Grouped)]
        if any(found.zero_bits == 0 for found in kept):
            notes.append("Marlin kernels drop GPTQ's zero points and indices after loading")
        if any(found.ordered for found in kept):
            notes.append("with desc_act the scales of row-parallel layers stay whole on every GPU; not counted")
    if _has_mxfp4(formats):
        padding = MXFP4_PADDING[engine.mxfp4_backend]
        notes.append(
            f"MXFP4 experts as the {engine.mxfp4_backend} backend holds them: inner width in steps of {padding.inner}, "
            f"hidden size in steps of {max(padding.hidden, padding.value_inputs)}"
        )
    if engine.expands_scales and any(isinstance(found, FlatBlocks) and found.nested_block for found in formats):
        notes.append("double-quantised scales are expanded to fp32 while loading")
    return tuple(notes)


def _has_mxfp4(formats: tuple[WeightFormat, ...]) -> bool:
    return any(isinstance(found, Microscaled) and found.name == "mxfp4" for found in formats)
