"""CSV that a spreadsheet shows as it is: text never becomes a formula."""

import csv
from collections.abc import Iterable, Sequence

END = "\r\n"  # the writer quotes cells that hold either character
FORMULAS = ("=", "+", "-", "@", "\t", "\r", "\n")  # what cells begin with that spreadsheets compute


def comma_separated(rows: Iterable[Sequence[object]]) -> str:
    """Rows as CSV: numbers with every digit, None as nothing, text that begins like a formula behind an apostrophe."""
    lines = _Lines()
    csv.writer(lines, lineterminator=END).writerows([_cell(value) for value in row] for row in rows)
    return "".join(f"{line.removesuffix(END)}\n" for line in lines)


class _Lines(list[str]):
    def write(self, line: str) -> None:
        """What the writer calls once for each row."""
        self.append(line)


def _cell(value: object) -> object:
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULAS) else value
