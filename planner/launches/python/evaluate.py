"""Values of Python expressions from the syntax tree: literals, constants, defaults of options; nothing is run."""

from __future__ import annotations

import ast
from typing import Any, Final

from planner.launches.python.calls import Calls
from planner.launches.python.values import TORCH_TYPES, Known, Module, Scope, Unknown, arithmetic, dotted

_LONGEST: Final = 10_000
_DEEPEST: Final = 60


class Evaluator(Calls):
    """Reads expressions of one module."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.depth = 0
        self.steps = 0
        self.bf16_assumed = False

    def value(self, node: ast.expr | None, scope: Scope, line: int) -> Known | Unknown:
        """The value of an expression, as far as literals and defaults tell it."""
        if node is None:
            return Unknown("has no default")
        self.depth += 1
        self.steps += 1
        try:
            if self.depth > _DEEPEST or self.steps > 200_000:
                return Unknown("nested too deep")
            return self._value(node, scope, line)
        finally:
            self.depth -= 1

    def _value(self, node: ast.expr, scope: Scope, line: int) -> Known | Unknown:
        if isinstance(node, ast.Constant):
            return Known(node.value)
        if isinstance(node, ast.Name):
            return self._name(node.id, scope, line)
        if isinstance(node, ast.Attribute):
            return self.attribute(node, scope, line)
        if isinstance(node, ast.UnaryOp):
            return self._unary(node, scope, line)
        if isinstance(node, ast.BinOp):
            return self._binary(node, scope, line)
        if isinstance(node, ast.List | ast.Tuple | ast.Set):
            return self._list(node, scope, line)
        if isinstance(node, ast.Dict):
            return self._dict(node, scope, line)
        if isinstance(node, ast.Subscript):
            return self._subscript(node, scope, line)
        if isinstance(node, ast.JoinedStr):
            return self._joined(node, scope, line)
        if isinstance(node, ast.BoolOp):
            return self._bool(node, scope, line)
        if isinstance(node, ast.IfExp):
            return self._choice(node, scope, line)
        if isinstance(node, ast.Call):
            return self._call(node, scope, line)
        if isinstance(node, ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
            return Unknown("a comprehension", computed_list=True)
        return Unknown("is computed")

    def _name(self, name: str, scope: Scope, line: int) -> Known | Unknown:
        given = self.module.given.get(name)
        if given is not None:
            return Known(given, "--set")
        for place in (scope, self.module.scope) if scope is not self.module.scope else (scope,):
            listed = place.names.get(name)
            if listed:
                before = [one for one in listed if one[0] <= line] if place is scope else listed
                if not before:
                    continue
                if any(branch for _, _, branch in before) and before[-1][1] is not None:
                    return Unknown(f"{name} is assigned in a branch or loop", settle=name)
                at, node, branch = before[-1]
                if node is None or branch:
                    return Unknown(f"{name} is not a constant", settle=name)
                return self.value(node, place, at - 1)
            if name in place.parameters:
                default = place.parameters[name]
                if default is None:
                    return Unknown(f"{name} is a parameter of a function, without a default", settle=name)
                found = self.value(default, self.module.scope, line)
                return Known(found.value, f"default of the parameter {name}") if isinstance(found, Known) else found
        if self.module.has_exec:
            return Unknown(f"{name} is set by exec", settle=name)
        return Unknown(f"{name} is not assigned in the text", settle=name)

    def attribute(self, node: ast.Attribute, scope: Scope, line: int) -> Known | Unknown:
        """The value of a name behind a dot: a parsed option, a field of a class, a key of a dictionary."""
        base = node.value
        if isinstance(base, ast.Name):
            if base.id in ("torch", "jnp", "tf"):
                return Known(f"torch.{node.attr}") if node.attr in TORCH_TYPES else Unknown(f"torch.{node.attr}")
            if base.id in self.module.parsed:
                return self.option(node.attr, line)
            if base.id in self.module.instances:
                return self._field(self.module.instances[base.id], node.attr, line)
            if base.id in self.module.classes:
                return self._field(base.id, node.attr, line)
            if base.id == "self":
                return Unknown(f"self.{node.attr} is set elsewhere", settle=node.attr)
        inner = self.value(base, scope, line)
        if isinstance(inner, Known) and isinstance(inner.value, dict) and node.attr in inner.value:
            return Known(inner.value[node.attr], inner.how)
        shown = ast.unparse(node)[:60] if self.depth < 10 else node.attr
        return Unknown(f"{shown} is not a constant", settle=node.attr)

    def option(self, name: str, line: int) -> Known | Unknown:
        """An option of the script's own parser: given, else its default."""
        for given in (self.module.given, self.module.words):
            if name in given:
                return Known(given[name], "given")
        if name not in self.module.options:
            return Unknown(f"{name} is no option of the script's parser", settle=name)
        default, _ = self.module.options[name]
        if default is None:
            return Unknown(f"the script's option {name} has no default", settle=name)
        found = self.value(default, self.module.scope, line)
        return Known(found.value, f"default of the script's own option {name}") if isinstance(found, Known) else found

    def _field(self, owner: str, name: str, line: int) -> Known | Unknown:
        for given in (self.module.given, self.module.words):
            if name in given:
                return Known(given[name], "given")
        fields = self.module.classes.get(owner, {})
        if name not in fields:
            return Unknown(f"{owner}.{name} is set elsewhere", settle=name)
        default = fields[name]
        if default is None:
            return Unknown(f"{name} of {owner} has no default", settle=name)
        found = self.value(default, self.module.scope, line)
        return Known(found.value, f"default of {owner}.{name}") if isinstance(found, Known) else found

    def _unary(self, node: ast.UnaryOp, scope: Scope, line: int) -> Known | Unknown:
        found = self.value(node.operand, scope, line)
        if isinstance(found, Unknown):
            return found
        try:
            if isinstance(node.op, ast.Not):
                return Known(not found.value, found.how)
            if isinstance(node.op, ast.USub) and isinstance(found.value, int | float):
                return Known(-found.value, found.how)
        except TypeError:
            pass
        return Unknown("is computed")

    def _binary(self, node: ast.BinOp, scope: Scope, line: int) -> Known | Unknown:
        left, right = self.value(node.left, scope, line), self.value(node.right, scope, line)
        for side in (left, right):
            if isinstance(side, Unknown):
                return side
        assert isinstance(left, Known) and isinstance(right, Known)
        how = left.how if left.how != "stated" else right.how
        a, b = left.value, right.value
        if isinstance(a, str) and isinstance(b, str) and isinstance(node.op, ast.Add) and len(a) + len(b) < _LONGEST:
            return Known(a + b, how)
        if isinstance(a, list) and isinstance(b, list) and isinstance(node.op, ast.Add) and len(a) + len(b) < _LONGEST:
            return Known(a + b, how)
        if isinstance(a, dict) and isinstance(b, dict) and isinstance(node.op, ast.BitOr):
            return Known({**a, **b}, how)
        if not all(isinstance(one, int | float) and not isinstance(one, bool) and abs(one) < 1e15 for one in (a, b)):
            return Unknown("is computed")
        return arithmetic(node.op, a, b, how)

    def _list(self, node: ast.List | ast.Tuple | ast.Set, scope: Scope, line: int) -> Known | Unknown:
        found: list[Any] = []
        for element in node.elts[:_LONGEST]:
            if isinstance(element, ast.Starred):
                inner = self.value(element.value, scope, line)
                if isinstance(inner, Unknown) or not isinstance(inner.value, list):
                    return Unknown("is computed", computed_list=True)
                found += inner.value
                continue
            one = self.value(element, scope, line)
            if isinstance(one, Unknown):
                return one
            found.append(one.value)
        return Known(found)

    def _dict(self, node: ast.Dict, scope: Scope, line: int) -> Known | Unknown:
        found: dict[str, Any] = {}
        for key, value in zip(node.keys, node.values, strict=True):
            one = self.value(value, scope, line)
            if key is None:
                if isinstance(one, Known) and isinstance(one.value, dict):
                    found.update(one.value)
                    continue
                return Unknown("a dictionary with parts that are not literal", computed_list=True)
            name = self.value(key, scope, line)
            if isinstance(name, Known):
                found[str(name.value)] = one.value if isinstance(one, Known) else one
        return Known(found)

    def _subscript(self, node: ast.Subscript, scope: Scope, line: int) -> Known | Unknown:
        if dotted(node.value) == "os.environ":
            return self._environment(node.slice, None, scope, line)
        holder, key = self.value(node.value, scope, line), self.value(node.slice, scope, line)
        if isinstance(holder, Unknown):
            return holder
        if isinstance(key, Unknown):
            return key
        try:
            found = holder.value[str(key.value) if isinstance(holder.value, dict) else key.value]
        except (KeyError, IndexError, TypeError):
            return Unknown(f"{ast.unparse(node)[:60]} is not there")
        return found if isinstance(found, Unknown) else Known(found, holder.how)

    def _joined(self, node: ast.JoinedStr, scope: Scope, line: int) -> Known | Unknown:
        text, how = "", "stated"
        for part in node.values[:1000]:
            if isinstance(part, ast.FormattedValue):
                found = self.value(part.value, scope, line)
                if isinstance(found, Unknown):
                    return found
                if part.format_spec is not None:
                    return Unknown("a formatted text")
                how = found.how if found.how != "stated" else how
                text += str(found.value)
            elif isinstance(part, ast.Constant):
                text += str(part.value)
        return Known(text[:_LONGEST], how)

    def _bool(self, node: ast.BoolOp, scope: Scope, line: int) -> Known | Unknown:
        for value in node.values:
            found = self.value(value, scope, line)
            if isinstance(found, Unknown):
                return found
            if bool(found.value) == isinstance(node.op, ast.Or):
                return found
        return found

    def _choice(self, node: ast.IfExp, scope: Scope, line: int) -> Known | Unknown:
        test = self.value(node.test, scope, line)
        if isinstance(test, Known):
            return self.value(node.body if test.value else node.orelse, scope, line)
        body = self.value(node.body, scope, line)
        why = body.why if isinstance(body, Unknown) else test.why
        return Unknown(f"depends on what the script finds when it runs: {why}")
