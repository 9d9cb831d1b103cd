"""`vram-planner mcp`: the same questions as tools for agents, over standard input and output."""

from __future__ import annotations

from planner.errors import UsageError


def mcp() -> None:
    """Answer the questions as tools of the Model Context Protocol, over standard input and output.

    The tools are serve, explain, train, pick, compare, diagnose and plan. Needs the extra: pip install
    'vram-planner[mcp]'. docs/agents.md says how an agent's configuration names it.

    Example: vram-planner mcp
    """
    try:
        from planner.cli.agents.server import make_server
    except ImportError as error:
        raise UsageError(f"mcp needs the package {error.name}: pip install 'vram-planner[mcp]'", field="mcp") from None
    make_server().run("stdio")
