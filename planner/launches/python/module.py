"""What a script declares, from one walk over its syntax tree, and the calls in it with their scopes."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from planner.launches.python.values import Module, Scope, dotted

_BRANCHES = (ast.If, ast.For, ast.While, ast.Try, ast.AsyncFor)


@dataclass(slots=True)
class FoundCall:
    """A call, the name it goes by, where it stands and what it is assigned to."""

    node: ast.Call
    name: str
    scope: Scope
    target: str | None
    branch: bool

    @property
    def last(self) -> str:
        return self.name.rsplit(".", 1)[-1]


def declarations(tree: ast.Module) -> tuple[Module, list[FoundCall]]:
    """The module's names, options and classes; every call in order."""
    module = Module()
    calls: list[FoundCall] = []
    _body(tree.body, module.scope, module, calls, branch=False)
    calls.sort(key=lambda one: (one.node.lineno, one.node.col_offset))
    _parsers(module, calls)
    return module, calls


def _main_guard(node: ast.If) -> bool:
    test = node.test
    return isinstance(test, ast.Compare) and isinstance(test.left, ast.Name) and test.left.id == "__name__"


def _body(body: list[ast.stmt], scope: Scope, module: Module, calls: list[FoundCall], *, branch: bool) -> None:
    for statement in body:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            _function(statement, module, calls)
        elif isinstance(statement, ast.ClassDef):
            _class(statement, scope, module, calls)
        elif isinstance(statement, ast.If) and _main_guard(statement):
            _body(statement.body, scope, module, calls, branch=branch)
        elif isinstance(statement, ast.With | ast.AsyncWith):
            for item in statement.items:
                _calls(item.context_expr, scope, calls, None, branch)
                if isinstance(item.optional_vars, ast.Name):
                    _assign(item.optional_vars, None, scope, statement.lineno, branch)
            _body(statement.body, scope, module, calls, branch=branch)
        elif isinstance(statement, _BRANCHES):
            _branch(statement, scope, module, calls)
        else:
            _simple(statement, scope, calls, branch)


def _branch(statement: ast.stmt, scope: Scope, module: Module, calls: list[FoundCall]) -> None:
    for expression in (getattr(statement, "test", None), getattr(statement, "iter", None)):
        if isinstance(expression, ast.expr):
            _calls(expression, scope, calls, None, True)
    target = getattr(statement, "target", None)
    if isinstance(target, ast.expr):
        _assign(target, None, scope, statement.lineno, True)
    for name in ("body", "orelse", "finalbody"):
        _body(getattr(statement, name, []) or [], scope, module, calls, branch=True)
    for handler in getattr(statement, "handlers", []):
        _body(handler.body, scope, module, calls, branch=True)


def _function(node: ast.FunctionDef | ast.AsyncFunctionDef, module: Module, calls: list[FoundCall]) -> None:
    inner = Scope()
    arguments = [*node.args.posonlyargs, *node.args.args]
    defaults: list[ast.expr | None] = [None] * (len(arguments) - len(node.args.defaults)) + list(node.args.defaults)
    for argument, default in zip(arguments, defaults, strict=True):
        inner.parameters[argument.arg] = default
    for argument, keyword in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True):
        inner.parameters[argument.arg] = keyword
    for decorator in node.decorator_list:
        if isinstance(decorator, ast.Call) and dotted(decorator.func).endswith("option"):
            names = [a.value for a in decorator.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
            long = next((n for n in names if n.startswith("--")), names[0] if names else "")
            default = next((k.value for k in decorator.keywords if k.arg == "default"), None)
            name = next((n for n in names if not n.startswith("-")), long.lstrip("-").replace("-", "_"))
            if default is not None and name in inner.parameters:
                inner.parameters[name] = default
    module.scope.names.setdefault(node.name, [])
    _body(node.body, inner, module, calls, branch=False)


def _class(node: ast.ClassDef, scope: Scope, module: Module, calls: list[FoundCall]) -> None:
    fields: dict[str, ast.expr | None] = {}
    for base in node.bases:
        fields.update(module.classes.get(dotted(base).rsplit(".", 1)[-1], {}))
    for statement in node.body:
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            fields[statement.target.id] = statement.value
        elif isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            fields[statement.targets[0].id] = statement.value
        elif isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            _function(statement, module, calls)
    module.classes[node.name] = fields


def _simple(statement: ast.stmt, scope: Scope, calls: list[FoundCall], branch: bool) -> None:
    value = getattr(statement, "value", None)
    targets: list[ast.expr] = []
    if isinstance(statement, ast.Assign):
        targets = statement.targets
    elif isinstance(statement, ast.AnnAssign):
        targets = [statement.target]
    elif isinstance(statement, ast.AugAssign):
        _assign(statement.target, None, scope, statement.lineno, True)
    name = dotted(targets[0]) if len(targets) == 1 else None
    if targets and isinstance(targets[0], ast.Tuple) and targets[0].elts:
        name = dotted(targets[0].elts[0])
    for target in targets:
        pairs = [(target, value)]
        if isinstance(target, ast.Tuple):
            same = isinstance(value, ast.Tuple) and len(value.elts) == len(target.elts)
            listed: list[Any] = list(value.elts) if same and isinstance(value, ast.Tuple) else [None] * len(target.elts)
            pairs = list(zip(target.elts, listed, strict=True))
        for one, its in pairs:
            if isinstance(one, ast.Subscript) and isinstance(one.value, ast.Name):
                _item(one, its, scope, statement.lineno, branch)
            else:
                _assign(one, its, scope, statement.lineno, branch)
    if isinstance(value, ast.expr):
        _calls(value, scope, calls, name or None, branch)
    elif not isinstance(statement, ast.AugAssign):
        for inner in ast.iter_child_nodes(statement):
            if isinstance(inner, ast.expr):
                _calls(inner, scope, calls, None, branch)


def _item(target: ast.Subscript, value: ast.expr | None, scope: Scope, line: int, branch: bool) -> None:
    """cfg["x"] = v: the dictionary with that key put in."""
    holder = target.value
    if not isinstance(holder, ast.Name) or holder.id not in scope.names:
        return
    before = scope.names[holder.id][-1][1]
    if isinstance(before, ast.Dict) and value is not None and len(before.keys) < 500:
        merged = ast.Dict(keys=[*before.keys, target.slice], values=[*before.values, value])
        scope.names[holder.id].append((line, merged, branch))


def _assign(target: ast.expr, value: ast.expr | None, scope: Scope, line: int, branch: bool) -> None:
    if isinstance(target, ast.Name):
        scope.names.setdefault(target.id, []).append((line, value, branch))
    elif isinstance(target, ast.Tuple | ast.List):
        for one in target.elts:
            _assign(one, None, scope, line, branch)


def _calls(node: ast.expr, scope: Scope, calls: list[FoundCall], target: str | None, branch: bool) -> None:
    for inner in ast.walk(node):
        if isinstance(inner, ast.Call):
            calls.append(FoundCall(inner, dotted(inner.func), scope, target if inner is node else None, branch))


def _parsers(module: Module, calls: list[FoundCall]) -> None:
    """Options of argparse, and the names that parsed arguments and dataclass instances go by."""
    for call in calls:
        if call.last == "exec":
            module.has_exec = True
        elif call.last == "add_argument":
            _option(module, call.node)
        elif call.last == "set_defaults":
            for keyword in call.node.keywords:
                if keyword.arg:
                    module.options[keyword.arg] = (keyword.value, call.node.lineno)
        elif call.last in ("parse_args", "parse_known_args") and call.target:
            module.parsed.add(call.target)
        elif call.last in module.classes and call.target and isinstance(call.node.func, ast.Name):
            fields = dict(module.classes[call.last])
            for keyword in call.node.keywords:
                if keyword.arg:
                    fields[keyword.arg] = keyword.value
            made = f"{call.last}"
            if call.node.keywords:
                made = f"{call.last}#{call.node.lineno}"
                module.classes[made] = fields
            module.instances[call.target] = made
    for call in calls:
        if call.last in ("parse_args_into_dataclasses", "parse_args_and_config", "parse_json_file"):
            _hf_parser(module, calls, call)


def _hf_parser(module: Module, calls: list[FoundCall], call: FoundCall) -> None:
    makers = [one for one in calls if one.last in ("HfArgumentParser", "TrlParser") and one.node.args]
    if not makers:
        return
    listed = makers[-1].node.args[0]
    names = [dotted(one) for one in listed.elts] if isinstance(listed, ast.Tuple | ast.List) else [dotted(listed)]
    for targets in _targets_of(call):
        for target, name in zip(targets, names, strict=False):
            if name in module.classes:
                module.instances[target] = name


def _targets_of(call: FoundCall) -> Iterator[list[str]]:
    for scope_name, listed in call.scope.names.items():
        if any(line == call.node.lineno for line, _, _ in listed):
            yield_names = [
                name
                for name, places in call.scope.names.items()
                if any(line == call.node.lineno for line, _, _ in places)
            ]
            if scope_name == yield_names[0]:
                yield yield_names


def _option(module: Module, node: ast.Call) -> None:
    names = [one.value for one in node.args if isinstance(one, ast.Constant) and isinstance(one.value, str)]
    if not names:
        return
    keywords = {keyword.arg: keyword.value for keyword in node.keywords}
    long = next((name for name in names if name.startswith("--")), names[0])
    destination = keywords.get("dest")
    name = long.lstrip("-").replace("-", "_")
    if isinstance(destination, ast.Constant) and isinstance(destination.value, str):
        name = destination.value
    default = keywords.get("default")
    action = keywords.get("action")
    if default is None and isinstance(action, ast.Constant):
        if action.value == "store_true":
            default = ast.Constant(False)
        elif action.value == "store_false":
            default = ast.Constant(True)
    module.options[name] = (default, node.lineno)
