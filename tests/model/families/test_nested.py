"""The text part inside a multimodal config: what stands where, and what is not understood."""

from __future__ import annotations

import pytest

from planner.errors import ConfigError, UnsupportedArchitecture
from planner.model.config import RawConfig
from planner.model.families import build_spec
from planner.model.families.nested import text_section
from planner.model.tensors import tensors
from tests.model.families.reading import config_of, spec_of

LLAVA = "llava-hf/llava-1.5-7b-hf"


def section(**values):
    return text_section(RawConfig({"model_type": "llava", **values}), text_type="llama", tie_default=False)


def test_a_section_leaves_out_its_class_defaults():
    # LLaVA-1.5's text_config states vocabulary and positions only; LlamaConfig's own sizes are those of Llama-2-7B
    spec = spec_of(LLAVA)
    assert (len(spec.layers), spec.hidden_size, spec.vocab_size) == (32, 4096, 32_064)


@pytest.mark.parametrize(
    ("outer", "inner", "tied"),
    [(None, None, False), (None, True, True), (True, None, True), (False, True, False), (True, False, True)],
)
def test_the_outer_object_speaks_for_the_whole_model(outer, inner, tied):
    text = {} if inner is None else {"tie_word_embeddings": inner}
    values = {"text_config": text} if outer is None else {"text_config": text, "tie_word_embeddings": outer}
    assert section(**values).flag("tie_word_embeddings") is tied


def test_outer_type_and_quantisation_win_over_the_section():
    values = section(
        torch_dtype="bfloat16",
        quantization_config={"quant_method": "awq"},
        text_config={"torch_dtype": "float16", "quantization_config": {"quant_method": "gptq"}},
    ).mapping()
    assert values["torch_dtype"] == "bfloat16"
    assert values["quantization_config"] == {"quant_method": "awq"}


def test_quantisation_inside_the_section_counts():
    # Kimi K2.5 states it there
    assert spec_of("moonshotai/Kimi-K2.5").quantization_config["quant_method"] == "compressed-tensors"


def test_the_section_keeps_explicit_null():
    assert not section(text_config={"model_type": "mistral", "sliding_window": None}).has("sliding_window")


def test_without_a_section_the_keys_stand_beside_vision_config():
    spec = spec_of("Qwen/Qwen2-VL-7B-Instruct")
    assert (len(spec.layers), spec.hidden_size) == (28, 3584)
    assert spec.rope_tables[0].positions == 4 * 32_768  # M-RoPE


def test_mrope_is_assumed_where_the_class_assumes_it():
    spec = spec_of("Qwen/Qwen3-VL-8B-Instruct")
    assert [table.positions for table in spec.rope_tables] == [4 * 262_144]


def test_names_carry_the_wrappers_prefix():
    names = {tensor.name for tensor in tensors(spec_of(LLAVA))}
    assert "model.language_model.embed_tokens.weight" in names
    assert "model.language_model.layers.31.self_attn.q_proj.weight" in names
    assert "model.language_model.norm.weight" in names
    assert "lm_head.weight" in names
    assert not any(name.startswith("model.layers") for name in names)


def test_unknown_text_part_is_named():
    values = config_of(LLAVA) | {"text_config": {"model_type": "persimmon"}}
    with pytest.raises(UnsupportedArchitecture, match="persimmon"):
        build_spec(RawConfig(values))


@pytest.mark.parametrize("text", [[], "llama", 3])
def test_text_config_must_be_an_object(text):
    with pytest.raises(ConfigError, match="text_config must be an object"):
        build_spec(RawConfig(config_of(LLAVA) | {"text_config": text}))


def test_wrapper_inside_a_wrapper_is_refused():
    values = config_of(LLAVA)
    with pytest.raises(UnsupportedArchitecture, match="llava"):
        build_spec(RawConfig(values | {"text_config": values}))


def test_ignored_tower_keys_are_noted():
    values = config_of(LLAVA)
    values["vision_config"] = {**values["vision_config"], "num_extra_layers": 7}
    assert any("vision_config" in note and "num_extra_layers" in note for note in build_spec(RawConfig(values)).notes)
