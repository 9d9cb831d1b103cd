"""Gated delta nets through GGUF metadata and back make the same text model."""

from __future__ import annotations

import pytest

from planner.errors import ConfigError
from planner.model.caches import KeyValueCache
from planner.model.load import model_from_config
from planner.model.model import Model
from planner.model.sources.gguf.config import config_from_gguf
from planner.model.sources.gguf.reader import Value
from tests.model.sources.ggufs import bundled, header


def sizes(name: str) -> dict[str, object]:
    """The text part of a bundled config, as the converter reads it."""
    values = bundled(name)
    text = values.get("text_config")
    return (
        {"tie_word_embeddings": values.get("tie_word_embeddings", False), **text} if isinstance(text, dict) else values
    )


def written(config: dict[str, object]) -> dict[str, Value]:
    """What the converter writes for the delta net (llama.cpp conversion/qwen.py, Qwen3NextModel)."""
    number = {key: value for key, value in config.items() if isinstance(value, int)}
    return {
        "ssm__conv_kernel": number.get("linear_conv_kernel_dim", 4),
        "ssm__state_size": number.get("linear_key_head_dim", 128),
        "ssm__group_count": number.get("linear_num_key_heads", 16),
        "ssm__time_step_rank": number.get("linear_num_value_heads", 32),
        "ssm__inner_size": number.get("linear_value_head_dim", 128) * number.get("linear_num_value_heads", 32),
        "rope__dimension_count": 64,
    }


def back(architecture: str, config: dict[str, object], **more: Value) -> Model:
    head = () if config.get("tie_word_embeddings") else ("output.weight",)
    made = header(architecture, config, *head, **{**written(config), **more})
    return model_from_config(config_from_gguf(made, origin="m.gguf"), name="m.gguf", origin="GGUF")


@pytest.mark.parametrize(
    ("name", "architecture", "model_type"),
    [
        ("Qwen/Qwen3-Next-80B-A3B-Instruct", "qwen3next", "qwen3_next"),
        ("Qwen/Qwen3.5-0.8B", "qwen35", "qwen3_5_text"),
        ("Qwen/Qwen3.5-9B", "qwen35", "qwen3_5_text"),
        ("Qwen/Qwen3.6-27B", "qwen35", "qwen3_5_text"),
        ("Qwen/Qwen3.6-35B-A3B", "qwen35moe", "qwen3_5_moe_text"),
        ("Qwen/Qwen3.5-122B-A10B", "qwen35moe", "qwen3_5_moe_text"),
    ],
)
def test_there_and_back(name: str, architecture: str, model_type: str) -> None:
    config = sizes(name)
    original = model_from_config({**config, "model_type": model_type}, name=name, origin="text")
    found = back(architecture, config)
    assert found.parameters == original.parameters
    assert found.active_parameters == original.active_parameters
    assert found.spec.tie_word_embeddings == original.spec.tie_word_embeddings
    assert [layer.caches() for layer in found.spec.layers] == [layer.caches() for layer in original.spec.layers]
    assert found.spec.draft_layers == ()  # the converter leaves them out unless it states their number


def test_draft_layers_are_not_layers_of_the_stack() -> None:
    config = sizes("Qwen/Qwen3.6-27B")
    count = config["num_hidden_layers"]
    assert isinstance(count, int)
    found = back("qwen35", config, block_count=count + 1, nextn_predict_layers=1)
    assert (len(found.spec.layers), len(found.spec.draft_layers)) == (count, 1)
    assert found.parameters == back("qwen35", config).parameters


def test_listed_layers_win_over_the_interval() -> None:
    config = sizes("Qwen/Qwen3.5-0.8B")
    count = config["num_hidden_layers"]
    assert isinstance(count, int)
    listed = (True,) * (count - 1) + (False,)
    found = back("qwen35", config, full_attention_interval=4, attention__recurrent_layers=listed)
    attention = [
        layer for layer in found.spec.layers if any(isinstance(cache, KeyValueCache) for cache in layer.caches())
    ]
    assert len(attention) == 1


def test_heads_that_do_not_divide() -> None:
    with pytest.raises(ConfigError, match=r"ssm\.inner_size 100 is no multiple of ssm\.time_step_rank 16"):
        back("qwen35", sizes("Qwen/Qwen3.5-0.8B"), ssm__inner_size=100, ssm__time_step_rank=16)
