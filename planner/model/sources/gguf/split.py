"""GGUF files in parts, as llama-gguf-split writes them: NAME-00001-of-00003.gguf and its siblings.

Source: llama.cpp `common/arg.cpp`, `src/llama-model-loader.cpp` (split.no, split.count, split.tensors.count).
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from planner.errors import SourceError
from planner.model.sources.gguf.reader import GgufHeader, read_gguf
from planner.model.sources.stored import StoredTensor

MOST_PARTS: Final = 1000
_PART: Final = re.compile(r"(?P<stem>.+)-(?P<part>\d{5})-of-(?P<parts>\d{5})\.gguf")
_LISTED: Final = 5


def read_gguf_parts(path: Path) -> GgufHeader:
    """The header of a GGUF model: of the one file, or of the first part with the tensors of all.

    Raises:
        SourceError: as `read_gguf`, parts that are missing (lists them), or parts that do not belong together.
    """
    match = _PART.fullmatch(path.name)
    if match is None:
        header = read_gguf(path)
        count = header.metadata.get("split.count")
        if isinstance(count, int) and count > 1:
            raise SourceError(
                f"{path}: is one of {count:,} parts but not named so; its siblings are found by names such as"
                " NAME-00001-of-00003.gguf"
            )
        return header
    count = int(match["parts"])
    if not 0 < count <= MOST_PARTS or not 0 < int(match["part"]) <= count:
        raise SourceError(f"{path}: its name says part {match['part']} of {match['parts']}")
    files = [path.with_name(f"{match['stem']}-{part:05}-of-{match['parts']}.gguf") for part in range(1, count + 1)]
    missing = [file.name for file in files if not file.exists()]
    if missing:
        shown = ", ".join(missing[:_LISTED]) + (f" and {len(missing) - _LISTED} more" if len(missing) > _LISTED else "")
        raise SourceError(f"{path}: {len(missing)} of {count} parts are missing beside it: {shown}")
    return _joined([read_gguf(file) for file in files], files)


def _joined(headers: list[GgufHeader], files: list[Path]) -> GgufHeader:
    tensors: dict[str, StoredTensor] = {}
    for header, file in zip(headers, files, strict=True):
        declared = header.metadata.get("split.count", len(files))
        if declared != len(files):
            raise SourceError(f"{file}: says it is one of {declared} parts; {len(files)} are there")
        for tensor in header.tensors:
            if tensor.name in tensors:
                raise SourceError(f"{file}: tensor {tensor.name[:80]!r} is also in {tensors[tensor.name].file}")
            tensors[tensor.name] = tensor
    expected = headers[0].metadata.get("split.tensors.count", len(tensors))
    if expected != len(tensors):
        raise SourceError(f"{files[0]}: the parts hold {len(tensors):,} tensors where {expected} were split")
    return GgufHeader(version=headers[0].version, metadata=headers[0].metadata, tensors=tuple(tensors.values()))
