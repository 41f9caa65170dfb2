"""What the tables share: which models and data there are, how they are measured, read and written in Markdown."""

import argparse
import io
import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from whyformer.datasets import Dataset, open_dataset
from whyformer.evaluation.evaluate import evaluate
from whyformer.evaluation.journal import FILE, Journal
from whyformer.evaluation.table import Results, Table
from whyformer.models.loading import Subject, load
from whyformer.results.table import REFERENCES, Cell, Difference

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FAITHFULNESS = "aopc,log_odds,kendall_tau"
PLAUSIBILITY = "token_f1,token_f1(window=inside)"  # evidence beyond the window is missed, or does not count


@dataclass(frozen=True)
class Run:
    """One table."""

    title: str
    model: str
    data: str
    limit: int | None
    ceiling: int = 0
    metrics: str = FAITHFULNESS
    split: str | None = None
    sample: int | None = None  # drawn at random: of a file that is sorted by class


RUNS = {
    "sst2": Run("SST-2", "sst2", "sst2", None, ceiling=300),
    "ag_news": Run("AG News", "agnews", "ag_news", 1000, ceiling=300),
    "imdb": Run("IMDB", "imdb", "imdb", None, sample=300),
    "yelp": Run("Yelp", "imdb", "yelp_polarity", 1000),
    "mnli": Run("MNLI", "nli", "mnli", 1000),
    "movies": Run("Movie Reviews", "imdb", "eraser_movies", None, metrics=PLAUSIBILITY, split="test"),
}
BUNDLED = {"sst2": "sentiment"}  # what is in the package, where a folder of models has it not
SPLITS = {"sst2": "validation", "mnli": "validation_matched"}


def parser_of(description: str | None, runs: Iterable[str]) -> argparse.ArgumentParser:
    """The options that the scripts share."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=Path)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", default=",".join(runs))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--summary", action="store_true", help="of finished runs")
    return parser


def source(folder: Path, run: Run) -> tuple[Path, str | None]:
    """The file or folder of the data, and its split."""
    file = folder / f"{run.data}.jsonl"
    return (file, None) if file.is_file() else (folder / run.data, run.split or SPLITS.get(run.data, "test"))


def rows_of(folder: Path, run: Run, subject: Subject) -> Dataset:
    """The rows of a table."""
    path, split = source(folder, run)
    labels = subject.labels
    if run.sample is None:
        return open_dataset(path, split=split, labels=labels, on_error="skip", limit=run.limit)
    return open_dataset(path, split=split, labels=labels, on_error="skip", sample=run.sample)


def measure(
    name: str,
    run: Run,
    chosen: argparse.Namespace,
    methods: str | Sequence[str],
    metrics: str | Sequence[str] = "",
    **options: Any,
) -> None:
    """Run one table, and print it; it is kept in a folder of its name. Options are those of `evaluate`."""
    folder = chosen.models / run.model
    model = BUNDLED[run.model] if run.model in BUNDLED and not folder.exists() else folder
    subject = load(model, device=chosen.device, dtype="float32")
    begun = time.perf_counter()
    table = evaluate(
        subject,
        rows_of(chosen.data, run, subject),
        methods,
        metrics or run.metrics,
        out=chosen.out / name,
        ceiling=run.ceiling,
        **options,
    )
    print(f"## {name}: {time.perf_counter() - begun:.0f} s on {subject.device}\n\n{table.to_markdown()}", flush=True)


def journals_of(out: Path, names: Iterable[str]) -> dict[str, Journal]:
    """The journals of those runs that have one."""
    return {name: Journal.read(out / name) for name in names if (out / name / FILE).is_file()}


def tables_of(journals: Mapping[str, Journal]) -> dict[str, Table]:
    """The tables of runs."""
    return {name: Results.of(journal.chunks(), journal.run).table() for name, journal in journals.items()}


def notes_of(table: Table, without: tuple[str, ...] = ("model:", "data:", "in brackets:")) -> Iterator[str]:
    """What a reader must know beside the numbers, as a list in Markdown."""
    return (f"- {note}" for note in table.footer if not note.startswith(without))


def lines(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    rule = ["---", *["---:"] * (len(head) - 1)]
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, rule, *rows))


def named(method: str) -> str:
    """A method as it is written in a table."""
    return f"*{method}*" if method in REFERENCES else f"`{method}`"


def number(cell: Cell | Difference | None, interval: bool = True, sign: str = "") -> str:
    """A number and its interval, if it has one."""
    if cell is None or math.isnan(cell.mean):
        return "–"
    bounds = f" [{cell.low:{sign}z.3f}, {cell.high:{sign}z.3f}]" if interval and not math.isnan(cell.low) else ""
    return f"{cell.mean:{sign}z.3f}{bounds}"


def mean_of(table: Table, method: str, metric: str) -> float:
    """The mean of a row that must be there."""
    cell = table[method, metric]
    if cell is None:
        raise SystemExit(f"the table has no {metric} of {method}: measure it first")
    return cell.mean


def marked(table: Table, method: str, metric: str, interval: bool = True) -> str:
    """A number of a table, the best in bold, ≈ where it cannot be told from the best."""
    first, *rest = number(table[method, metric], interval).split(" ", 1)
    shown = f"**{first}**" if method == table.best(metric) else f"≈ {first}" if method in table.tied(metric) else first
    return " ".join([shown, *rest])


def headed(table: Table) -> list[str]:
    """The metrics of a table, each with the direction that is better."""
    return [f"`{metric}` {'↑' if table.facts[metric]['higher_is_better'] else '↓'}" for metric in table.metrics]


def save(figure: "Figure", path: Path, dpi: int = 110) -> None:
    """A picture in few colours, so that the file is small."""
    from PIL import Image

    figure.savefig(buffer := io.BytesIO(), format="png", dpi=dpi)
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.open(buffer).convert("RGB").quantize(96).save(path, optimize=True)
