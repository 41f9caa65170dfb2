"""The data sets that commands are given: flags, and what is explained of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from whyformer.cli.app import ErrorOption, with_flags
from whyformer.cli.streams import put, say
from whyformer.cli.texts import as_questions, columns_of
from whyformer.datasets import Dataset, Example, open_dataset
from whyformer.errors import BadOption
from whyformer.evaluation.journal import FILE as JOURNAL
from whyformer.explain.folders import PAGE, TABLE, FolderOfExplanations, left_out, write_index
from whyformer.models.loading import Subject
from whyformer.show.lists import rows_text

SplitOption = Annotated[str | None, typer.Option(help="The split of a folder or hub data set.")]
LabelColumn = Annotated[str | None, typer.Option("--label", help="The column of the label.")]
LimitOption = Annotated[int | None, typer.Option(help="How many rows are taken, from the first one on.")]
DataOption = Annotated[
    str | None,
    typer.Option("--data", help="Explain every text of a file, folder or data set, as `evaluate` takes it; see --out."),
]


@dataclass(frozen=True, kw_only=True)
class Rows:
    """Which rows of a data set are read: flags by the names that `open_dataset` has for them."""

    split: SplitOption = None
    limit: LimitOption = None
    sample: Annotated[int | None, typer.Option(help="How many rows are drawn at random, the same ones each time.")] = (
        None
    )
    on_error: ErrorOption = "refuse"

    def or_sampled(self, count: int) -> dict[str, Any]:
        """The same for `open_dataset`, with a random sample of this size unless rows are chosen."""
        is_chosen = self.limit is not None or self.sample is not None
        return vars(self) if is_chosen else {**vars(self), "sample": count}

    def texts(self, data: str, text: str | None, label: str | None) -> Dataset:
        """The rows of a data set that are to be explained, whatever their labels are."""
        return open_dataset(data, columns=columns_of(text, label), **vars(self)).for_texts()

    def check(self, data: str | None, label: str | None) -> None:
        """Raise if they are given, and no data set for them."""
        flags = {"--split": self.split, "--limit": self.limit, "--sample": self.sample, "--label": label}
        if data is None and (used := [name for name, value in flags.items() if value is not None]):
            raise BadOption(f"{used[0]} is of a data set: give that with --data")


with_rows = with_flags("rows", Rows)


def opened(subject: Subject, data: str, text: str | None, label: str | None, **options: Any) -> Dataset:
    """A data set with the labels of the model, where it classifies."""
    labels = subject.labels if subject.task == "classes" else None
    return open_dataset(data, columns=columns_of(text, label), labels=labels, **options)


def inputs_of(subject: Subject, examples: Sequence[Example], where: str) -> dict[str, list[Any]]:
    """Examples as `Explainer.explain` takes them."""
    if subject.task == "answer":
        return dict(as_questions([example.text for example in examples], Path(where)))
    return {"text": [example.input for example in examples]}


def left_in(folder: Path) -> str:
    """What an interrupted run left in its folder."""
    if any(folder.rglob(JOURNAL)):
        return f"what is done is in {folder}; the same command goes on"
    return f"nothing was finished yet, so {folder} holds no results: the same command starts again"


def explain_into(folder: Path, work: FolderOfExplanations) -> None:
    """Explain the rows of a data set that a folder does not hold yet, and show the first of them."""
    try:
        work.fill(folder)
        rows, bad = write_index(folder), left_out(folder)
    except KeyboardInterrupt:
        say(left_in(folder))
        raise
    put(
        rows_text(rows, len(bad)) if rows else "nothing is explained: no row is left, or no word has a label",
        coloured=True,
    )
    if bad:
        first = min(bad)
        say(f"rows that were skipped: {len(bad):,}; row {first} (counted from 0): {bad[first]}")
    say(f"wrote {PAGE} and {TABLE} to {folder}")
