"""Recipes that explain through heads: masks given or found in the data, rows that need them, figures of heads."""

import csv as comma_separated
import io
import json
import random
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.helpers import cases
from tests.helpers.commands import status_of
from tests.helpers.evaluated import WORDS, answering
from tests.papers.recipes import run
from whyformer.datasets import open_dataset
from whyformer.errors import BadInput, BadOption, MissingExtra, UnsupportedModel
from whyformer.evaluation.evaluate import Table, evaluate
from whyformer.inputs.batch import Batch
from whyformer.methods.head_mask import HeadMask, HeadStatistics
from whyformer.methods.method import method_named
from whyformer.models.load import Subject
from whyformer_papers import reproduce
from whyformer_papers.heads import HeadSearch, head_statistics, parsed_by, positional_statistics, statistics
from whyformer_papers.reproduce import (
    RecipeMetric,
    RecipeRow,
    Reproduced,
    Reproduction,
    masks,
    placeholders,
    reproduction_named,
)

AOPC, LODDS = (f"{name}(hide=pad_attended, protocol=mask_lrp)" for name in ("aopc", "log_odds"))
MEASURES = (RecipeMetric("AOPC", AOPC), RecipeMetric("LOdds", LODDS, higher_is_better=False))  # of one run of the model
TABLE_1, TABLE_3 = (replace(reproduction_named(f"mask-lrp-table-{n}"), measures=MEASURES) for n in (1, 3))
TABLE_2 = reproduction_named("mask-lrp-table-2")
FIGURE_1, FIGURE_4, FIGURE_5, FIGURE_6 = (reproduction_named(f"mask-lrp-figure-{n}") for n in (1, 4, 5, 6))
SMALL = replace(
    TABLE_1, name="small", rows=tuple(r for r in TABLE_1.rows if r.label in ("RawAtt", "Random mask", "theirs"))
)
QUICK = replace(  # real numbers of rows with masks
    TABLE_3, name="quick", columns=TABLE_3.columns[:1], rows=(*TABLE_3.rows, TABLE_1.rows[-2]), published={}
)
stream = random.Random(5)
TEXTS = [" ".join(stream.choices([*WORDS, "like", "film", "actors"], k=stream.randint(22, 28))) for _ in range(6)]


# what the tests put in place of models, data and attention


def texts_at(folder: Path, name: str = "sst2") -> Path:
    (folder / name).mkdir(parents=True)
    lines = [json.dumps({"text": text, "label": n % 2}) for n, text in enumerate(TEXTS)]
    (folder / name / "validation.jsonl").write_text("\n".join(lines))
    return folder


def pairs_at(folder: Path) -> Path:
    (folder / "mnli").mkdir(parents=True)
    rows = [{"premise": one, "hypothesis": other, "label": 0} for one, other in pairwise(TEXTS)]
    (folder / "mnli" / "validation_matched.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    return folder


def tiny(name: str | Path = "tiny") -> Subject:
    return cases.subject()


def attending(subject: Subject, batch: Batch) -> list[torch.Tensor]:
    """Head 1 of block 0 looks at the token before, head 2 of block 1 at the first "like"; the others at the token."""
    units = batch.tensors["input_ids"].shape[1]
    maps = torch.full((2, len(batch.examples), 4, units, units), 0.01, dtype=torch.float64)
    maps[..., range(units), range(units)] = 0.5
    for row, example in enumerate(batch.examples):
        maps[0, row, 1, range(1, units), range(units - 1)] = 0.9
        at = example.texts[0].find("like")
        for place, unit in enumerate(example.units):
            if unit.span and unit.span[0] == at and not unit.part:
                maps[1, row, 2, :, place] = 0.9
    return list(maps)


@pytest.fixture
def found_heads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistics, "attention_maps", attending)


def no_counting(*_: Any, **__: Any) -> HeadMask:
    raise AssertionError("the heads are counted again")


def objects_and_subjects(document: Any) -> Any:
    from spacy.tokens import Doc

    root = next((token.i for token in document if token.text == "like"), 0)
    labels = [{"film": "dobj", "actors": "nsubj"}.get(token.text, "dep") for token in document]
    labels = ["ROOT" if place == root else label for place, label in enumerate(labels)]
    heads = [root] * len(document)
    spaces = [bool(token.whitespace_) for token in document]
    return Doc(document.vocab, [token.text for token in document], spaces, heads=heads, deps=labels)


@pytest.fixture
def pipeline() -> Any:
    import spacy
    from spacy.language import Language

    Language.component("objects_and_subjects_of_like", func=objects_and_subjects)
    made = spacy.blank("en")
    made.add_pipe("objects_and_subjects_of_like")
    return made


def known_mask() -> HeadMask:
    """Of the tiny model: (0, 0) and (1, 3) positional, (0, 1) and (1, 3) nsubj, (1, 0) dobj."""
    hits = np.zeros((2, 2, 4, 4), dtype=np.int64)
    hits[0, 0, 1, 0] = hits[0, 1, 3, 0] = hits[1, 1, 0, 1] = 20
    frequent = np.zeros((2, 4), dtype=np.int64)
    frequent[0, 0] = frequent[1, 3] = 9
    arcs = ({-1: 10, -2: 6, 3: 4}, {1: 10, 2: 10}, {}, {})
    return HeadMask.of(HeadStatistics(-np.ones_like(frequent), frequent, 10, hits, arcs, 5))


def quietly(*arguments: Any, **options: Any) -> Table:
    return evaluate(*arguments, progress=False, **options)


class Measured:
    """In place of `evaluate`: remembers what was asked, and measures it with one cheap method instead."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []

    def __call__(self, subject: Subject, data: Any, *, methods: list[str], metrics: list[str], out: Any) -> Table:
        self.asked.append(methods)
        return quietly(subject, data, "raw_attention", metrics[:1])


def small(tmp_path: Path, recipe: Reproduction = SMALL, **options: Any) -> tuple[Reproduced, list[str]]:
    measured = Measured()
    data = tmp_path / "data"
    given = {"data": data if data.exists() else texts_at(data), "only": ["sst2"], "instead": {"sst2": "tiny"}}
    found = run(recipe, out=tmp_path / "out", evaluate=measured, **{"load": tiny, **given, **options})
    return found, measured.asked[0]


def said(found: Reproduced, word: str) -> list[str]:
    return [line for line in found.footer if word in line]


# rows with a mask


def test_placeholders_are_filled(tmp_path: Path, found_heads: None) -> None:
    found, asked = small(tmp_path)
    (file,) = (tmp_path / "out" / "sst2-mask-lrp-sst2").glob("heads-*.json")
    randoms = [f"mask_lrp(head_mask=random, rate=0.125, seed={seed}, variant=" for seed in range(5)]
    assert asked == [
        "raw_attention(layer=-1)",
        *(f"{start}authors)" for start in randoms),
        *(f"{start}paper)" for start in randoms),
        f"mask_lrp(head_mask={file}, variant=authors)",
        f"mask_lrp(head_mask={file}, variant=paper)",
    ]
    mask = HeadMask.load(file)
    assert np.argwhere(mask.kept).tolist() == [[0, 1]]
    assert mask.statistics is not None
    assert mask.statistics.sentences == len(TEXTS)
    counted = positional_statistics(tiny(), TEXTS, special_tokens=True).statistics
    assert counted is not None
    assert mask.statistics.to_data() == counted.to_data(), "with special tokens, as the authors count"
    assert said(found, "head mask keeps") == [
        "SST-2: the head mask keeps 1 of 8 heads, positional heads only, found in the 6 texts of the data itself "
        "(no parse); looked for as in the authors' code"
    ]
    methods = {entry.method for entry in found.entries}
    assert f"mask_lrp(head_mask={file.name}, variant=authors)" in methods, "the file's name without its folder"
    assert "mask_lrp(head_mask=random, rate=0.125), mean of 5" in methods
    assert found.parts[0].mask is not None


def test_the_written_rate_keeps_as_many_heads() -> None:
    for layers, heads in ((2, 4), (6, 12), (12, 12), (24, 16), (96, 96)):
        for kept in range(1, layers * heads + 1):
            written = f"{kept / (layers * heads):.6g}"
            assert round(float(written) * layers * heads) == kept
    prediction = cases.predicted(["the film is fine"])
    for kept in range(1, 9):
        mask = HeadMask((np.arange(8) < kept).reshape(2, 4))
        own, _ = placeholders.filled(SMALL, SMALL.columns[0], masks.ColumnMask(mask, Path("heads.json"), ""))
        written = next(row for row in own.rows if row.label == "Random mask").seeded(1)[0][0]
        rate = float(written.partition("rate=")[2].partition(",")[0])
        scores = method_named("mask_lrp")(prediction, head_mask="random", rate=rate)
        assert sum(scores.diagnostics["heads"]["kept"]) == kept


def test_the_mask_of_the_texts_is_found_once(
    tmp_path: Path, found_heads: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, asked = small(tmp_path)
    (file,) = (tmp_path / "out" / "sst2-mask-lrp-sst2").glob("heads-*")
    before = file.read_bytes()
    monkeypatch.setattr(masks, "positional_statistics", no_counting)
    again, asked_again = small(tmp_path)
    assert asked_again == asked
    assert again.footer == first.footer
    assert file.read_bytes() == before
    with pytest.raises(AssertionError, match="counted again"):
        small(tmp_path, limit=3)
    with pytest.raises(AssertionError, match="counted again"):
        small(tmp_path, load=lambda name: cases.subject(labels=2))
    content = json.loads(file.read_text())
    content["provenance"]["of"]["texts"] = "of others"
    file.write_text(json.dumps(content))
    with pytest.raises(AssertionError, match="counted again"):
        small(tmp_path)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::whyformer.errors.TruncationWarning")
def test_a_run_goes_on_with_more_texts_and_another_mask(tmp_path: Path, found_heads: None) -> None:
    options: dict[str, Any] = {"data": texts_at(tmp_path / "data"), "instead": {"sst2": "tiny"}, "load": tiny}
    options |= {"out": tmp_path / "out", "evaluate": quietly, "seeds": 1, "only": ["sst2"]}
    recipe = replace(SMALL, rows=SMALL.rows[-1:])
    counts = [
        next(e.ours.n for e in run(recipe, limit=limit, **options).entries if e.main and e.ours) for limit in (3, 6, 3)
    ]
    assert counts == [3, 6, 3]
    assert len(list((tmp_path / "out" / "sst2-mask-lrp-sst2").glob("heads-*.json"))) == 2


def test_without_a_folder_the_mask_is_a_temporary_file(tmp_path: Path, found_heads: None) -> None:
    data, files = texts_at(tmp_path / "data"), []

    def measured(subject: Subject, rows: Any, *, methods: list[str], **_: Any) -> Table:
        files.append(Path(methods[-1].partition("head_mask=")[2].partition(",")[0]))
        assert HeadMask.load(files[0]).kept.sum() == 1
        return quietly(subject, rows, methods, AOPC)

    recipe = replace(SMALL, rows=SMALL.rows[-1:], measures=SMALL.measures[:1])
    found = run(recipe, data=data, only=["sst2"], instead={"sst2": "tiny"}, evaluate=measured, load=tiny)
    assert not files[0].parent.exists()
    assert all(entry.measured for entry in found.entries)
    assert "head_mask=heads-" in str(found)


def test_an_interruption_is_no_mask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(subject: Subject, texts: Any, **_: Any) -> HeadMask:
        return replace(positional_statistics(subject, texts), provenance={"interrupted": True})

    monkeypatch.setattr(masks, "positional_statistics", stopped)
    with pytest.raises(KeyboardInterrupt):
        small(tmp_path)
    assert not list((tmp_path / "out").rglob("heads*"))


def test_pairs_and_questions_are_read_as_pairs(tmp_path: Path, found_heads: None) -> None:
    options: dict[str, Any] = {"evaluate": Measured(), "out": tmp_path / "out", "load": tiny}
    found = run(SMALL, data=pairs_at(tmp_path / "data"), only=["nli"], instead={"nli": "tiny"}, **options)
    expected = positional_statistics(tiny(), list(pairwise(TEXTS)))
    (part,) = found.parts
    assert part.mask is not None
    assert part.mask.provenance["corpus"] == {"data": "mnli@mask_lrp"} | expected.provenance["corpus"]
    (tmp_path / "squad").mkdir()
    answers = {"text": ["film"], "answer_start": [4]}
    rows = [{"question": f"{text}?", "context": "the film is fine", "answers": answers} for text in TEXTS]
    (tmp_path / "squad" / "validation.jsonl").write_text("\n".join(json.dumps(row) for row in rows))

    def measured(subject: Subject, data: Any, *, methods: list[str], metrics: list[str], **_: Any) -> Table:
        return quietly(subject, data, "raw_attention", metrics)

    options = {"evaluate": measured, "instead": {"squad": "tiny"}, "load": lambda name: answering()}
    (part,) = run(TABLE_2, data=tmp_path, only=["squad"], **options).parts
    asked = positional_statistics(answering(), [(f"{text}?", "the film is fine") for text in TEXTS])
    assert part.mask is not None
    assert part.mask.provenance["corpus"]["digest"] == asked.provenance["corpus"]["digest"]


# masks that are given


def test_a_given_mask_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(masks, "positional_statistics", no_counting)
    path = known_mask().save(tmp_path / "known.json")
    for heads in ({"sst2": str(path), "imdb": path}, path, str(path)):
        found, asked = small(tmp_path, heads=heads)
        assert asked[-1] == f"mask_lrp(head_mask={path}, variant=paper)"
        assert "rate=0.5," in asked[1]
    assert said(found, "head mask keeps") == [
        "SST-2: the head mask keeps 4 of 8 heads (2 positional, 3 syntactic: nsubj 2, dobj 1, amod 0, advmod 0), and "
        "was given as known.json"
    ]
    origin = {"fingerprint": "of another", "model": "other", "sentences": 2001, "corpus": {"treebank": "ud.conllu"}}
    replace(known_mask(), provenance=origin).save(path)
    found, _ = small(tmp_path, heads=path)
    (line,) = said(found, "head mask keeps")
    assert line.endswith("and was given as known.json (2,001 sentences, of ud.conllu, made for other)")


def test_masks_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    path = known_mask().save(tmp_path / "known.json")
    with pytest.raises(BadOption, match="small has no column 'sst'; did you mean 'sst2'"):
        small(tmp_path, heads={"sst": path})
    with pytest.raises(BadOption, match="is one head mask, and there are several columns: say for which"):
        small(tmp_path, heads=path, only=["sst2", "imdb"])
    with pytest.raises(BadInput, match="could not read the head mask"):
        small(tmp_path, heads=tmp_path / "none.json")
    (tmp_path / "other.json").write_text("{}")
    with pytest.raises(BadInput, match="is no head mask"):
        small(tmp_path, heads=tmp_path / "other.json")
    wide = HeadMask(np.eye(6, 12)).save(tmp_path / "wide.json")
    with pytest.raises(
        BadOption, match=r"SST-2: the head mask .*wide.json' is for 6 layers of 12 heads, .* has 2 of 4"
    ):
        small(tmp_path, heads=wide)
    with pytest.raises(BadOption, match="attcat-table-1 uses no head mask"):
        run(reproduction_named("attcat-table-1"), heads={"sst2": path})


def test_masks_are_written_with_an_equals_sign_or_alone() -> None:
    assert reproduce.given_heads(["sst2=a.json", "imdb = b=c.json"]) == {"sst2": "a.json", "imdb": "b=c.json"}
    assert reproduce.given_heads(["a.json"]) == "a.json"
    assert reproduce.given_heads([]) == {}
    for wrong in (["a.json", "b.json"], ["sst2="], ["=a.json"], [" "]):
        with pytest.raises(BadOption, match="COLUMN=FILE"):
            reproduce.given_heads(wrong)


# rows that a mask cannot serve


def test_rows_without_heads_are_left_out(tmp_path: Path) -> None:
    found, asked = small(tmp_path)
    assert asked == ["raw_attention(layer=-1)"], "no head of the tiny model is positional"
    assert said(found, "left out:")[-1] == "SST-2: Random mask, theirs are left out: the head mask keeps no head"
    assert said(found, "head mask keeps 0 of 8 heads")
    entries = {(entry.row, entry.measure): entry for entry in found.entries}
    theirs = entries["theirs", "AOPC"]
    assert (theirs.method, theirs.ours, theirs.published) == ("", None, reproduce.Number(0.438))
    (row,) = [line for line in str(found).splitlines() if line.startswith("theirs ")]
    assert row.split()[1:3] == ["left", "out"]
    assert not found.waiting


def test_nothing_is_left_of_a_column_without_heads(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"no column of mask-lrp-table-3 .*: SST-2: theirs: the head mask keeps no head"):
        small(tmp_path, TABLE_3)
    options: dict[str, Any] = {"data": tmp_path / "data", "only": ["sst2"], "instead": {"sst2": "x"}, "load": tiny}
    with pytest.raises(
        BadInput, match=r"no column of mask-lrp-figure-6 .*: SST-2: theirs: the head mask keeps no head"
    ):
        run(FIGURE_6, explain=lambda *_: pytest.fail("nothing is explained"), **options)


def test_models_in_which_no_heads_can_be_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refusing(*_: Any, **__: Any) -> HeadMask:
        raise UnsupportedModel("it has no heads")

    monkeypatch.setattr(masks, "positional_statistics", refusing)
    found, _ = small(tmp_path)
    assert said(found, "left out:")[-1].endswith("are left out: there is no head mask (it has no heads)")
    with pytest.raises(BadInput, match="mask-lrp-figure-5 can be run: SST-2: it has no heads"):
        small(tmp_path, FIGURE_5)


@pytest.mark.parametrize(
    ("mask", "row", "reason"),
    [
        (HeadMask(np.eye(2, 4)), "without M_pos", "does not tell which of its heads are syntactic"),
        (HeadMask(np.eye(2, 4)), "without M_synt", "does not tell which of its heads are positional"),
        (known_mask().corrupted(0.5, 0), "without M_pos", "keeps heads of no kind, and so no syntactic ones alone"),
        (known_mask().only("positional"), "without M_pos", None),  # head (1, 3) is of both kinds
        (replace(known_mask(), kept=np.eye(1, 8).reshape(2, 4)), "without M_pos", "keeps no syntactic head"),
        (known_mask().only("dobj"), "without M_synt", "keeps no positional head"),
    ],
)
def test_masks_that_lack_a_kind(tmp_path: Path, mask: HeadMask, row: str, reason: str | None) -> None:
    found, asked = small(tmp_path, TABLE_3, heads=mask.save(tmp_path / "mask.json"))
    lines = [line for line in said(found, "left out: the head mask") if row in line]
    assert all("only" not in written for written in asked[:2])
    if reason is None:
        assert len(asked) == 6
        assert not lines
    else:
        assert lines[0].endswith(f"left out: the head mask {reason}")


def test_without_a_parse_there_are_no_syntactic_heads(tmp_path: Path, found_heads: None) -> None:
    found, asked = small(tmp_path, TABLE_3)
    assert len(asked) == 4
    assert said(found, "without M_pos") == [
        "SST-2: without M_pos is left out: the head mask keeps no syntactic head: there was no parse (--treebank FILE "
        "or --spacy NAME)"
    ]


# a parse


def test_parsed_texts_give_both_kinds(tmp_path: Path, found_heads: None, pipeline: Any) -> None:
    found, asked = small(tmp_path, TABLE_3, spacy=pipeline)
    assert len(asked) == 6
    (part,) = found.parts
    authors: dict[str, Any] = {"direction": "dependent_to_head", "pieces": "first", "special_tokens": True}
    expected = head_statistics(tiny(), parsed_by(pipeline, TEXTS), **authors)
    assert part.mask is not None
    assert part.mask.direction == "dependent_to_head"
    assert part.mask.statistics is not None
    assert expected.statistics is not None
    assert part.mask.statistics.to_data() == expected.statistics.to_data()
    assert np.argwhere(part.mask.kept).tolist() == [[0, 1], [1, 2]]
    assert np.argwhere(part.mask.syntactic).tolist() == [[1, 2]]
    (line,) = said(found, "head mask keeps")
    assert line.startswith("SST-2: the head mask keeps 2 of 8 heads (1 positional, 1 syntactic: ")
    parser = f"en_pipeline {pipeline.meta['version']}"
    assert f"found in the 6 texts of the data itself, parsed by {parser}; looked for as in the authors' code" in line


TREEBANK = """# text = actors like the film
1\tactors\t_\t_\t_\t_\t2\tnsubj\t_\t_
2\tlike\t_\t_\t_\t_\t0\troot\t_\t_
3\tthe\t_\t_\t_\t_\t4\tdet\t_\t_
4\tfilm\t_\t_\t_\t_\t2\tobj\t_\t_

# text = actors fine like film
1\tactors\t_\t_\t_\t_\t3\tnsubj\t_\t_
2\tfine\t_\t_\t_\t_\t1\tamod\t_\t_
3\tlike\t_\t_\t_\t_\t0\troot\t_\t_
4\tfilm\t_\t_\t_\t_\t3\tobj\t_\t_
"""


def test_heads_are_counted_in_a_treebank(tmp_path: Path, found_heads: None, monkeypatch: pytest.MonkeyPatch) -> None:
    parsed = tmp_path / "small.conllu"
    parsed.write_text(TREEBANK)
    found, _ = small(tmp_path, TABLE_3, treebank=parsed)
    (part,) = found.parts
    assert part.mask is not None
    assert part.mask.by_relation["nsubj"].any()
    assert [row.label for row in part.rows] == ["theirs", "without M_pos", "without M_synt"]
    (line,) = said(found, "head mask keeps")
    assert line.endswith("found in the 2 sentences of small.conllu; looked for as in the authors' code")
    mine = HeadSearch("either", special_tokens=False)
    found, _ = small(tmp_path, TABLE_3, treebank=parsed, search=mine)
    (line,) = said(found, "head mask keeps")
    assert line.endswith("with direction=either, pieces=joined, special_tokens=False, subtypes=False")
    assert len(list((tmp_path / "out" / "sst2-mask-lrp-sst2").glob("heads-*.json"))) == 2, (
        "another search is another mask"
    )
    monkeypatch.setattr(masks, "head_statistics", no_counting)
    small(tmp_path, TABLE_3, treebank=parsed)
    run(
        FIGURE_1,
        only=["sst2"],
        instead={"sst2": "tiny"},
        load=tiny,
        treebank=parsed,
        data=tmp_path / "no",
        out=tmp_path / "out",
    )


def test_treebanks_that_are_not_needed(tmp_path: Path, pipeline: Any) -> None:
    parsed = tmp_path / "small.conllu"
    parsed.write_text(TREEBANK)
    with pytest.raises(BadOption, match="attcat-table-1 uses no head mask: leave --treebank"):
        run(reproduction_named("attcat-table-1"), treebank=parsed)
    with pytest.raises(BadOption, match="give --treebank or --spacy, not both"):
        small(tmp_path, treebank=parsed, spacy=pipeline)
    with pytest.raises(BadInput, match="could not read the treebank"):
        small(tmp_path, treebank=tmp_path / "none.conllu")
    with pytest.raises(BadOption, match="direction 'up' is not known"):
        HeadSearch("up")  # type: ignore[arg-type]


def test_a_row_is_theirs_only_with_syntactic_heads(tmp_path: Path, found_heads: None, pipeline: Any) -> None:
    found, _ = small(tmp_path)
    labels = [row.label for row in found.parts[0].rows]
    assert labels == ["RawAtt", "Random mask", "theirs, positional heads only"]
    entries = {entry.row: entry for entry in found.entries}
    assert entries["theirs, positional heads only"].published is None, "the published row has syntactic heads"
    assert "theirs" not in entries
    found, _ = small(tmp_path, spacy=pipeline)
    entries = {entry.row: entry for entry in found.entries}
    assert entries["theirs"].published is not None
    unknown = HeadMask(np.eye(2, 4)).save(tmp_path / "unknown.json")
    found, _ = small(tmp_path, heads=unknown)
    assert "theirs" in {entry.row for entry in found.entries}, "it does not tell its kinds"


def test_a_mask_without_a_parse_is_not_one_with_a_parse(
    tmp_path: Path, found_heads: None, pipeline: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    small(tmp_path)
    small(tmp_path, spacy=pipeline)
    assert len(list((tmp_path / "out" / "sst2-mask-lrp-sst2").glob("heads-*.json"))) == 2
    monkeypatch.setattr(masks, "head_statistics", no_counting)
    small(tmp_path, spacy=pipeline)
    pipeline.meta["version"] = "9.9"
    with pytest.raises(AssertionError, match="counted again"):
        small(tmp_path, spacy=pipeline)


def test_pairs_are_parsed_one_text_at_a_time(tmp_path: Path, found_heads: None, pipeline: Any) -> None:
    options: dict[str, Any] = {"evaluate": Measured(), "spacy": pipeline, "load": tiny}
    found = run(SMALL, data=pairs_at(tmp_path), only=["nli"], instead={"nli": "tiny"}, **options)
    apart = [text for pair in pairwise(TEXTS) for text in pair]
    (part,) = found.parts
    assert part.mask is not None
    expected = head_statistics(tiny(), parsed_by(pipeline, apart)).provenance  # what is counted, however
    assert part.mask.provenance["corpus"] == expected["corpus"]
    assert said(found, "the 10 texts of the data itself, parsed by")[0].endswith(
        ", each text of a pair by itself; looked for as in the authors' code"
    )


def test_parsers_that_are_missing_or_not_needed(tmp_path: Path) -> None:
    import spacy

    with pytest.raises(MissingExtra, match="'xx_no_such_thing' is not installed"):
        small(tmp_path, spacy="xx_no_such_thing")
    with pytest.raises(BadOption, match="attcat-table-1 needs no parse"):
        run(reproduction_named("attcat-table-1"), spacy=spacy.blank("en"))
    found, _ = small(tmp_path, spacy=spacy.blank("en"))
    assert "there is no head mask (the spaCy pipeline finds no relations" in said(found, "left out:")[-1]


# real numbers


@pytest.mark.long
def test_rows_are_what_evaluate_measures(tmp_path: Path) -> None:
    mask = known_mask()
    path = mask.save(tmp_path / "mask.json")
    data = texts_at(tmp_path / "data")
    options: dict[str, Any] = {"data": data, "instead": {"sst2": "tiny"}, "load": tiny, "seeds": 2}
    found = run(QUICK, evaluate=quietly, heads=path, out=tmp_path / "out", **options)
    ours = {(e.row, e.method): e for e in found.entries if e.measure == "AOPC"}
    rows = open_dataset("sst2@mask_lrp", local=data)

    def direct(name: str, own: HeadMask, variant: str) -> float:
        written = f"mask_lrp(head_mask={own.save(tmp_path / f'{name}.json')}, variant={variant})"
        table = quietly(tiny(), rows, [written], AOPC)
        cell = table[table.methods[0], AOPC]
        assert cell is not None
        return cell.mean

    for label, kind in (("without M_pos", "syntactic"), ("without M_synt", "positional")):
        for variant in ("authors", "paper"):
            shown = f"mask_lrp(head_mask=mask.json, only={kind}{', variant=authors' if variant == 'authors' else ''})"
            entry = ours[label, shown].ours
            assert entry is not None
            assert entry.mean == pytest.approx(direct(kind, mask.only(kind), variant), abs=1e-9)
    for variant in ("authors", "paper"):
        drawn = [direct(f"random{seed}", mask.random(seed), variant) for seed in range(2)]
        shown = f"mask_lrp(head_mask=random, rate=0.5{', variant=authors' if variant == 'authors' else ''})"
        entry = ours["Random mask", f"{shown}, mean of 2"]  # type: ignore[assignment]
        assert entry.ours is not None
        assert entry.ours.mean == pytest.approx(np.mean(drawn), abs=1e-9)
        assert entry.spread == pytest.approx(np.std(drawn, ddof=1), abs=1e-9)
    assert "SST-2: Random mask is the mean of 2 runs, not 5" in found.footer


@pytest.fixture(scope="module")
def corruption(tmp_path_factory: pytest.TempPathFactory) -> Reproduced:
    folder = tmp_path_factory.mktemp("corruption")
    path = known_mask().only("dobj").save(folder / "mask.json")
    options: dict[str, Any] = {"data": texts_at(folder / "data"), "instead": {"sst2": "tiny"}, "load": tiny}
    return run(FIGURE_4, evaluate=quietly, heads=path, seeds=1, limit=3, **options)


def test_the_corruption_curve(corruption: Reproduced) -> None:
    labels = [f"{rate} %" for rate in range(0, 101, 10)]
    assert [row.label for row in FIGURE_4.rows] == [*labels, "GAE"]
    assert [row.at for row in FIGURE_4.rows] == [*(pytest.approx(n / 10) for n in range(11)), None]
    assert [row.runs for row in FIGURE_4.rows] == [1, *[5] * 9, 1, 1]
    values = {(e.row, e.measure, e.main): e.ours.mean for e in corruption.entries if e.ours}
    assert len(values) == 12 * 2 * 2
    for measure in ("AOPC", "LOdds"):
        assert values["100 %", measure, False] == pytest.approx(values["GAE", measure, False], abs=1e-9)
        assert values["0 %", measure, False] != pytest.approx(values["GAE", measure, False], abs=1e-6)
    assert "SST-2: 10 %, 20 %, 30 %, 40 %, 50 %, 60 %, 70 %, 80 %, 90 % are means of 1 run, not 5" in corruption.footer


def test_the_corruption_curve_is_drawn_over_the_rate(corruption: Reproduced) -> None:
    figure = corruption.recipe.drawing(corruption)
    assert figure is not None
    for axes, measure in zip(figure.axes, ("AOPC", "LOdds"), strict=True):
        lines = {str(line.get_label()): line for line in axes.get_lines()}
        assert list(lines) == [
            "mask_lrp(head_mask=mask.json, variant=authors)",
            "transformer_attribution(row_normalised=true)",
            "mask_lrp(head_mask=mask.json)",
            "transformer_attribution",
        ]
        for number, first in ((0, True), (2, False)):
            curve, reference = list(lines.values())[number : number + 2]
            entries = [e for e in corruption.entries if (e.measure, e.main) == (measure, first) and e.ours]
            expected = [entry.ours.mean for entry in entries if entry.ours]
            assert list(curve.get_xdata()) == pytest.approx([n / 10 for n in range(11)])
            assert list(curve.get_ydata()) == pytest.approx(expected[:-1])
            assert list(reference.get_ydata()) == pytest.approx([expected[-1]] * 2)
            assert (curve.get_color(), reference.get_linestyle()) == (reference.get_color(), "--")
        assert axes.get_xlabel() == "share of the mask's zeros that are switched on"


# figures of heads


def figure(tmp_path: Path, recipe: Reproduction, **options: Any) -> Reproduced:
    return run(recipe, only=["sst2"], instead={"sst2": "tiny"}, load=tiny, **options)


def cells(found: Reproduced) -> Iterator[list[str]]:
    for line in reproduce.markdown(found).splitlines():
        if line.startswith("| "):
            yield [cell.strip() for cell in line.strip("|").split("|")]


def test_heads_are_counted_by_block(tmp_path: Path) -> None:
    path = known_mask().save(tmp_path / "known.json")
    found = figure(tmp_path, FIGURE_5, heads=path, data=tmp_path / "nowhere")
    assert list(cells(found)) == [
        ["block", "kept", "positional", "syntactic", "nsubj", "dobj", "amod", "advmod"],
        ["---"] * 8,
        ["0", "2", "1", "1", "1", "0", "0", "0"],
        ["1", "2", "1", "2", "1", "1", "0", "0"],
        ["all", "4", "2", "3", "2", "1", "0", "0"],
        ["mean block", "0.50", "0.50", "0.67", "0.50", "1.00", "–", "–"],
    ]
    assert "mean block" in str(found)
    written = reproduce.write(found, tmp_path / "out")
    assert [file.name for file in written] == [f"mask-lrp-figure-5{end}" for end in (".md", ".csv", "-sst-2.png")]
    assert written[2].read_bytes()[:4] == b"\x89PNG"
    assert "](mask-lrp-figure-5-sst-2.png)" in written[0].read_text()
    lines = list(comma_separated.DictReader(io.StringIO(written[1].read_text())))
    assert len(lines) == 8
    last = lines[7]
    assert (last["block"], last["head"], last["kept"], last["positional"], last["offset"]) == ("1", "3", "1", "1", "-1")
    assert (last["syntactic"], float(last["frequency"]), float(last["alpha_nsubj"])) == ("nsubj", 0.9, 1.0)
    assert lines[2]["kept"] == lines[2]["positional"] == "0"


def test_heads_of_the_texts_themselves(tmp_path: Path, found_heads: None) -> None:
    data = texts_at(tmp_path / "data")
    found = figure(tmp_path, FIGURE_5, data=data, limit=3, out=tmp_path / "out")
    assert list(cells(found))[2:] == [
        ["0", "1", "1"],
        ["1", "0", "0"],
        ["all", "1", "1"],
        ["mean block", "0.00", "0.00"],
    ]
    assert said(found, "positional heads only, found in the 3 texts of the data itself (no parse)")
    lines = list(comma_separated.DictReader(io.StringIO(reproduce.csv(found))))
    assert (lines[1]["kept"], lines[1]["offset"], lines[1]["syntactic"]) == ("1", "-1", "")
    assert len(list((tmp_path / "out" / "sst2-mask-lrp-sst2").glob("heads-*.json"))) == 1
    plain = figure(tmp_path, FIGURE_5, heads=HeadMask(np.eye(2, 4)).save(tmp_path / "plain.json"))
    assert next(cells(plain)) == ["block", "kept"]
    assert said(plain, "the head mask keeps 2 of 8 heads, of kinds that it does not tell, and was given as plain.json")


def test_positions_need_a_parse(tmp_path: Path, found_heads: None, pipeline: Any) -> None:
    data = texts_at(tmp_path / "data")
    with pytest.raises(BadInput, match="SST-2: mask-lrp-figure-1 needs a parse of the texts: give --treebank FILE"):
        figure(tmp_path, FIGURE_1, data=data)
    unparsed = positional_statistics(tiny(), TEXTS).save(tmp_path / "unparsed.json")
    with pytest.raises(BadInput, match=r"needs a parse, and unparsed\.json comes from texts without one"):
        figure(tmp_path, FIGURE_1, heads=unparsed)
    found = figure(tmp_path, FIGURE_1, data=data, spacy=pipeline)
    parsed = list(parsed_by(pipeline, TEXTS))
    places = [d - h for sentence in parsed for d, h, label in sentence.relations if label == "dobj"]
    lines = [
        line for line in comma_separated.DictReader(io.StringIO(reproduce.csv(found))) if line["relation"] == "dobj"
    ]
    assert {int(line["offset"]): int(line["arcs"]) for line in lines} == {i: places.count(i) for i in places}
    assert sum(float(line["share"]) for line in lines) == pytest.approx(1)


def test_positions_in_numbers_and_as_a_picture(tmp_path: Path) -> None:
    found = figure(tmp_path, FIGURE_1, heads=known_mask().save(tmp_path / "known.json"))
    assert list(cells(found)) == [
        ["relation", "arcs", "before the head", "most frequent place", "share there (max λ)"],
        ["---"] * 5,
        ["nsubj", "20", "80.0%", "-1", "50.0%"],
        ["dobj", "20", "0.0%", "+1", "50.0%"],
        ["amod", "0", "–", "–", "–"],
        ["advmod", "0", "–", "–", "–"],
    ]
    assert [file.suffix for file in reproduce.write(found, tmp_path / "out")] == [".md", ".csv", ".png"]


def test_pictures_of_heads_say_whose_they_are(tmp_path: Path) -> None:
    for corpus, name in (
        ({}, "SST-2"),
        ({"data": "sst2@mask_lrp"}, "SST-2"),
        ({"treebank": "ud.conllu"}, "SST-2, heads of ud.conllu"),
        ({"data": "imdb@mask_lrp"}, "SST-2, heads of imdb@mask_lrp"),
    ):
        path = replace(known_mask(), provenance={"corpus": corpus}).save(tmp_path / "known.json")
        heads, positions = (figure(tmp_path, recipe, heads=path) for recipe in (FIGURE_5, FIGURE_1))
        grid = heads.recipe.column_drawing(heads.parts[0])
        bars = positions.recipe.column_drawing(positions.parts[0])
        assert grid is not None
        assert bars is not None
        assert grid.axes[0].get_title(loc="left") == f"{name}: 4 of 8 heads are kept"
        assert bars.get_suptitle() == f"{name}: Relative positions λ, 5 sentences"
        assert heads.recipe.drawing(heads) is None


# on the command line


@pytest.mark.long
def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str], pipeline: Any) -> None:
    assert status_of("reproduce", "--list") == 0
    listed = capsys.readouterr().out
    assert listed.count("Mask-LRP (Song et al. 2024): ") == 9
    data, parser = texts_at(tmp_path / "data"), tmp_path / "parser"
    pipeline.to_disk(parser)
    start = ("reproduce", "mask-lrp-figure-5", "--data", data, "--only", "sst2", "--model", "sst2=sentiment")
    assert status_of(*start, "--spacy", parser, "--limit", 3, "--out", tmp_path / "out") == 0
    shown = capsys.readouterr().out
    assert "parsed by en_pipeline" in shown
    assert "mean block" in shown
    (file,) = (tmp_path / "out" / "sst2-mask-lrp-sst2").glob("heads-*.json")
    assert (tmp_path / "out" / "mask-lrp-figure-5-sst-2.png").exists()
    for written in (file, f"sst2={file}"):
        assert status_of(*start, "--heads", written) == 0
        assert f"given as {file.name} (3 sentences, parsed by en_pipeline)" in capsys.readouterr().out
    assert status_of(*start, "--heads", f"sst={file}") == 2
    assert "mask-lrp-figure-5 has no column 'sst'" in capsys.readouterr().err


def test_rows_and_recipes_know_whether_they_need_a_mask() -> None:
    assert {name for name, recipe in reproduce.reproductions().items() if recipe.masked} == {
        f"mask-lrp-{name}" for name in (*(f"table-{n}" for n in range(1, 5)), *(f"figure-{n}" for n in (1, 3, 4, 5, 6)))
    }
    assert RecipeRow("a", "mask_lrp(head_mask=random, rate={rate})").masked
    assert not RecipeRow("a", "attcat").masked
