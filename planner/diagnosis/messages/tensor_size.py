"""The size of a tensor whose shape and type a message prints."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from planner.diagnosis.sizes import Figure

# Bytes per element by the type names that TensorFlow prints.
ELEMENT_BYTES: Mapping[str, int] = {
    "float": 4,
    "float32": 4,
    "half": 2,
    "float16": 2,
    "bfloat16": 2,
    "double": 8,
    "float64": 8,
    "int64": 8,
    "uint64": 8,
    "complex64": 8,
    "complex128": 16,
    "int32": 4,
    "uint32": 4,
    "int16": 2,
    "uint16": 2,
    "int8": 1,
    "uint8": 1,
    "bool": 1,
    "qint8": 1,
    "quint8": 1,
}
ASSUMED_DTYPE = "float (assumed)"


def with_tensor_size(figures: Mapping[str, Figure]) -> dict[str, Figure]:
    """The figures with `tried_bytes` = product of `shape` x bytes of `dtype`, where a shape is given and no size is.

    The old form of the message names no type: four bytes are assumed, and `dtype` says so.
    """
    shape = figures.get("shape")
    if shape is None or not isinstance(shape.value, tuple) or "tried_bytes" in figures:
        return dict(figures)
    dtype = figures.get("dtype", Figure(value=ASSUMED_DTYPE))
    element = ELEMENT_BYTES.get(str(dtype.value).split(" ")[0])
    if element is None:
        return {**figures, "dtype": dtype}
    return {**figures, "dtype": dtype, "tried_bytes": Figure(value=prod(shape.value) * element)}
