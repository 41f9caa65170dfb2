"""The numbers that the papers print: `published.csv` has one line for each, with the digits of the paper."""

import csv
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

FILE = Path(__file__).parents[1] / "published.csv"


class Number(NamedTuple):
    """A published number, with its ± where the paper gives one."""

    value: float
    spread: float | None = None


Published = Mapping[tuple[str, str, str], Number]  # by the labels of row, column and measure


def published(table: str) -> Published:
    """Return the numbers of a table, such as `attcat-table-1`."""
    return tables()[table]


@cache
def tables() -> Mapping[str, Published]:
    """Return the numbers of every table."""
    found: dict[str, dict[tuple[str, str, str], Number]] = {}
    with FILE.open(encoding="utf-8", newline="") as file:
        for line in csv.DictReader(file):
            key = line["row"], line["column"], line["measure"]
            number = Number(_as_printed(line["value"]), float(line["spread"]) if line["spread"] else None)
            if found.setdefault(line["table"], {}).setdefault(key, number) is not number:
                raise ValueError(f"{FILE.name} has two numbers for {', '.join(key)} of {line['table']}")
    return MappingProxyType({table: MappingProxyType(numbers) for table, numbers in found.items()})


def _as_printed(value: str) -> float:
    """A count stays a whole number."""
    return int(value) if value.isdigit() else float(value)
