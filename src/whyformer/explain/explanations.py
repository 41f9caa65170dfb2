"""Explanations: what is explained of many texts, as it is given to people."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, overload

from whyformer.datasets.source import extra
from whyformer.explain.explanation import Explanation
from whyformer.explain.folder import folder_lines
from whyformer.explain.inputs import TableOfTexts
from whyformer.registry.options import validated
from whyformer.results.explanations import ExplanationsData, collected, read_lines, table_rows
from whyformer.show.lists import grid_of, list_fragment, short
from whyformer.show.render import Renderable, text_of
from whyformer.storage.files import path_of, write

if TYPE_CHECKING:
    from pandas import DataFrame

SHORT = 5  # texts that are named where an object is shown in a line or two


@dataclass(frozen=True, eq=False, repr=False)
class Explanations(Renderable, ExplanationsData[Explanation]):
    """Explanations of many texts, in order: a sequence that shows itself as a table, and as a page to search.

    `rows` has the number of the row that each is of, counted from 0, and `labels` its label in the data, or None.
    `skipped` has the rows that were left out, each with the reason. `wrong` are those where the model says another
    label than the data. `save` writes `.json` and `.jsonl`, which can be loaded again, `.csv`, `.md` and `.html`.
    """

    @overload
    def __getitem__(self, place: int) -> Explanation: ...

    @overload
    def __getitem__(self, place: slice) -> "Explanations": ...

    def __getitem__(self, place: Any) -> Any:
        return super().__getitem__(place)

    def __repr__(self) -> str:
        return short(self, SHORT)

    @overload
    def to_html(self, path: None = ...) -> str: ...

    @overload
    def to_html(self, path: str | Path) -> Path: ...

    @validated
    def to_html(self, path: str | Path | None = None) -> str | Path:
        """A page to sort, search and filter them, in one file that needs nothing else."""
        return self._text("html", path)

    @overload
    def to_csv(self, path: None = ...) -> str: ...

    @overload
    def to_csv(self, path: str | Path) -> Path: ...

    @validated
    def to_csv(self, path: str | Path | None = None) -> str | Path:
        """The table for spreadsheets: text, prediction, probability, label, strongest words and their effects."""
        return self._text("csv", path)

    def to_pandas(self) -> "DataFrame":
        """The table as a DataFrame, a row for each explanation; needs pandas."""
        grid = grid_of(list(table_rows(self.examples())))
        rows = [[cell.text if cell.number is None else cell.number for cell in row] for row in grid.rows]
        return extra("pandas", "to_pandas").DataFrame(rows, columns=list(grid.head))

    @classmethod
    @validated
    def load(cls, path: str | Path) -> Self:
        """Read what `save` wrote as JSON or JSON lines, or the folder of `whyformer explain --data … --out FOLDER`."""
        lines = folder_lines(path) if path_of(path).is_dir() else read_lines(path)
        made: Self = collected(cls, Explanation, lines)
        return made

    @classmethod
    def of(
        cls, numbered: Sequence[tuple[int, Explanation]], table: TableOfTexts | None, skipped: Mapping[int, str]
    ) -> Self:
        """Explanations with the numbers of the texts that they are of, which came from a table, or from a list."""
        rows = tuple(number if table is None else table.rows[number] for number, _ in numbered)
        labels = () if table is None else tuple(table.golds[row] for row in rows)
        columns = () if table is None else tuple(table.columns[row] for row in rows)
        left_out = skipped if table is None else table.skipped(skipped)
        return cls(tuple(e for _, e in numbered), rows, labels, tuple(sorted(left_out.items())), columns)

    def _repr_html_(self) -> str:
        return list_fragment(self)

    def _text(self, form: str, path: str | Path | None) -> str | Path:
        content = text_of(self, form)
        return content if path is None else write(path, content)
