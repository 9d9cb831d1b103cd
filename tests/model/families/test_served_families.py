"""Families that engines serve and transformers has under another name, or not at all: counts and shapes.

Where transformers builds the class, shape by shape; otherwise the published total of the repository.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from planner.errors import UnsupportedArchitecture
from planner.model.caches import KeyValueCache
from planner.model.config import RawConfig
from planner.model.families import build_spec
from planner.model.load import load_model
from planner.model.tensors import parameters, tensors
from tests.model.families.reading import config_of
from tests.reference.meta_model import meta_model, parameter_shapes

QWEN_7B: dict[str, Any] = {
    "model_type": "qwen", "architectures": ["QWenLMHeadModel"], "hidden_size": 4096, "intermediate_size": 22016,
    "num_hidden_layers": 32, "num_attention_heads": 32, "vocab_size": 151936, "kv_channels": 128, "seq_length": 8192,
    "no_bias": True, "tie_word_embeddings": False,
}  # fmt: skip
BAICHUAN: dict[str, Any] = {
    "model_type": "baichuan", "architectures": ["BaichuanForCausalLM"], "hidden_size": 4096,
    "intermediate_size": 11008, "num_hidden_layers": 32, "num_attention_heads": 32, "vocab_size": 125696,
    "model_max_length": 4096,
}  # fmt: skip
MINICPM: dict[str, Any] = {
    "model_type": "minicpm", "architectures": ["MiniCPMForCausalLM"], "hidden_size": 2304, "intermediate_size": 5760,
    "num_hidden_layers": 40, "num_attention_heads": 36, "num_key_value_heads": 36, "vocab_size": 122753,
}  # fmt: skip
GTE: dict[str, Any] = {
    "model_type": "new", "architectures": ["NewModel"], "hidden_size": 768, "intermediate_size": 3072,
    "num_hidden_layers": 12, "num_attention_heads": 12, "vocab_size": 30528, "type_vocab_size": 0,
    "max_position_embeddings": 8192, "position_embedding_type": "rope",
}  # fmt: skip
INTERN_VIT: dict[str, Any] = {
    "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24, "num_attention_heads": 16,
    "patch_size": 14, "image_size": 448, "qkv_bias": True, "qk_normalization": False, "norm_type": "layer_norm",
}  # fmt: skip
INTERNLM2: dict[str, Any] = {
    "model_type": "internlm2", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
    "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 92553, "bias": False,
}  # fmt: skip
SIGLIP_980: dict[str, Any] = {
    "hidden_size": 1152, "image_size": 980, "intermediate_size": 4304, "num_attention_heads": 16,
    "num_hidden_layers": 27, "patch_size": 14, "model_type": "siglip",
}  # fmt: skip
MINICPM_V: dict[str, Any] = {
    "model_type": "minicpmv", "architectures": ["MiniCPMV"], "version": 2.6, "hidden_size": 3584,
    "intermediate_size": 18944, "num_hidden_layers": 28, "num_attention_heads": 28, "num_key_value_heads": 4,
    "vocab_size": 151666, "tie_word_embeddings": False, "query_num": 64, "drop_vision_last_layer": False,
    "vision_config": SIGLIP_980,
}  # fmt: skip
JINA_3: dict[str, Any] = {
    "model_type": "xlm-roberta", "architectures": ["XLMRobertaModel"], "hidden_size": 1024, "intermediate_size": 4096,
    "num_hidden_layers": 24, "num_attention_heads": 16, "vocab_size": 250002, "max_position_embeddings": 8194,
    "type_vocab_size": 1, "position_embedding_type": "rotary", "lora_adaptations": ["retrieval.query"], "lora_rank": 4,
}  # fmt: skip


@pytest.mark.parametrize(
    ("values", "published"),
    [
        (QWEN_7B, 7_721_324_544),
        (BAICHUAN, 7_505_973_248),
        (
            {**BAICHUAN, "hidden_size": 5120, "intermediate_size": 13696, "num_hidden_layers": 40,
             "num_attention_heads": 40, "vocab_size": 64000},
            13_264_901_120,
        ),
        (MINICPM, 2_724_880_896),
        (GTE, 136_776_192),
        ({**GTE, "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24, "num_attention_heads": 16,
          "type_vocab_size": 2}, 434_139_136),
        ({**GTE, "vocab_size": 250048, "type_vocab_size": 1}, 305_368_320),
        ({"model_type": "internvl_chat", "architectures": ["InternVLChatModel"], "llm_config": INTERNLM2,
          "vision_config": INTERN_VIT}, 8_075_365_376),
        (MINICPM_V, 8_099_175_152),
        (
            {**MINICPM_V, "version": 4.5, "head_dim": 128, "hidden_size": 4096, "intermediate_size": 12288,
             "num_hidden_layers": 36, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 151748},
            8_695_895_280,
        ),
        # 572,310,396 less five adapters of rank 4: 24 layers x 65,536, a word table of 4 x 251,026, types and pooler
        (JINA_3, 572_310_396 - 5 * (24 * 65_536 + 4 * 251_026 + 4 * 1_025 + 4 * 2_048)),
    ],
)  # fmt: skip
def test_published_totals(values: dict[str, Any], published: int) -> None:
    assert parameters(build_spec(RawConfig(values))) == published


LLAMA = {
    "model_type": "llama", "hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 4,
    "num_attention_heads": 9, "num_key_value_heads": 3, "vocab_size": 49280,
}  # fmt: skip
QWEN2 = {
    "model_type": "qwen2", "hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 3,
    "num_attention_heads": 14, "num_key_value_heads": 2, "vocab_size": 152000,
}  # fmt: skip
GEMMA = {
    "model_type": "gemma", "hidden_size": 2048, "intermediate_size": 16384, "num_hidden_layers": 3,
    "num_attention_heads": 8, "num_key_value_heads": 1, "vocab_size": 257216, "head_dim": 256,
}  # fmt: skip
SIGLIP = {
    "model_type": "siglip_vision_model", "hidden_size": 1152, "intermediate_size": 4304, "num_hidden_layers": 3,
    "num_attention_heads": 16, "patch_size": 14, "image_size": 224, "vision_use_head": False,
}  # fmt: skip
TOWER = {
    "hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 3, "num_attention_heads": 12, "patch_size": 16,
    "image_size": 512,
}  # fmt: skip
DEBERTA = {
    "model_type": "deberta-v2", "hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 3,
    "num_attention_heads": 12, "vocab_size": 128100, "max_relative_positions": -1, "position_buckets": 256,
    "norm_rel_ebd": "layer_norm", "share_att_key": True, "pos_att_type": "p2c|c2p", "relative_attention": True,
    "position_biased_input": False, "type_vocab_size": 0,
}  # fmt: skip
DISTILBERT = {
    "model_type": "distilbert", "dim": 768, "n_heads": 12, "n_layers": 3, "hidden_dim": 3072, "vocab_size": 30522,
}  # fmt: skip
JINA = {
    "model_type": "jina_embeddings_v3", "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 3,
    "num_attention_heads": 16, "vocab_size": 250002, "max_position_embeddings": 8194, "type_vocab_size": 1,
}  # fmt: skip


@pytest.mark.parametrize(
    ("architecture", "values"),
    [
        ("SmolVLMForConditionalGeneration", {"model_type": "smolvlm", "text_config": LLAMA, "scale_factor": 4,
         "vision_config": {**TOWER, "model_type": "smolvlm_vision"}, "tie_word_embeddings": False}),
        ("Idefics3ForConditionalGeneration", {"model_type": "idefics3", "text_config": LLAMA, "scale_factor": 2,
         "vision_config": {**TOWER, "model_type": "idefics3_vision"}, "tie_word_embeddings": True}),
        ("LlavaOnevisionForConditionalGeneration", {"model_type": "llava_onevision", "text_config": QWEN2,
         "vision_config": {**SIGLIP, "image_size": 384}, "tie_word_embeddings": False}),
        ("PaliGemmaForConditionalGeneration", {"model_type": "paligemma", "text_config": GEMMA, "projection_dim": 2048,
         "vision_config": {**SIGLIP, "projection_dim": 2048}}),
        ("Qwen2AudioForConditionalGeneration", {"model_type": "qwen2_audio", "text_config": QWEN2, "audio_config":
         {"model_type": "qwen2_audio_encoder", "encoder_layers": 3}}),
        ("BitNetForCausalLM", {"model_type": "bitnet", "num_hidden_layers": 3, "tie_word_embeddings": True}),
        ("JinaEmbeddingsV3Model", JINA),
        ("DebertaV2Model", {**DEBERTA, "share_att_key": False, "conv_kernel_size": 3, "type_vocab_size": 2}),
        *((f"DebertaV2{kind}", DEBERTA) for kind in ("ForMaskedLM", "ForSequenceClassification")),
        *((f"DistilBert{kind}", DISTILBERT) for kind in ("Model", "ForMaskedLM", "ForSequenceClassification")),
    ],
)  # fmt: skip
def test_shapes_are_those_that_transformers_builds(architecture: str, values: dict[str, Any]) -> None:
    values = {**values, "architectures": [architecture]}
    ours = Counter(tensor.shape for tensor in tensors(build_spec(RawConfig(values))))
    assert ours == parameter_shapes(meta_model(values, architecture))


def test_internvl_in_its_own_format_is_the_converted_one() -> None:
    converted = config_of("OpenGVLab/InternVL3-8B-hf")
    values = {
        "model_type": "internvl_chat", "architectures": ["InternVLChatModel"], "vision_config": INTERN_VIT,
        "llm_config": converted["text_config"],
    }  # fmt: skip
    spec = build_spec(RawConfig(values))
    assert parameters(spec) == load_model("OpenGVLab/InternVL3-8B-hf").parameters == 7_944_373_760
    # (448 / 14 / 2)^2 = 256 tokens a tile, 12 tiles and an overview
    assert spec.stacks[0].tokens_per_item == 13 * 256


def test_what_they_keep_of_a_sequence() -> None:
    qwen, baichuan = build_spec(RawConfig(QWEN_7B)), build_spec(RawConfig(BAICHUAN))
    for spec in (qwen, baichuan):
        (cache,) = spec.layers[0].caches()
        assert isinstance(cache, KeyValueCache)
        assert (cache.num_key_value_heads, cache.key_head_dim) == (32, 128)
    assert qwen.max_position_embeddings == 8192
    assert not build_spec(RawConfig({**BAICHUAN, "hidden_size": 5120, "num_attention_heads": 40})).rope_tables
    for values in (GTE, JINA_3, {**DEBERTA, "architectures": ["DebertaV2Model"]}):
        spec = build_spec(RawConfig(values))
        assert not spec.decoder
        assert not any(layer.caches() for layer in spec.layers)


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({**QWEN_7B, "visual": {"heads": 16}}, "visual"),
        ({**MINICPM, "num_experts": 8}, "num_experts"),
        ({**MINICPM_V, "version": "3.7"}, "version"),
        ({**GTE, "position_embedding_type": "absolute"}, "position_embedding_type"),
    ],
)
def test_variants_that_are_not_modelled(values: dict[str, Any], field: str) -> None:
    with pytest.raises(UnsupportedArchitecture) as caught:
        build_spec(RawConfig(values))
    assert caught.value.field == field
