"""Every bundled config has the total that transformers counts; of every model type one is compared shape by shape.

For classes that transformers lacks, the total equals the published one, or differs by what is written here.
"""

from __future__ import annotations

import json
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from planner.model.config import RawConfig
from planner.model.families import build_spec
from planner.model.tensors import parameters, tensors
from tests.reference.meta_model import MODEL_CONFIGS, class_names, meta_model, parameter_shapes

CONFIGS = sorted(MODEL_CONFIGS.glob("*.json"))


# Classes that transformers 5.24 lacks, or cannot build here, by model_type, with the reason.
NOT_IN_TRANSFORMERS = {
    "baichuan": "remote code only",
    "internvl_chat": "remote code only; the -hf checkpoints of the same models are compared",
    "minicpm": "remote code only",
    "minicpmv": "remote code only",
    "new": "remote code only",
    "qwen": "remote code only",
    "chatglm": "remote code only; no published total (the product is written out in test_chatglm)",
    "deepseek_ref": "DeepSeek-V4 under the name of its reference code: the total is that of the fp4 release",
    "gemma3n": "its vision tower is timm's, which needs Pillow",
    "deepseek": "remote code only",
    "internlm": "remote code only",
    "internlm2": "remote code only",
    "kimi_vl": "remote code only",
    "kimi_k2": "DeepSeek-V3 under another name",
    "kimi_k3": "remote code only",
    "mimo": "remote code only",
    "minimax_m1": "remote code only",
    "nemotron-nas": "remote code only",
    "phi3_v": "remote code only",
}
# Published totals that count more than the class has parameters: name -> (elements, what they are).
PUBLISHED_EXTRA = {
    "moonshotai/Kimi-VL-A3B-Instruct": (3_392, "26 x 64 score corrections and rotary tables, buffers"),
    "moonshotai/Kimi-K3": (92 * 896, "score corrections of 92 MoE layers x 896 experts, buffers"),
    "zai-org/glm-4-9b": (32, "the rotary table's inverse frequencies, a buffer"),
    "zai-org/glm-4-9b-chat": (32, "the rotary table's inverse frequencies, a buffer"),
}


# Where our inventory rightly differs: model_type -> (shapes we do not have, shapes we have instead).
DIFFERENT = {
    # the bundled file states vocab_size 128,896, which the published total confirms, outside text_config; the class
    # reads it inside and falls back to its default of 128,815
    "step3p7": (Counter({(128_815, 4_096): 2}), Counter({(128_896, 4_096): 2})),
}


@cache
def totals() -> dict[str, tuple[int | None, int | None]]:
    """Model -> (counted by transformers' code, published)."""
    rows = (Path(__file__).with_name("param_counts.jsonl")).read_text().splitlines()
    return {row["model"]: (row["total_params"], row["published"]) for row in map(json.loads, rows)}


def name_of(path: Path) -> str:
    return path.stem.replace("--", "/", 1)


def assert_same_tensors(values: dict[str, object], class_name: str | None) -> None:
    """Our tensors have the shapes that transformers makes of the config, each as often."""
    assert class_name is not None
    expected = parameter_shapes(meta_model(values, class_name))
    lacking, instead = DIFFERENT.get(str(values["model_type"]), (Counter(), Counter()))
    assert Counter(tensor.shape for tensor in tensors(build_spec(RawConfig(values)))) == expected - lacking + instead


def samples() -> list[Path]:
    """The smallest config of every model type and architecture; tools/compare_shapes.py compares all."""
    smallest: dict[tuple[str, str], tuple[int, Path]] = {}
    for path in CONFIGS:
        values = json.loads(path.read_text())
        if class_names()[name_of(path)] is None and values["model_type"] not in NOT_IN_TRANSFORMERS:
            continue  # a known type in a variant of remote code (jina-embeddings-v3)
        size = totals()[name_of(path)][0] or 0
        key = (values["model_type"], values["architectures"][0])
        if key not in smallest or size < smallest[key][0]:
            smallest[key] = (size, path)
    return [path for _, path in smallest.values()]


def test_every_config_has_the_reference_total() -> None:
    wrong = {}
    for path in CONFIGS:
        name, values = name_of(path), json.loads(path.read_text())
        assert name in totals(), f"{name} has no row in tests/reference/param_counts.jsonl"
        counted, published = totals()[name]
        reference = published if counted is None else counted
        ours = parameters(build_spec(RawConfig(values)))
        if values["model_type"] in DIFFERENT or reference is None:
            continue  # compared shape by shape below; written out by hand in the family's own test
        extra = PUBLISHED_EXTRA.get(name, (0, ""))[0] if counted is None else 0
        if ours != reference - extra:
            wrong[name] = (ours, reference)
    assert not wrong


@pytest.mark.parametrize("path", samples(), ids=name_of)
def test_tensors_equal_the_reference(path: Path) -> None:
    values = json.loads(path.read_text())
    if values["model_type"] in NOT_IN_TRANSFORMERS:
        pytest.skip(NOT_IN_TRANSFORMERS[values["model_type"]])
    assert_same_tensors(values, class_names()[name_of(path)])


def test_coverage() -> None:
    types = {json.loads(path.read_text())["model_type"] for path in CONFIGS}
    compared = [path for path in CONFIGS if json.loads(path.read_text())["model_type"] not in NOT_IN_TRANSFORMERS]
    assert len(compared) >= 1_000
    assert len(types - set(NOT_IN_TRANSFORMERS)) >= 60
