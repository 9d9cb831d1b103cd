"""load_model on a Hub id: the config, and the bytes that the headers state."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy
import pytest
from huggingface_hub import close_session, constants
from safetensors.numpy import save

from planner.errors import SourceError
from planner.model.load import load_model, model_from_config
from planner.model.sources import hub_http
from planner.model.tensors import tensors
from tests.model.sources.hub_server import FakeHub, serve

REPO = "org/model"
CONFIG: dict[str, object] = {
    "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "intermediate_size": 128, "vocab_size": 96,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128, "dtype": "float16",
}  # fmt: skip


def content() -> bytes:
    spec = model_from_config(dict(CONFIG), name="m", origin="test").spec
    return save({tensor.name: numpy.zeros(tensor.shape, dtype=numpy.float16) for tensor in tensors(spec)})


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    with serve(FakeHub({REPO: {"config.json": json.dumps(CONFIG).encode()}})) as running:
        template = running.endpoint + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "ENDPOINT", running.endpoint)
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
        monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "token"))
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(hub_http, "TIMEOUT_S", 2.0)
        monkeypatch.delenv("HF_TOKEN", raising=False)
        yield running
        running.closing.set()
        close_session()


def test_exact_bytes_from_headers(hub: FakeHub) -> None:
    hub.repos[REPO]["model.safetensors"] = content()
    model = load_model(REPO)
    assert model.stored_bytes == 2 * model.parameters
    assert len(model.stored) == len(list(tensors(model.spec)))
    assert model.notes == ()


def test_a_repository_without_safetensors(hub: FakeHub) -> None:
    model = load_model(REPO)
    assert (model.stored_bytes, model.stored, model.notes) == (None, (), ())


def test_headers_that_cannot_be_read_leave_the_config(hub: FakeHub) -> None:
    hub.repos[REPO]["model.safetensors"] = b"PK\x03\x04" + bytes(100)
    model = load_model(REPO)
    assert model.stored_bytes is None
    assert "zip archive" in model.notes[0]


def test_offline_with_a_cached_config(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.repos[REPO]["model.safetensors"] = content()
    load_model(REPO)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    asked = len(hub.requests)
    model = load_model(REPO)
    assert model.parameters > 0
    assert len(hub.requests) == asked


def test_a_name_that_is_nowhere(hub: FakeHub) -> None:
    with pytest.raises(SourceError, match=r"pass a folder with the model's config\.json") as caught:
        load_model("nobody/Llama-3.1-8B-Instruct-Tuned-AWQ")
    assert str(caught.value).endswith("nearest bundled model: meta-llama/Llama-3.1-8B-Instruct")
