from planner.model.config import RawConfig
from planner.model.families.gemma import text_model
from planner.model.rope import RopeTable
from planner.model.tensors import active_parameters, parameters
from tests.model.families.dense import bundled, config, kv_bytes, named, spec_of, windows, without


def test_gemma_2_9b_windows_every_other_layer_the_first_included() -> None:
    spec = bundled("google/gemma-2-9b")
    assert windows(spec) == [4096, None] * 21
    # 8 heads x (256 + 256) x 2 B = 8,192 B a token and layer; 21 layers hold 4,096 tokens, 21 all
    assert kv_bytes(spec, 8192) == 21 * 4096 * 8192 + 21 * 8192 * 8192 == 2_113_929_216
    assert kv_bytes(spec, 131_072) == 21 * 4096 * 8192 + 21 * 131_072 * 8192 == 23_253_221_376


def test_gemma_3_1b_has_one_full_layer_after_five_windowed() -> None:
    spec = bundled("google/gemma-3-1b-it")
    assert windows(spec)[:7] == [512] * 5 + [None, 512]
    assert windows(spec).count(None) == 4
    # 1 head x 512 x 2 B = 1,024 B a token and layer
    assert kv_bytes(spec, 8192) == 22 * 512 * 1024 + 4 * 8192 * 1024 == 45_088_768
    assert kv_bytes(spec, 131_072) == 22 * 512 * 1024 + 4 * 131_072 * 1024 == 548_405_248


def test_a_gemma_3_text_config_inside_another_leaves_out_class_defaults() -> None:
    # as google/gemma-3-4b-it publishes it
    values = {
        "hidden_size": 2560,
        "intermediate_size": 10240,
        "model_type": "gemma3_text",
        "num_hidden_layers": 34,
        "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
        "sliding_window": 1024,
    }
    spec = text_model(RawConfig(values), "gemma3_text", prefix="model.language_model", nested=True)
    # per layer: q 2560x2048, k and v 2560x1024, o 2048x2560, MLP 3x2560x10240, norms 4x2560 + 2x256
    layer = 2560 * (2048 + 1024 + 1024 + 2048) + 3 * 2560 * 10240 + 4 * 2560 + 2 * 256
    assert parameters(spec) == 34 * layer + 262_208 * 2560 + 2560 == 3_880_263_168
    assert "model.language_model.layers.33.self_attn.q_norm.weight" in named(spec)
    # the full layers' table is scaled by 8, the windowed layers rotate over the plain length
    assert spec.rope_tables == (RopeTable(8 * 131_072, 256), RopeTable(131_072, 256))


def test_gemma_3_rope_sections_by_layer_type() -> None:
    sections = {
        "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
        "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
    }
    values = without(config("google/gemma-3-1b-it"), "rope_scaling", "rope_theta") | {"rope_parameters": sections}
    assert spec_of(values).rope_tables == (RopeTable(8 * 32_768, 256), RopeTable(32_768, 256))


def test_gemma_1_windows_nothing_and_is_tied() -> None:
    spec = bundled("google/gemma-2b")
    assert set(windows(spec)) == {None}
    assert "lm_head.weight" not in named(spec)
    assert parameters(spec) == active_parameters(spec) == 2_506_172_416
    # multi-query: 1 head x 512 x 2 B x 18 layers
    assert kv_bytes(spec, 8192) == 18 * 8192 * 1024 == 150_994_944


def test_norms_scale_by_one_plus_weight() -> None:
    spec = bundled("google/gemma-2-2b")
    assert {norm.kind for norm in spec.layers[0].norms} == {"rms_offset"}
    assert len(spec.layers[0].norms) == 4


def test_null_and_absent_window_differ() -> None:
    values = config("google/gemma-2-2b")
    assert set(windows(spec_of(values | {"sliding_window": None}))) == {None}
    assert windows(spec_of(without(values, "sliding_window")))[:2] == [4096, None]


def test_an_encoder_keeps_nothing_and_its_window_is_half_as_long_each_way() -> None:
    values = config("google/gemma-3-270m-it", use_bidirectional_attention=True, sliding_window=512)
    spec = spec_of(values)
    assert windows(spec)[0] == 257
    assert not spec.decoder
    assert all(layer.caches() == () for layer in spec.layers)
