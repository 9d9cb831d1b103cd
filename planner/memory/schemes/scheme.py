"""Which format each tensor of a model is stored in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

from planner.memory.format_table import plain_format
from planner.memory.formats import Plain, WeightFormat
from planner.memory.module_names import ModulePatterns
from planner.model.tensor import Role, Tensor

# Whatever a config's lists say, quantisers and engines leave these in 16 bit: vLLM passes no quantisation to them.
NEVER: Final = frozenset({Role.EMBEDDING, Role.POSITION, Role.NORM, Role.ROUTER})
TOWERS: Final = frozenset({Role.VISION, Role.AUDIO, Role.PROJECTOR})
# DeepSeek's indexer weights and state-space matrices that no quantiser converts.
_NEVER_NAMED: Final = ("weights_proj.weight", "conv1d.weight")


class Assignment(Protocol):
    """What decides the format of a tensor."""

    @property
    def formats(self) -> tuple[WeightFormat, ...]:
        """The formats it may choose, most used first."""
        ...

    @property
    def same_for_every_layer(self) -> bool:
        """Layers of the same kind are treated alike."""
        ...

    def format_of(self, tensor: Tensor) -> WeightFormat | None:
        """The tensor's format, or None when it stays plain."""
        ...


@dataclass(frozen=True, slots=True)
class Rule:
    """A format, or None for plain, for the modules that fit.

    Args:
        modules: which ones; None: all.
        experts: only routed experts (True), everything but them (False), or either (None).
    """

    format: WeightFormat | None
    modules: ModulePatterns | None = None
    experts: bool | None = None

    def applies(self, tensor: Tensor) -> bool:
        """Whether the rule speaks of this tensor."""
        if self.experts is not None and self.experts != (tensor.num_experts > 0):
            return False
        if self.modules is None or self.modules.match(tensor.name):
            return True
        return bool(tensor.draft_name) and self.modules.match(tensor.draft_name)


@dataclass(frozen=True, slots=True)
class Rules:
    """Rules for linear layers, the first that applies winning; everything else stays plain.

    Args:
        head: what the output matrix is stored in when no rule may touch it; None: plain.
        rules_cover_head: the output matrix is a linear layer like any other.
        skip_roles: roles left plain, beside those that always are.
        skip_drafts: draft layers are left plain.
        embedding: what the token embedding is stored in; None: plain, as most quantisers leave it.
    """

    rules: tuple[Rule, ...]
    head: WeightFormat | None = None
    rules_cover_head: bool = False
    skip_roles: frozenset[Role] = frozenset()
    skip_drafts: bool = False
    embedding: WeightFormat | None = None

    @property
    def formats(self) -> tuple[WeightFormat, ...]:
        """The formats of the rules and of the head, most general first."""
        found = [rule.format for rule in reversed(self.rules)] + [self.head]
        return tuple(dict.fromkeys(stored for stored in found if stored is not None))

    @property
    def same_for_every_layer(self) -> bool:
        """No rule names single layers."""
        return not any(rule.modules is not None and rule.modules.numbered for rule in self.rules)

    def format_of(self, tensor: Tensor) -> WeightFormat | None:
        """The tensor's format, or None when it stays plain."""
        if self.embedding is not None and tensor.role is Role.EMBEDDING and len(tensor.shape) == 2:
            return self.embedding
        if not tensor.linear or tensor.role in NEVER or tensor.role in self.skip_roles:
            return None
        if self.skip_drafts and tensor.draft_name:
            return None
        if tensor.role is Role.LM_HEAD and not self.rules_cover_head:
            return self.head
        if tensor.name.endswith(_NEVER_NAMED):
            return None
        for rule in self.rules:
            if rule.applies(tensor):
                return rule.format
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightScheme:
    """How a model's weights are stored.

    Args:
        label: for reports ("bfloat16", "gptq 4-bit g128").
        plain: the type of every tensor that is not quantised and states none of its own.
        assignment: decides the others; None: all plain.
        notes: defaults chosen and what was left in 16 bit.
        spread: thousandths that the stored bytes may lie below and above, where a name does not decide them.
    """

    label: str
    plain: Plain
    assignment: Assignment | None = None
    notes: tuple[str, ...] = ()
    spread: tuple[int, int] = (0, 0)

    @property
    def same_for_every_layer(self) -> bool:
        """Layers of the same kind are stored alike, so that one of each kind is enough to look at."""
        return self.assignment is None or self.assignment.same_for_every_layer

    def format_of(self, tensor: Tensor) -> WeightFormat:
        """The format that this tensor is stored in."""
        if self.assignment is not None:
            found = self.assignment.format_of(tensor)
            if found is not None:
                return found
        return plain_format(tensor.dtype) if tensor.dtype else self.plain
