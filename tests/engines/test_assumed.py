"""What rests on an assumption about the model says so, whichever engine plans it."""

from __future__ import annotations

import json

import pytest

from planner import find_engine, find_gpu, load_model
from planner.contract.engine import engine_names
from planner.errors import PlannerError
from planner.model.families.registry import MODULE_OF
from planner.model.from_config import model_from_config
from planner.model.model import Model
from planner.model.names.bundled import bundled_names


def evidence(engine: str, model: Model) -> tuple[dict[str, str], str]:
    found = find_engine(engine)
    plan = found.plan(model, found.Deployment(gpu=find_gpu("H100")))
    parts = {part.name: part.evidence for device in plan.devices for part in device.components}
    return parts, " ".join(plan.notes)


@pytest.mark.parametrize("engine", engine_names())
def test_everything_under_an_assumed_family_is_assumed(engine: str) -> None:
    sure, _ = evidence(engine, load_model("Qwen/Qwen3-8B"))
    read, said = evidence(engine, load_model("Qwen/Qwen3-8B", assume_family="llama"))
    assert "--assume-family" in said
    for name, label in read.items():
        assert label in ("assumed", "measured"), name
        assert label == sure[name] or sure[name] in ("exact", "derived")
    assert read["weights"] == "assumed"


@pytest.mark.parametrize("engine", engine_names())
@pytest.mark.parametrize(
    ("name", "rule"),
    [("nobody/Qwen3-8B-GPTQ-Int8", "read by its name"), ("nobody/Qwen3-8B-abliterated", "tuning of the same base")],
)
def test_weights_that_a_name_decides_are_assumed(engine: str, name: str, rule: str) -> None:
    read, said = evidence(engine, load_model(name))
    assert read["weights"] == "assumed"
    assert rule in said


def test_no_family_on_any_config_breaks_an_engine() -> None:
    # a small tour: every seventh pair of family and config, each by another engine
    kinds: dict[str, dict[str, object]] = {}
    for path in bundled_names().values():
        values = json.loads(path.read_text())
        kinds.setdefault(values["model_type"], values)
    engines, planned = engine_names(), 0
    pairs = [(values, family) for values in kinds.values() for family in MODULE_OF]
    for at, (values, family) in enumerate(pairs[::29]):
        engine = find_engine(engines[at % len(engines)])
        try:
            model = model_from_config(values, name="some/model", origin="test", assume_family=family)
            plan = engine.plan(model, engine.Deployment(gpu=find_gpu("H200")))
        except PlannerError:
            continue
        planned += 1
        parts = [part for device in plan.devices for part in device.components if part.name == "weights" and part.best]
        assert {part.evidence for part in parts} <= {"assumed"}, (engine.name, family, values["model_type"])
    assert planned > 100


def test_a_network_with_whole_layers_left_out_has_a_graph() -> None:
    # found by the tour above: 162 layers of Nemotron Ultra, some with neither attention nor feed-forward
    read, _ = evidence("llama.cpp", load_model("nvidia/Llama-3_1-Nemotron-Ultra-253B-v1"))
    assert read["weights"] == "exact"
