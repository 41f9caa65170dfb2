"""The rows of each data set that a paper uses."""

from pathlib import Path

import pytest

from tests.helpers.rows import write_jsonl, write_parquet
from whyformer.datasets import RECIPES, open_dataset
from whyformer.errors import BadInput

QQP = [{"question1": f"a {i}", "question2": f"b {i}", "label": int(i % 3 == 0)} for i in range(20)]
REVIEWS = [{"text": f"review {i}", "label": i % 2} for i in range(2_500)]


def test_there_is_a_recipe_for_each_data_set_and_paper() -> None:
    names = set(RECIPES)
    assert {"sst2", "imdb", "yelp", "amazon", "ag_news", "mnli", "qqp", "squad", "squad_v2", "movies"} <= names
    assert {"sst2@attcat", "qqp@mask_lrp", "movies@transformer_attribution", "ag_news@decoded"} <= names
    assert {r.data for r in RECIPES.values() if r.paper == "attcat"} == {
        *("sst2", "qqp", "mnli", "amazon", "yelp", "imdb", "squad", "squad_v2")
    }
    assert {r.data for r in RECIPES.values() if r.choice.sample == 2000} == {"amazon", "yelp", "imdb"}
    assert all(name == recipe.name for name, recipe in RECIPES.items())


def test_papers_keep_the_rows_they_used(tmp_path: Path) -> None:
    (tmp_path / "qqp").mkdir()
    write_parquet(tmp_path / "qqp" / "validation.parquet", QQP)
    assert len(list(open_dataset("qqp@attcat", local=tmp_path))) == len(open_dataset("qqp", local=tmp_path)) == 20
    kept = open_dataset("qqp@mask_lrp", local=tmp_path / "qqp", limit=4)
    assert [e.row for e in kept] == [0, 3, 6, 9]
    assert kept.name == "qqp@mask_lrp"
    assert [e.row for chunk in kept.chunks(4) for e in kept.rows(*chunk)] == [0, 3, 6, 9]
    with pytest.raises(TypeError):
        len(kept)
    with pytest.raises(BadInput, match="no split 'test'"):
        open_dataset("qqp", local=tmp_path, split="test")


def test_random_rows_are_the_same_every_time(tmp_path: Path) -> None:
    (tmp_path / "imdb").mkdir()
    write_parquet(tmp_path / "imdb" / "test.parquet", REVIEWS, 1_000)
    data = open_dataset("imdb@attcat", local=tmp_path)
    rows = [e.row for e in data]
    assert len(data) == len(rows) == 2_000
    assert rows == sorted(rows)
    again = open_dataset("imdb@attcat", local=write_jsonl(tmp_path / "test.jsonl", REVIEWS))
    assert [e.row for e in again] == rows, "whatever the format"
    few = open_dataset("imdb@attcat", local=tmp_path, limit=10)
    assert len(few) == 10
    assert set(taken := [e.row for e in few]) < set(rows)
    assert taken[-1] > 500, "a limit takes random rows too"
    chunks = list(data.chunks(300))
    assert [len(data.rows(*chunk)) for chunk in chunks] == [300] * 6 + [200]
    assert [e.row for e in few.rows(0, 2_500)] == taken


def test_the_random_rows_do_not_change_with_versions(tmp_path: Path) -> None:
    data = open_dataset("imdb@attcat", local=write_jsonl(tmp_path / "test.jsonl", REVIEWS), limit=5)
    assert [e.row for e in data] == [40, 402, 993, 1973, 2173]


def test_a_wrong_recipe_is_refused() -> None:
    with pytest.raises(BadInput, match="did you mean 'sst2@attcat'"):
        open_dataset("sst2@atcat")
