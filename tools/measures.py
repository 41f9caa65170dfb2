"""Measures of the code: how much one call executes, and how large and how tangled the package is.

    make measures                         # a line for each measure
    python tools/measures.py --files      # and the lines of each file that a call executes

A call is made once to warm up and followed the second time: whoever wants to understand it has to read the files that
it enters and the lines that it executes. The measures in `LIMITS` may only fall, and a test holds them.
"""

import argparse
import ast
import re
import sys
import tempfile
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "whyformer"
TEXTS = ("a gorgeous, witty, seductive film that never once bores", "the plot is dull and the acting is worse")
LABELED = tuple((text, label) for text, label in zip(TEXTS, ("POSITIVE", "NEGATIVE"), strict=True))
TYPE_NAME = re.compile(r"_?[A-Z][a-z]+[A-Za-z]*")
ASKS_FOR_THE_TASK = re.compile(  # whether a line depends on which task a model has
    r"\btask(\.name|_name\([^)]*\))?\s*(==|!=|in|not in)\s|subject\.task\b|\.by_rows\b|task\.form\b|\.compares\b"
    r"|isinstance\([^)]*task|task\.(gives|does)"
)
LIMITS = {
    "explain: files": 46,
    "explain: lines": 1_432,
    "evaluate: files": 74,
    "evaluate: lines": 2_630,
    "type names with several meanings": 0,
    "public members of Prediction": 52,
    "lines that ask which task it is": 66,
}

Executed = dict[str, set[int]]  # of each file, the lines


def executed(call: Callable[[], Any]) -> Executed:
    """The lines of the package that the second of two calls executes, in all its threads."""
    call()
    lines: defaultdict[str, set[int]] = defaultdict(set)

    def follow(frame: FrameType, event: str, _: Any) -> Any:
        name = frame.f_code.co_filename
        if not name.startswith(str(PACKAGE)):
            return None
        if event == "line":
            lines[str(Path(name).relative_to(PACKAGE))].add(frame.f_lineno)
        return follow

    before = sys.gettrace()
    threading.settrace(follow)
    sys.settrace(follow)
    try:
        call()
    finally:
        sys.settrace(before)
        threading.settrace(before)
    return dict(lines)


def calls() -> dict[str, Callable[[], Any]]:
    """The calls that are followed."""
    from whyformer import Explainer
    from whyformer.evaluation.shortcuts import shortcuts

    sentiment, pets = Explainer.load("sentiment"), Explainer.load("pets")
    photo = str(PACKAGE / "bundled" / "pets" / "maine_coon.jpg")

    def evaluate() -> None:
        with tempfile.TemporaryDirectory() as folder:
            options: dict[str, Any] = {"methods": "attcat,random", "metrics": "aopc,log_odds", "progress": False}
            sentiment.evaluate(list(LABELED), out=folder, **options)

    return {
        "explain": lambda: sentiment.explain(TEXTS[0], check=0),
        "evaluate": evaluate,
        "explain an image": lambda: pets.explain(photo, check=0),
        "tokens": lambda: shortcuts(sentiment.subject, list(LABELED), "attcat"),
    }


def spines(*names: str) -> dict[str, Executed]:
    """The lines that each of the calls executes, or each of those named."""
    return {name: executed(call) for name, call in calls().items() if not names or name in names}


def sources(folder: Path | None = None) -> Iterator[tuple[Path, str]]:
    """The Python files of the package, or below another folder, with what they hold."""
    for path in sorted((folder or PACKAGE).rglob("*.py")):
        yield path, path.read_text(encoding="utf-8")


def homonyms() -> dict[str, int]:
    """The names of classes and types that several files define, with how many do."""
    found: Counter[str] = Counter()
    for _, source in sources():
        names = set()
        for node in ast.parse(source).body:
            if isinstance(node, ast.ClassDef):
                names.add(node.name)
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            names |= {t.id for t in targets if isinstance(t, ast.Name) and TYPE_NAME.fullmatch(t.id)}
        found.update(names)
    return {name: count for name, count in found.items() if count > 1}


def members(of: type) -> list[str]:
    """The public methods, properties and attributes of a class."""
    named = {name for kind in of.__mro__[:-1] for name in (*vars(kind), *getattr(kind, "__annotations__", {}))}
    source = ast.parse(Path(sys.modules[of.__module__].__file__ or "").read_text(encoding="utf-8"))
    body = next(node for node in source.body if isinstance(node, ast.ClassDef) and node.name == of.__name__)
    for node in ast.walk(body):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and _is_self(node.value):
            named.add(node.attr)
    return sorted(name for name in named if not name.startswith("_"))


def _is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"


def lines_that_ask_for_the_task() -> int:
    """How many lines outside `tasks` depend on which task a model has."""
    lines = [line for path, source in sources() if path.parent.name != "tasks" for line in source.splitlines()]
    return sum(bool(ASKS_FOR_THE_TASK.search(line)) for line in lines)


def options(of_papers: bool) -> int:
    """The options of all commands, without --help; those of the papers' commands or of all others."""
    from whyformer.cli.app import every_command

    commands = every_command().commands.values()
    chosen = [one for one in commands if one.callback.__module__.startswith("whyformer_papers.") is of_papers]
    return sum(p.param_type_name == "option" and p.name != "help" for one in chosen for p in one.params)


def limited(spine: dict[str, Executed]) -> dict[str, int]:
    """The measures that have limits."""
    from whyformer.prediction import Prediction

    lines = {name: sum(map(len, files.values())) for name, files in spine.items()}
    return {
        **{f"{name}: files": len(spine[name]) for name in ("explain", "evaluate")},
        **{f"{name}: lines": lines[name] for name in ("explain", "evaluate")},
        "type names with several meanings": len(homonyms()),
        "public members of Prediction": len(members(Prediction)),
        "lines that ask which task it is": lines_that_ask_for_the_task(),
    }


def unlimited(spine: dict[str, Executed]) -> dict[str, int]:
    """The other measures, to steer by."""
    others: dict[str, int] = {}
    for name in ("explain an image", "tokens"):
        others |= {f"{name}: files": len(spine[name]), f"{name}: lines": sum(map(len, spine[name].values()))}
    core, tests = list(sources()), list(sources(ROOT / "tests"))
    return {
        **others,
        "lines of the package": sum(source.count("\n") for _, source in core),
        "files of the package": len(core),
        "lines of tests": sum(source.count("\n") for _, source in tests),
        "options on the command line": options(of_papers=False),
        "options of the papers' commands": options(of_papers=True),
    }


def main() -> None:
    """Print the measures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", action="store_true", help="also the lines of each file that a call executes")
    arguments = parser.parse_args()
    spine = spines()
    for name, number in (limited(spine) | unlimited(spine)).items():
        print(f"{number:>7,}  {name}" + (f"  (at most {LIMITS[name]:,})" if name in LIMITS else ""))
    for name, files in spine.items() if arguments.files else ():
        print(f"\n{name}")
        for file, lines in sorted(files.items(), key=lambda one: -len(one[1])):
            print(f"{len(lines):>7,}  {file}")


if __name__ == "__main__":
    main()
