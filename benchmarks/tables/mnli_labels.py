"""AttCAT's and Mask-LRP's MNLI columns, with the gold label as GLUE has it and as the papers' checkpoint reads it.

python benchmarks/tables/mnli_labels.py --models DIR --data DIR --out labels [--limit 1000] [--device cuda]
python benchmarks/tables/mnli_labels.py --models DIR --data DIR --out labels --summary

The code of both papers follows the gold label and runs textattack/bert-base-uncased-MNLI, whose classes stand in
another order than GLUE's labels, without a translation: the label names another class, seldom the predicted one. Here
the same is done to a model whose classes are in GLUE's order, by translating the labels. DIR of the models has the
folder nli, DIR of the data the folder mnli or the file mnli.jsonl. `--heads FILE` is the head mask of Mask-LRP's rows,
which is otherwise found in the texts; `--only attcat-table-1` leaves the other table out. A run that was stopped goes
on where it was; the summary is of what was measured, on whatever machine.
"""

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

if not __package__:  # run as a script
    sys.path[0] = str(Path(__file__).parents[2])

from benchmarks.tables.shared import RUNS, lines, number, parser_of, rows_of, source
from whyformer.datasets import Dataset
from whyformer.errors import WhyformerError
from whyformer.evaluation.journal import Journal
from whyformer.evaluation.table import Results
from whyformer.models.loading import Subject, load
from whyformer.storage import files
from whyformer_papers.reproduce import Entry, Measure, Part, Reproduced, Reproduction, reproduction_named, run

RECIPES = ("attcat-table-1", "mask-lrp-table-1")
MNLI = RUNS["mnli"]
GLUE = ("entailment", "neutral", "contradiction")
CHECKPOINT = ("contradiction", "entailment", "neutral")
READ = tuple(GLUE.index(name) for name in CHECKPOINT)  # the class that each of GLUE's labels then names
ORDERS = {"glue": "GLUE's labels", "read": "labels as the checkpoint reads them"}
TRANSLATED = "mnli-read.jsonl"


def checked(subject: Subject, folder: Path) -> Subject:
    """The model, if its classes are in GLUE's order."""
    if tuple(label.casefold() for label in subject.labels) != GLUE:
        raise SystemExit(
            f"the labels are translated for a model with the classes {', '.join(GLUE)}, in this order; {folder} has "
            f"{', '.join(subject.labels)}: name its classes so in id2label if that is what they are, or take another"
        )
    return subject


def translated(data: Dataset, path: Path) -> Path:
    """Write the pairs with the labels as the checkpoint reads them; pairs without a label are left out."""
    rows = []
    for example in data:
        if isinstance(example.text, str):
            raise SystemExit(f"{data.name}, row {example.row}, has one text where premise and hypothesis are needed")
        if example.label is not None:
            premise, hypothesis = example.text
            rows.append({"premise": premise, "hypothesis": hypothesis, "label": READ[int(example.label)]})
    files.make_folder(path.parent)
    return files.write(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


def of_gold(name: str) -> Reproduction:
    """A table with the measures that follow the gold label; the others are the same by either labels."""
    recipe = reproduction_named(name)
    return replace(recipe, measures=tuple(measure for measure in recipe.measures if measure.protocol))


@dataclass(frozen=True)
class Read:
    """The MNLI column of a table by one order of the labels, in a folder of its own."""

    reproduced: Reproduced
    folder: Path

    @property
    def part(self) -> Part:
        """The column."""
        (part,) = self.reproduced.parts
        return part

    def cell(self, row: str, method: str, measure: str) -> str:
        """A number, with its interval, or what it varies by between runs."""
        entry = next((e for e in self.part.entries if (e.row, e.method, e.measure) == (row, method, measure)), None)
        if entry is None or entry.ours is None:
            return "–"
        return number(entry.ours) if entry.spread is None else f"{entry.mean:.3f} ± {entry.spread:.3f}"

    def correlation(self, measure: str) -> str:
        """How far the order of the rows is the published one."""
        ranks = {agreement.measure: agreement.correlation for agreement in self.reproduced.agreements}
        return "–" if ranks.get(measure) is None else f"{ranks[measure]:.2f}"

    @property
    def accuracy(self) -> str:
        """How often the model says the label as it is read, also where a text is left out for an improbable label."""
        ((protocol, table),) = self.part.tables.items()
        journal = Journal.read(self.folder / self.part.column.journal / f"protocol-{protocol}")
        answers = Results.of(journal.chunks(), journal.run).right
        right = [answers[row] for row in {*table.right, *table.skipped} & answers.keys()]
        share = f"{100 * sum(map(bool, right)) / len(right):.1f} %"
        return f"the model is right on {share} of {len(right):,} texts, of which {len(table.right):,} are measured"


def measured(name: str, data: dict[str, Path], chosen: argparse.Namespace) -> dict[str, Read]:
    """A table by both orders of the labels."""
    recipe, columns = of_gold(name), {}
    for order, path in data.items():
        folder = chosen.out / order
        reproduced = run(
            recipe,
            out=folder,
            models=chosen.models,
            data=path,
            limit=chosen.limit,
            only=[MNLI.model],
            heads=chosen.heads if recipe.masked else None,
            device=chosen.device,
            dtype="float32",
            on_error="skip",
            measured=chosen.summary,
        )
        columns[order] = Read(reproduced, folder)
    return columns


def table_of(columns: dict[str, Read]) -> str:
    """The published numbers, and those of both orders."""
    reproduced = columns["glue"].reproduced
    measures = reproduced.recipe.measures
    first: dict[tuple[str, str], list[Entry]] = {}
    for entry in reproduced.entries:
        first.setdefault((entry.row, entry.method), []).append(entry)
    rows = []
    for (row, method), entries in first.items():
        cells = [cell for entry in entries for cell in cells_of(entry, columns)]
        rows.append([f"{row}: `{method}`" if method else f"{row}, left out", *cells])
    ranks = [["", *(column.correlation(measure.label) for column in columns.values())] for measure in measures]
    rows.append(["rank correlation", *(cell for own in ranks for cell in own)])
    return lines(["row", *(head for measure in measures for head in heads_of(measure))], rows)


def cells_of(entry: Entry, columns: dict[str, Read]) -> list[str]:
    """A published number, and ours by each order."""
    published = "–" if entry.published is None else f"{entry.published.value:.3f}"
    return [published, *(column.cell(entry.row, entry.method, entry.measure) for column in columns.values())]


def heads_of(measure: Measure) -> list[str]:
    """The heads of a measure's columns."""
    return [f"{measure.label} {'↑' if measure.higher_is_better else '↓'}, published", *ORDERS.values()]


def notes(columns: dict[str, Read]) -> Iterator[str]:
    """How right the model is by each order, then how the runs depart from the paper's."""
    for order, column in columns.items():
        yield f"- {ORDERS[order]}: {column.accuracy}"
    by_sentence: dict[str, list[str]] = {}
    for order, column in columns.items():
        for sentence in column.part.departures:
            by_sentence.setdefault(sentence, []).append(ORDERS[order])
    yield from (
        f"- {sentence}" if len(of) == len(ORDERS) else f"- {of[0]}: {sentence}" for sentence, of in by_sentence.items()
    )


def main() -> None:
    """Measure both tables by both orders, or show what was measured."""
    parser = parser_of(__doc__, RECIPES)
    parser.add_argument("--limit", type=int, default=MNLI.limit, help="how many pairs are taken")
    parser.add_argument("--heads", type=Path, help="a head mask of the model, as `whyformer heads` writes it")
    chosen = parser.parse_args()
    if not (chosen.models and chosen.data):
        parser.error("--models and --data are needed, for --summary too")
    if unknown := set(chosen.only.split(",")) - set(RECIPES):
        parser.error(f"--only takes {' and '.join(RECIPES)}; found {', '.join(sorted(unknown))}")
    folder = chosen.models / MNLI.model
    try:
        subject = checked(load(folder, dtype="float32"), folder)
        rows = rows_of(chosen.data, replace(MNLI, limit=None), subject)
        data = {"glue": source(chosen.data, MNLI)[0], "read": translated(rows, chosen.out / TRANSLATED)}
        for name in chosen.only.split(","):
            columns = measured(name, data, chosen)
            shown = "\n".join(notes(columns))
            print(f"## {name}, {MNLI.title}\n\n{table_of(columns)}\n\n{shown}\n", flush=True)
    except WhyformerError as error:
        raise SystemExit(str(error)) from error


if __name__ == "__main__":
    main()
