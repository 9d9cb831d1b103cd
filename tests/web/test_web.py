"""The page and its API, over a real server on this machine, and in a real browser where one is installed."""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import Request, urlopen

import pytest
import uvicorn

from planner.web.app import make_app
from tests.cli.running import run

_QUESTION = {"model": "Qwen/Qwen3-8B", "gpu": "4090", "max-model-len": "8192", "concurrency": "4"}


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    server = uvicorn.Server(uvicorn.Config(make_app(), host="127.0.0.1", port=0, log_level="error"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    deadline = time.monotonic() + 20
    while not server.started and time.monotonic() < deadline:
        time.sleep(0.01)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    thread.join(20)


def _put(url: str, body: bytes, **headers: str) -> tuple[int, str]:
    request = Request(url, data=body, headers={name.replace("_", "-"): value for name, value in headers.items()})
    try:
        with urlopen(request, timeout=60) as response:
            return response.status, response.read().decode()
    except HTTPError as error:
        return error.code, error.read().decode()


def _asked(address: str, **changes: object) -> tuple[int, dict[str, object]]:
    status, text = _put(f"{address}/api/serve", json.dumps({**_QUESTION, **changes}).encode())
    return status, json.loads(text)


def test_the_api_answers_as_the_command_does(
    address: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["serve", "Qwen/Qwen3-8B", "--gpu", "4090", "--max-model-len", "8192", "--concurrency", "4"]
    said = json.loads(run(capsys, monkeypatch, *words, "--format", "json").out)
    status, answered = _asked(address)
    assert status == 200
    assert answered["verdict"] == said["verdict"]
    assert answered["devices"] == said["devices"]


@pytest.mark.parametrize("model", ["/etc/passwd", "../x", "./config.json", "C:\\x", "a/../b", "file:///etc/passwd"])
def test_a_path_is_no_model(address: str, model: str) -> None:
    status, answered = _asked(address, model=model)
    assert status == 422
    assert "bundled name" in str(answered)


@pytest.mark.parametrize("name", ["config", "lora-modules", "LORA_MODULES"])
def test_an_input_that_is_a_file_is_not_read(address: str, name: str) -> None:
    assert _asked(address, **{name: "/etc/passwd"})[0] == 422


@pytest.mark.parametrize("draft", ["/etc", "../x", "~/x", "\\u002fetc", "C:\\\\x"])
def test_a_draft_is_a_name_too(address: str, draft: str) -> None:
    config = f'{{"method": "draft_model", "num_speculative_tokens": 3, "model": "{draft}"}}'
    status, answered = _asked(address, speculative_config=config)
    assert status == 422
    assert "not read here" in str(answered)


def test_a_wrong_value_names_its_field(address: str) -> None:
    status, answered = _asked(address, gpu="no such card")
    assert status == 422
    assert "no such card" in str(answered)
    assert _asked(address, **{"no-such-input": "1"})[0] == 422


def test_what_is_no_question_is_refused(address: str) -> None:
    for body in (b"", b"[]", b"{", b"[" * 60_000, b" " * 70_000):
        assert _put(f"{address}/api/serve", body)[0] == 422


def test_other_pages_and_names_are_refused(address: str) -> None:
    body = json.dumps(_QUESTION).encode()
    assert _put(f"{address}/api/serve", body, Origin="https://elsewhere.example")[0] == 403
    assert _put(f"{address}/api/serve", body, Host="elsewhere.example")[0] == 403


@pytest.mark.parametrize(("form", "start"), [("html", "<!doctype html>"), ("json", "{"), ("csv", "device,")])
def test_exports(address: str, form: str, start: str) -> None:
    with urlopen(f"{address}/api/serve?{urlencode({'form': form, **_QUESTION})}", timeout=60) as response:
        assert response.read().decode().startswith(start)


def test_the_contract_is_published(address: str) -> None:
    with urlopen(f"{address}/openapi.json", timeout=60) as response:
        published = json.load(response)
    assert "Serve" in published["components"]["schemas"]


def test_twenty_at_once_get_the_same_answer(address: str) -> None:
    with ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(lambda _: _asked(address), range(20)))
    assert {status for status, _ in answers} == {200}
    assert len({json.dumps(answer, sort_keys=True) for _, answer in answers}) == 1


def _shown(address: str, **question: str) -> str:
    browser = shutil.which("chromium")
    if browser is None:
        pytest.skip("no chromium")
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=20000", "--dump-dom"]
    told = subprocess.run(
        [browser, *flags, f"{address}/?{urlencode(question)}"], capture_output=True, text=True, timeout=120
    )
    return told.stdout


def test_a_browser_shows_the_answer_of_a_link(address: str) -> None:
    fits = _shown(address, **{"model": "Qwen/Qwen3-8B", "gpu": "H100", "max-model-len": "8192", "concurrency": "4"})
    assert "<svg" in fits and "vllm serve Qwen/Qwen3-8B" in fits
    refused = _shown(address, model="Qwen/Qwen3-8B", gpu="no such card")
    assert "no such card" in refused.partition('id="mistake"')[2][:200]
