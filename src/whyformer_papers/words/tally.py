"""Summing up words by predicted class over a data set, for several methods from one forward pass each."""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import whyformer.methods  # noqa: F401  (registers the methods)
from whyformer.datasets import Data, Dataset
from whyformer.errors import BadInput
from whyformer.evaluation.executors import engine_named
from whyformer.evaluation.plan import EvaluationPlan, EvaluationSettings
from whyformer.evaluation.shortcuts import LeftOut, check_model, only_texts
from whyformer.methods.default import methods_for
from whyformer.metrics.metric import MetricSpec, metric_named
from whyformer.models.load import Subject
from whyformer.progress import report
from whyformer.registry.specs import Written
from whyformer_papers.words.idf import Idf
from whyformer_papers.words.overlap import Counting, WordSums
from whyformer_papers.words.table import METRIC, WORDS_EACH, WordTable

OWN, NONE, CORPUS = "data", "none", "corpus:"  # what an idf may be called, beside the path of a file


def word_tables(
    subject: Subject,
    data: Dataset | Data,
    methods: Written = "auto",
    *,
    idf: Idf | None = None,
    counting: Counting = WORDS_EACH,
    rows_at_once: int | None = None,
    engine: str = "local",
    workers: int | None = None,
    **options: Any,
) -> dict[str, WordTable]:
    """The words of each predicted class with their scores, summed over a data set, by method.

    The methods share one forward pass of each batch. A few rows are held at a time, and the sums. Words are weighted by
    the bundled table by default, or by an `idf`. With another `counting`, tokens are summed, or each distinct word of a
    text once. Options are those of `open_dataset`. What is done is reported after each few rows (see
    `whyformer.progress`). Ctrl-C ends it: the tables are of the rows that were done until then, and their provenance
    says `interrupted`. The table of a method that refuses texts is of the others, and its provenance says why.
    """
    check_model(subject, rows_at_once)
    texts = only_texts(data, **options)
    weights = Idf.bundled() if idf is None else idf
    metric = MetricSpec(metric_named(METRIC), counting._asdict())
    plan = EvaluationPlan(subject, methods_for(subject, methods), (metric,), EvaluationSettings.of(texts))
    ranges = list(texts.chunks(rows_at_once or plan.rows_at_once(texts, engine)))
    sums, left_out, interrupted = defaultdict[str, WordSums](WordSums), LeftOut(), False
    try:
        pending = plan.chunks(texts, ranges, labels=False)
        for done, chunk in enumerate(engine_named(engine)(plan, pending, workers), 1):
            for record in left_out.rest(chunk):
                sums[record.method].add(record.detail)
            report(done, len(ranges))
    except KeyboardInterrupt:
        if not sums:
            raise
        interrupted = True
    names = [spec.label for spec in plan.methods]
    if not sums:
        raise BadInput(f"there is no text to sum up: {left_out.reason(names)} (of {texts.name})")
    about = {**subject.provenance, "fingerprint": subject.fingerprint, "data": texts.name, "digest": texts.digest}
    about |= {"idf": weights.source, **counting.provenance, **left_out.provenance, "interrupted": interrupted}
    return {
        name: WordTable(
            sums[name].totals(weights),
            subject.labels,
            name,
            dict(sums[name].texts),
            {**about, "refused": dict(left_out.refused[name])},
        )
        for name in names
        if name in sums
    }


def idf_called(written: str | None, data: Dataset | None = None) -> Idf:
    """Word frequencies as they are named on the command line.

    None for the bundled table; `data`: counted in the data itself; `corpus:DATA`: counted in the texts
    of another data set; `none`: every word weighs 1; or the path of a table, see `Idf.read`.
    """
    if written is None:
        return Idf.bundled()
    if written == NONE:
        return Idf({}, "nothing")
    if written == OWN and data is not None:
        return Idf.of(_texts(only_texts(data)), "their frequency in the data")
    if written.startswith(CORPUS):
        corpus = only_texts(written.removeprefix(CORPUS), on_error="skip")
        return Idf.of(_texts(corpus), f"their frequency in {corpus.name}")
    return Idf.read(written)


def _texts(data: Dataset) -> Iterator[str]:
    return (example.text if isinstance(example.text, str) else " ".join(example.text) for example in data)
