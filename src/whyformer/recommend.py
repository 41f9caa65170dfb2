"""recommend: which method to believe on a model and texts of one's own."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whyformer.choices import Choice, record
from whyformer.datasets import Dataset
from whyformer.errors import BadInput, BadOption
from whyformer.evaluate import evaluate
from whyformer.load import Subject
from whyformer.results import Table
from whyformer.specs import Written, method_specs, metric_specs

BASELINE = "random"
TEXTS = 100


@dataclass(frozen=True)
class Recommendation:
    """The methods ranked by one metric; `recorded` is the file in which the winner was recorded for `auto`."""

    table: Table
    metric: str
    winner: str
    better_than_random: bool
    recorded: Path | None = None

    @property
    def sentence(self) -> str:
        """What to do, in one sentence."""
        cell, tied = self.table[self.winner, self.metric], self.table.tied(self.metric)
        assert cell is not None
        if not self.better_than_random:
            return f"No method is reliably better than a random order here ({self.metric}, {cell.n} texts)."
        others = [name for name in tied if name != self.winner]
        beside = f"; {', '.join(others)} cannot be told apart from it" if others else ""
        told = f"{self.metric} {cell.mean:.3f} [{cell.low:.3f}, {cell.high:.3f}], {cell.n} texts"
        return f"Use {self.winner}: {told}{beside}."


def recommend(
    subject: Subject,
    data: Dataset | str | Path,
    methods: Written = "all",
    metric: str = "aopc",
    *,
    limit: int | None = TEXTS,
    cache: bool = True,
    **options: Any,
) -> Recommendation:
    """Rank methods by a metric on a sample of one's own texts, and record the winner for `method="auto"`.

    `random` is always among them: a winner that is not reliably better is not recorded, and with `cache=False` none
    is. Other options are those of `evaluate`.
    """
    chosen = metric_specs([metric])[0]
    if chosen.of.level == "corpus":
        raise BadOption(f"{chosen.of.name} has no number for each text, so methods cannot be compared in pairs by it")
    names = [spec.label for spec in method_specs(methods)]
    table = evaluate(subject, data, [*names, BASELINE], [chosen.label], limit=limit, **options)
    winner = table.best(chosen.label)
    if winner is None:
        raise BadInput("no method could explain any of these texts: see the table's footer")
    gap = None if winner == BASELINE else table.compare(chosen.label, winner, BASELINE)
    reliable = gap is not None and (gap.low > 0 if chosen.of.higher_is_better else gap.high < 0)
    cell = table[winner, chosen.label]
    assert cell is not None
    numbers = (cell.mean, cell.low, cell.high, cell.n)
    name = data.name if isinstance(data, Dataset) else str(data)
    path = record(subject, Choice(winner, chosen.label, *numbers, name)) if cache and reliable else None
    return Recommendation(table, chosen.label, winner, reliable, path)
