"""load_model on folders and files of weights: exact bytes, and what disagrees with the config."""

from __future__ import annotations

import json
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from planner.errors import PlannerError, SourceError, UnsupportedArchitecture
from planner.model.load import load_model, model_from_config
from planner.model.model import Model
from planner.model.sources.stored import total_bytes
from planner.model.tensors import tensors

CONFIG = {
    "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "intermediate_size": 128, "vocab_size": 96,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128, "dtype": "bfloat16",
    "tie_word_embeddings": False,
}  # fmt: skip


def weights(**more: object) -> dict[str, torch.Tensor]:
    """Every tensor of the config, in bfloat16."""
    spec = load_model_of(CONFIG | more)
    return {tensor.name: torch.zeros(tensor.shape, dtype=torch.bfloat16) for tensor in tensors(spec.spec)}


def load_model_of(config: dict[str, object]) -> Model:
    return model_from_config(dict(config), name="m", origin="test")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    return tmp_path


def bytes_of(found: dict[str, torch.Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in found.values())


def test_a_folder(folder: Path) -> None:
    save_file(weights(), folder / "model.safetensors")
    model = load_model(folder)
    assert model.stored_bytes == bytes_of(weights()) == 2 * model.parameters
    assert total_bytes(model.stored) == model.stored_bytes
    assert model.notes == ()


def test_the_file_itself_and_its_index(folder: Path) -> None:
    save_file(weights(), folder / "model.safetensors")
    index = {"weight_map": dict.fromkeys(weights(), "model.safetensors")}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    for name in ("model.safetensors", "model.safetensors.index.json"):
        assert load_model(folder / name).stored_bytes == bytes_of(weights())


def test_a_folder_with_a_config_alone(folder: Path) -> None:
    model = load_model(folder)
    assert (model.stored_bytes, model.stored) == (None, ())


def test_an_index_alone(folder: Path) -> None:
    index = {"metadata": {"total_size": 12345}, "weight_map": {"a": "model-00001-of-00001.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    model = load_model(folder)
    assert (model.stored_bytes, model.stored) == (12345, ())
    assert "total_size" in model.notes[0]


def test_a_file_without_its_config(tmp_path: Path) -> None:
    save_file(weights(), tmp_path / "model.safetensors")
    with pytest.raises(SourceError, match=r"no config\.json beside it"):
        load_model(tmp_path / "model.safetensors")
    with pytest.raises(SourceError, match=r"has no config\.json"):
        load_model(tmp_path)


def test_a_file_of_another_kind(tmp_path: Path) -> None:
    (tmp_path / "pytorch_model.bin").write_bytes(b"PK\x03\x04")
    with pytest.raises(SourceError, match="is neither a folder nor"):
        load_model(tmp_path / "pytorch_model.bin")


@pytest.mark.parametrize("extra", ["model.layers.0.self_attn.rotary_emb.inv_freq", "lm_head.weight"])
def test_buffers_and_tied_heads_are_no_disagreement(folder: Path, extra: str) -> None:
    tied = CONFIG | {"tie_word_embeddings": True}
    (folder / "config.json").write_text(json.dumps(tied))
    save_file(
        weights(tie_word_embeddings=True) | {extra: torch.zeros(96, 64, dtype=torch.bfloat16)},
        folder / "model.safetensors",
    )
    assert load_model(folder).notes == ()


def test_another_shape_is_noted(folder: Path) -> None:
    found = weights() | {"lm_head.weight": torch.zeros(100, 64, dtype=torch.bfloat16)}
    save_file(found, folder / "model.safetensors")
    model = load_model(folder)
    assert "disagree on 1 tensors, first lm_head.weight: 96 x 64 by the config, 100 x 64" in model.notes[0]
    assert model.stored_bytes == bytes_of(found)


def test_another_number_of_weights_is_noted(folder: Path) -> None:
    found = weights()
    del found["model.layers.1.mlp.up_proj.weight"]
    save_file(found, folder / "model.safetensors")
    note = load_model(folder).notes[0]
    assert "weights in 21 tensors by the config" in note
    assert "in 20 by the file" in note


def test_packed_weights_are_not_held_against_the_config(folder: Path) -> None:
    found = weights()
    name = "model.layers.0.mlp.up_proj"
    del found[f"{name}.weight"]
    found |= {
        f"{name}.qweight": torch.zeros(8, 128, dtype=torch.int32),
        f"{name}.scales": torch.zeros(1, 128, dtype=torch.float16),
        f"{name}.qzeros": torch.zeros(1, 16, dtype=torch.int32),
        f"{name}.g_idx": torch.zeros(64, dtype=torch.int32),
    }
    save_file(found, folder / "model.safetensors")
    model = load_model(folder)
    assert model.notes == ()
    assert model.stored_bytes == bytes_of(found)


def test_a_quantiser_beside_the_config(folder: Path) -> None:
    save_file(weights(), folder / "model.safetensors")
    described = {
        "producer": {"name": "modelopt"},
        "quantization": {"quant_algo": "FP8", "exclude_modules": ["lm_head"]},
    }
    (folder / "hf_quant_config.json").write_text(json.dumps(described))
    assert load_model(folder).spec.quantization_config == {
        "quant_method": "modelopt", "quant_algo": "FP8", "exclude_modules": ["lm_head"],
    }  # fmt: skip


def write_gguf(path: Path, architecture: str = "llama", *, rows: int = 96) -> int:
    """The same model in GGUF, its matrices in Q8_0; returns the bytes of its tensors."""
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_block_count(2)
    writer.add_context_length(128)
    writer.add_embedding_length(64)
    writer.add_feed_forward_length(128)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    layer = {
        "attn_q": (64, 64), "attn_k": (32, 64), "attn_v": (32, 64), "attn_output": (64, 64),
        "ffn_up": (128, 64), "ffn_gate": (128, 64), "ffn_down": (64, 128),
    }  # fmt: skip
    matrices = {"token_embd": (rows, 64), "output": (rows, 64)}
    matrices |= {f"blk.{index}.{name}": shape for index in range(2) for name, shape in layer.items()}
    total = 0
    for name, shape in matrices.items():
        raw = np.zeros((shape[0], shape[1] // 32 * 34), dtype=np.uint8)
        writer.add_tensor(f"{name}.weight", raw, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
        total += raw.nbytes
    norms = ["output_norm", *(f"blk.{index}.{name}" for index in range(2) for name in ("attn_norm", "ffn_norm"))]
    for name in norms:
        writer.add_tensor(f"{name}.weight", np.zeros(64, dtype=np.float32))
        total += 256
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return total


def test_a_gguf_file(tmp_path: Path) -> None:
    total = write_gguf(tmp_path / "m.gguf")
    for source in (tmp_path / "m.gguf", tmp_path):
        model = load_model(source)
        assert model.stored_bytes == total
        assert model.parameters == load_model_of(CONFIG).parameters
        assert model.notes == ()


def test_a_folder_of_several_gguf_files(tmp_path: Path) -> None:
    write_gguf(tmp_path / "a-Q4_K_M.gguf")
    write_gguf(tmp_path / "a-Q8_0.gguf")
    with pytest.raises(SourceError, match=r"several GGUF models; pass one of them: a-Q4_K_M\.gguf, a-Q8_0\.gguf"):
        load_model(tmp_path)


def test_a_gguf_file_of_an_unknown_architecture(tmp_path: Path) -> None:
    write_gguf(tmp_path / "m.gguf", "wavtokenizer-dec")
    with pytest.raises(UnsupportedArchitecture, match="'wavtokenizer-dec' is not understood"):
        load_model(tmp_path / "m.gguf")


@pytest.mark.parametrize("name", ["m.gguf", "model.safetensors", "model.safetensors.index.json"])
def test_a_loop_of_links(folder: Path, name: str) -> None:
    (folder / name).symlink_to(folder / name)
    with pytest.raises(PlannerError, match=r"no such file|loop of symbolic links"):
        load_model(folder / name)
