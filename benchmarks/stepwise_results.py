"""The tables of docs/results.md about stepwise: one pass beside 3, 5 and 10 steps, on real models and data.

python benchmarks/stepwise_results.py --models DIR --data DIR --out steps [--only sst2,movies] [--device cuda]
python benchmarks/stepwise_results.py --out steps --summary [--pictures docs/images]

DIR of models and data as benchmarks/results.py has them. A run that was stopped goes on where it was.
"""

import argparse
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from results import RUNS, Run, lines, marked, named, number, rows_of

from whyformer.evaluation.evaluate import evaluate
from whyformer.evaluation.journal import FILE, Journal
from whyformer.evaluation.table import Results, Table
from whyformer.methods.specs import method_specs
from whyformer.models.loading import load
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


def measure(name: str, chosen: argparse.Namespace) -> None:
    """Run one table, and print it."""
    run: Run = TABLES[name]
    subject = load(chosen.models / run.model, device=chosen.device, dtype="float32")
    data = rows_of(chosen.data, run, subject)
    begun = time.perf_counter()
    table = evaluate(subject, data, METHODS, run.metrics, out=chosen.out / name, ceiling=run.ceiling)
    print(f"## {name}: {time.perf_counter() - begun:.0f} s on {subject.device}\n\n{table.to_markdown()}", flush=True)


def whole(table: Table) -> str:
    """Every number of a table; shares of the attainable where there is a ceiling."""
    arrows = [f"`{metric}` {'↑' if table.facts[metric]['higher_is_better'] else '↓'}" for metric in table.metrics]
    shared = [metric for metric in table.metrics if any(table.share(method, metric) for method in table.methods)]
    rows = []
    for method in table.methods:
        cells = [marked(table, method, metric) for metric in table.metrics]
        shares = [number(table.share(method, metric), interval=False) for metric in shared]
        rows.append([named(method), passes(method), *cells, *shares])
    return lines(["method", "passes", *arrows, *(f"share, `{metric}`" for metric in shared)], rows)


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
    journals = {name: Journal.read(out / name) for name in TABLES if (out / name / FILE).is_file()}
    tables = {name: Results.of(found.chunks(), found.run).table() for name, found in journals.items()}
    for name, table in tables.items():
        notes = [note for note in table.footer if not note.startswith(("model:", "data:", "in brackets:"))]
        yield f"## {TABLES[name].title}\n\n{whole(table)}\n\n" + "\n".join(f"- {note}" for note in notes)
    yield f"## Steps beside one pass\n\n{gains(tables)}"


def main() -> None:
    """Run the tables that were asked for, or summarise those that are finished."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=Path)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", default=",".join(TABLES))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--summary", action="store_true")
    chosen = parser.parse_args()
    if chosen.summary:
        print("\n\n".join(summarise(chosen.out)))
        return
    for name in chosen.only.split(","):
        measure(name, chosen)


if __name__ == "__main__":
    main()
