"""The tables of docs/results.md about signs: does a word that a method says speaks for a class do so?

python benchmarks/tables/signs.py --models DIR --data DIR --out signs [--only mnli] [--part one,many] [--device cuda]
python benchmarks/tables/signs.py --out signs --summary

DIR of the models has the folders agnews, nli and qqp, and sst2 if it is not to be the bundled model; DIR of the data
the folders sst2, ag_news, mnli and qqp, or files such as sst2.jsonl. Every signed method explains each prediction in
three ways: its logit, its log-odds beside all other classes, and its distance from the runner-up; of two classes the
latter two are the same. `--part one` is the cheapest by far, `--part sampled` the dearest. A run that was stopped goes
on where it was.
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

if not __package__:  # run as a script
    sys.path[0] = str(Path(__file__).parents[2])

from benchmarks.tables.shared import RUNS, Run, journals_of, lines, measure, named, parser_of
from whyformer.evaluation.journal import Journal
from whyformer.methods.specs import method_specs
from whyformer.results.table import ENOUGH_ROWS

WAYS: dict[str, dict[str, str]] = {
    "logit": {"explains": "logit"},
    "log_odds": {"explains": "log_odds"},
    "runner_up": {"versus": "runner_up"},
}
DELETED, MASKED, AOPC = "sign_agreement", "sign_agreement(hide=mask)", "aopc"
METRICS = ",".join((DELETED, MASKED, AOPC))
PARTS = {  # the methods that have signs, by how often they run the model
    "one": "attn_lrp,cp_lrp,layer_lrp,lrp,attcat,attcat(states=inputs),cat,cat(states=inputs),cam,grads,full_grad,"
    "input_x_gradient",
    "many": "integrated_gradients(steps=20),gradient_shap,deep_lift_shap,occlusion",
    "sampled": "lime,kernel_shap,shapley_value_sampling",
}
TABLES = {
    "sst2": replace(RUNS["sst2"], ceiling=0),
    "ag_news": replace(RUNS["ag_news"], limit=500, ceiling=0),
    "mnli": replace(RUNS["mnli"], limit=500),
    "qqp": Run("QQP", "qqp", "qqp", 500),
}
TWO_CLASSES = ("sst2", "qqp")
CANDIDATES = ("attn_lrp", "cp_lrp", "layer_lrp", "attcat(states=inputs)", "cat(states=inputs)", "occlusion")
FIRST = ("attn_lrp", "logit")  # what the candidates for the default are compared with
NEUTRAL = 0.1  # log-odds: a word that does less has no colour
RESAMPLES = 2000

Floats = NDArray[np.float64]
Counts = tuple[Floats, Floats]  # of each text: how many words count, and how many there are
Place = tuple[str, str]  # a method, and what it explains


class Estimate(NamedTuple):
    """A number over texts, and its 95 % interval when texts are drawn again."""

    value: float
    low: float
    high: float

    def shown(self, scale: float, digits: int, sign: str = "") -> str:
        """As tables have it."""
        form = f"{sign}z.{digits}f"
        value, low, high = (scale * number for number in self)
        return "–" if np.isnan(value) else f"{value:{form}} [{low:{form}}, {high:{form}}]"


class Words(NamedTuple):
    """The strongest words of all texts, [texts, words], NaN where a text has fewer: signs of scores, and effects."""

    signs: Floats
    deleted: Floats
    masked: Floats


@dataclass(frozen=True)
class Data:
    """What was measured on one data set, by what is explained."""

    journals: Mapping[str, Journal]

    @cached_property
    def records(self) -> dict[tuple[str, str, str], dict[int, Any]]:
        """By method, what is explained and metric: the number or the details of each row; none that is not finished."""
        records: dict[tuple[str, str, str], dict[int, Any]] = {}
        for way, journal in self.journals.items():
            for record in (record for chunk in journal.chunks() for record in chunk.records):
                outcome = record.value if record.metric == AOPC else record.detail
                if outcome is not None:
                    records.setdefault((record.method, way, record.metric), {})[record.row] = outcome
        most = max(map(len, records.values()))
        return {key: of_rows for key, of_rows in records.items() if len(of_rows) >= ENOUGH_ROWS * most}

    @cached_property
    def methods(self) -> list[str]:
        """The methods that were measured, in the order of the parts."""
        measured = {method for method, _, _ in self.records}
        return [label for label in every_method() if label in measured]

    @cached_property
    def rows(self) -> list[int]:
        """The texts that all methods have, whatever they explain."""
        return sorted(set.intersection(*map(set, self.records.values())))

    @cached_property
    def times(self) -> Floats:
        """How often each text is drawn, [1 + resamples, texts]: first once each."""
        count = len(self.rows)
        drawn = np.random.default_rng(0).multinomial(count, np.full(count, 1 / count), size=RESAMPLES)
        return np.concatenate((np.ones((1, count)), drawn.astype(np.float64)))

    def words(self, place: Place) -> Words:
        """The strongest words of a method."""
        deleted, masked = ([self.records[(*place, metric)][row] for row in self.rows] for metric in (DELETED, MASKED))
        wanted = ((deleted, "signs"), (deleted, "effects"), (masked, "effects"))
        signs, by_deletion, by_masking = (_padded([record[name] for record in of]) for of, name in wanted)
        return Words(signs, by_deletion, by_masking)

    def drawn(self, counts: Counts) -> Floats:
        """The share of words that count, of all texts and of each draw of them."""
        with np.errstate(invalid="ignore"):
            shares: Floats = (self.times @ counts[0]) / (self.times @ counts[1])
        return shares

    def aopc(self, place: Place) -> Floats:
        """The mean over texts, of all and of each draw."""
        values = np.array([self.records[(*place, AOPC)][row] for row in self.rows], dtype=np.float64)
        means: Floats = self.times @ values / len(values)
        return means

    def agreement(self, place: Place) -> str:
        """How often scores have the sign of the effect of deletion, in %."""
        return estimate(self.drawn(before(self.words(place)))).shown(100, 1)

    def area(self, place: Place) -> str:
        """The AOPC with its interval."""
        return estimate(self.aopc(place)).shown(1, 3)


def estimate(drawn: Floats) -> Estimate:
    """The number of all texts with the percentiles of the draws."""
    low, high = np.nanquantile(drawn[1:], [0.025, 0.975]) if len(drawn) > 1 else (np.nan, np.nan)
    return Estimate(float(drawn[0]), float(low), float(high))


def _padded(lists: list[list[float]]) -> Floats:
    rows = np.full((len(lists), max(map(len, lists))), np.nan)
    for row, values in zip(rows, lists, strict=True):
        row[: len(values)] = values
    return rows


def _share(which: NDArray[np.bool_], among: NDArray[np.bool_]) -> Counts:
    return (which & among).sum(1).astype(np.float64), among.sum(1).astype(np.float64)


def before(words: Words) -> Counts:
    """Whether the score has the sign of the effect of deleting the word."""
    return _share(words.signs * words.deleted > 0, np.abs(words.deleted) > NEUTRAL)


def before_by_masking(words: Words) -> Counts:
    """Whether the score has the sign of the effect of masking the word."""
    return _share(words.signs * words.masked > 0, np.abs(words.masked) > NEUTRAL)


def after(words: Words) -> Counts:
    """Whether the colour, which follows the effect of deletion, has the sign of the effect of masking."""
    coloured = (np.abs(words.deleted) >= NEUTRAL) & (np.abs(words.masked) > NEUTRAL)
    return _share(words.deleted * words.masked > 0, coloured)


def disagreeing(words: Words) -> Counts:
    """Of all strongest words, those whose score has not the sign of an effect that is not neutral."""
    wrong = (words.signs * words.deleted <= 0) & (np.abs(words.deleted) >= NEUTRAL)
    return _share(wrong, ~np.isnan(words.deleted))


def neutral(words: Words) -> Counts:
    """Of all strongest words, those without an effect to speak of."""
    return _share(np.abs(words.deleted) < NEUTRAL, ~np.isnan(words.deleted))


def every_method() -> list[str]:
    """The labels of all methods that are measured."""
    return [spec.label for part in PARTS.values() for spec in method_specs(part)]


def ways_of(name: str) -> dict[str, dict[str, str]]:
    """What is explained of a data set's predictions; of two classes the runner-up is all others."""
    return {way: options for way, options in WAYS.items() if name not in TWO_CLASSES or way != "log_odds"}


def cells(data: Data, method: str, shown: Callable[[Place], str]) -> Iterator[str]:
    """A cell for each way in which a method was measured."""
    for way in data.journals:
        yield shown((method, way)) if (method, way, DELETED) in data.records else "–"


def wide(data: Data, title: str, shown: Callable[[Place], str]) -> str:
    """A table of methods by what is explained."""
    rows = [[named(method), *cells(data, method, shown)] for method in data.methods]
    return lines([title, *(f"`{way}`" for way in data.journals)], rows)


def checking(data: Data, way: str) -> str:
    """What checking by deletion changes, for the explanations of one way."""
    measures = (before, before_by_masking, after, disagreeing, neutral)
    rows = []
    for method in data.methods:
        if (method, way, DELETED) in data.records:
            words = data.words((method, way))
            rows.append([named(method), *(estimate(data.drawn(of(words))).shown(100, 1) for of in measures)])
    head = ("sign = deletion, %", "sign = masking, %", "checked = masking, %", "marked, % of words", "neutral, %")
    return lines([f"`{way}`", *head], rows)


def candidates(all_data: Mapping[str, Data]) -> str:
    """The candidates for the default less today's: agreement in percentage points, and AOPC; paired."""
    rows = []
    for place in ((method, way) for method in CANDIDATES for way in WAYS):
        parts = []
        for data in all_data.values():
            if any((*one, DELETED) not in data.records for one in (place, FIRST)):
                parts += ["–", "–"]
                continue
            shares = [data.drawn(before(data.words(one))) for one in (place, FIRST)]
            areas = [data.aopc(one) for one in (place, FIRST)]
            parts += [
                estimate(shares[0] - shares[1]).shown(100, 1, "+"),
                estimate(areas[0] - areas[1]).shown(1, 3, "+"),
            ]
        if place != FIRST and set(parts) != {"–"}:
            rows.append([f"{named(place[0])}, {place[1]}", *parts])
    head = [part for name in all_data for part in (f"{TABLES[name].title}, signs", "aopc")]
    return lines([f"less {named(FIRST[0])}, {FIRST[1]}", *head], rows)


def summarise(out: Path) -> Iterator[str]:
    """Every number about signs in docs/results.md."""
    folders = {(name, way): f"{name}-{way}" for name in TABLES for way in ways_of(name)}
    journals = journals_of(out, folders.values())
    measured = {
        name: Data({way: journals[folders[name, way]] for way in ways_of(name) if folders[name, way] in journals})
        for name in TABLES
    }
    measured = {name: data for name, data in measured.items() if data.journals}
    for name, data in measured.items():
        yield f"## {TABLES[name].title}, {len(data.rows)} texts"
        yield wide(data, "sign = deletion, %", data.agreement)
        yield wide(data, "`aopc`", data.area)
        yield from (checking(data, way) for way in data.journals)
    yield "## Candidates for the default"
    yield candidates(measured)


def main() -> None:
    """Run the tables that were asked for, or summarise those that are finished."""
    parser = parser_of(__doc__, TABLES)
    parser.add_argument("--limit", type=int, help="how many texts, instead of each table's own number")
    parser.add_argument(
        "--part", default=",".join(PARTS), help="methods that run the model once, many times, or on samples"
    )
    parser.add_argument("--methods", default="", help="instead of all signed ones")
    parser.add_argument("--ways", default=",".join(WAYS), help="what is explained")
    chosen = parser.parse_args()
    if not chosen.summary and not (chosen.models and chosen.data):
        parser.error("--models and --data are needed, or --summary")
    methods = chosen.methods or ",".join(PARTS[part] for part in chosen.part.split(","))
    for name in () if chosen.summary else chosen.only.split(","):
        run = replace(TABLES[name], limit=chosen.limit or TABLES[name].limit)
        for way, options in ways_of(name).items():
            if way in chosen.ways.split(","):
                measure(f"{name}-{way}", run, chosen, methods, METRICS, **options)
    if chosen.summary:
        print("\n\n".join(summarise(chosen.out)))


if __name__ == "__main__":
    main()
