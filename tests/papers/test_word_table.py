"""Words by predicted class: the sums, what classes share, and how tables are made, kept and refused."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers as hf

import whyformer
from tests.helpers import cases, evaluated, families
from tests.helpers.evaluated import in_order, own_registry, registered
from whyformer import BadInput, BadOption, Explainer, Explanation
from whyformer.datasets import open_dataset
from whyformer.evaluation.evaluate import Results, evaluate
from whyformer.evaluation.journal import Journal
from whyformer.inputs.units import Unit
from whyformer.metrics.metric import metric_named, metric_specs
from whyformer.models.load import Subject, subject_of
from whyformer.prediction import Prediction
from whyformer.progress import listening
from whyformer.tasks.targets import Label, Predicted
from whyformer_papers.words.idf import Idf
from whyformer_papers.words.overlap import Counting
from whyformer_papers.words.table import WordTable, load_tables, save_tables, tables_of
from whyformer_papers.words.tally import idf_called, word_tables

TOTALS = {
    0: {"war": 9.0, "the": 8.0, "peace": 7.0, "film": 6.0, ".": -1.0},
    1: {"goal": 9.0, "team": 5.0, "the": 5.0, "war": 1.0},
    3: {"film": 4.0, "peace": 3.0, "the": 2.0, "war": 1.0},
}
LABELS = ("World", "Sports", "Business", "Culture")


def table(totals: Any = TOTALS, method: str = "attcat", **provenance: Any) -> WordTable:
    return WordTable(totals, LABELS, method, {index: 2 + index for index in totals}, provenance)


# What a table says


def test_the_highest_words_of_a_class() -> None:
    found = table()
    assert found.classes == ("World", "Sports", "Culture")
    assert found.top(2, "World") == [("war", 9.0), ("the", 8.0)]
    assert found.top(3, 1) == [("goal", 9.0), ("team", 5.0), ("the", 5.0)]  # of equal sums the first by the alphabet
    assert [one.word for one in found.top(9, "culture")] == ["film", "peace", "the", "war"]
    assert found.top(9, 0)[-1] == (".", -1.0)


def literal_overlap(totals: dict[int, dict[str, float]], k: int) -> float:
    tops = []
    for own in totals.values():
        left, top = dict(own), []
        while left and len(top) < k:
            best = min(left, key=lambda word: (-left[word], word))
            top.append(best)
            del left[best]
        tops.append(top)
    shared = pairs = 0
    for n, one in enumerate(tops):
        for other in tops[:n]:
            pairs += 1
            shared += sum(word in other for word in one)
    return shared / (pairs * k)


def test_the_share_of_common_words() -> None:
    found = table()
    assert found.overlap(1) == 0
    assert found.overlap(3) == pytest.approx((1 + 2 + 1) / (3 * 3))  # the; the, peace; the
    assert found.overlaps(range(1, 8)) == {k: pytest.approx(literal_overlap(TOTALS, k)) for k in range(1, 8)}
    assert list(found.overlaps()) == list(range(1, 51))
    assert found.overlaps([]) == {}


def test_the_words_that_two_classes_share() -> None:
    found = table()
    assert found.shared("World", "Culture", 4) == ("film", "peace", "the", "war")  # places 3+0, 2+1, 1+2, 0+3
    assert found.shared(3, 0, 3) == ("peace", "the")
    highest = table({0: {"z": 9.0, "a": 2.0, "c": 1.0}, 1: {"z": 3.0, "c": 2.0, "a": 1.0}})
    assert highest.shared(0, 1, 3) == ("z", "a", "c")
    assert found.shared("World", "Sports", 3) == ("the",)
    assert found.shared_counts(3) == {("World", "Sports"): 1, ("World", "Culture"): 2, ("Sports", "Culture"): 1}
    for k in range(1, 7):
        assert sum(found.shared_counts(k).values()) == pytest.approx(found.overlap(k) * 3 * k)


def test_classes_and_numbers_that_are_not_there() -> None:
    found = table()
    with pytest.raises(BadInput, match="predicted Business for no text: there are World, Sports, Culture"):
        found.top(3, "Business")
    with pytest.raises(BadInput, match="none of the labels"):
        found.top(3, "Weather")
    with pytest.raises(BadOption, match="World is given twice"):
        found.shared("World", 0)
    for ask in (lambda: found.top(0, 0), lambda: found.overlap(0), lambda: found.shared(0, 1, -1)):
        with pytest.raises(BadOption, match="k must be at least 1"):
            ask()
    assert WordTable({7: {"a": 1.0}}, (), "m", {7: 1}).top(1, "7") == [("a", 1.0)]


def test_one_class_has_words_and_nothing_to_compare_them_with() -> None:
    found = table({1: TOTALS[1]})
    assert found.top(1, "Sports") == [("goal", 9.0)]
    for ask in (lambda: found.overlap(3), found.overlaps, lambda: found.shared_counts(3)):
        with pytest.raises(BadInput, match="the model calls all 3 texts Sports"):
            ask()
    assert "one class only" in str(found)
    with pytest.raises(BadInput, match="at least one text"):
        table({})


def test_text_and_markdown() -> None:
    found = table(model="some/model", data="news", idf="a table")
    lines = found.to_text(3, 2).splitlines()
    assert lines[:2] == [
        "attcat: two classes share 44.4 % of their top 3 words",
        "some/model · news · words weighted by a table",
    ]
    assert lines[3].split("   ") == ["World (2 texts)", "Sports (3 texts)", "Culture (5 texts)"]
    assert lines[4].split() == ["war", "9", "goal", "9", "film", "4"]
    assert lines[5].index("team") == lines[4].index("goal") == lines[3].index("Sports")
    assert lines[7:] == [
        "World and Sports share 1: the",
        "World and Culture share 2: peace the",
        "Sports and Culture share 1: the",
    ]
    marked = table({0: {"*": 2.0, "|": 1.0}, 1: {"|": 1.0, "漢字": 0.5}}).to_markdown(2, 2).splitlines()
    assert marked[2:6] == [
        "|  | World (2 texts) | Sports (3 texts) |",
        "| --- | --- | --- |",
        r"| 1 | \* 2 | \| 1 |",
        r"| 2 | \| 1 | 漢字 0.5 |",
    ]
    assert marked[-1] == r"| World, Sports | 1 | \| |"
    assert str(found) == found.to_text(50, 10)


# From explanations


def made(text: str, scores: list[float], index: int = 1, **more: Any) -> Explanation:
    """One token for each run of characters between spaces or hyphens; the first is special."""
    units, place = [Unit("[CLS]", special=True)], 0
    for piece in text.replace("-", " ").split():
        place = text.index(piece, place)
        units.append(Unit(piece, "token", (place, place + len(piece)), 0))
        place += len(piece)
    said = Predicted(("no", "yes")[index], index, 0.75, (0.0, 1.0), (0.25, 0.75), ("no", "yes"))
    fields = {"prediction": said, "target": Label(index, said.label), "method": "made", "signed": True} | more
    return Explanation(tuple(units), np.array(scores), texts=(text,), **fields)


def test_sums_of_explanations_by_hand() -> None:
    idf = Idf({"the": 0.5, "film": 2.0, "good": 3.0}, "by hand")
    given = [
        made("The film", [99.0, 1.0, 2.0]),
        made("good FILM the the", [99.0, 4.0, 0.5, 1.0, 1.0]),
        made("good boring", [99.0, -1.0, 2.0], index=0),
    ]
    found = WordTable.of(iter(given), idf=idf)
    assert found.totals == {
        0: {"good": -3.0, "boring": 6.0},
        1: {"the": 0.5 * 3, "film": 2.0 * 2.5, "good": 12.0},
    }
    assert found.texts == {0: 1, 1: 2}
    assert found.labels == ("no", "yes")
    assert found.method == "made"
    assert found.provenance["idf"] == "by hand"
    by_word = WordTable.of((one.by_word() for one in given), idf=idf)
    assert by_word.totals == found.totals


def test_tokens_of_a_word_are_added_up() -> None:
    units = (Unit("act", "token", (0, 3), 0), Unit("ing", "token", (3, 6), 0), Unit("!", "token", (6, 7), 0))
    one = Explanation(
        units, np.array([1.0, 2.0, 4.0]), made("x", [0, 0]).prediction, Label(1, "yes"), "m", True, ("Acting!",)
    )
    assert WordTable.of([one], idf=Idf({})).totals == {1: {"acting": 3.0, "!": 4.0}}
    weights = Idf.bundled()
    assert WordTable.of([one]).totals[1]["!"] == pytest.approx(4 * weights.smallest)


def test_explanations_that_cannot_be_summed_up() -> None:
    good = made("a film", [0.0, 1.0, 2.0])
    answer = Predicted("film", None, 0.5, (1.0, 1.0), (0.5, 0.5), ("start", "end"))
    number = Predicted("LABEL_0", 0, None, (1.5,), None, ("LABEL_0",))
    cases_of: list[tuple[list[Explanation], str]] = [
        ([], "no explanation"),
        ([good, made("a film", [0.0, 1.0, 2.0], method="other")], "one method and one model"),
        ([good, made("a film", [0.0, 1.0, 2.0], options={"layer": 1})], r"by made for .* and by made\(layer=1\)"),
        ([made("a film", [0.0, 1.0, 2.0], target=Label(0, "no"))], "here yes, and this explains no"),
        ([made("a film", [0.0, 1.0, 2.0], versus=Label(0, "no"))], "explains yes rather than no"),
        ([made("a film", [0.0, 1.0, 2.0], prediction=answer)], "answers questions"),
        ([made("a film", [0.0, 1.0, 2.0], prediction=number, target=Label(0, "LABEL_0"))], "has one output"),
    ]
    for given, said in cases_of:
        with pytest.raises(BadInput, match=said):
            WordTable.of(given)


# Over a data set


TEXTS = [*cases.TEXTS, "the actors are bad. bad!", "It is fine", "not a film", "a fine film, the film"]
IDF = Idf({"the": 1.0, "film": 2.5, "fine": 3.0, ",": 1.25, "bad": 2.0, "a": 1.0})


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return evaluated.written(tmp_path / "texts.csv", [(text, "nobody's label") for text in TEXTS])


def literal_totals(own: Subject, method: str, **options: Any) -> dict[int, dict[str, float]]:
    """Text by text and token by token."""
    totals: dict[int, dict[str, float]] = {}
    for text in TEXTS:
        encoding = own.tokenizer(text, return_offsets_mapping=True)
        inputs = {name: torch.tensor([encoding[name]]) for name in ("input_ids", "token_type_ids", "attention_mask")}
        with torch.no_grad():
            predicted = int(own.model(**inputs).logits.argmax())
        scores = whyformer.attribute(own.model, inputs, method, target=predicted, **options)[0].tolist()
        sums = totals.setdefault(predicted, {})
        for word in re.finditer(r"[a-z]+|[^a-z\s]", text.lower()):
            own_score = 0.0
            for score, (start, stop) in zip(scores, encoding["offset_mapping"], strict=True):
                if word.start() <= start < stop <= word.end():
                    own_score += score
            sums[word[0]] = sums.get(word[0], 0.0) + own_score * IDF[word[0]]
    return totals


def test_the_sums_over_a_data_set(data: Path) -> None:
    own = cases.subject()
    told: list[tuple[int, int]] = []
    with listening(lambda *at: told.append(at)):
        found = word_tables(own, data, "attcat(states=inputs),rollout", idf=IDF, rows_at_once=3)
    assert list(found) == ["attcat(states=inputs)", "rollout"]
    for name, options in (("attcat", {"states": "inputs"}), ("rollout", {})):
        expected = literal_totals(own, name, **options)
        assert len(expected) > 1
        table_of = found["attcat(states=inputs)" if options else name]
        assert set(table_of.totals) == set(expected)
        for index, words in expected.items():
            assert table_of.totals[index] == pytest.approx(words, abs=1e-9)
    assert told == [(1, 3), (2, 3), (3, 3)]
    about = found["rollout"].provenance
    assert (about["rows"], about["cut"], about["skipped"], about["interrupted"]) == (len(TEXTS), 0, 0, False)
    assert sum(found["rollout"].texts.values()) == len(TEXTS)
    assert about["refused"] == {}
    assert about["fingerprint"] == own.fingerprint


def test_the_share_is_that_of_the_metric_and_of_explanations(data: Path, tmp_path: Path) -> None:
    own = cases.subject()
    found = word_tables(own, data, "attcat")["attcat"]
    texts = evaluated.written(tmp_path / "plain.csv", [[text] for text in TEXTS], ["text"])
    metrics = [f"token_overlap(k={k})" for k in (1, 2, 3, 5)]
    results = evaluate(own, texts, "attcat", metrics, progress=False, out=tmp_path / "run")
    for k, metric in zip((1, 2, 3, 5), metrics, strict=True):
        cell = results["attcat", metric]
        assert cell is not None
        assert found.overlap(k) == pytest.approx(cell.mean, abs=1e-12)
    records = [record.detail for chunk in evaluated.journalled(tmp_path / "run") for record in chunk.records]
    assert metric_named("token_overlap").reduced(records, k=4) == found.overlap(4)
    of_explanations = WordTable.of(Explainer(own).stream(TEXTS, "attcat", batch_size=3))
    journal = Journal.read(tmp_path / "run")
    table = Results.of(journal.chunks(), journal.run).table()
    of_journal = tables_of(table)
    weighted, expected = tables_of(table, idf=IDF)["attcat"], word_tables(own, data, "attcat", idf=IDF)["attcat"]
    for index, words in expected.totals.items():
        assert weighted.totals[index] == pytest.approx(words, abs=1e-9)
    assert list(of_journal) == ["attcat"]
    for other in (of_explanations, of_journal["attcat"]):
        assert (other.method, other.labels, other.texts) == (found.method, found.labels, found.texts)
        for index, words in found.totals.items():
            assert other.totals[index] == pytest.approx(words, abs=1e-9)


def test_several_ways_to_count_are_told_apart(data: Path, tmp_path: Path) -> None:
    own = cases.subject()
    texts = evaluated.written(tmp_path / "plain.csv", [[text] for text in TEXTS], ["text"])
    metrics = ["token_overlap(k=2)", "token_overlap(k=3)", "token_overlap(k=2, units=token, once=true)"]
    results = evaluate(own, texts, "attcat", metrics, progress=False)
    paper = Counting("token", once=True)
    for counting, metric, told in ((Counting(), metrics[0], None), (paper, metrics[2], "tokens, each once a text")):
        found = tables_of(results, counting)["attcat"]
        direct = word_tables(own, data, "attcat", counting=counting)["attcat"]
        stream = Explainer(own).stream(TEXTS, "attcat", batch_size=3)
        for other in (direct, WordTable.of(stream, counting=counting)):
            assert found.totals.keys() == other.totals.keys()
            for index, words in found.totals.items():
                assert other.totals[index] == pytest.approx(words, abs=1e-9)
            assert other.provenance.get("counted") == found.provenance.get("counted") == told
        cell = results["attcat", metric_specs([metric])[0].label]
        assert cell is not None
        assert found.overlap(2) == pytest.approx(cell.mean, abs=1e-12)
    with pytest.raises(BadInput, match=r"counted words; tokens, each once a text: say which.*--units.*--once"):
        tables_of(results)
    with pytest.raises(BadInput, match=r"not tokens: measure token_overlap\(units=token, once=false\)"):
        tables_of(results, Counting("token"))


def test_an_evaluation_without_words_is_refused(data: Path, tmp_path: Path) -> None:
    texts = evaluated.written(tmp_path / "plain.csv", [[text] for text in TEXTS[:2]], ["text"])
    results = evaluate(cases.subject(), texts, "rollout", evaluated.FALL, progress=False)
    with pytest.raises(BadInput, match="measure token_overlap"):
        tables_of(results)


def test_methods_share_the_forward_pass(data: Path) -> None:
    own = cases.subject()
    calls = []
    hook = own.model.register_forward_hook(lambda *_: calls.append(1))
    try:
        word_tables(own, data, "rollout,attcat,cat,raw_attention", idf=IDF, rows_at_once=4)
    finally:
        hook.remove()
    assert len(calls) == 2  # two times four rows


def stops(after: int) -> Any:
    """A method that is interrupted when it has explained so many batches."""
    calls: list[int] = []

    def stopping(prediction: Prediction) -> torch.Tensor:
        """Ctrl-C."""
        calls.append(1)
        if len(calls) > after:
            raise KeyboardInterrupt
        return in_order(prediction)

    return stopping


def test_an_interruption_keeps_what_is_done(data: Path) -> None:
    own = cases.subject()
    with own_registry():
        registered(stops(2))
        found = word_tables(own, data, "rollout,stopping", idf=IDF, rows_at_once=2)
    assert list(found) == ["rollout", "stopping"]
    first = open_dataset(data, limit=4)
    expected = word_tables(own, first, "rollout", idf=IDF, rows_at_once=2)["rollout"].totals
    assert evaluated.alike(found["rollout"].totals, expected)
    assert all(one.provenance["interrupted"] and one.provenance["rows"] == 4 for one in found.values())
    with own_registry():
        registered(stops(0))
        with pytest.raises(KeyboardInterrupt):
            word_tables(own, data, "rollout,stopping", idf=IDF, rows_at_once=2)


def test_what_methods_report_does_not_move_the_count_of_rows(data: Path) -> None:
    told: list[tuple[int, int]] = []
    with listening(lambda *reported: told.append(reported)):
        word_tables(cases.subject(), open_dataset(data, limit=4), "stepwise,occlusion", idf=IDF, rows_at_once=2)
    assert told == [(1, 2), (2, 2)]


def choosy(prediction: Prediction) -> torch.Tensor:
    """Explains short texts alone."""
    if prediction.padding.shape[1] > 8:
        raise BadInput("too long for me")
    return in_order(prediction)


def never(prediction: Prediction) -> torch.Tensor:
    """Explains nothing."""
    raise BadInput("not for me")


def test_texts_that_a_method_refuses(data: Path) -> None:
    own = cases.subject()
    with own_registry():
        registered(choosy)
        registered(never)
        found = word_tables(own, data, "choosy,rollout,never", idf=IDF)
        assert list(found) == ["choosy", "rollout"]
        short = [text for text in TEXTS if len(own.tokenizer(text)["input_ids"]) <= 8]
        assert 0 < len(short) < len(TEXTS)
        assert sum(found["choosy"].texts.values()) == len(short)
        assert found["choosy"].provenance["refused"] == {"too long for me": len(TEXTS) - len(short)}
        assert sum(found["rollout"].texts.values()) == len(TEXTS)
        with pytest.raises(BadInput, match="no text to sum up: never: not for me"):
            word_tables(own, data, "never", idf=IDF)


def test_bad_rows(tmp_path: Path) -> None:
    path = evaluated.written(tmp_path / "texts.csv", [("a film", "x"), ("", "y"), ("a bad film", "")])
    with pytest.raises(BadInput, match=r"row 1 .*'text' is empty"):
        word_tables(cases.subject(), path, "rollout")
    found = word_tables(cases.subject(), path, "rollout", on_error="skip")["rollout"]
    assert sum(found.texts.values()) == 2  # a label is not looked at
    assert found.provenance["skipped"] == 1
    with pytest.raises(BadOption, match="limit= is for a file or name"):
        word_tables(cases.subject(), open_dataset(path), "rollout", limit=1)
    with pytest.raises(BadOption, match="rows_at_once=0"):
        word_tables(cases.subject(), path, "rollout", rows_at_once=0)


def test_texts_that_are_cut_are_counted(tmp_path: Path) -> None:
    path = evaluated.written(tmp_path / "texts.csv", [["a film"], ["the film is fine, " * 40]], ["text"])
    assert word_tables(cases.subject(), path, "rollout")["rollout"].provenance["cut"] == 1


def test_models_without_classes(data: Path) -> None:
    with pytest.raises(BadInput, match="answers questions: a classifier is needed"):
        word_tables(evaluated.answering(), data, "rollout")
    config = families.CONFIGS["bert"]()
    config.num_labels, config.vocab_size = 1, len(cases.wordpiece())
    one = subject_of(hf.BertForSequenceClassification(config).eval(), cases.wordpiece())
    with pytest.raises(BadInput, match="has one output: a classifier is needed"):
        word_tables(one, data, "rollout")


def test_pairs_of_texts(tmp_path: Path) -> None:
    path = evaluated.written(tmp_path / "pairs.csv", [("the film", "a film is fine")], ["premise", "hypothesis"])
    found = word_tables(cases.subject(), path, "rollout", idf=Idf({}))["rollout"]
    (words,) = found.totals.values()
    assert set(words) == {"the", "film", "a", "is", "fine"}


# Word frequencies by name


def test_the_names_of_word_frequencies(data: Path, tmp_path: Path) -> None:
    opened = open_dataset(data)
    assert idf_called(None, opened) is Idf.bundled()
    assert idf_called("none", opened)["film"] == 1
    assert idf_called("data", opened).values == Idf.of(TEXTS).values
    corpus = evaluated.written(tmp_path / "corpus.csv", [["one film"], [""], ["two films"]], ["text"])
    assert idf_called(f"corpus:{corpus}", opened).values == Idf.of(["one film", "two films"]).values
    (tmp_path / "words.csv").write_text("word,idf\nfilm,2\n")
    assert idf_called(str(tmp_path / "words.csv"), opened).values == {"film": 2.0}


# Saved


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    found = table(model="m", idf="words")
    assert WordTable.load(found.save(tmp_path / "one.json")) == found
    saved = json.loads((tmp_path / "one.json").read_text())
    assert (saved["schema"], saved["version"]) == ("whyformer/word-table", 1)
    assert list(saved["totals"]["3"]) == ["film", "peace", "the", "war"]
    several = {"attcat": found, "rollout": table({0: {"a": 1.0}}, "rollout")}
    save_tables(several, tmp_path / "two.json")
    assert load_tables(tmp_path / "two.json") == several
    assert load_tables(tmp_path / "one.json") == {"attcat": found}
    with pytest.raises(BadInput, match=r"holds 2 tables \(attcat, rollout\): read it with load_tables"):
        WordTable.load(tmp_path / "two.json")


def damaged() -> Iterator[tuple[str, str]]:
    saved = table().to_dict()
    yield "{", "is not JSON"
    yield "[]", "no saved table of words"
    yield json.dumps({**saved, "schema": "whyformer/explanation"}), "schema 'whyformer/explanation'"
    yield json.dumps({**saved, "version": 2}), "has version 2"
    yield json.dumps({"schema": "whyformer/word-tables", "version": 9, "tables": [saved]}), "has version 9"
    yield json.dumps({key: value for key, value in saved.items() if key != "texts"}), "damaged .*'texts'"
    yield json.dumps({**saved, "totals": {"x": {}}}), "damaged"
    yield json.dumps({**saved, "totals": {"0": {"war": "much"}}}), "damaged"


@pytest.mark.parametrize(("content", "said"), list(damaged()))
def test_files_that_are_no_tables(content: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text(content)
    with pytest.raises(BadInput, match=said):
        WordTable.load(tmp_path / "t.json")
    with pytest.raises(BadInput, match="could not read"):
        WordTable.load(tmp_path / "none.json")
    with pytest.raises(BadInput, match="could not write"):
        table().save(tmp_path / "no" / "t.json")
