"""Option files of an engine by themselves."""

from __future__ import annotations

from planner.launches.context import Context, Surroundings
from planner.launches.documents import Map
from planner.launches.engines.server import start_plan


def sglang_config(context: Context, node: Map) -> None:
    from planner.launches.engines.server import map_given, read_given
    from planner.launches.engines.settling import settle_gpus, settle_model

    plan = start_plan(context, "sglang", Surroundings(), {})
    others = read_given(context, plan, map_given("sglang", node))
    model = others["model"].values[0] if "model" in others and others["model"].values else None
    if settle_model(context, plan, model, Surroundings()):
        settle_gpus(context, plan, Surroundings(), {})
        context.add(plan)
