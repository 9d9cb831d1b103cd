"""Reading a raw config.json: every key is asked for here, with its type and its range.

A family module never touches the raw dictionary. It asks a `RawConfig`, which checks what it hands out,
names the field in every complaint, and remembers which keys were asked for, so that a key which could
change memory and was never looked at can be pointed out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from planner.errors import ConfigError

# Far above anything published (126 layers, 262,144 vocabulary rows, 10M positions in 2026), low enough that
# arithmetic on an absurd config stays instant and inside 64 bits.
LARGEST_LAYER_COUNT: Final = 2_000
LARGEST_INTEGER: Final = 1 << 40
LARGEST_LIST: Final = 100_000

_MEMORY_WORDS = (
    "window",
    "heads",
    "layers",
    "experts",
    "rank",
    "head_dim",
    "_size",
    "_dim",
    "kernel",
    "groups",
)


class _Required:
    """Marks a key that has no default."""


REQUIRED: Final = _Required()


class RawConfig:
    """One object of a config.json, read key by key.

    Args:
        values: the parsed JSON object.
        path: where the object stands, for messages ("config.json", "config.json: text_config").

    `null` counts as absent, as transformers treats it. In every reader the first name is the field's standard
    name and the rest are older aliases; the first that is present wins.
    """

    def __init__(self, values: Mapping[str, object], *, path: str = "config.json") -> None:
        self._values = values
        self.path = path
        self._asked: set[str] = set()

    def has(self, *names: str) -> bool:
        """Whether any of these keys is present and not null."""
        self._asked.update(names)
        return any(self._values.get(name) is not None for name in names)

    def given(self, name: str) -> bool:
        """Whether the key is present, null included: for fields whose class default is not null."""
        self._asked.add(name)
        return name in self._values

    def raw(self, *names: str) -> object:
        """The unchecked value of the first present key, or None. For values with several legal types."""
        self._asked.update(names)
        for name in names:
            value = self._values.get(name)
            if value is not None:
                return value
        return None

    def integer(
        self,
        *names: str,
        default: int | _Required = REQUIRED,
        minimum: int = 0,
        maximum: int = LARGEST_INTEGER,
    ) -> int:
        """A whole number within [minimum, maximum].

        Raises:
            ConfigError: absent without a default, not a whole number, or out of range; names the field.
        """
        value = self._first(names, default)
        if isinstance(value, float) and value.is_integer() and abs(value) < LARGEST_INTEGER:
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.error(names[0], f"must be a whole number, not {_short(value)}")
        if not minimum <= value <= maximum:
            raise self.error(names[0], f"is {_short(value)}; expected {minimum:,} to {maximum:,}")
        return value

    def optional_integer(self, *names: str, minimum: int = 0, maximum: int = LARGEST_INTEGER) -> int | None:
        """Like `integer`, but None when absent."""
        if not self.has(*names):
            return None
        return self.integer(*names, minimum=minimum, maximum=maximum)

    def number(self, *names: str, default: float | _Required = REQUIRED) -> float:
        """A finite number.

        Raises:
            ConfigError: absent without a default, or not a number.
        """
        value = self._first(names, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.error(names[0], f"must be a number, not {_short(value)}")
        if not abs(value) < 1e15:
            raise self.error(names[0], f"is {_short(value)}; expected an ordinary number")
        return float(value)

    def flag(self, *names: str, default: bool | _Required = REQUIRED) -> bool:
        """true or false.

        Raises:
            ConfigError: absent without a default, or not a boolean.
        """
        value = self._first(names, default)
        if not isinstance(value, bool):
            raise self.error(names[0], f"must be true or false, not {_short(value)}")
        return value

    def text(self, *names: str, default: str | _Required = REQUIRED) -> str:
        """A string.

        Raises:
            ConfigError: absent without a default, or not a string.
        """
        value = self._first(names, default)
        if not isinstance(value, str):
            raise self.error(names[0], f"must be a string, not {_short(value)}")
        return value

    def optional_text(self, *names: str) -> str | None:
        """Like `text`, but None when absent."""
        return self.text(*names) if self.has(*names) else None

    def items(self, *names: str, length: int | None = None) -> list[object] | None:
        """A list, or None when absent; `length` demands that many entries.

        Raises:
            ConfigError: not a list, too long, or of another length.
        """
        value = self.raw(*names)
        if value is None:
            return None
        if not isinstance(value, list) or len(value) > LARGEST_LIST:
            raise self.error(names[0], f"must be a list, not {_short(value)}")
        if length is not None and len(value) != length:
            raise self.error(names[0], f"has {len(value)} entries; expected {length}")
        return value

    def integers(self, *names: str, length: int | None = None, minimum: int = 0) -> list[int] | None:
        """A list of whole numbers, or None when absent.

        Raises:
            ConfigError: as `items`, or an entry that is not a whole number of at least `minimum`.
        """
        values = self.items(*names, length=length)
        if values is None:
            return None
        result = []
        for value in values:
            if isinstance(value, bool) or not isinstance(value, int) or not minimum <= value <= LARGEST_INTEGER:
                raise self.error(names[0], f"holds {_short(value)}; expected whole numbers from {minimum}")
            result.append(value)
        return result

    def texts(self, *names: str, length: int | None = None) -> list[str] | None:
        """A list of strings, or None when absent.

        Raises:
            ConfigError: as `items`, or an entry that is not a string.
        """
        values = self.items(*names, length=length)
        if values is None:
            return None
        result = []
        for value in values:
            if not isinstance(value, str):
                raise self.error(names[0], f"holds {_short(value)}; expected strings")
            result.append(value)
        return result

    def section(self, *names: str) -> RawConfig | None:
        """A nested object (text_config, vision_config, ...) as its own reader, or None when absent.

        Raises:
            ConfigError: present but not an object.
        """
        value = self.raw(*names)
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise self.error(names[0], f"must be an object, not {_short(value)}")
        return RawConfig(value, path=f"{self.path}: {names[0]}")

    def mapping(self) -> Mapping[str, object]:
        """The raw object itself, for readers of free-form parts such as quantization_config."""
        return self._values

    def error(self, field: str, problem: str) -> ConfigError:
        """The complaint about one field, ready to raise."""
        return ConfigError(f"{self.path}: {field} {problem}", field=field)

    def never_asked(self) -> list[str]:
        """Keys nobody asked for whose names say that they could change memory, sorted."""
        return sorted(
            key
            for key, value in self._values.items()
            if key not in self._asked
            and not key.startswith("_")
            and isinstance(value, int | list)
            and not isinstance(value, bool)
            and any(word in key for word in _MEMORY_WORDS)
        )

    def unread(self) -> int:
        """How many keys that could change memory, or sections, nobody asked for."""
        sections = sum(
            1
            for key, value in self._values.items()
            if key.endswith("_config") and isinstance(value, Mapping) and key not in self._asked
        )
        return sections + len(self.never_asked())

    def sizes_asked(self) -> tuple[int, int]:
        """How many keys about sizes were asked for that the object has, and how many that it does not have."""
        sizes = [key for key in self._asked if any(word in key for word in _MEMORY_WORDS)]
        present = sum(1 for key in sizes if key in self._values)
        return present, len(sizes) - present

    def _first(self, names: tuple[str, ...], default: object) -> object:
        value = self.raw(*names)
        if value is not None:
            return value
        if isinstance(default, _Required):
            also = f" (or {', '.join(names[1:])})" if len(names) > 1 else ""
            raise self.error(names[0], f"is missing{also}; it is needed to size the model")
        return default


def _short(value: object) -> str:
    if isinstance(value, list | dict):
        return f"a {'list' if isinstance(value, list) else 'object'}"
    if isinstance(value, int) and value.bit_length() > 64:
        return "an integer of more than 64 bits"
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."
