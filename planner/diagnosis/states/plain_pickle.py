"""Read a pickle of plain containers without Python's pickle machine: nothing in the file is ever called or imported.

A memory snapshot needs dict, list, tuple, str, int, float, bool and None, and so 34 opcodes. Every other opcode, GLOBAL
and REDUCE among them, is refused by name. Memory is bounded whatever the file says: memo entries are dense, depth,
strings, integers, the stack and the retained containers have limits, and each finished dict is offered to a consumer
that may replace it by something small. Opcodes: Python's pickletools, protocols 2 to 5.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, BinaryIO, NoReturn

from planner.errors import SourceError

# Limits. Real snapshots (files of up to some hundred MB) stay far below: depth 6, strings of a path's length.
MOST_DEPTH = 64
MOST_STACK = 12_000_000
MOST_STRING_BYTES = 1 << 20
MOST_INT_BYTES = 9
MOST_KEYS = 4_096
MOST_MEMO = 60_000_000
# Rough bytes of Python objects that stay alive outside what the consumer has replaced.
MOST_RETAINED_BYTES = 512 << 20
_CHUNK_BYTES = 4 << 20
_AHEAD_BYTES = MOST_STRING_BYTES + 64
# A batch of fewer items than this is a list's last: the writer's batches have 1,000.
_BATCH = 1_000

_OBJECT_BYTES = 64
_ITEM_BYTES = 40

_NAMES = {
    0x63: "GLOBAL",
    0x93: "STACK_GLOBAL",
    0x52: "REDUCE",
    0x62: "BUILD",
    0x69: "INST",
    0x6F: "OBJ",
    0x81: "NEWOBJ",
    0x92: "NEWOBJ_EX",
    0x50: "PERSID",
    0x51: "BINPERSID",
    0x82: "EXT1",
    0x83: "EXT2",
    0x84: "EXT4",
    0x8B: "LONG4",
    0x8D: "BINUNICODE8",
    0x8E: "BINBYTES8",
    0x96: "BYTEARRAY8",
    0x8F: "EMPTY_SET",
    0x91: "FROZENSET",
    0x32: "DUP",
    0x30: "POP",
    0x53: "STRING",
    0x55: "SHORT_BINSTRING",
    0x31: "POP_MARK",
    0x97: "NEXT_BUFFER",
    0x98: "READONLY_BUFFER",
}


class Consumed:
    """Stands in the place of a container whose content the consumer has taken."""

    __slots__ = ()


CONSUMED = Consumed()


def load(
    stream: BinaryIO, dict_done: Callable[[dict[Any, Any]], object], list_done: Callable[[list[Any]], object]
) -> Any:
    """The object in the pickle.

    Args:
        dict_done: given each dict when its items are in; returns the dict itself, or what takes its place.
        list_done: likewise for each list of fewer than a thousand items.

    Raises:
        SourceError: an opcode that plain containers do not need, a limit passed, or a file that ends too early.
    """
    try:
        return _run(stream, dict_done, list_done)
    except (IndexError, struct.error, UnicodeDecodeError, TypeError):
        raise SourceError("the pickle is cut off or damaged; write the snapshot again") from None


def _refuse(why: str) -> NoReturn:
    raise SourceError(f"refused: {why}; a snapshot written by torch.cuda.memory._dump_snapshot has nothing of the kind")


# One loop over the opcodes: calls per opcode would make large files several times slower.
def _run(
    stream: BinaryIO, dict_done: Callable[[dict[Any, Any]], object], list_done: Callable[[list[Any]], object]
) -> Any:
    data, position, refill_at = stream.read(_CHUNK_BYTES), 0, 0
    ended = len(data) < _CHUNK_BYTES
    refill_at = len(data) - (0 if ended else _AHEAD_BYTES)
    memo: list[Any] = []
    stack: list[Any] = []
    marks: list[tuple[list[Any], int]] = []
    # every event has its own copy of a few short texts: keep one of each
    texts: dict[bytes, str] = {}
    retained = 0
    # index in the memo of the container on top of the stack, if it was memoised by the last opcode; else -1
    fresh = -1
    while True:
        if position >= refill_at and not ended:
            more = stream.read(_CHUNK_BYTES)
            ended = len(more) < _CHUNK_BYTES
            data, position = data[position:] + more, 0
            refill_at = len(data) - (0 if ended else _AHEAD_BYTES)
            if len(stack) + sum(len(below) for below, _ in marks) > MOST_STACK or len(memo) > MOST_MEMO:
                _refuse("more values at once than any snapshot holds")
            if retained > MOST_RETAINED_BYTES:
                _refuse("more distinct containers and texts than any snapshot holds")
        code = data[position]
        position += 1
        if code == 0x68:  # BINGET
            value = memo[data[position]]
            position += 1
            if value is CONSUMED:
                _refuse("one record is used in two places")
            stack.append(value)
        elif code == 0x6A:  # LONG_BINGET
            value = memo[int.from_bytes(data[position : position + 4], "little")]
            position += 4
            if value is CONSUMED:
                _refuse("one record is used in two places")
            stack.append(value)
        elif code == 0x94:  # MEMOIZE
            fresh = len(memo)
            memo.append(stack[-1])
            continue
        elif code == 0x28:  # MARK
            if len(marks) >= MOST_DEPTH:
                _refuse(f"nesting deeper than {MOST_DEPTH}")
            marks.append((stack, fresh))
            stack = []
        elif code == 0x75:  # SETITEMS
            items = stack
            stack, index = marks.pop()
            target = stack[-1]
            if type(target) is not dict or len(items) % 2:
                raise TypeError
            if len(items) + len(target) > 2 * MOST_KEYS:
                _refuse(f"a dict of more than {MOST_KEYS} keys")
            for i in range(0, len(items), 2):
                if type(items[i]) is not str:
                    _refuse("a key that is no text")
                target[items[i]] = items[i + 1]
            value = dict_done(target)
            if value is target:
                retained += _ITEM_BYTES * 2 * len(items)
            else:
                stack[-1] = value
                retained -= _OBJECT_BYTES
                if 0 <= index < len(memo) and memo[index] is target:
                    memo[index] = CONSUMED if value is CONSUMED else value
        elif code == 0x65:  # APPENDS
            items = stack
            stack, index = marks.pop()
            target = stack[-1]
            if type(target) is not list:
                raise TypeError
            target.extend(items)
            retained += 8 * len(items) if items and items[0] is CONSUMED else _ITEM_BYTES * len(items)
            if len(items) < _BATCH and len(target) == len(items):
                value = list_done(target)
                if value is not target:
                    stack[-1] = value
                    retained -= _OBJECT_BYTES + _ITEM_BYTES * len(items)
                    if 0 <= index < len(memo) and memo[index] is target:
                        memo[index] = value
        elif code == 0x7D:  # EMPTY_DICT
            stack.append({})
            retained += _OBJECT_BYTES
        elif code == 0x4B:  # BININT1
            stack.append(data[position])
            position += 1
        elif code == 0x4A:  # BININT
            stack.append(int.from_bytes(_take(data, position, 4), "little", signed=True))
            position += 4
        elif code == 0x4D:  # BININT2
            stack.append(int.from_bytes(_take(data, position, 2), "little"))
            position += 2
        elif code == 0x8A:  # LONG1
            size = data[position]
            if size > MOST_INT_BYTES:
                _refuse(f"an integer of {size} bytes")
            stack.append(int.from_bytes(_take(data, position + 1, size), "little", signed=True))
            position += 1 + size
        elif code == 0x8C or code == 0x58:  # SHORT_BINUNICODE, BINUNICODE
            width = 1 if code == 0x8C else 4
            size = int.from_bytes(_take(data, position, width), "little")
            if size > MOST_STRING_BYTES:
                _refuse(f"a text of {size} bytes")
            position += width
            piece = _take(data, position, size)
            position += size
            text = texts.get(piece)
            if text is None:
                text = texts[piece] = piece.decode("utf-8", "surrogatepass")
                retained += 3 * _OBJECT_BYTES + 2 * size
            stack.append(text)
        elif code == 0x5D:  # EMPTY_LIST
            stack.append([])
            retained += _OBJECT_BYTES
        elif code == 0x88 or code == 0x89:  # NEWTRUE, NEWFALSE
            stack.append(code == 0x88)
        elif code == 0x4E:  # NONE
            stack.append(None)
        elif code == 0x86:  # TUPLE2
            stack[-2:] = [(stack[-2], stack[-1])]
            retained += _OBJECT_BYTES
        elif code == 0x95:  # FRAME: only a hint of how much follows
            position += 8
        elif code == 0x71 or code == 0x72:  # BINPUT, LONG_BINPUT
            width = 1 if code == 0x71 else 4
            at = int.from_bytes(_take(data, position, width), "little")
            position += width
            if at > len(memo):
                _refuse(f"memo entry {at} before entry {len(memo)}")
            if at == len(memo):
                memo.append(stack[-1])
            else:
                memo[at] = stack[-1]
            fresh = at
            continue
        elif code == 0x47:  # BINFLOAT
            stack.append(struct.unpack(">d", _take(data, position, 8))[0])
            position += 8
        elif code == 0x61:  # APPEND
            value = stack.pop()
            if type(stack[-1]) is not list:
                raise TypeError
            stack[-1].append(value)
            retained += _ITEM_BYTES
        elif code == 0x73:  # SETITEM
            value, key = stack.pop(), stack.pop()
            if type(stack[-1]) is not dict:
                raise TypeError
            if type(key) is not str or len(stack[-1]) >= MOST_KEYS:
                _refuse(f"a key that is no text, or a dict of more than {MOST_KEYS} keys")
            stack[-1][key] = value
            retained += 2 * _ITEM_BYTES
        elif code == 0x29:  # EMPTY_TUPLE
            stack.append(())
        elif code == 0x85:  # TUPLE1
            stack[-1:] = [(stack[-1],)]
            retained += _OBJECT_BYTES
        elif code == 0x87:  # TUPLE3
            stack[-3:] = [(stack[-3], stack[-2], stack[-1])]
            retained += _OBJECT_BYTES
        elif code == 0x74:  # TUPLE
            items = stack
            stack = marks.pop()[0]
            stack.append(tuple(items))
            retained += _OBJECT_BYTES + 8 * len(items)
        elif code == 0x80:  # PROTO
            if not 2 <= data[position] <= 5:
                _refuse(f"pickle protocol {data[position]}")
            position += 1
        elif code == 0x2E:  # STOP
            if len(stack) != 1 or marks:
                raise TypeError
            return stack[0]
        else:
            _refuse(f"opcode {_NAMES.get(code, hex(code))}, which plain data does not need and which may run code")
        fresh = -1


def _take(data: bytes, position: int, size: int) -> bytes:
    """`size` bytes; a shorter rest means that the file is cut off."""
    piece = data[position : position + size]
    if len(piece) != size:
        raise IndexError
    return piece
