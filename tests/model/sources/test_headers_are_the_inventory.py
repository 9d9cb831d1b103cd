"""Headers of weight files held against the config: shapes are the file's, another model is an error."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from planner.errors import SourceError
from planner.model.load import load_model
from planner.model.tensors import tensors

CONFIG = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "num_hidden_layers": 4,
    "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 96, "vocab_size": 200,
    "tie_word_embeddings": False, "torch_dtype": "bfloat16",
}  # fmt: skip


@pytest.fixture
def shapes(tmp_path: Path) -> dict[str, tuple[int, ...]]:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(CONFIG))
    return {tensor.name: tensor.shape for tensor in tensors(load_model(path).spec)}


def save(folder: Path, shapes: dict[str, tuple[int, ...]], dtype: torch.dtype = torch.bfloat16) -> None:
    save_file({name: torch.zeros(shape, dtype=dtype) for name, shape in shapes.items()}, folder / "model.safetensors")


def test_the_same_shapes_are_no_note(tmp_path: Path, shapes: dict[str, tuple[int, ...]]) -> None:
    save(tmp_path, shapes)
    assert load_model(tmp_path).notes == ()


@pytest.mark.parametrize("name", ["model.embed_tokens.weight", "lm_head.weight"])
def test_a_taller_matrix_is_planned_as_the_file_has_it(
    tmp_path: Path, shapes: dict[str, tuple[int, ...]], name: str
) -> None:
    save(tmp_path, {**shapes, name: (400, 64)})
    model = load_model(tmp_path)
    # 200 rows of 64 more than the config's
    config = sum(torch.Size(shape).numel() for shape in shapes.values())
    assert model.parameters == config + 200 * 64
    assert "200 x 64 by the config, 400 x 64" in model.notes[0]
    assert "+12,800 weights" in model.notes[0]


def test_half_the_layers_are_another_model(tmp_path: Path, shapes: dict[str, tuple[int, ...]]) -> None:
    save(tmp_path, {name: shape for name, shape in shapes.items() if ".layers.2." not in name and ".3." not in name})
    with pytest.raises(
        SourceError, match=r"hold 2 of the 4 layers that the config makes \(first absent: model.layers.2"
    ):
        load_model(tmp_path)


def test_another_width_is_another_model(tmp_path: Path, shapes: dict[str, tuple[int, ...]]) -> None:
    save(tmp_path, {**shapes, "model.layers.1.mlp.up_proj.weight": (128, 64)})
    with pytest.raises(SourceError, match="1 matrices of layers have another shape"):
        load_model(tmp_path)


@pytest.mark.parametrize("total", [1, 10**12])
def test_an_absurd_total_is_another_model(tmp_path: Path, shapes: dict[str, tuple[int, ...]], total: int) -> None:
    index = {"metadata": {"total_size": total}, "weight_map": dict.fromkeys(shapes, "model-00001-of-00001.safetensors")}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(SourceError, match="these are not one model"):
        load_model(tmp_path)


@pytest.mark.parametrize(("dtype", "held"), [(torch.float32, "F32"), (torch.float8_e4m3fn, "F8_E4M3")])
def test_another_type_than_the_configs_is_said(
    tmp_path: Path, shapes: dict[str, tuple[int, ...]], dtype: torch.dtype, held: str
) -> None:
    save(tmp_path, shapes, dtype)
    total = sum(torch.Size(shape).numel() for shape in shapes.values()) * dtype.itemsize
    assert load_model(tmp_path).notes == (
        f"the config states bfloat16 and no quantisation, the files hold {held} ({total:,} of {total:,} bytes):"
        " engines convert it while they load, and planned is what they convert it to",
    )


@pytest.mark.parametrize("dtype", [torch.int32, torch.uint8])
def test_packed_weights_need_a_config_that_says_how(
    tmp_path: Path, shapes: dict[str, tuple[int, ...]], dtype: torch.dtype
) -> None:
    save(tmp_path, shapes, dtype)
    with pytest.raises(SourceError, match=r"packed weights .* has no quantization_config"):
        load_model(tmp_path)
