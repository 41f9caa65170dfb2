"""Each option of each command, given a value that is not its default, arrives in the library under its name."""

import contextlib
import functools
import inspect
import io
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.helpers import image_cases, questions
from whyformer import BadOption, Explainer
from whyformer.cli import evaluate, flags, tokens
from whyformer.cli.app import every_command, invoke
from whyformer.errors import WhyformerError
from whyformer.methods.method import METHODS
from whyformer.models.load import subject_of
from whyformer.registry.options import Option
from whyformer_papers import reproduce as papers
from whyformer_papers.commands import heads, words
from whyformer_papers.heads import HeadSearch, Treebank
from whyformer_papers.words.overlap import Counting

COMMANDS: dict[str, Any] = every_command().commands
OF_METHODS = {name: method for method in METHODS.values() for name in method.options}
ROWS, ANSWERS = "rows.csv", ["-m", "answers", "--question", "who won", "--context", "the humans won"]
BASES: dict[str, list[str]] = {
    "explain": ["a good film"],
    "compare": ["a good film", "--methods", "attcat"],
    "evaluate": ["-m", "sentiment", "--data", ROWS],
    "recommend": ["-m", "sentiment", "--data", ROWS],
    "tokens": ["-m", "sentiment", "--data", ROWS],
    "words": ["-m", "sentiment", "--data", ROWS],
    "reproduce": ["attcat-table-1"],
    "heads": ["--treebank", "trees.conllu"],
    "cost": [],
}
# What goes beside an option, in place of the command's usual arguments.
OVER_DATA = ("split", "limit", "sample", "on_error", "label", "column", "data")
BESIDE: dict[tuple[str, str], list[str]] = {
    **{("explain", name): ["-m", "sentiment", "--data", ROWS] for name in OVER_DATA},
    **{("compare", name): ["-m", "sentiment", "--data", ROWS, "--out", "folder"] for name in OVER_DATA},
    **{(command, "question"): ANSWERS for command in ("explain", "compare")},
    **{(command, "context"): ANSWERS for command in ("explain", "compare")},
    **{(command, "context_file"): ANSWERS[:4] for command in ("explain", "compare")},
    **{(command, "image"): [] for command in ("explain", "compare")},
    ("explain", "file"): ["-m", "sentiment"],
    ("compare", "effort"): ["a good film", "--methods", "auto"],
    ("heads", "texts"): [],
    ("heads", "spacy"): ["--texts", "lines.txt"],
    ("heads", "positional"): ["--texts", "lines.txt"],
    ("reproduce", "printed_texts"): ["--all", "--out", "folder"],
    ("words", "units"): ["-m", "sentiment", "--data", ROWS],
}
# The text that is given. Other options take what their default suggests.
TEXTS: dict[tuple[str, str] | str, str] = {
    "model": "other",
    "dtype": "float64",
    "device": "meta",
    "methods": "rollout",
    "names": "rollout",
    "metric_names": "sufficiency",
    "metric": "sufficiency",
    "effort": "balanced",
    "data": "other.csv",
    "out": "folder",
    "text": "body",
    "column": "body",
    "label": "stars",
    "split": "test",
    "on_error": "skip",
    "idf": "none",
    "engine": "ray",
    "windows": "merge",
    "protocol": "attcat",
    "explains": "log_odds",
    "memory": "low",
    "pair": "a bad one",
    "choice": "it rains",
    "target": "NEGATIVE",
    "versus": "runner_up",
    "word": "film,1",
    "question": "who lost",
    "context": "they lost",
    "context_file": "context.txt",
    "image": "photo.png",
    "file": "lines.txt",
    "texts": "lines.txt",
    "method": "rollout",
    "tokens": "16,32",
    "direction": "head_to_dependent",
    "pieces": "first",
    "units": "token",
    "models": "folder",
    "only": "imdb",
    "instead": "sst2=imdb",
    "heads": "sst2=mask.json",
    "lm_heads": "sst2=folder",
    "spacy": "pipeline",
    "treebank": "other.conllu",
    ("reproduce", "limit"): "sst2=7",
    ("reproduce", "pieces"): "joined",
    ("reproduce", "data"): "sst2=other.csv",
}
# What of it arrives, where that is not the text itself.
ARRIVES: dict[tuple[str, str] | str, str] = {
    "word": "('film', 1)",
    "context_file": "the file lost",
    "file": "line two",
    "texts": "line two",
    "tokens": "[16, 32]",
    "instead": "{'sst2': 'imdb'}",
    "heads": "mask.json",
    "lm_heads": "folder",
    ("reproduce", "limit"): "{'sst2': 7}",
    ("reproduce", "data"): "other.csv",
    "idf": "nothing",
    ("compare", "effort"): "stepwise(of=layer_lrp",
}
# The parameter under which an option arrives, where it has another name.
NAMES: dict[tuple[str, str] | str, str] = {
    "model": "name",
    "metric_names": "metrics",
    "column": "text",
    "chunk": "rows_per_chunk",
    "as_json": "json",
    "ceiling_rows": "ceiling",
    "data": "source",
    "choice": "choices",
    "image": "text",
    "context_file": "context",
    "pair": "text",
    "file": "text",
    "names": "methods",
    "treebank": "path",
    "texts": "texts",
    ("tokens", "chunk"): "rows_at_once",
    ("words", "chunk"): "rows_at_once",
    ("compare", "pair"): "input",
    ("compare", "image"): "input",
    ("compare", "effort"): "methods",
    ("heads", "spacy"): "pipeline",
    ("reproduce", "data"): "data",
    ("reproduce", "treebank"): "treebank",
    ("reproduce", "model"): "instead",
}
# These change what is printed or written. The tests of each command look at that.
SHOWN = {
    "explain": {"html", "out", "as_json", "tokens", "words", "trust"},
    "compare": {"html", "out", "as_json", "tokens", "words", "trust"},
    "report": {"html", "form", "examples"},
    "tokens": {"made", "lines", "form", "html", "out"},
    "words": {"made", "top", "lines", "form", "out", "overlap", "shared", "clouds", "font", "seed"},
    "heads": {"out", "figure", "positions"},
    "cost": {"as_json"},
    "demo": {"html"},
    "reproduce": {"listed", "every"},
}


class Stop(WhyformerError):
    """Raised in place of a function of the library that need not run."""


class Arrived(dict[str, list[Any]]):
    """What functions of the library were given, by the names of their parameters."""

    def note(self, values: Mapping[str, Any]) -> None:
        """Note values, and those of dictionaries among them."""
        for name, value in values.items():
            self.setdefault(name, []).append(value)
            of_tuple = value._asdict() if isinstance(value, Counting) else {}
            inner = vars(value) if isinstance(value, HeadSearch) else value if isinstance(value, Mapping) else of_tuple
            self.note({str(key): one for key, one in inner.items()})

    def noting(self, function: Callable[..., Any], runs: bool = False) -> Callable[..., Any]:
        """A function with the parameters of another that notes what it is given."""
        signature = inspect.signature(function)

        @functools.wraps(function)
        def noted(*given: Any, **named: Any) -> Any:
            self.note(signature.bind(*given, **named).arguments)
            if not runs:
                raise Stop
            return function(*given, **named)

        return noted


@pytest.fixture
def arrived(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Arrived:
    """Functions of the library that note what they are given and do not run, and models that need no loading."""
    monkeypatch.chdir(tmp_path)
    for name in (ROWS, "other.csv"):
        Path(name).write_text("text,label\na good film,1\na bad film,0\n")
    for name in ("trees.conllu", "other.conllu"):
        Path(name).write_text("1\tfilms\t_\t_\t_\t_\t0\troot\t_\t_\n\n")
    monkeypatch.setattr("sys.stdin", io.StringIO("a film"))
    Path("context.txt").write_text("the file lost")
    Path("lines.txt").write_text("line one\nline two\n")
    Path("photo.png").write_bytes(image_cases.png(image_cases.photo()))
    noted = Arrived()
    subjects = {"answers": answers, "pets": image_cases.subject}

    def load(name: str, **loading: Any) -> Explainer:
        noted.note({"name": name, **loading})
        return Explainer(subjects[name]()) if name in subjects else SENTIMENT

    monkeypatch.setattr(Explainer, "load", load)
    for method in ("explain", "compare", "cost", "stream"):
        monkeypatch.setattr(Explainer, method, noted.noting(getattr(Explainer, method)))
    opening, columns = (noted.noting(getattr(flags, name), runs=True) for name in ("open_dataset", "columns_of"))
    for module in (flags, tokens, words):
        monkeypatch.setattr(module, "open_dataset", opening)
        monkeypatch.setattr(module, "columns_of", columns)
    monkeypatch.setattr(heads, "Treebank", noted.noting(Treebank, runs=True))
    for module, name in SINKS:
        monkeypatch.setattr(module, name, noted.noting(getattr(module, name)))
    return noted


SENTIMENT = Explainer.load("sentiment")
SINKS = [
    *(
        (evaluate, "evaluate"),
        (evaluate, "recommend"),
        (tokens, "shortcuts"),
        (words, "word_tables"),
        (papers, "run"),
    ),
    *((papers, "run_all"), (heads, "head_statistics"), (heads, "positional_statistics"), (heads, "parsed_by")),
]


def answers() -> Any:
    return subject_of(questions.answering(), questions.tokenizer())


def options() -> list[tuple[str, str]]:
    """Every option of every command that arrives in the library."""
    listed = [(name, one) for name, command in COMMANDS.items() for one in command.params]
    of_type = [(name, one.name) for name, one in listed if one.param_type_name == "option"]
    return [(name, option) for name, option in of_type if option not in SHOWN.get(name, ())]


def looked_up(table: Mapping[Any, str], command: str, name: str) -> str | None:
    return table.get((command, name), table.get(name))


def is_of_a_method(command: str, name: str) -> bool:
    option = next(one for one in COMMANDS[command].params if one.name == name)
    return bool(option.rich_help_panel == "Options of the methods")


def given(command: str, name: str) -> tuple[list[str], str | None]:
    """The arguments, and the text of the value, if the option has one."""
    option = next(one for one in COMMANDS[command].params if one.name == name)
    base = list(BESIDE.get((command, name), BASES[command]))
    if is_of_a_method(command, name):
        text = of_method(OF_METHODS[name].options[name])
        return [*base, "--method", OF_METHODS[name].name, option.opts[0], text], text
    if option.is_flag:
        return [*base, (option.secondary_opts or option.opts)[0] if option.default is True else option.opts[0]], None
    text = looked_up(TEXTS, command, name) or ("0.37" if isinstance(option.default, float) else "7")
    place = next((place for place, word in enumerate(base) if word in option.opts), None)
    return [*base, option.opts[0], text] if place is None else [*base[: place + 1], text, *base[place + 2 :]], text


def of_method(option: Option) -> str:
    """A value of a method's option that is not the default, as it is written."""
    for text in ("2", "0.37", "true", "false", "film", *option.takes.replace(" | ", "|").split("|")):
        try:
            if option.parsed(text) != option.default:
                return text
        except BadOption:
            continue
    raise AssertionError(f"{option.name} takes nothing but its default")


def ran(arguments: list[str], arrived: Arrived) -> dict[str, str]:
    """What arrived when a command ran until the library was called."""
    arrived.clear()
    with contextlib.suppress(WhyformerError):
        invoke(arguments)
    return {name: repr(values) for name, values in arrived.items()}


@pytest.mark.parametrize(("command", "name"), options(), ids=str)
def test_an_option_arrives_under_its_name(command: str, name: str, arrived: Arrived) -> None:
    arguments, text = given(command, name)
    usual = ran([command, *BESIDE.get((command, name), BASES[command])], arrived)
    found = ran([command, *arguments], arrived)
    arrives_as = name if is_of_a_method(command, name) else looked_up(NAMES, command, name) or name
    assert arrives_as in found, f"{arguments}: only {sorted(found)} arrived"
    assert found[arrives_as] != usual.get(arrives_as), arguments
    if text is not None:
        assert (looked_up(ARRIVES, command, name) or text).casefold() in found[arrives_as].casefold()


def test_what_is_shown_is_an_option() -> None:
    for command, names in SHOWN.items():
        assert names <= {one.name for one in COMMANDS[command].params}
