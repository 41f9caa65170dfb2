"""evaluate: the table by hand, runs that stop and go on, folders of another run, bad rows, streams and engines."""

import errno
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import scipy
import torch

from tests.helpers import cases, evaluated
from tests.helpers.evaluated import (
    CHANGE,
    FALL,
    JOURNAL,
    TABLES,
    alike,
    files,
    found,
    in_order,
    journalled,
    printed,
    registered,
    run,
    written,
)
from whyformer.datasets import open_dataset
from whyformer.errors import BadInput, BadOption
from whyformer.evaluation.chunk import measured_chunk
from whyformer.evaluation.evaluate import Results, Table
from whyformer.evaluation.executors import ENGINES
from whyformer.evaluation.journal import Journal
from whyformer.prediction import Prediction
from whyformer.results.evaluation import CEILING, CHANCE
from whyformer_papers.words import Idf

METHODS = "attcat,rollout,random"
ROWS = 12


@pytest.fixture(autouse=True)
def own_registry() -> Iterator[None]:
    with evaluated.own_registry():
        yield


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return evaluated.data(tmp_path, ROWS)


def counting(*names: str) -> dict[str, list[int]]:
    """Methods of these names, which count the texts of each call."""
    calls: dict[str, list[int]] = {}

    def made(name: str) -> Callable[[Prediction], torch.Tensor]:
        def counted(prediction: Prediction) -> torch.Tensor:
            """Units in order."""
            calls[name].append(len(prediction.padding))
            return in_order(prediction) * (1 + names.index(name))

        counted.__name__ = name
        return counted

    for name in names:
        calls[name] = []
        registered(made(name))
    return calls


# The table


@pytest.mark.long
def test_the_table_is_that_of_the_records(data: Path, tmp_path: Path) -> None:
    table = run(data, tmp_path / "out", METHODS, f"aopc,{CHANGE},kendall_tau", ceiling=8)
    records = found(journalled(tmp_path / "out"))
    assert table.methods == ("attcat", "rollout", "random", CHANCE, CEILING)
    assert table.metrics == ("aopc", CHANGE, "kendall_tau")
    for method in table.methods:
        for metric in table.metrics:
            own = [r.value for (_, m, of), r in records.items() if (m, of) == (method, metric) and r.value is not None]
            cell = table[method, metric]
            if not own:
                assert cell is None
                continue
            assert cell.n == len(own) == (8 if method in (CEILING, CHANCE) else ROWS)
            assert cell.mean == pytest.approx(sum(own) / len(own), abs=1e-12)
            expected = scipy.stats.t.interval(
                0.95, len(own) - 1, np.mean(own), scipy.stats.sem(own)
            )  # of fewer than 30 rows
            assert (cell.low, cell.high) == pytest.approx(expected, abs=1e-9)
    assert table["rollout", "kendall_tau"] is None
    best = max(("attcat", "rollout", "random"), key=lambda method: table[method, "aopc"].mean)
    assert table.best("aopc") == best
    rows = range(8)
    mine, most, chance = (sum(records[r, way, "aopc"].value for r in rows) for way in ("attcat", CEILING, CHANCE))
    assert table.share("attcat", "aopc").mean == pytest.approx((mine - chance) / (most - chance), abs=1e-12)


def test_the_table_needs_no_folder_and_is_read_back_from_one(data: Path, tmp_path: Path) -> None:
    kept = run(data, tmp_path / "out", METHODS, "aopc")
    assert alike(run(data, None, METHODS, "aopc").to_csv(), kept.to_csv())
    journal = Journal.read(tmp_path / "out")
    again = Results.of(journal.chunks(), journal.run).table()
    assert (again.to_markdown(), again.to_csv(), again.to_latex()) == tuple(
        (tmp_path / "out" / name).read_text() for name in TABLES
    )
    assert (tmp_path / "out" / "curves-aopc.png").read_bytes()[:4] == b"\x89PNG"


def test_the_models_right_answers_are_counted(data: Path) -> None:
    labels = [int(line.rsplit(",", 1)[1]) for line in data.read_text().splitlines()[1:]]
    texts = [line.rsplit(",", 1)[0] for line in data.read_text().splitlines()[1:]]
    right = [evaluated.Literal(cases.subject(), t).predicted == label for t, label in zip(texts, labels, strict=True)]
    table = run(data, None, "rollout", "aopc")
    assert table.right == dict(enumerate(right))
    assert f"the model is right on {sum(right)} of them" in table.to_markdown()


@pytest.mark.long
def test_a_run_that_is_complete_does_nothing_more(data: Path, tmp_path: Path) -> None:
    calls = counting("first")
    run(data, tmp_path / "out", "first", ceiling=True)
    before, count = files(tmp_path / "out"), len(calls["first"])
    assert sum(calls["first"]) == ROWS
    run(data, tmp_path / "out", "first", ceiling=True)
    assert files(tmp_path / "out") == before
    assert len(calls["first"]) == count
    run(data, tmp_path / "out", "first", ceiling=True, rows_per_chunk=5)  # other chunks of the same rows
    assert files(tmp_path / "out") == before


# Going on


class Interrupting:
    """A method that is interrupted at one of its calls, as by Ctrl-C."""

    def __init__(self) -> None:
        self.at: int | None = None
        self.calls = 0

        def interrupted(prediction: Prediction) -> torch.Tensor:
            """Units in order, until somebody has enough."""
            self.calls += 1
            if self.calls == self.at:
                raise KeyboardInterrupt
            return in_order(prediction)

        registered(interrupted)


@pytest.mark.long
@pytest.mark.parametrize("at", [1, 3, 4])  # the first chunk; the second half of the second; the last
def test_an_interrupted_run_goes_on_as_if_nothing_had_been(data: Path, tmp_path: Path, at: int) -> None:
    stopped = Interrupting()
    methods = "attcat,interrupted,rollout"
    run(data, tmp_path / "whole", methods, ceiling=5)
    whole = files(tmp_path / "whole")
    assert stopped.calls == 4  # rows 4, with a ceiling, and 5 to 7, without, are two batches
    stopped.calls, stopped.at = 0, at
    with pytest.raises(KeyboardInterrupt):
        run(data, tmp_path / "out", methods, ceiling=5)
    journal, lines = tmp_path / "out" / JOURNAL, whole[JOURNAL].splitlines()
    half = journal.read_text().splitlines() if journal.exists() else []  # it is made with the first chunk
    assert alike(half, lines[: len(half)])
    assert bool(half) is (at > 1)
    assert len(half) < len(lines)
    assert not (tmp_path / "out" / TABLES[0]).exists()
    stopped.at = None
    run(data, tmp_path / "out", methods, ceiling=5)
    assert alike(files(tmp_path / "out"), whole)


def test_an_interrupted_run_of_texts_that_are_left_out_goes_on_too(data: Path, tmp_path: Path) -> None:
    """Texts left out for what the model says of them are known to be left out the next time."""
    calls = counting("first")

    def chosen() -> Any:
        opened = open_dataset(data, labels=cases.subject().labels)
        opened.choice = replace(opened.choice, min_probability=0.6)
        return opened

    table = run(chosen(), tmp_path / "out", "first")
    before, count = files(tmp_path / "out"), len(calls["first"])
    assert 0 < len(table.skipped) < ROWS
    run(chosen(), tmp_path / "out", "first")
    assert files(tmp_path / "out") == before
    assert len(calls["first"]) == count


def test_adding_a_method_computes_only_that_method(data: Path, tmp_path: Path) -> None:
    calls = counting("first", "second")
    run(data, tmp_path / "out", "first,attcat")
    assert sum(calls["first"]) == ROWS
    both = run(data, tmp_path / "out", "first,attcat,second")
    assert (sum(calls["first"]), sum(calls["second"])) == (ROWS, ROWS)
    fresh = run(data, tmp_path / "fresh", "first,attcat,second")
    assert both.to_markdown() == fresh.to_markdown()
    assert sorted(r.key for r in found(journalled(tmp_path / "out")).values()) == sorted(
        r.key for r in found(journalled(tmp_path / "fresh")).values()
    )


def test_adding_a_metric_computes_only_that_metric(data: Path, tmp_path: Path) -> None:
    run(data, tmp_path / "out", METHODS, FALL)
    first = (tmp_path / "out" / JOURNAL).read_bytes()
    both = run(data, tmp_path / "out", METHODS, f"{FALL},{CHANGE},kendall_tau")
    assert (tmp_path / "out" / JOURNAL).read_bytes().startswith(first)
    added = [record for chunk in journalled(tmp_path / "out")[3:] for record in chunk.records]
    assert {record.metric for record in added} == {CHANGE, "kendall_tau"}
    assert len(added) == ROWS * 4
    assert printed(both) == printed(run(data, None, METHODS, f"{FALL},{CHANGE},kendall_tau"))


@pytest.mark.long
def test_adding_the_ceiling_computes_only_that(data: Path, tmp_path: Path) -> None:
    calls = counting("first")
    run(data, tmp_path / "out", "first,attcat")
    both = run(data, tmp_path / "out", "first,attcat", ceiling=6)
    assert sum(calls["first"]) == ROWS
    more = run(data, tmp_path / "out", "first,attcat", ceiling=True)
    assert sum(calls["first"]) == ROWS
    assert (both[CEILING, FALL].n, more[CEILING, FALL].n) == (6, ROWS)
    assert more.to_markdown() == run(data, None, "first,attcat", ceiling=True).to_markdown()


def test_raising_the_limit_computes_only_the_new_rows(data: Path, tmp_path: Path) -> None:
    calls = counting("first")
    few = run(data, tmp_path / "out", "first,attcat", limit=6)
    assert few["first", FALL].n == sum(calls["first"]) == 6
    many = run(data, tmp_path / "out", "first,attcat")
    assert many["first", FALL].n == sum(calls["first"]) == ROWS
    assert many.to_markdown() == run(data, None, "first,attcat").to_markdown()


@pytest.mark.long
def test_a_method_added_to_half_a_run_ends_as_a_whole_one(data: Path, tmp_path: Path) -> None:
    run(data, tmp_path / "out", "attcat", FALL, limit=6)
    table = run(data, tmp_path / "out", "attcat,rollout", ceiling=7, rows_per_chunk=5)
    assert printed(table) == printed(run(data, None, "attcat,rollout", ceiling=7))


# One folder, one run


def test_another_model_in_the_same_folder_is_refused(data: Path, tmp_path: Path) -> None:
    run(data, tmp_path / "out", "rollout")
    before = files(tmp_path / "out")
    with pytest.raises(BadOption, match=r"holds another run.*model is not the same"):
        run(data, tmp_path / "out", "rollout", of=cases.subject(problem="multi_label_classification"))
    with pytest.raises(BadOption, match=r"holds another run.*data is not the same"):
        run(evaluated.data(tmp_path, ROWS, seed=1, name="b.csv"), tmp_path / "out", "rollout")
    with pytest.raises(BadOption, match=r"holds another run.*data is not the same"):
        run(data, tmp_path / "out", "rollout", columns={"text": "label", "label": "text"}, on_error="skip")
    assert files(tmp_path / "out") == before


@pytest.mark.long
@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"ceiling": True}, {"ceiling": True, "beam": 2}),
    ],
    ids=["beam"],
)
def test_numbers_that_do_not_go_with_those_in_the_folder_are_refused(
    data: Path, tmp_path: Path, first: dict[str, Any], second: dict[str, Any]
) -> None:
    """Before they are measured: the folder stays as good as it was."""
    run(data, tmp_path / "out", "rollout", **first)
    before = files(tmp_path / "out")
    with pytest.raises((BadInput, BadOption)):
        run(data, tmp_path / "out", "rollout", **second)
    assert files(tmp_path / "out") == before
    run(data, tmp_path / "out", "rollout", **first)
    assert files(tmp_path / "out") == before


def test_two_runs_on_one_folder(data: Path, tmp_path: Path) -> None:
    second: list[str] = []

    def nested(prediction: Prediction) -> torch.Tensor:
        """Starts another run of the same folder while one is going on."""
        with pytest.raises(BadInput, match="another run is writing to") as refusal:
            run(data, tmp_path / "out", "rollout")
        second.append(str(refusal.value))
        return in_order(prediction)

    registered(nested)
    run(data, tmp_path / "out", "nested,rollout")
    assert len(second) == 3
    assert run(data, tmp_path / "out", "rollout")["nested", FALL].n == ROWS


def test_a_full_disk_is_said_and_the_run_goes_on_when_there_is_room(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(data, tmp_path / "whole", METHODS)
    whole = files(tmp_path / "whole")
    room = len(whole[JOURNAL]) // 2
    with monkeypatch.context() as patched:
        patched.setattr(os, "write", _with_room(tmp_path / "out" / JOURNAL, room))
        with pytest.raises(
            BadInput, match=r"could not write .*No space left.*\d+ records are safe.*goes on once there"
        ):
            run(data, tmp_path / "out", METHODS)
    kept = (tmp_path / "out" / JOURNAL).read_text().splitlines()
    assert alike(kept, whole[JOURNAL].splitlines()[: len(kept)])
    assert 0 < len(journalled(tmp_path / "out")) < 3
    run(data, tmp_path / "out", METHODS)
    assert alike(files(tmp_path / "out"), whole)


def _with_room(path: Path, room: int) -> Callable[[int, Any], int]:
    """`os.write` to a disk on which a file can hold so many bytes: it writes what fits, then nothing."""
    real = os.write

    def write(descriptor: int, data: Any) -> int:
        if not path.exists() or not os.path.samestat(os.fstat(descriptor), path.stat()):
            return real(descriptor, data)
        left = room - os.fstat(descriptor).st_size
        if left <= 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(descriptor, bytes(data)[:left])

    return write


def test_a_number_without_end_is_no_end_of_the_run(data: Path, tmp_path: Path) -> None:
    """A probability that falls to 0 has no finite logarithm."""
    own = cases.subject()
    state = {
        name: weight * (1e4 if name == "classifier.weight" else 1) for name, weight in own.model.state_dict().items()
    }
    model = type(own.model)(own.model.config).double().eval()
    model.load_state_dict(state)
    table = run(data, tmp_path / "out", "rollout", of=replace(own, model=model))
    assert table.metrics == (FALL, CHANGE)
    assert table["rollout", FALL].n == ROWS


# Bad rows

BAD = [("the film is fine", 0), ("", 1), ("a bad film", 7), ("fine acting", 2), ("all is bad", ""), ("it is not", 1)]


@pytest.mark.parametrize(
    ("row", "reason"),
    [(1, "'text' is empty"), (2, "label 7 is outside 0 … 2"), (4, "the label is empty")],
)
def test_a_bad_row_is_refused_with_its_number(tmp_path: Path, row: int, reason: str) -> None:
    good = [one for number, one in enumerate(BAD) if number == row or number in (0, 3, 5)]
    place = good.index(BAD[row])
    data = written(tmp_path / "bad.csv", good)
    with pytest.raises(BadInput, match=rf"row {place} \(counted from 0\): {reason}.*--on-error skip"):
        run(data, tmp_path / "out", "rollout")


def test_a_missing_value_is_refused_with_its_row(tmp_path: Path) -> None:
    data = tmp_path / "bad.jsonl"
    rows: list[dict[str, Any]] = [{"text": "a bad film", "label": 0}, {"label": 1}, {"text": "the film", "label": 1}]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(BadInput, match=r"row 1 \(counted from 0\): no value for 'text'"):
        run(data, tmp_path / "out", "rollout")
    table = run(data, tmp_path / "out", "rollout", on_error="skip")
    assert table.skipped == {1: "no value for 'text'"}


def test_bad_rows_are_skipped_and_counted_in_the_footer(tmp_path: Path) -> None:
    calls = counting("first")
    data = written(tmp_path / "bad.csv", BAD)
    table = run(data, tmp_path / "out", "first", on_error="skip", rows_per_chunk=2)
    assert table["first", FALL].n == 3
    assert list(table.skipped) == [1, 2, 4]
    footer = "\n".join(table.footer)
    assert "3 rows skipped (counted from 0): row 1: 'text' is empty; row 2: label 7 is outside 0 … 2" in footer
    assert "3 rows skipped" in (tmp_path / "out" / "table.md").read_text()
    before, count = files(tmp_path / "out"), len(calls["first"])
    run(data, tmp_path / "out", "first", on_error="skip", rows_per_chunk=2)
    assert files(tmp_path / "out") == before
    assert len(calls["first"]) == count
    good = written(tmp_path / "good.csv", [BAD[row] for row in (0, 3, 5)])
    for metric in (FALL, CHANGE):
        assert run(good, None, "first")["first", metric].mean == pytest.approx(table["first", metric].mean, abs=1e-12)


def test_labels_are_needed_where_the_gold_class_is_explained(tmp_path: Path) -> None:
    data = written(tmp_path / "plain.csv", [("the film is fine",), ("a bad film",)], ["text"])
    with pytest.raises(BadInput, match=r"row 0 \(counted from 0\): aopc needs the gold label"):
        run(data, None, "rollout", "aopc(target=gold)")
    with pytest.raises(BadInput, match=r"no example to tabulate.*2 rows skipped; row 0: aopc needs the gold label"):
        run(data, tmp_path / "out", "rollout", "aopc(target=gold)", on_error="skip")


def test_texts_in_which_the_tokenizer_finds_nothing_are_bad_rows(tmp_path: Path) -> None:
    data = written(tmp_path / "odd.csv", [("a bad film", 0), ("\u200b", 1)])
    with pytest.raises(BadInput, match=r"row 1 \(counted from 0\): the tokenizer finds no token"):
        run(data, None, "rollout")
    assert list(run(data, None, "rollout", on_error="skip").skipped) == [1]


# Streams and engines


@pytest.mark.long
def test_the_same_rows_in_other_formats_give_the_same_table(data: Path, tmp_path: Path) -> None:
    lines = [line.rsplit(",", 1) for line in data.read_text().splitlines()[1:]]
    rows = [{"text": text, "label": int(label)} for text, label in lines]
    (tmp_path / "texts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "texts.parquet", row_group_size=5)

    def table(path: Path) -> tuple[str, str]:
        found = run(path, None, METHODS, ceiling=4)
        return found.to_csv(), found.to_markdown().replace(str(path), "DATA")

    assert alike(table(tmp_path / "texts.jsonl"), table(data))
    assert alike(table(tmp_path / "texts.parquet"), table(data))


def test_pairs_are_found_in_their_columns(tmp_path: Path) -> None:
    rows = [("the film is fine", "a bad film", 0), ("it is all bad", "fine acting", 2)]
    data = written(tmp_path / "pairs.csv", rows, ["premise", "hypothesis", "label"])
    run(data, tmp_path / "out", "attcat", "aopc")
    for row, (first, second, _) in enumerate(rows):
        own = evaluated.Literal(cases.subject(), (first, second))
        expected = own.aopc(own.order("attcat"))
        assert found(journalled(tmp_path / "out"))[row, "attcat", "aopc"].value == pytest.approx(expected, abs=1e-10)


def test_questions_are_evaluated_and_those_without_an_answer_counted(tmp_path: Path) -> None:
    context = "the actors like it. the film is fine."
    answers = [["the actors"], [], ["fine"], [], [], [], ["film"], []]
    rows = [
        {
            "question": "is the film bad",
            "context": context,
            "answers": {"text": own, "answer_start": [context.index(answer) for answer in own]},
        }
        for own in answers
    ]
    data = tmp_path / "questions.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    metrics = "precision_at_k(k=4),precision_at_k(k=4, measure=ratio)"
    table = run(data, tmp_path / "out", METHODS, metrics, of=evaluated.answering(), rows_per_chunk=3)
    for method in METHODS.split(","):
        records = found(journalled(tmp_path / "out"))
        details = [records[row, method, "precision_at_k(k=4)"].detail for row in (0, 2, 6)]
        count = sum(detail["counts"][0] for detail in details)
        cell, ratio = (table[method, metric] for metric in table.metrics)
        assert (cell.n, cell.left_out) == (ratio.n, ratio.left_out) == (3, 5)
        assert cell.mean == pytest.approx(count / 3)
        assert ratio.mean == pytest.approx(count / sum(detail["length"] for detail in details))
    assert "leaves out 5 rows" in table.to_markdown()


def test_words_are_weighted_by_how_rare_they_are(data: Path, tmp_path: Path) -> None:
    table = run(data, tmp_path / "out", "attcat", "token_overlap(k=3)")
    records = found(journalled(tmp_path / "out"))
    totals: dict[int, dict[str, float]] = {}
    for record in records.values():
        own = totals.setdefault(record.detail["class"], {})
        for word, score in record.detail["words"]:
            own[word] = own.get(word, 0) + score * Idf.bundled()[word]
    tops = [set(sorted(own, key=lambda word: -own[word])[:3]) for own in totals.values()]
    pairs = [(a, b) for n, a in enumerate(tops) for b in tops[:n]]
    assert len(pairs) > 0
    expected = sum(len(a & b) for a, b in pairs) / (3 * len(pairs))
    assert table["attcat", "token_overlap(k=3)"].mean == pytest.approx(expected)


def test_a_model_that_answers_questions_has_no_words_of_a_class(tmp_path: Path) -> None:
    row = {"question": "is it bad", "context": "it is fine", "answers": {"text": ["fine"], "answer_start": [6]}}
    data = tmp_path / "questions.jsonl"
    data.write_text(json.dumps(row) + "\n")
    for metric in ("token_overlap", "kendall_tau"):
        with pytest.raises((BadInput, BadOption), match="for models that classify"):
            run(data, None, "attcat", metric, of=evaluated.answering())


def test_an_engine_that_is_not_known(data: Path) -> None:
    with pytest.raises(BadOption, match="there is no engine 'locl'; did you mean 'local'"):
        run(data, None, "rollout", engine="locl")


def test_the_local_engine_has_one_worker(data: Path) -> None:
    with pytest.raises(BadOption, match=r"workers=2: the local engine has one; use engine='ray'"):
        run(data, None, "rollout", workers=2)
    assert run(data, None, "rollout", workers=1)["rollout", FALL].n == ROWS


def test_the_engine_is_given_each_chunk_that_is_missing(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[int, int]] = []

    def engine(plan: Any, pending: Any, workers: Any) -> Iterator[Any]:
        for chunk in pending:
            seen.append((chunk.start, chunk.stop))
            yield measured_chunk(plan, chunk)

    monkeypatch.setitem(ENGINES, "watched", engine)
    table: Table = run(data, tmp_path / "out", "rollout", engine="watched", limit=10)
    assert seen == [(0, 4), (4, 8), (8, 10)]
    assert table["rollout", FALL].n == 10
    run(data, tmp_path / "out", "rollout", engine="watched")
    assert seen[3:] == [(8, 12)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ceiling": -1}, "ceiling=-1"),
        ({"ceiling": True, "beam": 0}, "beam takes a whole number from 1 to 1000"),
        ({"limit": 0}, "limit=0: at least one row"),
        ({"rows_per_chunk": -1}, "rows_per_chunk takes a whole number from 1 on"),
        ({"tokens_per_batch": -1}, "tokens_per_batch takes a whole number from 1 on"),
        ({"on_error": "ignore"}, "on_error takes refuse"),
        ({"columns": {"text": "body"}}, "has no column 'body'"),
    ],
)
def test_options_that_make_no_sense_are_refused(data: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises((BadInput, BadOption), match=message):
        run(data, None, "rollout", **options)


def test_options_of_a_data_set_that_is_open_already_are_refused(data: Path) -> None:
    opened = open_dataset(data, labels=cases.subject().labels, limit=5)
    assert run(opened, None, "rollout")["rollout", FALL].n == 5
    with pytest.raises(BadOption, match="limit= is for a file or name"):
        run(opened, None, "rollout", limit=3)
