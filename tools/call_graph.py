"""Which rooms of the package call which, measured while it runs: no two rooms call each other, none calls upwards.

    python tools/call_graph.py                    # a line for each of the calls below
    python tools/call_graph.py --calls stepwise   # only this one
    python tools/call_graph.py --edges            # and every edge between rooms, with the functions

A room is a package below `whyformer`, or a module beside them; `whyformer_papers` is one room above all. The order of
the rooms is `[tool.whyformer] layers` in pyproject.toml, the lowest first; `tests/contract/test_package.py` checks
imports against the same list. Each call is made once to warm up, and profiled the second time, with the bundled models.
An edge leads from the innermost function of the package that is running (whatever torch, captum, a decorator or a
context manager have put in between) to the one that begins.
Functions that call what they were given have no edges of their own.
Exits with 1 where two rooms call each other or an edge runs against the layers.
"""

import argparse
import gc
import json
import os
import shutil
import sys
import threading
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
CALLS = ("explain", "explain an image", "mask_lrp", "stepwise", "evaluate", "tokens", "reproduce")
PAPERS = "whyformer_papers"
TEXTS = ("a gorgeous, witty, seductive film that never once bores", "the plot is dull and the acting is worse")
WRAPPERS = ("validated.<locals>.run",)  # what a decorator puts around a function calls nothing of its own
CALLBACKS = (  # they call what they were given or what registered itself: whoever gave it knows both
    *(
        "Facts.once",
        "in_halves",
        "Case._scored",
        "_parts",
        "_check_at",
        "read",
        "with_flags.<locals>.decorated.<locals>.run",
    ),
)
Function = tuple[str, str]  # the file below the package, the name in it
Pair = tuple[str, str]


def layers() -> tuple[str, ...]:
    """The rooms, the lowest first: each calls and imports only those before it."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        return tuple(tomllib.load(file)["tool"]["whyformer"]["layers"])


def room_of(file: str) -> str:
    """The room of a file below the package: its first folder, or the module's name."""
    return file.split("/")[0].removesuffix(".py")


@dataclass
class Graph:
    """The functions that were entered from which, in one call."""

    calls: set[tuple[Function, Function]] = field(default_factory=set)
    entered: set[str] = field(default_factory=set)

    @property
    def files(self) -> set[Pair]:
        """The edges between files."""
        return {(caller[0], callee[0]) for caller, callee in self.calls if caller[0] != callee[0]}

    @property
    def rooms(self) -> set[Pair]:
        """The edges between rooms."""
        pairs = {(room_of(caller), room_of(callee)) for caller, callee in self.files}
        return {pair for pair in pairs if pair[0] != pair[1]}

    def upwards(self, order: tuple[str, ...]) -> list[Pair]:
        """The edges that run against the layers, sorted; a room without a layer stands above all."""
        place = {room: number for number, room in enumerate(order)}
        return sorted(
            pair for pair in self.rooms if place.get(pair[0], len(order)) < place.get(pair[1], len(order) + 1)
        )

    def behind(self, pair: Pair) -> list[str]:
        """The functions that make an edge between two rooms, as text."""
        return sorted(
            f"{caller[0]}:{caller[1]} -> {callee[0]}:{callee[1]}"
            for caller, callee in self.calls
            if (room_of(caller[0]), room_of(callee[0])) == pair
        )


def two_way(pairs: set[Pair]) -> list[Pair]:
    """The pairs that are there in both directions, once each."""
    return sorted(pair for pair in pairs if pair[0] < pair[1] and pair[::-1] in pairs)


@contextmanager
def profiled(graph: Graph) -> Iterator[None]:
    """Note every call of a function of the package, in this thread and those that it starts."""
    import whyformer

    core = Path(whyformer.__file__).parent
    folders = {f"{core}{os.sep}": "", f"{core.parent / PAPERS}{os.sep}": f"{PAPERS}/"}

    def function_of(frame: FrameType) -> Function | None:
        code = frame.f_code
        for folder, room in folders.items():
            if code.co_filename.startswith(folder) and code.co_qualname not in WRAPPERS:
                return room + code.co_filename.removeprefix(folder).replace(os.sep, "/"), code.co_qualname
        return None

    def note(frame: FrameType, event: str, argument: Any) -> None:
        if event != "call" or (callee := function_of(frame)) is None:
            return
        graph.entered.add(callee[0])
        caller, outer = None, frame.f_back
        while outer is not None and caller is None:
            caller, outer = function_of(outer), outer.f_back
        if caller is not None and caller[1] not in CALLBACKS:
            graph.calls.add((caller, callee))

    gc.collect()
    gc.disable()  # it ends generators in the middle of other functions
    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
        gc.enable()


def workloads(folder: Path) -> dict[str, Callable[[], object]]:
    """The calls that are measured, by name; `folder` is theirs to write to."""
    from whyformer import Explainer
    from whyformer.cli.app import invoke
    from whyformer.evaluation.evaluate import evaluate
    from whyformer.evaluation.shortcuts import shortcuts
    from whyformer.models.load import BUNDLED, load

    subject = load("sentiment")
    explainer, pets = Explainer(subject), Explainer.load("pets")
    (folder / "data" / "sst2").mkdir(parents=True)
    rows = [json.dumps({"text": text, "label": 1 - number}) for number, text in enumerate(TEXTS)]
    (folder / "data" / "sst2" / "validation.jsonl").write_text("\n".join(rows))

    def reproduce() -> None:
        command = ["reproduce", "attcat-table-1", "--only", "sst2", "--model", "sst2=sentiment"]
        command += ["--data", str(folder / "data"), "--out", str(folder / "out")]
        with (folder / "printed").open("w") as printed, redirect_stdout(printed), redirect_stderr(printed):
            invoke(command)
        shutil.rmtree(folder / "out")  # so that the second time measures again

    return {
        "explain": lambda: explainer.explain(TEXTS[0]),
        "explain an image": lambda: pets.explain(BUNDLED / "pets" / "maine_coon.jpg"),
        "mask_lrp": lambda: explainer.explain(TEXTS[0], "mask_lrp"),
        "stepwise": lambda: explainer.explain(TEXTS[0], "stepwise", steps=3),
        "evaluate": lambda: evaluate(subject, list(TEXTS), methods="attcat,rollout", metrics="aopc,kendall_tau"),
        "tokens": lambda: shortcuts(subject, list(TEXTS), "attcat"),
        "reproduce": reproduce,
    }


def measured(names: list[str]) -> dict[str, Graph]:
    """The graph of each call, the second time that it is made."""
    graphs = {}
    with TemporaryDirectory() as folder:
        calls = workloads(Path(folder))
        for name in names:
            calls[name]()
            graphs[name] = Graph()
            with profiled(graphs[name]):
                calls[name]()
    return graphs


def report(graphs: dict[str, Graph], order: tuple[str, ...], *, edges: bool) -> bool:
    """Print what was measured; whether all edges run downwards."""
    print("| call | modules | edges | two-way files | rooms | edges | two-way | upwards |")
    print("|---|---|---|---|---|---|---|---|")
    wrong: dict[Pair, set[str]] = {}
    for name, graph in graphs.items():
        rooms = {room_of(file) for file in graph.entered}
        both, up = two_way(graph.rooms), graph.upwards(order)
        print(
            f"| {name} | {len(graph.entered)} | {len(graph.files)} | {len(two_way(graph.files))} "
            f"| {len(rooms)} | {len(graph.rooms)} | {len(both)} | {len(up)} |"
        )
        for pair in graph.rooms if edges else up:
            wrong.setdefault(pair, set()).update(graph.behind(pair))
    for (caller, callee), functions in sorted(wrong.items()):
        print(f"\n{caller} -> {callee}", *sorted(functions), sep="\n    ")
    return not any(two_way(graph.rooms) or graph.upwards(order) for graph in graphs.values())


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", default=",".join(CALLS), help="which calls, commas between")
    parser.add_argument("--edges", action="store_true", help="show all edges between rooms, not only wrong ones")
    options = parser.parse_args()
    names = options.calls.split(",")
    if unknown := [name for name in names if name not in CALLS]:
        parser.error(f"there is no call {unknown[0]!r}; known are {', '.join(CALLS)}")
    sys.exit(0 if report(measured(names), layers(), edges=options.edges) else 1)


if __name__ == "__main__":
    main()
