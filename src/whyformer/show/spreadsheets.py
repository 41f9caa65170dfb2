"""CSV that a spreadsheet shows as it is: text never becomes a formula."""

import csv
import io
from collections.abc import Iterable, Sequence

FORMULAS = ("=", "+", "-", "@", "\t", "\r", "\n")  # what cells begin with that spreadsheets compute


def comma_separated(rows: Iterable[Sequence[object]]) -> str:
    """Rows as CSV: numbers with every digit, None as nothing, text that begins like a formula behind an apostrophe."""
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerows([_cell(value) for value in row] for row in rows)
    return buffer.getvalue()


def _cell(value: object) -> object:
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULAS) else value
