"""An adapter's folder, Mistral's params.json, and what a quantiser wrote beside a config."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from planner.errors import ConfigError, PlannerError, SourceError
from planner.model.load import load_model

SMALL_3_1 = {
    "dim": 5120, "n_layers": 40, "head_dim": 128, "hidden_dim": 32768, "n_heads": 32, "n_kv_heads": 8,
    "rope_theta": 1e9, "norm_eps": 1e-5, "vocab_size": 131072, "max_position_embeddings": 131072,
}  # fmt: skip
TOWER = {
    "hidden_size": 1024, "num_channels": 3, "image_size": 1540, "patch_size": 14, "rope_theta": 10000.0,
    "intermediate_size": 4096, "num_hidden_layers": 24, "num_attention_heads": 16, "adapter_bias": False,
    "mm_projector_id": "patch_merge", "spatial_merge_size": 2,
}  # fmt: skip
MIXTRAL = {
    "dim": 4096, "n_layers": 32, "head_dim": 128, "hidden_dim": 14336, "n_heads": 32, "n_kv_heads": 8,
    "norm_eps": 1e-5, "vocab_size": 32000, "moe": {"num_experts_per_tok": 2, "num_experts": 8},
}  # fmt: skip


def write(folder: Path, name: str, values: object) -> Path:
    path = folder / name
    path.write_text(json.dumps(values))
    return path


@pytest.mark.parametrize("whole_folder", [True, False])
def test_an_adapter_is_its_base_with_a_rank(tmp_path: Path, whole_folder: bool) -> None:
    values = {
        "base_model_name_or_path": "meta-llama/Llama-3.1-8B", "peft_type": "LORA", "r": 16,
        "rank_pattern": {"down_proj": 64}, "target_modules": ["q_proj", "down_proj"], "modules_to_save": ["lm_head"],
    }  # fmt: skip
    path = write(tmp_path, "adapter_config.json", values)
    model = load_model(tmp_path if whole_folder else path)
    assert model.parameters == 8_030_261_248
    assert model.adapter is not None
    assert (model.adapter.rank, model.adapter.target_modules) == (64, ("q_proj", "down_proj"))
    assert model.adapter.modules_to_save == ("lm_head",)
    assert "--max-lora-rank 64" in model.notes[0]


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"peft_type": "LORA", "r": 8}, "base_model_name_or_path is missing"),
        ({"base_model_name_or_path": "Qwen/Qwen3-8B", "peft_type": "IA3", "r": 8}, "only LoRA"),
        ({"base_model_name_or_path": "Qwen/Qwen3-8B", "r": "eight"}, "r must be a whole number"),
        ({"base_model_name_or_path": "Qwen/Qwen3-8B", "r": 8, "target_modules": [1]}, "target_modules holds 1"),
    ],
)
def test_an_adapter_that_says_too_little(tmp_path: Path, values: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        load_model(write(tmp_path, "adapter_config.json", values))


def test_an_adapter_of_an_adapter_is_refused(tmp_path: Path) -> None:
    write(tmp_path, "adapter_config.json", {"base_model_name_or_path": str(tmp_path), "r": 8})
    with pytest.raises(SourceError, match="is an adapter itself"):
        load_model(tmp_path)


def test_mistrals_own_params(tmp_path: Path) -> None:
    write(tmp_path, "params.json", {**SMALL_3_1, "vision_encoder": TOWER})
    model = load_model(tmp_path)
    assert model.parameters == load_model("mistralai/Mistral-Small-3.1-24B-Instruct-2503").parameters == 24_011_361_280
    path = write(tmp_path, "params.json", SMALL_3_1)
    assert load_model(path).parameters == load_model("mistralai/Mistral-Small-24B-Instruct-2501").parameters
    write(tmp_path, "params.json", MIXTRAL)
    assert load_model(tmp_path).parameters == load_model("mistralai/Mixtral-8x7B-v0.1").parameters == 46_702_792_704


@pytest.mark.parametrize(
    "changes",
    [{"q_lora_rank": 1536}, {"moe": 3}, {"quantization": {"qformat_weight": "odd"}}, {"dim": None}, {"n_layers": 1e9}],
)
def test_params_that_are_not_understood(tmp_path: Path, changes: dict[str, object]) -> None:
    with pytest.raises(PlannerError):
        load_model(write(tmp_path, "params.json", {**SMALL_3_1, **changes}))


LITTLE = {
    "model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "hidden_size": 1024, "num_hidden_layers": 4,
    "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 128, "intermediate_size": 3072,
    "vocab_size": 1000, "torch_dtype": "bfloat16",
}  # fmt: skip
SCHEME = {"dynamic": False, "num_bits": 8, "type": "float"}


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"quant_method": "modelopt", "quant_algo": "NVFP4", "kv_cache_scheme": SCHEME}, "fp8"),
        ({"quant_method": "compressed-tensors", "kv_cache_scheme": {**SCHEME, "type": "int"}}, "int8"),
        ({"quant_method": "modelopt", "quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}, "fp8"),
        ({"quant_method": "compressed-tensors", "kv_cache_scheme": None}, None),
    ],
)
def test_the_checkpoints_own_cache_type(tmp_path: Path, config: dict[str, object], expected: str | None) -> None:
    path = write(tmp_path, "config.json", {**LITTLE, "quantization_config": config})
    assert load_model(path).spec.stated_kv_cache_dtype == expected


@pytest.mark.parametrize(
    ("name", "beside"),
    [("config.json", "hf_quant_config.json"), ("some__model.json", "some__model.hf_quant_config.json")],
)
def test_what_a_quantiser_wrote_beside_the_config(tmp_path: Path, name: str, beside: str) -> None:
    inner = {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8", "exclude_modules": ["lm_head"]}
    write(tmp_path, beside, {"producer": {"name": "modelopt", "version": "0.37"}, "quantization": inner})
    path = write(tmp_path, name, LITTLE)
    spec = load_model(path).spec
    assert spec.quantization_config == {"quant_method": "modelopt", **inner}
    assert spec.stated_kv_cache_dtype == "fp8"
    # a config of its own goes first and takes the cache type alone
    own = {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["lm_head"]}
    write(tmp_path, name, {**LITTLE, "quantization_config": own})
    spec = load_model(path).spec
    assert spec.quantization_config == {**own, "kv_cache_quant_algo": "FP8"}
