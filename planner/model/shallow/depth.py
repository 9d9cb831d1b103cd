"""Cutting a model's depth: which depths keep the pattern of its layers, and the config of a shallower model.

A stack is a prefix (leading dense layers of an expert model) and then a pattern that repeats (five windows and a full
attention). Two depths that differ by whole repeats measure what one repeat costs; the rest follows by a straight line.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from planner.errors import ConfigError, UsageError
from planner.model.model import Model
from planner.model.spec import Layer

_COUNT_KEYS: Final = ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "num_decoder_layers")
# The first layer's input is the embedding's output, which the model's forward holds anyway: one layer is no sample.
_LEAST: Final = 2
_NESTED: Final = ("text_config", "llm_config", "language_config", "thinker_config")


@dataclass(frozen=True, slots=True, kw_only=True)
class Depths:
    """Two depths of a stack of `total` layers; `deep - shallow` and `total - deep` are whole repeats."""

    shallow: int
    deep: int
    total: int

    def extrapolate(self, shallow_value: int, deep_value: int) -> int:
        """The value at full depth of something that grows by the same amount with every repeat."""
        if self.deep == self.total:
            return deep_value
        return deep_value + (self.total - self.deep) * (deep_value - shallow_value) // (self.deep - self.shallow)


def pattern(layers: tuple[Layer, ...]) -> tuple[int, int]:
    """(prefix, period) of a stack: the layers after the prefix repeat with this period; the shortest sum of the two."""
    kinds: dict[Layer, int] = {}
    codes = [kinds.setdefault(layer, len(kinds)) for layer in layers]
    total = len(codes)
    for size in range(1, total + 1):
        for period in range(1, size + 1):
            prefix = size - period
            if all(codes[index] == codes[index - period] for index in range(prefix + period, total)):
                return prefix, period
    return 0, total


def depths_for(layers: tuple[Layer, ...], wanted: int) -> Depths:
    """The two depths to run when about `wanted` layers are asked for.

    The deeper one is the largest within `wanted` that is whole repeats above the other, and at least one repeat.

    Raises:
        UsageError: fewer than one layer, or the pattern needs more layers than the model has to repeat even once.
    """
    total = len(layers)
    if not 1 <= wanted <= total:
        raise UsageError(f"--layers is {wanted}; expected 1 to {total}, the model's depth", field="layers")
    if wanted == total:
        return Depths(shallow=total, deep=total, total=total)
    prefix, period = pattern(layers)
    shallow = next((depth for depth in range(max(_LEAST, prefix), total + 1) if (total - depth) % period == 0), total)
    deep = shallow + max(1, (wanted - shallow) // period) * period
    if deep >= total:
        raise UsageError(
            f"--layers {wanted}: the layers of this model repeat after {prefix} + {period}, and two such depths are no"
            f" less than its {total}; leave --layers out",
            field="layers",
        )
    return Depths(shallow=shallow, deep=deep, total=total)


def cut_config(values: Mapping[str, object], layers: int, *, total: int) -> dict[str, object]:
    """The config with its decoder's depth set to `layers`, per-layer lists and patterns cut with it.

    Raises:
        ConfigError: no key states the depth.
    """
    found = dict(values)
    for nested in _NESTED:
        part = found.get(nested)
        if isinstance(part, Mapping) and any(part.get(key) == total for key in _COUNT_KEYS):
            found[nested] = _cut(part, layers, total)
            return found
    if any(found.get(key) == total for key in _COUNT_KEYS):
        return _cut(found, layers, total)
    raise ConfigError(f"no key of the config says {total} layers, so its depth cannot be cut", field="layers")


def _cut(values: Mapping[str, object], layers: int, total: int) -> dict[str, object]:
    found: dict[str, object] = {}
    for key, value in values.items():
        if key in _COUNT_KEYS and value == total:
            found[key] = layers
        elif (isinstance(value, list) or (isinstance(value, str) and "pattern" in key)) and len(value) == total:
            found[key] = value[:layers]
        elif isinstance(value, list) and key != "eos_token_id" and all(isinstance(item, int) for item in value):
            # lists of layer numbers (full_attn_idxs, attention layers)
            is_index = key.endswith(("_idxs", "_layers", "_indices", "_layer_ids"))
            found[key] = [item for item in value if item < layers] if is_index else value
        else:
            found[key] = value
    return found


def check_cut(whole: Model, cut: Model, layers: int) -> None:
    """The shallower model is the first `layers` of the whole one.

    Raises:
        ConfigError: it is not: some key of the config places layers by the depth.
    """
    if cut.spec.layers != whole.spec.layers[:layers]:
        raise ConfigError(
            f"cut to {layers} layers, the config describes other layers than the first {layers} of the whole model",
            field="layers",
        )
