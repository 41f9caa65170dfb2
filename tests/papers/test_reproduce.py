"""The papers' tables and figures: what they ask for, what was published, and ours beside it."""

import csv as comma_separated
import io
import json
import math
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from statistics import stdev
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.papers.recipes import as_kind, run
from whyformer import Explainer
from whyformer.datasets import RECIPES, open_dataset
from whyformer.errors import BadInput, BadOption
from whyformer.evaluation.evaluate import Results, Table, evaluate
from whyformer.explain.explanation import Explanation
from whyformer.methods.method import METHODS, Method, MethodSpec, list_methods, method_named, method_specs
from whyformer.metrics.metric import list_metrics, metric_named, metric_specs
from whyformer.models.load import Subject, load
from whyformer.results.evaluation import Chunk, Record, TableCell
from whyformer.tolerance import close
from whyformer_papers import reproduce
from whyformer_papers.reproduce import (
    Number,
    RecipeColumn,
    RecipeMetric,
    RecipeRow,
    Reproduction,
    class_texts,
    output,
    reproduction_named,
    reproductions,
)
from whyformer_papers.reproduce.head_figures import HeadMaskFigure
from whyformer_papers.reproduce.placeholders import filled
from whyformer_papers.reproduce.plots import Point
from whyformer_papers.reproduce.tables import FIELDS, BarFigure, CurveFigure, TableRecipe, _point_grid
from whyformer_papers.reproduce.text_figures import TextFigure, gold_of, shares
from whyformer_papers.reproduce.word_figures import shared_words

ROOT = Path(__file__).parents[2]
LISTED = {
    "attcat": {"table-1", "table-2", "figure-3", "precision-at-k", "figure-4", "figure-5"},
    "transformer-attribution": {"table-1", "table-2", "table-3", "figure-2", "figure-3", "figure-4"},
    "mask-lrp": {f"table-{n}" for n in range(1, 5)} | {f"figure-{n}" for n in (1, 3, 4, 5, 6)},
    "decoded": {"table-1", "table-2", "tables-3-9", "a5"} | {f"figure-{n}" for n in range(1, 10)},
}
SENTENCES = [
    ("a gorgeous, witty, seductive film that never once loses its way", 1),
    ("the plot is dull and the acting is worse than anything i saw this year", 0),
    ("i really liked the music , but the rest of it was a boring mess", 0),
    ("one of the finest and most moving stories of the last ten years or so", 1),
]


# what is asked for


def test_every_table_and_figure_is_listed() -> None:
    assert set(reproductions()) == {f"{paper}-{name}" for paper, names in LISTED.items() for name in names}
    assert [name for name, _, _ in reproduce.listing()] == list(reproductions())
    with pytest.raises(BadOption, match="did you mean 'attcat-table-1'"):
        reproduction_named("atcat-table-1")


def test_methods_and_metrics_are_written_as_they_are_known() -> None:
    for recipe in reproductions().values():
        for row in recipe.rows:
            for spec in row.readings:
                if spec.partition("(")[0] in list_methods():
                    assert method_specs([spec])[0].of is method_named(spec.partition("(")[0]), recipe.name
            known = [spec for spec in row.readings if spec.partition("(")[0] in list_methods()]
            labels = {method_specs([spec])[0].label for spec in known}
            assert len(labels) == len(known), f"{recipe.name}: two readings of {row.label} are the same"
            assert (row.runs > 1) == ("{seed}" in row.method), recipe.name
        for measure in recipe.measures:
            if measure.metric.partition("(")[0] in list_metrics():
                (found,) = metric_specs([measure.metric])
                assert found.of.higher_is_better == measure.higher_is_better, (recipe.name, measure.label)


def test_labels_belong_to_the_recipe() -> None:
    for recipe in reproductions().values():
        rows, columns, measures = ([part.label for part in p] for p in (recipe.rows, recipe.columns, recipe.measures))
        for labels in (rows, columns, measures):
            assert len(set(labels)) == len(labels), recipe.name
        examples = recipe.examples if isinstance(recipe, TextFigure) else {}
        assert {label for row in recipe.rows for label in row.columns} | set(examples) <= set(columns), recipe.name
        assert set(recipe.essential) <= set(rows), recipe.name


def test_data_has_a_recipe_of_the_same_paper() -> None:
    own = {"attcat": "attcat", "transformer": "transformer_attribution", "mask": "mask_lrp", "decoded": "decoded"}
    for recipe in reproductions().values():
        for column in recipe.columns:
            paper = RECIPES[column.data].paper
            expected = None if "imagenet" in column.data else own[recipe.name.partition("-")[0]]
            assert paper == expected, (recipe.name, column.label)


def test_folders_of_models() -> None:
    folders = {
        c.label: c.folder for name in ("attcat-table-1", "decoded-table-2") for c in reproduction_named(name).columns
    }
    assert folders == {
        "SST2": "sst2",
        "QQP": "qqp",
        "MNLI": "nli",
        "Amazon": "amazon",
        "Yelp": "yelp",
        "IMDB": "imdb",
        "AG News": "agnews",
    }
    models = {column.folder: column.model for column in reproduction_named("mask-lrp-table-2").columns}
    assert models["squad"] == "csarron/bert-base-uncased-squad-v1"
    assert models["squad-gpt2"] == models["squad_v2-gpt2"] == "anas-awadalla/gpt2-span-head-finetuned-squad"
    assert models["squad_v2-roberta"] == "21iridescent/roberta-base-finetuned-squad2-lwt"
    named = {c.folder: c.model for c in reproduction_named("mask-lrp-table-1").columns}
    assert named["yelp"] == "fabriceyhc/bert-base-uncased-yelp_polarity"


def test_the_authors_settings() -> None:
    def facts(written: str) -> dict[str, Any]:
        options: dict[str, Any] = metric_specs([written])[0].facts["options"]
        return options

    def chosen(written: str) -> tuple[Any, ...]:
        options = facts(written)
        return options["hide"], options["protocol"], options["target"], options.get("special_tokens", False)

    aopc, log_odds, eq13, eq14 = reproduction_named("attcat-table-1").measures
    assert chosen(aopc.metric) == ("delete", "attcat", "gold", False)
    assert chosen(aopc.pairs or "") == ("delete", "attcat", "gold", True), "by a slip of the code"
    assert chosen(log_odds.metric) == ("pad_attended", "attcat", "gold", False)
    assert chosen(log_odds.pairs or "") == ("pad_attended", "attcat", "gold", True)
    assert (aopc.protocol, log_odds.protocol) == ("attcat", "attcat")
    for measure, hide in ((eq13, "delete"), (eq14, "pad_attended")):
        assert chosen(measure.metric) == (hide, None, "predicted", False)
        assert facts(measure.metric).get("absolute") is None, "the equations are signed"
        assert (measure.protocol, measure.pairs) == (None, None)
    aopc, log_odds, eq12, eq13 = reproduction_named("mask-lrp-table-1").measures
    for measure in (aopc, log_odds):
        assert chosen(measure.metric) == ("pad_attended", "mask_lrp", "gold", False)
        assert (measure.protocol, measure.pairs) == ("mask_lrp", None)
    for measure in (eq12, eq13):
        assert chosen(measure.metric) == ("pad_attended", None, "predicted", False)
    kendall, eq15 = reproduction_named("attcat-table-2").measures
    assert (facts(kendall.metric)["target"], kendall.protocol) == ("gold", "attcat")
    assert (facts(eq15.metric)["target"], eq15.protocol) == ("predicted", None)
    assert facts(kendall.metric)["protocol"] == facts(eq15.metric)["protocol"] == "attcat", "lists of positions"
    whole, inside = reproduction_named("transformer-attribution-figure-4").measures
    f1 = {"k": list(range(10, 81, 10)), "target": "gold"}
    assert facts(whole.metric) == {**f1, "window": "whole"}, "ERASER's"
    assert facts(inside.metric) == {**f1, "window": "inside"}
    assert (whole.label, inside.label) == ("token-F1", "token-F1 inside the window")
    (ratio,) = reproduction_named("mask-lrp-table-2").measures
    assert (facts(ratio.metric)["measure"], facts(ratio.metric)["k"], ratio.scale) == ("ratio", 20, 100)
    rows = {row.label: row for row in reproduction_named("mask-lrp-table-1").rows}
    assert rows["GAE"].readings == ("transformer_attribution(row_normalised=true)", "gae")
    assert rows["Random mask"].seeded() == tuple(
        tuple(f"mask_lrp(head_mask=random, rate={{rate}}, seed={n}, variant={variant})" for n in range(5))
        for variant in ("authors", "paper")
    )
    assert rows["Random mask"].readings[0] == "mask_lrp(head_mask=random, rate=0.5, seed=0, variant=authors)"


# what is there


def registered(monkeypatch: pytest.MonkeyPatch, **known: Any) -> None:
    made = {name: Method(name, function, "test", True, True, "-") for name, function in known.items()}
    now = {name: method for name, method in list_methods().items() if name not in known}
    monkeypatch.setattr(METHODS, "known", {**now, **made})


def unregistered(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    monkeypatch.setattr(METHODS, "known", {n: m for n, m in list_methods().items() if n not in names})


def mask_lrp(
    prediction: Any, *, variant: str = "paper", head_mask: str = "heads", only: str = "", rate: float = 1, seed: int = 0
) -> Tensor:
    """A stand-in."""
    raise NotImplementedError


def test_a_row_waits_for_its_method(monkeypatch: pytest.MonkeyPatch) -> None:
    unregistered(monkeypatch, "mask_lrp")
    table, figure = reproduction_named("mask-lrp-table-1"), reproduction_named("mask-lrp-figure-6")
    assert table.waiting == {"Random mask": "the method mask_lrp", "theirs": "the method mask_lrp"}
    assert table.refusal is None
    assert table.state == "ready but for Random mask, theirs: wait for the method mask_lrp"
    assert [row.label for row in table.rows_of(table.columns[0])] == [row.label for row in table.rows[:-2]]
    assert figure.refusal == "mask-lrp-figure-6 waits for the method mask_lrp"
    registered(monkeypatch, mask_lrp=mask_lrp)
    assert table.state == figure.state == "ready"
    assert len(table.rows_of(table.columns[0])) == 10
    assert reproduction_named("mask-lrp-table-3").state == "ready"
    assert reproduction_named("mask-lrp-figure-4").state.startswith("ready but for 10 %, 20 %, 30 %")


def test_an_option_that_is_not_there_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def without_seed(prediction: Any, *, variant: str = "paper", head_mask: str = "heads", rate: float = 1) -> Tensor:
        """A stand-in."""
        raise NotImplementedError

    registered(monkeypatch, mask_lrp=without_seed)
    (sentence,) = reproduction_named("mask-lrp-table-1").waiting.values()
    written = "mask_lrp(head_mask=random, rate=0.5, seed=0, variant=authors)"
    assert sentence.startswith(f"mask_lrp to take {written} (mask_lrp has no option 'seed'")


def test_several_missing_methods_stand_together(monkeypatch: pytest.MonkeyPatch) -> None:
    unregistered(monkeypatch, "decoded_grad_cam", "integrated_gradients")
    state = reproduction_named("decoded-table-1").state
    assert state.endswith(": wait for the methods decoded_grad_cam, integrated_gradients")
    for name in ("decoded-figure-5", "decoded-figure-6"):
        assert reproduction_named(name).state == "waits for the method decoded_grad_cam"


def test_what_nothing_provides_is_refused_with_that_sentence() -> None:
    recipe = replace(reproduction_named("attcat-table-1"), waits_for="another task")
    with pytest.raises(BadOption, match=r"^attcat-table-1 waits for another task$"):
        run(recipe, models="nowhere")


def test_what_can_be_run_now() -> None:
    ready = {name for name, recipe in reproductions().items() if recipe.refusal is None}
    assert {f"attcat-{name}" for name in LISTED["attcat"]} < ready
    assert "transformer-attribution-figure-4" in ready
    assert {f"mask-lrp-{name}" for name in LISTED["mask-lrp"]} < ready
    assert {f"decoded-{name}" for name in LISTED["decoded"]} < ready


# ours beside theirs, from numbers made by hand

ROWS = ("one", "two", "three", "later")
SMALL = CurveFigure(
    name="small",
    paper="A paper",
    title="A small table",
    columns=(
        RecipeColumn("Data", "sst2@attcat", "sst2", texts=3),
        RecipeColumn("Other", "imdb@attcat", "imdb", "hub/imdb"),
    ),
    rows=(
        RecipeRow("one", "raw_attention(layer=-1)", also=("raw_attention(layer=0)",)),
        RecipeRow("two", "rollout(row_normalised=true)"),
        RecipeRow("three", "attcat(states=inputs)"),
        RecipeRow("dice", "random(seed={seed})", runs=3),
        RecipeRow("later", "no_such_method"),
        RecipeRow("elsewhere", "cat(states=inputs)", columns=("Other",)),
    ),
    measures=(
        RecipeMetric("drop", "aopc(hide=delete, protocol=attcat)", scale=100),
        RecipeMetric("odds", "log_odds(protocol=attcat)", higher_is_better=False),
    ),
    published={
        **{(row, "Data", "drop"): Number(value) for row, value in zip(ROWS, (20.0, 30.0, 40.0, 50.0), strict=True)},
        **{(row, "Data", "odds"): Number(value) for row, value in zip(ROWS, (-1.0, -2.0, -3.0, -4.0), strict=True)},
        ("dice", "Data", "drop"): Number(10.0, 2.0),
        ("dice", "Data", "odds"): Number(-0.5),
    },
    notes=("a note",),
)
DROP, ODDS = "aopc(hide=delete, protocol=attcat)", "log_odds(protocol=attcat)"
VALUES = {  # of each method the numbers of three texts by each metric
    "raw_attention": ((0.1, 0.2, 0.3), (-1.0, -1.0, -1.0)),
    "raw_attention(layer=0)": ((0.5, 0.5, 0.5), (-9.0, -9.0, -9.0)),
    "rollout": ((0.4, 0.4, 0.4), (-3.0, -3.0, -3.0)),
    "attcat(states=inputs)": ((0.3, 0.3, 0.3), (-2.0, -2.0, -2.0)),
    "random": ((0.1, 0.1, 0.1), (-0.3, -0.3, -0.3)),
    "random(seed=1)": ((0.2, 0.2, 0.2), (-0.4, -0.4, -0.4)),
    "random(seed=2)": ((0.6, 0.6, 0.6), (-0.8, -0.8, -0.8)),
}


def facts(label: str, **more: Any) -> dict[str, Any]:
    (spec,) = metric_specs([label])
    better, level = spec.of.higher_is_better, spec.of.level
    return {**spec.facts, "higher_is_better": better, "level": level, "at": [0.5, 1.0], **more}


def table_of(values: Mapping[str, Sequence[Sequence[float]]]) -> Table:
    records = tuple(
        Record(f"{row:02x}{number:02x}{place:02x}", row, method, metric, own[row], (own[row], 2 * own[row]))
        for row in range(3)
        for number, (method, columns) in enumerate(values.items())
        for place, (metric, own) in enumerate(zip((DROP, ODDS), columns, strict=True))
    )
    examples = tuple({"row": row, "gold": 1, "predicted": 1, "units": 4, "probability": 0.9} for row in range(3))
    return Results.of([Chunk(0, 3, records, {label: facts(label) for label in (DROP, ODDS)}, examples)]).table()


@cache
def sentiment() -> Subject:
    return load("sentiment")


def reviews(folder: Path, name: str = "sst2") -> Path:
    (folder / name).mkdir(parents=True)
    lines = [json.dumps({"text": text, "label": label}) for text, label in SENTENCES]
    (folder / name / "validation.jsonl").write_text("\n".join(lines))
    return folder


def small(tmp_path: Path, recipe: Reproduction = SMALL, **options: Any) -> reproduce.Reproduced:
    asked: list[Any] = []

    def stand_in(subject: Subject, data: Any, *, methods: list[str], metrics: list[str], out: Path) -> Table:
        asked.append(([spec.label for spec in method_specs(methods)], metrics, out, [e.text for e in data]))
        return table_of(VALUES)

    given = {"instead": {"sst2": "sentiment"}, "data": reviews(tmp_path / "data"), "load": lambda name: sentiment()}
    found = run(recipe, out=tmp_path / "out", evaluate=stand_in, **{**given, **options})
    assert len(asked) == 1
    labels, metrics, out, texts = asked[0]
    assert set(labels) <= set(VALUES)
    assert metrics == [measure.metric for measure in recipe.measures]
    assert out == tmp_path / "out" / "sst2-attcat-sst2"
    assert texts == [text for text, _ in SENTENCES]
    return found


def test_ours_beside_theirs(tmp_path: Path) -> None:
    found = small(tmp_path)
    entries = {(e.row, e.method, e.measure): e for e in found.entries}
    one = entries["one", "raw_attention", "drop"]
    assert one.ours is not None
    assert math.isclose(one.ours.mean, 20.0)
    assert (one.ours.low, one.ours.high) == pytest.approx((-4.84, 44.84), abs=0.01), "the interval is scaled too"
    assert (one.ours.n, one.published, one.main) == (3, Number(20), True)
    assert abs(one.difference or 1) < 1e-9
    also = entries["one", "raw_attention(layer=0)", "drop"]
    assert (also.main, also.published) == (False, Number(20))
    assert also.difference == pytest.approx(30)
    dice = entries["dice", "random, mean of 3", "drop"]
    assert dice.ours is not None
    assert dice.ours.mean == pytest.approx((10 + 20 + 60) / 3)
    assert dice.spread == pytest.approx(math.sqrt(((10 - 30) ** 2 + (20 - 30) ** 2 + (60 - 30) ** 2) / 2))
    assert dice.published == Number(10, 2)
    later = entries["later", "", "drop"]
    assert (later.ours, later.published, later.difference) == (None, Number(50), None)
    assert "elsewhere" not in {e.row for e in found.entries}


def test_agreement_is_about_the_order_of_the_first_readings(tmp_path: Path) -> None:
    drop, odds = small(tmp_path).agreements
    # drop: ours 20, 40, 30, 30 (ranks 1, 4, 2.5, 2.5), theirs 20, 30, 40, 10 (ranks 2, 3, 4, 1)
    ours, theirs = np.array([1, 4, 2.5, 2.5]), np.array([2, 3, 4, 1])
    spearman = np.corrcoef(ours, theirs)[0, 1]
    assert drop.rows == odds.rows == 4, "the row that waits is not counted"
    assert drop.correlation == pytest.approx(spearman)
    assert (drop.our_best, drop.their_best) == (("two",), ("three",))
    # odds, lower is better: ours -1, -3, -2, -0.5; theirs -1, -2, -3, -0.5: two neighbours changed places
    assert odds.correlation == pytest.approx(1 - 6 * 2 / (4 * 15))
    assert (odds.our_best, odds.their_best) == (("two",), ("three",))


def test_equal_numbers_share_the_first_place_and_have_no_order(tmp_path: Path) -> None:
    equal = {(row, "Data", "drop"): Number(7) for row in ("one", "two", "three")}
    (drop,) = small(tmp_path, replace(SMALL, published=equal)).agreements
    assert drop.correlation is None
    assert drop.their_best == ("one", "two", "three")


def test_fewer_runs_of_random_rows_are_stated(tmp_path: Path) -> None:
    found = small(tmp_path, seeds=2)
    dice = next(e for e in found.entries if e.row == "dice" and e.measure == "drop")
    assert dice.ours is not None
    assert dice.ours.mean == pytest.approx(15)
    assert "Data: dice is the mean of 2 runs, not 3" in found.footer
    with pytest.raises(BadOption, match="at least one run"):
        run(SMALL, seeds=0)


def test_departures_are_stated(tmp_path: Path) -> None:
    found = small(tmp_path, limit=4)
    data = tmp_path / "data" / "sst2" / "validation.jsonl"
    model = f"sentiment (bert, {sentiment().model.config.num_hidden_layers} layers of width "
    assert found.footer[:2] == [
        f"Other is left out: {found.left_out['Other']}",
        "later waits for the method no_such_method",
    ]
    assert found.footer[2].startswith(f"Data: the model is {model}")
    assert found.footer[2].endswith(", in place of sst2; the paper's is BERT-base, not named")
    assert found.footer[3] == f"Data: the data is {data}, in place of nyu-mll/glue:sst2, split validation"
    assert found.footer[4] == "Data: 3 texts were measured (at most 4 were asked for); the paper has 3"
    assert any("the model is right on 3" in line for line in found.footer), "what the table itself has to say"
    assert found.footer[-1] == "a note"
    assert not any("measured before" in line for line in found.footer)


def test_the_papers_own_model_is_no_departure(tmp_path: Path) -> None:
    recipe = replace(SMALL, columns=(replace(SMALL.columns[0], model="some/model"),))
    found = small(tmp_path, recipe, instead={})
    assert not any("the model is /" in line or "the paper's is" in line for line in found.footer)


# printed


def test_csv_has_every_number(tmp_path: Path) -> None:
    found = small(tmp_path)
    lines = list(comma_separated.DictReader(io.StringIO(reproduce.csv(found))))
    assert len(found.entries) == 2 * 6
    assert list(lines[0]) == list(FIELDS)
    for line, entry in zip(lines, found.entries, strict=False):
        assert (line["row"], line["method"], line["measure"]) == (entry.row, entry.method, entry.measure)
        assert line["ours"] == ("" if entry.ours is None else repr(entry.ours.mean))
        assert line["published"] == ("" if entry.published is None else str(entry.published.value))
    dice = next(line for line in lines if line["row"] == "dice")
    assert (dice["low"], dice["published_spread"]) == ("", "2.0")


def test_csv_has_the_points_of_curves(tmp_path: Path) -> None:
    found = small(tmp_path)
    lines = list(comma_separated.DictReader(io.StringIO(reproduce.csv(found))))[len(found.entries) :]
    assert [line["measure"] for line in lines[:2]] == ["drop at 0.5", "drop at 1"]
    points = {(line["row"], line["measure"]): line for line in lines}
    assert len(points) == len(lines) == 4 * 2 * 2, "of the rows that were run, by both measures, at both points"
    one, dice = points["one", "drop at 1"], points["dice", "drop at 0.5"]
    assert (one["method"], one["n"], one["spread"], one["published"]) == ("raw_attention", "3", "", "")
    assert float(one["ours"]) == pytest.approx(40)
    half = 4.302653 * 20 / 3**0.5  # Student's t of three rows
    assert [float(one[end]) for end in ("low", "high")] == pytest.approx([40 - half, 40 + half])
    assert (float(dice["ours"]), float(dice["spread"])) == (pytest.approx(30), pytest.approx(stdev([10, 20, 60])))
    assert dice["low"] == ""
    for kind in (BarFigure, TableRecipe):
        other = small(tmp_path / kind.__name__, as_kind(kind, SMALL))
        assert " at " not in reproduce.csv(other)
    over = small(tmp_path / "over", replace(SMALL, over="rows"))
    assert " at " not in reproduce.csv(over), "the rows are the points"


def test_markdown(tmp_path: Path) -> None:
    text = reproduce.markdown(small(tmp_path))
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"]
    table = {row[1]: row for row in rows if len(row) == 8}
    assert table["here"] == ["row", "here", "drop ↑", "published", "difference", "odds ↓", "published", "difference"]
    assert table["raw_attention"][:2] + table["raw_attention"][3:5] == ["one", "raw_attention", "20.00", "+0.00"]
    assert table["raw_attention(layer=0)"][0] == ""
    assert table["rollout"][2].startswith("**40.00"), "our best in bold"
    assert table["attcat(states=inputs)"][3] == "40.00"
    assert table["waits"] == ["later", "waits", "–", "**50.00**", "–", "–", "**-4.000**", "–"]
    assert table["random, mean of 3"][2] == "30.00 ± 26.46"
    assert "| Data | drop | 4 | 0.32 | two | three |" in text
    assert "* a note" in text.splitlines()
    assert "| drop at | 0.5 | 1 |" in text
    assert "| two | 40.00 | 80.00 |" in text
    assert "| dice | 30.00 ± 26.46 | 60.00 ± 52.92 |" in text
    assert "| three | -2.000 | -4.000 |" in text


def test_terminal(tmp_path: Path) -> None:
    found = small(tmp_path)
    lines = str(found).splitlines()
    assert lines[:2] == ["small · A paper", "A small table"]
    assert "Data · sentiment" in lines
    row, drops, _ = [line.split() for line in lines if line.startswith("two ")]
    assert drops == ["two", "40.00", "80.00"]
    assert row[1:2] + row[-2:] == ["rollout", "-2.000", "-1.000"]
    assert lines[-1] == "· a note"
    assert "\x1b" not in str(found)


def test_measures_without_published_numbers_take_no_room(tmp_path: Path) -> None:
    text = reproduce.markdown(small(tmp_path, replace(SMALL, published={})))
    assert "| row | here | drop ↑ | odds ↓ |" in text
    assert "Agreement" not in text


# drawn


def test_curves_are_those_of_the_table(tmp_path: Path) -> None:
    found = small(tmp_path)
    figure = found.recipe.drawing(found)
    assert figure is not None
    drop, odds = figure.axes
    drawn = {line.get_label(): line for line in drop.get_lines()}
    assert list(drawn) == ["one", "two", "three", "dice"]
    assert drawn["two"].get_xdata().tolist() == [0.5, 1.0]
    assert drawn["two"].get_ydata() == pytest.approx([40, 80])
    assert drawn["dice"].get_ydata() == pytest.approx([30, 60]), "the mean over the runs"
    assert odds.get_lines()[2].get_ydata() == pytest.approx([-2, -4])
    shaded = "shaded: 95 % intervals over the texts;\nof dice ± one standard deviation over the runs"
    assert (drop.get_xlabel(), odds.get_ylabel()) == (f"share of the units\n{shaded}", "lower is better")
    of_one, of_dice = (shadow.get_paths()[0].vertices for shadow in drop.collections)
    spread = stdev([10, 20, 60])
    assert [of_dice[:, 1].min(), of_dice[:, 1].max()] == pytest.approx([30 - spread, 60 + 2 * spread])
    half = 4.302653 * 20 / 3**0.5
    assert of_one[:, 1].max() == pytest.approx(40 + half)


def test_a_curve_over_rows_has_a_shadow_of_its_runs(tmp_path: Path) -> None:
    rows = (
        RecipeRow("0 %", "rollout(row_normalised=true)", at=0.0),
        RecipeRow("50 %", "random(seed={seed})", runs=3, at=0.5),
        RecipeRow("100 %", "attcat(states=inputs)", at=1.0),
    )
    found = small(tmp_path, replace(SMALL, rows=rows, over="share", published={}))
    figure = found.recipe.drawing(found)
    assert figure is not None
    (shadow,) = figure.axes[0].collections
    ends = {(round(float(x), 3), round(float(y), 3)) for x, y in np.asarray(shadow.get_paths()[0].vertices)}
    spread = stdev([10, 20, 60])
    assert ends == {(0, 40), (0.5, round(30 - spread, 3)), (0.5, round(30 + spread, 3)), (1, 30)}
    assert figure.axes[0].get_xlabel() == "share\nshaded: ± one standard deviation over the runs"
    single = small(tmp_path / "single", replace(SMALL, rows=rows, over="share", published={}), seeds=1)
    figure = single.recipe.drawing(single)
    assert figure is not None
    assert figure.axes[0].get_xlabel() == "share", "nothing is shaded"


def test_a_line_has_room_for_some_points_of_a_curve() -> None:
    cell = TableCell(0.5, 0.4, 0.6, 3)
    for count, shown in ((11, range(11)), (12, range(0, 12, 2)), (25, range(0, 25, 3))):
        grid = _point_grid(SMALL.measures[1], {"one": [Point(float(n), cell) for n in range(count)]})
        assert grid.head == ("odds at", *map(str, shown))
        assert [words.text for words in grid.rows[0]] == ["one", *["0.500"] * len(shown)]


def test_bars_and_what_is_attainable(tmp_path: Path) -> None:
    rows = (*SMALL.rows[:2], RecipeRow("attainable", "attcat(states=inputs)", metric=ODDS))
    recipe = as_kind(BarFigure, SMALL, rows=rows, measures=SMALL.measures[:1], published={}, columns=SMALL.columns[:1])

    def stand_in(*_: Any, methods: list[str], metrics: list[str], **__: Any) -> Table:
        assert metrics == [SMALL.measures[0].metric, ODDS]
        return table_of(VALUES)

    data = reviews(tmp_path)
    found = run(recipe, evaluate=stand_in, data=data, instead={"sst2": "sentiment"}, load=lambda name: sentiment())
    figure = found.recipe.drawing(found)
    assert figure is not None
    (axes,) = figure.axes
    assert [bar.get_width() for bar in axes.patches] == pytest.approx([20, 40])  # type: ignore[attr-defined]
    assert [line.get_xdata()[0] for line in axes.get_lines()] == pytest.approx([-200])
    assert not next(e for e in found.entries if e.row == "attainable").main


def test_files(tmp_path: Path) -> None:
    written = reproduce.write(small(tmp_path), tmp_path / "new" / "folder")
    assert [path.name for path in written] == ["small.md", "small.csv", "small.png"]
    assert written[2].read_bytes()[:4] == b"\x89PNG"
    assert "](small.png)" in written[0].read_text()
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match="could not write to"):
        reproduce.write(small(tmp_path / "again"), tmp_path / "file" / "below")
    table = small(tmp_path / "third", as_kind(TableRecipe, SMALL))
    assert table.recipe.drawing(table) is None


# where models and data come from


def refused(tmp_path: Path, recipe: Reproduction = SMALL, **options: Any) -> str:
    with pytest.raises(BadInput) as stop:
        run(recipe, **options)
    return str(stop.value)


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    said = refused(tmp_path, models=tmp_path / "models", data=reviews(tmp_path / "data"))
    assert (
        f"Data: there is no folder {str(tmp_path / 'models' / 'sst2')!r}; without --models, the paper names no" in said
    )
    assert (
        f"Other: there is no folder {str(tmp_path / 'models' / 'imdb')!r}; without --models, hub/imdb of the hub"
        in said
    )


def test_a_model_that_is_not_named(tmp_path: Path) -> None:
    said = refused(tmp_path, replace(SMALL, columns=SMALL.columns[:1]), data=reviews(tmp_path))
    assert said == (
        "no column of small can be run: Data: the paper does not name its BERT-base model: --models DIR takes the "
        "folder 'sst2' in DIR, --model sst2=NAME any model"
    )


def test_models_below_a_folder_and_models_instead(tmp_path: Path) -> None:
    asked: list[Any] = []

    def loading(name: str | Path) -> Subject:
        asked.append(name)
        return sentiment()

    (tmp_path / "models" / "sst2").mkdir(parents=True)
    data = reviews(tmp_path / "data")
    (data / "imdb").mkdir()
    (data / "imdb" / "test.jsonl").write_text((data / "sst2" / "validation.jsonl").read_text())
    options = {"data": data, "evaluate": lambda *_, **__: table_of(VALUES), "load": loading}
    models = tmp_path / "models"
    both = run(SMALL, models=models, instead={"imdb": "sst2"}, **options)
    assert asked == [models / "sst2", models / "sst2"]
    assert any(
        "(bert, " in said and ", in place of imdb; the paper's is BERT-base, hub/imdb" in said for said in both.footer
    )
    asked.clear()
    run(SMALL, models=models, instead={"imdb": "other/hub-id"}, only=["imdb"], **options)
    run(SMALL, only=["imdb"], **options)
    assert asked == ["other/hub-id", "hub/imdb"]


def test_data_that_is_not_there_leaves_the_column_out(tmp_path: Path) -> None:
    found = small(tmp_path, instead={"sst2": "sentiment", "imdb": "sentiment"})
    assert [part.column.label for part in found.parts] == ["Data"]
    folder, imdb = str(tmp_path / "data"), str(tmp_path / "data" / "imdb")
    assert found.left_out["Other"] == f"there is no folder {imdb!r}; --only imdb takes the data of {folder!r}"
    inside = tmp_path / "data" / "sst2"
    alone = small(tmp_path / "alone", data=inside, only=["sst2"])
    assert f"Data: the data is {inside / 'validation.jsonl'}" in alone.footer[2]


def test_a_model_that_does_not_load_leaves_the_column_out(tmp_path: Path) -> None:
    def loading(name: str | Path) -> Subject:
        raise BadInput("could not load it")

    options: dict[str, Any] = {"data": reviews(tmp_path), "instead": {"sst2": "sentiment"}, "load": loading}
    assert "Data: could not load it" in refused(tmp_path, **options)


def test_an_error_while_measuring_names_the_column(tmp_path: Path) -> None:
    def broken(*_: Any, **__: Any) -> Table:
        raise BadInput("the disk is full")

    options: dict[str, Any] = {"data": reviews(tmp_path), "instead": {"sst2": "sentiment"}, "evaluate": broken}
    assert refused(tmp_path, load=lambda name: sentiment(), **options) == "Data: the disk is full"


def test_columns_that_do_not_exist_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadOption, match="small has no column 'sst'; did you mean 'sst2'"):
        run(SMALL, only=["sst"])
    with pytest.raises(BadOption, match="small has no column 'yelp'"):
        run(SMALL, instead={"yelp": "imdb"})
    file = reviews(tmp_path) / "sst2" / "validation.jsonl"
    with pytest.raises(
        BadOption, match=r"is one file, and there are several columns: choose one \(--only\) of sst2, imdb"
    ):
        run(SMALL, data=file)


def test_other_models_are_written_with_an_equals_sign() -> None:
    assert reproduce.other_models(["yelp=imdb", "a = b=c"]) == {"yelp": "imdb", "a": "b=c"}
    for wrong in ("yelp", "=imdb", "yelp="):
        with pytest.raises(BadOption, match="COLUMN=NAME"):
            reproduce.other_models([wrong])


def test_pairs_have_metrics_of_their_own() -> None:
    recipe = reproduction_named("attcat-table-1")
    by_column = {c.label: filled(recipe, c)[0].measures[0].metric for c in recipe.columns}
    assert [label for label, metric in by_column.items() if "special_tokens=true" in metric] == ["QQP", "MNLI"]


# the real thing, small


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::whyformer.errors.TruncationWarning")
def test_a_table_is_what_evaluate_measures(tmp_path: Path) -> None:
    recipe = reproduction_named("attcat-table-1")
    data = reviews(tmp_path / "data")
    options: dict[str, Any] = {"data": data, "instead": {"sst2": "sentiment"}, "only": ["sst2"]}
    found = run(recipe, out=tmp_path / "out", evaluate=quietly, load=lambda name: sentiment(), **options)
    metrics = {
        ("AOPC", "attcat"): "aopc(hide=delete, target=gold, protocol=attcat)",
        ("LOdds", "attcat"): "log_odds(target=gold, protocol=attcat)",
        ("AOPC, Eq. 13", None): "aopc(hide=delete)",
        ("LOdds, Eq. 14", None): "log_odds",
    }
    rows = open_dataset("sst2@attcat", local=data)
    direct = {
        protocol: quietly(
            sentiment(),
            rows,
            methods="attcat(states=inputs),partial_lrp",
            metrics=[metric for (_, of), metric in metrics.items() if of == protocol],
            protocol=protocol,
        )
        for protocol in ("attcat", None)
    }
    entries = {(e.method, e.measure): e for e in found.entries}
    assert len(entries) == 4 * (8 + 4)
    assert entries["partial_lrp", "AOPC, Eq. 13"].published == entries["partial_lrp", "AOPC"].published
    for method in ("attcat(states=inputs)", "partial_lrp"):
        for (measure, protocol), metric in metrics.items():
            cell = direct[protocol][method, metric_specs([metric])[0].label]
            ours = entries[method, measure].ours
            assert cell is not None
            assert ours is not None
            assert ours.mean == pytest.approx(cell.mean, abs=1e-6)
            assert ours.n == 4
    assert {a.measure for a in found.agreements} == {measure for measure, _ in metrics}
    assert all(a.rows == 8 for a in found.agreements)
    assert (tmp_path / "out" / "sst2-attcat-sst2" / "protocol-attcat").is_dir()
    again = run(recipe, out=tmp_path / "out", evaluate=quietly, load=lambda name: sentiment(), **options)
    assert [e.ours for e in again.entries] == [e.ours for e in found.entries], "resumed from the journal"
    assert "4 texts were measured; the paper has 872" in str(found)


def quietly(*arguments: Any, **options: Any) -> Table:
    return evaluate(*arguments, progress=False, **options)


def explain(subject: Subject, text: Any, spec: MethodSpec) -> Explanation:
    return Explainer(subject).explain(text, method=spec.of.name, **spec.options)


@pytest.mark.long
def test_words_that_classes_share(tmp_path: Path) -> None:
    recipe = reproduction_named("decoded-tables-3-9")
    options: dict[str, Any] = {"data": reviews(tmp_path / "data"), "instead": {"sst2": "sentiment"}, "only": ["sst2"]}
    found = run(recipe, evaluate=quietly, load=lambda name: sentiment(), **options)
    simple, in_words = (e for e in found.entries if e.row == "Simple")
    assert (simple.measure, in_words.measure) == ("top 50", "top 50 words")
    assert (simple.published, in_words.published) == (Number(3), None)
    (listed,) = [shared for shared in shared_words(found.parts[0]) if shared.row == "Simple"]
    assert listed.classes == ("NEGATIVE", "POSITIVE")
    common = {"a", "the", "is", "and", "of", "it"}
    assert set(listed.words) & common
    assert simple.ours is not None
    assert simple.ours.mean == pytest.approx(len(listed.words)), "with two classes the number is that of the words"
    assert ", ".join(listed.words) in reproduce.markdown(found)


def test_shared_words_are_those_with_the_highest_sums() -> None:
    metric = "token_overlap(k=2, once=true, units=token)"
    details = [  # rare words, of equal weight; sums of class 0: bad 5, film 4, a 3; of class 2: film 6, bad 2, fine 1.5
        {"class": 0, "words": [["badq", 3], ["aq", 3], ["filmq", 4]]},
        {"class": 2, "words": [["filmq", 6], ["fineq", 1.5], ["badq", 2]]},
        {"class": 0, "words": [["badq", 2]]},
        {"class": 1, "words": [["zebraq", 1], ["aq", 9], ["badq", 0.5]]},
    ]
    records = tuple(Record(f"{n:04x}", n, "attcat", metric, None, detail=own) for n, own in enumerate(details))
    labels = {"about": {"labels": ["no", "maybe"]}}
    table = Results.of([Chunk(0, 4, records, {metric: facts(metric, at=[])})], labels).table()
    found = list(
        shared_words(reproduce.Part(SMALL.columns[0], "model", {None: table}, rows=(RecipeRow("ours", "attcat"),)), k=2)
    )
    assert [shared.classes for shared in found] == [("no", "maybe"), ("no", "2"), ("maybe", "2")]
    assert [shared.words for shared in found] == [(), ("badq", "filmq"), ()]
    cell = table["attcat", metric]
    assert cell is not None
    assert cell.mean == pytest.approx(sum(len(shared.words) for shared in found) / (3 * 2)), "as the metric counts"


def test_layers_of_a_figure(tmp_path: Path) -> None:
    recipe = reproduction_named("attcat-figure-4")
    found = run(recipe, explain=explain, instead={"sst2": "sentiment"}, load=lambda name: sentiment())
    ((shown,),) = [part.examples for part in found.parts]
    count = sentiment().model.config.num_hidden_layers
    assert [e.method for e in shown] == [*(f"L{n}" for n in range(count)), "Rollout", "Sum"]
    assert isinstance(recipe, TextFigure)
    (text,) = recipe.examples["SST2"]
    assert isinstance(text, str)
    whole = Explainer(sentiment()).explain(text, method="attcat", states="inputs")
    assert whole.layers is not None
    for n in range(count):
        assert close(shown[n].scores, whole.layers[n], torch.float32)
    assert close(sum(shown[n].scores for n in range(count)), shown[-1].scores, torch.float32)
    rolled = Explainer(sentiment()).explain(text, method="attcat", states="inputs", combine="rollout")
    assert close(shown[-2].scores, rolled.scores, torch.float32)
    written = reproduce.write(found, tmp_path)
    ends = [".md", ".csv", "-sst2-0.png", "-sst2-0.html"]
    assert [path.name for path in written] == [f"attcat-figure-4{end}" for end in ends]
    lines = list(comma_separated.DictReader(io.StringIO(written[1].read_text())))
    assert len(lines) == (count + 2) * len(whole.units)
    assert float(lines[-2]["score"]) == shown[-1].scores[-2]
    assert "L0" in str(found)
    peaks = [np.abs([s for s, u in zip(e.scores, e.units, strict=True) if not u.special]).max() for e in shown]
    assert list(drawn_peaks(found)) == [pytest.approx(max(peaks))], "one scale for all rows"
    assert f"all rows on one scale: the strongest colour is {max(peaks):.3g}" in str(found)
    assert f"all rows on one scale: the strongest colour is {max(peaks):.3g}" in written[3].read_text()
    assert f"| Rollout | {peaks[-2]:.3g} |" in written[0].read_text()
    largest = {"L0": peaks[0], f"L{count - 1}": peaks[count - 1], "Rollout": peaks[-2], "Sum": peaks[-1]}
    sentence = ", ".join(f"{peak:.2g} in {name}" for name, peak in largest.items())
    assert f"SST2: the largest score is {sentence}" in found.footer


def test_one_text_by_many_methods_and_texts_of_ones_own() -> None:
    recipe = reproduction_named("attcat-figure-5")
    options: dict[str, Any] = {"explain": explain, "instead": {"sst2": "sentiment"}, "load": lambda name: sentiment()}
    found = run(recipe, only=["sst2"], texts=["a fine film"], **options)
    ((shown,),) = [part.examples for part in found.parts]
    assert [e.method for e in shown] == [row.label for row in reproduction_named("attcat-table-1").rows]
    assert all(e.texts == ("a fine film",) for e in shown)
    assert any("the texts are others than the paper's" in line for line in found.footer)


def by_class(tmp_path: Path, rows: list[tuple[str, int]], **options: Any) -> reproduce.Reproduced:
    """A figure of the first text of each class, by one method."""
    figure = reproduction_named("attcat-figure-5")
    assert isinstance(figure, TextFigure)
    recipe = replace(figure, examples={}, columns=SMALL.columns[:1], rows=SMALL.rows[:1])
    (tmp_path / "sst2").mkdir()
    lines = [json.dumps({"text": text, "label": label}) for text, label in rows]
    (tmp_path / "sst2" / "validation.jsonl").write_text("\n".join(lines))
    known: dict[str, Any] = {"instead": {"sst2": "sentiment"}, "load": lambda name: sentiment(), "data": tmp_path}
    return run(recipe, explain=explain, **known, **options)


GOOD, LONG, WRONG = "a gorgeous and witty film", "a gorgeous film " * 40, ("a gorgeous film", 0)


def test_a_text_of_each_class_stands_in(tmp_path: Path) -> None:
    rows = [WRONG, (LONG, 1), (GOOD, 1), ("a witty one", 1), ("a dull and boring mess", 0)]
    found = by_class(tmp_path, rows)
    shown = found.parts[0].examples
    assert [e[0].texts[0] for e in shown] == ["a dull and boring mess", GOOD], "short, and classified right"
    assert [gold_of(one) for one in shown] == ["NEGATIVE", "POSITIVE"]
    text = reproduce.markdown(found)
    assert text.index("### gold class: NEGATIVE") < text.index("dull") < text.index("### gold class: POSITIVE")
    assert "gold class: NEGATIVE" in str(found)
    lines = list(comma_separated.DictReader(io.StringIO(reproduce.csv(found))))
    assert {(line["text"], line["gold"]) for line in lines} == {("0", "NEGATIVE"), ("1", "POSITIVE")}


def test_a_limit_counts_the_texts_of_each_class(tmp_path: Path) -> None:
    rows = [(GOOD, 1), ("a witty one", 1), ("a fine film", 1), ("a dull and boring mess", 0)]
    found = by_class(tmp_path, rows, limit=2)
    shown = [e[0].texts[0] for e in found.parts[0].examples]
    assert shown == ["a dull and boring mess", GOOD, "a witty one"]
    assert (
        "Data: 1 text of the class NEGATIVE of at most 64 tokens that the model classifies right: 2 were asked for"
        in found.footer
    )


def test_a_class_without_a_text_is_named_and_none_at_all_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    found = by_class(tmp_path / "a", [(GOOD, 1)])
    assert any("no texts of the class NEGATIVE of at most 64 tokens" in line for line in found.footer)
    (tmp_path / "b").mkdir()
    with pytest.raises(BadInput, match=r"Data: sst2@attcat .* has no text of at most 64 tokens that the model"):
        by_class(tmp_path / "b", [WRONG, (LONG, 1)])


def test_the_model_is_not_asked_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(class_texts, "MOST", 2)
    found = by_class(tmp_path, [(GOOD, 1), ("a witty one", 1), ("a dull and boring mess", 0)])
    assert [gold_of(one) for one in found.parts[0].examples] == ["POSITIVE"]


def test_texts_of_the_papers_figures() -> None:
    differences, highlights = (reproduction_named(name) for name in ("mask-lrp-figure-6", "decoded-a5"))
    assert isinstance(differences, TextFigure)
    assert isinstance(highlights, TextFigure)
    assert differences.examples == {"SST-2": ("it 's a charming and often affecting journey .",)}
    assert [column.label for column in differences.columns] == ["SST-2", "MNLI", "IMDB", "Yelp"]
    sst2, news = highlights.columns
    assert [len(highlights.examples[label]) for label in ("SST-2", "AG News")] == [4, 4]
    rows = [row.label for row in highlights.rows_in(news)]
    assert rows == ["decoded l6", "decoded, middle", "Shapley", "Occlusion", "Integrated, 25 steps"]
    theirs = ["decoded l7", "decoded, middle", "Grad-CAM l0", "Simple", "Smooth", "Integrated"]
    assert [row.label for row in highlights.rows_in(sst2)] == [*theirs, "Smooth, length"]
    assert not highlights.reads_data(sst2, (), searched=False)
    assert highlights.reads_data(news, (), searched=False)
    assert not highlights.reads_data(news, ("a text",), searched=False)


def questions(folder: Path, question: str) -> Path:
    (folder / "squad").mkdir(parents=True)
    answers = {"text": ["Denver Broncos"], "answer_start": [4]}
    rows = [
        {"question": "Who lost?", "context": "The Denver Broncos won.", "answers": answers},
        {"question": question, "context": "The Denver Broncos did.", "answers": answers},
    ]
    (folder / "squad" / "validation.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    return folder


def test_a_question_is_looked_up_in_the_data(tmp_path: Path) -> None:
    recipe = reproduction_named("attcat-figure-5")
    asked: list[Any] = []

    def noted(subject: Subject, text: Any, spec: MethodSpec) -> Explanation:
        asked.append((text, spec.label))
        return Explainer(sentiment()).explain("a fine film", method=spec.of.name, **spec.options)

    options: dict[str, Any] = {
        "explain": noted,
        "instead": {"squad": "x", "sst2": "x"},
        "load": lambda name: sentiment(),
    }
    found = run(
        recipe, data=questions(tmp_path / "a", "Which NFL team represented the AFC at Super Bowl 50?"), **options
    )
    assert [part.column.label for part in found.parts] == ["SQuAD v1", "SST2"]
    question = ("Which NFL team represented the AFC at Super Bowl 50?", "The Denver Broncos did.")
    assert asked[0] == (question, "attcat(states=inputs)")
    assert [text for text, _ in asked].count(question) == 1
    other = run(recipe, data=questions(tmp_path / "b", "Which team won?"), **options)
    assert "no question or text of squad@attcat" in other.left_out["SQuAD v1"]
    assert [part.column.label for part in other.parts] == ["SST2"]


@pytest.mark.long
def test_differences_are_between_shares(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    registered(monkeypatch, mask_lrp=mask_lrp)
    recipe = reproduction_named("mask-lrp-figure-6")

    def stand_in(subject: Subject, text: Any, spec: MethodSpec) -> Explanation:
        if spec.of.name == "lrp":
            raise BadInput("not this one")
        name = "attcat" if spec.of.name == "mask_lrp" else spec.of.name
        return Explainer(sentiment()).explain(text, method=name)

    options: dict[str, Any] = {"explain": stand_in, "instead": {"sst2": "sentiment"}, "load": lambda name: sentiment()}
    texts = [text for text, _ in SENTENCES[:2]]
    found = run(recipe, data=reviews(tmp_path), only=["sst2"], texts=texts, **options)
    first, second = found.parts[0].examples
    assert [e.texts[0] for e in (first[0], second[0])] == texts
    assert [e.method for e in first][:3] == ["theirs, positional heads only", "less RawAtt", "less Rollout"]
    assert first.refused == (("LRP, lrp", "not this one"),)
    raw = Explainer(sentiment()).explain(SENTENCES[0][0], method="raw_attention")
    theirs = Explainer(sentiment()).explain(SENTENCES[0][0], method="attcat")
    sums = [sum(abs(s) for s, u in zip(e.scores, e.units, strict=True) if not u.special) for e in (theirs, raw)]
    for place, unit in enumerate(raw.units):
        expected = 0.0 if unit.special else theirs.scores[place] / sums[0] - raw.scores[place] / sums[1]
        assert first[1].scores[place] == pytest.approx(expected, abs=1e-5)
    for place, unit in enumerate(theirs.units):
        expected = 0.0 if unit.special else theirs.scores[place] / sums[0]
        assert first[0].scores[place] == pytest.approx(expected, abs=1e-5), "a share, as the others are"
    assert all(e.signed for e in first)
    (picture, _) = drawn_peaks(found)
    assert picture == pytest.approx(max(np.abs(e.scores).max() for e in first))
    assert np.abs(shares(raw)).sum() == pytest.approx(1)
    assert not shares(replace(raw, scores=np.zeros(len(raw.units)))).any()


def drawn_peaks(found: reproduce.Reproduced) -> Iterator[float]:
    """The highest number of the colour bar of each picture that is written."""
    with pytest.MonkeyPatch.context() as patched, TemporaryDirectory() as folder:
        figures: list[Any] = []
        patched.setattr(output, "write_figure", lambda figure, path: figures.append(figure) or path)
        reproduce.write(found, folder)
    for figure in figures:
        _, bar = figure.axes
        yield float(bar.get_ylim()[1])


def test_a_figure_without_its_own_row_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    registered(monkeypatch, mask_lrp=mask_lrp)

    def stand_in(subject: Subject, text: Any, spec: MethodSpec) -> Explanation:
        raise BadInput("no heads were found")

    options: dict[str, Any] = {"explain": stand_in, "instead": {"sst2": "x"}, "load": lambda name: sentiment()}
    options |= {"data": reviews(tmp_path), "only": ["sst2"], "texts": ["a film"]}
    with pytest.raises(BadInput, match=r"SST-2: mask-lrp-figure-6 cannot explain 'a film': .*no heads were found"):
        run(reproduction_named("mask-lrp-figure-6"), **options)


# documented


def test_the_documentation_lists_what_there_is() -> None:
    text = (ROOT / "docs" / "reproduce.md").read_text(encoding="utf-8")
    listed = dict(re.findall(r"^\| `([\w-]+)` \| ([^|]*) \|$", text, re.MULTILINE))
    assert listed == {name: recipe.title for name, recipe in reproductions().items()}
    models: dict[str, set[str]] = {}
    for folder, named in re.findall(r"^\| `([\w-]+)` \|[^|]*\|(.*)\|$", text, re.MULTILINE):
        models[folder] = set(re.findall(r"`(.*?)`", named))
    columns = [column for recipe in reproductions().values() for column in recipe.columns]
    assert models == {c.folder: {o.model for o in columns if o.folder == c.folder and o.model} for c in columns}


@pytest.mark.long
def test_importing_is_cheap() -> None:
    code = "import sys, whyformer_papers.reproduce; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"matplotlib", "rich", "scipy", "datasets", "pyarrow"} & set(done.stdout.split())


def test_every_kind_of_recipe_is_there() -> None:
    kinds = {type(recipe).__name__ for recipe in reproductions().values()}
    assert kinds == {
        *("TableRecipe", "CurveFigure", "BarFigure", "SharedWordTable", "ShareFigure", "CountFigure", "CloudFigure"),
        *("ImageFigure", "TwoObjectFigure"),
        *(kind.__name__ for kind in (*TextFigure.__subclasses__(), *HeadMaskFigure.__subclasses__())),
        "DecodedFigure",
    }
    assert metric_named("token_overlap").level == "corpus"
