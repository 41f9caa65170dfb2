"""Explanations as one self-contained page: no network, every token escaped."""

from collections.abc import Sequence
from html import escape
from itertools import groupby

from whyformer.results.explanation import Array, ComparisonData, ExplanationData
from whyformer.results.trust import Trust
from whyformer.show import image_html, layout
from whyformer.show.colours import (
    FAINT,
    Colour,
    Scale,
    common_peak,
    hue,
    largest,
    strengths,
    strongest,
    two_sided,
    written,
)

STYLE = """
.why{--ink:#1b1f24;--soft:#667080;--line:#d9dee5;--card:#fff;font:16px/1.6 system-ui,sans-serif;color:var(--ink);
background:var(--card);border:1px solid var(--line);border-radius:10px;padding:1.2em 1.5em;margin:0 0 1.2em;max-width:60em}
@media (prefers-color-scheme:dark){.why{--ink:#e8ecf1;--soft:#9aa5b3;--line:#333b45;--card:#171b21}}
.why h2{font-size:1.15em;margin:0}.why .soft{color:var(--soft);font-size:.85em}
.why .text{font-size:1.2em;line-height:2;white-space:pre-wrap;overflow-wrap:anywhere;margin:.7em 0}
.why .answer{text-decoration:underline;text-decoration-thickness:.12em;text-underline-offset:.3em}
.why .u{border-radius:.25em;padding:.1em 0}.why .legend span{color:var(--ink);border-radius:.25em;padding:.05em .5em;margin-right:.4em}
.why .classes{margin:.5em 0;display:grid;grid-template-columns:max-content 12em max-content;gap:.1em .8em;font-size:.85em;
align-items:center}.why .bar{height:.7em;border-radius:.2em;background:var(--line);overflow:hidden}
.why .bar i{display:block;height:100%;background:var(--soft)}
.why table{border-collapse:collapse;font-size:.85em}.why td,.why th{padding:.15em .6em;text-align:left;vertical-align:middle}
.why .scroll{overflow-x:auto}.why .grid td{padding:0;min-width:1.4em;height:1.4em;border:1px solid var(--card)}
.why .grid th{font-weight:normal;white-space:nowrap}.why .grid .t th{writing-mode:vertical-rl;padding:.4em .1em}
.why details{margin-top:.8em}.why summary{cursor:pointer;color:var(--soft);font-size:.85em}
.why .rows td{border-top:1px solid var(--line);padding:.4em .6em}.why .rows .text{font-size:1em;line-height:1.8;margin:0}.why .rows th{padding:.4em .6em;border-top:1px solid var(--line)}
.why .trust{margin:.8em 0}.why .trust p{margin:0}.why .rows .trust{margin:.2em 0 0;font-size:.85em}
.why .gauge{position:relative;display:inline-block;vertical-align:middle;width:16em;max-width:90%;height:1em;margin:.4em .8em .4em .4em}
.why .gauge i{position:absolute;background:var(--line)}.why .gauge .line{left:0;right:0;top:.45em;height:.1em}
.why .gauge .spread{top:.2em;height:.6em;min-width:.2em;border-radius:.15em;background:var(--soft);opacity:.45}
.why .gauge .chance{top:.2em;height:.6em;width:.5em;margin-left:-.25em;background:var(--soft)}
.why .gauge .best{top:0;height:1em;width:.2em;margin-left:-.1em;background:var(--ink)}
.why .gauge .own{top:.2em;height:.6em;width:.6em;margin-left:-.3em;transform:rotate(45deg);background:var(--ink);outline:.12em solid var(--card)}
"""
PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">
<title>{title}</title><style>body{{margin:2em auto;padding:0 1em;max-width:62em;background:#f3f5f8}}
@media (prefers-color-scheme:dark){{body{{background:#0e1116}}}}</style></head><body>
{body}
</body></html>
"""


def page(explanations: Sequence[ExplanationData], scale: Scale | None = None) -> str:
    """A whole page: a card for each explanation, or one for a comparison.

    `scale`: whether the rows of a card share one; by default layers do, and methods do not.
    """
    first = explanations[0]
    title = escape(f"{layout.headline(first.prediction)}: {layout.question(first)}")
    return PAGE.format(title=title, body=fragment(explanations, scale))


def fragment(explanations: Sequence[ExplanationData], scale: Scale | None = None) -> str:
    """The same without the page around it, for notebooks."""
    if isinstance(explanations, ComparisonData):
        cards = [_comparison(explanations, scale or "row")]
    else:
        cards = [_card(explanation, scale or "shared") for explanation in explanations]
    pictures = any(explanation.image is not None for explanation in explanations)
    style, script = (STYLE + image_html.STYLE, image_html.SCRIPT) if pictures else (STYLE, "")
    return f"<style>{style}</style>" + "\n".join(cards) + script


def _card(explanation: ExplanationData, scale: Scale) -> str:
    named = f'<p class="soft">{escape(layout.called(explanation))} · {_origin(explanation)}</p>'
    legend, told = legend_line([explanation]), note_line(explanation) + _trust(explanation)
    text = f'<div class="text">{marked_text(explanation)}</div>'
    if explanation.image is None:
        parts = [_heading(explanation), named, legend, text, told, _strongest(explanation)]
    else:
        beside = f"{_classes(explanation)}{legend}{_strongest(explanation)}"
        picture = image_html.image_card(explanation, beside)
        parts = [_title(explanation), named, picture, text if explanation.texts else "", told]
    return f'<section class="why">{"".join(parts)}{_layers(explanation, scale)}</section>'


def _comparison(explanations: ComparisonData[ExplanationData], scale: Scale) -> str:
    first, trusts = explanations[0], layout.trusts(explanations)
    peak = common_peak(explanations, scale)
    gauges = [
        "" if e.trusted is None else f'<div class="trust">{_gauge(e.trusted, trusts)}</div>' for e in explanations
    ]
    names = [layout.called(e) for e in explanations]
    pictures = first.image is not None
    tiles = image_html.image_comparison(names, explanations, peak, gauges) if pictures else ""
    rows = "" if pictures else _rows(explanations, peak, gauges)
    for name, reason in explanations.refused:
        rows += f"<tr><th>{escape(name)}</th><td>{escape(reason)}</td></tr>"
    table = f'<div class="scroll"><table class="rows">{rows}</table></div>' if rows else ""
    origin = f'<p class="soft">{_origin(first)}</p>'
    table += _scale_line(peak, "picture" if pictures else "row")
    above = f"{_heading(first)}{origin}{legend_line(explanations)}{note_line(first)}{tiles}"
    for trust in trusts[:1]:
        table += f'<p class="soft">Trust: {escape(layout.gauge_title(trust))}. {escape(layout.gauge_key(trust, "each method"))}</p>'
    return f'<section class="why">{above}{table}</section>'


def _rows(explanations: Sequence[ExplanationData], peak: float | None, gauges: Sequence[str]) -> str:
    """A row for each method, with the text in its colours."""
    rows = ""
    for e, gauge in zip(explanations, gauges, strict=True):
        name = f'{escape(layout.called(e))}<div class="soft">up to {largest(e):.3g}</div>'
        rows += f'<tr><th>{name}</th><td><div class="text">{marked_text(e, peak)}</div>{gauge}</td></tr>'
    return rows


def _heading(explanation: ExplanationData) -> str:
    return _title(explanation) + _classes(explanation)


def _title(explanation: ExplanationData) -> str:
    said = escape(layout.headline(explanation.prediction))
    return f"<h2>{said}</h2><p>{escape(layout.question(explanation))}</p>"


def _classes(explanation: ExplanationData) -> str:
    """The outputs with their probabilities, if they have some."""
    if explanation.prediction.probabilities is None:
        return ""
    rows = "".join(
        f'<span>{escape(name)}</span><span class="bar"><i style="width:{100 * p:.1f}%"></i></span>'
        f"<span>{layout.percent(p)}</span>"
        for _, name, p in layout.shares(explanation.prediction)[:6]
    )
    return f'<div class="classes">{rows}</div>'


def marked_text(explanation: ExplanationData, peak: float | None = None) -> str:
    """The text with its units coloured, and what is explained underlined."""
    strength = strengths(explanation, peak)
    parts = []
    for answer, members in groupby(layout.pieces(explanation), key=lambda piece: piece.answer):
        inner = "".join(_unit(explanation, piece, strength) for piece in members)
        parts.append(f'<span class="answer">{inner}</span>' if answer else inner)
    return "".join(parts)


def _unit(explanation: ExplanationData, piece: layout.Piece, strength: Array) -> str:
    if piece.position is None:
        return escape(piece.text)
    shade = float(strength[piece.position])
    style = "" if abs(shade) < FAINT else f' style="background:{shade_of(shade, two_sided(explanation))}"'
    title = written(explanation, float(explanation.scores[piece.position]))
    unknown = f'<sup class="soft">{layout.UNKNOWN}</sup>' if explanation.units[piece.position].unknown else ""
    return f'<span class="u" title="{title}"{style}>{escape(piece.text)}</span>{unknown}'


def legend_line(explanations: Sequence[ExplanationData]) -> str:
    """What the colours and marks of these explanations mean."""
    kinds = {two_sided(e) for e in explanations}
    marks = [("speaks for it", 1.0, True), ("speaks against it", -1.0, True), ("matters", 1.0, False)]
    shown = [(name, shade_of(strength, signed)) for name, strength, signed in marks if signed in kinds]
    spans = "".join(f'<span style="background:{shade}">{name}</span>' for name, shade in shown)
    if mark := layout.marked(explanations[0]):
        spans += f'<span class="answer">{"the answer" if mark == "answer" else mark}</span>'
    return f'<div class="legend soft">{spans}</div>'


def _strongest(explanation: ExplanationData) -> str:
    rows = []
    top = strongest(explanation, 10)
    peak = max((abs(u.score) for u, _ in top), default=0) or 1
    for unit, colour in top:
        bar = f'<div class="bar" style="width:12em"><i style="width:{100 * abs(unit.score) / peak:.1f}%;'
        bar += f'background:{_rgba(colour, 1)}"></i></div>'
        rows.append(f"<tr><td>{escape(unit.text)}</td><td>{bar}</td><td>{written(explanation, unit.score)}</td></tr>")
    return f"<details open><summary>strongest</summary><table>{''.join(rows)}</table></details>"


def _layers(explanation: ExplanationData, scale: Scale) -> str:
    if explanation.layers is None:
        return ""
    rows = layout.layer_rows(explanation)
    peak = common_peak([layer for _, layer in rows], scale)
    if explanation.image is not None:
        tiles = image_html.image_layers(rows, peak)
        return f"<details><summary>layer by layer</summary>{tiles}{_scale_line(peak, 'picture')}</details>"
    shown = layout.shown_places(explanation)
    names = "".join(f"<th>{escape(explanation.units[i].text)}</th>" for i in shown)
    body = []
    for name, layer in rows:
        cells = "".join(
            f'<td title="{written(layer, float(layer.scores[i]))}" style="background:{shade_of(float(s), layer.signed)}"></td>'
            for i, s in zip(shown, strengths(layer, peak)[shown], strict=True)
        )
        body.append(f"<tr><th>{name}</th>{cells}</tr>")
    table = f'<table class="grid"><tr class="t"><th></th>{names}</tr>{"".join(body)}</table>'
    return f'<details><summary>layer by layer</summary><div class="scroll">{table}</div>{_scale_line(peak)}</details>'


def _scale_line(peak: float | None, what: str = "row") -> str:
    return f'<p class="soft">{escape(layout.scale_note(peak, what))}</p>'


def _origin(explanation: ExplanationData) -> str:
    source = explanation.provenance
    revision = f" at {source['revision']}" if source.get("revision") else ""
    versions = ", ".join(f"{name} {version}" for name, version in source.get("packages", {}).items())
    return escape(f"{source.get('model', '')}{revision} · {source.get('dtype', '')} · {versions}")


def note_line(explanation: ExplanationData) -> str:
    """What the reader must know about the input, if anything."""
    warning = layout.note(explanation)
    return f"<p><b>{escape(warning)}</b></p>" if warning else ""


def _trust(explanation: ExplanationData) -> str:
    trust = explanation.trusted
    if trust is None:
        return ""
    key = f'<p class="soft">{escape(layout.gauge_key(trust))}</p>'
    return f'<div class="trust"><p>{escape(trust.sentence)}</p>{_gauge(trust, [trust])}{key}</div>'


def _gauge(trust: Trust, among: Sequence[Trust]) -> str:
    """The random orders, the best and this one on a line, and the two numbers beside it."""
    (low, high), *places = layout.gauge(trust, among)
    marks = f'<i class="line"></i><i class="spread" style="left:{100 * low:.1f}%;width:{100 * (high - low):.1f}%"></i>'
    for name, place in zip(("chance", "best", "own"), places, strict=True):
        marks += "" if place is None else f'<i class="{name}" style="left:{100 * place:.1f}%"></i>'
    key = escape(f"{layout.gauge_title(trust)}: {layout.gauge_key(trust)}")
    gauge = f'<span class="gauge" role="img" aria-label="{key}" title="{key}">{marks}</span>'
    return gauge + layout.trust_numbers(trust)


def shade_of(strength: float, signed: bool) -> str:
    """The colour behind a unit of that strength, -1 … 1."""
    return _rgba(hue(strength, signed), 0.62 * min(1.0, abs(strength)))


def _rgba(colour: Colour, opacity: float) -> str:
    return f"rgba({colour[0]},{colour[1]},{colour[2]},{opacity:.3f})"
