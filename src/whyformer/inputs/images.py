"""Images: which pixels each unit stands for, what people see of an image, and how parts of it are hidden."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from whyformer.caching import cached_property
from whyformer.errors import BadInput, BadOption
from whyformer.inputs.input import TWICE, Flags, Places, TensorInput, repeated
from whyformer.inputs.units import Box, Unit

Floats = NDArray[np.float64]
Pixels = NDArray[np.uint8]  # [height, width, 3], red, green and blue

BLUR = 1 / 8  # of the shorter side: the standard deviation of what blurs hidden parts
NOWHERE = -1  # the unit of a pixel that no unit stands for
CELLS = 8  # at most, down and across: patches that are hidden together where all orders of them are too many
FILLS = ("black", "mean", "blur", "zero")  # what may be seen in place of pixels
WHOLE = (0.0, 0.0, 1.0, 1.0)  # a picture from its left and top to its right and bottom
ACROSS, DOWN = ("left", "center", "right"), ("upper", "", "lower")  # the thirds of a picture


@dataclass(frozen=True, eq=False)
class Patches:
    """Which unit each pixel belongs to, [height, width]; `NOWHERE` for pixels that the model does not look at.

    The patches lie on a grid; `grid` has the place of each among the units, [rows, columns].
    """

    owner: NDArray[np.int64]
    grid: NDArray[np.int64]
    units: int  # in all, special ones included

    @cached_property
    def boxes(self) -> dict[int, Box]:
        """Of each patch, by its place, the box of its pixels: left, top, right, bottom."""
        boxes = {}
        for place in self.grid.ravel().tolist():
            rows, columns = np.nonzero(self.owner == place)
            boxes[place] = (int(columns.min()), int(rows.min()), int(columns.max()) + 1, int(rows.max()) + 1)
        return boxes

    @cached_property
    def within(self) -> Box:
        """The box of all pixels that belong to a patch."""
        rows, columns = np.nonzero(self.owner != NOWHERE)
        return int(columns.min()), int(rows.min()), int(columns.max()) + 1, int(rows.max()) + 1

    @cached_property
    def free(self) -> Flags:
        """Which units are patches, [units]: all others are special, as `[CLS]`."""
        free = np.zeros(self.units, dtype=bool)
        free[self.grid.ravel()] = True
        return free

    @cached_property
    def described(self) -> tuple[Unit, ...]:
        """The units: patches by row and column, counted from 1, and special ones."""
        places = {int(place): (row + 1, column + 1) for (row, column), place in np.ndenumerate(self.grid)}
        return tuple(
            Unit(f"row {places[n][0]}, column {places[n][1]}", "patch", box=self.boxes[n])
            if n in places
            else Unit(f"[unit {n}]", "patch", special=True)
            for n in range(self.units)
        )

    def cells(self) -> list[list[int]]:
        """The places of the patches in each cell of a grid of at most `CELLS` × `CELLS`, row by row."""
        down, across = (np.arange(count) * min(CELLS, count) // count for count in self.grid.shape)
        return [
            self.grid[np.ix_(down == row, across == column)].ravel().tolist()
            for row in np.unique(down)
            for column in np.unique(across)
        ]

    def sums(self, pixels: Tensor) -> Tensor:
        """What numbers of pixels, [batch, height, width], add up to in each unit, [batch, units]."""
        owner = torch.from_numpy(self.owner).to(pixels.device).flatten()
        seen = owner != NOWHERE
        sums = pixels.new_zeros((len(pixels), self.units))
        return sums.index_add_(1, owner[seen], pixels.flatten(1)[:, seen])


@dataclass(frozen=True, eq=False)
class Picture:
    """What people see of an image.

    `pixels` is the image as it was given, made smaller where it was very large. The model saw the part of it in
    `region` (left, top, right, bottom; fractions of width and height), as an image of `size` (height, width), in which
    boxes of units are counted. `seen` is that image, before its colours were normalised; None where that is not known.
    `values` are the model's own numbers [1, channels, height, width], which are not saved.
    `name` is the name of its file.
    """

    pixels: Pixels
    size: tuple[int, int]
    region: tuple[float, float, float, float] = WHOLE
    seen: Pixels | None = None
    values: Tensor | None = field(default=None, repr=False)
    name: str | None = None


def heat_map(units: Sequence[Unit], scores: Floats, size: tuple[int, int]) -> Floats:
    """Scores of patches as an image of `size` (height, width): their grid, upsampled bilinearly.

    Chefer et al. 2021, section 3.4. Special units have no place in it.
    """
    grid = torch.from_numpy(score_grid(units, scores))[None]
    lefts, tops, rights, bottoms = zip(*(unit.box for unit in units if unit.box is not None), strict=True)
    heat: Floats = upsampled(grid, size, (min(lefts), min(tops), max(rights), max(bottoms)))[0].numpy()
    return heat


def upsampled(grids: Tensor, size: tuple[int, int], within: Box) -> Tensor:
    """Grids of scores, [batch, rows, columns], as images of `size` (height, width); 0 outside of what patches cover."""
    left, top, right, bottom = within
    inner = F.interpolate(grids[:, None], size=(bottom - top, right - left), mode="bilinear", align_corners=False)
    return F.pad(inner[:, 0], (left, size[1] - right, top, size[0] - bottom))


def score_grid(units: Sequence[Unit], scores: Floats) -> Floats:
    """Scores of patches on their grid, [rows, columns]."""
    boxes = [(unit.box, float(score)) for unit, score in zip(units, scores, strict=True) if unit.box is not None]
    rows = {top: n for n, top in enumerate(sorted({box[1] for box, _ in boxes}))}
    columns = {left: n for n, left in enumerate(sorted({box[0] for box, _ in boxes}))}
    if not boxes or len(boxes) != len(rows) * len(columns):
        raise BadInput(f"a heat map needs patches on a grid; found {len(boxes)} boxes")
    grid = np.zeros((len(rows), len(columns)))
    for (left, top, *_), score in boxes:
        grid[rows[top], columns[left]] = score
    return grid


@dataclass(frozen=True, eq=False)
class ImageInput(TensorInput):
    """One image as the model sees it: `pixel_values` [1, channels, height, width], and which pixels each unit has.

    `black` is what a black pixel is in each channel, where that is known. `covered` marks the pixels that are hidden,
    [height · width] in packed bits, and `fill` says what is seen in their place.
    """

    patches: Patches
    picture: Picture | None = field(default=None, kw_only=True)
    black: tuple[float, ...] | None = field(default=None, kw_only=True)
    covered: Pixels | None = field(default=None, kw_only=True)
    fill: str = field(default="", kw_only=True)
    uncovered: "ImageInput | None" = field(default=None, kw_only=True)  # the same with nothing hidden

    texts: ClassVar[tuple[str, ...]] = ()
    dropped: ClassVar[int] = 0
    counted: ClassVar[bool] = True
    window: ClassVar[None] = None
    no_answer: ClassVar[None] = None

    def __len__(self) -> int:
        return self.patches.units

    def warn(self, alone: bool = True) -> None:
        """The model sees all of an image that it was given."""

    @property
    def source(self) -> Any:
        """What people see."""
        return self.picture

    @property
    def pixels(self) -> Tensor:
        """The model's own numbers, with nothing hidden."""
        values = self.tensors["pixel_values"]
        assert isinstance(values, Tensor)
        return values

    def groups(self, kind: Any) -> list[list[int]]:
        """The places of what is ranked and hidden as one: each patch."""
        if kind == "word":
            raise BadInput("words need texts: the units of an image are patches (units='token')")
        return [[place] for place in np.flatnonzero(self.patches.free).tolist()]

    def place_name(self, places: Sequence[int]) -> str:
        """Return the part of the picture in which patches lie, by their center: "upper left", "center"."""
        left, top, right, bottom = WHOLE if self.picture is None else self.picture.region
        boxes = np.array([self.patches.boxes[place] for place in places])
        middle = (boxes[:, :2].min(0) + boxes[:, 2:].max(0)) / 2
        height, width = self.patches.owner.shape
        x, y = left + (right - left) * middle[0] / width, top + (bottom - top) * middle[1] / height
        return f"{DOWN[int(3 * y)]} {ACROSS[int(3 * x)]}".strip()

    @cached_property
    def key(self) -> bytes:
        """The numbers themselves, and what is hidden how."""
        if self.uncovered is None:
            return super().key
        away = self.covered if self.gone is None else self.gone
        assert away is not None
        digest = hashlib.blake2b(away.tobytes(), digest_size=16).digest()
        return self.uncovered.key + digest + self.fill.encode()

    @property
    def kind(self) -> Any:
        """Images of one size are run as one batch, if the model is given nothing else and as many units are left."""
        alone = len(self.tensors) > 1
        left = None if self.gone is None else int((~self.gone).sum())
        return "image", tuple(self.pixels.shape), self.pixels.dtype, left, id(self.tensors) if alone else None

    def exchanged(self, places: Places, instead: int | None) -> "ImageInput":
        """With zeros in place of some patches: of normalised colours, the average."""
        if instead is not None:
            raise BadOption("a token cannot take the place of a patch: use hide='mean', 'black' or 'blur'")
        return self.hidden(places, "zero")

    def hidden(self, places: Places, fill: str) -> "ImageInput":
        """With something else seen in place of some patches."""
        return self.without_pixels(np.isin(self.patches.owner, np.asarray(places, dtype=np.int64)), fill)

    def without_pixels(self, covered: Flags, fill: str) -> "ImageInput":
        """With something else seen in place of some pixels, [height, width]."""
        if self.uncovered is not None:
            raise BadOption(TWICE)
        if fill not in FILLS:
            raise BadOption(f"hide={fill!r} does not cover pixels: use {', '.join(map(repr, FILLS))}")
        if fill == "black" and self.black is None:
            raise BadOption(
                "hide='black' is not possible: how colours were normalised is not known, so neither is what is black; "
                "use hide='mean', or give an image and not a tensor"
            )
        return replace(self, covered=np.packbits(covered), fill=fill, uncovered=self)

    def without_units(self, places: Places) -> "ImageInput":
        """Without the units of some patches: the model goes on with the others, which stay in their positions."""
        if self.uncovered is not None:
            raise BadOption(TWICE)
        return replace(self, gone=self._at(places), fill="drop", uncovered=self)

    def filling(self) -> Tensor:
        """What is seen in place of hidden pixels, [1, channels, height, width] or [1, channels, 1, 1]."""
        pixels = self.pixels
        if self.fill == "black":
            return torch.tensor(self.black, dtype=pixels.dtype, device=pixels.device).view(1, -1, 1, 1)
        if self.fill == "mean":
            return pixels.mean((2, 3), keepdim=True)
        if self.fill == "blur":
            return blurred(pixels)
        return pixels.new_zeros(1, 1, 1, 1)

    def shown(self, device: torch.device) -> Tensor:
        """What the model is given, [1, channels, height, width]."""
        return self.joined([self], device)["pixel_values"]

    def settled(self, device: torch.device) -> "ImageInput":
        """The same image, with what is hidden gone for good."""
        return replace(self, tensors={**self.tensors, "pixel_values": self.shown(device)}, covered=None, uncovered=None)

    @staticmethod
    def joined(inputs: Sequence["ImageInput"], device: torch.device) -> dict[str, Tensor]:
        """Images of one kind as one batch."""
        beside = {name: values for name, values in inputs[0].tensors.items() if name != "pixel_values"}
        batch = {name: repeated(values, len(inputs), device) for name, values in beside.items()}
        return {**batch, "pixel_values": _covered(inputs, device)}

    @property
    def _filling(self) -> Tensor:
        """The filling of the image that this is a copy of: computed once for all copies."""
        whole = self.uncovered or self
        fillings: dict[str, Tensor] = whole.__dict__.setdefault("fillings", {})
        if self.fill not in fillings:
            fillings[self.fill] = self.filling()
        return fillings[self.fill]


def _covered(inputs: Sequence[ImageInput], device: torch.device) -> Tensor:
    """Images of one size with what is seen in place of their hidden pixels: [batch, channels, height, width]."""
    pixels = torch.cat([one.pixels.to(device) for one in inputs])
    masks = {row: one.covered for row, one in enumerate(inputs) if one.covered is not None}
    if not masks:
        return pixels
    hiding = list(masks)
    packed = torch.from_numpy(np.stack(list(masks.values()))).to(device)
    bits = packed[:, :, None] >> torch.arange(7, -1, -1, device=device).to(torch.uint8) & 1
    height, width = pixels.shape[2:]
    covered = bits.flatten(1)[:, : height * width].view(-1, 1, height, width).bool()
    fillings = [inputs[row]._filling.to(device) for row in hiding]
    size = tuple(max(sizes) for sizes in zip(*(one.shape for one in fillings), strict=True))
    filling = torch.cat([one.expand(1, *size[1:]) for one in fillings])
    pixels[hiding] = torch.where(covered, filling, pixels[hiding])
    return pixels


def blurred(pixels: Tensor) -> Tensor:
    """Images [batch, channels, height, width], blurred by a Gaussian whose edges repeat."""
    deviation = BLUR * min(pixels.shape[2:])
    reach = max(1, round(3 * deviation))
    offsets = torch.arange(-reach, reach + 1, dtype=torch.float64)
    weights = torch.exp(-0.5 * (offsets / max(deviation, 1e-6)) ** 2)
    weights = (weights / weights.sum()).to(pixels)
    channels = pixels.shape[1]
    flat = F.pad(pixels, (reach, reach, reach, reach), mode="replicate")
    flat = F.conv2d(flat, weights.view(1, 1, -1, 1).expand(channels, 1, -1, 1), groups=channels)
    return F.conv2d(flat, weights.view(1, 1, 1, -1).expand(channels, 1, 1, -1), groups=channels)
