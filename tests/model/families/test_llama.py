import pytest

from planner.model.rope import RopeTable
from planner.model.tensors import parameters
from tests.model.families.dense import bundled, config, kv_bytes, named, spec_of, windows, without


def test_llama_3_1_8b_keeps_131072_bytes_a_token() -> None:
    spec = bundled("meta-llama/Llama-3.1-8B-Instruct")
    # 32 layers x 8 heads x (128 + 128) x 2 B
    assert kv_bytes(spec, 1) == 32 * 8 * 256 * 2 == 131_072
    assert kv_bytes(spec, 8192) == 1_073_741_824
    assert kv_bytes(spec, 131_072) == 16 * 1024**3
    assert spec.rope_tables == (RopeTable(131_072, 128),)


def test_mistral_7b_v0_1_windows_every_layer() -> None:
    spec = bundled("mistralai/Mistral-7B-Instruct-v0.1")
    assert set(windows(spec)) == {4096}
    # 32 layers x 4,096 tokens x 8 heads x 256 x 2 B, at any length beyond the window
    assert kv_bytes(spec, 8192) == kv_bytes(spec, 131_072) == 32 * 4096 * 4096 == 536_870_912


@pytest.mark.parametrize(("window", "expected"), [(None, None), (32_768, 32_768)])
def test_mistral_follows_the_stated_window(window: int | None, expected: int | None) -> None:
    values = config("mistralai/Mistral-7B-Instruct-v0.3", sliding_window=window)
    assert set(windows(spec_of(values))) == {expected}


def test_mistral_without_the_key_has_the_class_default() -> None:
    values = without(config("mistralai/Mistral-7B-Instruct-v0.3"), "sliding_window")
    assert set(windows(spec_of(values))) == {4096}


def test_qwen_windows_only_on_request_and_from_max_window_layers() -> None:
    values = config("Qwen/Qwen2.5-7B-Instruct", sliding_window=4096, max_window_layers=20)
    assert set(windows(spec_of(values | {"use_sliding_window": False}))) == {None}
    assert windows(spec_of(values | {"use_sliding_window": True})) == [None] * 20 + [4096] * 8


def test_llama_ignores_a_window_and_has_biases_where_it_says_so() -> None:
    values = config("meta-llama/Llama-3.2-1B", sliding_window=4096, attention_bias=True, mlp_bias=True)
    spec = spec_of(values)
    assert set(windows(spec)) == {None}
    biases = {name.split(".", 3)[3] for name in named(spec) if name.endswith(".bias")}
    assert biases == {
        *(f"self_attn.{name}_proj.bias" for name in "qkvo"),
        *(f"mlp.{name}_proj.bias" for name in ("gate", "up", "down")),
    }


def test_qwen2_biases_query_key_and_value_whatever_attention_bias_says() -> None:
    spec = spec_of(config("Qwen/Qwen2.5-0.5B", attention_bias=True))
    biases = {name.split(".", 3)[3] for name in named(spec) if name.endswith(".bias")}
    assert biases == {"self_attn.q_proj.bias", "self_attn.k_proj.bias", "self_attn.v_proj.bias"}
    assert parameters(spec) == 494_032_768


def test_an_embedding_model_of_the_family_has_no_head() -> None:
    names = named(bundled("intfloat/e5-mistral-7b-instruct"))
    assert "lm_head.weight" not in names
