"""Saved files with something wrong in them: a named error, or an object that can be used."""

import json
import os
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.fuzz.tampering import tampered
from whyformer import Comparison, Explainer, Explanation
from whyformer.errors import BadInput, BadOption, WhyformerError
from whyformer.evaluation.evaluate import Results
from whyformer.evaluation.journal import Journal
from whyformer.methods.head_mask import RELATIONS, HeadMask, HeadStatistics
from whyformer.perturb.hiding_steps import Seen
from whyformer.results.evaluation import Chunk, Record
from whyformer.results.saved import COMPARISON
from whyformer.show.curves import report_page
from whyformer.tasks.targets import AnswerSpan, Label
from whyformer_papers.words import WordTable, load_tables, save_tables, tables_of
from whyformer_papers.words.table import TABLES

SOME = 3  # of so many ways to tamper with a file one is tried


@cache
def explained(method: str = "attcat") -> dict[str, Any]:
    data: dict[str, Any] = json.loads(json.dumps(Explainer.load("sentiment").explain("a fine film", method).to_dict()))
    return data


@cache
def answered() -> dict[str, Any]:
    """An explanation of an answer, with all that a file may hold."""
    whole = Explanation.from_dict(explained())
    span = AnswerSpan((3, 3), (2, 6))
    said = replace(whole.prediction, index=None, span=span, labels=("start", "end"))
    units = tuple(replace(unit, part=None if unit.part is None else 1) for unit in whole.units)
    more = {"dropped_tokens": 3, "conservation": {"sum": 1.0}}
    shares = (None, (0.2, 0.8))
    seen = Seen("delete", (0,) + (1,) * (len(whole.units) - 1), (2.0, None), shares, 1)
    made = replace(
        whole,
        units=units,
        texts=("what is fine?", whole.texts[0]),
        prediction=said,
        target=Label(None, "fine", span),
        versus=Label(None, "film", AnswerSpan((4, 4), (7, 11))),
        ranks=True,
        signs=np.ones(len(whole.units), dtype=np.int64),
        seen=(seen, seen),
        diagnostics=more,
        provenance={**whole.provenance, "revision": "abc"},
    )
    trust = {"aopc": 0.3, "random": [0.1, 0.2], "ceiling": 0.4, "target": "fine", "units": 3, "kind": "token"}
    data: dict[str, Any] = json.loads(json.dumps({**made.to_dict(), "trust": {**trust, "evaluations": 7}}))
    return data


def used(explanation: Explanation) -> None:
    """All that is done with an explanation that was loaded."""
    explanation._repr_html_()
    str(explanation).encode("utf-8", "backslashreplace")
    explanation.words()
    explanation.top(3, by="magnitude")
    json.dumps(explanation.to_dict(), ensure_ascii=False, indent=1)
    if explanation.trusted is not None:
        explanation.trusted.to_dict()


def held_or_refused(use: Callable[[], Any]) -> bool:
    """Whether it was refused: in one line, or not at all."""
    try:
        use()
    except WhyformerError as error:
        return "\n" not in str(error) or pytest.fail(f"not one line: {error}")
    return False


@pytest.mark.parametrize("make", [explained, answered])
def test_explanations(make: Callable[[], dict[str, Any]]) -> None:
    used(Explanation.from_dict(make()))
    ways = list(tampered(make()))[::SOME]
    refused = [held_or_refused(lambda data=data: used(Explanation.from_dict(data))) for _, data in ways]
    assert len(refused) > 300
    assert sum(refused) > len(refused) / 2


def test_comparisons(tmp_path: Path) -> None:
    both = Comparison((Explanation.from_dict(explained()), Explanation.from_dict(explained("rollout"))), (("x", "y"),))
    path = both.save(tmp_path / "c.json")
    assert str(Comparison.load(path)) == str(both)
    whole = json.loads(path.read_text(encoding="utf-8"))

    def use(data: dict[str, Any]) -> None:
        checked = COMPARISON.checked(data)
        found = Comparison(
            tuple(map(Explanation.from_dict, checked["explanations"])), tuple(checked["refused"].items())
        )
        str(found)
        found._repr_html_()

    for _, data in list(tampered(whole))[:: 3 * SOME]:
        held_or_refused(lambda data=data: use(data))
    for version in (99, True, "1", None, 1.0):
        path.write_text(json.dumps({**whole, "schema_version": version}))
        with pytest.raises(BadInput, match="reads version 1 or 2"):
            Comparison.load(path)
    other = {**explained(), "texts": ["a fine film!"]}
    path.write_text(json.dumps({**whole, "explanations": [explained(), other]}))
    with pytest.raises(BadInput, match=r"c\.json' is damaged or not complete: 'explanations\[1\]' is of another input"):
        Comparison.load(path)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (lambda d: d["units"][1].update(span=[1, 99]), r"units\[1\]\.span"),
        (lambda d: d["units"][1].update(span=[2, 0]), r"units\[1\]\.span"),
        (lambda d: d["units"][1].update(part=-1), r"units\[1\]\.part"),
        (lambda d: d["units"][1].update(part=99), r"units\[1\]\.part"),
        (lambda d: d.update(texts="a fine film"), "texts"),
        (lambda d: d.update(units=[]), "units"),
        (lambda d: d["layers"][0].pop(), r"layers\[0\]"),
        (lambda d: d["prediction"]["probabilities"].pop(), r"prediction\.probabilities"),
        (lambda d: d["prediction"].update(index=7), r"prediction\.index"),
        (lambda d: d["units"][0].update(score=float("nan")), r"units\[0\]\.score"),
        (lambda d: d.update(options=[]), "options"),
    ],
)
def test_the_error_names_the_file_and_the_field(change: Callable[[Any], Any], field: str, tmp_path: Path) -> None:
    data = json.loads(json.dumps(explained()))
    change(data)
    path = tmp_path / "why.json"
    path.write_text(json.dumps(data))
    with pytest.raises(BadInput, match=rf"why\.json' is damaged or not complete: '{field}' "):
        Explanation.load(path)


@pytest.mark.parametrize("content", ["[" * 100_000, '{"a":' * 100_000, "1" * 5000, "NaN", "\ud800"])
@pytest.mark.parametrize("load", [Explanation.load, Comparison.load, load_tables, WordTable.load, HeadMask.load])
def test_brackets_and_digits_without_end(load: Callable[[Path], Any], content: str, tmp_path: Path) -> None:
    path = tmp_path / "f.json"
    path.write_text(content, encoding="utf-8", errors="surrogatepass")
    with pytest.raises(BadInput, match=r"f\.json"):
        load(path)


def table() -> WordTable:
    totals = {0: {"war": 1.0, "film": 0.5}, 1: {"peace": 2.0, "film": 0.1}}
    return WordTable(totals, ("BAD", "GOOD"), "attcat", {0: 2, 1: 3}, {"refused": {"too long": 2}, "rows": 5})


def test_tables_of_words(tmp_path: Path) -> None:
    path = save_tables({"attcat": table(), "rollout": replace(table(), method="rollout")}, tmp_path / "t.json")
    assert set(load_tables(path)) == {"attcat", "rollout"}
    whole = json.loads(path.read_text(encoding="utf-8"))

    def use(data: Any) -> None:
        for own in TABLES.checked(data)["tables"]:
            found = WordTable.from_dict(own)
            found.to_text()
            found.to_markdown()
            found.overlap(2)

    use(whole)
    refused = [held_or_refused(lambda data=data: use(data)) for _, data in tampered(whole)]
    assert sum(refused) > len(refused) / 3
    for change in ({"tables": []}, {"tables": [{**table().to_dict(), "provenance": None}]}):
        path.write_text(json.dumps({**whole, **change}))
        with pytest.raises(BadInput, match=r"t\.json' is damaged"):
            load_tables(path)


def mask() -> HeadMask:
    heads = np.arange(6).reshape(2, 3)
    statistics = HeadStatistics(
        heads, heads, 9, np.stack([np.stack([heads] * len(RELATIONS), -1)] * 2), ({1: 2},) * 4, 5
    )
    return HeadMask(heads % 2, statistics, provenance={"corpus": {"data": "x"}, "sentences": 3, "made": []})


@pytest.mark.long
def test_head_masks(tmp_path: Path) -> None:
    whole = json.loads(mask().save(tmp_path / "m.json").read_text())
    path = tmp_path / "m.json"
    for _, data in list(tampered(whole))[::SOME]:
        path.write_text(json.dumps(data))
        held_or_refused(lambda: repr(HeadMask.load(path).random(0)))


# Journals: the checksums are right, and what they are of is not


def journal(folder: Path) -> list[Any]:
    """The lines of a journal, as data."""
    detail = {"class": 0, "words": [["war", 1.0]]}
    metrics = {
        "aopc": {"name": "aopc", "options": {}, "higher_is_better": True, "level": "example", "at": [0.0, 1.0]},
        "token_overlap": {"name": "token_overlap", "options": {}, "higher_is_better": False, "level": "corpus"},
    }
    records = (
        Record("aa", 0, "attcat", "aopc", 0.5, (0.0, None)),
        Record("ab", 1, "attcat", "aopc", None, refused="too long"),
        Record("ac", 0, "attcat", "token_overlap", None, detail=detail),
    )
    examples = ({"row": 0, "units": 7, "gold": 1, "predicted": 1, "probability": 0.5, "dropped": 2},)
    run = {"n": 3, "about": {"model": "m", "data": "d.csv", "labels": ["BAD", "GOOD"]}}
    with Journal.open(folder, run) as made:
        made.append(Chunk(0, 16, records, metrics, examples, {3: "empty"}, {"evaluations": 4}))
    return [json.loads(line) for line in (folder / "journal.jsonl").read_bytes().splitlines()]


def sealed(lines: list[Any]) -> bytes:
    """The journal of such lines, with checksums that are right."""
    opening, *records, commit = lines
    if isinstance(opening, dict):
        opening.pop("checksum", None)
    texts = [json.dumps(line, separators=(",", ":")) for line in records]
    seal = json.dumps(commit.get("commit") if isinstance(commit, dict) else commit, separators=(",", ":"))
    body = "".join(f"{line}\n" for line in texts) + f'{{"commit":{seal},"records":{len(records)}'
    end = f',"checksum":"{sha256(body.encode()).hexdigest()}"}}\n'
    return f"{json.dumps(opening, separators=(',', ':'))}\n{body}{end}".encode()


def shown(folder: Path) -> None:
    read = Journal.read(folder)
    found = Results.of(read.chunks(), read.run).table(resamples=5)
    str(found)
    found.to_markdown(), found.to_csv(), found.to_latex(), found._repr_html_()
    tables_of(found)


@pytest.mark.long
def test_journals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    whole = journal(tmp_path)
    path = tmp_path / "journal.jsonl"
    path.write_bytes(sealed(json.loads(json.dumps(whole))))  # as an earlier version has written it: no checksum above
    shown(tmp_path)
    report_page(Results.of(Journal.read(tmp_path).chunks(), {}).table())
    for what, data in tampered(whole):
        if isinstance(data, list) and len(data) > 2 and isinstance(data[-1], dict) and "NaN" not in what:
            path.write_bytes(sealed(data))
            held_or_refused(lambda: shown(tmp_path))


@pytest.mark.parametrize(
    ("line", "change", "words"),
    [
        (2, lambda r: r.update(value="x"), "'value' is 'x', not a number"),
        (2, lambda r: r.update(row="x"), "'row' is 'x', not a whole number"),
        (3, lambda r: r.pop("method"), "'method' is missing"),
        (4, lambda r: r.update(key=5), "'key' is 5, not text"),
        (2, lambda r: r.update(curve=7), "'curve' is 7, not a list"),
        (5, lambda r: r["commit"]["metrics"]["aopc"].update(level="x"), "'commit.metrics.aopc.level' is 'x'"),
        (5, lambda r: r["commit"].update(examples=[{}]), r"'commit.examples\[0\].row' is missing"),
        (5, lambda r: r["commit"].update(skipped={"x": "y"}), "'commit.skipped.x'"),
        (1, lambda r: r["run"].update(about=[]), "'about' is "),
    ],
)
def test_the_error_names_the_line(tmp_path: Path, line: int, change: Callable[[Any], Any], words: str) -> None:
    lines = journal(tmp_path)
    change(lines[line - 1])
    (tmp_path / "journal.jsonl").write_bytes(sealed(lines))
    with pytest.raises(BadInput, match=rf"journal\.jsonl, line {line}: .*{words}"):
        list(Journal.read(tmp_path).chunks())


def test_a_metric_without_a_level_and_details_of_another_kind_are_named(tmp_path: Path) -> None:
    lines = journal(tmp_path)
    del lines[-1]["commit"]["metrics"]["aopc"]["level"]
    (tmp_path / "journal.jsonl").write_bytes(sealed(lines))
    with pytest.raises(BadInput, match="row 0 has a number by aopc that is not as described"):
        shown(tmp_path)
    lines = journal(tmp_path / "other")
    lines[3]["detail"] = {"class": [], "words": 3}
    (tmp_path / "journal.jsonl").write_bytes(sealed(lines))
    read = Journal.read(tmp_path)
    found = Results.of(read.chunks(), read.run).table()
    with pytest.raises(BadInput, match="token_overlap has no number from its records of attcat"):
        found["attcat", "token_overlap"]
    with pytest.raises(BadInput, match="row 0 has no words of attcat by token_overlap: 'class' is "):
        tables_of(found)


def test_a_count_of_records_of_any_length_is_damage(tmp_path: Path) -> None:
    journal(tmp_path)
    path = tmp_path / "journal.jsonl"
    content = path.read_bytes()
    path.write_bytes(content.replace(b'"records":3', b'"records":' + b"9" * 5000) + content.split(b"\n")[1] + b"\n")
    with pytest.raises(BadInput, match="damaged"):
        Journal.read(tmp_path)


def test_every_byte_of_the_first_line_counts(tmp_path: Path) -> None:
    journal(tmp_path)
    path = tmp_path / "journal.jsonl"
    content = path.read_bytes()
    end = content.index(b"\n")
    for place in range(0, end, 3):
        path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        with pytest.raises(BadInput, match=r"journal\.jsonl"):
            Journal.read(tmp_path)


def test_a_cell_is_asked_for_by_two_names(tmp_path: Path) -> None:
    journal(tmp_path)
    read = Journal.read(tmp_path)
    found = Results.of(read.chunks(), read.run).table()
    for pair in ("x", "aopc", ("attcat",), 3, ("attcat", "aopc", "x")):
        with pytest.raises(BadOption, match="a cell has a method and a metric"):
            found[pair]  # type: ignore[index]
    with pytest.raises(BadOption, match="no metric 'aopcc' in this table; did you mean 'aopc'"):
        found["attcat", "aopcc"]
