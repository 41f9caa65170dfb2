"""recommend: which method to believe on a model and texts of one's own."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whyformer.auto import methods_for
from whyformer.choices import Choice, record
from whyformer.datasets import Dataset
from whyformer.errors import BadInput, BadOption
from whyformer.evaluate import evaluate
from whyformer.load import Subject
from whyformer.specs import Written, metric_specs
from whyformer.table import Table

BASELINE = "random"
TEXTS = 100


@dataclass(frozen=True)
class Recommendation:
    """The methods ranked by one metric; `recorded` is the file in which the winner was recorded for `auto`."""

    table: Table
    metric: str
    winner: str
    tied: tuple[str, ...]  # those that cannot be told from it
    better_than_random: bool
    recorded: Path | None = None

    @property
    def sentence(self) -> str:
        """What to do, in one sentence."""
        cell = self.table[self.winner, self.metric]
        assert cell is not None
        if not self.better_than_random:
            return f"No method is reliably better than a random order here ({self.metric}, {cell.n} texts)."
        beside = f"; {', '.join(self.tied)} cannot be told apart from it" if self.tied else ""
        told = f"{self.metric} {cell.mean:.3f} [{cell.low:.3f}, {cell.high:.3f}], {cell.n} texts"
        return f"Use {self.winner}: {told}{beside}."


def recommend(
    subject: Subject,
    data: Dataset | str | Path,
    methods: Written = "all",
    metric: str = "aopc",
    *,
    limit: int | None = None,
    cache: bool = True,
    **options: Any,
) -> Recommendation:
    """Rank methods by a metric on texts of one's own, and record the winner for `method="auto"`.

    Of a file or name `limit` rows are drawn at random, 100 unless told. `random` is always among the methods: a winner
    that is not reliably better, or that refuses some texts, is not recorded, and with `cache=False` none is. Other
    options are those of `evaluate`.
    """
    chosen = metric_specs([metric])[0]
    if chosen.of.level == "corpus":
        raise BadOption(f"{chosen.of.name} has no number for each text, so methods cannot be compared in pairs by it")
    if "classes" in chosen.of.needs:
        raise BadOption(f"{chosen.of.name} does not say how good a method is: rank by aopc or another metric")
    if not isinstance(data, Dataset):
        options["sample"] = TEXTS if limit is None else limit
    elif limit is not None:
        raise BadOption("limit= is for a file or name: this data set was opened already, give it there")
    names = list(dict.fromkeys([*(spec.label for spec in methods_for(subject, methods)), BASELINE]))
    table = evaluate(subject, data, names, [chosen.label], **options)
    winner = table.best(chosen.label, names)
    if winner is None:
        raise BadInput("no method could explain any of these texts: see the table's footer")
    gap = None if winner == BASELINE else table.compare(chosen.label, winner, BASELINE)
    reliable = gap is not None and (gap.low > 0 if chosen.of.higher_is_better else gap.high < 0)
    cell = table[winner, chosen.label]
    assert cell is not None
    reliable = reliable and not cell.refused
    numbers = (cell.mean, cell.low, cell.high, cell.n)
    name = data.name if isinstance(data, Dataset) else str(data)
    path = record(subject, Choice(winner, chosen.label, *numbers, name)) if cache and reliable else None
    tied = tuple(name for name in table.tied(chosen.label, names) if name != BASELINE)
    return Recommendation(table, chosen.label, winner, tied, reliable, path)
