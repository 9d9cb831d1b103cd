"""What a card costs an hour: stated by the user, on the line or in a file. Nothing is bundled."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Final

from planner.contract.inputs import option
from planner.errors import SourceError, UnknownGpu, UsageError
from planner.hardware.gpus import find_gpu

_LARGEST_FILE: Final = 4 << 20
_HIGHEST: Final = 1e9
_OLD_DAYS: Final = 90
_SECONDS_AN_HOUR: Final = 3600
_REQUIRED: Final = ("card", "provider", "usd_per_hour", "date")


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """Dollars an hour of one card, who asks it in which tier (spot, reserved), and when it was read.

    Provider, tier and date are "" where the user stated the price.
    """

    usd_per_hour: float
    provider: str = ""
    tier: str = ""
    date: str = ""

    @property
    def old(self) -> bool:
        """Read more than 90 days ago."""
        return bool(self.date) and (date.today() - date.fromisoformat(self.date)).days > _OLD_DAYS

    def in_words(self, cards: int) -> str:
        """The price of so many cards, with provider and date."""
        whence = (
            f" ({' '.join(part for part in (self.provider, self.tier, self.date) if part)})" if self.provider else ""
        )
        return f"${self.usd_per_hour * cards:,.2f}/h{whence}{', older than 90 days' if self.old else ''}"


Prices = dict[str, Price]
"""The cheapest price by card id; "" is every other card's."""


# The input that commands share.
PRICE: Final = option(
    "Per GPU hour: 2.5, or h100=2.5; may be given again.",
    panel="Prices",
    ours=True,
    common=True,
    several=True,
    read=lambda text, _: tuple(text.split(",")),
)
PRICE_FILE: Final = option(
    "CSV file: card,provider,usd_per_hour,date[,tier,gpus,region,currency,source].",
    panel="Prices",
    ours=True,
    common=True,
)


def stated_prices(texts: Iterable[str]) -> Prices:
    """Prices from `--price`: 2.5 for every card, or h100=2.5.

    Raises:
        UsageError: not a price.
        UnknownGpu: no such card.
    """
    found: Prices = {}
    for text in texts:
        name, _, number = text.rpartition("=")
        try:
            value = float(number)
        except ValueError:
            raise UsageError(f"--price is {text[:40]!r}; expected 2.5 or h100=2.5", field="price") from None
        if not 0 <= value < _HIGHEST:
            raise UsageError(f"--price is {text[:40]!r}; expected a price per GPU hour", field="price")
        found[_card(name, f"--price {text[:40]}") if name else ""] = Price(usd_per_hour=value)
    return found


def listed_prices(path: str) -> Prices:
    """The cheapest price of each card in a CSV of card,provider,usd_per_hour,date[,tier,gpus,region,currency,source].

    `usd_per_hour` is that of `gpus` cards (1 where there is no such column).

    Raises:
        SourceError: the file cannot be read, or a line is no price; names the line.
    """
    try:
        with Path(path).open("r", encoding="utf-8", newline="") as file:
            text = file.read(_LARGEST_FILE + 1)
    except (OSError, UnicodeDecodeError) as error:
        raise SourceError(f"{path}: cannot be read ({getattr(error, 'strerror', None) or error})") from None
    if len(text) > _LARGEST_FILE:
        raise SourceError(f"{path}: larger than {_LARGEST_FILE >> 20} MiB for a list of prices")
    reader = csv.DictReader(text.splitlines())
    missing = [name for name in _REQUIRED if name not in (reader.fieldnames or ())]
    if missing:
        raise SourceError(f"{path}, line 1: no column {', '.join(missing)}; expected {','.join(_REQUIRED)}")
    found: Prices = {}
    for number, row in enumerate(reader, start=2):
        card, price = _price(row, f"{path}, line {number}")
        if card not in found or price.usd_per_hour < found[card].usd_per_hour:
            found[card] = price
    return found


def _price(row: dict[str, str], where: str) -> tuple[str, Price]:
    if (row.get("currency") or "USD").strip().upper() != "USD":
        raise SourceError(f"{where}: currency {row['currency'][:10]!r}; expected USD")
    try:
        value = float(row["usd_per_hour"] or "nan") / int(row.get("gpus") or 1)
        read = date.fromisoformat((row["date"] or "").strip()).isoformat()
    except (ValueError, ZeroDivisionError, TypeError):
        raise SourceError(
            f"{where}: {row['usd_per_hour']!r} on {row['date']!r} is no price; expected a number and a date such as"
            " 2026-11-30"
        ) from None
    if not 0 <= value < _HIGHEST:
        raise SourceError(f"{where}: {row['usd_per_hour'][:20]!r} is no price per hour")
    tier = (row.get("tier") or "").strip()[:20]
    provider = (row["provider"] or "").strip()[:60]
    return _card(row["card"] or "", where), Price(usd_per_hour=value, provider=provider, tier=tier, date=read)


def _card(name: str, where: str) -> str:
    """The id of a card with a price.

    Raises:
        UnknownGpu: no such card, or several; says where the name stands.
    """
    try:
        return find_gpu(name).id
    except UnknownGpu as error:
        raise UnknownGpu(f"{where}: {str(error).removeprefix('--gpu: ')}", field="price") from None


def price_of(prices: Prices, card: str) -> Price | None:
    """The price of a card, None where none was given."""
    return prices.get(card) or prices.get("")


def unused_prices(prices: Prices, cards: Sequence[str]) -> list[str]:
    """Cards with a price that no candidate uses."""
    return [card for card in prices if card and card not in cards]


def usd_per_million(usd_per_hour: float, tokens_per_second: float) -> float:
    """Dollars of a million tokens that come at that rate."""
    return usd_per_hour * 1e6 / (_SECONDS_AN_HOUR * tokens_per_second)


def all_prices(path: str | None, stated: Iterable[str]) -> Prices:
    """Prices of a file and of the line; what is stated on the line wins.

    Raises:
        SourceError, UsageError, UnknownGpu: as `listed_prices` and `stated_prices`.
    """
    return {**(listed_prices(path) if path else {}), **stated_prices(stated)}


def unused_notes(prices: Prices, cards: Sequence[str]) -> list[str]:
    """What is said of prices that no row uses."""
    return [f"the price of {card} is used by no row" for card in unused_prices(prices, cards)]
