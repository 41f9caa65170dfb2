"""Data sets of the hub, from a local copy in the same format, and recipes that name them."""

import builtins
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.rows import write_parquet
from whyformer.datasets import open_dataset
from whyformer.errors import BadInput, MissingExtra

QQP = [{"question1": f"a {i}", "question2": f"b {i}", "label": int(i % 3 == 0)} for i in range(20)]


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder as `datasets` reads it, which needs no network."""
    monkeypatch.setattr("datasets.config.HF_DATASETS_OFFLINE", True)
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    folder = tmp_path / "copy"
    folder.mkdir()
    write_parquet(folder / "train.parquet", QQP[:5])
    write_parquet(folder / "validation.parquet", QQP)
    return folder


def test_hub_data_is_streamed(hub: Path) -> None:
    data = open_dataset(f"hub:{hub}")
    local = open_dataset(hub / "validation.parquet")
    assert data.format == "hub"
    assert list(data) == list(data) == list(local)
    assert data.rows(3, 6) == local.rows(3, 6)
    assert len(list(open_dataset(f"hub:{hub}", split="train"))) == 5
    assert data.digest == open_dataset(f"hub:{hub}").digest != open_dataset(f"hub:{hub}", split="train").digest
    assert pickle.loads(pickle.dumps(data)).rows(0, 2) == local.rows(0, 2)
    with pytest.raises(BadInput, match="no split 'test'; found train, validation"):
        open_dataset(f"hub:{hub}", split="test")


def test_a_recipe_reads_the_hub(hub: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets

    asked: list[Any] = []
    real = datasets.load_dataset_builder

    def builder(name: str, config: str | None) -> Any:
        asked.append((name, config))
        return real(str(hub))

    monkeypatch.setattr(datasets, "load_dataset_builder", builder)
    assert [e.row for e in open_dataset("qqp", limit=2)] == [0, 1]
    assert asked == [("nyu-mll/glue", "qqp")]


def test_a_name_that_nobody_knows(hub: Path) -> None:
    with pytest.raises(BadInput, match="'no-such-data' is no local file, nor found on the hub"):
        open_dataset("no-such-data")


def test_a_folder_saved_to_disk(hub: Path, tmp_path: Path) -> None:
    import datasets

    table = datasets.Dataset.from_list(QQP)
    table.save_to_disk(str(tmp_path / "one"))
    datasets.DatasetDict({"train": table, "test": table.select(range(4))}).save_to_disk(str(tmp_path / "two"))
    one, two = open_dataset(tmp_path / "one"), open_dataset(tmp_path / "two")
    expected = list(open_dataset(hub / "validation.parquet"))
    assert list(one) == expected
    assert one.rows(4, 7) == expected[4:7]
    assert len(one) == 20
    assert list(two) == expected[:4]
    assert one.digest != two.digest
    assert pickle.loads(pickle.dumps(one)).rows(0, 1) == expected[:1]


def test_a_missing_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_parquet(tmp_path / "a.parquet", QQP)
    real = builtins.__import__

    def gone(name: str) -> Any:
        if name.split(".")[0] in ("datasets", "pyarrow"):
            raise ImportError(name)
        return real(name)

    monkeypatch.setattr("whyformer.datasets.source.import_module", gone)
    for source, needed in (("hub:imdb", "datasets"), (path, "pyarrow")):
        with pytest.raises(MissingExtra, match=f"this data needs {needed}: pip install {needed}"):
            open_dataset(source)


@pytest.mark.long
def test_importing_does_not_import_the_extra() -> None:
    code = "import sys, whyformer.datasets; print(*(m for m in ('pyarrow', 'datasets', 'pandas') if m in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
