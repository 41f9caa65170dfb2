"""The tables of docs/results.md about stepwise: one pass beside 3, 5 and 10 steps, on real models and data.

python benchmarks/tables/stepwise.py --models DIR --data DIR --out steps [--only sst2,movies] [--device cuda]
python benchmarks/tables/stepwise.py --out steps --summary

DIR of models and data as results.py has them. A run that was stopped goes on where it was.
"""

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

if not __package__:  # run as a script
    sys.path[0] = str(Path(__file__).parents[2])

from benchmarks.tables.shared import (
    RUNS,
    headed,
    journals_of,
    lines,
    marked,
    measure,
    named,
    notes_of,
    number,
    parser_of,
    tables_of,
)
from whyformer.evaluation.table import Table
from whyformer.methods.specs import method_specs
from whyformer.results.table import REFERENCES, Difference

OF = ("attcat(states=inputs)", "attn_lrp", "cp_lrp", "transformer_attribution")
STEPS = (3, 5, 10)
METRICS = "aopc,aopc(hide=mask),log_odds,comprehensiveness,sufficiency"
TABLES = {
    "sst2": replace(RUNS["sst2"], metrics=METRICS),
    "ag_news": replace(RUNS["ag_news"], limit=500, metrics=METRICS),
    "mnli": replace(RUNS["mnli"], limit=500, ceiling=300, metrics=METRICS),
    "imdb": replace(RUNS["imdb"], sample=100, metrics=METRICS),
    "movies": RUNS["movies"],
}


def stepped(of: str, steps: int) -> str:
    """A method in so many steps."""
    return of if steps == 1 else f"stepwise(of={of}, steps={steps})"


METHODS = ("random", *(stepped(of, steps) for of in OF for steps in (1, *STEPS)))


def whole(table: Table) -> str:
    """Every number of a table; shares of the attainable where there is a ceiling."""
    shared = [metric for metric in table.metrics if any(table.share(method, metric) for method in table.methods)]
    rows = []
    for method in table.methods:
        cells = [marked(table, method, metric) for metric in table.metrics]
        shares = [number(table.share(method, metric), interval=False) for metric in shared]
        rows.append([named(method), passes(method), *cells, *shares])
    return lines(["method", "passes", *headed(table), *(f"share, `{metric}`" for metric in shared)], rows)


def passes(method: str) -> str:
    """How often a method explains a text: forward and backward, on ever shorter inputs."""
    if method in (*REFERENCES, "random"):
        return "–"
    return str(method_specs([method])[0].options.get("steps", STEPS[0])) if method.startswith("stepwise") else "1"


def gains(tables: dict[str, Table]) -> str:
    """By how much 3 and 10 steps are better than one pass, paired; ≈ where the interval includes 0."""
    rows = []
    for name, table in tables.items():
        for metric in table.metrics:
            sign = 1 if table.facts[metric]["higher_is_better"] else -1
            cells = []
            for of in OF:
                pairs = [(label(of, steps), label(of, 1))[::sign] for steps in (STEPS[0], STEPS[-1])]
                cells.append(" / ".join(gain(table.compare(metric, *pair)) for pair in pairs))
            rows.append([f"{TABLES[name].title}, `{metric}`", *cells])
    return lines([f"{STEPS[0]} / {STEPS[-1]} steps better by", *map(named, OF)], rows)


def gain(found: Difference | None) -> str:
    """A difference, marked where it may be none."""
    return f"{'≈ ' if found and found.low <= 0 <= found.high else ''}{number(found, interval=False, sign='+')}"


def label(of: str, steps: int) -> str:
    """A method in so many steps, as tables have it: defaults are left out."""
    return method_specs([stepped(of, steps)])[0].label


def summarise(out: Path) -> Iterator[str]:
    """Every number about stepwise in docs/results.md."""
    tables = tables_of(journals_of(out, TABLES))
    for name, table in tables.items():
        yield f"## {TABLES[name].title}\n\n{whole(table)}\n\n" + "\n".join(notes_of(table))
    yield f"## Steps beside one pass\n\n{gains(tables)}"


def main() -> None:
    """Run the tables that were asked for, or summarise those that are finished."""
    chosen = parser_of(__doc__, TABLES).parse_args()
    for name in () if chosen.summary else chosen.only.split(","):
        measure(name, TABLES[name], chosen, METHODS)
    if chosen.summary:
        print("\n\n".join(summarise(chosen.out)))


if __name__ == "__main__":
    main()
