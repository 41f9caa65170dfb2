"""Image files as people have them: each gives the right picture, or one clear line."""

import io
import struct
import warnings
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image, ImageFile

from tests.helpers.pictures import BLUE, RED, WHITE, encoded
from whyformer.errors import AnimationWarning, BadInput
from whyformer.inputs.images import is_picture, open_mask, open_picture

WIDE = (6, 4)  # width, height


def halves(mode: str = "RGB", size: tuple[int, int] = WIDE) -> Image.Image:
    """Red on the left, blue on the right."""
    image = Image.new("RGB", size, RED)
    image.paste(BLUE, (size[0] // 2, 0, *size))
    return image.convert(mode)


def saved(image: Image.Image, path: Path, **options: Any) -> Path:
    image.save(path, **options)
    return path


def near(image: Image.Image, place: tuple[int, int], colour: tuple[int, ...], apart: int = 60) -> bool:
    """Whether a pixel has a colour, as far as JPEG keeps it."""
    return all(abs(a - b) <= apart for a, b in zip(image.getpixel(place), colour, strict=True))


def assert_halves(image: Image.Image) -> None:
    assert image.mode == "RGB"
    assert image.size == WIDE
    assert near(image, (0, 3), RED)
    assert near(image, (5, 0), BLUE)


@pytest.mark.parametrize(
    "give",
    [
        lambda path: path,
        str,
        lambda path: path.read_bytes(),
        lambda path: bytearray(path.read_bytes()),
        Image.open,
        lambda path: np.asarray(Image.open(path)),
        lambda path: torch.from_numpy(np.array(Image.open(path))),
        lambda path: np.asarray(Image.open(path)).transpose(2, 0, 1),
        lambda path: torch.from_numpy(np.array(Image.open(path))).permute(2, 0, 1),
        lambda path: torch.from_numpy(np.array(Image.open(path)))[None],
        lambda path: np.asarray(Image.open(path).convert("RGBA")),
    ],
)
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_whatever_holds_an_image(tmp_path: Path, give: Callable[[Path], Any]) -> None:
    value = give(saved(halves(), tmp_path / "a.png"))
    assert is_picture(value)
    assert_halves(open_picture(value))


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF", "PPM", "TGA", "JPEG2000", "ICO"])
def test_formats(kind: str) -> None:
    image = open_picture(encoded(halves(size=(32, 32)), kind))
    assert near(image, (3, 16), RED)
    assert near(image, (29, 16), BLUE)


TURNED = {  # how the stored pixels lie where the orientation says so
    1: lambda image: image,
    2: lambda image: image.transpose(Image.Transpose.FLIP_LEFT_RIGHT),
    3: lambda image: image.rotate(180),
    4: lambda image: image.transpose(Image.Transpose.FLIP_TOP_BOTTOM),
    5: lambda image: image.transpose(Image.Transpose.TRANSPOSE),
    6: lambda image: image.rotate(90, expand=True),
    7: lambda image: image.transpose(Image.Transpose.TRANSVERSE),
    8: lambda image: image.rotate(270, expand=True),
}


@pytest.mark.parametrize("orientation", TURNED)
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF"])
def test_exif_turns_the_picture_upright(orientation: int, kind: str) -> None:
    upright = halves(size=(64, 32))
    upright.paste(WHITE, (0, 0, 16, 16))
    exif = Image.Exif()
    exif[0x0112] = orientation
    image = open_picture(encoded(TURNED[orientation](upright), kind, exif=exif))
    assert image.size == (64, 32)
    assert near(image, (4, 4), WHITE)
    assert near(image, (60, 28), BLUE)
    assert open_picture(image).size == (64, 32), "not turned twice"


def test_exif_that_is_damaged_turns_nothing() -> None:
    for exif in (
        b"Exif\0\0nonsense",
        b"Exif\0\0II*\0\xff\xff\xff\xff",
        b"Exif\0\0MM\0*\0\0\0\x08\xff\xff" + b"\1" * 40,
    ):
        assert_halves(open_picture(encoded(halves(), "JPEG", exif=exif, quality=95, subsampling=0)))


def test_gray_cmyk_and_one_bit() -> None:
    assert open_picture(encoded(Image.new("L", WIDE, 77))).getpixel((1, 1)) == (77, 77, 77)
    assert open_picture(encoded(Image.new("1", WIDE, 1))).getpixel((1, 1)) == WHITE
    assert near(open_picture(encoded(halves("CMYK", (32, 32)), "JPEG")), (3, 3), RED)
    assert near(open_picture(encoded(halves("YCbCr"), "JPEG", subsampling=0)), (0, 0), RED)
    assert near(open_picture(halves("HSV")), (0, 0), RED)


def test_transparency_is_laid_over_white() -> None:
    clear = Image.new("RGBA", WIDE, (255, 0, 0, 0))
    clear.putpixel((0, 0), (0, 0, 0, 255))
    clear.putpixel((1, 0), (0, 0, 0, 128))
    for image in (clear, encoded(clear), encoded(clear, "WEBP", lossless=True), np.asarray(clear)):
        picture = open_picture(image)
        assert [picture.getpixel((x, 0)) for x in range(3)] == [(0, 0, 0), (127, 127, 127), WHITE]
    gray = Image.new("LA", WIDE, (10, 0))
    assert open_picture(encoded(gray)).getpixel((0, 0)) == WHITE
    palette = halves("P")
    for transparent in (palette.getpixel((0, 0)), bytes([0] * 256)):
        left = open_picture(encoded(palette, transparency=transparent)).getpixel((0, 0))
        assert left == WHITE
    assert open_picture(encoded(Image.new("RGB", WIDE, RED), transparency=RED)).getpixel((0, 0)) == WHITE
    assert_halves(open_picture(encoded(halves("P"))))


def test_16_bits_are_scaled_and_not_cut_off() -> None:
    numbers = np.array([[0, 257, 32768, 65535]], dtype=np.uint16)
    expected = [0, 1, 128, 255]
    for kind in ("PNG", "TIFF", "PPM"):
        picture = open_picture(encoded(Image.fromarray(numbers), kind))
        assert [picture.getpixel((x, 0))[0] for x in range(4)] == expected, kind
    picture = open_picture(Image.fromarray(numbers.astype(np.int32)))
    assert [picture.getpixel((x, 0))[0] for x in range(4)] == expected
    for wrong in (-1, 65536):
        with pytest.raises(BadInput, match=r"holds numbers from .* up to 65,535 they are gray values of 16 bits"):
            open_picture(Image.fromarray(np.array([[0, wrong]], dtype=np.int32)))


def test_floating_point_images_are_refused(tmp_path: Path) -> None:
    path = saved(Image.fromarray(np.ones((4, 6), np.float32)), tmp_path / "a.tif")
    with pytest.raises(
        BadInput, match=r"a\.tif.* floating-point numbers.*save it with 8 bits, or give the model's own"
    ):
        open_picture(path)


@pytest.mark.parametrize("kind", ["GIF", "PNG", "WEBP", "TIFF"])
def test_of_an_animation_the_first_frame_is_taken(kind: str) -> None:
    frames = [halves(), Image.new("RGB", WIDE, WHITE), Image.new("RGB", WIDE, BLUE)]
    content = encoded(frames[0], kind, save_all=True, append_images=frames[1:], lossless=True)
    with pytest.warns(AnimationWarning, match="has 3 frames: only the first is taken"):
        assert_halves(open_picture(content))
    with Image.open(io.BytesIO(content)) as image:
        image.seek(1)
        with pytest.warns(AnimationWarning, match="only frame 2, where it stands"):
            assert near(open_picture(image), (0, 0), WHITE)


def test_a_photo_with_its_previews_is_no_animation() -> None:
    content = encoded(halves(size=(32, 32)), "MPO", save_all=True, append_images=[Image.new("RGB", (8, 8))])
    assert open_picture(content).size == (32, 32)


def test_the_smallest_and_a_large_picture(tmp_path: Path) -> None:
    assert open_picture(encoded(Image.new("L", (1, 1), 5))).getpixel((0, 0)) == (5, 5, 5)
    assert open_picture(np.full((1, 1, 3), 7, np.uint8)).getpixel((0, 0)) == (7, 7, 7)
    assert open_picture(np.full((1, 1), 7, np.uint8)).size == (1, 1)
    path = saved(Image.new("RGB", (5000, 4000), RED), tmp_path / "large.jpg")
    assert open_picture(path).size == (5000, 4000)


def bomb(width: int, height: int) -> bytes:
    """The head of a PNG file that says how large it is."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"\0")) + chunk(b"IEND", b"")


def test_files_that_cannot_be_pictures(tmp_path: Path) -> None:
    photo = encoded(halves(size=(200, 200)), "JPEG")
    noise = encoded(Image.fromarray(np.random.default_rng(0).integers(0, 255, (64, 64, 3), np.uint8)))
    contents = {
        "empty.jpg": (b"", r"is empty \(0 bytes\)"),
        "text.png": (b"once upon a time", r"is no image that Pillow can read: it begins with b'once upon a '; give a"),
        "short.jpg": (photo[:4], "is no image that Pillow can read"),
        "cut.jpg": (photo[: len(photo) * 2 // 3], "cannot be decoded: .*truncated.* is the file whole"),
        "cut.png": (noise[:2000], "cannot be decoded: .*is the file whole"),
        "bomb.png": (
            bomb(50_000, 50_000),
            r"is too large: Image size \(2500000000 pixels\) exceeds limit of \d+ pixels",
        ),
    }
    for name, (content, reason) in contents.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(BadInput, match=f"{name}' {reason}") as error:
            open_picture(tmp_path / name)
        assert "\n" not in str(error.value)
        with pytest.raises(BadInput, match=f"the image of .* bytes {reason}"):
            open_picture(content)
    with pytest.raises(BadInput, match=r"there is no file '.*none\.jpg': check the path"):
        open_picture(tmp_path / "none.jpg")
    with pytest.raises(BadInput, match=r"is a folder: give an image file in it"):
        open_picture(tmp_path)
    with pytest.raises(BadInput, match=r"it is an address: download it first"):
        open_picture("https://example.org/a.jpg")
    with pytest.raises(BadInput, match=r"cannot be the name of a file"):
        open_picture("a\0.jpg")
    with pytest.raises(BadInput, match=r"an image is a file, its bytes, .*; found int"):
        open_picture(5)


@pytest.mark.parametrize(
    ("shape", "reason"),
    [
        ((4, 6, 2), "neither 1, 3 nor 4 channels"),
        ((3, 6, 3), "may have its channels first or last"),
        ((2, 4, 6, 3), "a batch of 2: give a list"),
        ((0, 6, 3), "has no pixels"),
        ((6,), "has 1 dimensions"),
    ],
)
def test_arrays_that_are_no_pictures(shape: tuple[int, ...], reason: str) -> None:
    for value in (np.zeros(shape, np.uint8), torch.zeros(shape, dtype=torch.uint8)):
        with pytest.raises(BadInput, match=reason):
            open_picture(value)
    with pytest.raises(BadInput, match="no pixels: it is 0 × 4"):
        open_picture(Image.new("RGB", (0, 4)))
    with pytest.raises(BadInput, match=r"is of float32: pixels are uint8, .* a model's pixel_values"):
        open_picture(np.zeros((4, 6, 3), np.float32))


def test_what_is_taken_for_a_picture() -> None:
    assert all(map(is_picture, ["a.JPG", Path("b/c.webp"), b"", Image.new("L", (1, 1)), np.zeros((2, 2), np.uint8)]))
    no = ["a photo of a dog.", "a.txt", Path("a"), 5, None, np.zeros((2, 2)), torch.zeros(1, 3, 2, 2), [1], {}]
    assert not any(map(is_picture, [*no, np.zeros(3, np.uint8), torch.zeros(1, 1, 1, 1, 1, dtype=torch.uint8)]))


def test_pillow_is_left_as_it_was_and_so_is_the_image(tmp_path: Path) -> None:
    before = Image.MAX_IMAGE_PIXELS, ImageFile.LOAD_TRUNCATED_IMAGES, list(warnings.filters)
    image = halves()
    image.info["dpi"] = 72
    open_picture(image).putpixel((0, 0), WHITE)
    assert image.getpixel((0, 0)) == RED
    assert image.info == {"dpi": 72}
    with pytest.raises(BadInput):
        open_picture(bomb(50_000, 50_000))
    with pytest.raises(BadInput, match="cannot be decoded"):  # large, and Pillow only warns of it
        open_picture(bomb(10_000, 10_000))
    assert before == (Image.MAX_IMAGE_PIXELS, ImageFile.LOAD_TRUNCATED_IMAGES, list(warnings.filters))


def test_masks_keep_their_numbers(tmp_path: Path) -> None:
    numbers = np.array([[1, 2, 3], [0, 1, 3]], dtype=np.uint8)
    palette = Image.fromarray(numbers).convert("P")
    palette.putdata(numbers.ravel().tolist())
    palette.putpalette([255, 0, 0, 0, 255, 0, 9, 9, 9, 40, 40, 40])
    sources: list[Any] = [numbers, torch.from_numpy(numbers), numbers[..., None], numbers.astype(np.int64), palette]
    sources += [encoded(Image.fromarray(numbers)), encoded(palette), encoded(palette, bits=2), palette.copy()]
    sources += [encoded(Image.fromarray(numbers.astype(np.uint16))), Image.fromarray(numbers.astype(np.int32))]
    sources += [saved(palette, tmp_path / "mask.png"), few_bits(numbers)]
    for source in sources:
        mask = open_mask(source)
        assert mask.dtype == np.uint8
        assert mask.tolist() == numbers.tolist()
    assert open_mask(encoded(Image.fromarray(numbers > 1))).tolist() == (numbers > 1).tolist()


def few_bits(numbers: np.ndarray) -> bytes:
    """A PNG file of gray values of two bits each."""
    whole = bomb(numbers.shape[1], len(numbers))
    head = struct.pack(">IIBBBBB", numbers.shape[1], len(numbers), 2, 0, 0, 0, 0)
    rows = b"".join(bytes([0, sum(int(n) << 6 - 2 * i for i, n in enumerate(row))]) for row in numbers)
    content = zlib.compress(rows)
    body = b"IDAT" + content
    start = whole.index(b"IHDR")
    return b"".join(
        [
            whole[:start] + b"IHDR" + head + struct.pack(">I", zlib.crc32(b"IHDR" + head)),
            struct.pack(">I", len(content)) + body + struct.pack(">I", zlib.crc32(body)),
            whole[-12:],
        ]
    )


def test_masks_that_are_none(tmp_path: Path) -> None:
    path = saved(halves(), tmp_path / "mask.png")
    with pytest.raises(BadInput, match=r"mask\.png' is in colour \(RGB\): a mask has one label number"):
        open_mask(path)
    with pytest.raises(BadInput, match="has labels from 0 to 300: those of a mask are 0 … 255"):
        open_mask(np.array([[0, 300]]))
    with pytest.raises(BadInput, match=r"float32 of shape .*: a mask is whole numbers"):
        open_mask(np.zeros((2, 2), np.float32))
    with pytest.raises(BadInput, match="cannot be decoded"):
        open_mask(encoded(Image.effect_noise((64, 64), 50))[:900])
