"""The tables of docs/results.md: every one-pass method on real models and data, with the ceiling where there is one.

python benchmarks/tables/results.py --models DIR --data DIR --out runs [--only sst2,ag_news] [--device cuda]
python benchmarks/tables/results.py --out runs --summary [--pictures docs/images]

DIR of the models has the folders sst2, agnews, imdb and nli; DIR of the data the folders sst2, ag_news, imdb,
yelp_polarity, mnli and eraser_movies, or files such as sst2.jsonl. A run that was stopped goes on where it was. The
summary reads what the runs wrote and prints every number of docs/results.md.
"""

import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from statistics import mean

if not __package__:  # run as a script
    sys.path[0] = str(Path(__file__).parents[2])

from benchmarks.tables.shared import (
    PLAUSIBILITY,
    RUNS,
    journals_of,
    lines,
    marked,
    measure,
    named,
    notes_of,
    number,
    parser_of,
    save,
    tables_of,
)
from whyformer.evaluation.journal import Journal
from whyformer.evaluation.table import Table
from whyformer.results.table import REFERENCES, Difference
from whyformer_papers.reproduce import reproduction_named

ONE_PASS = (
    "random,raw_attention,rollout,grads,att_grads,cam,grad_cam,cat,cat(states=inputs),attcat,attcat(states=inputs),"
    "lrp,partial_lrp,transformer_attribution,gae,alti,cp_lrp,attn_lrp,saliency,input_x_gradient"
)


STANDS_FOR = {
    "RawAtt": "raw_attention",
    "Rollout": "rollout",
    "LRP": "lrp",
    "Grads": "grads",
    "AttGrads": "att_grads",
    "PartialLRP": "partial_lrp",
    "TransAtt": "transformer_attribution",
    "ALTI": "alti",
    "CAT": "cat(states=inputs)",
    "AttCAT": "attcat(states=inputs)",
}
TABLES = {  # whose: the recipes that hold the published numbers
    "AttCAT": ("attcat-table-1", "attcat-table-2"),
    "Mask-LRP": ("mask-lrp-table-1", "mask-lrp-table-4"),
}
MEASURES = {"aopc": "AOPC", "log_odds": "LOdds", "kendall_tau": "Kendall"}
ORDERS = (  # the better row of a paper over the worse
    "AttCAT>TransAtt AttCAT>CAT AttCAT>Grads AttGrads>Grads TransAtt>PartialLRP PartialLRP>RawAtt RawAtt>Rollout "
    "Rollout>LRP ALTI>RawAtt"
)
OF_THE_PAPER = ("transformer_attribution", "rollout", "raw_attention", "grad_cam", "lrp", "partial_lrp")
LEADERS = ("attn_lrp", "cp_lrp")
WEAK = ("lrp", "grad_cam", "attention_flow", "input_x_gradient")
DRAWN = (
    "random,rollout,raw_attention,grads,saliency,attcat(states=inputs),lrp,partial_lrp,transformer_attribution,gae,"
    "alti,cp_lrp,attn_lrp,input_x_gradient,attention_flow,chance,ceiling"
)
PICTURES = (("sst2", "aopc"), ("ag_news", "aopc"), ("movies", "token_f1"))


@dataclass(frozen=True)
class Finished:
    """What the runs below a folder have found, by their names."""

    folder: Path

    @cached_property
    def journals(self) -> dict[str, Journal]:
        """The journals that are there."""
        return journals_of(self.folder, RUNS)

    @cached_property
    def tables(self) -> dict[str, Table]:
        """Their tables."""
        return tables_of(self.journals)

    def having(self, metric: str) -> dict[str, Table]:
        """The tables that have a metric."""
        return {name: table for name, table in self.tables.items() if metric in table.metrics}

    def facts(self, name: str) -> Iterator[str]:
        """What a reader must know beside the numbers."""
        table, journal = self.tables[name], self.journals[name]
        yield from notes_of(table)
        said = {example["row"]: example for chunk in journal.chunks() for example in chunk.examples}
        lengths = sorted(example["units"] for example in said.values())
        longest = f"{sum(length > 126 for length in lengths)} texts of more than 126"
        yield f"- units: {lengths[0]} to {lengths[-1]}, median {lengths[len(lengths) // 2]}; {longest}"
        yield f"- {sum('dropped' in example for example in said.values())} texts cut at the window"
        labels = journal.run["about"]["labels"]
        gold = [example["gold"] for example in said.values()]
        yield "- gold classes: " + ", ".join(f"{label} {gold.count(n)}" for n, label in enumerate(labels))


def compact(table: Table) -> str:
    """Every metric with its share, and the number of rows where it is not that of most methods."""
    head, columns = ["method"], [[named(method) for method in table.methods]]
    for metric in table.metrics:
        counts = [cell.n if (cell := table[method, metric]) else 0 for method in table.methods]
        most = max(filter(None, counts), key=counts.count)
        head.append(f"`{metric}` {'↑' if table.facts[metric]['higher_is_better'] else '↓'}, n = {most}")
        shown = [marked(table, method, metric, interval=metric != "kendall_tau") for method in table.methods]
        columns.append([s if n in (0, most) else f"{s} (n = {n})" for s, n in zip(shown, counts, strict=True)])
        if any(shares := [table.share(method, metric) for method in table.methods]):
            head.append("share")
            columns.append([number(share, interval=False) for share in shares])
    return lines(head, zip(*columns, strict=True))


def better(table: Table, metric: str, first: str, second: str) -> Difference | None:
    """By how much the first method is better than the second, over the rows that both have."""
    if not {first, second} <= set(table.methods):
        return None
    return table.compare(metric, *((first, second) if table.facts[metric]["higher_is_better"] else (second, first)))


def gap_table(finished: Finished, metric: str) -> str:
    """How far every method is behind the best of each table, in percent of the best; the smallest worst case first."""
    tables = finished.having(metric)
    gaps: dict[str, list[float]] = {}
    for table in tables.values():
        means = {method: cell.mean for method in table.methods if (cell := table[method, metric])}
        best = means[str(table.best(metric))]
        for method in means.keys() - set(REFERENCES):
            gaps.setdefault(method, []).append(100 * abs(best - means[method]) / abs(best))
    everywhere = [method for method, own in gaps.items() if len(own) == len(tables)]
    rows = [
        [named(method), *(f"{gap:.1f}" for gap in (*gaps[method], mean(gaps[method]), max(gaps[method])))]
        for method in sorted(everywhere, key=lambda method: max(gaps[method]))
    ]
    return lines([f"`{metric}`, % behind the best", *(RUNS[name].title for name in tables), "mean", "worst"], rows)


def lead_table(finished: Finished) -> str:
    """Of every table, how far the leaders are ahead of the best of all other methods."""
    rows = []
    for metric in ("aopc", "log_odds"):
        for name, table in finished.having(metric).items():
            others = tuple(method for method in table.methods if method not in (*LEADERS, *REFERENCES))
            best = str(replace(table, methods=others).best(metric))
            ahead = [number(better(table, metric, leader, best), sign="+") for leader in LEADERS]
            behind = f"{named(best)} {number(table[best, metric], False)}"
            rows.append([f"{RUNS[name].title}, `{metric}`", behind, *ahead])
    return lines(["", "best of the others", *(f"{named(leader)} is better by" for leader in LEADERS)], rows)


def published(paper: str, metric: str) -> dict[tuple[str, str], float]:
    """What a paper has for a row and a run."""
    names, found = {run.title.replace("-", ""): name for name, run in RUNS.items()}, {}
    for (row, column, name_there), said in (i for r in TABLES[paper] for i in reproduction_named(r).published.items()):
        row, name = "TransAtt" if row == "GAE" else row, names.get(column.replace("-", ""))
        if name_there == MEASURES[metric] and name and row in STANDS_FOR:
            found[row, name] = said.value
    return found


def beside(finished: Finished, paper: str, *metrics: str) -> str:
    """The published numbers beside those found here, and how alike their orders are."""
    from scipy.stats import spearmanr

    theirs = {metric: published(paper, metric) for metric in metrics}
    labels = list(dict.fromkeys(row for row, _ in theirs[metrics[0]]))
    columns: list[list[str]] = []
    shown = {name: t for name, t in finished.having(metrics[0]).items() if (labels[0], name) in theirs[metrics[0]]}
    for name, table in shown.items():
        cells = [[table[STANDS_FOR[row], metric] for metric in metrics] for row in labels]
        here = [[cell.mean if cell else math.nan for cell in own] for own in cells]
        said = [[theirs[metric].get((row, name), math.nan) for metric in metrics] for row in labels]
        columns += [[" / ".join(f"{v:.3f}".replace("nan", "–") for v in own) for own in side] for side in (said, here)]
        orders = zip(zip(*said, strict=True), zip(*here, strict=True), strict=True)
        columns[-1].append(" / ".join(f"{spearmanr(*both, nan_policy='omit').statistic:.2f}" for both in orders))
        columns[-2].append("")
    names = [*(f"{row}: {named(STANDS_FOR[row])}" for row in labels), "rank correlation"]
    head = [part for name in shown for part in (f"{RUNS[name].title}, published", "here")]
    return lines([f"{paper}: {' / '.join(MEASURES[m] for m in metrics)}", *head], zip(names, *columns, strict=True))


def order_table(finished: Finished, metric: str) -> str:
    """Of pairs of methods, by how much the first is better: in both papers, and here."""
    tables, sign = finished.having(metric), 1 if metric == "aopc" else -1
    said = [published(paper, metric) for paper in TABLES]
    rows = []
    for first, second in (pair.split(">") for pair in ORDERS.split()):
        cells = []
        for name, table in tables.items():
            pairs = [[sign * own.get((row, name), math.nan) for row in (first, second)] for own in said]
            parts = ["–" if math.isnan(one - other) else f"{one - other:+.3f}" for one, other in pairs]
            found = better(table, metric, STANDS_FOR[first], STANDS_FOR[second])
            tied = "≈ " if found and found.low <= 0 <= found.high else ""
            cells.append(f"{' / '.join(parts)} / {tied}**{number(found, False, '+')}**")
        rows.append([f"{first} over {second}", *cells])
    return lines([f"`{metric}`: AttCAT / Mask-LRP / **here**", *(RUNS[name].title for name in tables)], rows)


def weak_table(finished: Finished, metric: str) -> str:
    """How much better than a random order the weakest methods are."""
    tables = finished.having(metric)
    rows = [
        [named(method), *(number(better(table, metric, method, "random"), sign="+") for table in tables.values())]
        for method in WEAK
    ]
    return lines([f"better than `random`, `{metric}`", *(RUNS[name].title for name in tables)], rows)


def curve_table(table: Table, metric: str) -> str:
    """The mean and the curve of every method, the best in bold; then where the paper's own method stands."""
    curves = {method: curve[1] for method in table.methods if (curve := table.curve(method, metric))}
    tops = [max(column) for column in zip(*curves.values(), strict=True)]
    rows = []
    for method, means in curves.items():
        shown = [f"**{v:.3f}**" if v == top else f"{v:.3f}" for v, top in zip(means, tops, strict=True)]
        rows.append([named(method), marked(table, method, metric), *shown])
    own, *others = (curves[method] for method in OF_THE_PAPER)
    next_best = [max(column) for column in zip(*others, strict=True)]
    for said, rivals in (("the best", tops), ("the best of the paper's five others", next_best)):
        rows.append([f"its own less {said}", "", *(f"{v - w:+z.3f}" for v, w in zip(own, rivals, strict=True))])
    return lines(["method", f"`{metric}` ↑", *(f"k = {k:.0f}" for k in table.facts[metric]["at"])], rows)


def draw(finished: Finished, folder: Path) -> None:
    """Pictures of a few curves."""
    for name, metric in PICTURES:
        if name not in finished.tables:
            continue
        table = finished.tables[name]
        figure = replace(table, methods=tuple(m for m in table.methods if m in DRAWN.split(","))).figure(metric)
        figure.axes[0].set_title(f"{RUNS[name].title}: {figure.axes[0].get_title(loc='left')}", loc="left", fontsize=11)
        save(figure, folder / f"curves-{name}-{metric}.png")


def summarise(finished: Finished) -> Iterator[str]:
    """Every number of docs/results.md."""
    for name, table in finished.tables.items():
        plausible = [curve_table(table, metric) for metric in table.metrics if metric in PLAUSIBILITY.split(",")]
        shown = "\n\n".join(plausible) or compact(table)
        yield f"## {RUNS[name].title}\n\n{shown}\n\n" + "\n".join(finished.facts(name))
    hiding = ("aopc", "log_odds")
    yield "## Behind the best"
    yield from (gap_table(finished, metric) for metric in hiding)
    yield lead_table(finished)
    yield "## Beside the published numbers"
    yield from (beside(finished, paper, *hiding) for paper in TABLES)
    yield beside(finished, "AttCAT", "kendall_tau")
    yield from (order_table(finished, metric) for metric in hiding)
    yield "## Beside a random order"
    yield from (weak_table(finished, metric) for metric in hiding)


def main() -> None:
    """Run the tables that were asked for, or summarise those that are finished."""
    parser = parser_of(__doc__, RUNS)
    parser.add_argument("--methods", default=ONE_PASS)
    parser.add_argument("--metrics", default="", help="instead of each table's own")
    parser.add_argument("--pictures", type=Path, help="where the summary's pictures go")
    chosen = parser.parse_args()
    finished = Finished(chosen.out)
    if chosen.summary and not finished.journals:
        parser.error(f"there are no runs in {chosen.out}")
    if not chosen.summary and not (chosen.models and chosen.data):
        parser.error("--models and --data are needed, or --summary")
    for name in () if chosen.summary else chosen.only.split(","):
        measure(name, RUNS[name], chosen, chosen.methods, chosen.metrics)
    if chosen.summary:
        print("\n\n".join(summarise(finished)))
    if chosen.summary and chosen.pictures:
        draw(finished, chosen.pictures)


if __name__ == "__main__":
    main()
