"""Rows of data, written in each format."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq


def write_csv(path: Path, rows: Sequence[dict[str, Any]], delimiter: str = ",") -> Path:
    import csv

    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]), delimiter=delimiter)
        writer.writeheader()
        writer.writerows(rows)
    return path


def write_tsv(path: Path, rows: Sequence[dict[str, Any]]) -> Path:
    return write_csv(path, rows, "\t")


def write_jsonl(path: Path, rows: Sequence[Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def write_parquet(path: Path, rows: Sequence[dict[str, Any]], group: int = 4) -> Path:
    pq.write_table(pa.Table.from_pylist(list(rows)), path, row_group_size=group)
    return path
