"""A .gguf file is planned from its own header: exact bytes, multi-part files, draft layers left to a draft context."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from planner.cli.words.questions import ask
from planner.contract.workload import Workload
from planner.engines.llama_cpp.plan import LlamaPlan
from planner.units import MIB

gguf = pytest.importorskip("gguf")

HIDDEN, INNER, HEADS, GROUPS, HEAD, WORDS = 512, 1024, 8, 2, 64, 2048
ROW = {"Q4_0": (32, 18), "F32": (1, 4)}


def file(path: Path, layers: int, *, drafts: int = 0, tied: bool = False, architecture: str = "qwen3") -> int:
    """A model with weights of zeros in Q4_0 and norms in F32; the bytes of one layer."""
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_block_count(layers + drafts)
    writer.add_context_length(4096)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(GROUPS)
    writer.add_key_length(HEAD)
    writer.add_value_length(HEAD)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_vocab_size(WORDS)
    if drafts:
        writer.add_nextn_predict_layers(drafts)
    size = 0

    def matrix(name: str, rows: int, columns: int) -> int:
        data = np.zeros((rows, columns // 32 * 18), dtype=np.uint8)
        writer.add_tensor(name, data, raw_dtype=gguf.GGMLQuantizationType.Q4_0)
        return int(data.nbytes)

    def vector(name: str, count: int) -> int:
        writer.add_tensor(name, np.zeros(count, dtype=np.float32))
        return 4 * count

    matrix("token_embd.weight", WORDS, HIDDEN)
    vector("output_norm.weight", HIDDEN)
    if not tied:
        matrix("output.weight", WORDS, HIDDEN)
    for layer in range(layers + drafts):
        start = f"blk.{layer}."
        size = sum(
            [
                matrix(f"{start}attn_q.weight", HEADS * HEAD, HIDDEN),
                matrix(f"{start}attn_k.weight", GROUPS * HEAD, HIDDEN),
                matrix(f"{start}attn_v.weight", GROUPS * HEAD, HIDDEN),
                matrix(f"{start}attn_output.weight", HIDDEN, HEADS * HEAD),
                matrix(f"{start}ffn_gate.weight", INNER, HIDDEN),
                matrix(f"{start}ffn_up.weight", INNER, HIDDEN),
                matrix(f"{start}ffn_down.weight", HIDDEN, INNER),
                vector(f"{start}attn_norm.weight", HIDDEN),
                vector(f"{start}ffn_norm.weight", HIDDEN),
                vector(f"{start}attn_q_norm.weight", HEAD),
                vector(f"{start}attn_k_norm.weight", HEAD),
            ]
        )
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return size


def plan(*words: str) -> LlamaPlan:
    asked = ask([*words, "--gpu", "3090"], Workload, about="", name="serve")
    assert asked is not None
    found = asked.engine.plan(asked.model, asked.deployment)
    assert isinstance(found, LlamaPlan)
    return found


def test_a_gguf_is_planned_with_llama_cpp_and_says_so(tmp_path: Path) -> None:
    layer = file(tmp_path / "m.gguf", 4)
    found = plan(str(tmp_path / "m.gguf"), "-c", "2048", "-np", "1")
    assert found.buffers is not None
    head = WORDS * HIDDEN // 32 * 18
    # norms of heads are 256 bytes, everything else a multiple of 128
    assert found.buffers.model == (4 * layer + head + 4 * HIDDEN, head)
    assert found.buffers.full == (4 * 2048 * 2 * GROUPS * HEAD * 2, 0)
    assert any("planned with llama.cpp" in note for note in found.notes)


def test_a_tied_head_is_loaded_a_second_time(tmp_path: Path) -> None:
    file(tmp_path / "tied.gguf", 2, tied=True)
    file(tmp_path / "own.gguf", 2)
    plans = [plan(str(tmp_path / name), "-c", "2048") for name in ("tied.gguf", "own.gguf")]
    assert plans[0].buffers is not None
    assert plans[1].buffers is not None
    assert plans[0].buffers.model == plans[1].buffers.model


def test_some_layers_on_the_card(tmp_path: Path) -> None:
    layer = file(tmp_path / "m.gguf", 4)
    found = plan(str(tmp_path / "m.gguf"), "-c", "2048", "-ngl", "3")
    assert found.buffers is not None
    head = WORDS * HIDDEN // 32 * 18
    assert found.buffers.model == (2 * layer + head + 4 * HIDDEN, 2 * layer + head)


def test_a_quantisation_beside_a_file_is_refused(tmp_path: Path) -> None:
    from planner.errors import UsageError

    file(tmp_path / "m.gguf", 2)
    with pytest.raises(UsageError, match="the file's tensors say"):
        plan(str(tmp_path / "m.gguf"), "-q", "Q4_K_M")


def test_options_that_no_input_takes_stay_in_the_command(tmp_path: Path) -> None:
    from planner.contract.engine import command_line

    file(tmp_path / "m.gguf", 2)
    found = plan(str(tmp_path / "m.gguf"), "-c", "2048", "--temp", "0.7", "--lora", "a.gguf")
    assert "--temp 0.7" in command_line(found)
    assert any(note.startswith("--lora: not known") for note in found.notes)
    assert not any(note.startswith("--temp") for note in found.notes)
    assert found.buffers is not None
    assert found.buffers.output / MIB < 1
