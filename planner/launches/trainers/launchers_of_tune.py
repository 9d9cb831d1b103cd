"""torchrun's options in front of a torchtune recipe."""

from __future__ import annotations

from collections.abc import Mapping

from planner.launches.shell.expansion import Argument


def spread_of(options: Mapping[str, Argument]) -> tuple[int | None, int]:
    """(processes a node or None, nodes)."""
    per_node, nodes = options.get("nproc_per_node"), options.get("nnodes")
    count = int(per_node.text) if per_node is not None and per_node.text.isdecimal() else None
    return count, int(nodes.text) if nodes is not None and nodes.text.isdecimal() else 1
