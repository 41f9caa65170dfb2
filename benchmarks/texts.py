"""Texts that a script is given as a file."""

from pathlib import Path


def texts_of(path: Path, limit: int | None) -> list[str]:
    """One text per line, or the column `sentence` or `text` of a Parquet file (needs pyarrow)."""
    if path.suffix == ".parquet":
        from pyarrow.parquet import read_table

        table = read_table(path)
        column = next(name for name in ("sentence", "text") if name in table.column_names)
        texts: list[str] = table[column].to_pylist()[:limit]
        return texts
    return path.read_text(encoding="utf-8").splitlines()[:limit]
