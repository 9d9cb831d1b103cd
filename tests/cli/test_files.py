"""Files of weights through every command that plans: what the reference libraries write is planned end to end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from huggingface_hub import constants
from safetensors.torch import save_file

from planner.memory.exports import EXPORTS
from planner.memory.ggml.mixes import mix_names
from planner.memory.quantisation import scheme_from_config, scheme_from_name
from planner.memory.runtime import runtime_scheme
from planner.model.load import load_model
from planner.model.names.bundled import bundled_names
from tests.cli.running import run
from tests.model.sources.test_weights import CONFIG, weights, write_gguf

_COMMIT = "0123456789abcdef0123456789abcdef01234567"
_COMMANDS = (
    ("serve", "--gpu", "4090", "--max-model-len", "64"),
    ("serve", "--gpu", "4090", "--engine", "transformers", "--max-model-len", "64"),
    ("serve", "--gpu", "4090", "--max-model-len", "64", "--levers"),
    ("explain", "--gpu", "4090", "--max-model-len", "64"),
    ("compare", "--gpu", "4090", "--gpu", "H100", "--max-model-len", "32,64"),
    ("size", "--gpu", "4090", "--users", "3", "--input-len", "32", "--output-len", "16"),
    ("train", "--gpu", "4090", "--method", "lora", "--max-seq-length", "64"),
    ("formats",),
)


_ON_VLLM = ("--engine", "vllm", "--format", "json")
_SERVERS = ("serve", "explain", "compare", "size")


def gguf_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    write_gguf(tmp_path / "x.gguf")
    return str(tmp_path / "x.gguf")


def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    tmp_path.mkdir(exist_ok=True, parents=True)
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    save_file(weights(), tmp_path / "model.safetensors")
    return str(tmp_path)


def hub_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A repository as huggingface_hub keeps it, named by its id."""
    repository = tmp_path / "models--someone--small"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text(_COMMIT)
    folder(repository / "snapshots" / _COMMIT, monkeypatch)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    return "someone/small"


@pytest.mark.parametrize("written", [gguf_file, folder, hub_cache])
@pytest.mark.parametrize("command", _COMMANDS, ids=lambda command: "-".join(command[:1] + command[3:]))
def test_every_command_plans_it(written, command, tmp_path, capsys, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    # a .gguf is llama.cpp's unless another engine is named
    named = (
        ("--engine", "vllm") if written is gguf_file and "--engine" not in command and command[0] in _SERVERS else ()
    )
    result = run(capsys, monkeypatch, command[0], written(tmp_path, monkeypatch), *command[1:], *named)
    assert result.status == 0, result.err
    assert result.out and "Traceback" not in result.err


def test_a_gguf_files_bytes_are_the_plans(tmp_path: Path, capsys, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    """96 words are padded to 128 in both vocabulary matrices; the rotary table is 128 positions of 16 in bfloat16."""
    stored = write_gguf(tmp_path / "x.gguf")
    result = run(capsys, monkeypatch, "serve", str(tmp_path / "x.gguf"), "--gpu", "4090", *_ON_VLLM)
    document = json.loads(result.out)
    padding, rotary = 2 * 32 * 64 // 32 * 34, 128 * 16 * 2
    planned = document["budget"]["weights_bytes"]
    # the allocator rounds each of the 21 tensors and the table up to 512 bytes
    assert stored + padding + rotary <= planned < stored + padding + rotary + 22 * 512
    assert document["deployment"]["weight_format"] == "GGUF, mostly Q8_0"


def test_every_scheme_is_a_key(tmp_path: Path) -> None:
    """Schemes are keys of what plans remember: each kind must hash, and equal ones must hash alike."""
    spec = load_model("meta-llama/Llama-3.1-8B-Instruct").spec
    for name in (*EXPORTS, *mix_names()):
        first, second = (runtime_scheme(scheme_from_name(name, spec)) for _ in range(2))
        assert hash(first) == hash(second) and first == second, name
    methods = set()
    for path in bundled_names().values():
        method = (json.loads(path.read_text()).get("quantization_config") or {}).get("quant_method")
        if method not in methods:
            methods.add(method)
            known = load_model(path).spec
            if known.quantization_config is not None:
                hash(runtime_scheme(scheme_from_config(known)))
    assert len(methods) > 3
