"""Heat over a picture: what every way to draw an explained image shares."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from whyformer.arrays import FloatArray
from whyformer.errors import BadInput
from whyformer.inputs.images import Picture, Pixels, heat_map
from whyformer.results.explanation import ExplanationData
from whyformer.show.colors import hue, scaled, strengths, two_sided, written

OPACITY = 0.9  # of the strongest heat
FADED = 0.55  # how much of a picture in grey is left under its heat, on white
DIMMED = 0.4  # the brightness of what the model did not see
SMALL = 256  # pixels: pictures whose longer side is shorter are drawn larger
LARGE = 360  # pixels: how large at least
TINY = 64  # pixels: pictures of which each pixel is seen
GREY = (0.299, 0.587, 0.114)  # how bright red, green and blue are (ITU-R BT.601)

Rectangle = tuple[int, int, int, int]  # left, top, right, bottom


def picture_of(explanation: ExplanationData) -> Picture:
    """What people see of an explained image."""
    if explanation.image is None:
        raise BadInput("heat is drawn over an image, and this explanation is of a text")
    return explanation.image


def heat_strengths(explanation: ExplanationData, peak: float | None = None) -> FloatArray:
    """The heat map [height, width], divided by its largest magnitude or by `peak`, in the pixels that the model saw."""
    if explanation.pixels is not None:
        return scaled(explanation.pixels, peak)
    return heat_map(explanation.units, strengths(explanation, peak), picture_of(explanation).size)


def layer(strength: FloatArray, signed: bool) -> NDArray[np.uint8]:
    """Heat as a transparent layer [height, width, 4]: the colour says for or against, the opacity how much."""
    sides = [np.array((*hue(side, signed), 0)) for side in (1.0, -1.0)]
    drawn = np.where(strength[..., None] >= 0, *sides)
    drawn[..., 3] = np.round(255 * OPACITY * np.minimum(1, np.abs(strength)))
    return drawn.astype(np.uint8)


def blended(explanation: ExplanationData, peak: float | None = None) -> Pixels:
    """The picture in pale grey under its heat, [height, width, 3]; what the model did not see is dark."""
    picture = enlarged(picture_of(explanation).pixels)
    grey = np.repeat((255 - FADED * (255 - picture @ np.array(GREY)))[..., None], 3, axis=2)
    left, top, right, bottom = region = seen_part(explanation, picture)
    heat = layer(_resized(heat_strengths(explanation, peak), region), two_sided(explanation)).astype(np.float64)
    weight = heat[..., 3:] / 255
    drawn = DIMMED * grey
    drawn[top:bottom, left:right] = (1 - weight) * grey[top:bottom, left:right] + weight * heat[..., :3]
    return np.round(drawn).astype(np.uint8)


def enlarged(pixels: Pixels) -> Pixels:
    """A small picture so large that smooth heat fits on it, a tiny one with its pixels seen; others as they are."""
    longer = max(pixels.shape[:2])
    if longer >= SMALL:
        return pixels
    height, width = (side * -(-LARGE // longer) for side in pixels.shape[:2])
    way = Image.Resampling.NEAREST if longer <= TINY else Image.Resampling.BICUBIC
    return np.asarray(Image.fromarray(pixels).resize((width, height), way))


def seen_part(explanation: ExplanationData, pixels: Pixels) -> Rectangle:
    """Which pixels of a picture the model saw: left, top, right, bottom, at least one each way."""
    (height, width), (left, top, right, bottom) = pixels.shape[:2], picture_of(explanation).region
    first = min(round(left * width), width - 1), min(round(top * height), height - 1)
    return *first, max(round(right * width), first[0] + 1), max(round(bottom * height), first[1] + 1)


def _resized(strength: FloatArray, part: Rectangle) -> FloatArray:
    """A map as large as a part of a picture, by bilinear interpolation."""
    left, top, right, bottom = part
    image = Image.fromarray(strength.astype(np.float32))
    return np.asarray(image.resize((right - left, bottom - top), Image.Resampling.BILINEAR), dtype=np.float64)


Frame = tuple[float, float, float, float]  # left, top, right, bottom


class Cells(NamedTuple):
    """The patches of a picture as a grid: where they lie, in fractions of the picture, and their scores in words."""

    across: list[float]  # where each column begins, and where the last one ends
    down: list[float]
    scores: list[str]  # of each cell, row by row


def cells(explanation: ExplanationData) -> Cells:
    """The grid of patches, for whoever points at one."""
    picture = picture_of(explanation)
    (height, width), (left, top, right, bottom) = picture.size, picture.region
    boxes = sorted(
        (unit.box[1], unit.box[0], *unit.box[2:], written(explanation, float(score)))
        for unit, score in zip(explanation.units, explanation.scores, strict=True)
        if unit.box is not None
    )
    across = [*sorted({box[1] for box in boxes}), max(box[2] for box in boxes)]
    down = [*sorted({box[0] for box in boxes}), max(box[3] for box in boxes)]
    return Cells(
        [left + (right - left) * x / width for x in across],
        [top + (bottom - top) * y / height for y in down],
        [box[-1] for box in boxes],
    )


def regions(explanation: ExplanationData) -> list[Frame]:
    """Where the regions lie that were checked, in fractions of the picture."""
    picture, checked = picture_of(explanation), explanation.checked
    (height, width), (left, top, right, bottom) = picture.size, picture.region
    frames = []
    for effect in () if checked is None else checked.effects:
        boxes = [box for place in effect.units if (box := explanation.units[place].box) is not None]
        if boxes:
            low, high = np.min(boxes, axis=0)[:2] / (width, height), np.max(boxes, axis=0)[2:] / (width, height)
            across = [left + (right - left) * float(x) for x in (low[0], high[0])]
            down = [top + (bottom - top) * float(y) for y in (low[1], high[1])]
            frames.append((across[0], down[0], across[1], down[1]))
    return frames
