"""Every parameter of every public function, given what makes no sense: an error of ours, or a value that fits."""

import functools
import inspect
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import whyformer
from tests.helpers import cases
from whyformer import BadOption, Explainer, WhyformerError
from whyformer.evaluation import evaluate as evaluation
from whyformer.evaluation.recommend import recommend
from whyformer.models.load import load
from whyformer.registry import options
from whyformer_papers.words import WordTable

TEXT = cases.TEXTS[0]
LONGEST = 450  # characters of a message
LISTINGS = {"list_methods", "list_metrics", "method", "metric"}  # without arguments, or decorators of a developer
ROWS = [(TEXT, 0), (cases.TEXTS[1], 1)]
NONSENSE: dict[str, Any] = {
    "none": None,
    "nan": float("nan"),
    "infinity": float("inf"),
    "negative": -1,
    "zero": 0,
    "huge": 10**30,
    "fraction": 1.5,
    "text": "nonsense",
    "empty text": "",
    "bytes": b"x",
    "object": object(),
    "empty list": [],
    "list of nonsense": [object()],
    "dictionary": {"a": 1},
    "class": int,
    "tensor": torch.ones(2),
    "array": np.array([1, 2]),
    "function": len,
}


@functools.cache
def explainer() -> Explainer:
    return Explainer(cases.subject())


@functools.cache
def explanation() -> Any:
    return explainer().explain(TEXT, "attcat", check=0)


@functools.cache
def table() -> Any:
    return explainer().evaluate(ROWS, ["attcat", "random"], metrics=["aopc"], progress=False)


@functools.cache
def shortcuts() -> Any:
    explanations = [explainer().explain(text, "attcat", check=0) for text in cases.TEXTS]
    return whyformer.ShortcutReport.of(explanations)


@functools.cache
def words() -> Any:
    explanations = [explainer().explain(text, "attcat", check=0) for text in cases.TEXTS]
    return WordTable.of(explanations)


@functools.cache
def tensors() -> Any:
    return dict(explainer().subject.tokenizer(TEXT, return_tensors="pt"))


def _model() -> Any:
    return explainer().subject.model


FAST: dict[str, Any] = {"check": 0}
QUIET: dict[str, Any] = {"progress": False}
MEASURED: dict[str, Any] = {"methods": ["random"], "metrics": ["comprehensiveness(fractions=0.5)"], **QUIET}

# Each function with arguments that it accepts, of which one is replaced at a time.
FUNCTIONS: dict[str, tuple[Callable[[], Callable[..., Any]], Callable[[], dict[str, Any]]]] = {
    "Explainer": (lambda: Explainer, lambda: {"model": _model(), "tokenizer": explainer().subject.tokenizer}),
    "load": (lambda: load, lambda: {"name": "sentiment"}),
    "explain": (lambda: explainer().explain, lambda: {"input": TEXT, "method": "attcat", **FAST}),
    "stream": (
        lambda: lambda *given, **named: list(explainer().stream(*given, **named)),
        lambda: {"input": TEXT, "method": "attcat", **FAST},
    ),
    "compare": (lambda: explainer().compare, lambda: {"input": TEXT, "methods": ["random", "attcat"]}),
    "evaluate": (lambda: evaluation.evaluate, lambda: {"subject": cases.subject(), "data": ROWS, **MEASURED}),
    "recommend": (
        lambda: recommend,
        lambda: {"subject": cases.subject(), "data": ROWS, "methods": ["attcat"], "metric": "comprehensiveness"},
    ),
    "cost": (lambda: explainer().cost, lambda: {"methods": ["attcat"], "tokens": 8, "seconds": 0.01}),
    "trust": (lambda: explainer().trust, lambda: {"explanations": [explanation()]}),
    "method": (lambda: explainer().method, lambda: {"name": "attcat"}),
    "attribute": (lambda: whyformer.attribute, lambda: {"model": _model(), "inputs": tensors(), "method": "attcat"}),
    "record": (lambda: whyformer.record, lambda: {"model": _model(), "inputs": tensors()}),
    "open_dataset": (lambda: whyformer.open_dataset, lambda: {"source": ROWS}),
    "image_grid": (lambda: whyformer.image_grid, lambda: {"rows": []}),
    "Explanation.top": (lambda: explanation().top, dict),
    "Explanation.strongest": (lambda: explanation().strongest, lambda: {"count": 3}),
    "Explanation.words": (lambda: explanation().words, dict),
    "Explanation.by_word": (lambda: explanation().by_word, dict),
    "Explanation.share": (lambda: explanation().share, lambda: {"word": "film"}),
    "Explanation[…]": (lambda: explanation().__getitem__, lambda: {"word": "film"}),
    "Explanation.agreement": (lambda: explanation().agreement, lambda: {"other": explanation()}),
    "Explanation.trust": (lambda: explanation().trust, dict),
    "Explanation.figure": (lambda: explanation().figure, dict),
    "Explanation.to_html": (lambda: explanation().to_html, lambda: {"path": "page.html"}),
    "Explanation.save": (lambda: explanation().save, lambda: {"path": "saved.json"}),
    "Explanation.load": (lambda: whyformer.Explanation.load, lambda: {"path": "missing.json"}),
    "Explanation.from_dict": (lambda: whyformer.Explanation.from_dict, lambda: {"data": explanation().to_dict()}),
    "Explanation.render": (lambda: explanation().render, lambda: {"form": "text"}),
    "Comparison.load": (lambda: whyformer.Comparison.load, lambda: {"path": "missing.json"}),
    "Explanations.to_csv": (lambda: explainer().explain([TEXT], "attcat", check=0).to_csv, dict),
    "Explanations.to_html": (lambda: explainer().explain([TEXT], "attcat", check=0).to_html, dict),
    "Explanations.load": (lambda: whyformer.Explanations.load, lambda: {"path": "missing.jsonl"}),
    "Table.compare": (lambda: table().compare, lambda: {"metric": "aopc", "first": "attcat", "second": "random"}),
    "Table.share": (lambda: table().share, lambda: {"metric": "aopc", "method": "attcat"}),
    "Table.best": (lambda: table().best, lambda: {"metric": "aopc"}),
    "Table.tied": (lambda: table().tied, lambda: {"metric": "aopc"}),
    "Table.curve": (lambda: table().curve, lambda: {"metric": "aopc", "method": "attcat"}),
    "Table.figure": (lambda: table().figure, lambda: {"metric": "aopc"}),
    "Table.save": (lambda: table().save, lambda: {"folder": "folder"}),
    "Table.render": (lambda: table().render, lambda: {"form": "markdown"}),
    "ShortcutReport.to_text": (lambda: shortcuts().to_text, dict),
    "ShortcutReport.to_markdown": (lambda: shortcuts().to_markdown, dict),
    "ShortcutReport.load": (lambda: whyformer.ShortcutReport.load, lambda: {"path": "missing.json"}),
    "WordTable.top": (lambda: words().top, lambda: {"k": 3, "label": 0}),
    "WordTable.overlap": (lambda: words().overlap, lambda: {"k": 3}),
    "WordTable.overlaps": (lambda: words().overlaps, dict),
    "WordTable.shared": (lambda: words().shared, lambda: {"one": 0, "other": 1}),
    "WordTable.to_text": (lambda: words().to_text, dict),
    "WordTable.to_markdown": (lambda: words().to_markdown, dict),
    "WordTable.load": (lambda: WordTable.load, lambda: {"path": "missing.json"}),
}


# What is accepted although the annotation says more than a type, by parameter.
ACCEPTED = {
    "input": {"text", "empty list"},  # a text is a text, and no texts have no explanations
    "text": {"none", "text", "empty list"},
    "tokenizer": {"function"},  # of images: a function to tensors
    "target": {"none", "zero", "array"},  # `None` is what the model predicts; an array is two classes
    "versus": {"none", "zero"},
    "word": {"none"},
    "position": {"none"},
    "explanations": {"empty list"},
    "explainer": {"none"},
    "label": {"zero"},
    "one": {"zero"},
    "seconds": {"fraction"},
}


def signature(name: str) -> inspect.Signature:
    return inspect.signature(explainer().stream if name == "stream" else FUNCTIONS[name][0]())


def parameters() -> list[tuple[str, str]]:
    named = [(name, one) for name in FUNCTIONS for one in signature(name).parameters.values()]
    return [(name, one.name) for name, one in named if one.kind not in (one.VAR_KEYWORD, one.VAR_POSITIONAL)]


def called(name: str, parameter: str, value: Any) -> Any:
    """Call a function with one argument replaced, by position where it takes no name."""
    function, arguments = FUNCTIONS[name][0](), FUNCTIONS[name][1]() | {parameter: value}
    first = [one.name for one in signature(name).parameters.values() if one.kind is one.POSITIONAL_ONLY]
    given = [arguments.pop(one) for one in first if one in arguments]
    return function(*given, **arguments)


def is_of_its_type(name: str, parameter: str, value: Any) -> bool:
    """True for a value that the annotation allows: numbers, choices and bounds are part of it."""
    annotation = signature(name).parameters[parameter].annotation
    if not options.is_plain(annotation):
        return False
    try:
        options.valid(parameter, value, annotation)
    except BadOption:
        return False
    return True


@pytest.mark.parametrize(("name", "parameter"), parameters(), ids=str)
def test_nonsense_is_refused_or_fits(
    name: str, parameter: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    warnings.simplefilter("ignore")
    messages: list[str] = []
    for label, value in NONSENSE.items():
        try:
            called(name, parameter, value)
        except WhyformerError as error:
            messages.append(str(error))
            continue
        allowed = label in ACCEPTED.get(parameter, ()) or is_of_its_type(name, parameter, value)
        assert allowed, f"{name}({parameter}={value!r}) was accepted"
    assert all(len(message) < LONGEST for message in messages)


def test_every_public_function_is_tried() -> None:
    functions = {name for name in whyformer.__all__ if inspect.isfunction(getattr(whyformer, name))}
    assert functions - LISTINGS <= set(FUNCTIONS)
    methods = {name for name, one in vars(Explainer).items() if inspect.isfunction(one) and not name.startswith("_")}
    assert methods <= set(FUNCTIONS)


def test_unknown_keywords_are_named_with_the_nearest() -> None:
    with pytest.raises(BadOption, match="evaluate takes no method; did you mean 'methods'"):
        explainer().evaluate(ROWS, method="attcat")
    with pytest.raises(BadOption, match="compare takes no model"):
        explainer().compare(TEXT, model="sentiment")  # type: ignore[call-arg]


def test_bounds_and_kinds_are_said() -> None:
    with pytest.raises(BadOption, match="batch_size takes a whole number from 1 on; found 0"):
        explainer().explain(TEXT, batch_size=0)
    with pytest.raises(BadOption, match="beam takes a whole number from 1 to 1000; found -1"):
        explainer().evaluate(ROWS, beam=-1)
    with pytest.raises(BadOption, match=r"windows takes cut \| merge; found 'nonsense'"):
        explainer().explain(TEXT, windows="nonsense")
    with pytest.raises(BadOption, match=r"option noise takes a number; found nan"):
        explainer().explain(TEXT, "smooth_grad", noise=float("nan"))


def test_numbers_of_numpy_are_numbers() -> None:
    assert len(explanation().top(np.int64(2))) == 2
    assert explainer().explain(TEXT, "attcat", check=np.int64(0), batch_size=np.int32(4)) == explanation()


def test_a_huge_option_is_a_number() -> None:
    assert np.isfinite(explainer().explain(TEXT, "smooth_grad", noise=10**30, check=0).scores).all()


def test_what_is_given_by_name_is_said() -> None:
    with pytest.raises(TypeError, match="evaluate: too many positional arguments; write the others as name=value"):
        explainer().evaluate(ROWS, "attcat", "aopc")  # type: ignore[call-arg]
