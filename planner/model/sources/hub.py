"""A model on the Hub: its config.json and the headers of its safetensors files. The local cache comes first.

Tensor data is never fetched: a header is read by byte ranges, and the index's own `total_size` stands in where the
headers cannot be had.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from planner.errors import SourceError
from planner.model.sources.folder import (
    INDEX,
    LARGEST_INDEX_BYTES,
    StoredWeights,
    index_shards,
    index_total,
    read_folder,
)
from planner.model.sources.hub_http import HubError, NotThere, cached_file, download, offline, read_range
from planner.model.sources.json_file import LARGEST_CONFIG_BYTES, read_json_object
from planner.model.sources.safetensors import LENGTH_BYTES, header_length, parse_header
from planner.model.sources.stored import StoredTensor, total_bytes

# The first request asks for this much: 97% of headers are shorter (huggingface_hub 2.4.0,
# HfApi.parse_safetensors_file_metadata), which saves a second one.
_FIRST_BYTES: Final = 100_000
# huggingface_hub 2.4.0, constants.SAFETENSORS_MAX_HEADER_LENGTH.
LARGEST_REMOTE_HEADER: Final = 25_000_000
MOST_REMOTE_SHARDS: Final = 1_000
# of all shards: experts one by one, each with its scales
_MOST_TENSORS: Final = 1_000_000
_AT_ONCE: Final = 4
_SINGLE: Final = ("model.safetensors", "consolidated.safetensors")


def fetch_config(repo_id: str, revision: str | None = None) -> dict[str, object]:
    """The config.json of a repository, from the local cache if it is there.

    Raises:
        SourceError: not cached and HF_HUB_OFFLINE is set, no such repository, no config.json in it, no permission,
            no answer in 10 s, or not a JSON object; says how to plan offline.
    """
    config = fetch_json(repo_id, "config.json", revision=revision)
    if config is None:
        raise SourceError(
            f"{repo_id}: has no config.json on the Hub; if it holds GGUF files, download one and pass the .gguf file, "
            "if it is an adapter, pass its base model"
        )
    return config


def fetch_json(
    repo_id: str, filename: str, *, revision: str | None = None, max_bytes: int = LARGEST_CONFIG_BYTES
) -> dict[str, object] | None:
    """A JSON file of a repository, from the local cache if it is there; None when the repository has none.

    Args:
        max_bytes: larger files are refused before they are downloaded.

    Raises:
        SourceError: as `fetch_config`.
    """
    try:
        path = cached_file(repo_id, filename, revision)
        if path is None:
            path = download(repo_id, filename, revision, max_bytes=max_bytes)
    except NotThere:
        return None
    return read_json_object(path, max_bytes=max_bytes)


def fetch_weights(repo_id: str, *, revision: str | None = None) -> StoredWeights | None:
    """The weights that a repository stores, by the headers of its safetensors files; None when it has none.

    Raises:
        SourceError: as `fetch_config`, or headers that contradict themselves.
    """
    cached = _cached_weights(repo_id, revision)
    if cached is not None:
        return cached
    index = fetch_json(repo_id, INDEX, revision=revision, max_bytes=LARGEST_INDEX_BYTES)
    if index is not None:
        return _by_index(repo_id, index, revision)
    for name in _SINGLE:
        try:
            tensors = fetch_header(repo_id, name, revision=revision)
        except NotThere:
            continue
        return StoredWeights(tensors=tensors, total_bytes=total_bytes(tensors), files=(name,))
    return None


def fetch_header(repo_id: str, filename: str, *, revision: str | None = None) -> tuple[StoredTensor, ...]:
    """The tensors of one safetensors file of a repository, in the order of their data.

    Raises:
        SourceError: as `fetch_config`, or not a safetensors file, or a header of more than 25 MB.
        NotThere: the repository has no such file.
    """
    origin = f"{repo_id}/{filename}"
    start, size = read_range(repo_id, filename, revision, first=0, count=_FIRST_BYTES)
    length = header_length(start[:LENGTH_BYTES], size=size, origin=origin, more=start[LENGTH_BYTES : LENGTH_BYTES + 16])
    if length > LARGEST_REMOTE_HEADER:
        raise SourceError(
            f"{origin}: has a header of {length:,} bytes, too long to fetch; download the file and pass it"
        )
    header = start[LENGTH_BYTES : LENGTH_BYTES + length]
    if len(header) < length:
        first = LENGTH_BYTES + len(header)
        rest, _ = read_range(repo_id, filename, revision, first=first, count=length - len(header))
        header += rest
    if len(header) < length:
        raise HubError(f"{origin}: the Hub sends {len(header):,} of the {length:,} bytes of its header")
    data_bytes = None if size is None else size - LENGTH_BYTES - length
    return parse_header(header, data_bytes=data_bytes, origin=origin, file=filename)


def _cached_weights(repo_id: str, revision: str | None) -> StoredWeights | None:
    """The weights of a repository of which every file is in the local cache."""
    for name in (INDEX, *_SINGLE):
        try:
            path = cached_file(repo_id, name, revision)
        except NotThere:
            continue
        if path is None:
            continue
        if name == INDEX and not _all_there(path):
            return None
        return read_folder(path.parent)
    return None


def _all_there(index: Path) -> bool:
    shards = index_shards(read_json_object(index, max_bytes=LARGEST_INDEX_BYTES), origin=str(index))
    return all((index.parent / shard).exists() for shard in shards)


def _by_index(repo_id: str, index: dict[str, object], revision: str | None) -> StoredWeights:
    """The weights that an index lists: by the headers of its shards, or by its total_size."""
    origin = f"{repo_id}/{INDEX}"
    shards = index_shards(index, origin=origin)
    total = index_total(index)
    if total is not None and (offline() or len(shards) > MOST_REMOTE_SHARDS):
        why = "HF_HUB_OFFLINE is set" if offline() else f"it has {len(shards):,} files"
        note = f"weight bytes are the total_size that {INDEX} states: headers were not read, since {why}"
        return StoredWeights(tensors=(), total_bytes=total, files=tuple(shards), notes=(note,))
    tensors: list[StoredTensor] = []
    missing: list[str] = []
    try:
        for shard, found in _headers(repo_id, shards, revision):
            if found is None:
                missing.append(shard)
            else:
                tensors.extend(found)
            if len(tensors) > _MOST_TENSORS:
                raise SourceError(f"{repo_id}: lists more than {_MOST_TENSORS:,} tensors")
    except HubError as error:
        if total is None:
            raise
        note = f"weight bytes are the total_size that {INDEX} states, since headers could not be read: {error}"
        return StoredWeights(tensors=(), total_bytes=total, files=tuple(shards), notes=(note,))
    if missing:
        raise SourceError(f"{repo_id}: {len(missing)} of {len(shards)} shards are missing: {', '.join(missing[:5])}")
    return StoredWeights(tensors=tuple(tensors), total_bytes=total_bytes(tensors), files=tuple(shards))


def _headers(
    repo_id: str, shards: list[str], revision: str | None
) -> Iterator[tuple[str, tuple[StoredTensor, ...] | None]]:
    """(shard, its tensors, or None when the repository lacks it), a few requests at once, in order."""

    def one(shard: str) -> tuple[StoredTensor, ...] | None:
        try:
            return fetch_header(repo_id, shard, revision=revision)
        except NotThere:
            return None

    with ThreadPoolExecutor(max_workers=_AT_ONCE) as pool:
        for begin in range(0, len(shards), _AT_ONCE):
            some = shards[begin : begin + _AT_ONCE]
            yield from zip(some, pool.map(one, some), strict=True)
