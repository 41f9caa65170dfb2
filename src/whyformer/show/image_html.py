"""Explained images on a page: the picture, its heat as a layer with a slider, and scores for whoever points at a patch."""

import base64
import io
import json
from collections.abc import Iterator, Sequence
from html import escape

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from whyformer.inputs.images import Pixels
from whyformer.results.explanation import ExplanationData
from whyformer.show import layout
from whyformer.show.colours import largest, two_sided
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
