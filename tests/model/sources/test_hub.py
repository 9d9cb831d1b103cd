"""The Hub reader against a local server that plays the Hub."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy
import pytest
from huggingface_hub import close_session, constants
from safetensors.numpy import save

from planner.errors import SourceError
from planner.model.sources import hub_http
from planner.model.sources.hub import fetch_config, fetch_header, fetch_json, fetch_weights
from planner.model.sources.stored import total_bytes
from tests.model.sources.hub_server import COMMIT, FakeHub, serve

CONFIG = {"model_type": "llama", "hidden_size": 64}
REPO = "org/model"


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    with serve(FakeHub({REPO: {"config.json": json.dumps(CONFIG).encode()}})) as running:
        monkeypatch.setattr(constants, "ENDPOINT", running.endpoint)
        monkeypatch.setattr(
            constants, "HUGGINGFACE_CO_URL_TEMPLATE", running.endpoint + "/{repo_id}/resolve/{revision}/{filename}"
        )
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
        monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "token"))
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(hub_http, "TIMEOUT_S", 0.7)
        monkeypatch.delenv("HF_TOKEN", raising=False)
        monkeypatch.delenv("HUGGING_FACE_HUB_TOKEN", raising=False)
        yield running
        running.closing.set()
        close_session()


def shard(*names: str, rows: int = 4) -> bytes:
    return save({name: numpy.zeros((rows, 8), dtype=numpy.float16) for name in names})


def padded(content: bytes, header_bytes: int) -> bytes:
    """The same file with its header filled up with spaces, as the format allows."""
    length = int.from_bytes(content[:8], "little")
    header = content[8 : 8 + length].ljust(header_bytes)
    return len(header).to_bytes(8, "little") + header + content[8 + length :]


def sharded(**shards: bytes) -> dict[str, bytes]:
    files = {f"{name}.safetensors": content for name, content in shards.items()}
    weight_map = {}
    for file, content in files.items():
        header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
        weight_map.update({name: file for name in header if name != "__metadata__"})
    index = {"metadata": {"total_size": 4321}, "weight_map": weight_map}
    return {**files, "model.safetensors.index.json": json.dumps(index).encode()}


class TestConfig:
    def test_is_fetched_once_and_then_read_from_the_cache(self, hub: FakeHub) -> None:
        assert fetch_config(REPO) == CONFIG
        asked = len(hub.requests)
        assert {method for method, _, _ in hub.requests} == {"HEAD", "GET"}
        assert fetch_config(REPO) == CONFIG
        assert len(hub.requests) == asked

    def test_cache_is_used_offline(self, hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
        fetch_config(REPO)
        asked = len(hub.requests)
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
        assert fetch_config(REPO) == CONFIG
        assert len(hub.requests) == asked

    def test_offline_and_not_cached_says_how_to_plan(self, hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
        with pytest.raises(SourceError, match=r"HF_HUB_OFFLINE is set.*pass a folder.*or the config\.json"):
            fetch_config(REPO)
        assert hub.requests == []

    def test_revision(self, hub: FakeHub) -> None:
        assert fetch_config(REPO, COMMIT) == CONFIG
        with pytest.raises(SourceError, match=r"revision v9.*no such revision"):
            fetch_config(REPO, revision="v9")

    def test_redirect_is_followed(self, hub: FakeHub) -> None:
        hub.moved["org/old"] = REPO
        assert fetch_config("org/old") == CONFIG

    def test_private_repository_needs_the_token(self, hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
        hub.private.add(REPO)
        with pytest.raises(SourceError, match=r"not on the Hub, or is private \(then set HF_TOKEN\)"):
            fetch_config(REPO)
        monkeypatch.setenv("HF_TOKEN", hub.token)
        assert fetch_config(REPO) == CONFIG

    @pytest.mark.parametrize(
        ("status", "code", "says"),
        [
            (401, "RepoNotFound", "not on the Hub"),
            (401, "", "HTTP 401.*HF_TOKEN"),
            (403, "GatedRepo", "gated.*HF_TOKEN"),
            (403, "", "HTTP 403.*HF_TOKEN"),
            (404, "RepoNotFound", "not on the Hub"),
            (429, "", "HTTP 429"),
            (500, "", "HTTP 500"),
            (404, "", "HTTP 404"),
        ],
    )
    def test_refusals_in_one_line(self, hub: FakeHub, status: int, code: str, says: str) -> None:
        hub.errors["org/no"] = (status, code)
        with pytest.raises(SourceError, match=f"^org/no: .*{says}.*; to plan offline, pass") as caught:
            fetch_config("org/no")
        assert "\n" not in str(caught.value)

    def test_repository_without_config(self, hub: FakeHub) -> None:
        hub.repos["org/gguf"] = {"model.gguf": b"GGUF"}
        with pytest.raises(SourceError, match=r"has no config\.json.*GGUF"):
            fetch_config("org/gguf")
        assert fetch_json("org/gguf", "hf_quant_config.json") is None

    @pytest.mark.parametrize(
        ("content", "says"),
        [
            (b"<!DOCTYPE html><html></html>", "not valid JSON"),
            (b"[1, 2]", "a list"),
            (b"\xff\xfe{}", "UTF-8"),
            (b"", "not valid JSON"),
            (b'{"a": ' * 100_000, "nested"),
            (b'{"vocab_size": 1' + b"0" * 100_000 + b"}", "digits"),
        ],
    )
    def test_garbage(self, hub: FakeHub, content: bytes, says: str) -> None:
        hub.repos[REPO]["config.json"] = content
        with pytest.raises(SourceError, match=says):
            fetch_config(REPO)

    def test_huge_file_is_not_downloaded(self, hub: FakeHub) -> None:
        hub.repos[REPO]["config.json"] = b" " * ((16 << 20) + 1)
        with pytest.raises(SourceError, match="16,777,217 bytes"):
            fetch_config(REPO)
        assert hub.sent_bytes == 0

    @pytest.mark.parametrize("how", ["silent", "drip"])
    def test_slow_server(self, hub: FakeHub, how: str) -> None:
        hub.slow["org/slow"] = how
        began = time.monotonic()
        with pytest.raises(SourceError, match=r"does not answer within.*to plan offline, pass"):
            fetch_config("org/slow")
        assert time.monotonic() - began < 3

    def test_nobody_listens(self, hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(
            constants, "HUGGINGFACE_CO_URL_TEMPLATE", "http://127.0.0.1:9/{repo_id}/resolve/{revision}/{filename}"
        )
        with pytest.raises(SourceError, match=r"cannot be reached.*to plan offline, pass"):
            fetch_config(REPO)

    @pytest.mark.parametrize("name", ["a/b/c", "org/..", "-x/y", "a b/c", "../etc/passwd"])
    def test_invalid_names(self, hub: FakeHub, name: str) -> None:
        with pytest.raises(SourceError):
            fetch_config(name)
        assert hub.requests == []


class TestWeights:
    def test_single_file_by_ranges(self, hub: FakeHub) -> None:
        content = shard("a", "b", rows=100_000)
        hub.repos[REPO]["model.safetensors"] = content
        weights = fetch_weights(REPO)
        assert weights is not None
        assert weights.total_bytes == total_bytes(weights.tensors) == 2 * 100_000 * 8 * 2
        assert hub.sent_bytes < 110_000 < len(content)

    def test_long_header_takes_a_second_range(self, hub: FakeHub) -> None:
        content = padded(shard("a"), 300_000)
        hub.repos[REPO]["model.safetensors"] = content
        assert [tensor.nbytes for tensor in fetch_header(REPO, "model.safetensors")] == [64]
        assert [asked for method, _, asked in hub.requests if method == "GET"] == [
            "bytes=0-99999",
            "bytes=100000-300007",
        ]

    def test_server_without_ranges(self, hub: FakeHub) -> None:
        hub.ranges = False
        hub.repos[REPO]["model.safetensors"] = padded(shard("a"), 300_000)
        assert [tensor.nbytes for tensor in fetch_header(REPO, "model.safetensors")] == [64]

    def test_index_and_shards(self, hub: FakeHub) -> None:
        hub.repos[REPO].update(sharded(one=shard("a", "b"), two=shard("c"), three=shard("d")))
        weights = fetch_weights(REPO)
        assert weights is not None
        assert weights.total_bytes == 4 * 64
        assert {(tensor.name, tensor.file) for tensor in weights.tensors} == {
            ("a", "one.safetensors"), ("b", "one.safetensors"), ("c", "two.safetensors"), ("d", "three.safetensors"),
        }  # fmt: skip
        assert weights.notes == ()

    def test_missing_shards_are_listed(self, hub: FakeHub) -> None:
        files = sharded(one=shard("a"), two=shard("c"))
        del files["two.safetensors"]
        hub.repos[REPO].update(files)
        with pytest.raises(SourceError, match=r"1 of 2 shards are missing: two\.safetensors"):
            fetch_weights(REPO)

    def test_index_that_leaves_the_folder(self, hub: FakeHub) -> None:
        index = {"weight_map": {"a": "../../org/other/model.safetensors"}}
        hub.repos[REPO]["model.safetensors.index.json"] = json.dumps(index).encode()
        with pytest.raises(SourceError, match="outside its folder"):
            fetch_weights(REPO)

    def test_total_size_when_offline_with_the_index_alone(self, hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
        hub.repos[REPO].update(sharded(one=shard("a")))
        fetch_json(REPO, "model.safetensors.index.json")
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
        weights = fetch_weights(REPO)
        assert weights is not None
        assert (weights.total_bytes, weights.tensors) == (4321, ())
        assert "total_size" in weights.notes[0]

    def test_total_size_when_headers_are_refused(self, hub: FakeHub) -> None:
        hub.repos[REPO].update(sharded(one=shard("a")))
        fetch_json(REPO, "model.safetensors.index.json")
        hub.errors[REPO] = (403, "GatedRepo")
        weights = fetch_weights(REPO)
        assert weights is not None
        assert weights.total_bytes == 4321
        assert "gated" in weights.notes[0]

    def test_cached_snapshot_is_read_without_a_request(self, hub: FakeHub, tmp_path: Path) -> None:
        hub.repos[REPO].update(sharded(one=shard("a"), two=shard("c")))
        for name in hub.repos[REPO]:
            hub_http.download(REPO, name, None, max_bytes=1 << 30)
        asked = len(hub.requests)
        weights = fetch_weights(REPO)
        assert weights is not None
        assert weights.total_bytes == 128
        assert len(hub.requests) == asked

    def test_repository_without_safetensors(self, hub: FakeHub) -> None:
        assert fetch_weights(REPO) is None

    @pytest.mark.parametrize(
        ("content", "says"),
        [
            (b"", "too short"),
            (b"PK\x03\x04" + b"0" * 200, "zip"),
            (b"version https://git-lfs.github.com/spec/v1\n", "LFS"),
            ((1 << 40).to_bytes(8, "little") + b"{}", "claims a header"),
            ((26_000_000).to_bytes(8, "little") + b"{}" + b" " * 26_000_000, "too long to fetch"),
            (shard("a")[:-1], "truncated"),
        ],
    )
    def test_hostile_files(self, hub: FakeHub, content: bytes, says: str) -> None:
        hub.repos[REPO]["model.safetensors"] = content
        with pytest.raises(SourceError, match=says):
            fetch_weights(REPO)

    def test_slow_shard(self, hub: FakeHub) -> None:
        hub.slow["org/slow"] = "drip"
        began = time.monotonic()
        with pytest.raises(SourceError, match="does not answer within"):
            fetch_header("org/slow", "model.safetensors")
        assert time.monotonic() - began < 3


def test_environment_variables_and_lazy_import(hub: FakeHub, tmp_path: Path) -> None:
    """HF_ENDPOINT, HF_TOKEN and HF_HOME are honoured in a fresh process; importing the module loads no Hub library."""
    hub.private.add(REPO)
    program = (
        "import sys\n"
        "from planner.model.sources.hub import fetch_config\n"
        "assert 'huggingface_hub' not in sys.modules\n"
        f"print(fetch_config({REPO!r})['model_type'])\n"
    )
    environment = {
        **{key: value for key, value in os.environ.items() if not key.startswith("HF_")},
        "HF_ENDPOINT": hub.endpoint,
        "HF_TOKEN": hub.token,
        "HF_HOME": str(tmp_path / "home"),
    }
    run = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert (run.returncode, run.stdout.strip()) == (0, "llama"), run.stderr
    assert (tmp_path / "home").is_dir()
