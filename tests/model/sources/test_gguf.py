"""GGUF headers: written by gguf's own writer, by hand, and by nobody sane."""

from __future__ import annotations

import struct
from pathlib import Path

import gguf
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.errors import PlannerError, SourceError
from planner.model.sources.gguf.ggml_types import ggml_types
from planner.model.sources.gguf.reader import SkippedArray, read_gguf
from planner.model.sources.gguf.split import read_gguf_parts


def text(value: bytes) -> bytes:
    return struct.pack("<Q", len(value)) + value


def key(name: bytes, kind: int, value: bytes) -> bytes:
    return text(name) + struct.pack("<I", kind) + value


def tensor(name: bytes, extents: tuple[int, ...], kind: int, offset: int) -> bytes:
    return text(name) + struct.pack(f"<I{len(extents)}QIQ", len(extents), *extents, kind, offset)


def file(
    path: Path, keys: list[bytes], tensors: list[bytes], data: int = 0, *, version: int = 3,
    key_count: int | None = None, tensor_count: int | None = None,
) -> Path:  # fmt: skip
    body = struct.pack(
        "<4sIQQ", b"GGUF", version,
        len(tensors) if tensor_count is None else tensor_count, len(keys) if key_count is None else key_count,
    ) + b"".join(keys) + b"".join(tensors)  # fmt: skip
    path.write_bytes(body + bytes(-len(body) % 32 + data))
    return path


def written(path: Path, **options: object) -> tuple[Path, int]:
    """A file of gguf's writer with a tensor of every type, and the bytes of their data."""
    writer = gguf.GGUFWriter(path, "llama", **options)  # type: ignore[arg-type]
    writer.add_block_count(2)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list([f"token {number}" for number in range(5000)])
    writer.add_head_count_kv([4, 8])
    writer.add_array("long", list(range(5000)))
    writer.add_float32("float", 0.5)
    writer.add_bool("flag", True)
    total = 0
    for kind, (block, size) in gguf.GGML_QUANT_SIZES.items():
        raw = np.zeros((3, 2 * size), dtype=np.uint8)
        writer.add_tensor(f"{kind.name}.weight", raw, raw_shape=(3, 2 * size), raw_dtype=kind)
        total += raw.nbytes
        assert block
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path, total


def test_what_the_library_writes(tmp_path: Path) -> None:
    path, total = written(tmp_path / "a.gguf")
    header = read_gguf(path)
    assert sum(tensor.nbytes for tensor in header.tensors) == total
    reader = gguf.GGUFReader(path)
    assert {(t.name, t.nbytes, t.shape) for t in header.tensors} == {
        (t.name, t.n_bytes, tuple(int(size) for size in reversed(t.shape))) for t in reader.tensors
    }
    assert header.metadata["general.architecture"] == "llama"
    assert header.metadata["llama.attention.head_count_kv"] == (4, 8)
    assert header.metadata["tokenizer.ggml.tokens"] == SkippedArray(5000)
    assert header.metadata["long"] == SkippedArray(5000)
    assert header.metadata["float"] == 0.5
    assert header.metadata["flag"] is True


def test_big_endian(tmp_path: Path) -> None:
    path, total = written(tmp_path / "a.gguf", endianess=gguf.GGUFEndian.BIG)
    header = read_gguf(path)
    assert sum(tensor.nbytes for tensor in header.tensors) == total
    assert header.metadata["llama.attention.head_count_kv"] == (4, 8)


def test_version_2(tmp_path: Path) -> None:
    header = read_gguf(file(tmp_path / "a.gguf", [], [tensor(b"a", (32, 2), 2, 0)], 36, version=2))
    assert header.tensors[0].nbytes == 36
    assert header.tensors[0].shape == (2, 32)


def test_types_are_the_reference_librarys() -> None:
    ours = {kind.number: (kind.id, kind.block, kind.block_bytes) for kind in ggml_types().values()}
    theirs = {int(kind): (kind.name, *sizes) for kind, sizes in gguf.GGML_QUANT_SIZES.items()}
    assert theirs.items() <= ours.items()
    more = set(ours) - set(theirs)
    assert min(more) == 42  # Q2_0 came after gguf 0.19.0
    assert min(more - {42}) > 100  # ik_llama.cpp's own


# bits a weight as the fork's pull requests state them, for a row of 2,048 elements with the scale that each row has
@pytest.mark.parametrize(
    ("name", "bits", "row_bytes"),
    [
        ("IQ2_K", 2.375, 0),
        ("IQ3_K", 3.4375, 0),
        ("IQ4_K", 4.5, 0),
        ("IQ5_K", 5.5, 0),
        ("IQ6_K", 6.625, 0),
        ("IQ2_KS", 2.1875, 2),
        ("IQ3_KS", 3.1875, 2),
        ("IQ4_KS", 4.25, 4),
        ("IQ5_KS", 5.25, 4),
        ("IQ4_KSS", 4.0, 4),
        ("IQ2_KL", 2.6875, 2),
        ("IQ1_KT", 1.75, 4),
        ("IQ2_KT", 2.125, 4),
        ("IQ3_KT", 3.125, 4),
        ("IQ4_KT", 4.0, 4),
        ("IQ4_K_R4", 4.5, 0),
        ("IQ4_KS_R4", 4.25, 4),
        ("Q8_K_R8", 8.0625, 0),
        ("IQ1_S_R4", 1.5, 2),
        ("Q6_0", 6.5, 0),
    ],
)
def test_types_of_the_fork(name: str, bits: float, row_bytes: int) -> None:
    kind = next(kind for kind in ggml_types().values() if kind.id == name)
    assert kind.block_bytes * 8 / kind.block == bits
    assert kind.row_bytes == row_bytes


HUGE = (1 << 64) - 1
ARRAY_OF_ARRAYS = struct.pack("<IQ", 9, 1) * 6 + struct.pack("<IQ", 4, 0)


@pytest.mark.parametrize(
    ("keys", "tensors", "options", "says"),
    [
        ([], [], {"version": 1}, "version 1"),
        ([], [], {"version": 99}, "version 99"),
        ([], [], {"key_count": HUGE}, "metadata keys, which it cannot hold"),
        ([], [], {"key_count": 60}, "metadata keys, which it cannot hold"),
        ([], [], {"tensor_count": HUGE}, "tensors, which it cannot hold"),
        ([], [], {"tensor_count": 1 << 32}, "tensors, which it cannot hold"),
        ([struct.pack("<Q", HUGE)], [], {}, "metadata keys"),
        ([struct.pack("<Q", HUGE) + bytes(32)], [], {}, "claims 18,446,744,073,709,551,615 bytes"),
        ([key(b"a", 8, struct.pack("<Q", HUGE))], [], {}, "a string of"),
        ([key(b"a", 99, b"")], [], {}, "unknown type 99"),
        ([key(b"a", 4, b"\0\0\0\0"), key(b"a", 4, b"\0\0\0\0")], [], {}, "stands twice"),
        ([key(b"a", 9, struct.pack("<IQ", 4, HUGE))], [], {}, "elements, which the file cannot hold"),
        ([key(b"a", 9, struct.pack("<IQ", 8, HUGE))], [], {}, "elements, which the file cannot hold"),
        ([key(b"a", 9, struct.pack("<IQ", 9, HUGE))], [], {}, "elements, which the file cannot hold"),
        ([key(b"a", 9, struct.pack("<IQ", 77, 1))], [], {}, "unknown type 77"),
        ([key(b"a", 9, struct.pack("<IQQ", 8, 1, HUGE))], [], {}, "longer than the file"),
        ([key(b"a", 9, struct.pack("<IQQ", 8, 2, 1 << 20))], [], {}, "ends inside an array"),
        ([key(b"a", 9, ARRAY_OF_ARRAYS)], [], {}, "more than 4 deep"),
        ([key(b"general.alignment", 4, struct.pack("<I", 0))], [], {}, "power of two"),
        ([key(b"general.alignment", 4, struct.pack("<I", 33))], [], {}, "power of two"),
        ([key(b"general.alignment", 8, text(b"x"))], [], {}, "power of two"),
        ([], [tensor(b"a", (32,), 777, 0)], {}, "ggml type 777"),
        ([], [tensor(b"a", (32,), 4, 0)], {}, "ggml type 4"),
        ([], [tensor(b"a", (1,) * 5, 0, 0)], {}, "5 dimensions"),
        ([], [tensor(b"a", (1 << 40, 1 << 40), 0, 0)], {}, "elements"),
        ([], [tensor(b"a", (33,), 2, 0)], {}, "block of 32"),
        ([], [tensor(b"a", (32,), 0, 7)], {}, "no multiple of 32"),
        ([], [tensor(b"a", (32,), 0, 1 << 40)], {}, "beyond the end"),
        ([], [tensor(b"a", (32,), 0, 0), tensor(b"a", (32,), 0, 128)], {}, "stands twice"),
        ([], [tensor(b"a", (32,), 0, 0), tensor(b"b", (32,), 0, 96)], {}, "overlap"),
        ([], [struct.pack("<Q", 1 << 40) + bytes(32)], {}, "a tensor name claims"),
    ],
)
def test_hostile_headers(
    tmp_path: Path, keys: list[bytes], tensors: list[bytes], options: dict[str, int], says: str
) -> None:
    path = file(tmp_path / "bad.gguf", keys, tensors, 256, **options)
    if says == "metadata keys":
        path.write_bytes(path.read_bytes()[:32])
    with pytest.raises(SourceError, match=r"bad\.gguf") as caught:
        read_gguf(path)
    assert says in str(caught.value)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    ("content", "says"),
    [(b"", "no GGUF"), (b"GGUF\x03\0\0\0", "8 bytes long"), (b"PK\x03\x04" + bytes(30), "zip"),
     (b"version https://git-lfs.github.com/spec/v1\n", "git lfs pull"), (bytes(64), "no GGUF")],
)  # fmt: skip
def test_files_that_are_something_else(tmp_path: Path, content: bytes, says: str) -> None:
    (tmp_path / "a.gguf").write_bytes(content)
    with pytest.raises(SourceError, match=says):
        read_gguf(tmp_path / "a.gguf")


def test_truncated_anywhere(tmp_path: Path) -> None:
    keys = [key(b"a", 8, text(b"value")), key(b"b", 9, struct.pack("<IQ", 8, 2) + text(b"x") + text(b"y"))]
    whole = file(tmp_path / "a.gguf", keys, [tensor(b"t", (32,), 0, 0)], 128).read_bytes()
    assert read_gguf(tmp_path / "a.gguf").tensors[0].nbytes == 128
    for length in range(len(whole)):
        (tmp_path / "b.gguf").write_bytes(whole[:length])
        with pytest.raises(SourceError):
            read_gguf(tmp_path / "b.gguf")


def parts(folder: Path, count: int, *, declared: int | None = None, tensors: int | None = None) -> list[Path]:
    paths = []
    for part in range(count):
        keys = [
            key(b"split.no", 2, struct.pack("<H", part)),
            key(b"split.count", 2, struct.pack("<H", declared or count)),
            key(b"split.tensors.count", 5, struct.pack("<i", tensors or count)),
        ]
        name = f"m-{part + 1:05}-of-{count:05}.gguf"
        paths.append(file(folder / name, keys, [tensor(b"t%d" % part, (32,), 0, 0)], 128))
    return paths


def test_split_files(tmp_path: Path) -> None:
    paths = parts(tmp_path, 3)
    for path in paths:
        assert sum(tensor.nbytes for tensor in read_gguf_parts(path).tensors) == 3 * 128
    paths[1].unlink()
    with pytest.raises(SourceError, match=r"1 of 3 parts are missing beside it: m-00002-of-00003\.gguf"):
        read_gguf_parts(paths[0])


def test_splits_that_do_not_belong_together(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="one of 5 parts"):
        read_gguf_parts(parts(tmp_path, 2, declared=5)[0])
    with pytest.raises(SourceError, match="where 9 were split"):
        read_gguf_parts(parts(tmp_path, 2, tensors=9)[0])
    renamed = parts(tmp_path, 2)[0].rename(tmp_path / "renamed.gguf")
    with pytest.raises(SourceError, match="one of 2 parts"):
        read_gguf_parts(renamed)
    for name in ("m-00005-of-00002.gguf", "m-00000-of-00002.gguf", "m-00001-of-99999.gguf"):
        with pytest.raises(SourceError, match="its name says part"):
            read_gguf_parts(tmp_path / name)


@given(st.data())
@settings(max_examples=300, deadline=2000)
def test_mutated_files_end_well(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    folder = tmp_path_factory.getbasetemp() / "fuzz"
    folder.mkdir(exist_ok=True)
    keys = [
        key(b"general.architecture", 8, text(b"llama")),
        key(b"b", 9, struct.pack("<IQ", 8, 2) + text(b"x") + text(b"y")),
        key(b"c", 9, struct.pack("<IQ3I", 4, 3, 1, 2, 3)),
    ]
    path = file(folder / "a.gguf", keys, [tensor(b"t", (32, 2), 2, 0), tensor(b"u", (4,), 0, 64)], 80)
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 5))):
        place = data.draw(st.integers(4, len(content) - 1))
        content[place : place + data.draw(st.integers(1, 8))] = data.draw(st.binary(min_size=1, max_size=8))
    path.write_bytes(content)
    try:
        header = read_gguf(path)
    except PlannerError:
        return
    assert sum(tensor.nbytes for tensor in header.tensors) <= len(content)
