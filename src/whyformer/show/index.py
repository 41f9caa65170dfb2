"""Many explained texts on one page: to sort, to search and to filter; a text opens to its colours by each method.

The rows are compact data in the page, of which the script draws a few at a time, so ten thousand stay usable. A link
may say what is shown: `#word=gorgeous&wrong`.
"""

import json
from collections.abc import Iterable, Mapping
from html import escape
from typing import Any

import numpy as np

from whyformer.escapes import visible
from whyformer.results.explanation import ExplanationData
from whyformer.results.explanations import ExplanationsData, other_output, reasons
from whyformer.results.kept import KeptExample
from whyformer.show import layout
from whyformer.show.colours import FAINT, strengths, two_sided
from whyformer.show.html import PAGE, STYLE, legend_line, page, shade_of
from whyformer.show.image_html import small_heat
from whyformer.show.index_script import LOOK, SCRIPT, TOOLS
from whyformer.show.lists import counted, effect, remark

LEVELS = 10  # of strength, each with a class of the style sheet
ANSWER, UNKNOWN = 100, 1000  # what is added to the level of a unit that is marked, or not known to the tokenizer
KINDS = (("f", True, 1), ("a", True, -1), ("m", False, 1))  # for, against, matters: the letter, two-sided, the sign


class Index:
    """The page of examples as they come in: what is kept of each is a line of data."""

    def __init__(self) -> None:
        self._rows: list[tuple[int, str]] = []
        self._names: dict[str, int] = {}
        self._methods: dict[str, int] = {}
        self._kinds: dict[bool, ExplanationData] = {}
        self._verdicts = {True: 0, False: 0, None: 0}
        self._what = "text"
        self._explained: set[str] = set()  # outputs that are explained though others were predicted

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, example: KeptExample[Any]) -> None:
        """Take an example in."""
        shown = [e.for_people() for e in example.explanations]
        first = shown[0] if shown else None
        self._kinds |= {two_sided(e): e for e in shown if two_sided(e) not in self._kinds}
        self._verdicts[example.right] += 1
        self._explained |= {other_output(e) for e in shown}
        picture = None if first is None else first.image
        if picture is not None:
            self._what = "image"
        facts = [
            example.row,
            "" if first is None else _text(first),
            -1 if first is None else self._named(layout.said(first.prediction)),
            "" if first is None else layout.amount(first.prediction),
            -1 if example.gold is None else self._named(example.gold),
            {True: 1, False: 0, None: -1}[example.right],
            [] if first is None else _reasons(first),
            [self._marks(e) for e in shown],
            [[visible(name), visible(reason)] for name, reason in example.explanations.refused],
            visible("; ".join(filter(None, _notes(first))) if first else ""),
            *([] if picture is None else [[small_heat(e) for e in shown]]),
        ]
        self._rows.append((example.row, _dumped(facts)))

    def page(self, about: Mapping[str, Any]) -> str:
        """The page; `about` has the names of the model and of the data."""
        names = {"methods": list(self._methods), "names": list(self._names), "levels": LEVELS, "what": self._what}
        rows = ",\n".join(row for _, row in sorted(self._rows, key=lambda numbered: numbered[0]))
        data = f'{_dumped(names)[:-1]},"rows":[{rows}]}}'
        title = f"Explained {self._what}s"
        legend = legend_line(list(self._kinds.values())) if self._kinds else ""
        head = f'<section class="why"><h2>{title}</h2><p class="soft">{self._about(about)}</p>{legend}</section>'
        stored = f'<script type="application/json" id="data">{data}</script>'
        body = "\n".join(
            (
                f"<style>{STYLE}{LOOK}{_colours()}</style>",
                head,
                TOOLS.format(parts="names" if self._what == "image" else "texts"),
                stored,
                SCRIPT,
            )
        )
        return visible(PAGE.format(title=title, body=body))

    def _about(self, about: Mapping[str, Any]) -> str:
        names = [str(about[name]) for name in ("model", "data") if about.get(name)]
        known = self._verdicts[True] + self._verdicts[False]
        right = [f"the model is right on {self._verdicts[True]:,} of these {known:,}"] if known else []
        others = sorted(self._explained - {""})
        told = [f"explained: {', '.join(others)}" if len(others) <= 3 else "explained: see each row"] if others else []
        return escape(" · ".join([*names, counted(len(self), self._what), *right, *told]))

    def _named(self, name: str) -> int:
        return self._names.setdefault(visible(name), len(self._names))

    def _marks(self, explanation: ExplanationData) -> list[int]:
        """The method, whether there are two sides, then of each piece of the text its length and its level."""
        method = self._methods.setdefault(visible(layout.called(explanation)), len(self._methods))
        levels, lengths, codes = levels_of(explanation), [0], [0]
        for piece in layout.pieces(explanation):
            code = ANSWER * piece.answer
            if piece.position is not None:
                code += int(levels[piece.position]) + UNKNOWN * explanation.units[piece.position].unknown
            if code != codes[-1] or code not in (0, ANSWER):
                lengths.append(0)
                codes.append(code)
            lengths[-1] += len(visible(piece.text).encode("utf-16-le", "surrogatepass")) // 2  # as scripts count
        marks = [number for pair in zip(lengths, codes, strict=True) if pair[0] for number in pair]
        return [method, int(two_sided(explanation)), *marks]


def _reasons(explanation: ExplanationData) -> list[list[Any]]:
    """The strongest words, each with its score, its effect and a remark; then words that were hidden together."""
    alone: list[list[Any]] = [[r.text, float(f"{r.score:.3g}"), effect(r), remark(r)] for r in reasons(explanation)]
    joint: list[list[Any]] = [[name, None, *told] for name, *told in layout.together_lines(explanation)]
    return [[visible(part) if isinstance(part, str) else part for part in line] for line in (*alone, *joint)]


def _notes(explanation: ExplanationData) -> tuple[str, str | None]:
    return layout.question(explanation) if other_output(explanation) else "", layout.note(explanation)


def _text(explanation: ExplanationData) -> str:
    """What a row is found by: the text, or the name of an image."""
    image = explanation.image
    if image is not None and not explanation.texts:
        return visible(image.name or "")
    return "".join(visible(piece.text) for piece in layout.pieces(explanation))


def levels_of(explanation: ExplanationData) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Strengths in few levels, below zero for what speaks against the target; 0 for what is too faint to be seen."""
    strength = strengths(explanation)
    levels = np.maximum(1, np.round(LEVELS * np.abs(strength)))
    return np.where(np.abs(strength) < FAINT, 0.0, np.sign(strength) * levels).astype(np.int64)


def index_page(examples: Iterable[KeptExample[Any]], about: Mapping[str, Any]) -> str:
    """A page that needs nothing else: no network, no other file; `about` has the names of the model and of the data."""
    index = Index()
    for example in examples:
        index.add(example)
    return index.page(about)


def list_page(result: ExplanationsData[Any]) -> str:
    """The page of a list of explanations: of texts the index, of images a card for each."""
    if any(e.image is not None for e in result):
        return page(result)
    return index_page(result.examples(), {"model": result[0].provenance.get("model")} if len(result) else {})


def _colours() -> str:
    """A class for each kind and level, in place of a style for each unit."""
    every = (
        (letter, level, shade_of(sign * level / LEVELS, signed))
        for letter, signed, sign in KINDS
        for level in range(1, LEVELS + 1)
    )
    return "".join(f".why .{letter}{level}{{background:{shade}}}" for letter, level, shade in every)


def _dumped(value: Any) -> str:
    """JSON that can stand in a script: no text ends that, whatever it holds."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
