"""Folders of shards: through their index, without one, with a second export beside them, and with pieces missing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from planner.errors import SourceError
from planner.model.sources.folder import INDEX, read_folder, read_index


def shard(folder: Path, file: str, *names: str, rows: int = 4) -> None:
    save_file({name: torch.zeros(rows, 8, dtype=torch.bfloat16) for name in names}, folder / file)


def index(folder: Path, weight_map: object, name: str = INDEX, **metadata: object) -> Path:
    path = folder / name
    path.write_text(json.dumps({"metadata": metadata, "weight_map": weight_map}))
    return path


FIRST, SECOND = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"


@pytest.fixture
def sharded(tmp_path: Path) -> Path:
    shard(tmp_path, FIRST, "a", "b")
    shard(tmp_path, SECOND, "c")
    index(tmp_path, {"a": FIRST, "b": FIRST, "c": SECOND}, total_size=192)
    return tmp_path


def test_an_index_and_its_shards(sharded: Path) -> None:
    found = read_folder(sharded)
    assert found is not None
    assert found.total_bytes == 3 * 64
    assert [(tensor.name, tensor.file) for tensor in found.tensors] == [("a", FIRST), ("b", FIRST), ("c", SECOND)]
    assert found.notes == ()


def test_shards_without_an_index(sharded: Path) -> None:
    (sharded / INDEX).unlink()
    found = read_folder(sharded)
    assert found is not None
    assert found.total_bytes == 192


@pytest.mark.parametrize("with_index", [True, False])
def test_missing_shards_are_listed(sharded: Path, with_index: bool) -> None:
    (sharded / SECOND).unlink()
    if not with_index:
        (sharded / INDEX).unlink()
    with pytest.raises(SourceError, match=f"missing: {SECOND}"):
        read_folder(sharded)


def test_an_index_alone_gives_its_total(sharded: Path) -> None:
    (sharded / FIRST).unlink()
    (sharded / SECOND).unlink()
    found = read_folder(sharded)
    assert found is not None
    assert (found.total_bytes, found.tensors) == (192, ())
    assert "total_size" in found.notes[0]


def test_an_index_alone_without_total(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="none of its 1 shards"):
        read_index(index(tmp_path, {"a": FIRST}))


@pytest.mark.parametrize("total", [0, -1, 1 << 70, "192", True, 1.5, None])
def test_an_absurd_total_is_no_total(tmp_path: Path, total: object) -> None:
    says = "digits" if isinstance(total, int) and total > 1 << 64 else "none of its 1 shards"
    with pytest.raises(SourceError, match=says):
        read_index(index(tmp_path, {"a": FIRST}, total_size=total))


def test_a_second_export_is_not_counted(sharded: Path) -> None:
    shard(sharded, "consolidated.safetensors", "layers.0.a", rows=40)
    (sharded / "original").mkdir()
    shard(sharded / "original", "model.safetensors", "z", rows=400)
    found = read_folder(sharded)
    assert found is not None
    assert found.total_bytes == 192
    assert "consolidated.safetensors" in found.notes[0]


def test_a_second_export_without_index(tmp_path: Path) -> None:
    shard(tmp_path, "model.safetensors", "a")
    shard(tmp_path, "consolidated.safetensors", "b", rows=40)
    index(tmp_path, {"b": "consolidated.safetensors"}, "consolidated.safetensors.index.json")
    found = read_folder(tmp_path)
    assert found is not None
    assert (found.total_bytes, found.files) == (64, ("model.safetensors",))


def test_only_a_consolidated_export(tmp_path: Path) -> None:
    shard(tmp_path, "consolidated.safetensors", "a")
    found = read_folder(tmp_path)
    assert found is not None
    assert found.total_bytes == 64


def test_names_of_nobody(tmp_path: Path) -> None:
    shard(tmp_path, "gptq_model-4bit.safetensors", "a")
    shard(tmp_path, "adapter_model.safetensors", "lora", rows=400)
    found = read_folder(tmp_path)
    assert found is not None
    assert found.total_bytes == 64


def test_the_same_tensor_in_two_files(tmp_path: Path) -> None:
    shard(tmp_path, "x.safetensors", "a")
    shard(tmp_path, "y.safetensors", "a")
    with pytest.raises(SourceError, match="two exports"):
        read_folder(tmp_path)


def test_a_folder_without_weights(tmp_path: Path) -> None:
    assert read_folder(tmp_path) is None
    with pytest.raises(SourceError, match="no such file"):
        read_folder(tmp_path / "absent")


@pytest.mark.parametrize(
    "name",
    ["../out.safetensors", "/etc/out.safetensors", "a/../../out.safetensors", "..\\out.safetensors",
     "C:\\out.safetensors", "", "a\0.safetensors", "x" * 300 + ".safetensors"],
)  # fmt: skip
def test_an_index_that_leaves_its_folder(tmp_path: Path, name: str) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    shard(tmp_path, "out.safetensors", "a")
    with pytest.raises(SourceError, match="outside its folder"):
        read_index(index(inner, {"a": name}))


def test_an_index_of_pickles(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="never pickles"):
        read_index(index(tmp_path, {"a": "pytorch_model.bin"}))


@pytest.mark.parametrize("weight_map", [None, [], {}, {"a": 3}, "x"])
def test_an_index_that_is_none(tmp_path: Path, weight_map: object) -> None:
    with pytest.raises(SourceError, match="weight_map"):
        read_index(index(tmp_path, weight_map))


def test_an_index_of_tensors_that_are_not_there(sharded: Path) -> None:
    path = index(sharded, {"a": FIRST, "b": FIRST, "c": SECOND, "d": SECOND})
    with pytest.raises(SourceError, match="no shard holds: d"):
        read_index(path)


def test_links_out_of_the_folder(tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    shard(tmp_path, "out.safetensors", "a")
    (inner / "model.safetensors").symlink_to(tmp_path / "out.safetensors")
    with pytest.raises(SourceError, match="outside the folder"):
        read_folder(inner)


def test_a_loop_of_links(tmp_path: Path) -> None:
    link = tmp_path / "model.safetensors"
    link.symlink_to(link)
    with pytest.raises(SourceError, match="loop of symbolic links"):
        read_folder(tmp_path)


def test_a_link_to_nothing(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").symlink_to(tmp_path / "nothing")
    with pytest.raises(SourceError, match="link to nothing"):
        read_folder(tmp_path)


def test_a_snapshot_of_the_hub_cache(tmp_path: Path) -> None:
    repository = tmp_path / "models--org--name"
    snapshot, blobs = repository / "snapshots" / "abc", repository / "blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    shard(blobs, "123.safetensors", "a")
    (snapshot / "model.safetensors").symlink_to(Path("../../blobs/123.safetensors"))
    found = read_folder(snapshot)
    assert found is not None
    assert found.total_bytes == 64
    assert found.files == ("model.safetensors",)
