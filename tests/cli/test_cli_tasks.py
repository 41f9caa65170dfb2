"""Tasks beside classification on the command line: labels of words, masked words, next tokens."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.token_outputs import explainer
from whyformer.cli import main

METHOD = ("--method", "input_x_gradient")
CALLS: dict[str, tuple[str, str, list[str], str]] = {
    "a word": ("token_labels", "bert", ["fine acting", "--word", "acting", "--target", "B-LOC"], "acting → B-LOC"),
    "its second occurrence": (
        "token_labels",
        "bert",
        ["bad, bad", "--word", "bad,2", "--versus", "runner_up"],
        "bad → ",
    ),
    "an index": ("token_labels", "bert", ["fine acting", "--word", "1", "--target", "2"], "acting → I-LOC"),
    "a mask": ("masked_word", "bert", ["a [MASK] film", "--target", "fine", "--versus", "bad"], "[MASK] → fine"),
    "one of two masks": (
        "masked_word",
        "bert",
        ["[MASK] [MASK]", "--position", "1", "--target", "film"],
        "[MASK] → film",
    ),
    "the next token": ("next_token", "gpt2", ["the film is", "--target", "fine"], 'next token " fine"'),
    "a token inside": ("next_token", "gpt2", ["the film is", "--position", "0"], ' after "the"'),
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folders = {}
    for task, kind in (("token_labels", "bert"), ("masked_word", "bert"), ("next_token", "gpt2")):
        folders[task] = tmp_path_factory.mktemp(task)
        explainer(task, kind).subject.model.save_pretrained(folders[task])
        explainer(task, kind).subject.tokenizer.save_pretrained(folders[task])
    return folders


def run(*arguments: str) -> None:
    with pytest.raises(SystemExit) as stop:
        main(list(arguments))
    assert stop.value.code == 0


@pytest.mark.parametrize("name", CALLS)
def test_explain(name: str, folders: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    task, _, arguments, title = CALLS[name]
    run("explain", *arguments, *METHOD, "--model", str(folders[task]), "--json")
    saved = json.loads(capsys.readouterr().out)
    assert title in saved["target"]["title"]
    run("explain", *arguments, *METHOD, "--model", str(folders[task]))
    assert f"why {saved['target']['title']}" in capsys.readouterr().out


def test_all_words(folders: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    run("explain", "the actors like it", "--word", "all", *METHOD, "--model", str(folders["token_labels"]), "--json")
    lines = capsys.readouterr().out.splitlines()
    expected: Any = explainer("token_labels", "bert").explain("the actors like it", METHOD[1], word="all")
    assert [json.loads(line)["target"]["title"] for line in lines] == [e.target.title for e in expected]


def test_compare(folders: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    methods = ("--methods", "input_x_gradient,rollout")
    run(
        "compare",
        "fine acting",
        "--word",
        "fine",
        "--target",
        "B-PER",
        *methods,
        "--model",
        str(folders["token_labels"]),
    )
    shown = capsys.readouterr().out
    assert "why fine → B-PER?" in shown
    assert "rollout" in shown


def test_a_missing_word_is_an_error(folders: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["explain", "fine acting", "--model", str(folders["token_labels"])])
    assert stop.value.code not in (0, None)
    assert "--word" in capsys.readouterr().err
