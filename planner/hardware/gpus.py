"""GPUs: what the driver reports, how fast the memory is, and which card a name means.

The table is `gpus.csv` beside this module, one card a row, each with its sources. Sizes in it are those that a
program sees on native Linux (cudaGetDeviceProperties, torch), not those on the box: an H100 with "80 GB" reports
79.19 GiB, because the driver keeps a part. Apple's chips share the machine's memory and are listed once for each
size sold, with the share that macOS allows the GPU (`apple_memory.csv`).
"""

from __future__ import annotations

import csv
import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import resources
from typing import Final, Literal

from planner.errors import UnknownGpu
from planner.hardware.names import GENERIC, QUALIFIERS, is_size, squeezed, words
from planner.units import GIB, MIB, gib

Evidence = Literal["exact", "measured", "assumed"]

# How far a total given by the rules of the table may lie from the truth. The same rules, applied to the 70 NVIDIA rows
# that have a reading: the reserve is at most 110 MiB above the rule (A40) and 245 MiB below it (RTX 3080 12 GB on an
# older driver); for drivers 580 and later mostly within 70 MiB. GH200, 598 MiB above, has its own reading.
RULE_LOW_ERROR_BYTES: Final = 110 * MIB
RULE_HIGH_ERROR_BYTES: Final = 250 * MIB

_LONGEST_NAME: Final = 120
_MOST_CHOICES: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One card, or one device of a card that shows itself as several.

    Sizes in bytes, rates in bytes and operations a second; None where no source gives the figure.
    `evidence` says where the memory comes from: `measured` (read off a driver), `assumed` (worked out from cards of
    the family, or recalled), `exact` (given by the user).
    """

    id: str
    name: str
    aliases: tuple[str, ...] = ()
    vendor: str
    architecture: str
    compute_capability: str | None = None
    sm_count: int | None = None
    marketing_gb: int | None = None
    reported_memory_bytes: int | None
    min_memory_bytes: int | None = None
    max_memory_bytes: int | None = None
    nvidia_smi_bytes: int | None = None
    memory_note: str = ""
    bandwidth_bytes_per_second: int | None = None
    fp16_flops: int | None = None
    fp8_flops: int | None = None
    int8_ops: int | None = None
    fp4_flops: int | None = None
    interconnect: str = ""
    unified_memory: bool = False
    supports_bf16: bool = True
    supports_fp8: bool = False
    supports_fp4: bool = False
    evidence: Evidence
    sources: str = ""
    confidence: str = ""
    notes: tuple[str, ...] = ()

    @property
    def total_memory_bytes(self) -> int:
        """What a program is told that the card has, in bytes.

        Raises:
            UnknownGpu: no source says, or it is set in firmware; `with_memory` gives it.
        """
        if self.reported_memory_bytes is None:
            why = f" ({self.memory_note})" if self.memory_note else ""
            raise UnknownGpu(
                f"--gpu: what the driver reports for {self.name} is not known{why}; "
                "give it with --gpu-memory, e.g. --gpu-memory 64GiB",
                field="gpu",
            )
        return self.reported_memory_bytes

    @property
    def capability(self) -> tuple[int, int] | None:
        """The CUDA compute capability as (major, minor); None for what is not an NVIDIA card."""
        if self.vendor != "NVIDIA" or self.compute_capability is None:
            return None
        major, _, minor = self.compute_capability.partition(".")
        return int(major), int(minor or 0)

    def dense_ops(self, dtype: Literal["fp16", "bf16", "fp8", "int8", "fp4"]) -> int | None:
        """Dense matrix operations a second in this number format, with 32-bit accumulation; None if unknown."""
        rates = {
            "fp16": self.fp16_flops,
            "bf16": self.fp16_flops,
            "fp8": self.fp8_flops,
            "int8": self.int8_ops,
            "fp4": self.fp4_flops,
        }
        return rates[dtype]

    def with_memory(self, total_bytes: int) -> Gpu:
        """The same card with the memory that its driver is known to report, in bytes."""
        return dataclasses.replace(
            self,
            reported_memory_bytes=total_bytes,
            min_memory_bytes=total_bytes,
            max_memory_bytes=total_bytes,
            evidence="exact",
            notes=(),
        )


def unnamed_gpu(total_bytes: int) -> Gpu:
    """A card of which nothing but the memory is known (bytes), for plans made with a size alone."""
    return Gpu(
        id="unnamed",
        name="unnamed card",
        vendor="",
        architecture="",
        reported_memory_bytes=total_bytes,
        min_memory_bytes=total_bytes,
        max_memory_bytes=total_bytes,
        supports_fp8=True,
        supports_fp4=True,
        evidence="exact",
    )


@cache
def load_gpus() -> tuple[Gpu, ...]:
    """Every card of the table, in its order."""
    return tuple(entry.gpu for entry in _entries())


def find_gpu(text: str, *, memory_bytes: int | None = None) -> Gpu:
    """The card that a name means: "4090", "RTX 4090", "a100 80gb", "H100", or what the driver calls it.

    Case, dashes, spaces and vendor names do not matter. A name that belongs to cards with different memory is
    refused, with what to type instead. Cards of one name and one memory size differ in form only; then the one
    with this very alias in the table is meant, else SXM before the rest, else the first in the table
    (an H100 is the SXM one).

    Args:
        memory_bytes: what the driver reports on the machine in question; settles which of several cards is meant
            and replaces the table's figure.

    Raises:
        UnknownGpu: no card has this name, or several with different memory.
    """
    found = _match(str(text), memory_bytes)  # 4090 is a name too
    return found if memory_bytes is None else found.with_memory(memory_bytes)


class _Entry:
    """A row of the table, or one memory size of a row that lists several; parsed when asked for."""

    def __init__(self, cells: dict[str, str], *, marketing_gb: int | None, memory: _AppleMemory | None = None) -> None:
        self._cells = cells
        self._memory = memory
        self.marketing_gb = marketing_gb
        self.id = cells["id"] if memory is None else f"{cells['id']}-{marketing_gb}gb"

    @property
    def name(self) -> str:
        return self._cells["name"] if self._memory is None else f"{self._cells['name']} {self.marketing_gb} GB"

    @property
    def aliases(self) -> list[str]:
        aliases = [alias for alias in self._cells["aliases"].split(";") if alias]
        return aliases if self._memory is None else [f"{alias} {self.marketing_gb}gb" for alias in aliases]

    @cached_property
    def squeezed(self) -> str:
        return squeezed(f"{self.id} {self._cells['name']} {self._cells['aliases']}")

    @cached_property
    def alias_words(self) -> frozenset[tuple[str, ...]]:
        return frozenset(words(alias) for alias in self.aliases)

    @cached_property
    def words(self) -> frozenset[str]:
        sizes = [f"{size}gb" for size in self._cells["marketing_gb"].split(";") if size]
        if self._memory is not None:
            sizes = [f"{self.marketing_gb}gb"]
        texts = [self.id, self._cells["name"], *self._cells["aliases"].split(";")]
        return frozenset(word for text in texts for word in words(text)).union(sizes)

    @cached_property
    def qualifiers(self) -> frozenset[str]:
        return QUALIFIERS.intersection(words(self.id))

    @cached_property
    def gpu(self) -> Gpu:
        cells = self._cells
        reported = _gib_bytes(cells["torch_total_gib_typical"])
        low, high = _gib_bytes(cells["torch_total_gib_min"]), _gib_bytes(cells["torch_total_gib_max"])
        if reported is not None and low is None:
            low, high = reported - RULE_LOW_ERROR_BYTES, reported + RULE_HIGH_ERROR_BYTES
        sources, confidence = cells["sources"], cells["confidence"]
        if self._memory is not None:
            reported, low, high = self._memory.typical_bytes, self._memory.low_bytes, self._memory.high_bytes
            sources, confidence = f"{self._memory.source}; {sources}", "low"
        smi_mib = cells["nvidia_smi_mib"]
        return Gpu(
            id=self.id,
            name=self.name,
            aliases=tuple(self.aliases),
            vendor=cells["vendor"],
            architecture=cells["architecture"],
            compute_capability=cells["compute_capability"] or None,
            sm_count=int(cells["sm_count"]) if cells["sm_count"] else None,
            marketing_gb=self.marketing_gb,
            reported_memory_bytes=reported,
            min_memory_bytes=low,
            max_memory_bytes=high,
            nvidia_smi_bytes=int(smi_mib) * MIB if smi_mib else None,
            memory_note=cells["ecc_note"],
            bandwidth_bytes_per_second=_scaled(cells["bandwidth_gb_s"], 10**9),
            fp16_flops=_scaled(cells["fp16_dense_tflops"], 10**12),
            fp8_flops=_scaled(cells["fp8_dense_tflops"], 10**12),
            int8_ops=_scaled(cells["int8_tops"], 10**12),
            fp4_flops=_scaled(cells["fp4_tflops"], 10**12),
            interconnect=cells["interconnect"],
            unified_memory=cells["unified_memory"] == "true",
            supports_bf16=cells["supports_bf16"] == "true",
            supports_fp8=cells["supports_fp8"] == "true",
            supports_fp4=cells["supports_fp4"] == "true",
            evidence="measured" if cells["memory_evidence"] == "measured" else "assumed",
            sources=sources,
            confidence=confidence,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _AppleMemory:
    """What macOS lets the GPU of a machine with this much memory use, in bytes."""

    low_bytes: int
    typical_bytes: int
    high_bytes: int
    source: str


@cache
def _entries() -> tuple[_Entry, ...]:
    result: list[_Entry] = []
    for cells in _table("gpus.csv"):
        sizes = [int(size) for size in cells["marketing_gb"].split(";") if size]
        if cells["vendor"] == "Apple" and sizes:
            limits = _apple_limits()
            result.extend(_Entry(cells, marketing_gb=size, memory=limits[size]) for size in sizes)
        else:
            result.append(_Entry(cells, marketing_gb=sizes[0] if len(sizes) == 1 else None))
    return tuple(result)


def _table(name: str) -> Iterable[dict[str, str]]:
    text = resources.files("planner.hardware").joinpath(name).read_text(encoding="utf-8")
    rows = csv.reader(text.splitlines())
    header = next(rows)
    return (dict(zip(header, row, strict=True)) for row in rows)


@cache
def _apple_limits() -> dict[int, _AppleMemory]:
    """By gigabytes of RAM: the default policy, and the lowest and highest limit ever seen beside it."""
    by_size: dict[int, list[dict[str, str]]] = {}
    for row in _table("apple_memory.csv"):
        by_size.setdefault(int(row["ram_gb"]), []).append(row)
    limits = {}
    for size, rows in by_size.items():
        policy = int(rows[0]["default_gpu_limit_mib_old_rule"])
        seen = [int(row["seen_mib"]) for row in rows if row["seen_mib"]]
        limits[size] = _AppleMemory(
            low_bytes=min([policy, *seen]) * MIB,
            typical_bytes=policy * MIB,
            high_bytes=max([policy, *seen]) * MIB,
            source=f"memory: macOS default, {rows[0]['rule_fraction']} of RAM; {rows[0]['sources']}",
        )
    return limits


def _gib_bytes(cell: str) -> int | None:
    return round(float(cell) * GIB) if cell else None


def _scaled(cell: str, scale: int) -> int | None:
    return round(float(cell) * scale) if cell else None


def _match(text: str, memory_bytes: int | None) -> Gpu:
    by_driver_name = [
        entry
        for entry in _entries()
        if text.strip().casefold() in (entry.name.casefold(), entry.id) and "mod" not in entry.qualifiers
    ]
    if len(by_driver_name) == 1:
        return by_driver_name[0].gpu
    typed = words(text) if len(text) <= _LONGEST_NAME else ()
    candidates = _candidates(typed)
    if not candidates:
        raise UnknownGpu(_unknown(text, typed), field="gpu")
    if memory_bytes is not None:
        nearest = min(abs(_size_bytes(entry) - memory_bytes) for entry in candidates)
        candidates = [entry for entry in candidates if abs(_size_bytes(entry) - memory_bytes) == nearest]
    elif len({entry.marketing_gb for entry in candidates}) > 1:
        raise UnknownGpu(_ambiguous(text, candidates), field="gpu")
    best = min(candidates, key=lambda entry: (typed not in entry.alias_words, "sxm" not in entry.words))
    others = [
        f"{entry.gpu.name} reports {gib(entry.gpu.reported_memory_bytes)} GiB (--gpu {entry.id})"
        for entry in candidates
        if entry.gpu.reported_memory_bytes not in (None, best.gpu.reported_memory_bytes)
        and entry.gpu.reported_memory_bytes is not None
    ]
    if not others:
        return best.gpu
    note = f"{text.strip()!r} taken as {best.gpu.name}; {', '.join(others)}"
    return dataclasses.replace(best.gpu, notes=(note,))


def _candidates(typed: Sequence[str]) -> list[_Entry]:
    """The cards that have all the words; those of them with no qualifier that was not typed, if there are any."""
    telling = [word for word in typed if word not in GENERIC and not is_size(word)]
    if not telling:
        return [entry for entry in _entries() if tuple(typed) in entry.alias_words]
    matching = [
        entry
        for entry in _entries()
        if all(word in entry.squeezed for word in telling) and entry.words.issuperset(typed)
    ]
    plain = [entry for entry in matching if entry.qualifiers.issubset(typed)]
    return plain or matching


def _size_bytes(entry: _Entry) -> int:
    return entry.gpu.reported_memory_bytes or (entry.marketing_gb or 0) * GIB


def _ambiguous(text: str, candidates: Sequence[_Entry]) -> str:
    choices: list[str] = []
    for entry in candidates:
        reported = entry.gpu.reported_memory_bytes
        shown = f"{entry.marketing_gb} GB" if reported is None else f"{gib(reported)} GiB"
        choice = f"{_what_to_type(text, entry)!r} ({shown})"
        if choice not in choices:
            choices.append(choice)
    return (
        f"--gpu: cards called {text.strip()!r} differ in memory: {', '.join(choices[:_MOST_CHOICES])}; "
        "type one of these, or add --gpu-memory"
    )


def _what_to_type(text: str, entry: _Entry) -> str:
    """The typed name with the size behind it where that is enough to mean this card, else its id."""
    longer = f"{text.strip().lower()} {entry.marketing_gb}gb"
    if not entry.qualifiers.issubset(words(longer)):
        return entry.id
    found = _candidates(words(longer))
    return longer if entry in found and {other.marketing_gb for other in found} == {entry.marketing_gb} else entry.id


def _unknown(text: str, typed: Sequence[str]) -> str:
    import difflib  # only a wrong name needs it

    shown = repr(text if len(text) <= 60 else text[:57] + "...")
    if any(word[:-1].isdigit() and word.endswith("x") for word in typed):
        return f"--gpu: {shown} names several cards; name one, and give the number as --tensor-parallel-size"
    other_sizes = _candidates([word for word in typed if not is_size(word)])
    if other_sizes:
        near = [f"{entry.id} ({entry.marketing_gb} GB)" for entry in other_sizes[:3] if entry.marketing_gb]
    else:
        spellings = {" ".join(words(name)): name for entry in _entries() for name in (*entry.aliases, entry.id)}
        matches = difflib.get_close_matches(" ".join(typed), spellings, n=3, cutoff=0.5) if typed else []
        near = [spellings[match] for match in matches]
    hint = f"nearest: {', '.join(near)}; " if near else ""
    return (
        f"--gpu: no card called {shown} in the table; {hint}"
        "list them with `vram-planner gpus`, or plan with --gpu-memory alone, e.g. --gpu-memory 79.19GiB"
    )
