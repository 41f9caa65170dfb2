"""Command lines that nobody should type: valid ones with values, options and files exchanged at random."""

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

TEXT = "a fine film, if a little long"
NASTY = (
    "",
    " ",
    "-",
    "--",
    "-1",
    "0",
    "1e400",
    "nan",
    "inf",
    "9" * 5000,
    "1000000000",
    "true",
    "none",
    "null",
    "é" * 300,
    "a" * 70_000,
    "💥🏽\u200d",
    "\x1b]0;PWNED\x07",
    "\x1b[2J\x9b31mred",
    "\x1b[31mred\x1b[0m",
    "\u202eevil\u2066",
    "\udcff\udc80",
    "line\r\nline\x0b\x0c",
    "%s%n{}{0}",
    "$(touch pwned); `touch pwned`",
    "<script>alert(1)</script>",
    '=HYPERLINK("x")',
    "../../outside",
    "/nowhere/at/all.json",
    "/dev/null",
    "attcat(",
    "attcat(states=",
    "attcat(states=x)",
    "stepwise(of=stepwise)",
    "integrated_gradients(steps=1000000000)",
    "smooth_grad(samples=-1)",
    "aopc(hide=nothing)",
    "[" * 2000,
    "(((((",
    "POSITIVE",
    "LABEL_0,LABEL_0",
    "1,2,3",
    "cuda:99",
    "float8_e4m3fn",
    "meta",
)


@dataclass(frozen=True)
class Workspace:
    """A folder with a tiny model and small files, good and bad, for command lines to name."""

    folder: Path
    model: Path

    def files(self) -> list[str]:
        """What can be named as a file."""
        return sorted(str(path) for path in self.folder.iterdir())


def prepare(folder: Path, model: Path) -> Workspace:
    """Write the files."""
    rows = [("a fine film", 1), ("a dull film", 0), ("not a film", 0)]
    (folder / "ok.csv").write_text("text,label\n" + "".join(f"{text},{label}\n" for text, label in rows))
    (folder / "ok.jsonl").write_text("".join(json.dumps({"text": t, "label": n}) + "\n" for t, n in rows))
    (folder / "header.csv").write_text("text,label\n")
    (folder / "escape.csv").write_text("\x1b[2Jtext,\x9blabel\na,1\n", encoding="utf-8")
    (folder / "deep.jsonl").write_text("[" * 50_000 + "\n")
    (folder / "bytes.csv").write_bytes(bytes(range(256)))
    (folder / "empty").write_bytes(b"")
    (folder / "lines.txt").write_text("a fine film\na dull film\n")
    (folder / "bom.txt").write_text("\ufeffa fine film\n", encoding="utf-8")
    (folder / "trees.conllu").write_text(
        "1\tit\tit\tPRON\t_\t_\t2\tnsubj\t_\t_\n2\tis\tbe\tAUX\t_\t_\t0\troot\t_\t_\n\n"
    )
    (folder / "bad.conllu").write_text(f"1\tit\tit\tPRON\t_\t_\t{'9' * 5000}\tnsubj\t_\t_\n\n")
    (folder / "why.json").write_text('{"schema": "whyformer/explanation", "schema_version": 99}')
    (folder / "b\udce9d.csv").write_text("text,label\na fine film,1\n")
    (folder / "run").mkdir()
    (folder / "run" / "journal.jsonl").write_text('{"schema": "x"}\n')
    return Workspace(folder, model)


def command_lines(workspace: Workspace, seed: int, count: int) -> Iterator[list[str]]:
    """Command lines, the same for the same seed."""
    stream = random.Random(seed)
    for _ in range(count):
        yield _changed(list(stream.choice(_valid(workspace))), workspace, stream)


def _valid(workspace: Workspace) -> list[list[str]]:
    """Command lines that work, or nearly so."""
    model = ["--model", str(workspace.model)]
    data = ["--data", str(workspace.folder / "ok.csv")]
    out = str(workspace.folder / "out")
    return [
        ["explain", TEXT, *model],
        ["explain", TEXT, *model, "--method", "attcat", "--states", "inputs", "--words"],
        ["explain", TEXT, *model, "--target", "1", "--versus", "0", "--json"],
        ["explain", TEXT, *model, "--pair", "another text", "--html", f"{out}.html"],
        ["explain", "--file", str(workspace.folder / "lines.txt"), *model, "--batch-size", "2"],
        ["explain", "--file", str(workspace.folder / "ok.csv"), *model],
        ["explain", "--question", "who?", "--context", TEXT, *model],
        ["explain", TEXT, *model, "--effort", "balanced"],
        ["explain", TEXT, *model, "--method", "integrated_gradients", "--steps", "3"],
        ["compare", TEXT, *model, "--methods", "attcat,rollout", "--html", f"{out}.html"],
        ["methods"],
        ["methods", "attcat"],
        ["metrics", "aopc"],
        ["evaluate", *data, *model, "--methods", "random,attcat", "--metrics", "aopc", "--limit", "2"],
        ["evaluate", *data, *model, "--methods", "random", "--metrics", "aopc", "--out", out, "--on-error", "skip"],
        ["evaluate", *data, *model, "--methods", "random", "--text", "text", "--label", "label", "--chunk", "1"],
        ["tokens", *data, *model, "--methods", "attcat", "--out", f"{out}.json", "--top", "3"],
        ["tokens", "--from", str(workspace.folder / "why.json")],
        ["heads", "--treebank", str(workspace.folder / "trees.conllu"), *model, "--out", f"{out}.json"],
        ["heads", "--texts", str(workspace.folder / "lines.txt"), *model, "--figure", f"{out}.png"],
        ["report", str(workspace.folder / "run"), "--format", "csv"],
        ["recommend", *data, *model, "--methods", "random,attcat", "--limit", "2"],
        ["cost", *model, "--tokens", "8", "--methods", "random,rollout", "--seconds", "1", "--batch", "2"],
        ["reproduce", "--list"],
        ["reproduce", "attcat-table-1", "--limit", "1"],
    ]


def _changed(words: list[str], workspace: Workspace, stream: random.Random) -> list[str]:
    """One to three random changes; the command itself stays, but for one in twenty."""
    flags = [word for line in _valid(workspace) for word in line if word.startswith("--")]
    for _ in range(stream.randint(1, 3)):
        at = stream.randrange(1, len(words)) if len(words) > 1 else 0
        change = stream.randrange(6)
        if change <= 2 and at:
            words[at] = _value(workspace, stream)
        elif change == 3:
            words += [stream.choice(flags), _value(workspace, stream)]
        elif change == 4 and at:
            del words[at]
        elif stream.random() < 0.3:
            words[0] = _value(workspace, stream)
        else:
            words.insert(at, stream.choice(flags))
    return words


def _value(workspace: Workspace, stream: random.Random) -> str:
    kinds: tuple[Sequence[str], ...] = (NASTY, NASTY, workspace.files(), (str(workspace.folder), str(workspace.model)))
    return stream.choice(stream.choice(kinds))
