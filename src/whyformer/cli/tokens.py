"""The command that counts the words that a model relies on: tokens."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from whyformer.cli.app import HtmlOption, Loading, MethodsOption, TextColumn, app, check_files, with_model
from whyformer.cli.evaluate import EngineOption, WorkersOption
from whyformer.cli.flags import LabelColumn, RowFlags, columns_of, with_rows
from whyformer.cli.process import put, say
from whyformer.datasets import open_dataset
from whyformer.errors import BadOption
from whyformer.evaluation.shortcuts import CHECK, ShortcutReport, load_reports, save_reports, shortcuts
from whyformer.progress import counting
from whyformer.show.grid import as_csv
from whyformer.show.shortcuts import LINES, numbers
from whyformer.storage.files import write

FORMS = {"text": ShortcutReport.to_text, "markdown": ShortcutReport.to_markdown}


@app.command("tokens")
@with_model
@with_rows
def tokens_command(
    *,
    data: Annotated[str | None, typer.Option("--data", help="Texts, as for `evaluate`. See docs/datasets.md.")] = None,
    methods: MethodsOption = "auto",
    made: Annotated[Path | None, typer.Option("--from", help="A file that --out wrote: nothing is run.")] = None,
    lines: Annotated[int, typer.Option(help="How many words are printed.")] = LINES,
    form: Annotated[str, typer.Option("--format", help="text or markdown, on standard output.")] = "text",
    wrong: Annotated[
        bool,
        typer.Option("--wrong", help="Count only the texts of which the model says another class than their label."),
    ] = False,
    check: Annotated[
        int | None,
        typer.Option(help=f"From how many texts a word is deleted, to see what the model says then. Default: {CHECK}."),
    ] = None,
    html: HtmlOption = None,
    out: Annotated[
        Path | None, typer.Option(help="Write the words to this file: JSON, or .csv, a row for each word.")
    ] = None,
    text: TextColumn = None,
    label: LabelColumn = None,
    chunk: Annotated[int | None, typer.Option("--chunk", help="RowFlags that are explained together.")] = None,
    engine: EngineOption = "local",
    workers: WorkersOption = None,
    rows: RowFlags,
    loading: Loading,
) -> None:
    """Find the words that a model relies on over many texts."""
    if (data is None) == (made is None):
        raise BadOption("give --data, the texts to be explained, or --from, what --out wrote before")
    if made is not None:
        _refuse_beside_words(wrong=wrong or None, check=check, label=label)
    if form not in FORMS:
        raise BadOption(f"--format {form}: known are {', '.join(FORMS)}")
    if lines < 1:
        raise BadOption(f"--lines is at least 1; found {lines}")
    check_files([out, html])
    if made is not None:
        reports = load_reports(made)
    else:
        assert data is not None
        subject = loading.explainer(data).subject
        opened = open_dataset(data, columns=columns_of(text, label), **vars(rows))
        checked = CHECK if check is None else check
        with counting("tokens"):
            reports = shortcuts(
                *(subject, opened, methods),
                wrong=wrong,
                check=checked,
                rows_at_once=chunk,
                engine=engine,
                workers=workers,
            )
    put("\n\n".join(FORMS[form](report, lines) for report in reports.values()))
    put_remarks({method: report.provenance for method, report in reports.items()})
    if out is not None:
        say(f"wrote {_written(reports, out)}")
    if html is not None:
        from whyformer.show.shortcuts import shortcuts_page

        say(f"wrote {write(html, shortcuts_page(reports))}")


def _refuse_beside_words(**options: object) -> None:
    """Raise for what is done while texts are explained, where only words are read."""
    if stated := [name for name, value in options.items() if value is not None]:
        raise BadOption(f"--{stated[0]} is for texts that are explained, and --from has words: leave one out")


def _written(reports: Mapping[str, ShortcutReport], path: Path) -> Path:
    if path.suffix.casefold() != ".csv":
        return save_reports(reports, path)
    return write(path, as_csv(numbers(reports.values())))


def put_remarks(provenances: Mapping[str, Mapping[str, Any]]) -> None:
    """What a reader must know beside the words."""
    about = next(iter(provenances.values()))
    if about.get("interrupted"):
        say(f"interrupted: this is of the first {about['rows']} texts")
    if about.get("skipped"):
        first = about.get("first_skipped")
        say(f"{about['skipped']} rows were skipped (counted from 0), the first is {first}")
    if about.get("cut"):
        say(f"{about['cut']} texts were cut at the model's window")
    if about.get("unlabelled"):
        say(f"{about['unlabelled']} texts have no label of this model, the first is {about['first_unlabelled']}")
    for method, provenance in provenances.items():
        for reason, count in provenance.get("refused", {}).items():
            say(f"{method} refused {count} texts: {reason}")
