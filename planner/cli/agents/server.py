"""The tools, with the descriptions that an agent reads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Final

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import Field

from planner.cli.agents.questions import answer, diagnosed, named
from planner.errors import PlannerError, UsageError
from planner.version import __version__

Model = Annotated[str, Field(description="A model's name: Qwen/Qwen3-8B, or an export such as Qwen/Qwen3-8B-AWQ.")]
Options = Annotated[
    dict[str, Any] | None,
    Field(
        description="Inputs under the names of the command line, without dashes in front: {'gpu': 'H100',"
        " 'max_model_len': 8192, 'tensor_parallel_size': 2, 'engine': 'vllm'}."
    ),
]
Details = Annotated[bool, Field(description="The whole answer instead of the short one.")]
_ABOUT: Final = (
    "Says by arithmetic, without a GPU, whether a language model fits: weights, KV cache, activations, optimiser states"
    " in bytes, requests at once, and the smallest changes that make it fit. A verdict is fits, tight, does_not_fit,"
    " refused or unknown; nothing is guessed in silence."
)


def make_server() -> MCPServer:
    """The server with its tools; none of them reads a file or asks the network."""
    server = MCPServer("vram-planner", version=__version__, instructions=_ABOUT)

    @server.tool()
    def serve(model: Model, options: Options = None, details: Details = False) -> dict[str, Any]:
        """Plan an inference server on a card: verdict, memory by component, requests at once, what to change."""
        return _told(lambda: answer("serve", named(model), options or {}, details=details))

    @server.tool()
    def explain(model: Model, options: Options = None) -> dict[str, Any]:
        """The arithmetic of a server's plan: each component with its formula, its source and its band."""

        def components() -> dict[str, Any]:
            whole = answer("serve", named(model), options or {}, details=True)
            return {"verdict": whole["verdict"], "devices": whole["devices"], "notes": whole["notes"]}

        return _told(components)

    @server.tool()
    def train(model: Model, options: Options = None, details: Details = False) -> dict[str, Any]:
        """Plan a fine-tune: method (full, lora, qlora), batch, length, sharding; the peak of each phase."""
        return _told(lambda: answer("train", named(model), options or {}, details=details))

    @server.tool()
    def pick(model: Model | None = None, options: Options = None, details: Details = False) -> dict[str, Any]:
        """Which cards hold a model; without a model and with options {'gpu': ...}: which models a card runs."""
        return _told(lambda: answer("pick", named(model) if model else None, options or {}, details=details))

    @server.tool()
    def compare(model: Model, options: Options = None, details: Details = False) -> dict[str, Any]:
        """Formats, cards, lengths or engines side by side; a list is a list: {'gpu': ['4090', 'L40S']}."""
        return _told(lambda: answer("compare", named(model), options or {}, details=details))

    @server.tool()
    def size(model: Model, options: Options = None, details: Details = False) -> dict[str, Any]:
        """How many cards a load needs: {'gpu': 'H100', 'users': 500, 'input_len': 1024, 'output_len': 256}."""
        return _told(lambda: answer("size", named(model), options or {}, details=details))

    @server.tool()
    def diagnose(
        text: Annotated[list[str], Field(description="Out-of-memory message or log; nvidia-smi output beside it.")],
        options: Options = None,
        details: Details = False,
    ) -> dict[str, Any]:
        """What an out-of-memory message or a start log says: which failure, whose memory, what to do first."""
        return _told(lambda: diagnosed(text, options or {}, details=details))

    @server.tool()
    def plan(
        source: Annotated[
            str, Field(description="The text of a command, compose file, manifest, trainer's config or script.")
        ],
        options: Options = None,
        details: Details = False,
    ) -> dict[str, Any]:
        """Plan what launches a server or a fine-tune, from the text of it; nothing in it is run."""
        return _told(lambda: answer("plan", _text(source), options or {}, details=details))

    return server


def _text(source: str) -> str:
    """The source as a text: with a line's end it is never taken for a file's name."""
    if not source.strip() or source.lstrip().startswith("-"):
        raise UsageError("source: give the text of a command or file", field="source")
    return f"{source}\n"


def _told(question: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """The answer; a mistake in the question is told to the agent in one line."""
    try:
        return question()
    except PlannerError as error:
        raise ToolError(str(error)) from None
