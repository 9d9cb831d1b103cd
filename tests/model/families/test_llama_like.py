import pytest

from planner.errors import UnsupportedArchitecture
from tests.model.families.dense import bundled, config, kv_bytes, named, rotary_dims, spec_of, windows


def test_granite_3_3_8b() -> None:
    spec = bundled("ibm-granite/granite-3.3-8b-instruct")
    # 40 layers x 8 heads x 256 x 2 B
    assert kv_bytes(spec, 8192) == 40 * 8192 * 4096 == 1_342_177_280
    assert kv_bytes(spec, 131_072) == 40 * 131_072 * 4096
    assert not any(name.endswith(".bias") for name in named(spec))


def test_every_fourth_layer_of_smollm3_does_not_rotate() -> None:
    assert rotary_dims(bundled("HuggingFaceTB/SmolLM3-3B")) == [128, 128, 128, 0] * 9


def test_smollm3_windows_the_layers_that_do_not_rotate() -> None:
    changes = {"use_sliding_window": True, "sliding_window": 2048, "layer_types": None}
    spec = spec_of(config("HuggingFaceTB/SmolLM3-3B", **changes))
    assert windows(spec) == [None, None, None, 2048] * 9


def test_seed_oss_has_biases_on_query_key_and_value_alone() -> None:
    names = named(bundled("ByteDance-Seed/Seed-OSS-36B-Instruct"))
    biases = {name.split(".", 3)[3] for name in names if name.endswith(".bias")}
    assert biases == {"self_attn.q_proj.bias", "self_attn.k_proj.bias", "self_attn.v_proj.bias"}


def test_hunyuan_norms_heads_unless_told_not_to() -> None:
    values = config("tencent/Hunyuan-0.5B-Instruct")
    assert named(spec_of(values))["model.layers.0.self_attn.query_layernorm.weight"].shape == (128,)
    bare = named(spec_of(values | {"use_qk_norm": False}))
    assert not any("query_layernorm" in name for name in bare)


def test_hunyuan_with_shared_keys_and_values_is_refused() -> None:
    with pytest.raises(UnsupportedArchitecture, match="use_cla") as caught:
        spec_of(config("tencent/Hunyuan-0.5B-Instruct", use_cla=True))
    assert caught.value.field == "use_cla"


def test_ministral_3_windows_all_layers_or_none() -> None:
    name = "mistralai/Devstral-2-123B-Instruct-2512"
    assert set(windows(bundled(name))) == {None}
    assert set(windows(spec_of(config(name, sliding_window=4096)))) == {4096}


def test_ministral_follows_its_layer_types() -> None:
    values = config("mistralai/Ministral-8B-Instruct-2410", model_type="ministral", num_hidden_layers=4)
    types = ["full_attention", *["sliding_attention"] * 3]
    assert windows(spec_of(values)) == [32_768] * 4
    assert windows(spec_of(values | {"layer_types": types})) == [None, 32_768, 32_768, 32_768]


def test_internlm3_biases_follow_their_own_keys() -> None:
    values = config("internlm/internlm3-8b-instruct")
    biased = named(spec_of(values | {"qkv_bias": True}))
    assert "model.layers.0.self_attn.k_proj.bias" in biased
    assert "model.layers.0.self_attn.o_proj.bias" not in biased
    assert "model.layers.0.mlp.down_proj.bias" in named(spec_of(values | {"bias": True}))
