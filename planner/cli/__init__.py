"""`vram-planner`: one module a command, imported only when that command is asked for.

Little is imported here, so that Ctrl-C finds `main` as soon as it can.
"""

from __future__ import annotations

import io
import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Final, NoReturn

from planner.errors import PlannerError
from planner.printable import without_controls
from planner.version import __version__

if TYPE_CHECKING:
    from collections.abc import Sequence

    import typer

COMMANDS: Final = {
    "serve": ("planner.cli.serve", "serve"),
    "train": ("planner.cli.train", "train"),
    "plan": ("planner.cli.plan", "plan"),
    "explain": ("planner.cli.serve", "explain"),
    "pick": ("planner.cli.pick", "pick"),
    "compare": ("planner.cli.compare", "compare"),
    "diagnose": ("planner.cli.diagnose", "diagnose"),
    "size": ("planner.cli.size", "size"),
    "models": ("planner.cli.lists.models", "models"),
    "gpus": ("planner.cli.lists.gpus", "gpus"),
    "formats": ("planner.cli.lists.formats", "formats"),
    "engines": ("planner.cli.lists.schema", "engines"),
    "schema": ("planner.cli.lists.schema", "schema"),
    "check": ("planner.cli.check", "check"),
    "web": ("planner.cli.web", "web"),
    "mcp": ("planner.cli.agents.command", "mcp"),
    "validate": ("planner.cli.validate", "validate"),
    "probe": ("planner.cli.probe", "probe"),
    "completion": ("planner.cli.completion", "completion"),
}

# the small ones, whose options stand in a function's signature; the others read their words by a declaration
TYPED: Final = ("models", "gpus", "formats", "engines", "schema", "web", "mcp")


def build_app(names: Sequence[str] = ()) -> typer.Typer:
    """The application with these commands (default: the list of all, none of which is imported)."""
    import typer  # commands that read their words by their declaration do without it

    app = typer.Typer(
        name="vram-planner",
        help="Says by arithmetic, before you rent a GPU, whether a model fits. Exit status: 0 fits or tight, 1 does"
        " not fit, 2 wrong usage or unreadable input.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )

    @app.callback(invoke_without_command=True)
    def version(
        version: bool = typer.Option(False, "--version", help="Print the version and exit."),
    ) -> None:
        if version:
            typer.echo(__version__)
            raise typer.Exit()

    for name in () if names else COMMANDS:
        app.command(name, help=about(name))(_listed)
    for name in names:
        module, function = COMMANDS[name]
        app.command(name)(getattr(import_module(module), function))
    return app


def about(name: str) -> str:
    """What a command says of itself, read from its source: importing all of them takes a second and a half."""
    import ast
    from importlib.abc import InspectLoader
    from importlib.util import find_spec

    module, function = COMMANDS[name]
    spec = find_spec(module)
    assert spec is not None and isinstance(spec.loader, InspectLoader)
    tree = ast.parse(spec.loader.get_source(module) or "")
    found = next((one for one in tree.body if isinstance(one, ast.FunctionDef) and one.name == function), tree)
    return ast.get_docstring(found) or ""


def _listed() -> None:
    """Stands in the list of commands, which are imported only to be run."""


def main() -> None:
    """Entry point: run the command; a user's mistake is one line on stderr and status 2, Ctrl-C one line and 130."""
    try:
        _main()
    except KeyboardInterrupt:
        _fail("interrupted", 130)


def _main() -> None:
    arguments = ["--help" if word == "-h" else word for word in sys.argv[1:] if word != "--debug"]
    debug = len(arguments) != len(sys.argv) - 1
    asked = next((word for word in arguments if not word.startswith("-")), None)
    if sys.stdout is None:
        # started with standard output closed: the exit status is the answer
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a name that the terminal's encoding lacks is no error
    if arguments == ["--version"]:
        print(__version__)
        sys.exit(0)
    try:
        status = run(asked, arguments)
    except PlannerError as error:
        if debug:
            raise
        _fail(str(error))
    except BrokenPipeError:
        # the reader of our output has gone; what it wanted it has
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except OSError as error:
        if debug:
            raise
        _fail(f"{error.filename or 'the output'}: {error.strerror or error}")
    except Exception as error:
        # typer's own usage errors: they format themselves, without traceback
        message = getattr(error, "format_message", None)
        if type(error).__name__ == "Abort":  # what typer makes of Ctrl-C
            raise KeyboardInterrupt from None
        if debug:
            raise
        if message is None:
            # a fault of this program must not read as "does not fit"
            _fail(
                f"a fault in vram-planner, not in the input: {type(error).__name__}: {error} (--debug shows where)", 70
            )
        text = str(message()).replace("Value error, ", "")  # pydantic's words, which help nobody
        if text.startswith("Usage:"):
            # no command was given: the help is what was asked for, but no script should take it for "fits"
            print(text)
            sys.exit(2)
        if not text:
            sys.exit(2)
        _fail(text)
    sys.exit(status if isinstance(status, int) else 0)


def run(asked: str | None, arguments: list[str]) -> object:
    """Run the command and give its exit status."""
    if asked in COMMANDS and asked not in TYPED and arguments[0] == asked:
        module, function = COMMANDS[asked]
        return getattr(import_module(module), function)(arguments[1:])
    app = build_app([asked] if asked in TYPED else [])
    return app(args=arguments, prog_name="vram-planner", standalone_mode=False)


def _fail(message: str, status: int = 2) -> NoReturn:
    print(f"vram-planner: {' '.join(without_controls(message).split())}", file=sys.stderr)
    sys.exit(status)
