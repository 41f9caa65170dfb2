"""The commands that measure: evaluate, recommend, report, metrics."""

from pathlib import Path
from typing import Annotated, Any

import typer

from whyformer.cli.app import (
    CaptureOption,
    EffortOption,
    HtmlOption,
    Loading,
    MethodsOption,
    OverlapOption,
    TextColumn,
    WindowSizeOption,
    app,
    check_files,
    put_registry,
    with_model,
)
from whyformer.cli.flags import LabelColumn, RowFlags, WindowsOption, left_in, opened, with_rows
from whyformer.cli.process import put, say
from whyformer.errors import BadOption
from whyformer.evaluation.evaluate import EVERY_ROW, IMAGE_METRICS, METRICS, Results, evaluate
from whyformer.evaluation.journal import Journal
from whyformer.evaluation.recommend import LAYER_METRIC, LAYERED, METRIC, TEXTS, recommend
from whyformer.explain.folder import KIND, PAGE, kept_examples
from whyformer.methods.method import FAST, SHORT
from whyformer.metrics.metric import METRICS as REGISTRY
from whyformer.metrics.metric import Metric
from whyformer.show.render import text_of
from whyformer.storage.files import write

EngineOption = Annotated[str, typer.Option(help="local, or ray: several workers, each with its own model.")]
WorkersOption = Annotated[int | None, typer.Option(help="How many workers the engine ray has.")]


@app.command("evaluate")
@with_model
@with_rows
def evaluate_command(
    *,
    data: Annotated[
        str, typer.Option(help="A file or folder, a recipe (sst2@attcat), or hub:NAME. See docs/datasets.md.")
    ],
    methods: MethodsOption = SHORT,
    effort: EffortOption = None,
    metric_names: Annotated[
        str | None,
        typer.Option(
            "--metrics",
            help=f"As --methods; see `whyformer metrics`. Default: {METRICS}, for images {IMAGE_METRICS}.",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="A folder for the journal and the tables; run again to go on.")
    ] = None,
    text: TextColumn = None,
    label: LabelColumn = None,
    ceiling: Annotated[
        bool, typer.Option("--ceiling", help="Add what is attainable, for texts of at most 64 units, or images.")
    ] = False,
    ceiling_rows: Annotated[int | None, typer.Option(help="For how many rows, from the first on.")] = None,
    beam: Annotated[int, typer.Option(help="How many orders the search for the ceiling follows.")] = 1,
    engine: EngineOption = "local",
    workers: WorkersOption = None,
    chunk: Annotated[int | None, typer.Option(help="RowFlags that are measured and journalled together.")] = None,
    tokens_per_batch: Annotated[int | None, typer.Option(help="Tokens in one run of the model.")] = None,
    capture: CaptureOption = True,
    windows: WindowsOption = "cut",
    window_size: WindowSizeOption = None,
    overlap: OverlapOption = None,
    protocol: Annotated[
        str | None, typer.Option(help="Run and explain the model as the authors' code does: attcat or mask_lrp.")
    ] = None,
    explains: Annotated[
        str | None,
        typer.Option(help="What is explained of each predicted class: logit, or log_odds (default: as in explain)."),
    ] = None,
    versus: Annotated[
        str | None, typer.Option(help="runner_up: explain each rather than the most probable other class.")
    ] = None,
    keep_scores: Annotated[
        bool, typer.Option("--keep-scores", help="Keep scores and texts in --out, for `report --examples`.")
    ] = False,
    rows: RowFlags,
    loading: Loading,
) -> None:
    """Measure how good the explanations of methods are, on a data set."""
    subject = loading.explainer(data).subject
    options: dict[str, Any] = {"effort": effort, "engine": engine, "workers": workers, "beam": beam}
    options |= {"rows_per_chunk": chunk, "tokens_per_batch": tokens_per_batch, "capture": capture}
    options |= {"windows": windows, "window_size": window_size, "overlap": overlap}
    options |= {"keep_scores": keep_scores, "protocol": protocol, "explains": explains, "versus": versus}
    searched = ceiling_rows if ceiling_rows is not None else EVERY_ROW if ceiling else 0
    dataset = opened(subject, data, text, label, **vars(rows))
    try:
        table = evaluate(subject, dataset, methods, metric_names, out=out, ceiling=searched, **options)
    except KeyboardInterrupt:
        say("nothing was kept: give --out" if out is None else left_in(out))
        raise
    put(str(table), coloured=True)
    if out is not None:
        say(f"wrote table.md, table.csv, table.tex and curves to {out}")


@app.command("recommend")
@with_model
@with_rows
def recommend_command(
    *,
    data: Annotated[str, typer.Option(help="Your own texts, as for `evaluate`.")],
    methods: MethodsOption = FAST,
    metric: Annotated[
        str | None, typer.Option(help=f"What to rank by. Default: {METRIC}, or {LAYER_METRIC} for layers.")
    ] = None,
    layers: Annotated[
        bool, typer.Option("--layers", help=f"Rank the layers of a method instead, by default of {LAYERED}.")
    ] = False,
    effort: EffortOption = None,
    out: Annotated[Path | None, typer.Option(help="A folder for the journal; run again to go on.")] = None,
    text: TextColumn = None,
    label: LabelColumn = None,
    rows: RowFlags,
    loading: Loading,
) -> None:
    """Find the method, or the layer, to use on your own texts, and print the option that uses it."""
    subject = loading.explainer(data).subject
    dataset = opened(subject, data, text, label, **rows.or_sampled(TEXTS))
    recommendation = recommend(subject, dataset, methods, metric, layers=layers, effort=effort, out=out)
    put(str(recommendation), coloured=True)


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(help="The folder that `evaluate --out` wrote.")],
    *,
    html: HtmlOption = None,
    form: Annotated[str, typer.Option("--format", help="text, markdown, csv or latex, on standard output.")] = "text",
    examples: Annotated[
        str | None, typer.Option(help="A page of the texts instead, highlighted: all, wrong, or how many.")
    ] = None,
) -> None:
    """Show what an evaluation found, also while it runs: the table, a page with tables and curves, or the texts."""
    check_files([html])
    if examples is not None:
        _write_examples(folder, html, examples)
        return
    journal = Journal.read(folder)
    if journal.run.get("kind") == KIND:
        raise BadOption(f"{folder} holds explanations, and no evaluation: open {PAGE} in it")
    table = Results.of(journal.chunks(), journal.run).table()
    if html is not None:
        say(f"wrote {write(html, text_of(table, 'html'))}")
    else:
        put(text_of(table, form).rstrip("\n"), coloured=form == "text")


def _write_examples(folder: Path, html: Path | None, examples: str) -> None:
    if html is None:
        raise BadOption("--examples writes a page: give --html FILE")
    from whyformer.show.lists import index_page

    which: Any = int(examples) if examples.isdecimal() else examples
    say(f"wrote {write(html, index_page(kept_examples(folder, which), Journal.read(folder).run.get('about', {})))}")


def _listed(metric: Metric) -> tuple[str, ...]:
    better = "↑" if metric.higher_is_better else "↓"
    needs = [*sorted(metric.needs), *([] if metric.takes == "any" else [metric.takes])]
    return metric.name, metric.family, better, ", ".join(needs), metric.summary, metric.paper


@app.command("metrics")
def metrics_command(name: Annotated[str | None, typer.Argument(help="One metric, with its options.")] = None) -> None:
    """List the metrics, or describe one."""
    put_registry(REGISTRY, name, ("metric", "family", "better", "needs", "what it measures", "paper"), _listed)
