"""Summaries: small Markdown tables from the CSV files, between markers in the pages of the docs."""

import math
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean, stdev

from whyformer import WhyformerError
from whyformer_papers.results.rows import REFERENCES, Row, read_rows
from whyformer_papers.results.studies import HIDING, STEPPED, STEPS, STUDIES

MARKED = re.compile(r"<!-- results: ([\w-]+) -->\n(.*?)<!-- end -->", re.DOTALL)
NOTHING = "*No numbers yet: `make results` measures them.*"
MOST_ROWS = 12
ARROWS = {"higher": " ↑", "lower": " ↓", "": ""}

Files = Mapping[str, Sequence[Row]]  # the rows of the CSV file of each study


@dataclass(frozen=True)
class SummaryColumn:
    """A column of a summary: a metric of a study. `value` is `mean` or `share`."""

    title: str
    study: str
    metric: str
    value: str = "mean"
    interval: bool = False


@dataclass(frozen=True)
class Summary:
    """A table of methods by columns. Without `methods` it has the best of the first column, and `random`."""

    columns: tuple[SummaryColumn, ...]
    methods: tuple[str, ...] = ()
    percent: bool = False

    @property
    def studies(self) -> list[str]:
        """The studies it is made of."""
        return list(dict.fromkeys(column.study for column in self.columns))

    def table(self, files: Files) -> str:
        """The table in Markdown."""
        found = {column: _by_method(files.get(column.study, ()), column.metric) for column in self.columns}
        methods = self.methods or _best(found[self.columns[0]])
        heads = [f"{column.title}{_arrow(found[column])}" for column in self.columns]
        rows = [
            [f"`{method}`", *(self._cell(found[column].get(method, []), column) for column in self.columns)]
            for method in methods
            if any(method in found[column] for column in self.columns)
        ]
        return markdown(["method", *heads], rows)

    def _cell(self, rows: Sequence[Row], column: SummaryColumn) -> str:
        if not rows:
            return "–"
        numbers = [row.share if column.value == "share" else row.mean for row in rows]
        if len(rows) > 1:
            return f"{self._number(fmean(numbers))} ± {self._number(stdev(numbers))}"
        row, text = rows[0], self._number(numbers[0])
        if column.value == "mean":
            text = f"**{text}**" if row.rank == "best" else f"≈ {text}" if row.rank == "tied" else text
            if column.interval and not math.isnan(row.low):
                text += f" [{self._number(row.low)}, {self._number(row.high)}]"
        return text

    def _number(self, value: float) -> str:
        if math.isnan(value):
            return "–"
        return f"{100 * value:z.1f}" if self.percent else f"{value:z.3f}"


@dataclass(frozen=True)
class WorstCase:
    """How far each method is behind the best of a study in its worst metric: 0 is the best, 100 the row `random`."""

    titles: Mapping[str, str]  # of studies
    metrics: tuple[str, ...] = HIDING

    @property
    def studies(self) -> list[str]:
        """The studies it is made of."""
        return list(self.titles)

    def table(self, files: Files) -> str:
        """The table in Markdown, the smallest worst case first."""
        measured = [study for study in self.titles if files.get(study)]
        gaps = {study: [_behind(_by_method(files[study], metric)) for metric in self.metrics] for study in measured}
        everywhere = [
            method
            for method in (gaps[measured[0]][0] if measured else {})
            if all(method in gap for each in gaps.values() for gap in each)
        ]
        worst = {method: [max(gap[method] for gap in gaps[study]) for study in measured] for method in everywhere}
        order = sorted(everywhere, key=lambda method: max(worst[method]))[:MOST_ROWS]
        rows = [[f"`{m}`", *(f"{gap:.1f}" for gap in (*worst[m], max(worst[m])))] for m in order]
        return markdown(["% behind the best", *(self.titles[study] for study in measured), "worst"], rows)


def _behind(methods: Mapping[str, Sequence[Row]]) -> dict[str, float]:
    """How far each method is behind the best, in percent of the distance of a random order."""
    means = {method: rows[0].mean for method, rows in methods.items() if method not in REFERENCES}
    if "random" not in means:
        return {}
    best = _order(methods)(means.values())
    room = (best - means["random"]) or math.nan
    return {method: 100 * (best - mean) / room for method, mean in means.items() if method != "random"}


def _order(methods: Mapping[str, Sequence[Row]]) -> Callable[[Iterable[float]], float]:
    """`max`, or `min` for metrics where lower is better."""
    return min if any(row.better == "lower" for rows in methods.values() for row in rows) else max


def _by_method(rows: Iterable[Row], metric: str) -> dict[str, list[Row]]:
    """The rows of a metric: several for a method that was run with several seeds."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        if row.metric == metric:
            found.setdefault(row.method, []).append(row)
    return found


def _best(methods: Mapping[str, Sequence[Row]]) -> list[str]:
    """The best methods, and `random`."""
    sign = -1 if _order(methods) is max else 1
    names = [method for method in methods if method not in (*REFERENCES, "random")]
    best = sorted(names, key=lambda method: sign * methods[method][0].mean)
    return [*best[: MOST_ROWS - 1], *(["random"] if "random" in methods else [])]


def _arrow(methods: Mapping[str, Sequence[Row]]) -> str:
    return next((ARROWS[row.better] for rows in methods.values() for row in rows), "")


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    rule = ["---", *["---:"] * (len(head) - 1)]
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, rule, *rows))


def _columns(titles: Mapping[str, str], metric: str, **options: str | bool) -> tuple[SummaryColumn, ...]:
    return tuple(SummaryColumn(title, study, metric, **options) for study, title in titles.items())  # type: ignore[arg-type]


def _of_study(study: str, *metrics: str, interval: bool = True) -> tuple[SummaryColumn, ...]:
    return tuple(SummaryColumn(f"`{metric}`", study, metric, interval=interval) for metric in metrics)


TEXTS = {name: STUDIES[name].title for name in ("sst2", "ag_news", "imdb", "yelp", "mnli", "qqp", "distilbert")}
SHOWN = (
    *("layer_lrp", "attn_lrp", "cp_lrp", "attcat(states=inputs)", "cat(states=inputs)", "grads", "gae"),
    *("transformer_attribution", "alti", "rollout", "input_x_gradient", "random"),
)
SIGNED = {name: study.title for name, study in STUDIES.items() if name.startswith("signs-")}
SIGNED_METHODS = (
    *("layer_lrp", "attn_lrp", "cp_lrp", "attcat(states=inputs)", "cat(states=inputs)", "full_grad", "lrp"),
    *("input_x_gradient", "integrated_gradients", "occlusion", "lime", "shapley_value_sampling"),
)
STEP_ROWS = tuple(
    label
    for method in STEPPED
    for label in (method, *(f"stepwise(of={method}{'' if steps == 3 else f', steps={steps}'})" for steps in STEPS))
)
STEP_TITLES = {f"steps-{study}": TEXTS[study] for study in ("sst2", "ag_news", "mnli", "qqp", "imdb")}
LAYERS = (
    "decoded_grad_cam(decode=false, layer=0)",
    *(f"decoded_grad_cam(layer={layer}, lm_head=base-mlm)" for layer in range(1, 7)),
    *("occlusion", "integrated_gradients(at=embedding_output, steps=25)", "shapley_value_sampling", "attn_lrp"),
    "random",
)
GAME_TITLES = {"decoded-sst2": "SST-2", "decoded-ag_news": "AG News"}
MASK_TITLES = {"masks-sst2": "SST-2", "masks-mnli": "MNLI", "masks-imdb": "IMDB"}
MASK_ROWS = (
    *("transformer_attribution", "gae", "attn_lrp"),
    *(
        f"mask_lrp(head_mask={mask}{variant})"
        for variant in ("", ", variant=authors")
        for mask in ("treebank", "treebank, only=positional", "treebank, only=syntactic", "random, rate=treebank")
    ),
    "random",
)
CORRUPTED_ROWS = (
    "mask_lrp(head_mask=treebank)",
    *(f"mask_lrp(corrupted={rate}, head_mask=treebank)" for rate in (0.1, 0.2, 0.5, 0.8, 1.0)),
    "transformer_attribution",
)
SUMMARIES: dict[str, Summary | WorstCase] = {
    "worst-case": WorstCase(TEXTS),
    "aopc": Summary(_columns(TEXTS, "aopc"), SHOWN),
    "log-odds": Summary(_columns(TEXTS, "log_odds"), SHOWN),
    "kendall": Summary(_columns(TEXTS, "kendall_tau"), (*SHOWN[:8], "lrp", "partial_lrp", "saliency", SHOWN[10])),
    "attainable": Summary(
        tuple(
            SummaryColumn(f"{TEXTS[study]}, `{metric}`", study, metric, "share")
            for study in ("sst2", "ag_news", "mnli")
            for metric in ("aopc", "log_odds")
        ),
        SHOWN,
    ),
    "rationales": Summary(_of_study("movies", "token_f1(window=inside)", "token_f1")),
    "signs": Summary(_columns(SIGNED, "sign_agreement"), SIGNED_METHODS, percent=True),
    "checked": Summary(
        tuple(
            SummaryColumn(f"{title}, {measure.partition('_')[0]}", study, measure)
            for study, title in (("signs-sst2-logit", "SST-2"), ("signs-mnli-log_odds", "MNLI"))
            for measure in ("checked_agreement", "marked_words", "neutral_words")
        ),
        SIGNED_METHODS,
        percent=True,
    ),
    "steps": Summary(_columns(STEP_TITLES, "aopc"), STEP_ROWS),
    "steps-other": Summary(
        tuple(
            SummaryColumn(f"{title}, `{metric}`", study, metric)
            for study, title in (("steps-sst2", "SST-2"), ("steps-mnli", "MNLI"))
            for metric in ("aopc(hide=mask)", "log_odds", "sufficiency")
        ),
        STEP_ROWS,
    ),
    "steps-worst-case": WorstCase(
        {study: title for study, title in STEP_TITLES.items() if study != "steps-imdb"},
        ("aopc", "log_odds", "comprehensiveness", "sufficiency"),
    ),
    "steps-rationales": Summary(_of_study("steps-movies", "token_f1(window=inside)", "token_f1"), STEP_ROWS),
    "images": Summary(
        (
            *_of_study("pets", "deletion_accuracy", "deletion", "insertion", interval=False),
            *_of_study("tiny_imagenet", "deletion_accuracy", "positive_perturbation", interval=False),
            *_of_study("tiny_imagenet", "negative_perturbation", interval=False),
        )
    ),
    "overlap": Summary(_of_study("pets", "mean_average_precision", "mean_iou", "pixel_accuracy", "pointing_game")),
    "images-many": Summary(
        (
            *_of_study("pets-many", "deletion_accuracy", "deletion", "insertion", "mean_iou", interval=False),
            *_of_study("tiny_imagenet-many", "deletion_accuracy", "positive_perturbation", interval=False),
        )
    ),
    "two-pets": Summary(_of_study("two_pets", "share_on_target", "share_on_target(top=5)"), percent=True),
    "games": Summary(
        tuple(
            SummaryColumn(f"{title}, {metric.partition('_')[0]}", study, metric)
            for study, title in GAME_TITLES.items()
            for metric in ("revealing_game", "hiding_game")
        ),
        LAYERS,
    ),
    "shared-words": Summary(
        tuple(
            SummaryColumn(f"{title}, {counted}", study, metric)
            for study, title in GAME_TITLES.items()
            for counted, metric in (
                ("words", "token_overlap(k=50)"),
                ("tokens", "token_overlap(k=50, once=true, units=token)"),
            )
        ),
        LAYERS,
        percent=True,
    ),
    "head-masks": Summary(
        tuple(
            SummaryColumn(f"{title}, `{metric}`", study, metric)
            for study, title in MASK_TITLES.items()
            for metric in ("aopc", "log_odds")
        ),
        MASK_ROWS,
    ),
    "corrupted-masks": Summary(_of_study("masks-corrupted", "aopc", "log_odds"), CORRUPTED_ROWS),
}


def read_tables(tables: Path) -> dict[str, list[Row]]:
    """The rows of all CSV files in a folder, by study."""
    return {path.stem: read_rows(path) for path in sorted(tables.glob("*.csv"))} if tables.is_dir() else {}


def write_summaries(docs: Path, tables: Path | None = None) -> list[Path]:
    """Write the summaries into the pages below `docs`, between `<!-- results: NAME -->` and `<!-- end -->`.

    `tables` is the folder of the CSV files, by default `results` in `docs`. Returns the pages that have summaries.
    """
    folder = docs / "results" if tables is None else tables
    files, pages = read_tables(folder), []
    for page in sorted(docs.rglob("*.md")):
        text = page.read_text(encoding="utf-8")
        if not MARKED.search(text):
            continue
        written = MARKED.sub(partial(_block, page=page, tables=folder, files=files), text)
        if written != text:
            page.write_text(written, encoding="utf-8")
        pages.append(page)
    return pages


def _block(found: re.Match[str], *, page: Path, tables: Path, files: Files) -> str:
    """A summary between its markers, with what was measured and where all numbers are."""
    name = found[1]
    if name not in SUMMARIES:
        raise WhyformerError(f"{page} wants the summary {name!r}; there are {', '.join(SUMMARIES)}")
    summary = SUMMARIES[name]
    measured = [study for study in summary.studies if files.get(study)]
    text = f"{summary.table(files)}\n\n{_note(measured, page, tables, files)}" if measured else NOTHING
    return f"<!-- results: {name} -->\n\n{text}\n\n<!-- end -->"


def _note(studies: Sequence[str], page: Path, tables: Path, files: Files) -> str:
    """Where the numbers come from."""
    folder = Path(os.path.relpath(tables, page.parent)).as_posix()
    links = [
        f"[{study}]({folder}/{study}.csv) (n = {max(r.n for r in files[study] if r.method not in REFERENCES)})"
        for study in studies
    ]
    runs = sorted({(row.machine, row.commit, row.date) for study in studies for row in files[study]})
    first, last = runs[0][2], max(date for _, _, date in runs)
    machines = "; ".join(dict.fromkeys(machine for machine, _, _ in runs))
    commits = ", ".join(dict.fromkeys(commit for _, commit, _ in runs))
    dates = first if first == last else f"{first} to {last}"
    return f"All numbers: {', '.join(links)}. {machines}; {dates}, {commits}."
