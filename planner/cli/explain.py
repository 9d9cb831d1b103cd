"""`vram-planner explain`: the arithmetic of a serving plan, line by line."""

from __future__ import annotations

from functools import wraps

from planner.cli.serve import serve


@wraps(serve)
def explain(*args: object, **options: object) -> None:
    serve(*args, **(options | {"explain": True}))  # type: ignore[arg-type]


explain.__doc__ = """Write out the arithmetic of a serving plan: every formula with its numbers, evidence and source.

Takes the options of `serve`.

Example: vram-planner explain Qwen/Qwen3-8B --gpu H100 --max-model-len 8192
"""
