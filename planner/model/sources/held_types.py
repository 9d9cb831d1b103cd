"""Which types the files' headers hold, beside what the config says of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from planner.errors import SourceError
from planner.model.sources.stored import StoredTensor

_PLAIN: Final = {"BF16": "bfloat16", "F16": "float16", "F32": "float32"}
# what no engine reads as a weight without being told how it is packed: pairs and eights of 4 bit, bytes of blocks
_WHOLE_NUMBERS: Final = frozenset({"U8", "I8", "I32", "U32"})


def plain_type_held(stored: Iterable[StoredTensor]) -> str | None:
    """The plain type that most bytes have: "bfloat16", "float16", "float32"; None where there is none."""
    held = _bytes_by_type(tensor for tensor in stored if tensor.dtype in _PLAIN)
    return _PLAIN[held.most_common(1)[0][0]] if held else None


def type_notes(
    name: str, stored: tuple[StoredTensor, ...], dtype: str | None, quantization_config: Mapping[str, object] | None
) -> tuple[str, ...]:
    """A note where the files hold another type than the config states, none where they agree or it is quantised.

    Args:
        name: the model, for the error.
        dtype: what the config states.

    Raises:
        SourceError: whole numbers instead of weights, and a config that does not say how they are packed.
    """
    if quantization_config is not None or not stored or any(tensor.file.endswith(".gguf") for tensor in stored):
        return ()
    held = _bytes_by_type(stored)
    most, _ = held.most_common(1)[0]
    if most in _WHOLE_NUMBERS:
        first = next(tensor.name for tensor in stored if tensor.dtype == most)
        raise SourceError(
            f"{name}: the files hold packed weights ({first[:80]} is {most}) and the config has no"
            " quantization_config that says how; take the published config.json with its quantization_config"
        )
    if dtype is None or _PLAIN.get(most) == dtype:
        return ()
    total = sum(held.values())
    return (
        f"the config states {dtype} and no quantisation, the files hold {most} ({held[most]:,} of {total:,} bytes):"
        " engines convert it while they load, and planned is what they convert it to",
    )


def _bytes_by_type(stored: Iterable[StoredTensor]) -> Counter[str]:
    held: Counter[str] = Counter()
    for tensor in stored:
        held[tensor.dtype] += tensor.nbytes
    return held
