"""Every bundled config: the weight tensors we list are those that transformers builds, shape by shape.

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
    "chatglm": "remote code only; no published total (the product is written out in test_chatglm)",
    "gemma3n": "its vision tower is timm's, which needs Pillow",
    "internlm2": "remote code only",
    "kimi_k2": "DeepSeek-V3 under another name",
    "kimi_k3": "remote code only",
    "mimo": "remote code only",
    "minimax_m1": "remote code only",
    "nemotron-nas": "remote code only",
    "phi3_v": "remote code only",
}
# Published totals that count more than the class has parameters: name -> (elements, what they are).
PUBLISHED_EXTRA = {"moonshotai/Kimi-K3": (92 * 896, "score corrections of 92 MoE layers x 896 experts, buffers")}


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


@pytest.mark.parametrize("path", CONFIGS, ids=name_of)
def test_tensors_equal_the_reference(path: Path) -> None:
    values = json.loads(path.read_text())
    spec = build_spec(RawConfig(values))
    name = name_of(path)
    assert name in class_names(), (
        f"{name} has no row in tests/reference/param_counts.jsonl: its class, its published total"
    )
    if values["model_type"] not in NOT_IN_TRANSFORMERS:
        class_name = class_names()[name]
        assert class_name is not None
        expected = parameter_shapes(meta_model(values, class_name))
        ours = Counter(tensor.shape for tensor in tensors(spec))
        lacking, instead = DIFFERENT.get(str(values["model_type"]), (Counter(), Counter()))
        assert ours == expected - lacking + instead
        return
    counted, published = totals()[name]
    reference = counted or published
    if reference is None:
        pytest.skip("no published total; written out by hand in the family's own test")
    extra, _ = PUBLISHED_EXTRA.get(name, (0, ""))
    assert parameters(spec) == reference - (extra if reference == published else 0)


def test_coverage() -> None:
    types = {json.loads(path.read_text())["model_type"] for path in CONFIGS}
    compared = [path for path in CONFIGS if json.loads(path.read_text())["model_type"] not in NOT_IN_TRANSFORMERS]
    assert len(compared) >= 250
    assert len(types - set(NOT_IN_TRANSFORMERS)) >= 60
