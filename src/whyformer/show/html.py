"""Explanations as one self-contained page: no network, every token escaped.

An image is shown with its heat map as a layer and a slider, and with the score of the patch under the pointer.
"""

import base64
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from itertools import groupby

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from whyformer.arrays import FloatArray
from whyformer.inputs.images import Pixels
from whyformer.results.checked import Effect
from whyformer.results.explanation import ComparisonData, ExplanationData
from whyformer.results.trust import TrustData
from whyformer.show import layout
from whyformer.show.colors import FAINT, Colour, Scale, common_peak, hue, largest, strengths, two_sided, written
from whyformer.show.layout import AGREEMENT, facts_of_rows, under_headlines
from whyformer.show.overlay import DIMMED, FADED, TINY, blended, cells, heat_strengths, layer, picture_of, regions

NARROWEST = 440  # pixels of the screen: how wide smaller pictures are shown
TALLEST = 640  # pixels of the screen
THUMBNAIL = 480  # pixels, of the longer side of one picture among many
IN_A_LIST = 240  # pixels, of the longer side of a picture in a list
REST = "point at a patch for its score"
IMAGE_STYLE = f"""
.why .shot{{position:relative;display:block;overflow:hidden;max-width:100%;border-radius:6px;background:#fff;line-height:0}}
.why .shot img{{display:block;width:100%;height:auto}}.why .shot .tiny{{image-rendering:pixelated}}
.why .shot .seen{{filter:grayscale(var(--heat,1));opacity:calc(1 - {1 - FADED:.2f}*var(--heat,1))}}
.why .shot .heat{{position:absolute;height:auto;opacity:var(--heat,1);box-shadow:0 0 0 4000px rgba(0,0,0,{1 - DIMMED:.2f})}}
.why .shot .cell{{position:absolute;box-sizing:border-box;border:2px solid #000;outline:1px solid #fff;display:none}}
.why .shot .frame{{position:absolute;box-sizing:border-box;border:2px solid #fff;outline:1px solid #000;color:#fff;
font:700 15px/1.2 system-ui,sans-serif;text-shadow:0 0 3px #000,0 0 3px #000;padding-left:.1em;opacity:var(--heat,1)}}
.why .seeing{{display:flex;flex-wrap:wrap;gap:.4em 2em;margin:.8em 0;align-items:flex-start}}.why .seeing>*{{max-width:100%}}
.why .seeing .reasons{{font-size:.82em}}.why .seeing .reasons td{{padding:.15em .4em}}.why .seeing .reasons .bar{{width:min(4em,9vw)}}
.why .seeing .classes{{grid-template-columns:max-content minmax(4em,12em) max-content}}.why .seeing tr:not(.all) td:first-child{{white-space:nowrap}}
.why .tiles{{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(13em,100%),1fr));gap:1.2em 1em;margin:.8em 0}}
.why .tiles figure,.why .seeing figure{{margin:0;min-width:0}}.why figcaption{{font-size:.85em;overflow-wrap:anywhere}}
.why .at{{margin:.2em 0 0;min-height:1.6em;font-variant-numeric:tabular-nums}}
.why .slider{{display:flex;gap:.6em;align-items:center;margin:.2em 0}}.why .slider input{{width:12em;accent-color:var(--soft)}}
"""
SLIDER = """<label class="soft slider">heat <input type="range" min="0" max="1" step="0.01" value="1"
oninput="this.closest('.why').style.setProperty('--heat', this.value)"></label>"""
IMAGE_SCRIPT = """<script>
window.whyformerShots = window.whyformerShots || (() => {
  const grids = new WeakMap(), grid = shot => {
    if (!grids.has(shot)) grids.set(shot, JSON.parse(shot.dataset.cells));
    return grids.get(shot);
  };
  const within = (edges, value) => edges.findIndex((edge, n) => edge <= value && value < edges[n + 1]);
  const show = (shot, x, y) => {
    const {across, down, scores} = grid(shot), column = within(across, x), row = within(down, y);
    const cell = shot.querySelector(".cell"), at = shot.parentNode.querySelector(".at");
    const there = column >= 0 && row >= 0, percent = number => 100 * number + "%";
    cell.style.display = there ? "block" : "none";
    if (!there) { at.textContent = at.dataset.rest; return; }
    Object.assign(cell.style, {left: percent(across[column]), top: percent(down[row]),
      width: percent(across[column + 1] - across[column]), height: percent(down[row + 1] - down[row])});
    at.textContent = `row ${row + 1}, column ${column + 1}: ${scores[row * (across.length - 1) + column]}`;
  };
  let last = null;
  const all = (card, x, y) => card.querySelectorAll(".shot[data-cells]").forEach(shot => show(shot, x, y));
  document.addEventListener("pointermove", event => {
    const shot = event.target.closest ? event.target.closest(".why .shot") : null;
    const card = shot && shot.closest(".why"), box = shot && shot.getBoundingClientRect();
    if (last && last !== card) all(last, -1, -1);
    if (card) all(card, (event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height);
    last = card;
  });
  return true;
})();
</script>"""


def image_card(explanation: ExplanationData, beside: str) -> str:
    """The picture under its heat, with a slider, and something at its right."""
    pixels = picture_of(explanation).pixels
    height, width = pixels.shape[:2]
    shown = min(max(NARROWEST, width), max(1, TALLEST * width // height))
    shot = _shot(explanation, pixels, style=f"width:{shown}px", framed=True)
    return f'<div class="seeing"><figure>{shot}{_at(REST)}{SLIDER}</figure><div>{beside}</div></div>'


def image_comparison(
    names: Sequence[str], explanations: Sequence[ExplanationData], peak: float | None, below: Sequence[str]
) -> str:
    """The input and a picture for each method side by side, under one slider."""
    small = _thumbnail(picture_of(explanations[0]).pixels)
    shot = f'<span class="shot">{_picture(small, "the picture", "")}</span>'
    tiles = [f"<figure>{shot}<figcaption>input</figcaption></figure>", *_tiles(names, explanations, peak, below)]
    return f'{SLIDER}<div class="tiles">{"".join(tiles)}</div>'


def image_layers(rows: Sequence[tuple[str, ExplanationData]], peak: float | None) -> str:
    """A picture for each layer, which the slider of the card is for."""
    names, layers = [name for name, _ in rows], [layer for _, layer in rows]
    return f'<div class="tiles">{"".join(_tiles(names, layers, peak, [""] * len(rows)))}</div>'


def _tiles(
    names: Sequence[str], explanations: Sequence[ExplanationData], peak: float | None, below: Sequence[str]
) -> Iterator[str]:
    """A picture for each explanation, with its name, its peak and what stands below."""
    small = _thumbnail(picture_of(explanations[0]).pixels)
    for name, explanation, more in zip(names, explanations, below, strict=True):
        shot, at = _shot(explanation, small, peak), _at(f"up to {largest(explanation):.3g}")
        yield f"<figure>{shot}<figcaption>{escape(name)}</figcaption>{at}{more}</figure>"


def _at(rest: str) -> str:
    return f'<p class="soft at" data-rest="{rest}">{rest}</p>'


def _shot(
    explanation: ExplanationData, pixels: Pixels, peak: float | None = None, style: str = "", framed: bool = False
) -> str:
    """The picture under its heat, and the grid of patches as data; `framed`: with the regions that were checked."""
    left, top, right, bottom = (100 * edge for edge in picture_of(explanation).region)
    across, down, scores = cells(explanation)
    grid = {"across": _rounded(across), "down": _rounded(down), "scores": scores}
    heat = _png(layer(heat_strengths(explanation, peak), two_sided(explanation)))
    place = f"left:{left:.3f}%;top:{top:.3f}%;width:{right - left:.3f}%;height:{bottom - top:.3f}%"
    return (
        f'<span class="shot" style="{style}" data-cells="{escape(json.dumps(grid, separators=(",", ":")))}">'
        f"{_picture(pixels, _described(explanation), 'seen')}"
        f'<img class="heat" alt="" style="{place}" src="{heat}">{_frames(explanation) if framed else ""}'
        '<i class="cell"></i></span>'
    )


def _frames(explanation: ExplanationData) -> str:
    """A numbered frame around each region that was checked."""
    frames = ""
    for number, (left, top, right, bottom) in enumerate(regions(explanation)):
        place = f"left:{100 * left:.3f}%;top:{100 * top:.3f}%"
        size = f"width:{100 * (right - left):.3f}%;height:{100 * (bottom - top):.3f}%"
        frames += f'<b class="frame" style="{place};{size}">{layout.numeral(number)}</b>'
    return frames


def _picture(pixels: Pixels, alt: str, looks: str) -> str:
    tiny = " tiny" if max(pixels.shape[:2]) <= TINY else ""
    source = _png(pixels) if tiny else _jpeg(pixels)
    return f'<img class="{(looks + tiny).strip()}" alt="{escape(alt)}" src="{source}">'


def _described(explanation: ExplanationData) -> str:
    """The picture in words, for whoever does not see it."""
    top = explanation.top(3, by="magnitude")
    where = "; ".join(unit.text for unit in top)
    return f"{layout.headline(explanation.prediction)}: {layout.question(explanation)} Strongest at {where}."


def _rounded(edges: list[float]) -> list[float]:
    return [round(edge, 5) for edge in edges]


def small_heat(explanation: ExplanationData) -> str:
    """The picture under its heat, as small as it is needed in a list: an address that holds all of it."""
    return _jpeg(_thumbnail(blended(explanation), IN_A_LIST))


def _thumbnail(pixels: Pixels, side: int = THUMBNAIL) -> Pixels:
    """A picture as it is needed among others."""
    small = Image.fromarray(pixels)
    small.thumbnail((side, side), Image.Resampling.LANCZOS)
    return np.asarray(small)


def _png(pixels: NDArray[np.uint8]) -> str:
    return _data(Image.fromarray(pixels), "png", optimize=True)


def _jpeg(pixels: Pixels) -> str:
    return _data(Image.fromarray(pixels), "jpeg", quality=90)


def _data(image: Image.Image, kind: str, **options: object) -> str:
    """An image as an address that holds all of it."""
    held = io.BytesIO()
    image.save(held, kind, **options)
    return f"data:image/{kind};base64,{base64.b64encode(held.getvalue()).decode()}"


STYLE = """
.why{--ink:#1b1f24;--soft:#667080;--line:#d9dee5;--card:#fff;font:16px/1.6 system-ui,sans-serif;color:var(--ink);
background:var(--card);border:1px solid var(--line);border-radius:10px;padding:1.2em 1.5em;margin:0 0 1.2em;max-width:60em}
@media (prefers-color-scheme:dark){.why{--ink:#e8ecf1;--soft:#9aa5b3;--line:#333b45;--card:#171b21}}
.why header{display:flex;flex-wrap:wrap;justify-content:space-between;align-items:flex-start;gap:.2em 2em}
.why h2{font-size:1.1em;margin:0}.why header p{margin:0}.why .soft{color:var(--soft);font-size:.85em}.why .now{font-variant-numeric:tabular-nums}
.why .text{font-size:1.15em;line-height:1.9;white-space:pre-wrap;overflow-wrap:anywhere;margin:.7em 0}
.why .text.short{font-size:2.1em;line-height:1.7;letter-spacing:-.01em}.why .text.middle{font-size:1.45em;line-height:1.8}
.why .answer{text-decoration:underline;text-decoration-thickness:.12em;text-underline-offset:.3em}
.why .cut{color:var(--soft);opacity:.75;border-left:.15em dashed var(--soft);padding-left:.4em}
.why .cut::before{content:"✂ "}
.why .u{border-radius:.25em;padding:.1em 0}.why .u[data-without]{cursor:help}.why .u.neutral{box-shadow:inset 0 -.12em 0 var(--line)}
.why .u.on,.why tr.on td{outline:.1em solid var(--soft);outline-offset:.05em}
.why .legend span{color:var(--ink);border-radius:.25em;padding:.05em .5em;margin-right:.4em}
.why .classes{margin:.3em 0;display:grid;grid-template-columns:max-content minmax(5em,9em) max-content;gap:.1em .8em;font-size:.85em;
align-items:center}.why .bar{height:.7em;border-radius:.2em;background:var(--line);overflow:hidden}
.why .bar i{display:block;height:100%;background:var(--soft)}
.why table{border-collapse:collapse;font-size:.9em}.why td,.why th{padding:.15em .6em;text-align:left;vertical-align:middle}
.why .reasons{margin:.4em 0 .2em -.6em}.why .reasons td{font-variant-numeric:tabular-nums}.why .reasons th{font-weight:normal;color:var(--soft);font-size:.9em}.why .reasons .w{font-weight:600;overflow-wrap:anywhere}
.why .reasons .bar{width:min(12em,24vw)}.why .reasons .p{font-weight:600;white-space:nowrap}.why .reasons .all td{border-top:1px solid var(--line)}
@media (max-width:30em){.why .reasons{font-size:.8em}.why .reasons td{padding:.15em .4em}.why .reasons .w{min-width:5.5em}.why .reasons .bar{width:9vw}}
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
SCRIPT = """<script>
window.whyformerWords = window.whyformerWords || (() => {
  const point = (target, on) => {
    const one = target.closest ? target.closest(".why [data-without]") : null;
    if (!one) return;
    const card = one.closest(".why"), now = card.querySelector(".now");
    card.querySelectorAll("[data-without]").forEach(
      other => other.classList.toggle("on", on && other.dataset.word === one.dataset.word));
    if (now) now.textContent = on ? one.dataset.without : now.dataset.rest;
  };
  for (const name of ["pointerover", "focusin"]) document.addEventListener(name, event => point(event.target, true));
  for (const name of ["pointerout", "focusout"]) document.addEventListener(name, event => point(event.target, false));
  return true;
})();
</script>"""
SHOWN = 6  # reasons; others behind a click
SHORT, MIDDLE = 140, 500  # characters of texts that are written large, and larger than others
HATCH = 0.45  # of the colour's opacity, every other stripe of what speaks against the target
PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">
<title>{title}</title><style>body{{margin:2em auto;padding:0 1em;max-width:62em;background:#f3f5f8}}
@media (prefers-color-scheme:dark){{body{{background:#0e1116}}}}</style></head><body>
{body}
</body></html>
"""


def page(explanations: Sequence[ExplanationData], scale: Scale | None = None, tokens: bool = False) -> str:
    """A whole page: a card for each explanation, or one for a comparison.

    `scale`: whether the rows of a card share one; by default layers do, and methods do not. `tokens`: in place of words.
    """
    first = explanations[0]
    title = escape(f"{layout.headline(first.prediction)}: {layout.question(first)}")
    return PAGE.format(title=title, body=fragment(explanations, scale, tokens))


def fragment(explanations: Sequence[ExplanationData], scale: Scale | None = None, tokens: bool = False) -> str:
    """The same without the page around it, for notebooks."""
    explanations = layout.prepared(explanations, tokens)
    if isinstance(explanations, ComparisonData):
        cards = [_comparison(explanations, scale or "row")]
    else:
        cards = [_card(explanation, scale or "shared") for explanation in explanations]
    pictures = any(explanation.image is not None for explanation in explanations)
    style, script = (STYLE + IMAGE_STYLE, IMAGE_SCRIPT) if pictures else (STYLE, "")
    script += SCRIPT if any(explanation.checked is not None for explanation in explanations) else ""
    return f"<style>{style}</style>" + "\n".join(cards) + script


def _card(explanation: ExplanationData, scale: Scale) -> str:
    """What the model said, then the text as the largest thing on the card, then the reasons and where they are from."""
    origin = f'<p class="soft">{escape(layout.called(explanation))} · {_origin(explanation)}</p>'
    legend, told = legend_line([explanation]), note_line(explanation) + _trust(explanation)
    text, strongest = f'<div class="text {_size(explanation)}">{marked_text(explanation)}</div>', _reasons(explanation)
    if explanation.image is None:
        parts = [_heading(explanation), text, legend, strongest, told]
    else:
        beside = f"{_classes(explanation)}{legend}{strongest}"
        picture = image_card(explanation, beside)
        parts = [_title(explanation), _image_name(explanation), picture, text if explanation.texts else "", told]
    return f'<section class="why">{"".join(parts)}{_layers(explanation, scale)}{origin}</section>'


def _size(explanation: ExplanationData) -> str:
    """How large a text is written."""
    length = sum(map(len, explanation.texts))
    return "short" if length <= SHORT else "middle" if length <= MIDDLE else ""


def _comparison(explanations: ComparisonData[ExplanationData], scale: Scale) -> str:
    """One card, with the rows of each headline under it."""
    peak, groups = common_peak(explanations, scale), under_headlines(explanations)
    parts = [_compared(group, peak) for group in groups]
    refused = "".join(f"<tr><th>{escape(n)}</th><td>{escape(why)}</td></tr>" for n, why in explanations.refused)
    table = f'<div class="scroll"><table class="rows">{refused}</table></div>' if refused else ""
    return f'<section class="why">{"".join(parts)}{table}</section>'


def _compared(group: Sequence[ExplanationData], peak: float | None) -> str:
    """What was said once, then each method with its text or picture, and how to read all of them."""
    first, trusts, facts = group[0], layout.trusts(group), facts_of_rows(group)
    gauges = ["" if e.trusted is None else f'<div class="trust">{_gauge(e.trusted, trusts)}</div>' for e in group]
    above = f'{_heading(first)}{_image_name(first)}<p class="soft">{_origin(first)}</p>{legend_line(group)}{note_line(first)}'
    if first.image is not None:
        told = [f'<div class="soft">{fact}</div>' if fact else "" for fact in facts]
        below = [fact + gauge for fact, gauge in zip(told, gauges, strict=True)]
        rows = image_comparison([layout.called(e) for e in group], group, peak, below)
    else:
        rows = f'<div class="scroll"><table class="rows">{_rows(group, peak, facts, gauges)}</table></div>'
    rows += _scale_line(peak, "row" if first.image is None else "picture")
    rows += f'<p class="soft">{AGREEMENT}</p>' if len(group) > 1 else ""
    for trust in trusts[:1]:
        key = f"{layout.gauge_title(trust)}. {layout.gauge_key(trust, 'each method')}"
        rows += f'<p class="soft">Trust: {escape(key)}</p>'
    return above + rows


def _rows(
    explanations: Sequence[ExplanationData], peak: float | None, facts: Sequence[str], gauges: Sequence[str]
) -> str:
    """A row for each method, with the text in its colours."""
    rows = ""
    for e, fact, gauge in zip(explanations, facts, gauges, strict=True):
        told = [f"up to {largest(e):.3g}", *([fact] if fact else [])]
        name = escape(layout.called(e)) + "".join(f'<div class="soft">{line}</div>' for line in told)
        rows += f'<tr><th>{name}</th><td><div class="text">{marked_text(e, peak)}</div>{gauge}</td></tr>'
    return rows


def _heading(explanation: ExplanationData) -> str:
    return f"<header><div>{_title(explanation)}</div>{_classes(explanation)}</header>"


def _title(explanation: ExplanationData) -> str:
    """What the model said; where words were checked, what it says without the one that is pointed at."""
    rest = escape(layout.headline(explanation.prediction))
    return f'<h2 class="now" data-rest="{rest}">{rest}</h2><p>{escape(layout.question(explanation))}</p>'


def _image_name(explanation: ExplanationData) -> str:
    """The name of the file of an image, if it has one."""
    name = None if explanation.image is None else explanation.image.name
    return "" if name is None else f'<p class="soft">{escape(name)}</p>'


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
        inner = "".join(
            f'<span class="cut" title="the model did not read this">{escape(piece.text)}</span>'
            if piece.cut
            else _unit(explanation, piece, strength)
            for piece in members
        )
        parts.append(f'<span class="answer">{inner}</span>' if answer else inner)
    return "".join(parts)


def _unit(explanation: ExplanationData, piece: layout.Piece, strength: FloatArray) -> str:
    if piece.position is None:
        return escape(piece.text)
    shade = float(strength[piece.position])
    style = "" if abs(shade) < FAINT else f' style="background:{shade_of(shade, two_sided(explanation))}"'
    title = written(explanation, float(explanation.scores[piece.position]))
    unknown = f'<sup class="soft">{layout.UNKNOWN}</sup>' if explanation.units[piece.position].unknown else ""
    checked = explanation.checked
    effect = None if checked is None else checked.of(piece.position)
    is_neutral = checked is not None and effect is not None and explanation.signed and not checked.side(effect)
    neutral = " neutral" if is_neutral else ""
    data = "" if effect is None else _without(explanation, effect)
    return f'<span class="u{neutral}" title="{title}"{data}{style}>{escape(piece.text)}</span>{unknown}'


def _without(explanation: ExplanationData, effect: Effect) -> str:
    """What is shown while a word is pointed at that was hidden; its place tells it from the same word elsewhere."""
    listed = layout.reasons(explanation, len(explanation.units))
    word, change = next((reason.text, reason.change) for reason in listed if reason.effect is effect)
    said = escape(f"without “{word}”: {layout.measured(explanation)} {change}")
    return f' tabindex="0" data-word="{effect.units[0]}" data-without="{said}"'


def legend_line(explanations: Sequence[ExplanationData]) -> str:
    """What the colours and marks of these explanations mean."""
    kinds = {two_sided(e) for e in explanations}
    marks = [("speaks for it", 1.0, True), ("speaks against it", -1.0, True), ("matters", 1.0, False)]
    shown = [(name, shade_of(strength, signed)) for name, strength, signed in marks if signed in kinds]
    spans = "".join(f'<span style="background:{shade}">{name}</span>' for name, shade in shown)
    if mark := layout.marked(explanations[0]):
        spans += f'<span class="answer">{"the answer" if mark == "answer" else mark}</span>'
    return f'<div class="legend soft">{spans}</div>'


def _reasons(explanation: ExplanationData) -> str:
    """The strongest words or regions, each with what the model says without it."""
    top = layout.reasons(explanation, 10)
    peak = max((abs(reason.score) for reason in top), default=0) or 1
    scores, outputs = (escape(head) for head in layout.reason_heads(explanation))
    heads = f"<tr><th></th><th></th><th>{scores}</th><th>{outputs}</th><th></th></tr>" if top else ""
    first = [heads, *(_reason(explanation, reason, peak) for reason in top[:SHOWN])]
    rest = "".join(_reason(explanation, reason, peak) for reason in top[SHOWN:])
    for name, change, remark in layout.together_lines(explanation):
        cells = f'<td class="w">{name}</td><td></td><td></td><td class="p">{change}</td><td class="soft">{remark}</td>'
        first.append(f'<tr class="all">{cells}</tr>')
    steps = layout.steps_line(explanation)
    told = "" if steps is None else f'<p class="soft">{escape(steps)}</p>'
    more = f'<details><summary>more</summary><table class="reasons">{rest}</table></details>' if rest else ""
    return f'<table class="reasons">{"".join(first)}</table>{told}{more}'


def _reason(explanation: ExplanationData, reason: layout.ReasonLine, peak: float) -> str:
    bar = f'<div class="bar"><i style="width:{100 * abs(reason.score) / peak:.1f}%;background:{_rgba(reason.colour, 1)}"></i></div>'
    data = "" if reason.effect is None else _without(explanation, reason.effect)
    cells = f'<td class="w">{escape(reason.text)}</td><td>{bar}</td><td>{written(explanation, reason.score)}</td>'
    return f'<tr{data}>{cells}<td class="p">{reason.change}</td><td class="soft">{reason.remark}</td></tr>'


def _layers(explanation: ExplanationData, scale: Scale) -> str:
    if explanation.layers is None:
        return ""
    rows = layout.layer_rows(explanation)
    peak = common_peak([scores for _, scores in rows], scale)
    if explanation.image is not None:
        tiles = image_layers(rows, peak)
        return f"<details><summary>layer by layer</summary>{tiles}{_scale_line(peak, 'picture')}</details>"
    shown = layout.shown_places(explanation)
    names = "".join(f"<th>{escape(explanation.units[i].text)}</th>" for i in shown)
    body = []
    for name, scores in rows:
        cells = "".join(
            f'<td title="{written(scores, float(scores.scores[i]))}" style="background:{shade_of(float(s), scores.signed)}"></td>'
            for i, s in zip(shown, strengths(scores, peak)[shown], strict=True)
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
    return "" if explanation.trusted is None else _trust_part(explanation.trusted)


def trust_page(trust: TrustData) -> str:
    """What was found of one explanation as a page."""
    return PAGE.format(title="Trust", body=trust_fragment(trust))


def trust_fragment(trust: TrustData) -> str:
    """The same without the page around it, for notebooks."""
    return f'<style>{STYLE}</style><section class="why">{_trust_part(trust)}</section>'


def _trust_part(trust: TrustData) -> str:
    key = f'<p class="soft">{escape(f"{layout.gauge_title(trust)}: {layout.gauge_key(trust)}")}</p>'
    return f'<div class="trust"><p>{escape(trust.sentence)}</p>{_gauge(trust, [trust])}{key}</div>'


def _gauge(trust: TrustData, among: Sequence[TrustData]) -> str:
    """The random orders, the best and this one on a line, and the two numbers beside it."""
    (low, high), *places = layout.gauge(trust, among)
    marks = f'<i class="line"></i><i class="spread" style="left:{100 * low:.1f}%;width:{100 * (high - low):.1f}%"></i>'
    for name, place in zip(("chance", "best", "own"), places, strict=True):
        marks += "" if place is None else f'<i class="{name}" style="left:{100 * place:.1f}%"></i>'
    key = escape(f"{layout.gauge_title(trust)}: {layout.gauge_key(trust)}")
    gauge = f'<span class="gauge" role="img" aria-label="{key}" title="{key}">{marks}</span>'
    return gauge + layout.trust_numbers(trust)


def shade_of(strength: float, signed: bool) -> str:
    """What is behind a unit of that strength, -1 … 1: its colour, in stripes where it speaks against the target."""
    opacity = 0.62 * min(1.0, abs(strength))
    colour = _rgba(hue(strength, signed), opacity)
    if not signed or strength >= 0:
        return colour
    pale = _rgba(hue(strength, signed), HATCH * opacity)
    return f"repeating-linear-gradient(135deg,{colour} 0 3px,{pale} 3px 6px)"


def _rgba(colour: Colour, opacity: float) -> str:
    return f"rgba({colour[0]},{colour[1]},{colour[2]},{opacity:.3f})"


def facts_card(title: str, facts: Mapping[str, str]) -> str:
    """A title above named facts; those that are empty are left out."""
    rows = "".join(f"<tr><th>{escape(name)}</th><td>{escape(fact)}</td></tr>" for name, fact in facts.items() if fact)
    return f'<style>{STYLE}</style><section class="why"><h2>{escape(title)}</h2><table>{rows}</table></section>'
