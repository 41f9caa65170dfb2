"""Recipes that decode layers: LM heads given or not, layers that a model does not have, pictures of words."""

import csv as comma_separated
import io
import json
import sys
from collections import defaultdict
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers as hf

from tests.helpers import cases, families
from tests.helpers.commands import status_of
from tests.helpers.rows import write_jsonl
from tests.papers.recipes import as_kind, run
from whyformer import Explainer
from whyformer.datasets import open_dataset
from whyformer.errors import BadInput, BadOption, MissingExtra
from whyformer.evaluation.evaluate import Table, evaluate
from whyformer.explain.explanation import Explanation
from whyformer.methods import logit_lens
from whyformer.methods.method import MethodSpec, method_specs
from whyformer.models.load import Subject, load, subject_of
from whyformer.show.colors import strengths
from whyformer.show.grid import as_markdown
from whyformer.tolerance import close
from whyformer_papers import reproduce
from whyformer_papers.reproduce import Reproduced, Reproduction, reproduction_named
from whyformer_papers.reproduce.text_figures import explained
from whyformer_papers.reproduce.word_figures import CountFigure, ShareFigure, shared_words, word_tables
from whyformer_papers.words import WordTable, clouds
from whyformer_papers.words.idf import Idf

TABLE_1, TABLE_2 = (reproduction_named(f"decoded-table-{n}") for n in (1, 2))
FIGURE_4, FIGURE_5, FIGURE_7, FIGURE_9 = (reproduction_named(f"decoded-figure-{n}") for n in (4, 5, 7, 9))
TEXTS = [
    "the film is fine",
    "a bad film",
    "the actors like it and the film is not bad",
    "fine acting is all",
    "bad act",
]
QUICK = ("decoded l1", "decoded l7", "decoded, middle", "Simple")


# what the tests put in place of models and data


def texts_at(folder: Path, *names: str) -> Path:
    for name in names or ("sst2",):
        (folder / name).mkdir(parents=True)
        lines = [json.dumps({"text": text, "label": n % 2}) for n, text in enumerate(TEXTS)]
        split = "test" if name == "ag_news" else "validation"
        (folder / name / f"{split}.jsonl").write_text("\n".join(lines))
    return folder


def head_at(folder: Path, **changed: Any) -> Path:
    """The folder of a tiny language model, whose head fits the tiny classifier of two layers."""
    tokenizer = cases.wordpiece()
    config = families.CONFIGS["bert"]()
    config.update({"vocab_size": len(tokenizer), "max_position_embeddings": 128, **changed})
    torch.manual_seed(7)
    hf.AutoModelForMaskedLM.from_config(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def tiny(name: str | Path = "tiny") -> Subject:
    return cases.subject()


def quietly(*arguments: Any, **options: Any) -> Table:
    return evaluate(*arguments, progress=False, **options)


def explain(subject: Subject, text: Any, spec: MethodSpec) -> Explanation:
    return Explainer(subject).explain(text, method=spec.of.name, **spec.options)


class Measured:
    """In place of `evaluate`: remembers what was asked, and measures it with one cheap method instead."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []

    def __call__(self, subject: Subject, data: Any, *, methods: list[str], metrics: list[str], out: Any) -> Table:
        self.asked.append(methods)
        return quietly(subject, data, "saliency", metrics[:1])


def small(tmp_path: Path, recipe: Reproduction = TABLE_1, **options: Any) -> tuple[Reproduced, list[list[str]]]:
    measured = Measured()
    folders = [column.data.partition("@")[0] for column in recipe.columns]
    data = tmp_path / "data" if (tmp_path / "data").exists() else texts_at(tmp_path / "data", *folders)
    given: dict[str, Any] = {"instead": {column.folder: "tiny" for column in recipe.columns}, "seeds": 1, "load": tiny}
    return run(recipe, data=data, evaluate=measured, **{**given, **options}), measured.asked


def decoding(asked: list[str]) -> list[str]:
    return [written for written in asked if written.startswith("decoded_grad_cam") and "decode=false" not in written]


def said(found: Reproduced, word: str) -> list[str]:
    return [line for line in found.footer if word in line]


# LM heads


def test_a_given_head_is_used(tmp_path: Path) -> None:
    head = head_at(tmp_path / "base")
    for given in ({"sst2": head}, str(head), head):
        found, (asked,) = small(tmp_path, FIGURE_5, lm_heads=given)
        assert decoding(asked) == [f"decoded_grad_cam(layer={n}, lm_head={head})" for n in (1, 2)]
    assert said(found, "decoded by") == [
        f"SST-2: layers are decoded by the LM head of {head}; the paper's is that of roberta-base"
    ]
    shown = {entry.row: entry.method for entry in found.entries}
    assert shown["decoded l1"] == "decoded_grad_cam(layer=1, lm_head=base)", "the folder's name alone"
    assert shown["Grad-CAM l0"] == "decoded_grad_cam(decode=false, layer=0)"


def test_one_head_is_for_all_columns_or_each_has_its_own(tmp_path: Path) -> None:
    first, second = head_at(tmp_path / "one"), head_at(tmp_path / "two")
    _, asked = small(tmp_path, FIGURE_4, lm_heads=first)
    assert [decoding(own) for own in asked] == [[f"decoded_grad_cam(lm_head={first})"]] * 2
    _, asked = small(tmp_path, FIGURE_4, lm_heads={"sst2": first, "agnews": second})
    assert [decoding(own) for own in asked] == [[f"decoded_grad_cam(lm_head={own})"] for own in (first, second)]
    found, asked = small(tmp_path, FIGURE_4, lm_heads={"agnews": second}, models=made(tmp_path / "models"))
    assert [decoding(own) for own in asked] == [[], [f"decoded_grad_cam(lm_head={second})"]]
    assert said(
        found, "SST-2: decoded l7, decoded, middle are left out: the model comes with no LM head: give --lm-head"
    )


def made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def test_without_a_head_the_rows_are_left_out(tmp_path: Path) -> None:
    found, (asked,) = small(tmp_path, models=made(tmp_path / "models"))
    assert decoding(asked) == []
    assert asked[:2] == ["decoded_grad_cam(layer=0, decode=false)", "cam(layer=0)"]
    reason = (
        "the model comes with no LM head: give --lm-head sst2=FOLDER (lm_heads=), the pretrained model that it was "
        "fine-tuned from"
    )
    assert said(found, "no LM head") == [
        f"SST-2: decoded l5, decoded l6, decoded l7, decoded l8 are left out: {reason}"
    ]
    assert not said(found, "decoded by")
    entry = next(entry for entry in found.entries if entry.row == "decoded l7")
    assert (entry.method, entry.ours, entry.published) == ("", None, reproduce.Number(0.867))
    with pytest.raises(BadInput, match=r"no column of decoded-figure-5 .*: SST-2: decoded l1: the model comes with no"):
        small(tmp_path, FIGURE_5, models=tmp_path / "models")


def test_the_papers_head_is_tried_for_models_of_the_hub_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    head, asked_for = head_at(tmp_path / "base"), []

    def from_hub(source: str, **options: Any) -> Any:
        asked_for.append(source)
        return replace(real(head, **options), name=source)

    real = logit_lens.load_head  # type: ignore[attr-defined]
    monkeypatch.setattr(logit_lens, "load_head", from_hub)
    fresh = subject_of(cases.subject(labels=2).model, cases.wordpiece())
    found, (asked,) = small(tmp_path, FIGURE_5, instead={"sst2": "some/roberta"}, load=lambda name: fresh)
    assert decoding(asked) == [f"decoded_grad_cam(layer={n}, lm_head=roberta-base)" for n in (1, 2)]
    assert said(found, "decoded by") == ["SST-2: layers are decoded by the LM head of roberta-base"]
    assert asked_for == ["roberta-base"], "read once"
    asked_for.clear()
    for options in ({"models": made(tmp_path / "models")}, {"instead": {"sst2": str(made(tmp_path / "folder"))}}):
        found, (asked,) = small(tmp_path, **options)
        assert decoding(asked) == []
    assert not asked_for

    def unreachable(source: str, **options: Any) -> Any:
        raise BadInput("the hub cannot be reached")

    monkeypatch.setattr(logit_lens, "load_head", unreachable)
    found, (asked,) = small(tmp_path)
    assert decoding(asked) == []
    assert said(found, "and roberta-base does not do (the hub cannot be reached): give --lm-head sst2=FOLDER")


@pytest.mark.long
def test_the_models_own_head_needs_no_option(tmp_path: Path) -> None:
    options: dict[str, Any] = {"instead": {"sst2": "sentiment"}, "load": lambda name: load("sentiment")}
    found, (asked,) = small(tmp_path, FIGURE_5, **options)
    assert decoding(asked) == [f"decoded_grad_cam(layer={n})" for n in range(1, 7)]
    assert said(found, "decoded by") == ["SST-2: layers are decoded by the LM head that comes with the model"]
    labels = ", ".join(f"decoded l{n}" for n in range(7, 13))
    assert said(found, "left out") == [f"SST-2: {labels} are left out: the model has 6 layers"]
    _, (asked,) = small(tmp_path, FIGURE_7, **options)
    assert [method_specs([written])[0].label for written in decoding(asked)] == ["decoded_grad_cam"]
    causal, (asked,) = small(tmp_path, FIGURE_5, load=lambda name: cases.subject("gpt2"))
    assert decoding(asked) == [f"decoded_grad_cam(layer={n})" for n in (1, 2)]
    assert said(causal, "decoded by the model's own LM head")


def test_heads_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    narrow = head_at(tmp_path / "narrow", hidden_size=8, intermediate_size=8, num_attention_heads=2)
    with pytest.raises(BadOption, match=r"^SST-2: the LM head of .*narrow' takes states of width 8"):
        small(tmp_path, lm_heads=narrow)
    with pytest.raises(BadInput, match="there is no folder"):
        small(tmp_path, lm_heads=tmp_path / "nowhere")
    with pytest.raises(BadOption, match="decoded-table-1 has no column 'sst'; did you mean 'sst2'"):
        small(tmp_path, lm_heads={"sst": narrow})
    with pytest.raises(BadOption, match="attcat-table-1 decodes no layer: leave --lm-head"):
        run(reproduction_named("attcat-table-1"), lm_heads=narrow)


def test_heads_are_written_with_an_equals_sign_or_alone() -> None:
    assert reproduce.given_lm_heads(["sst2=a", "agnews = b"]) == {"sst2": "a", "agnews": "b"}
    assert reproduce.given_lm_heads(["folder"]) == "folder"
    assert reproduce.given_lm_heads([]) == {}
    with pytest.raises(BadOption, match="COLUMN=FOLDER"):
        reproduce.given_lm_heads(["a", "b"])


# what is asked for


@pytest.mark.parametrize(
    ("row", "options"),
    [
        ("Grad-CAM l0", {"layer": 0, "decode": False, "score": "grad_cam"}),
        ("decoded l8", {"layer": 8, "decode": True, "top": None, "special_positions": True}),
        ("Shapley", {"samples": 25, "baseline": "pad"}),
        ("Occlusion", {"window": 3}),
        ("Integrated", {"steps": 25, "at": "embedding_output", "protocol": None}),
        ("GradientShap", {"samples": 5, "at": "embedding_output"}),
        ("LIME", {"samples": 25}),
        ("GradxAct", {"at": "embedding_output"}),
        ("DeepLiftShap", {"at": "embedding_output"}),
    ],
)
def test_the_settings_of_thermostat(row: str, options: dict[str, Any]) -> None:
    (own,) = [one for one in TABLE_2.rows if one.label == row]
    facts = method_specs(own.readings)[0].facts["options"]
    assert options.items() <= facts.items()


def test_the_settings_of_allennlp() -> None:
    rows = [row for row in TABLE_1.rows if row.label in ("Simple", "Smooth", "Integrated")]
    specs = [method_specs([row.method])[0] for row in rows]
    assert [spec.of.name for spec in specs] == ["saliency", "smooth_grad", "integrated_gradients"]
    assert all(dict(spec.options) == {"protocol": "allennlp"} for spec in specs)


def test_every_recipe_of_the_paper_is_ready() -> None:
    own = [recipe for name, recipe in reproduce.reproductions().items() if name.startswith("decoded-")]
    assert [recipe.state for recipe in own] == ["ready"] * 13
    assert all(recipe.decoded for recipe in own)
    assert not any(r.decoded for name, r in reproduce.reproductions().items() if not name.startswith("decoded-"))
    assert all(column.lm_head == "roberta-base" for recipe in own for column in recipe.columns)


# what the paper prints


def test_the_printed_news_are_looked_up(tmp_path: Path) -> None:
    highlights = reproduce.reproductions()["decoded-a5"]
    news = highlights.columns[1]
    texts = [
        "a film",
        "Hockey Labor Talks Broken Off TORONTO",
        "Dutch Retailer beats Apple to local download market, x",
    ]
    texts += ["United Pilots Cut Deal on Pensions.", "Charity chief kidnapped in Iraq Care"]
    write_jsonl(tmp_path / "news.jsonl", [{"text": text, "label": 0} for text in texts])
    found = highlights.texts(news, open_dataset(tmp_path / "news.jsonl"), 1)
    assert [texts.index(str(text)) for text in found] == [2, 4, 1, 3]
    write_jsonl(tmp_path / "other.jsonl", [{"text": "a film", "label": 0}])
    with pytest.raises(BadInput, match="begins with 'Dutch Retailer"):
        highlights.texts(news, open_dataset(tmp_path / "other.jsonl"), 1)


def test_a_figure_shows_the_logit_and_no_check() -> None:
    found = explained(cases.subject(), cases.TEXTS[2], method_specs(["layer_lrp"])[0])
    assert (found.explains, found.checked) == ("logit", None)
    own = Explainer(cases.subject()).explain(cases.TEXTS[2], "layer_lrp", explains="logit", check=0)
    assert found.scores == pytest.approx(own.scores)
    checked = Explainer(cases.subject()).explain(cases.TEXTS[2], "layer_lrp", explains="logit")
    assert (
        np.sign(strengths(found)).tolist() == np.sign(np.where([u.special for u in own.units], 0, own.scores)).tolist()
    )
    assert checked.checked is not None


def test_what_each_layer_says_at_each_position(tmp_path: Path) -> None:
    recipe = reproduce.reproductions()["decoded-figure-1"]
    found = run(recipe, instead={"sst2": "sentiment"}, texts=["a fine film"])
    (grid,) = recipe.grids(found, found.parts[0])
    written = as_markdown(grid)
    assert written.count("\n") == 8  # a head, a rule, and l0 to l6
    assert "| l6 |" in written
    assert "fine 0." in written


# numbers and pictures


@pytest.mark.long
def test_numbers_of_decoded_rows_are_those_of_evaluate(tmp_path: Path) -> None:
    head = head_at(tmp_path / "base")
    recipe = replace(FIGURE_5, rows=FIGURE_5.rows[:4], published={})
    data = texts_at(tmp_path / "data")
    options: dict[str, Any] = {"data": data, "instead": {"sst2": "tiny"}, "load": tiny, "lm_heads": head}
    found = run(recipe, out=tmp_path / "out", evaluate=quietly, **options)
    method = f"decoded_grad_cam(layer=2, lm_head={head})"
    metric = "hiding_game(hide=mask_unattended)"
    direct = quietly(tiny(), data / "sst2" / "validation.jsonl", method, metric)
    cell = direct[method, direct.metrics[0]]
    (entry,) = [e for e in found.entries if (e.row, e.measure) == ("decoded l2", "hiding")]
    assert entry.ours is not None
    assert cell is not None
    assert (entry.ours.mean, entry.ours.n) == (pytest.approx(cell.mean), 5)
    assert {e.row for e in found.entries if not e.measured} == {"decoded l3"}
    again = run(recipe, out=tmp_path / "out", evaluate=quietly, **options)
    assert [e.ours for e in again.entries] == [e.ours for e in found.entries]


def test_highlighted_texts(tmp_path: Path) -> None:
    head = head_at(tmp_path / "base")
    recipe = reproduction_named("decoded-a5")
    options: dict[str, Any] = {"instead": {"sst2": "tiny"}, "load": tiny, "texts": TEXTS[:1], "explain": explain}
    ((shown,),) = [part.examples for part in run(recipe, lm_heads=head, **options).parts]
    assert [e.method for e in shown] == ["decoded, middle", "Grad-CAM l0", "Simple", "Integrated", "Smooth, length"]
    ((refused, reason),) = shown.refused
    assert refused == "Smooth, smooth_grad(protocol=allennlp)"
    assert "LayerNorms" in reason, "in a BERT"
    direct = Explainer(tiny()).explain(TEXTS[0], "decoded_grad_cam", layer=1, lm_head=str(head))
    assert close(shown[0].scores, direct.scores), "layer 1 is in the middle of two"


@pytest.fixture
def words(tmp_path: Path) -> Reproduced:
    """Figure 4 with one cheap row."""
    return worded(tmp_path, FIGURE_4)


def worded(tmp_path: Path, recipe: Reproduction, **options: Any) -> Reproduced:
    recipe = replace(recipe, rows=tuple(row for row in recipe.rows if row.label in QUICK), columns=recipe.columns[:1])
    given: dict[str, Any] = {"data": texts_at(tmp_path / "data"), "instead": {"sst2": "tiny"}, "load": tiny}
    return run(recipe, evaluate=quietly, lm_heads=head_at(tmp_path / "base"), **{**given, **options})


def simple_sums() -> dict[str, dict[str, float]]:
    """Of each predicted class its tokens with their sums, each once a text, by loops over explanations."""
    sums: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for text in TEXTS:
        found = Explainer(tiny()).explain(text, "saliency", protocol="allennlp")
        scores: dict[str, list[float]] = defaultdict(list)
        for unit, score in zip(found.units, found.scores, strict=True):
            if unit.span is not None:
                scores[str(unit.piece)].append(float(score))
        for piece, own in scores.items():
            sums[str(found.prediction.label)][piece] += sum(own) / len(own) * Idf.bundled()[piece.removeprefix("##")]
    return sums


def test_curves_of_shared_words(words: Reproduced) -> None:
    (part,) = words.parts
    sums = simple_sums()
    assert len(sums) > 1, "the tiny model predicts several classes"
    tops = {name: sorted(own, key=lambda word: (-own[word], word)) for name, own in sums.items()}
    pairs = list(combinations(tops.values(), 2))
    assert isinstance(words.recipe, ShareFigure)
    curve, counts = (kind.curves(part)["Simple"] for kind in (words.recipe, as_kind(CountFigure, words.recipe)))
    for k in range(1, 51):
        shared = sum(len(set(one[:k]) & set(other[:k])) for one, other in pairs) / len(pairs)
        assert curve[k] == pytest.approx(100 * shared / k)
        assert counts[k] == pytest.approx(shared)
    assert any(curve.values())
    entry, in_words = (e for e in words.entries if e.row == "Simple")
    assert entry.ours is not None
    assert entry.ours.mean == pytest.approx(curve[50])
    assert (entry.measure, in_words.measure) == ("top 50", "top 50 words")
    assert in_words.ours is not None
    assert in_words.ours.mean == pytest.approx(100 * shares_of_words(50))
    figure = words.recipe.column_drawing(part)
    assert figure is not None
    drawn = {str(line.get_label()): line for line in figure.axes[0].get_lines()}
    assert list(drawn["Simple"].get_ydata()) == pytest.approx(list(curve.values()))
    assert "decoded, middle" in drawn


def shares_of_words(k: int) -> float:
    """What two classes share of their top k words, by explanations."""
    stream = (Explainer(tiny()).explain(text, "saliency", protocol="allennlp") for text in TEXTS)
    return WordTable.of(stream).overlap(k)


def test_curves_are_printed_and_written(tmp_path: Path, words: Reproduced) -> None:
    files = reproduce.write(words, tmp_path / "out")
    assert [file.name for file in files] == [f"decoded-figure-4{end}" for end in (".md", ".csv", "-sst-2.png")]
    lines = [line for line in comma_separated.DictReader(io.StringIO(files[1].read_text())) if line["row"] == "Simple"]
    assert isinstance(words.recipe, ShareFigure)
    curve = words.recipe.curves(words.parts[0])["Simple"]
    assert {line["measure"]: float(line["ours"]) for line in lines} == pytest.approx(
        {f"top {k}": value for k, value in curve.items()} | {"top 50 words": 100 * shares_of_words(50)}
    )
    assert len(lines) == 51
    shown = [f"{curve[k]:.2f}" for k in (1, 2, 5, 10, 20, 30, 40, 50)]
    assert f"| Simple | {' | '.join(shown)} |" in files[0].read_text()
    counted = worded(tmp_path / "counted", FIGURE_9)
    assert [file.suffix for file in reproduce.write(counted, tmp_path / "counts")] == [".md", ".csv", ".png"]
    assert {str(axes.get_ylabel()) for axes in word_figure(counted).axes} >= {"shared words, all pairs of classes"}


def word_figure(found: Reproduced) -> Any:
    return found.recipe.column_drawing(found.parts[0])


def test_one_class_alone_shares_nothing(tmp_path: Path) -> None:
    alone = worded(tmp_path, FIGURE_4, limit=1)
    assert word_figure(alone) is None
    assert not list(shared_words(alone.parts[0]))
    assert [file.suffix for file in reproduce.write(alone, tmp_path / "out")] == [".md", ".csv"]


def test_clouds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = worded(tmp_path, FIGURE_7)
    (part,) = found.parts
    tables = word_tables(part)
    assert list(tables) == ["decoded, middle", "Simple"], "rows by the paper's labels; l7 is left out"
    sums = simple_sums()
    assert tables["Simple"].classes == tuple(sorted(sums, key=tiny().labels.index))
    kept: list[Any] = []
    real = clouds.clouds_figure
    monkeypatch.setattr(clouds, "clouds_figure", lambda given: kept.append(given) or real(given))
    files = reproduce.write(found, tmp_path / "out")
    assert [file.name for file in files] == [f"decoded-figure-7{end}" for end in (".md", ".csv", "-sst-2.png")]
    assert files[2].read_bytes()[:4] == b"\x89PNG"
    assert kept[0].keys() == tables.keys()
    lines = list(comma_separated.DictReader(io.StringIO(files[1].read_text())))
    name, own = max(sums.items(), key=lambda one: len(one[1]))
    first = next(line for line in lines if (line["row"], line["class"]) == ("Simple", name))
    best = max(own, key=lambda word: own[word])
    assert (first["place"], first["word"], float(first["score"])) == ("1", best, pytest.approx(own[best]))
    assert f"| Simple | {name} (" in files[0].read_text()


def test_clouds_without_wordcloud_say_so_before_anything_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = worded(tmp_path, FIGURE_7)
    monkeypatch.setitem(sys.modules, "wordcloud", None)
    with pytest.raises(MissingExtra, match="pip install wordcloud"):
        reproduce.write(found, tmp_path / "out")
    with pytest.raises(MissingExtra, match="pip install wordcloud"):
        run(FIGURE_7, out=tmp_path / "out", evaluate=lambda *_, **__: pytest.fail("it measures"))


# on the command line


@pytest.mark.long
def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    start = ("reproduce", "decoded-a5", "--model", "sst2=sentiment")
    assert status_of(*start) == 0
    assert "decoded, middle" in (shown := capsys.readouterr().out)
    assert "SST-2: layers are decoded by the LM head that comes with the model" in shown
    assert "SST-2: decoded l7 is left out: the model has 6 layers" in shown
    head = head_at(tmp_path / "base")
    for given in (head, f"sst2={head}"):
        assert status_of(*start, "--lm-head", given) == 2
        assert "SST-2: the LM head of" in capsys.readouterr().err, "of another width"
