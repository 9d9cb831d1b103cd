"""The scheme of a GGUF file has the file's bytes."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest

from planner.memory.ggml.mixes import GgmlMix
from planner.memory.ggml.tensors import Kind, kind_of
from planner.memory.quantisation import scheme_from_name
from planner.memory.schemes.scheme import WeightScheme
from planner.memory.schemes.stored_scheme import _names, scheme_from_stored
from planner.model.load import load_model
from planner.model.model import Model
from planner.model.sources.stored import StoredTensor
from planner.model.tensors import tensors

_TYPES = gguf.GGMLQuantizationType


def total(model: Model, scheme: WeightScheme) -> int:
    return sum(scheme.format_of(tensor).bytes(tensor.shape, tensor.input_dim) for tensor in tensors(model.spec))


def write(path: Path) -> None:
    """A llama of two layers in which every matrix has a type of its own."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(2)
    writer.add_context_length(128)
    writer.add_embedding_length(64)
    writer.add_feed_forward_length(128)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    matrices = {"token_embd": (96, 64), "output": (96, 64)}
    for layer in range(2):
        matrices |= {
            f"blk.{layer}.attn_q": (64, 64), f"blk.{layer}.attn_k": (32, 64), f"blk.{layer}.attn_v": (32, 64),
            f"blk.{layer}.attn_output": (64, 64), f"blk.{layer}.ffn_up": (128, 64),
            f"blk.{layer}.ffn_gate": (128, 64), f"blk.{layer}.ffn_down": (64, 128),
        }  # fmt: skip
    kinds = (_TYPES.Q8_0, _TYPES.Q4_0, _TYPES.Q5_1, _TYPES.Q5_0, _TYPES.Q4_1, _TYPES.IQ4_NL, _TYPES.MXFP4)
    for index, (name, (rows, columns)) in enumerate(matrices.items()):
        kind = kinds[index % len(kinds)]
        block, size = gguf.GGML_QUANT_SIZES[kind]
        writer.add_tensor(f"{name}.weight", np.zeros((rows, columns // block * size), dtype=np.uint8), raw_dtype=kind)
    for name in ("output_norm", *(f"blk.{layer}.{norm}" for layer in range(2) for norm in ("attn_norm", "ffn_norm"))):
        writer.add_tensor(f"{name}.weight", np.zeros(64, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def test_a_file_of_many_types(tmp_path: Path) -> None:
    write(tmp_path / "m.gguf")
    model = load_model(tmp_path / "m.gguf")
    scheme = scheme_from_stored(model)
    assert scheme is not None
    assert total(model, scheme) == model.stored_bytes
    assert not scheme.same_for_every_layer


@pytest.mark.parametrize(
    ("name", "mix"),
    [
        ("meta-llama/Llama-3.1-8B-Instruct", "Q4_K_M"),
        ("microsoft/phi-4", "Q4_K_M"),
        ("Qwen/Qwen3-30B-A3B", "Q3_K_M"),
        ("Qwen/Qwen1.5-MoE-A2.7B-Chat", "Q4_K_M"),
        ("google/gemma-2-9b-it", "IQ4_XS"),
    ],
)
def test_files_of_the_named_mixes(name: str, mix: str) -> None:
    model = load_model(name)
    expected = scheme_from_name(mix, model.spec)
    assert isinstance(expected.assignment, GgmlMix)
    stored = [
        StoredTensor(
            f"{_names(tensor, kind_of(tensor))[0]}.weight",
            expected.assignment.type_of(tensor),
            tensor.shape,
            1,
            "m.gguf",
        )
        for tensor in tensors(model.spec)
        if kind_of(tensor) is not Kind.FIXED and _names(tensor, kind_of(tensor))
    ]
    read = Model(id="m", spec=model.spec, origin="test", stored=tuple(stored))
    scheme = scheme_from_stored(read)
    assert scheme is not None
    assert total(read, scheme) == total(model, expected)


def test_other_models_have_none() -> None:
    assert scheme_from_stored(load_model("meta-llama/Llama-3.1-8B-Instruct")) is None
