"""evaluate: data × methods × metrics → journal → Table."""

from collections.abc import Container, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import whyformer.methods  # noqa: F401  (registers the methods)
from whyformer.asking import Settings
from whyformer.datasets import Dataset, open_dataset
from whyformer.datasets.columns import ColumnNames
from whyformer.datasets.dataset import OnError
from whyformer.engines import engine_named
from whyformer.errors import BadOption
from whyformer.journal import Journal
from whyformer.load import Subject
from whyformer.measuring import Measuring, Task
from whyformer.metrics import Idf
from whyformer.results import Results, Table
from whyformer.show.live import Watch
from whyformer.specs import Written, method_specs, metric_specs

ROWS_PER_CHUNK = {"cpu": 16, "cuda": 128}
EVERY_ROW = 2**62
METRICS = "aopc,log_odds"


@dataclass(frozen=True)
class Evaluation:
    """What is to be measured on which rows. A chunk is a fixed set of row numbers."""

    measuring: Measuring
    data: Dataset
    rows_per_chunk: int

    @cached_property
    def ranges(self) -> list[tuple[int, int]]:
        """The chunks, as rows from … to before …."""
        return list(self.data.chunks(self.rows_per_chunk))

    @cached_property
    def run(self) -> dict[str, Any]:
        """What determines all numbers of a journal, and `about`: what people call it."""
        subject = self.measuring.subject
        about = {"model": subject.name, "revision": subject.revision, "data": self.data.name}
        return {**self.measuring.facts, "data": self.data.digest, "about": about | {"labels": list(subject.labels)}}

    def tasks(self, known: Container[str]) -> Iterator[Task]:
        """What is to be done about each chunk."""
        for start, stop in self.ranges:
            examples = self.data.rows(start, stop)
            skipped = {bad.row: bad.reason for bad in self.data.skipped if start <= bad.row < stop}
            yield self.measuring.task(start, stop, examples, skipped, known)


def evaluate(
    subject: Subject,
    data: Dataset | str | Path,
    methods: Written = "all",
    metrics: Written = METRICS,
    *,
    out: str | Path | None = None,
    split: str | None = None,
    columns: ColumnNames | None = None,
    limit: int | None = None,
    on_error: OnError = "refuse",
    ceiling: bool | int = False,
    beam: int = 1,
    idf: Idf | None = None,
    engine: str = "local",
    workers: int | None = None,
    rows_per_chunk: int | None = None,
    tokens_per_batch: int | None = None,
    progress: bool = True,
) -> Table:
    """Measure how good the explanations of methods are, on a data set.

    `methods` and `metrics` are names, each with options in brackets if need be: `attcat(states=inputs)`. What was
    measured is journalled in the folder `out` chunk by chunk; the same call goes on where it was stopped, and computes
    only what is missing. `ceiling` adds the best order that a search finds, for texts of at most 64 units, and the
    mean of 20 random ones: for all rows, or for those before a number. `on_error="skip"` leaves bad rows out.
    """
    if not isinstance(data, Dataset):
        labels = subject.labels if subject.task == "classes" else None
        data = open_dataset(data, split=split, columns=columns, limit=limit, on_error=on_error, labels=labels)
    settings = Settings(
        ceiling=_rows(ceiling),
        beam=beam,
        shortest=data.choice.shortest,
        likeliest=data.choice.likeliest,
        skip_bad_rows=data.on_error == "skip",
        tokens_per_batch=tokens_per_batch,
    )
    chosen = metric_specs(metrics)
    if idf is None and any("idf" in metric.of.needs for metric in chosen):
        idf = Idf.of(" ".join([e.text] if isinstance(e.text, str) else e.text) for e in data)
    measuring = Measuring(subject, method_specs(methods), chosen, settings, idf)
    size = rows_per_chunk or ROWS_PER_CHUNK.get(subject.device.type, ROWS_PER_CHUNK["cpu"])
    return _table(Evaluation(measuring, data, size), out, engine, workers, progress)


def _table(evaluation: Evaluation, out: str | Path | None, engine: str, workers: int | None, progress: bool) -> Table:
    results = Results(evaluation.run)
    with ExitStack() as stack:
        journal = None if out is None else stack.enter_context(Journal.open(out, evaluation.run))
        for chunk in () if journal is None else journal.chunks():
            results.add(chunk)
        name = f"{evaluation.data.name}, {evaluation.rows_per_chunk} rows at a time"
        watch = stack.enter_context(Watch(len(evaluation.ranges), results, name, shown=progress))

        def pending() -> Iterator[Task]:
            for task in evaluation.tasks(frozenset() if journal is None else journal):
                if task.complete and set(task.left_out) <= set(results.skipped):
                    watch.advance()
                else:
                    yield task

        for chunk in engine_named(engine)(evaluation.measuring, pending(), workers):
            if journal is not None:
                journal.append(chunk)
            results.add(chunk)
            watch.advance()
    table = results.table()
    if out is not None:
        table.save(out)
    return table


def _rows(ceiling: bool | int) -> int:
    """The rows before this number have a ceiling."""
    if ceiling is True:
        return EVERY_ROW
    if ceiling < 0:
        raise BadOption(f"ceiling={ceiling}: the number of rows that get one, or True for all")
    return int(ceiling)
