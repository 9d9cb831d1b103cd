"""The safetensors files of a folder: through an index, or all that belong to one export.

A folder may hold the same weights twice: Mistral and Llama publish `consolidated*` (or `original/`) beside
`model*`. One export is read: the index if there is one, then `model*.safetensors`, then `consolidated*`, then
`diffusion_pytorch_model*`, and otherwise every .safetensors file of the folder; subfolders never.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from planner.errors import SourceError
from planner.model.sources.json_file import read_json_object
from planner.model.sources.open_file import explain
from planner.model.sources.safetensors import read_safetensors
from planner.model.sources.stored import StoredTensor

INDEX: Final = "model.safetensors.index.json"
LARGEST_INDEX_BYTES: Final = 100 << 20
MOST_SHARDS: Final = 10_000
_SHARD: Final = re.compile(r"(?P<stem>.+)-(?P<part>\d{5})-of-(?P<parts>\d{5})\.safetensors")
_ADAPTER: Final = re.compile(r"adapter_model.*\.safetensors")
_LISTED: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredWeights:
    """The weights of a folder or file.

    Args:
        tensors: every tensor; empty when only `total_bytes` is known.
        total_bytes: bytes of all tensors.
        files: the files counted, relative to the folder.
        notes: what was left out, and what the total rests on.
    """

    tensors: tuple[StoredTensor, ...]
    total_bytes: int
    files: tuple[str, ...]
    notes: tuple[str, ...] = ()


def read_folder(folder: Path) -> StoredWeights | None:
    """The weights of one export in a folder; None when it holds no safetensors file and no index.

    Raises:
        SourceError: a header that cannot be trusted, shards that are missing, an index that leaves the folder.
    """
    names = sorted(name for name in _names(folder) if name.endswith((".safetensors", ".safetensors.index.json")))
    weights = [name for name in names if name.endswith(".safetensors") and not _ADAPTER.fullmatch(name)]
    indexes = [name for name in names if name.endswith(".index.json")]
    if INDEX in indexes:
        return _with_note(read_index(folder / INDEX), weights)
    # An index of another name is for a second export (consolidated, a variant) when model* files stand beside it.
    for prefix in ("model", "consolidated", "diffusion_pytorch_model"):
        own = [name for name in indexes if name.startswith(prefix)]
        if len(own) == 1:
            return _with_note(read_index(folder / own[0]), weights)
        files = [name for name in weights if re.fullmatch(rf"{prefix}([-.].*)?\.safetensors", name)]
        if files:
            return _with_note(_read_files(folder, files), weights)
    if len(indexes) == 1:
        return _with_note(read_index(folder / indexes[0]), weights)
    return _read_files(folder, weights) if weights else None


def read_index(path: Path) -> StoredWeights:
    """The weights that an index lists. Without any of its shards: its `metadata.total_size`, with a note.

    Raises:
        SourceError: not an index, a name that leaves the folder, some shards missing (lists them), a tensor that
            its shard does not hold.
    """
    index = read_json_object(path, max_bytes=LARGEST_INDEX_BYTES)
    shards = index_shards(index, origin=str(path))
    folder = path.parent
    present = {shard: _inside(folder, shard) for shard in shards}
    missing = [shard for shard, file in present.items() if file is None]
    if len(missing) == len(shards):
        total = index_total(index)
        if total is None:
            raise SourceError(f"{path}: none of its {len(shards)} shards is in {folder}, and it states no total_size")
        note = f"weight bytes are the total_size that {path.name} states: none of its {len(shards)} shards is there"
        return StoredWeights(tensors=(), total_bytes=total, files=(), notes=(note,))
    if missing:
        raise SourceError(f"{folder}: {len(missing)} of {len(shards)} shards are missing: {_list(missing)}")
    tensors = tuple(
        tensor for shard, file in present.items() if file is not None for tensor in read_safetensors(file, file=shard)
    )
    _no_name_twice(tensors, str(path))
    found = {tensor.name for tensor in tensors}
    listed = index["weight_map"]
    assert isinstance(listed, dict)
    absent = sorted(name for name in listed if name not in found)
    if absent:
        raise SourceError(f"{path}: lists {len(absent)} tensors that no shard holds: {_list(absent)}")
    total = sum(tensor.nbytes for tensor in tensors)
    return StoredWeights(tensors=tensors, total_bytes=total, files=tuple(shards))


def index_shards(index: dict[str, object], *, origin: str) -> list[str]:
    """The files of an index, sorted, each a plain name inside its folder.

    Raises:
        SourceError: no weight_map, or a name that is absolute, leaves the folder, or is no .safetensors file.
    """
    weight_map = index.get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise SourceError(f"{origin}: has no weight_map, so it is no index of safetensors files")
    shards: set[str] = set()
    for shard in weight_map.values():
        if not isinstance(shard, str):
            raise SourceError(f"{origin}: weight_map must give a file name for every tensor")
        shards.add(shard)
    if len(shards) > MOST_SHARDS:
        raise SourceError(f"{origin}: names {len(shards):,} files; expected at most {MOST_SHARDS:,}")
    for shard in shards:
        parts = PurePosixPath(shard.replace("\\", "/")).parts
        if not parts or parts[0] == "/" or ".." in parts or ":" in shard or "\0" in shard or len(shard) > 255:
            raise SourceError(f"{origin}: names the file {shard[:80]!r}, which is outside its folder; it is not read")
        if not shard.endswith(".safetensors"):
            raise SourceError(f"{origin}: names {shard[:80]!r}; only .safetensors files are read, never pickles")
    return sorted(shards)


def index_total(index: dict[str, object]) -> int | None:
    """`metadata.total_size` of an index, in bytes; None when absent or absurd."""
    metadata = index.get("metadata")
    total = metadata.get("total_size") if isinstance(metadata, dict) else None
    if isinstance(total, float) and total.is_integer():
        total = int(total)
    return total if isinstance(total, int) and not isinstance(total, bool) and 0 < total < 1 << 63 else None


def _read_files(folder: Path, names: list[str]) -> StoredWeights:
    """These files as one export; numbered shards must all be there."""
    missing: list[str] = []
    for name in names:
        match = _SHARD.fullmatch(name)
        if match and int(match["parts"]) <= MOST_SHARDS and match["part"] == _first_part(names, match["stem"]):
            every = (f"{match['stem']}-{part:05}-of-{match['parts']}.safetensors" for part in _parts(match["parts"]))
            missing.extend(shard for shard in every if shard not in names)
    if missing:
        raise SourceError(f"{folder}: {len(missing)} shards are missing: {_list(missing)}")
    tensors: list[StoredTensor] = []
    for name in names:
        file = _inside(folder, name)
        if file is None:
            raise SourceError(f"{folder / name}: is a symbolic link to nothing")
        tensors.extend(read_safetensors(file, file=name))
    _no_name_twice(tensors, str(folder))
    return StoredWeights(
        tensors=tuple(tensors), total_bytes=sum(tensor.nbytes for tensor in tensors), files=tuple(names)
    )


def _first_part(names: list[str], stem: str) -> str:
    matches = (_SHARD.fullmatch(name) for name in names)
    return min(match["part"] for match in matches if match and match["stem"] == stem)


def _parts(count: str) -> range:
    return range(1, int(count) + 1)


def _no_name_twice(tensors: tuple[StoredTensor, ...] | list[StoredTensor], where: str) -> None:
    held: dict[str, str] = {}
    for tensor in tensors:
        other = held.setdefault(tensor.name, tensor.file)
        if other != tensor.file:
            raise SourceError(
                f"{where}: {tensor.name[:80]!r} is both in {other} and in {tensor.file}, so these are two exports in"
                " one folder; pass the file or index that is meant"
            )


def _inside(folder: Path, name: str) -> Path | None:
    """The file of that name, None when it does not exist.

    A link may lead anywhere inside the folder, or, in a folder of the Hugging Face cache (models--*/snapshots/*),
    anywhere inside that cache, which keeps its files that way.
    """
    path = folder / name
    try:
        home = folder.resolve(strict=True)
        if home.parent.name == "snapshots" and home.parent.parent.name.startswith("models--"):
            home = home.parent.parent.parent
        target = path.resolve(strict=True)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise SourceError(f"{path}: {explain(error)}") from None
    except RuntimeError:  # Python 3.10 to 3.12 report a loop of links so
        raise SourceError(f"{path}: is a loop of symbolic links") from None
    if home != target and home not in target.parents:
        raise SourceError(f"{path}: is a link to a file outside the folder; pass that file or its folder instead")
    return target


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError as error:
        raise SourceError(f"{folder}: {explain(error)}") from None


def _with_note(weights: StoredWeights, present: list[str]) -> StoredWeights:
    """The same, saying which weight files of the folder were not counted."""
    rest = [name for name in present if name not in weights.files]
    if not rest or not weights.files:
        return weights
    note = f"not counted, as another export of the same weights: {_list(rest)}"
    return StoredWeights(
        tensors=weights.tensors,
        total_bytes=weights.total_bytes,
        files=weights.files,
        notes=(*weights.notes, note),
    )


def _list(names: list[str]) -> str:
    shown = ", ".join(name[:80] for name in names[:_LISTED])
    return f"{shown} and {len(names) - _LISTED} more" if len(names) > _LISTED else shown
