"""Images as inputs: patches, the picture that people see, and how parts of it are hidden.

Pillow opens files, and its settings stay as they are. Whatever holds an image becomes an upright RGB picture, or is
refused in one line:

| found | result |
|---|---|
| an EXIF orientation | the picture is turned upright; an orientation that cannot be read turns nothing |
| transparency | the picture is laid over white |
| one channel of 16 bits | 0 … 65535 is scaled to 0 … 255 |
| numbers of 32 bits | the same, if they are in 0 … 65535; others have no known brightness |
| floating-point numbers | refused: it is unknown which of them is white |
| several frames or pages | the first is taken, with an `AnimationWarning` |
| a color profile | not applied; processors of models do not apply it either |
"""

import hashlib
import io
import os
import struct
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from stat import S_ISDIR
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError
from torch import Tensor

from whyformer.arrays import BoolArray, FloatArray
from whyformer.caching import cached_property
from whyformer.errors import AnimationWarning, BadInput, BadOption, WhyformerError, reason_of, shown
from whyformer.inputs.input import TWICE, Places, TensorInput, repeated
from whyformer.inputs.units import Box, Unit
from whyformer.storage.files import LONGEST_NAME, mode_of, naming, path_of, spooled

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
    def free(self) -> BoolArray:
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


def heat_map(units: Sequence[Unit], scores: FloatArray, size: tuple[int, int]) -> FloatArray:
    """Scores of patches as an image of `size` (height, width): their grid, upsampled bilinearly.

    Chefer et al. 2021, section 3.4. Special units have no place in it.
    """
    grid = torch.from_numpy(score_grid(units, scores))[None]
    lefts, tops, rights, bottoms = zip(*(unit.box for unit in units if unit.box is not None), strict=True)
    heat: FloatArray = upsampled(grid, size, (min(lefts), min(tops), max(rights), max(bottoms)))[0].numpy()
    return heat


def upsampled(grids: Tensor, size: tuple[int, int], within: Box) -> Tensor:
    """Grids of scores, [batch, rows, columns], as images of `size` (height, width); 0 outside of what patches cover."""
    left, top, right, bottom = within
    inner = F.interpolate(grids[:, None], size=(bottom - top, right - left), mode="bilinear", align_corners=False)
    return F.pad(inner[:, 0], (left, size[1] - right, top, size[0] - bottom))


def score_grid(units: Sequence[Unit], scores: FloatArray) -> FloatArray:
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

    def without_pixels(self, covered: BoolArray, fill: str) -> "ImageInput":
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


ENDINGS = frozenset(
    {
        *(".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".apng", ".webp", ".bmp", ".dib", ".gif", ".tif", ".tiff"),
        *(".avif", ".heic", ".heif", ".jp2", ".j2k", ".ico", ".ppm", ".pgm", ".pbm", ".pnm", ".tga"),
    }
)
ACCEPTED = "a file, its bytes, a PIL image, or an array or tensor of uint8 (height × width × 3)"
CHANNELS = (1, 3, 4)  # gray, RGB, RGBA
CHANNELS_FIRST = (1, 3)  # as tensors have them
ORIENTATION = 0x0112  # the tag of EXIF
MAGIC = 12  # bytes of a file that are shown where it is no image
DEEPEST = 65535  # the brightest number of 16 bits
LABELS = 255  # the largest number of a label in a mask
_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
_BAD_METADATA = (ValueError, SyntaxError, TypeError, LookupError, AttributeError, OSError, EOFError, struct.error)
_STILL = ("MPO", "PSD")  # a photo with its previews, a picture with its layers: the first is the whole
_SCALED = {"L;2": 85, "L;4": 17}  # what Pillow multiplies the numbers of such PNG files by


def is_picture(value: Any) -> bool:
    """Whether a value holds an image, as far as can be told without opening it.

    A text counts if it ends like an image file: only who knows that a model takes images should ask about texts.
    Arrays and tensors of floating-point numbers are no pictures but what a model is given.
    """
    if isinstance(value, str | os.PathLike):
        return Path(value).suffix.casefold() in ENDINGS
    if isinstance(value, np.ndarray | torch.Tensor):
        return value.dtype in (np.uint8, torch.uint8) and 2 <= value.ndim <= 4
    return isinstance(value, Image.Image | bytes | bytearray | StoredImage)


@runtime_checkable
class StoredArray(Protocol):
    """Numbers that a data set holds, or that are drawn when they are needed."""

    def array(self) -> NDArray[Any]:
        """The numbers, read now."""


Stored = Path | bytes | Image.Image | NDArray[Any] | StoredArray  # an image or mask that is not decoded yet


@dataclass(frozen=True)
class StoredImage:
    """An image of a data set, decoded when it is asked for; `name` is what messages call it."""

    source: Stored = field(repr=False)
    name: str = ""

    def open(self) -> Image.Image:
        """The picture: upright and in RGB, or a `BadInput` that says why there is none."""
        return open_picture(loaded(self.source), self.name)

    @property
    def digest(self) -> str:
        """A hash of the image as it is stored."""
        return stored_digest(self.source)


def loaded(source: Stored) -> Any:
    """What `open_picture` and `open_mask` take."""
    return source.array() if isinstance(source, StoredArray) else source


def stored_digest(source: Stored) -> str:
    """A hash of what is stored: of the bytes of a file, or of the size and the numbers."""
    if isinstance(source, Path):
        with naming(source, "read the image"):
            source = source.read_bytes()
    if not isinstance(source, bytes):
        numbers = np.asarray(loaded(source))
        source = repr((numbers.shape, str(numbers.dtype))).encode() + numbers.tobytes()
    return hashlib.blake2b(source, digest_size=16).hexdigest()


def open_picture(source: Any, name: str = "") -> Image.Image:
    """An upright RGB picture of a file, bytes, a PIL image, or an array or tensor of uint8; `BadInput` says why not.

    So is that of a `StoredImage`. `name` is what messages call it. The rules are at the head of this module.
    """
    if isinstance(source, StoredImage):
        return source.open()
    name = name or _name_of(source)
    if isinstance(source, np.ndarray | torch.Tensor):
        return _rgb(Image.fromarray(_pixels(_array(source), name)), name)
    with _decoded(source, name) as image:
        _warn_of_frames(image, name)
        with _readable(name):
            picture = _rgb(_upright(image), name)
    picture.info = {}  # else it would be turned once more by whoever looks at its metadata
    return picture


def open_mask(source: Any, name: str = "") -> NDArray[np.uint8]:
    """The label numbers of a mask, [height, width]: those of a palette or of gray values, never colours.

    It is upright as `open_picture` is. Numbers of more than 255 are refused, and so are images in colour.
    """
    name = name or _name_of(source)
    if isinstance(source, np.ndarray | torch.Tensor):
        return _labels(_array(source), name)
    with _decoded(source, name) as image, _readable(name):
        tiles = getattr(image, "tile", None)
        scale = _SCALED.get(str(tiles[0][3]), 1) if tiles else 1
        if image.mode not in ("1", "L", "P", "I") and not image.mode.startswith("I;16"):
            raise BadInput(
                f"{name} is in colour ({image.mode}): a mask has one label number for each pixel (L, P, 1, I)"
            )
        return _labels(np.asarray(_upright(image)), name) // np.uint8(scale)


def file_name(source: Any) -> str | None:
    """The name of the file that holds an image, without its folder; None for an image that is in no file."""
    if isinstance(source, StoredImage):
        source = source.source
    return Path(source).name if isinstance(source, str | os.PathLike) else None


def _name_of(source: Any) -> str:
    if isinstance(source, str | os.PathLike):
        return f"the image {shown(str(source), LONGEST_NAME)}"
    if isinstance(source, bytes | bytearray):
        return f"the image of {len(source):,} bytes"
    if isinstance(source, np.ndarray | torch.Tensor):
        return f"the image of shape {tuple(source.shape)}"
    return "the image"


@contextmanager
def _decoded(source: Any, name: str) -> Iterator[Image.Image]:
    """The image that a file, bytes or a PIL image hold; what was opened here is closed again."""
    if isinstance(source, Image.Image):
        yield source
        return
    if isinstance(source, bytes | bytearray):
        content: Any = io.BytesIO(source)
        first, size = bytes(source[:MAGIC]), len(source)
    elif isinstance(source, str | os.PathLike):
        content = _file(source, name)
        with naming(content, "read the image"), content.open("rb") as file:
            first, size = file.read(MAGIC), content.stat().st_size
    else:
        raise BadInput(f"an image is {ACCEPTED}; found {type(source).__name__}")
    if not size:
        raise BadInput(f"{name} is empty (0 bytes): is it still being written, or was a download cut off?")
    with _opened(content, name, first) as image:
        yield image


def _file(source: Any, name: str) -> Path:
    """The path of a file that is there."""
    path = path_of(source)
    if not (mode := mode_of(path)):
        hint = "it is an address: download it first" if "://" in str(source) else "check the path"
        raise BadInput(f"there is no file {name.removeprefix('the image ')}: {hint}")
    if S_ISDIR(mode):
        raise BadInput(f"{name} is a folder: give an image file in it")
    return spooled(path)


def _opened(content: Any, name: str, first: bytes) -> Image.Image:
    try:
        with _quiet():
            return Image.open(content)
    except Image.DecompressionBombError as error:
        what = "make it smaller, or raise PIL.Image.MAX_IMAGE_PIXELS if you trust it"
        raise BadInput(f"{name} is too large: {reason_of(error)}; {what}") from error
    except UnidentifiedImageError as error:
        begins = f"it begins with {first!r}"
        raise BadInput(f"{name} is no image that Pillow can read: {begins}; give a JPEG, PNG or WebP file") from error
    except Exception as error:
        raise _damaged(name, error) from error


@contextmanager
def _quiet() -> Iterator[None]:
    """Pillow's warnings (of large images, of odd metadata) say nothing about the picture."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@contextmanager
def _readable(name: str) -> Iterator[None]:
    """Whatever Pillow raises while it decodes is a BadInput that names the image."""
    try:
        with _quiet():
            yield
    except WhyformerError:
        raise
    except Exception as error:
        raise _damaged(name, error) from error


def _damaged(name: str, error: Exception) -> BadInput:
    return BadInput(f"{name} cannot be decoded: {reason_of(error)}; is the file whole? save it anew as PNG or JPEG")


def _warn_of_frames(image: Image.Image, name: str) -> None:
    with _readable(name):
        frames = getattr(image, "n_frames", 1) if image.format not in _STILL else 1
        taken = image.tell() + 1 if frames > 1 else 1
    if frames > 1:
        which = "only the first is taken" if taken == 1 else f"only frame {taken}, where it stands, is taken"
        warnings.warn(f"{name} has {frames:,} frames: {which}", AnimationWarning, stacklevel=3)


def _upright(image: Image.Image) -> Image.Image:
    """The image as its EXIF orientation wants it seen."""
    image.load()  # some formats have their EXIF data behind the pixels
    try:
        turn = _TURNS.get(image.getexif().get(ORIENTATION, 1))
    except _BAD_METADATA:
        turn = None
    return image if turn is None else image.transpose(turn)


def _rgb(image: Image.Image, name: str) -> Image.Image:
    """The image in RGB, by the rules of this module; always another object than the one that was given."""
    if 0 in image.size:
        raise BadInput(f"{name} has no pixels: it is {image.width} × {image.height}")
    if image.mode == "F":
        raise BadInput(
            f"{name} holds floating-point numbers, and which of them is white is not known: save it with 8 bits, or "
            "give the model's own pixel_values as a floating-point tensor"
        )
    if image.mode == "I" or image.mode.startswith("I;16"):
        return _of_16_bits(np.asarray(image).astype(np.int64), name)
    if image.has_transparency_data:
        white = Image.new("RGBA", image.size, "white")
        return Image.alpha_composite(white, image.convert("RGBA")).convert("RGB")
    return image.convert("RGB") if image.mode != "RGB" else image.copy()


def _of_16_bits(numbers: NDArray[np.int64], name: str) -> Image.Image:
    lowest, highest = int(numbers.min()), int(numbers.max())
    if lowest < 0 or highest > DEEPEST:
        raise BadInput(
            f"{name} holds numbers from {lowest} to {highest}: up to {DEEPEST:,} they are gray values of 16 bits, "
            "beyond it is not known which is white; save it with 8 or 16 bits"
        )
    return Image.fromarray(((numbers * 255 + DEEPEST // 2) // DEEPEST).astype(np.uint8)).convert("RGB")


def _array(source: NDArray[Any] | torch.Tensor) -> NDArray[Any]:
    return source.detach().cpu().numpy() if isinstance(source, torch.Tensor) else source


def _pixels(array: NDArray[Any], name: str) -> NDArray[np.uint8]:
    """[height, width] or [height, width, channels] of an array; channels may stand first where that is clear."""
    if array.dtype != np.uint8:
        hint = "; floating-point numbers are a model's pixel_values" if array.dtype.kind == "f" else ""
        raise BadInput(f"{name} is of {array.dtype}: pixels are uint8, 0 … 255{hint}")
    if array.ndim == 4:
        if len(array) != 1:
            raise BadInput(f"{name} is a batch of {len(array)}: give a list of its images")
        array = array[0]
    if array.ndim == 3:
        array = _channels_last(array, name)
    elif array.ndim != 2:
        raise BadInput(f"{name} has {array.ndim} dimensions: give height × width × 3")
    if array.size == 0:
        raise BadInput(f"{name} has no pixels")
    return np.ascontiguousarray(array)


def _channels_last(array: NDArray[Any], name: str) -> NDArray[Any]:
    first, last = array.shape[0], array.shape[-1]
    if last in CHANNELS and first == 3:
        raise BadInput(f"{name} may have its channels first or last: give a PIL image")
    if last not in CHANNELS and first not in CHANNELS_FIRST:
        raise BadInput(f"{name} has neither 1, 3 nor 4 channels: give height × width × 3")
    array = array if last in CHANNELS else np.moveaxis(array, 0, -1)
    return array[..., 0] if array.shape[-1] == 1 else array


def _labels(array: NDArray[Any], name: str) -> NDArray[np.uint8]:
    if array.ndim == 3 and 1 in (array.shape[0], array.shape[-1]):
        array = array[..., 0] if array.shape[-1] == 1 else array[0]
    if array.dtype.kind not in "bui" or array.ndim != 2 or array.size == 0:
        kind = f"{array.dtype} of shape {tuple(array.shape)}"
        raise BadInput(f"{name} is {kind}: a mask is whole numbers, height × width")
    if array.min() < 0 or array.max() > LABELS:
        raise BadInput(f"{name} has labels from {array.min()} to {array.max()}: those of a mask are 0 … {LABELS}")
    return array.astype(np.uint8)
