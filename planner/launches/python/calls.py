"""Calls whose value is known without running them: defaults of variables and options, conversions, dictionaries."""

from __future__ import annotations

import ast
from typing import Any, Final

from planner.launches.python.values import Known, Module, Scope, Unknown, dotted

# What says that a card has bfloat16: taken as true, since cards of this decade have it.
_BF16_TESTS: Final = ("is_bf16_supported", "is_bfloat16_supported")


class Calls:
    """What calls give; `value` and `_attribute` are those of the whole reader."""

    module: Module
    bf16_assumed: bool

    def value(self, node: ast.expr | None, scope: Scope, line: int) -> Known | Unknown:
        """The value of an expression."""
        raise NotImplementedError

    def attribute(self, node: ast.Attribute, scope: Scope, line: int) -> Known | Unknown:
        """The value of a name behind a dot."""
        raise NotImplementedError

    def _environment(self, name: ast.expr, default: ast.expr | None, scope: Scope, line: int) -> Known | Unknown:
        key = self.value(name, scope, line)
        text = str(key.value) if isinstance(key, Known) else "?"
        if text in self.module.given:
            return Known(self.module.given[text], "--set")
        if default is None:
            return Unknown(f'os.getenv("{text[:60]}") has no default', settle=text[:60])
        found = self.value(default, scope, line)
        return Known(found.value, f"default of the variable {text}") if isinstance(found, Known) else found

    def _call(self, node: ast.Call, scope: Scope, line: int) -> Known | Unknown:
        name = dotted(node.func)
        last = name.rsplit(".", 1)[-1]
        if name in ("os.environ.get", "os.getenv", "environ.get", "getenv") and node.args:
            return self._environment(node.args[0], node.args[1] if len(node.args) > 1 else None, scope, line)
        if last in _BF16_TESTS:
            self.bf16_assumed = True
            return Known(True, "a card with bfloat16")
        if name in ("int", "float", "str", "bool") and len(node.args) == 1:
            found = self.value(node.args[0], scope, line)
            if isinstance(found, Unknown):
                return found
            try:
                return Known({"int": int, "float": float, "str": str, "bool": bool}[name](found.value), found.how)
            except (TypeError, ValueError, OverflowError):
                return Unknown("is no number")
        if name in (
            "dict",
            "SimpleNamespace",
            "types.SimpleNamespace",
            "argparse.Namespace",
            "Namespace",
            "EasyDict",
            "edict",
        ):
            return self._keywords(node, scope, line)
        if last in ("Option", "Argument") and node.args and name.startswith("typer"):
            return self.value(node.args[0], scope, line)
        if last == "field" or last == "Field":
            return self._field_default(node, scope, line)
        if name in ("list", "tuple", "set") and len(node.args) == 1:
            return self.value(node.args[0], scope, line)
        if name in ("os.path.join", "Path", "pathlib.Path") and node.args:
            parts = [self.value(one, scope, line) for one in node.args]
            if all(isinstance(one, Known) for one in parts):
                return Known("/".join(str(one.value) for one in parts if isinstance(one, Known)))
        if name == "getattr" and len(node.args) >= 2 and isinstance(node.args[1], ast.Constant):
            return self.attribute(ast.Attribute(node.args[0], str(node.args[1].value), ast.Load()), scope, line)
        if last == "get" and isinstance(node.func, ast.Attribute) and node.args:
            holder, key = self.value(node.func.value, scope, line), self.value(node.args[0], scope, line)
            if isinstance(holder, Known) and isinstance(holder.value, dict) and isinstance(key, Known):
                if str(key.value) in holder.value:
                    got = holder.value[str(key.value)]
                    return got if isinstance(got, Unknown) else Known(got, holder.how)
                return self.value(node.args[1], scope, line) if len(node.args) > 1 else Known(None)
        if "open" in {
            one.func.id for one in ast.walk(node) if isinstance(one, ast.Call) and isinstance(one.func, ast.Name)
        }:
            return Unknown("is read from a file")
        for inner in ast.walk(node):
            if (
                isinstance(inner, ast.Call)
                and inner is not node
                and dotted(inner.func) in ("os.getenv", "os.environ.get")
            ):
                found = self.value(inner, scope, line)
                if isinstance(found, Unknown):
                    return found
        return Unknown(f"is what {name[:60] or 'a call'}() gives")

    def _keywords(self, node: ast.Call, scope: Scope, line: int) -> Known | Unknown:
        found: dict[str, Any] = {}
        for keyword in node.keywords:
            one = self.value(keyword.value, scope, line)
            if keyword.arg is None:
                if isinstance(one, Known) and isinstance(one.value, dict):
                    found.update(one.value)
                    continue
                return Unknown("a dictionary with parts that are not literal", computed_list=True)
            found[keyword.arg] = one.value if isinstance(one, Known) else one
        return Known(found)

    def _field_default(self, node: ast.Call, scope: Scope, line: int) -> Known | Unknown:
        for keyword in node.keywords:
            if keyword.arg == "default":
                return self.value(keyword.value, scope, line)
            if keyword.arg == "default_factory" and isinstance(keyword.value, ast.Lambda):
                return self.value(keyword.value.body, scope, line)
            if keyword.arg == "default_factory" and dotted(keyword.value) in ("list", "dict"):
                return Known([] if dotted(keyword.value) == "list" else {})
        if node.args:
            return self.value(node.args[0], scope, line)
        return Unknown("has no default")
