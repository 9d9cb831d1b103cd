"""The wordings that are looked for, a module for each group of programs."""

from __future__ import annotations

from functools import cache

from planner.diagnosis.messages.wordings.pattern import Family, Pattern


@cache
def families() -> tuple[Family, ...]:
    """Every family of messages, most specific first."""
    from planner.diagnosis.messages.wordings import (
        bindings,
        drivers,
        graph_runtimes,
        host,
        libraries,
        llama_cpp,
        metal,
        not_memory,
        runtimes,
        serving_engines,
        torch,
        vllm,
        xla,
    )

    modules = (
        vllm,
        serving_engines,
        runtimes,
        llama_cpp,
        metal,
        xla,
        bindings,
        host,
        libraries,
        graph_runtimes,
        torch,
        drivers,
        not_memory,
    )
    return tuple(family for module in modules for family in module.FAMILIES)


__all__ = ["Family", "Pattern", "families"]
