"""The tables of docs/decoded.md: hiding and revealing game of every layer and baseline, and what classes share.

python benchmarks/tables/decoded.py --models DIR --data DIR --out games [--only sst2,ag_news] [--device cuda]
python benchmarks/tables/decoded.py --out games --summary [--pictures docs/images]

DIR of the models has the folders sst2, agnews and base-mlm, whose LM head decodes; data as results.py has it.
`--part shapley` and `--part rest` measure the slowest row and the others, which can be done side by side. What classes
share is counted in tokens, each distinct one once a text, as in the paper, and in words, which the pictures show.
AllenNLP's Smooth is refused in these models: `smooth_grad`, the length of the averaged gradient, is measured in its
place. A run that was stopped goes on where it was.
"""

import argparse
import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain, combinations
from pathlib import Path
from statistics import fmean, stdev

if not __package__:  # run as a script
    sys.path[0] = str(Path(__file__).parents[2])

from benchmarks.tables.shared import (
    RUNS,
    journals_of,
    lines,
    marked,
    mean_of,
    measure,
    named,
    notes_of,
    parser_of,
    save,
)
from whyformer.evaluation.table import Results, Table
from whyformer.methods.specs import method_specs
from whyformer_papers.reproduce import reproduction_named
from whyformer_papers.words.overlap import Counting
from whyformer_papers.words.table import WordTable, tables_of

LAYERS = 6
RANDOM = [f"random(seed={seed})" for seed in range(20)]
BASELINES = {  # the rows of the paper, and what else there is
    "saliency(protocol=allennlp)": "Simple",
    "smooth_grad": "Smooth",
    "integrated_gradients(protocol=allennlp)": "Integrated",
    "shapley_value_sampling": "Shapley",
    "occlusion": "Occlusion",
    "integrated_gradients(steps=25, at=embedding_output)": "Integrated",
    "gradient_shap": "GradientShap",
    "lime(samples=25)": "LIME",
    "input_x_gradient(at=embedding_output)": "GradxAct",
    "deep_lift_shap": "DeepLiftShap",
    "kernel_shap": "",
    "attcat(states=inputs)": "",
    "attn_lrp": "",
}
GRAD_CAM = "decoded_grad_cam(layer=0, decode=false)"
SLOWEST, PARTS = "shapley_value_sampling", ("rest", "shapley")
TOP = (1, 5, 10, 20, 30, 50)
SHOWN = ("decoded_grad_cam(layer=5)", "shapley_value_sampling")  # with their words
OVERLAPS = (
    "decoded_grad_cam(decode=false, layer=0)",
    "decoded_grad_cam(layer=3)",
    "decoded_grad_cam(layer=5)",
    "shapley_value_sampling",
    "saliency(protocol=allennlp)",
    "attn_lrp",
    "random",
)
METRICS = ["hiding_game", "revealing_game", "token_overlap(k=50)", "token_overlap(k=50, units=token, once=true)"]
WORDS, AS_THE_PAPER = Counting(), Counting("token", once=True)
TABLES = {"sst2": RUNS["sst2"], "ag_news": replace(RUNS["ag_news"], limit=500)}
OF_ALLENNLP = [m for m, row in BASELINES.items() if "allennlp" in m or row == "Smooth"]
NOT_ON = {  # rows that the paper has for the other data set
    "sst2": [m for m in BASELINES if m not in OF_ALLENNLP],
    "ag_news": OF_ALLENNLP,
}
SMOOTH = (
    "- Smooth: AllenNLP's sums the averaged gradient over its width, which LayerNorms make 0 but for rounding, so "
    "`smooth_grad(protocol=allennlp)` is refused here; its length, `smooth_grad`, stands beside the published numbers"
)
RECIPES = {"sst2": "decoded-table-1", "ag_news": "decoded-table-2"}


def methods(lm_head: Path | str) -> list[str]:
    """Every row."""
    decoded = [f"decoded_grad_cam(layer={layer}, lm_head={lm_head})" for layer in range(LAYERS + 1)]
    return [GRAD_CAM, *decoded, *BASELINES, *RANDOM]


def measure_parts(name: str, chosen: argparse.Namespace) -> None:
    """Run one table, or a part of it; without a ceiling."""
    rows = methods(chosen.models / "base-mlm")
    parts = {"shapley": [SLOWEST], "rest": [row for row in rows if row != SLOWEST]}
    for part in PARTS if chosen.part == "all" else (chosen.part,):
        measure(f"{name}-{part}", replace(TABLES[name], ceiling=0), chosen, parts[part], METRICS)


def finished(out: Path) -> dict[str, Results]:
    """What was measured, by data set."""
    found = {}
    for name in TABLES:
        journals = [*journals_of(out, (f"{name}-{part}" for part in PARTS)).values()]
        if journals:
            found[name] = Results.of(chain.from_iterable(j.chunks() for j in journals), journals[0].run)
    return found


def label(written: str) -> str:
    """A method as a table has it."""
    return method_specs([written])[0].label


def readable(method: str) -> str:
    """A label without the folder of the LM head."""
    start, _, rest = method.partition(", lm_head=")
    return start + ")" if rest else method


def games(name: str, table: Table) -> str:
    """Both games, the published numbers beside them; random as the mean over its seeds."""
    published = reproduction_named(RECIPES[name]).published
    names = {label(method): row for method, row in BASELINES.items()} | {label(GRAD_CAM): "Grad-CAM l0"}
    names |= {label(method): "" for method in NOT_ON[name]}
    drawn = [method for method in table.methods if method.startswith("random")]
    title, rows = TABLES[name].title, []
    for method in table.methods:
        if method in drawn:
            continue
        said = [published.get((names.get(method, ""), title, measure)) for measure in ("revealing", "hiding")]
        theirs = " / ".join(f"{one.value:.3f}" for one in said if one) or "–"
        cells = [marked(table, method, metric) for metric in table.metrics[:2]]
        rows.append([named(readable(method)), names.get(method, ""), cells[1], cells[0], theirs])
    chance = [[mean_of(table, method, metric) for method in drawn] for metric in table.metrics[:2]]
    spread = [f"{fmean(own):.3f} ± {stdev(own):.3f}" for own in chance]
    theirs = " / ".join(f"{published['Random', title, measure].value:.3f}" for measure in ("revealing", "hiding"))
    rows.append([f"`random`, {len(drawn)} seeds", "Random", spread[1], spread[0], theirs])
    return lines(["method", "paper's row", "revealing ↑", "hiding ↓", "published, RoBERTa"], rows)


def words(tables: dict[str, WordTable], counting: Counting) -> str:
    """The share of the top k words or tokens that two classes have in common, percent; then these themselves."""
    shown = {method: table for method, table in tables.items() if not method.startswith("random(")}
    rows = [[named(m), *(f"{100 * t.overlap(k):.1f}" for k in TOP)] for m, t in shown.items()]
    found = [lines([f"{counting}: shared by two classes, %", *(f"top {k}" for k in TOP)], rows)]
    for method in (m for m in SHOWN if m in tables):
        table = tables[method]
        pairs = combinations(table.classes, 2)
        shared = (
            f"{a} and {b}: {' '.join(f'`{word}`' for word in table.shared(a, b, 50)) or 'none'}" for a, b in pairs
        )
        found.append(f"`{method}`, shared among the top 50. " + "; ".join(shared) + ".")
    return "\n\n".join(found)


def draw(name: str, table: Table, tables: dict[str, WordTable], folder: Path) -> None:
    """The curves of the layers (Figures 5 and 6), what classes share (Figure 4) and word clouds (Figures 7 and 8)."""
    from whyformer_papers.words.clouds import clouds_figure
    from whyformer_papers.words.curves import overlap_figure

    folder.mkdir(parents=True, exist_ok=True)
    save(overlap_figure({m: tables[m] for m in OVERLAPS if m in tables}, 50), folder / f"overlap-{name}.png")
    save(clouds_figure({m: tables[m] for m in SHOWN if m in tables}, 50), folder / f"clouds-{name}.png", dpi=65)
    for metric in table.metrics[:2]:
        chosen = tuple(m for m in table.methods if "decoded" in m or m in ("random", "shapley_value_sampling"))
        save(replace(table, methods=chosen).figure(metric), folder / f"curves-{name}-{metric}.png")


def summarise(out: Path, pictures: Path | None) -> Iterator[str]:
    """Every number of docs/decoded.md that is not about cost."""
    for name, results in finished(out).items():
        table = results.table()
        series = {(readable(method), metric): own for (method, metric), own in table.series.items()}
        table = replace(table, methods=tuple(map(readable, table.methods)), series=series)
        tables = {counting: tables_of(table, counting) for counting in (AS_THE_PAPER, WORDS)}
        notes = [*notes_of(table, ("model:", "data:")), *([SMOOTH] if name == "sst2" else [])]
        yield f"## {TABLES[name].title}\n\n{games(name, table)}\n\n" + "\n".join(notes)
        yield from (words(own, counting) for counting, own in tables.items())
        if pictures:
            draw(name, table, tables[WORDS], pictures)


def main() -> None:
    """Run the tables that were asked for, or summarise those that are finished."""
    parser = parser_of(__doc__, TABLES)
    parser.add_argument("--part", choices=("all", *PARTS), default="all")
    parser.add_argument("--pictures", type=Path, help="where the summary's pictures go")
    chosen = parser.parse_args()
    for name in () if chosen.summary else chosen.only.split(","):
        measure_parts(name, chosen)
    if chosen.summary:
        print("\n\n".join(summarise(chosen.out, chosen.pictures)))


if __name__ == "__main__":
    main()
