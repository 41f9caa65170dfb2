"""Table as it is given to people: it writes and draws itself; and the results that it is made of."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from whyformer.registry.options import validated
from whyformer.results.aggregate import Aggregate
from whyformer.results.table import TableData
from whyformer.show.render import Shown, text_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, eq=False)
class Table(Shown, TableData):
    """Methods by metrics: means with 95 % intervals.

    Intervals come from drawing rows with replacement; where there are fewer than 30 rows, from Student's t.
    The reference rows `ceiling` and `chance` come last. `right` says of each example whether the model is, `skipped` of
    each row left out why. A difference or a share is over the rows that all its parts have, drawn together.
    """

    def __repr__(self) -> str:
        return f"<Table of {', '.join(self.methods)} by {', '.join(self.metrics)}, {len(self.right)} examples>"

    @property
    def footer(self) -> list[str]:
        """What a reader must know beside the numbers, in sentences."""
        from whyformer.show.tables import footer

        return footer(self)

    def to_markdown(self) -> str:
        """The table, the paired differences to the best, and the footer, as Markdown."""
        return text_of(self, "markdown")

    def to_csv(self) -> str:
        """One line for each method and metric, with every digit."""
        return text_of(self, "csv")

    def to_latex(self) -> str:
        """A tabular for the package booktabs."""
        return text_of(self, "latex")

    @validated
    def figure(self, metric: str) -> "Figure":
        """A matplotlib figure: the mean curve of every method."""
        from whyformer.show.curves import figure

        return figure(self, metric)

    @validated
    def save(self, folder: str | Path) -> list[Path]:  # type: ignore[override]
        """Write table.md, table.csv, table.tex, and curves: their points, and a picture of those of each metric."""
        from whyformer.show.curves import save

        return save(self, folder)

    def _repr_html_(self) -> str:
        from whyformer.show.tables import as_html

        return as_html(self)


class Results(Aggregate):
    """What the records of an evaluation say, as they come in, and the table of it."""

    @validated
    def table(self, resamples: int = 1000, seed: int = 0) -> Table:
        """The table; the order in which the chunks came does not matter."""
        return self.tabulated(Table, resamples, seed)
