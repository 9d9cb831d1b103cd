"""One declaration of an input, and everything that comes from it.

The inputs of a plan are frozen, keyword-only dataclasses. A field's `Annotated` metadata carries its range
(annotated-types) and an `Option`:

    max_num_seqs: Annotated[int | None, Ge(1), option("Requests in a batch.", panel=BATCH)] = None

From it come the command line (`parse`), the checks and their messages (`check`), the words of a printed command
(`words_of`), the echo in JSON (`echo`), and the lists that help, documentation and completion print (`inputs_of`).
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin, get_type_hints

from planner.contract.reading import READERS, Reader, shown
from planner.errors import UsageError

Memory = Literal["card", "host", "none", "unknown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """What a field says of itself beside its type, range and default.

    Args:
        help: one sentence for help and documentation.
        panel: the group it is listed in.
        spellings: the program's own, long ones first ("--tensor-parallel-size", "-tp"); empty: the field's name with
            dashes. An underscore is as good as a dash.
        switched_off: spellings that set a switch to False; "--no-..." of the first is always one.
        environment: variables that set it where the command line does not, each with what reads it (None: no value).
        bare: the value of the option given without one ("" : it needs one).
        unit: "bytes", "GiB", "tokens"; how a number is meant.
        read: a value from the text that was typed; None: by type.
        write: the text that is read back as this value; None: as it prints.
        choices: the values that are allowed, where they are few.
        memory: what it can change the need of.
        common: among the ten that matter first.
        ours: no option of the engine or trainer: it never stands in a printed command.
        several: may be given more than once, as a list.
    """

    help: str
    panel: str = ""
    spellings: tuple[str, ...] = ()
    switched_off: tuple[str, ...] = ()
    environment: Mapping[str, Reader] = dataclasses.field(default_factory=dict)
    bare: str = ""
    unit: str = ""
    read: Reader | None = None
    write: Callable[[Any], str] | None = None
    choices: tuple[str, ...] = ()
    memory: Memory = "card"
    common: bool = False
    ours: bool = False
    several: bool = False


def option(help: str, *spellings: str, **settings: Any) -> Option:
    """The metadata of a field: its help, its spellings where they are not its name, and the rest of `Option`."""
    return Option(help=help, spellings=spellings, **settings)


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """A declared field: its name, what it may hold, and its option.

    Args:
        kinds: types of its values (a whole number is a number too).
        items: the type of a tuple's members.
        low, high: bounds, None where there is none; `above` excludes the lower one, `below` the upper one.
    """

    name: str
    kinds: tuple[type, ...]
    items: type | None
    default: Any
    low: float | None
    high: float | None
    above: bool
    below: bool
    option: Option

    @property
    def spelling(self) -> str:
        """How it is written in a command and named in messages."""
        return self.spellings[0]

    @property
    def spellings(self) -> tuple[str, ...]:
        """Every spelling, the one for commands first."""
        return self.option.spellings or (f"--{self.name.removesuffix('_bytes').replace('_', '-')}",)

    @property
    def is_switch(self) -> bool:
        """It is on or off (or not said)."""
        return bool in self.kinds

    @property
    def optional(self) -> bool:
        """None is a value: the program's own default."""
        return types.NoneType in self.kinds


_DECLARED: Final[dict[type, tuple[Input, ...]]] = {}


def inputs_of(record: type[Any]) -> tuple[Input, ...]:
    """The declared inputs of a record in order; fields without an `Option` are no inputs."""
    found = _DECLARED.get(record)
    if found is None:
        found = _DECLARED[record] = tuple(_declared(record))
    return found


def _declared(record: type[Any]) -> Iterator[Input]:
    hints = get_type_hints(record, include_extras=True)
    for field in dataclasses.fields(record):
        hint = hints[field.name]
        if get_origin(hint) is not Annotated:
            continue
        annotation, *metadata = get_args(hint)
        said = next((one for one in metadata if isinstance(one, Option)), None)
        if said is not None:
            yield _input(field, annotation, metadata, said)


def _input(field: dataclasses.Field[Any], annotation: object, metadata: Sequence[object], said: Option) -> Input:
    union = get_origin(annotation) in (Union, types.UnionType)
    kinds: list[type] = []
    items, choices = None, said.choices
    for one in get_args(annotation) if union else (annotation,):
        origin = get_origin(one) or one
        if origin is Literal:
            choices = choices or get_args(one)
            origin = str
        assert isinstance(origin, type), f"{field.name}: {annotation} is more than a declaration reads"
        if origin is tuple:
            items = get_args(one)[0]
        kinds += [origin, int] if origin is float else [origin]
    low = high = None
    above = below = False
    for rule in metadata:
        low = getattr(rule, "ge", low)
        high = getattr(rule, "le", high)
        if getattr(rule, "gt", None) is not None:
            low, above = rule.gt, True  # type: ignore[attr-defined]
        if getattr(rule, "lt", None) is not None:
            high, below = rule.lt, True  # type: ignore[attr-defined]
    return Input(
        name=field.name,
        kinds=tuple(kinds),
        items=items,
        default=field.default,
        low=low,
        high=high,
        above=above,
        below=below,
        option=dataclasses.replace(said, choices=tuple(choices)),
    )


def input_named(record: type, name: str) -> Input:
    """The input of this field name."""
    return next(one for one in inputs_of(record) if one.name == name)


_WORDS: Final[dict[type, str]] = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}


def check(record: Any) -> None:
    """Every input holds a value of its type, within its range and choices.

    Raises:
        UsageError: names the option, its value and what it may be.
    """
    for one in inputs_of(type(record)):
        value = getattr(record, one.name)
        if value is one.default:
            continue
        reason = _wrong(one, value)
        if reason:
            raise UsageError(f"{one.spelling} is {shown(value)}; expected {reason}", field=one.name)


def _wrong(one: Input, value: object) -> str:
    """What was expected instead; empty where the value is right."""
    known = isinstance(value, one.kinds) and (bool in one.kinds or not isinstance(value, bool))
    if known and one.items is not None and isinstance(value, tuple):
        known = all(isinstance(item, one.items) and not isinstance(item, bool) for item in value)
    if not known:
        words = [_WORDS.get(kind, kind.__name__) for kind in one.kinds if kind is not types.NoneType]
        if float in one.kinds:
            words.remove("a whole number")
        if one.items is not None:
            words = [f"several of {_WORDS.get(one.items, one.items.__name__)}"]
        return " or ".join(words)
    members = value if isinstance(value, tuple) else (value,)
    for member in members:
        if one.option.choices and isinstance(member, str) and member not in one.option.choices:
            return ", ".join(one.option.choices)
        if isinstance(member, int | float) and not isinstance(member, bool):
            reason = _outside(one, member)
            if reason:
                return reason
    return ""


def _outside(one: Input, value: float) -> str:
    if one.low is not None and (value < one.low or (one.above and value == one.low) or value != value):
        if one.above:
            return f"above {one.low:g}" + (f" and at most {one.high:g}" if one.high is not None else "")
        return f"{one.low:,g} or more"
    if one.high is not None and (value > one.high or (one.below and value == one.high)):
        if one.below:
            return f"below {one.high:g}"
        if one.above:
            return f"above {one.low:g} and at most {one.high:g}"
        return f"at most {int(one.high):,}" if one.high == int(one.high) else f"at most {one.high:g}"
    return ""


def read_value(one: Input, text: str, *, spelled: str = "") -> Any:
    """The value that a text means.

    Args:
        spelled: the option as it was typed, for messages.

    Raises:
        UsageError: not a value of this input.
    """
    name = spelled or one.spelling
    if one.option.read is not None:
        return one.option.read(text, name)
    if one.items is not None:
        return tuple(READERS[one.items](part.strip(), name) for part in text.strip("[]()").split(",") if part.strip())
    if one.option.choices:
        found = next((choice for choice in one.option.choices if choice.lower() == text.lower()), None)
        if found is None:
            raise UsageError(f"{name} is {shown(text)}; expected {', '.join(one.option.choices)}", field=one.name)
        return found
    kind = next(kind for kind in (bool, float, int, str) if kind in one.kinds)
    return READERS[kind](text, name)


def words_of(record: Any, *, always: Mapping[str, Any] | None = None, leave: Iterable[str] = ()) -> Iterator[str]:
    """The words of a command line that give a record back: what differs from its default, in declared order.

    Args:
        always: values to spell out in any case, by field; they replace the record's own.
        leave: fields that stand elsewhere in the command.
    """
    stated, left = dict(always or {}), set(leave)
    for one in inputs_of(type(record)):
        if one.option.ours or one.name in left:
            continue
        value = stated.get(one.name, getattr(record, one.name))
        if value is None or (one.name not in stated and value == one.default):
            continue
        yield from spelled_out(one, value)


def spelled_out(one: Input, value: Any) -> Iterator[str]:
    """The words that set an input to a value."""
    if one.option.write is not None:
        yield from (one.spelling, one.option.write(value))
    elif isinstance(value, bool):
        yield one.spelling if value else switched_off(one)
    elif isinstance(value, tuple):
        yield from (one.spelling, ",".join(str(item) for item in value))
    else:
        yield from (one.spelling, str(value))


def switched_off(one: Input) -> str:
    """The spelling that sets a switch to False."""
    return one.option.switched_off[0] if one.option.switched_off else f"--no-{one.spelling.lstrip('-')}"


def echo(record: Any) -> dict[str, object]:
    """Every input as plain JSON values under its own name."""
    return {one.name: plain(getattr(record, one.name)) for one in inputs_of(type(record))}


def plain(value: Any) -> object:
    """A value as JSON has it: a tuple is a list, a record with a name its name, lengths their text."""
    if isinstance(value, tuple):
        return [plain(item) for item in value]
    if value is None or isinstance(value, str | int | float | bool):
        return value
    return str(getattr(value, "name", value))
