"""A config through GGUF metadata and back makes the same model."""

from __future__ import annotations

import pytest

from planner.errors import ConfigError, UnsupportedArchitecture
from planner.model.config import RawConfig
from planner.model.families.registry import MODULE_OF
from planner.model.load import load_model, model_from_config
from planner.model.sources.gguf.config import config_from_gguf
from planner.model.sources.gguf.families import FAMILIES
from planner.model.sources.gguf.reader import GgufHeader, Value
from tests.model.sources.ggufs import bundled, header

HEAD = "output.weight"
QKV = "attn_q.bias"


@pytest.mark.parametrize(
    ("name", "architecture", "present", "more"),
    [
        ("meta-llama/Llama-3.1-8B-Instruct", "llama", (HEAD,), {}),
        ("mistralai/Mixtral-8x7B-Instruct-v0.1", "llama", (HEAD,), {}),
        ("Qwen/Qwen2-7B-Instruct", "qwen2", (HEAD, QKV), {}),
        ("Qwen/Qwen3-8B", "qwen3", (HEAD,), {}),
        ("Qwen/Qwen1.5-MoE-A2.7B-Chat", "qwen2moe", (HEAD, QKV), {}),
        ("Qwen/Qwen3-30B-A3B", "qwen3moe", (HEAD,), {}),
        ("google/gemma-2b", "gemma", (), {"attention__key_length": 256}),
        ("google/gemma-2-9b-it", "gemma2", (), {"attention__key_length": 256}),
        ("microsoft/phi-2", "phi2", (HEAD, "attn_qkv.bias"), {"rope__dimension_count": 32}),
        ("microsoft/Phi-3-mini-4k-instruct", "phi3", (HEAD,), {}),
        ("microsoft/Phi-3-mini-128k-instruct", "phi3", (HEAD,), {}),
        ("bigcode/starcoder2-7b", "starcoder2", (QKV,), {}),
        ("CohereLabs/c4ai-command-r-v01", "command-r", (), {}),
        ("CohereLabs/c4ai-command-r-plus", "command-r", ("attn_q_norm.weight",), {}),
        ("CohereLabs/c4ai-command-r7b-12-2024", "cohere2", (), {}),
        (
            "deepseek-ai/DeepSeek-V2-Lite", "deepseek2", (HEAD,),
            {"attention__key_length": 192, "attention__value_length": 128, "rope__dimension_count": 64},
        ),
        (
            "deepseek-ai/DeepSeek-V3", "deepseek2", (HEAD, "exp_probs_b.bias"),
            {"attention__key_length": 576, "attention__value_length": 512, "rope__dimension_count": 64,
             "attention__key_length_mla": 192, "attention__value_length_mla": 128, "attention__head_count_kv": 1},
        ),
        ("openai/gpt-oss-20b", "gpt-oss", (HEAD, QKV), {"expert_feed_forward_length": 2880}),
        ("allenai/OLMo-2-1124-7B", "olmo2", (HEAD,), {}),
        ("allenai/OLMoE-1B-7B-0924-Instruct", "olmoe", (HEAD,), {}),
        ("ibm-granite/granite-3.1-8b-instruct", "granite", (), {}),
        ("ibm-granite/granite-3.1-1b-a400m-instruct", "granitemoe", (), {}),
        ("tiiuae/falcon-7b", "falcon", (), {"attention__head_count_kv": 1, "feed_forward_length": 4 * 4544}),
        (
            "tiiuae/falcon-40b", "falcon", ("attn_norm_2.weight",),
            {"feed_forward_length": 4 * 8192, "context_length": 2048},
        ),
        ("mosaicml/mpt-7b", "mpt", (), {"feed_forward_length": 4 * 4096}),
        ("bigscience/bloom-7b1", "bloom", (), {}),
        ("openai-community/gpt2", "gpt2", ("attn_qkv.bias",), {"feed_forward_length": 3072}),
        ("EleutherAI/pythia-1.4b", "gptneox", (HEAD, "attn_qkv.bias"), {"rope__dimension_count": 32}),
        ("stabilityai/stablelm-2-1_6b", "stablelm", (HEAD, QKV, "ffn_norm.weight"), {"rope__dimension_count": 16}),
        ("internlm/internlm2-chat-20b", "internlm2", (HEAD,), {}),
        ("HuggingFaceTB/SmolLM3-3B", "smollm3", (), {}),
        ("zai-org/GLM-4-9B-0414", "glm4", (HEAD, QKV), {}),
        (
            "zai-org/GLM-4.5", "glm4moe", (HEAD, QKV, "attn_q_norm.weight"),
            {"block_count": 93, "nextn_predict_layers": 1, "attention__key_length": 128, "rope__dimension_count": 64},
        ),
        ("MiniMaxAI/MiniMax-M2", "minimax-m2", (HEAD,), {"rope__dimension_count": 64}),
    ],
)  # fmt: skip
def test_there_and_back(name: str, architecture: str, present: tuple[str, ...], more: dict[str, Value]) -> None:
    original = load_model(name)
    config = config_from_gguf(header(architecture, bundled(name), *present, **more), origin="m.gguf")
    back = model_from_config(config, name="m.gguf", origin="GGUF")
    assert back.parameters == original.parameters
    assert back.active_parameters == original.active_parameters
    assert back.spec.tie_word_embeddings == original.spec.tie_word_embeddings
    assert back.spec.max_position_embeddings == original.spec.max_position_embeddings
    assert not [note for note in back.spec.notes if note not in original.spec.notes]
    assert [layer.caches() for layer in back.spec.layers] == [layer.caches() for layer in original.spec.layers]


def test_gemma3_text() -> None:
    text = bundled("google/gemma-3-4b-it")["text_config"]
    assert isinstance(text, dict)
    sizes = {"num_attention_heads": 8, "num_key_value_heads": 4, "vocab_size": 262_208, **text}
    written = header("gemma3", sizes, attention__key_length=256, context_length=131_072)
    back = model_from_config(config_from_gguf(written, origin="m.gguf"), name="m.gguf", origin="GGUF")
    # the published count of the text model without the tower and projector
    assert back.parameters == 3_880_263_168
    assert sum(1 for layer in back.spec.layers for cache in layer.caches() if getattr(cache, "sliding_window", 0)) == 29


def test_every_architecture_leads_to_a_family() -> None:
    sizes = {
        "max_position_embeddings": 64, "hidden_size": 64, "num_hidden_layers": 2, "intermediate_size": 128,
        "num_attention_heads": 4, "num_local_experts": 4, "num_experts_per_tok": 2, "vocab_size": 32,
        "moe_intermediate_size": 32, "kv_lora_rank": 16,
    }  # fmt: skip
    mla: dict[str, Value] = {"rope__dimension_count": 8, "attention__key_length": 16, "attention__value_length": 16}
    delta: dict[str, Value] = {
        "ssm__inner_size": 64, "ssm__time_step_rank": 4, "ssm__group_count": 2, "ssm__state_size": 16,
        "ssm__conv_kernel": 4,
    }  # fmt: skip
    for architecture in FAMILIES:
        config = config_from_gguf(header(architecture, dict(sizes), **mla, **delta), origin="m.gguf")
        assert config["model_type"] in MODULE_OF, architecture


def test_architectures_nobody_knows() -> None:
    with pytest.raises(UnsupportedArchitecture, match=r"'qwen2vl' is not understood; near: qwen2"):
        config_from_gguf(header("qwen2vl", bundled("Qwen/Qwen3-8B")), origin="m.gguf")
    with pytest.raises(ConfigError, match=r"general\.architecture is missing"):
        config_from_gguf(GgufHeader(version=3, metadata={}, tensors=()), origin="m.gguf")
    projector = GgufHeader(version=3, metadata={"general.architecture": "clip", "general.type": "mmproj"}, tensors=())
    with pytest.raises(UnsupportedArchitecture, match="'mmproj', not a model"):
        config_from_gguf(projector, origin="m.gguf")


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"block_count": "x"}, "block_count is no whole number"),
        ({"block_count": -1}, "block_count is no whole number"),
        ({"block_count": 1 << 63}, "block_count is no whole number"),
        ({"block_count": True}, "block_count is no whole number"),
        ({"attention__head_count_kv": (4, 8)}, "differs between layers"),
        ({"attention__head_count": 0}, "num_attention_heads"),
    ],
)
def test_metadata_that_makes_no_sense(more: dict[str, Value], says: str) -> None:
    with pytest.raises((ConfigError, UnsupportedArchitecture), match=says):
        config = config_from_gguf(header("llama", bundled("Qwen/Qwen3-8B"), **more), origin="m.gguf")
        model_from_config(config, name="m.gguf", origin="GGUF")


def test_a_missing_key_is_named() -> None:
    found = header("llama", bundled("Qwen/Qwen3-8B"))
    metadata = {key: value for key, value in found.metadata.items() if "context_length" not in key}
    with pytest.raises(ConfigError, match=r"llama\.context_length is missing"):
        config_from_gguf(GgufHeader(version=3, metadata=metadata, tensors=found.tensors), origin="m.gguf")


def test_layers_that_agree_may_be_listed() -> None:
    listed = header("llama", bundled("meta-llama/Llama-3.1-8B-Instruct"), HEAD, attention__head_count_kv=(8,) * 32)
    config = config_from_gguf(listed, origin="m.gguf")
    assert RawConfig(config).integer("num_key_value_heads") == 8


def test_yarn_is_kept() -> None:
    scaled = header(
        "qwen3", bundled("Qwen/Qwen3-8B"), HEAD, rope__scaling__type="yarn", rope__scaling__factor=4.0,
        rope__scaling__original_context_length=32_768,
    )  # fmt: skip
    config = config_from_gguf(scaled, origin="m.gguf")
    assert config["rope_scaling"] == {
        "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32_768,
    }  # fmt: skip
