"""The rows of a CSV file of results: one row a number."""

import csv
import io
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from whyformer import Table, WhyformerError
from whyformer.methods.method import method_specs
from whyformer_papers.results.study import Study

REFERENCES = ("ceiling", "chance")
SEED = re.compile(r"seed=\d+")


@dataclass(frozen=True, kw_only=True)
class Row:
    """One number, and how it was made.

    `better` is `higher` or `lower`. `rank` is `best` for the best method of the study, and `tied` for a method that
    cannot be told from it: the 95 % interval of the paired difference includes 0. `share` is (method - chance) /
    (ceiling - chance). `quantity` is what was explained, `samples` and `seed` are those of methods that draw.
    """

    study: str
    model: str
    data: str
    method: str
    metric: str
    mean: float
    low: float
    high: float
    n: int
    better: str
    rank: str = ""
    share: float = math.nan
    quantity: str = ""
    samples: str = ""
    seed: str = ""
    commit: str = ""
    command: str = ""
    machine: str = ""
    date: str = ""


def table_rows(study: Study, table: Table, values: Mapping[str, str], run: Mapping[str, Any]) -> list[Row]:
    """The rows of a finished evaluation; `values` are those of the placeholders, `run` says where it ran."""
    rows = []
    for metric in table.metrics:
        best, tied = table.best(metric), table.tied(metric)
        better = "higher" if table.facts[metric]["higher_is_better"] else "lower"
        for method in table.methods:
            cell = table[method, metric]
            if cell is None or not cell.n or math.isnan(cell.mean):
                continue
            share = table.share(method, metric)
            facts = {} if method in REFERENCES else _facts(study, method, table.run)
            rows.append(
                Row(
                    study=study.name,
                    model=study.model,
                    data=data_name(study),
                    method=_without_seed(study.unfilled(method, values)),
                    metric=metric,
                    mean=cell.mean,
                    low=cell.low,
                    high=cell.high,
                    n=cell.n,
                    better=better,
                    rank="best" if method == best else "tied" if method in tied else "",
                    share=math.nan if share is None else share.mean,
                    **facts,
                    **run,
                )
            )
    return rows


def data_name(study: Study) -> str:
    """The data set and its split."""
    return f"{study.data}/{study.split}" if study.split else study.data


def _facts(study: Study, method: str, run: Mapping[str, Any]) -> dict[str, str]:
    """What a method explained, and how it drew."""
    spec = method_specs([method])[0]
    usual = spec.quantity if run["about"].get("log_odds") else "logit"
    quantity = study.options.get("explains") or ("versus runner_up" if study.options.get("versus") else usual)
    drawn: dict[str, str] = {
        name: str(spec.options.get(name, spec.of.options[name].default))
        for name in ("samples", "seed")
        if name in spec.of.options
    }
    return {"quantity": quantity, **drawn}


def _without_seed(label: str) -> str:
    """A label without its seed, which has a column of its own."""
    name, _, options = label.partition("(")
    kept = [option for option in options.removesuffix(")").split(", ") if option and not SEED.fullmatch(option)]
    return f"{name}({', '.join(kept)})" if kept else name


def write_rows(rows: Iterable[Row], path: Path) -> None:
    """Write a CSV file. Numbers have six digits; there is nothing where there is no number."""
    text = io.StringIO()
    writer = csv.DictWriter(text, [each.name for each in fields(Row)], lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _written(value) for name, value in asdict(row).items()} for row in rows)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text.getvalue(), encoding="utf-8")


def _written(value: float | str) -> str:
    if isinstance(value, float):
        return "" if math.isnan(value) else f"{value:.6g}"
    return str(value)


def read_rows(path: Path) -> list[Row]:
    """The rows of a CSV file, in its order."""
    with path.open(encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file))
    if missing := [each.name for each in fields(Row) if lines and each.name not in lines[0]]:
        raise WhyformerError(f"{path} has no column {missing[0]!r}: it is no file of results")
    return [Row(**{each.name: _read(each.type, line[each.name]) for each in fields(Row)}) for line in lines]


def _read(kind: Any, text: str) -> Any:
    if kind is float:
        return float(text) if text else math.nan
    return int(text) if kind is int else text
