"""Which model_type each GGUF architecture is, and the config keys that only its family reads.

Sources: llama.cpp `convert_hf_to_gguf.py` and `conversion/` (what each converter writes), `src/llama-model.cpp` and
`src/models/` (what is read back).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from planner.errors import ConfigError
from planner.model.sources.gguf.facts import GgufFacts

Config = dict[str, object]
Family = Callable[[GgufFacts], Config]


def _named(model_type: str, **more: object) -> Family:
    """An architecture whose common keys are all that its family reads."""
    return lambda _: {"model_type": model_type, **more}


def _llama(facts: GgufFacts) -> Config:
    """Llama, Mistral and Mixtral are one architecture here; experts make it Mixtral."""
    if facts.optional("expert_count"):
        return {"model_type": "mixtral", **_experts(facts, "num_local_experts")}
    return {"model_type": "llama"}


def _experts(facts: GgufFacts, count_key: str) -> Config:
    """Experts by their usual keys; the width of one is stated, or it is the feed-forward's."""
    width = facts.optional("expert_feed_forward_length")
    config: Config = {
        count_key: facts.size("expert_count"),
        "num_experts_per_tok": facts.size("expert_used_count"),
    }
    if width:
        config["moe_intermediate_size"] = width
    return config


def _narrow_experts(model_type: str) -> Family:
    """Families whose intermediate_size is that of an expert."""

    def family(facts: GgufFacts) -> Config:
        config = {"model_type": model_type, **_experts(facts, "num_local_experts")}
        config["intermediate_size"] = config.pop("moe_intermediate_size", None) or facts.size("feed_forward_length")
        config["lm_head_bias"] = facts.has("output.bias")
        return {
            **config,
            "num_experts": config["num_local_experts"],
            "rotary_dim": facts.optional("rope.dimension_count"),
        }

    return family


def _qwen_moe(model_type: str) -> Family:
    def family(facts: GgufFacts) -> Config:
        config = {"model_type": model_type, **_experts(facts, "num_experts"), "decoder_sparse_step": 1}
        shared = facts.optional("expert_shared_feed_forward_length") or facts.width("ffn_up_shexp.weight", 0)
        if shared:
            config["shared_expert_intermediate_size"] = shared
        config.setdefault("moe_intermediate_size", facts.width("ffn_up_exps.weight", 1))
        return {**config, "sliding_window": None}

    return family


def _delta_hybrid(model_type: str) -> Family:
    """Gated delta nets with full attention every few layers: Qwen3-Next and the text part of Qwen3.5 and 3.6.

    A list of the recurrent layers wins over the interval, as in llama.cpp (`src/models/qwen35.cpp`).

    Raises:
        ConfigError: the inner size is not a multiple of the value heads.
    """

    def family(facts: GgufFacts) -> Config:
        inner, heads = facts.size("ssm.inner_size"), facts.size("ssm.time_step_rank")
        if not heads or inner % heads:
            raise ConfigError(f"{facts.origin}: ssm.inner_size {inner} is no multiple of ssm.time_step_rank {heads}")
        drafts = facts.optional("nextn_predict_layers") or 0
        config: Config = {
            **(_qwen_moe(model_type)(facts) if facts.optional("expert_count") else {"model_type": model_type}),
            "linear_num_value_heads": heads,
            "linear_value_head_dim": inner // heads,
            "linear_num_key_heads": facts.size("ssm.group_count"),
            "linear_key_head_dim": facts.size("ssm.state_size"),
            "linear_conv_kernel_dim": facts.size("ssm.conv_kernel"),
            "mtp_num_hidden_layers": drafts,
        }
        if model_type != "qwen3_next":
            # All 14 bundled Qwen3.5 and 3.6 configs state it, Qwen3-Next's do not, and the format has no key for it.
            config["mamba_ssm_dtype"] = "float32"
        recurrent = facts.raw("attention.recurrent_layers")
        if isinstance(recurrent, tuple):
            kinds = ["linear_attention" if each else "full_attention" for each in recurrent]
            return {**config, "layer_types": kinds[: len(kinds) - drafts]}
        return {**config, "full_attention_interval": facts.optional("full_attention_interval") or 4}

    return family


def _shared_experts(model_type: str) -> Family:
    """Dense layers first, then experts with some that every token uses."""

    def family(facts: GgufFacts) -> Config:
        return {
            "model_type": model_type,
            **_experts(facts, "n_routed_experts"),
            "num_nextn_predict_layers": facts.optional("nextn_predict_layers") or 0,
            "n_shared_experts": facts.optional("expert_shared_count") or 0,
            "first_k_dense_replace": facts.optional("leading_dense_block_count") or 0,
            "use_qk_norm": facts.has("attn_q_norm.weight"),
        }

    return family


def _deepseek(facts: GgufFacts) -> Config:
    """DeepSeek-V2 and V3; newer files state the head sizes before the latent absorbs them under key_length_mla."""
    rope = facts.size("rope.dimension_count")
    key = facts.optional("attention.key_length_mla") or facts.size("attention.key_length")
    value = facts.optional("attention.value_length_mla") or facts.size("attention.value_length")
    if key <= rope:
        raise ConfigError(f"{facts.origin}: attention.key_length is {key}, no more than its rotated part {rope}")
    third = facts.has("exp_probs_b.bias")
    return {
        **_shared_experts("deepseek_v3" if third else "deepseek_v2")(facts),
        "q_lora_rank": facts.optional("attention.q_lora_rank") or None,
        "kv_lora_rank": facts.size("attention.kv_lora_rank"),
        "qk_rope_head_dim": rope,
        "qk_nope_head_dim": key - rope,
        "v_head_dim": value,
        "attention_bias": False,
        "partial_rotary_factor": 1.0,
    }


def _gemma3(facts: GgufFacts) -> Config:
    return {"model_type": "gemma3_text", "attention_bias": False, **_pattern(facts)}


def _pattern(facts: GgufFacts) -> Config:
    """layer_types, when the file says of every layer whether it is windowed."""
    pattern = facts.raw("attention.sliding_window_pattern")
    if isinstance(pattern, tuple):
        return {"layer_types": ["sliding_attention" if windowed else "full_attention" for windowed in pattern]}
    if isinstance(pattern, int) and not isinstance(pattern, bool) and pattern > 0:
        return {"sliding_window_pattern": pattern}
    return {}


def _windowed(model_type: str) -> Family:
    return lambda facts: {"model_type": model_type, **_pattern(facts)}


def _olmo2(facts: GgufFacts) -> Config:
    """Olmo 3 is Olmo 2 with windows, under one name here."""
    windowed = facts.optional("attention.sliding_window")
    return {"model_type": "olmo3" if windowed else "olmo2", "attention_bias": False, **_pattern(facts)}


def _mpt(facts: GgufFacts) -> Config:
    ratio = facts.size("feed_forward_length") // max(1, facts.size("embedding_length"))
    return {"model_type": "mpt", "expansion_ratio": ratio, "intermediate_size": None}


def _gpt_oss(facts: GgufFacts) -> Config:
    return {**_narrow_experts("gpt_oss")(facts), "attention_bias": True}


def _falcon(facts: GgufFacts) -> Config:
    two_norms = facts.has("attn_norm_2.weight")
    grouped = (facts.optional("attention.head_count_kv") or 1) > 1
    return {
        "model_type": "falcon",
        "new_decoder_architecture": grouped,
        "multi_query": True,
        "num_kv_heads": facts.optional("attention.head_count_kv") or 1,
        "num_ln_in_parallel_attn": 2 if two_norms else 1,
        "ffn_hidden_size": facts.size("feed_forward_length"),
        "intermediate_size": None,
        "bias": facts.has("attn_qkv.bias"),
    }


def _command_r(facts: GgufFacts) -> Config:
    return {"model_type": "cohere", "use_qk_norm": facts.has("attn_q_norm.weight")}


def _stablelm(facts: GgufFacts) -> Config:
    return {
        "model_type": "stablelm",
        "use_qkv_bias": facts.has("attn_q.bias"),
        "qk_layernorm": facts.has("attn_q_norm.weight"),
        "use_parallel_residual": not facts.has("ffn_norm.weight"),
    }


def _biased(model_type: str, *keys: str) -> Family:
    """Families that say under keys of their own whether their linear layers have biases."""
    return lambda facts: {"model_type": model_type, **dict.fromkeys(keys, facts.has("attn_q.bias"))}


FAMILIES: Final[Mapping[str, Family]] = {
    "llama": _llama,
    "mistral3": _named("ministral3"),
    "qwen2": _named("qwen2"),
    "qwen3": _named("qwen3", use_sliding_window=False),
    "qwen2moe": _qwen_moe("qwen2_moe"),
    "qwen3moe": _qwen_moe("qwen3_moe"),
    "qwen3next": _delta_hybrid("qwen3_next"),
    "qwen35": _delta_hybrid("qwen3_5_text"),
    "qwen35moe": _delta_hybrid("qwen3_5_moe_text"),
    "gemma": _named("gemma"),
    "gemma2": _named("gemma2"),
    "gemma3": _gemma3,
    "phi2": _named("phi"),
    "phi3": _named("phi3"),
    "phimoe": _narrow_experts("phimoe"),
    "starcoder2": _named("starcoder2", use_bias=True),
    "command-r": _command_r,
    "cohere2": _windowed("cohere2"),
    "deepseek2": _deepseek,
    "glm4moe": _shared_experts("glm4_moe"),
    "glm4": _biased("glm4", "attention_bias"),
    "gpt-oss": _gpt_oss,
    "olmo": _named("olmo"),
    "olmo2": _olmo2,
    "olmoe": _narrow_experts("olmoe"),
    "granite": _named("granite"),
    "granitemoe": _narrow_experts("granitemoe"),
    "minimax-m2": _narrow_experts("minimax_m2"),
    "falcon": _falcon,
    "mpt": _mpt,
    "bloom": _named("bloom", intermediate_size=None),
    "gpt2": _named("gpt2"),
    "gptneox": _named("gpt_neox", attention_bias=True),
    "stablelm": _stablelm,
    "internlm2": _biased("internlm2", "bias"),
    "nemotron": _named("nemotron"),
    "arcee": _named("arcee"),
    "exaone": _named("exaone"),
    "smollm3": _named("smollm3", use_sliding_window=False),
    "seed_oss": _named("seed_oss"),
    "ernie4_5": _biased("ernie4_5", "use_bias"),
    "hunyuan-dense": lambda facts: {"model_type": "hunyuan_v1_dense", "use_qk_norm": facts.has("attn_q_norm.weight")},
}
