"""Matching our tensors with what a quantisation config calls modules.

Configs name modules by full path, by part of one, by glob or by regular expression ("re:..."), in the checkpoint's
spelling or an engine's: with another root ("language_model.model." for "model."), experts one by one where we hold
them stacked, q/k/v and gate/up apart where we hold them fused, or the other way round. A tensor therefore answers to
several names, and a pattern that fits one of them fits the tensor.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from fnmatch import translate
from functools import lru_cache
from typing import Final

from planner.errors import UnsupportedQuantization

_ROOTS: Final = frozenset({"model", "language_model", "text_model", "backbone", "transformer", "base_model"})
# One block, several spellings: brought to one on both sides.
_SAME: Final = {"block_sparse_moe": "mlp", "ffn": "mlp", "attn": "self_attn"}
_SHARDS: Final = {
    "qkv_proj": ("q_proj", "k_proj", "v_proj"),
    "gate_up_proj": ("gate_proj", "up_proj"),
    "in_proj_qkvz": ("in_proj_qkv", "in_proj_z"),
    "in_proj_ba": ("in_proj_b", "in_proj_a"),
    "fused_qkv_a_proj": ("q_a_proj", "kv_a_proj_with_mqa"),
}
_FUSED: Final = {shard: fused for fused, shards in _SHARDS.items() for shard in shards}
_EXPERT_SHARDS: Final = {
    "gate_up_proj": ("gate_proj", "up_proj", "w1", "w3"),
    "up_proj": ("up_proj", "w1"),
    "down_proj": ("down_proj", "w2"),
}
_REGEX_ROOTS: Final = ("model.", "model.language_model.", "language_model.model.", "backbone.", "")
_LONGEST_PATTERN: Final = 2_000
_MOST_PATTERNS: Final = 200_000
# A repeated group that repeats inside can take exponential time: (a+)+
_NESTED_REPEAT: Final = re.compile(r"\([^()]*[+*][^()]*\)[+*{]")


def core_name(name: str) -> str:
    """The name without its root, in our spelling: "model.layers.0.block_sparse_moe" -> "layers.0.mlp"."""
    parts = name.split(".")
    start = 0
    while start < len(parts) - 1 and parts[start] in _ROOTS:
        start += 1
    parts = parts[start:]
    if parts[0] == "layers":  # towers have names of their own
        parts = [_SAME.get(part, part) for part in parts]
    return "lm_head" if parts == ["head"] else ".".join(parts)


@lru_cache(maxsize=65536)
def module_cores(tensor_name: str) -> tuple[str, ...]:
    """The module paths, without root, that a tensor of this name answers to."""
    path = tensor_name
    for ending in (".weight", ".bias"):
        path = path.removesuffix(ending)
    path = core_name(path)
    parent, _, last = path.rpartition(".")
    found = [path]
    if parent.endswith("experts"):
        found += [f"{parent}.0.{shard}" for shard in _EXPERT_SHARDS.get(last, ())]
        found.append(parent)
        return tuple(found)
    prefix = f"{parent}." if parent else ""
    found += [prefix + shard for shard in _SHARDS.get(last, ())]
    if last in _FUSED:
        found.append(prefix + _FUSED[last])
    return tuple(found)


@dataclass(frozen=True, slots=True)
class ModulePatterns:
    """A set of module patterns, compiled.

    Args:
        paths: literal paths from the root of the language model; they cover what is below them.
        parts: literal runs of path components that may stand anywhere.
        prefixes: what a path begins with ("layers.10.self_attn*").
        globs, regexes: the rest, as expressions for paths without root and for whole names.
        numbered: some pattern names a layer, so that layers of a kind may differ.
    """

    paths: frozenset[str] = frozenset()
    parts: frozenset[str] = frozenset()
    prefixes: tuple[str, ...] = ()
    globs: tuple[str, ...] = ()
    regexes: tuple[str, ...] = ()
    numbered: bool = False
    _memo: dict[str, bool] = field(default_factory=dict, compare=False, hash=False, repr=False)

    def match(self, tensor_name: str) -> bool:
        """Whether any pattern fits any of the names that the tensor answers to."""
        found = self._memo.get(tensor_name)
        if found is None:
            found = self._memo[tensor_name] = any(map(self._fits, module_cores(tensor_name)))
        return found

    def _fits(self, core: str) -> bool:
        if self.prefixes and core.startswith(self.prefixes):
            return True
        if self.paths or self.parts:
            words = core.split(".")
            if self.paths and any(".".join(words[:end]) in self.paths for end in range(1, len(words) + 1)):
                return True
            if self.parts and any(
                ".".join(words[start:end]) in self.parts
                for start in range(len(words))
                for end in range(start + 1, len(words) + 1)
            ):
                return True
        if self.globs and any(_compiled(glob).match(core) for glob in self.globs):
            return True
        if not self.regexes:
            return False
        spellings = {core, *(core.replace(f"{ours}.", f"{other}.") for other, ours in _SAME.items())}
        names = [root + spelling for spelling in spellings for root in _REGEX_ROOTS]
        return any(_compiled(regex).match(name) for regex in self.regexes for name in names)


def module_patterns(patterns: Iterable[str], *, where: str) -> ModulePatterns:
    """Compile the patterns of a config's list.

    Args:
        where: the field they stand in, for messages.

    Raises:
        UnsupportedQuantization: a pattern that is no regular expression, or far too long.
    """
    paths, parts, prefixes, globs, regexes = set(), set(), [], [], []
    numbered = False
    for count, pattern in enumerate(patterns):
        if len(pattern) > _LONGEST_PATTERN or count > _MOST_PATTERNS:
            raise UnsupportedQuantization(f"quantization_config: {where} is too long to be module names", field=where)
        numbered = numbered or any(character.isdigit() for character in pattern)
        if pattern.startswith("re:"):
            regexes.append(_checked(pattern[3:], where))
            continue
        for ending in (".weight", ".bias"):
            pattern = pattern.removesuffix(ending)
        core = core_name(pattern)
        if "*" in core or "?" in core or "[" in core:
            if core.endswith("*") and not any(sign in core[:-1] for sign in "*?[") and len(core) > 1:
                prefixes.append(core[:-1])
            else:
                spellings = {core, core_name(f"layers.{core}").removeprefix("layers.")} if core[0] == "*" else {core}
                for glob in sorted(spellings):
                    globs.append(_checked(translate(glob)[: -len(r"\Z")] + r"(?:\..*)?\Z", where))
        elif pattern.split(".")[0] in _ROOTS or core.startswith("layers."):
            paths.add(core)
        elif core:
            parts.add(core)
    return ModulePatterns(
        frozenset(paths), frozenset(parts), tuple(prefixes), tuple(globs), tuple(dict.fromkeys(regexes)), numbered
    )


def _checked(regex: str, where: str) -> str:
    if _NESTED_REPEAT.search(regex):
        raise UnsupportedQuantization(
            f"quantization_config: {where} holds a pattern with nested repeats: {regex[:60]!r}", field=where
        )
    try:
        _compiled(regex)
    except (re.error, RecursionError, OverflowError):
        raise UnsupportedQuantization(
            f"quantization_config: {where} holds {regex[:60]!r}, which is no regular expression", field=where
        ) from None
    return regex


@lru_cache(maxsize=4096)
def _compiled(regex: str) -> re.Pattern[str]:
    return re.compile(regex)
