"""Output formats: what results look like as text, as a page, as data, as a picture or as a table.

A format is an object that knows a function for each kind of result; all formats stand in one registry, which plug-ins
add to. What a function needs is imported when it is called: nobody waits for matplotlib who does not draw.
"""

import json
from collections.abc import Callable, Sequence
from functools import singledispatch
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

from whyformer.errors import BadOption
from whyformer.registry.names import Registry
from whyformer.results.cost import CostTableData
from whyformer.results.evaluation import TableData
from whyformer.results.explanation import ComparisonData, ExplanationData
from whyformer.results.explanations import ExplanationsData
from whyformer.results.shortcuts import ShortcutReportData
from whyformer.results.trust import TrustData
from whyformer.show.colors import Scale, written
from whyformer.show.grid import Grid, Words, as_csv, as_latex, as_markdown
from whyformer.show.layout import picture_in, prepared, row_names, shown_places
from whyformer.storage.files import path_of, write_bytes

Content = str | bytes
RenderableExplanation = ExplanationData | ComparisonData[Any]
F = TypeVar("F", bound=Callable[..., Content])

PICTURES = ("png", "svg", "pdf")
BOX = ("left", "top", "right", "bottom")


class OutputFormat:
    """One way to write results; `endings` are those of its files, the usual one first."""

    def __init__(self, name: str, *endings: str):
        self.name, self.endings = name, endings
        self._function = singledispatch(self._refuse)

    def of(self, *kinds: type) -> Callable[[F], F]:
        """Register what turns results of these kinds, and of kinds made from them, into text or bytes."""

        def registered(function: F) -> F:
            for kind in kinds:
                self._function.register(kind, function)
            return function

        return registered

    def takes(self, kind: type) -> bool:
        """Whether it can write results of this kind."""
        return self._function.dispatch(kind) is not self._function.dispatch(object)

    def check(self, kind: type) -> None:
        """Raise if it cannot write results of this kind."""
        if not self.takes(kind):
            known = [name for name, other in FORMATS.listed().items() if other.takes(kind)]
            raise BadOption(f"{kind.__name__} cannot be written as {self.name}; known: {', '.join(known) or 'none'}")

    def __call__(self, result: Any, **options: Any) -> Content:
        """The result in this format."""
        return self._function(result, **options)

    def _refuse(self, result: Any, **_: Any) -> Content:
        self.check(type(result))
        raise AssertionError("a kind of result that can be written is not refused")


FORMATS: Registry[OutputFormat] = Registry("format", "formats")


def output_format(name: str, *endings: str) -> OutputFormat:
    """A new output format, registered under its name."""
    made = OutputFormat(name, *endings)
    FORMATS.add(name, made)
    return made


def render(result: Any, form: str, **options: Any) -> Content:
    """A result in the format of that name."""
    return FORMATS.named(form)(result, **options)


def text_of(result: Any, form: str, **options: Any) -> str:
    """A result in the format of that name, which has to be text."""
    content = render(result, form, **options)
    if isinstance(content, bytes):
        raise BadOption(f"{form} is no text that could be shown here: write it to a file, with save")
    return content


def endings() -> set[str]:
    """The endings of the files of all formats."""
    return {ending for form in FORMATS.listed().values() for ending in form.endings}


def format_of(path: str | Path) -> OutputFormat:
    """The format that the ending of a file tells; JSON where there is none."""
    ending = path_of(path).suffix.casefold() or ".json"
    every = FORMATS.listed().values()
    for form in every:
        if ending in form.endings:
            return form
    known = ", ".join(sorted(endings()))
    raise BadOption(f"{str(path)!r} has the ending of no output format: known are {known}")


class Renderable:
    """What results that can be shown have in common."""

    def render(self, form: str, **options: Any) -> Content:
        """The result in an output format, by its name: text, html, json, csv …; pictures are bytes."""
        return render(self, form, **options)

    def save(self, path: str | Path, **options: Any) -> Path:
        """Write it in the format that the ending of the file tells, whose options are taken: `.json` can be loaded."""
        content = format_of(path)(self, **options)
        return write_bytes(path, content if isinstance(content, bytes) else content.encode("utf-8", "backslashreplace"))

    def __str__(self) -> str:
        return text_of(self, "text")


TEXT = output_format("text", ".txt")
HTML = output_format("html", ".html", ".htm")
JSON = output_format("json", ".json")
JSON_LINES = output_format("jsonl", ".jsonl", ".ndjson")
CSV = output_format("csv", ".csv")
MARKDOWN = output_format("markdown", ".md")
LATEX = output_format("latex", ".tex")


@TEXT.of(ExplanationData, ComparisonData)
def _explained_text(result: RenderableExplanation, scale: Scale | None = None, tokens: bool = False) -> str:
    from whyformer.show.terminal import comparison_text, explanation_text, to_text

    result = prepared(result, tokens)
    if isinstance(result, ExplanationData):
        return to_text(explanation_text(result))
    return to_text(comparison_text(result, scale=scale))


@HTML.of(ExplanationData, ComparisonData)
def _explained_page(result: RenderableExplanation, scale: Scale | None = None, tokens: bool = False) -> str:
    from whyformer.show.html import page

    return page([result] if isinstance(result, ExplanationData) else result, scale, tokens)


@JSON.of(ExplanationData, ComparisonData, ExplanationsData, ShortcutReportData, TrustData, CostTableData)
def _data(result: Any) -> str:
    return json.dumps(result.to_dict(), ensure_ascii=False, indent=1)


@TEXT.of(TrustData)
def _trust_text(trust: TrustData) -> str:
    from whyformer.show.terminal import to_text, trust_text

    return to_text(trust_text(trust))


@JSON_LINES.of(ExplanationsData)
def _lines(result: ExplanationsData[Any]) -> str:
    return "".join(f"{json.dumps(line, ensure_ascii=False)}\n" for line in result.lines())


def _picture(kind: str) -> Callable[..., bytes]:
    def drawn(
        result: RenderableExplanation, scale: Scale | None = None, tokens: bool = False, layers: bool = False
    ) -> bytes:
        from whyformer.show.figures import figure
        from whyformer.show.pictures import figure_bytes

        return figure_bytes(figure(result, scale, tokens, layers), kind)

    return drawn


for _kind in PICTURES:
    output_format(_kind, f".{_kind}").of(ExplanationData, ComparisonData)(_picture(_kind))


def _scores_grid(result: RenderableExplanation) -> Grid:
    """A row for each unit that is not special, a column for each method, whose highest score stands out.

    Patches have four columns for their box, in the pixels that the model saw.
    """
    several = [result] if isinstance(result, ExplanationData) else _same_units(result.explanations)
    highest = [(e, e.ranked[:1]) for e in several]
    sides = () if picture_in(several) is None else BOX
    rows = []
    for place in shown_places(several[0]):
        cells = [Words(written(e, e.scores[place]), place in best, float(e.scores[place])) for e, best in highest]
        unit = several[0].units[place]
        edges = [Words(str(edge), number=edge) for edge in unit.box] if unit.box else [Words("") for _ in sides]
        rows.append((Words(unit.text), *edges, *cells))
    return Grid(("unit", *sides, *row_names(several)), rows)


def _same_units(explanations: Sequence[ExplanationData]) -> Sequence[ExplanationData]:
    """The explanations, by words where their tokens are not the same, if they have the same words."""
    for several in (explanations, [e.by_word() if e.texts else e for e in explanations]):
        if len({(e.texts, e.units) for e in several}) == 1:
            return several
    raise BadOption(
        "a table of scores has a row for each unit, and these explanations have different ones: save each by itself"
    )


CSV.of(ExplanationData, ComparisonData)(lambda result: as_csv(_scores_grid(result)))
MARKDOWN.of(ExplanationData, ComparisonData)(lambda result: as_markdown(_scores_grid(result)) + "\n")
LATEX.of(ExplanationData, ComparisonData)(lambda result: as_latex(_scores_grid(result)))


def _later(module: str, function: str) -> Callable[..., Content]:
    """A function of this package whose module is imported when it is called."""

    def called(result: Any, **options: Any) -> Content:
        content: Content = getattr(import_module(f"whyformer.show.{module}"), function)(result, **options)
        return content

    return called


TEXT.of(ExplanationsData)(_later("lists", "list_text"))
CSV.of(ExplanationsData)(_later("lists", "list_csv"))
MARKDOWN.of(ExplanationsData)(_later("lists", "list_markdown"))
HTML.of(ExplanationsData)(_later("lists", "list_page"))
TEXT.of(TableData)(_later("tables", "as_text"))
CSV.of(TableData)(_later("tables", "as_csv"))
MARKDOWN.of(TableData)(_later("tables", "as_markdown"))
LATEX.of(TableData)(_later("tables", "as_latex"))
HTML.of(TableData)(_later("curves", "report_page"))
HTML.of(TrustData)(_later("html", "trust_page"))
TEXT.of(ShortcutReportData)(_later("shortcuts", "as_text"))
MARKDOWN.of(ShortcutReportData)(_later("shortcuts", "as_markdown"))
CSV.of(ShortcutReportData)(_later("shortcuts", "as_csv"))
HTML.of(ShortcutReportData)(_later("shortcuts", "shortcuts_page"))
TEXT.of(CostTableData)(_later("tables", "cost_text"))
MARKDOWN.of(CostTableData)(_later("tables", "cost_markdown"))
CSV.of(CostTableData)(_later("tables", "cost_csv"))
