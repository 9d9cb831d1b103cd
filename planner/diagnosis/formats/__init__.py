"""The wordings that are looked for, a module for each group of programs."""

from __future__ import annotations

from functools import cache

from planner.diagnosis.formats.base import Family, Pattern


@cache
def families() -> tuple[Family, ...]:
    """Every family of messages, most specific first."""
    from planner.diagnosis.formats import engines, ggml, host, libraries, torch, vllm, xla

    modules = (vllm, engines, ggml, xla, host, libraries, torch)
    return tuple(family for module in modules for family in module.FAMILIES)


__all__ = ["Family", "Pattern", "families"]
