"""Explanations of many texts: a sequence, a table, and files that can be read again."""

import csv
import io
import json
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.helpers import cases, evaluated
from tests.helpers.commands import status_of
from whyformer import BadInput, BadOption, Explainer, Explanations, TruncationWarning, open_dataset
from whyformer.results.explanations import Reason
from whyformer.show import layout
from whyformer.show.lists import remark
from whyformer.tolerance import close

TEXTS = ["the film is a fine film", "a bad film", "fine acting"]
PLAIN: dict[str, Any] = {"method": "input_x_gradient"}


@pytest.fixture(scope="module")
def explainer() -> Explainer:
    return Explainer(cases.subject())


@pytest.fixture(scope="module")
def many(explainer: Explainer) -> Explanations:
    labels = explainer.subject.labels
    said = [e.prediction.index for e in explainer.explain(TEXTS, **PLAIN)]
    assert all(index is not None for index in said)
    rows = [(text, labels[index or 0]) for text, index in zip(TEXTS, said, strict=True)]
    other = next(label for label in labels if label != rows[1][1])
    rows[1] = (TEXTS[1], other)
    return explainer.explain(open_dataset([*rows, ("", labels[0])], on_error="skip"), **PLAIN)


def test_they_are_a_sequence_whose_slices_are_explanations(many: Explanations) -> None:
    assert [e.texts for e in many] == [(text,) for text in TEXTS]
    assert many[-1] is many.explanations[2]
    part = many[1:]
    assert (type(part), part.rows, part.labels, part.skipped) == (Explanations, (1, 2), many.labels[1:], ())
    assert part[0] is many[1]
    assert many[::-1].rows == (2, 1, 0)
    assert many.skipped == ((3, "'text' is empty"),)


def test_what_is_wrong_is_told_apart(many: Explanations) -> None:
    assert [one.right for one in many.examples()] == [True, False, True]
    assert (many.wrong.rows, many.wrong.labels) == ((1,), (many.labels[1],))


def test_a_label_that_the_model_does_not_have_is_shown_as_it_is(explainer: Explainer) -> None:
    rows = [{"text": "a film", "label": "five stars"}, {"text": "bad", "label": None}, {"text": "fine", "label": [""]}]
    given = explainer.explain(rows, columns={"label": "label"}, **PLAIN)
    assert given.labels == ("five stars", None, None)
    assert [one.right for one in given.examples()] == [None] * 3


def test_the_short_forms(many: Explanations) -> None:
    first = repr(many).splitlines()[0]
    assert first.startswith("Explanations of 3 texts: ")
    assert first.endswith("; right on 2 of 3; wrong on row 1; 1 row left out")
    assert len(repr(many).splitlines()) == 4
    several = Explanations(many.explanations * 10)
    assert repr(several).splitlines()[-1] == "  … and 25 more"
    assert str(several).splitlines()[-1] == "… and 10 more"
    assert "label" not in str(several)
    assert all(text in str(many) and text in many._repr_html_() for text in TEXTS)
    assert "script" not in many._repr_html_()


def test_the_table(many: Explanations, tmp_path: Path) -> None:
    rows = list(csv.DictReader(io.StringIO(many.to_csv())))
    assert [row["text"] for row in rows] == TEXTS
    assert [row["right"] for row in rows] == ["yes", "no", "yes"]
    assert [row["label"] for row in rows] == list(many.labels)
    for row, e in zip(rows, many, strict=True):
        assert close(float(row["probability"]), e.prediction.probability or 0.0)
        top = e.by_word().top(3, by="magnitude")
        assert row["strongest"] == "; ".join(f"{word.text} {word.score:+.4g}" for word in top)
    assert many.to_csv(tmp_path / "t.csv").read_text(encoding="utf-8") == many.to_csv()
    frame = pytest.importorskip("pandas") and many.to_pandas()
    assert list(frame["text"]) == TEXTS
    assert frame["probability"].dtype == np.float64


def test_another_output_than_the_predicted_one_has_a_column(explainer: Explainer) -> None:
    texts = ["a good film", "a bad film"]
    usual = explainer.explain(texts, "rollout", check=0)
    assert "explained" not in usual.to_csv().splitlines()[0]
    label = explainer.subject.labels[0]
    table = list(csv.DictReader(io.StringIO(explainer.explain(texts, "rollout", target=0, check=0).to_csv())))
    assert {row["explained"] for row in table} <= {label, *(row["prediction"] for row in table)}
    against = explainer.explain(texts, "rollout", versus="runner_up", check=0)
    assert all(" rather than " in row["explained"] for row in csv.DictReader(io.StringIO(against.to_csv())))


def test_the_table_has_what_is_hidden_together() -> None:
    sentiment = Explainer.load("sentiment")
    several = sentiment.explain(["a slow and dull film that is saved by its gorgeous acting", "fine"])
    first, _ = csv.DictReader(io.StringIO(several.to_csv()))
    assert re.search(r"; both checked words for it: 90\.3 % → \d", first["effects"])
    ((name, change, _),) = layout.together_lines(several[0])
    assert first["effects"].endswith(f"{name.removesuffix(', together')}: {change}")


def test_an_effect_unlike_its_score_is_marked() -> None:
    against = Reason("dull", 1.5, -2.0, (0.5, 0.9), contradicts=True)
    assert remark(against) == "against it, unlike its score"
    assert remark(against._replace(effect=0.01)) == "hardly matters alone"
    assert remark(against._replace(contradicts=False)) == ""


def test_labels_of_another_model_are_named(explainer: Explainer) -> None:
    rows = [{"text": "a good film", "label": "news"}, {"text": "a bad film", "label": "sports"}]
    told = str(explainer.explain(rows, "rollout", columns={"label": "label"}, check=0))
    assert "no label is an output of the model: news, sports" in told


def test_pairs_have_a_column_for_each_text(explainer: Explainer) -> None:
    pairs = explainer.explain([cases.PAIR, "a film"], **PLAIN)
    rows = list(csv.DictReader(io.StringIO(pairs.to_csv())))
    assert [(row["text_1"], row["text_2"]) for row in rows] == [cases.PAIR, ("a film", "")]


@pytest.mark.parametrize("ending", ["json", "jsonl", "ndjson"])
def test_what_is_saved_can_be_loaded(many: Explanations, tmp_path: Path, ending: str) -> None:
    again = Explanations.load(many.save(tmp_path / f"many.{ending}"))
    assert (again.rows, again.labels, again.skipped) == (many.rows, many.labels, many.skipped)
    assert json.dumps(again.to_dict()) == json.dumps(many.to_dict())


def test_lines_without_rows_are_counted(many: Explanations, tmp_path: Path) -> None:
    lines = tmp_path / "printed.jsonl"
    lines.write_text("".join(json.dumps(e.to_dict()) + "\n" for e in many), encoding="utf-8")
    assert Explanations.load(lines).rows == (0, 1, 2)


def test_a_bad_line_is_named(many: Explanations, tmp_path: Path) -> None:
    path = many.save(tmp_path / "many.jsonl")
    lines = path.read_text(encoding="utf-8").splitlines()
    for bad, message in (
        ("{", "line 2: not as explanations are saved"),
        ('{"row": -1}', "line 2: .*'row' is -1"),
        (lines[1].replace('"signed"', '"unsigned"'), "line 2' is damaged or not complete: 'signed' is missing"),
    ):
        path.write_text("\n".join([lines[0], bad, lines[2]]), encoding="utf-8")
        with pytest.raises(BadInput, match=message):
            Explanations.load(path)
    other = tmp_path / "other.json"
    many[0].save(other)
    with pytest.raises(BadInput, match="is no saved list of explanations"):
        Explanations.load(other)


def test_rows_and_labels_belong_to_explanations(many: Explanations) -> None:
    with pytest.raises(BadInput, match="2 rows and 3 labels for 3 explanations"):
        Explanations(many.explanations, (0, 1), many.labels)


def test_bad_rows_are_named_or_skipped(explainer: Explainer) -> None:
    texts: list[Any] = ["a film", "", "fine", None, "bad"]
    with pytest.raises(BadInput, match=r"text 1 \(counted from 0\): the text is empty"):
        explainer.explain(texts, **PLAIN)
    for size in (1, 2, 16):
        given = explainer.explain(texts, **PLAIN, on_error="skip", batch_size=size)
        assert (given.rows, [row for row, _ in given.skipped]) == ((0, 2, 4), [1, 3])
        assert given.skipped[0][1] == "the text is empty"
        assert [e.texts for e in given] == [("a film",), ("fine",), ("bad",)]
    with pytest.raises(BadInput, match="the text is empty"):
        explainer.explain("", on_error="skip")
    with pytest.raises(BadOption, match=r"on_error takes refuse \| skip"):
        explainer.explain(texts, on_error="ignore")  # type: ignore[call-overload]


def test_tables_are_read_by_their_columns(explainer: Explainer) -> None:
    labels = explainer.subject.labels
    held = {"title": ["x", "y", "z"], "body": [*TEXTS[:2], None], "y": [0, 1, 0]}
    frame = pytest.importorskip("pandas").DataFrame(held)
    given = explainer.explain(frame, **PLAIN, columns={"label": "y"}, on_error="skip")
    assert [e.texts for e in given] == [(text,) for text in TEXTS[:2]]
    assert (given.labels, given.rows) == (tuple(labels[:2]), (0, 1))
    assert [row for row, _ in given.skipped] == [2]
    with pytest.raises(BadInput, match=r"row 2 \(counted from 0\): no value for 'body'"):
        explainer.explain(frame, **PLAIN)
    named = explainer.explain(frame, **PLAIN, columns={"text": ("title", "body")}, on_error="skip")
    assert [e.texts for e in named] == [("x", TEXTS[0]), ("y", TEXTS[1])]
    with pytest.raises(BadOption, match="names columns of a table; found 'a film'"):
        explainer.explain("a film", columns={"text": "body"})


def test_a_list_of_rows_and_a_frame_can_be_measured(explainer: Explainer) -> None:
    rows = list(zip(TEXTS, [0, 1, 0], strict=True))
    frame = pytest.importorskip("pandas").DataFrame({"text": TEXTS, "label": [0, 1, 0]})
    for data in (TEXTS, rows, frame):
        assert explainer.evaluate(data, "rollout", metrics=evaluated.FALL).to_csv().count("\n") == 2
    assert explainer.recommend(TEXTS, ["rollout", "attcat"]).sentence


@pytest.fixture(scope="module")
def sentiment() -> Explainer:
    return Explainer.load("sentiment")


OWN = {"review_id": ["r0", "r1", "r2"], "text": ["a film", "fine " * 600, "bad"], "stars": [1, 5, 2], "row": [7, 8, 9]}


def test_a_table_keeps_the_users_own_columns(sentiment: Explainer, tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    with pytest.warns(TruncationWarning):
        many = sentiment.explain(pandas.DataFrame(OWN), "rollout", check=0)
    found = many.to_pandas()
    for name, values in OWN.items():
        assert found[f"{name} (data)" if name == "row" else name].tolist() == values
    assert [columns["stars"] for columns in many[1:].columns] == [5, 2]
    for path in ("a.json", "a.jsonl"):
        assert Explanations.load(many.save(tmp_path / path)).columns == many.columns
    pandas.DataFrame(OWN).to_csv(tmp_path / "a.csv", index=False)
    command = ("explain", "-m", "sentiment", "--data", tmp_path / "a.csv", "--method", "rollout", "--check", 0)
    assert status_of(*command, "--out", tmp_path / "out") == 0
    assert (tmp_path / "out" / "table.csv").read_text() == many.to_csv()
    of_csv = [{name: str(value) for name, value in columns.items()} for columns in many.columns]
    assert list(Explanations.load(tmp_path / "out").columns) == of_csv


def test_texts_that_do_not_fit_are_named_once(
    sentiment: Explainer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = ["a film", "fine " * 600, "bad", "a film " * 300]
    told = r"^2 of 4 texts are longer than the model's window and were truncated, by up to 90 tokens: rows 1, 3 "
    for explain in (sentiment.explain, lambda *given, **asked: list(sentiment.stream(*given, **asked))):
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            explain(texts, "rollout", check=0, batch_size=1)
        (warning,) = [str(one.message) for one in seen if one.category is TruncationWarning]
        assert re.match(told, warning)
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    command = ("explain", "-m", "sentiment", "--data", tmp_path / "a.jsonl", "--method", "rollout", "--check", 0)
    for out in ((), ("--out", tmp_path / "out")):
        assert status_of(*command, "--batch-size", 1, *out) == 0
        said = [line for line in capsys.readouterr().err.splitlines() if "truncated" in line]
        assert len(said) == 1
        assert re.search(told[1:], said[0])
