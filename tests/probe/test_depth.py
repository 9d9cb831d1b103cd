"""Which depths keep a model's pattern, and configs cut to them."""

from __future__ import annotations

import pytest

from planner.errors import ConfigError, UsageError
from planner.model.load import load_model
from planner.model.names.bundled import bundled_names
from planner.model.shallow.depth import Depths, depths_for, pattern
from planner.model.shallow.subject import read_subject
from planner.probe.figures import extrapolated, figures_of


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("meta-llama/Llama-3.1-8B-Instruct", (0, 1)),
        ("google/gemma-3-1b-it", (0, 6)),  # five windows and a full attention
        ("deepseek-ai/DeepSeek-V3", (3, 1)),  # three dense layers, then experts
        ("Qwen/Qwen3-Next-80B-A3B-Instruct", (0, 4)),  # three delta nets and an attention
    ],
)
def test_patterns(name: str, expected: tuple[int, int]) -> None:
    assert pattern(load_model(name).spec.layers) == expected


@pytest.mark.parametrize(
    ("name", "wanted", "shallow", "deep"),
    [
        ("meta-llama/Llama-3.1-8B-Instruct", 4, 2, 4),  # one layer is no sample: its input is the embedding
        ("google/gemma-3-1b-it", 12, 2, 8),  # 26 = 2 + 4 x 6
        ("deepseek-ai/DeepSeek-V3", 6, 3, 6),
        ("meta-llama/Llama-3.1-8B-Instruct", 1, 2, 3),  # at least one repeat
        ("meta-llama/Llama-3.1-8B-Instruct", 32, 32, 32),
    ],
)
def test_depths(name: str, wanted: int, shallow: int, deep: int) -> None:
    layers = load_model(name).spec.layers
    assert depths_for(layers, wanted) == Depths(shallow=shallow, deep=deep, total=len(layers))


def test_a_straight_line() -> None:
    # 10 + 7 a layer: 2 layers 24, 4 layers 38, 32 layers 234
    assert Depths(shallow=2, deep=4, total=32).extrapolate(24, 38) == 234


@pytest.mark.parametrize("wanted", (0, 33, -1))
def test_depths_out_of_range(wanted: int) -> None:
    with pytest.raises(UsageError, match="1 to 32"):
        depths_for(load_model("meta-llama/Llama-3.1-8B-Instruct").spec.layers, wanted)


@pytest.mark.parametrize("name", bundled_names())
def test_every_bundled_model_is_cut_to_its_own_beginning_or_refused(name: str) -> None:
    subject = read_subject(name)
    total = len(subject.model.spec.layers)
    try:
        depths = subject.depths(max(1, total // 2))
        cut, values = subject.at_depth(depths.deep)
    except (UsageError, ConfigError):
        return
    assert len(cut.spec.layers) == depths.deep
    assert cut.parameters < subject.model.parameters and values != subject.values


def test_the_peak_at_full_depth_is_that_of_the_phase_that_peaks_there() -> None:
    """At 4 layers backward peaks; the optimizer step grows faster with depth and peaks at 48."""
    depths = Depths(shallow=2, deep=4, total=48)
    low = {"forward_peak": 20, "backward_peak": 22, "step_peak": 14, "peak_allocated": 22}
    high = {"forward_peak": 28, "backward_peak": 31, "step_peak": 29, "peak_allocated": 31}
    shallow, deep = (figures_of({}, measured, judged=()) for measured in (low, high))
    found = {figure.name: figure.measured for figure in extrapolated(shallow, deep, {}, depths)}
    # 31 + 44 x 4.5 = 229; 29 + 44 x 7.5 = 359
    assert (found["backward_peak"], found["step_peak"], found["peak_allocated"]) == (229, 359, 359)
