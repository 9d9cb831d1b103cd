"""Python scripts by their syntax tree: servers and runs that they would start. Nothing is imported or run."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Sequence
from itertools import islice
from typing import Any, Final

from planner.launches.context import Context, Surroundings
from planner.launches.python.evaluate import Evaluator
from planner.launches.python.module import FoundCall, declarations
from planner.launches.python.serving import SERVERS, read_server
from planner.launches.python.training import read_run
from planner.launches.python.training_names import TRAINING
from planner.launches.python.values import Known, Unknown, dotted
from planner.launches.record import LaunchError
from planner.launches.shell.expansion import Argument
from planner.launches.trainers.recipe import Run

_MAGIC: Final = re.compile(r"^(\s*)([!%].*)$")
_LAUNCHED: Final = (
    "subprocess.run",
    "subprocess.Popen",
    "subprocess.check_call",
    "subprocess.call",
    "os.system",
    "Popen",
)
_MOST_NODES: Final = 400_000


class Script:
    """A parsed script: its calls, and what their arguments are."""

    def __init__(self, context: Context, text: str, *, file: str, first_line: int, words: dict[str, Any]) -> None:
        self.context, self.file = context, file
        self.lines = first_line - 1
        tree, self.nodes = parse(text, first_line)
        self.module, self.calls = declarations(tree)
        self.module.given = context.settings.values
        self.module.words = words
        self.evaluator = Evaluator(self.module)
        self.imports = {
            alias.asname or alias.name: node.module or ""
            for node in self.nodes
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        } | {
            (alias.asname or alias.name): alias.name
            for node in self.nodes
            if isinstance(node, ast.Import)
            for alias in node.names
        }

    def environment_assignments(self) -> list[tuple[str, ast.expr]]:
        """os.environ["NAME"] = value, in order."""
        return [
            (str(target.slice.value), node.value)
            for node in self.nodes
            if isinstance(node, ast.Assign)
            for target in node.targets
            if isinstance(target, ast.Subscript)
            and dotted(target.value) == "os.environ"
            and isinstance(target.slice, ast.Constant)
        ]

    def line(self, node: ast.AST) -> int:
        """The line of a node in its file."""
        return int(getattr(node, "lineno", 1)) + self.lines

    def value(self, node: ast.expr | None, call: FoundCall) -> Known | Unknown:
        """The value of an expression where this call stands."""
        return self.evaluator.value(node, call.scope, call.node.lineno)

    def arguments(
        self, call: FoundCall, positional: Sequence[str] = ()
    ) -> dict[str, tuple[Known | Unknown, int, ast.expr | None]]:
        """Arguments by name: (value, line, expression); a literal dictionary under ** is spread."""
        found: dict[str, tuple[Known | Unknown, int, ast.expr | None]] = {}
        for name, node in zip(positional, call.node.args, strict=False):
            if not isinstance(node, ast.Starred):
                found[name] = (self.value(node, call), self.line(node), node)
        for keyword in call.node.keywords:
            value = self.value(keyword.value, call)
            line = self.line(keyword.value)
            if keyword.arg is not None:
                found[keyword.arg] = (value, line, keyword.value)
            elif isinstance(value, Known) and isinstance(value.value, dict):
                for key, one in value.value.items():
                    found[key] = (one if isinstance(one, Unknown) else Known(one, value.how), line, None)
            else:
                why = value.why if isinstance(value, Unknown) else "not a dictionary"
                self.context.launch.skip(
                    f"**{ast.unparse(keyword.value)[:40]} of {call.last} (line {line}): {why}", matters=True
                )
        return found


def parse(text: str, first_line: int = 1) -> tuple[ast.Module, list[ast.AST]]:
    """(syntax tree, all its nodes) of a script; shell and magic lines of a notebook are blanked.

    Raises:
        LaunchError: no Python, or nested too deep; names the line.
    """
    lines = [_MAGIC.sub(r"\1pass", line) if _MAGIC.match(line) else line for line in text.split("\n")]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the script, not ours
            tree = ast.parse("\n".join(lines))
    except SyntaxError as error:
        raise LaunchError(
            f"line {(error.lineno or 1) + first_line - 1}: not Python: {error.msg}", form="python"
        ) from None
    except (RecursionError, MemoryError, ValueError):
        raise LaunchError(f"line {first_line}: not Python, or nested too deep", form="python") from None
    nodes = list(islice(ast.walk(tree), _MOST_NODES + 1))
    if len(nodes) > _MOST_NODES:
        raise LaunchError("the script is too large to be read", form="python")
    return tree, nodes


def read_python(
    context: Context,
    text: str,
    *,
    first_line: int = 1,
    file: str | None = None,
    arguments: Sequence[Argument] = (),
    collect: list[Run] | None = None,
    around: Surroundings | None = None,
) -> None:
    """Every server and run of a script becomes a plan.

    Args:
        arguments: words that a command gives the script.
        collect: takes the runs instead of the context, for a launcher to complete them.
    """
    for line_number, raw in enumerate(text.split("\n"), first_line):
        found = _MAGIC.match(raw)
        if found and found[2].startswith(("!", "%pip", "%sh")):
            from planner.launches.shell.commands import read_shell

            read_shell(context, re.sub(r"^[!%]+\s*", "", found[2]), first_line=line_number, around=around)
    script = Script(context, text, file=file or context.file, first_line=first_line, words=_words(arguments))
    training = [call for call in script.calls if call.last in TRAINING]
    serving = [call for call in script.calls if call.last in SERVERS or call.name in SERVERS]
    for call in serving:
        read_server(script, call, around or Surroundings())
    if any(TRAINING[call.last] != "support" for call in training):
        run = read_run(script, training)
        if run is not None and collect is not None:
            collect.append(run)
        elif run is not None:
            from planner.launches.trainers.completing import Spread, complete

            complete(context, run, Spread(), {}, around or Surroundings())
    if not context.launch.plans and not (collect or []):
        _launched(script)


def _words(arguments: Sequence[Argument]) -> dict[str, Any]:
    """--name value pairs that a command gives to a script's own parser."""
    found: dict[str, Any] = {}
    index = 0
    while index < len(arguments):
        head, equals, value = arguments[index].text.partition("=")
        index += 1
        if not head.startswith("--"):
            continue
        name = head[2:].replace("-", "_")
        if equals:
            found[name] = _plain(value)
        elif index < len(arguments) and not arguments[index].text.startswith("--"):
            found[name] = _plain(arguments[index].text)
            index += 1
        else:
            found[name] = True
    return found


def _plain(text: str) -> Any:
    try:
        return ast.literal_eval(text) if re.fullmatch(r"-?[\d.]+(?:e-?\d+)?|True|False|None", text) else text
    except (ValueError, SyntaxError):
        return text


def _launched(script: Script) -> None:
    """subprocess.run([...]) of a server, with literal words."""
    from planner.launches.shell.commands import read_command, read_shell
    from planner.launches.shell.script import Command

    for call in script.calls:
        if call.name not in _LAUNCHED or not call.node.args:
            continue
        found = script.value(call.node.args[0], call)
        line = script.line(call.node)
        if isinstance(found, Known) and isinstance(found.value, list):
            words = [Argument(str(one), line) for one in found.value if not isinstance(one, Unknown)]
            if words:
                read_command(script.context, Command(words, line), Surroundings())
        elif isinstance(found, Known) and isinstance(found.value, str):
            read_shell(script.context, found.value, first_line=line)
