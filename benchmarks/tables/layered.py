"""The tables of docs/results.md and docs/layered.md about layer_lrp, beside attn_lrp and cp_lrp: one pass, and steps.

python benchmarks/tables/layered.py --models DIR --data DIR --out runs [--only sst2,sst2-steps] [--device cuda]
python benchmarks/tables/layered.py --out runs --summary
python benchmarks/tables/layered.py --models DIR --data DIR --out runs --layers [--only sst2,mnli] [--limit 100]

DIR of models and data as results.py has them, and the models qqp and distilbert-sst2, and the data qqp. A run that was
stopped goes on where it was. `--layers` shows the relevance of each layer instead: of the first text token by
token, and over the first texts how alike its order is to that of `occlusion`.
"""

import argparse
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from statistics import mean

if not __package__:  # run as a script
    sys.path[0] = str(Path(__file__).parents[2])

from benchmarks.tables.results import better
from benchmarks.tables.shared import (
    RUNS,
    Run,
    journals_of,
    lines,
    marked,
    mean_of,
    measure,
    named,
    notes_of,
    number,
    parser_of,
    rows_of,
    tables_of,
)
from benchmarks.tables.stepwise import METRICS as STEP_METRICS
from benchmarks.tables.stepwise import TABLES as STEP_TABLES
from benchmarks.tables.stepwise import label, stepped, whole
from whyformer import Explainer, Explanation
from whyformer.evaluation.table import Table
from whyformer.models.loading import load
from whyformer.results.explanation import Array
from whyformer.results.table import REFERENCES

OWN = "layer_lrp"
RIVALS = ("attn_lrp", "cp_lrp")
STEPS = (3, 10)
HIDING = ("aopc", "log_odds", "comprehensiveness", "sufficiency")
METRICS = ",".join((*HIDING, "kendall_tau", "sign_agreement"))
ONE_PASS = ("random", *RIVALS, OWN, f"{OWN}(depth=0.5)")
IN_STEPS = ("random", *(stepped(of, steps) for of in (*RIVALS, OWN) for steps in (1, *STEPS)))
FAITHFUL = {name: replace(run, metrics=METRICS) for name, run in RUNS.items() if name != "movies"}
TABLES = {
    **FAITHFUL,
    "movies": RUNS["movies"],
    "qqp": Run("QQP", "qqp", "qqp", 1000, metrics=METRICS),
    "distilbert": Run("SST-2, DistilBERT", "distilbert-sst2", "sst2", None, metrics=METRICS),
    **{f"{name}-steps": replace(run, title=f"{run.title}, in steps") for name, run in STEP_TABLES.items()},
    "qqp-steps": Run("QQP, in steps", "qqp", "qqp", 500, metrics=STEP_METRICS),
}


def behind(table: Table, metric: str) -> dict[str, float]:
    """How far every method is behind the best: 0 is the best, 100 a random order; nothing where that is the best."""
    best = mean_of(table, str(table.best(metric)), metric)
    room = (best - mean_of(table, "random", metric)) or math.nan
    methods = [method for method in table.methods if method not in (*REFERENCES, "random")]
    return {method: 100 * (best - mean_of(table, method, metric)) / room for method in methods}


def worst_cases(tables: Mapping[str, Table], metrics: Sequence[str] = HIDING) -> str:
    """How far every method is behind the best, in its worst metric of each table and over all; the least first."""
    gaps = {(name, metric): behind(table, metric) for name, table in tables.items() for metric in metrics}
    everywhere = [m for m in next(iter(gaps.values()), {}) if all(m in of_methods for of_methods in gaps.values())]
    worst = {
        method: [max(gaps[name, metric][method] for metric in metrics) for name in tables] for method in everywhere
    }
    means = {method: mean(of_methods[method] for of_methods in gaps.values()) for method in everywhere}
    rows = [
        [named(method), *(f"{gap:.1f}" for gap in (*worst[method], means[method], max(worst[method])))]
        for method in sorted(everywhere, key=lambda method: max(worst[method]))
    ]
    return lines(["% behind the best, worst metric", *tables, "mean of all", "worst"], rows)


def compared(table: Table, base: str) -> str:
    """Every mean of a table, and by how much a method is better than the base; paired, with its interval."""
    head = [f"`{metric}` {'↑' if table.facts[metric]['higher_is_better'] else '↓'}" for metric in table.metrics]
    rows = []
    for method in table.methods:
        cells = [marked(table, method, metric, interval=False) for metric in table.metrics]
        ahead = [
            "" if method == base else number(better(table, metric, method, base), sign="+") for metric in table.metrics
        ]
        rows.append([named(method), *(" ".join(filter(None, both)) for both in zip(cells, ahead, strict=True))])
    return lines(["method", *(f"{metric}, better than `{base}` by" for metric in head)], rows)


def leads(tables: Mapping[str, Table]) -> str:
    """By how much `layer_lrp` is better than either rival in as many passes, paired; ≈ where it may be by nothing."""
    rows = []
    for name, table in tables.items():
        for metric in table.metrics:
            for steps in (1, *STEPS):
                if label(OWN, steps) in table.methods:
                    cells = [_lead(table, metric, rival, steps) for rival in RIVALS]
                    rows.append([f"{TABLES[name].title}, `{metric}`", str(steps), *cells])
    return lines([f"`{OWN}` is better by", "passes", *(f"than `{rival}`" for rival in RIVALS)], rows)


def _lead(table: Table, metric: str, rival: str, steps: int) -> str:
    lead = better(table, metric, label(OWN, steps), label(rival, steps))
    return f"{'≈ ' if lead and lead.low <= 0 <= lead.high else ''}{number(lead, sign='+')}"


def summarise(out: Path) -> Iterator[str]:
    """Every number about layer_lrp in docs/results.md."""
    tables = tables_of(journals_of(out, TABLES))
    for name, table in tables.items():
        yield f"## {TABLES[name].title}\n\n{whole(table)}\n\n" + "\n".join(notes_of(table))
    yield f"## Beside its rivals\n\n{leads(tables)}"
    hiding = {name: table for name, table in tables.items() if set(HIDING) <= set(table.metrics)}
    one_pass = {TABLES[name].title: table for name, table in hiding.items() if not name.endswith("-steps")}
    in_steps = {TABLES[name].title: table for name, table in hiding.items() if name.endswith("-steps")}
    yield from (f"## The worst case\n\n{worst_cases(group)}" for group in (one_pass, in_steps) if group)


def by_layer(run: Run, chosen: argparse.Namespace) -> str:
    """The relevance where units enter each layer: of the first text, and how far its order is that of occlusion."""
    subject = load(chosen.models / run.model, device=chosen.device, dtype="float32")
    texts = [row.text for row in islice(rows_of(chosen.data, run, subject), chosen.limit)]
    explainer = Explainer(subject)
    explained = explainer.explain(texts, method=f"{OWN}(depth=1.0)")
    relevances = [len(one.layers) * one.layers for one in explained if one.layers is not None]  # of each layer alone
    first, layers = explained[0], range(len(relevances[0]))
    columns = zip(first.tokens, relevances[0].T, strict=True)
    rows = [[token.replace("|", "\\|"), *(f"{v:+.2f}" for v in column)] for token, column in columns]
    rows.append(["the sum", *(f"{v:+.2f}" for v in relevances[0].sum(1))])
    alike = [_alike(*both) for both in zip(relevances, explainer.explain(texts, method="occlusion"), strict=True)]
    means = [mean(of_layer) for of_layer in zip(*filter(None, alike), strict=True)]
    rows.append([f"rank correlation with `occlusion`, {len(texts)} texts", *(f"{value:.2f}" for value in means)])
    head = ["", *(f"layer {n}" for n in layers)]
    return f"## {run.title}: {first.target.name}\n\n{lines(head, rows)}"


def _alike(by_layer: Array, occluded: Explanation) -> list[float]:
    """How alike the order of the units is to that by what hiding each does; nothing for texts of under three units."""
    from scipy.stats import spearmanr

    units = occluded.ranked
    return [spearmanr(row[units], occluded.scores[units]).statistic for row in by_layer] if len(units) > 2 else []


def main() -> None:
    """Run the tables that were asked for, or summarise those that are finished, or show what each layer has."""
    parser = parser_of(__doc__, TABLES)
    parser.add_argument("--layers", action="store_true", help="show the relevance of each layer")
    parser.add_argument("--limit", type=int, help="the first rows alone")
    parser.add_argument("--metrics", default="", help="instead of each table's own")
    parser.add_argument("--no-ceiling", action="store_true", help="and so no shares of the attainable")
    chosen = parser.parse_args()
    for name in () if chosen.summary else chosen.only.split(","):
        run = replace(TABLES[name], ceiling=0) if chosen.no_ceiling else TABLES[name]
        if chosen.limit is not None:
            run = replace(run, **{"limit" if run.sample is None else "sample": chosen.limit})
        if chosen.layers:
            print(by_layer(run, chosen), flush=True)
        else:
            measure(name, run, chosen, IN_STEPS if name.endswith("-steps") else ONE_PASS, chosen.metrics)
    if chosen.summary:
        print("\n\n".join(summarise(chosen.out)))


if __name__ == "__main__":
    main()
