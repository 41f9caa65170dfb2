"""Measure studies, and turn finished runs into CSV files."""

import json
import os
import platform
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from typing import Any

import torch

from whyformer import Dataset, Explainer, WhyformerError, open_dataset
from whyformer.evaluation.evaluate import Results
from whyformer.evaluation.journal import Journal
from whyformer.methods.head_mask import HeadMask
from whyformer_papers.heads import Treebank, head_statistics
from whyformer_papers.results import checked, two_images
from whyformer_papers.results.rows import Row, data_name, table_rows, write_rows
from whyformer_papers.results.study import HEADS, LM_HEAD, RATE, Study

JOURNAL, RUN, HEAD_MASK = "journal.jsonl", "run.json", "heads.json"
COMMAND = "python -m whyformer_papers.results --models MODELS --data DATA --out OUT"


@dataclass(frozen=True, kw_only=True)
class RunPlace:
    """Where models and data are, and where runs and CSV files go."""

    out: Path
    tables: Path
    models: Path | None = None
    data: Path | None = None
    limit: int | None = None
    device: str | None = None
    commit: str = ""


def limited(study: Study, limit: int | None) -> Study:
    """The study with at most so many rows."""
    if limit is None:
        return study
    return replace(study, limit=min(study.limit, limit), ceiling=min(study.ceiling, limit))


def measure(study: Study, place: RunPlace) -> None:
    """Run a study, or what is missing of it, in a folder of its name."""
    study, folder = limited(study, place.limit), place.out / study.name
    explainer = Explainer.load(_model(study, place), device=place.device, dtype="float32")
    data = _data(study, place, explainer)
    before = _state(folder)
    if study.kind == "two_images":
        two_images.measure(study, explainer, data, folder)
        values: dict[str, str] = {}
    else:
        values = _values(study, place, explainer, folder)
        methods = study.filled(values)
        options: dict[str, Any] = {"ceiling": study.ceiling, **study.options}
        explainer.evaluate(data, methods, metrics=list(study.metrics), out=folder, **options)
    if _state(folder) != before or not (folder / RUN).is_file():
        facts = {"run": _run(study, place, explainer), "values": values, "limit": study.limit}
        (folder / RUN).write_text(json.dumps(facts), encoding="utf-8")


def is_finished(study: Study, place: RunPlace) -> bool:
    """True if the folder of a study has a finished run."""
    return (place.out / study.name / RUN).is_file()


def write_table(study: Study, place: RunPlace) -> Path:
    """Write the CSV file of a finished run."""
    facts = json.loads((place.out / study.name / RUN).read_text(encoding="utf-8"))
    path = place.tables / f"{study.name}.csv"
    write_rows(_rows(study, place.out / study.name, facts["values"], facts["run"]), path)
    return path


def _rows(study: Study, folder: Path, values: Mapping[str, str], run: Mapping[str, str]) -> list[Row]:
    if study.kind == "two_images":
        return _share_rows(study, two_images.shares(folder), run, better="higher")
    journal = Journal.read(folder)
    table = Results.of(journal.chunks(), journal.run).table()
    rows = table_rows(study, table, values, run)
    if {checked.DELETED, checked.MASKED} <= set(study.metrics):
        records = chain.from_iterable(chunk.records for chunk in journal.chunks())
        quantities = {row.method: row.quantity for row in rows}
        shares = _share_rows(study, checked.checked_shares(records), run, better="")
        rows += [replace(row, quantity=quantities.get(row.method, "")) for row in shares]
    return rows


def _share_rows(
    study: Study, shares: Mapping[tuple[str, str], checked.Share], run: Mapping[str, str], better: str
) -> list[Row]:
    """Rows of shares that are no metrics of `evaluate`."""
    named: dict[str, Any] = {"study": study.name, "model": study.model, "data": data_name(study), "better": better}
    named |= {"quantity": "" if study.kind == "evaluate" else "logit", **run}
    return [
        Row(**named, method=method, metric=measure, **share._asdict()) for (method, measure), share in shares.items()
    ]


def _model(study: Study, place: RunPlace) -> Path | str:
    folder = None if place.models is None else place.models / study.model
    if folder is not None and folder.is_dir():
        return folder
    if study.bundled is None:
        raise WhyformerError(f"there is no folder {study.model!r} below --models")
    return study.bundled


def _data(study: Study, place: RunPlace, explainer: Explainer) -> Dataset:
    folder = None if place.data is None else place.data / study.data
    if folder is None or not folder.is_dir():
        raise WhyformerError(f"there is no folder {study.data!r} below --data")
    labels, split = explainer.subject.labels, study.split
    rows: dict[str, Any] = {} if study.kind == "two_images" else study.rows
    return open_dataset(folder, split=split, labels=labels, on_error="skip", **rows)


def _values(study: Study, place: RunPlace, explainer: Explainer, folder: Path) -> dict[str, str]:
    """The values of the placeholders in methods: the head mask is counted once, and kept in the folder."""
    values = {}
    if study.lm_head is not None:
        head = None if place.models is None else place.models / study.lm_head
        if head is None or not head.is_dir():
            raise WhyformerError(f"there is no folder {study.lm_head!r} below --models, for the LM head")
        values[LM_HEAD] = str(head)
    if study.treebank is not None:
        file, treebank = folder / HEAD_MASK, None if place.data is None else place.data / study.treebank
        if not file.is_file():
            if treebank is None or not treebank.is_file():
                raise WhyformerError(f"there is no file {study.treebank!r} below --data, to count heads in")
            folder.mkdir(parents=True, exist_ok=True)
            head_statistics(explainer.subject, Treebank(treebank)).save(file)
        values |= {HEADS: str(file), RATE: f"{HeadMask.load(file).rate:.6f}"}
    return values


def _state(folder: Path) -> list[int]:
    """The sizes of the files that grow while a study is measured."""
    files = (folder / JOURNAL, folder / two_images.FILE)
    return [file.stat().st_size for file in files if file.is_file()]


def _run(study: Study, place: RunPlace, explainer: Explainer) -> dict[str, str]:
    """What the CSV file says of a run."""
    device = explainer.subject.device
    cores = f"{platform.machine()} CPU, {os.cpu_count()} cores"
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else cores
    limit = "" if place.limit is None else f" --limit {place.limit}"
    chosen = "" if place.device is None else f" --device {place.device}"
    return {
        "commit": place.commit or commit(),
        "command": f"{COMMAND} --only {study.name}{limit}{chosen}",
        "machine": f"{name}, float32, torch {version('torch')}, transformers {version('transformers')}",
        "date": datetime.now(UTC).date().isoformat(),
    }


def commit() -> str:
    """The commit of the sources, or the version of the package where they are in no clone."""
    git = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD"]
    try:
        return subprocess.run(git, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return version("whyformer")
