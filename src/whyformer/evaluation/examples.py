"""Items: the examples of a data set as a model takes them, and which of them are run together."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from whyformer.datasets import Example, label_index
from whyformer.errors import BadInput
from whyformer.images.processing import WHOLE
from whyformer.inputs.batch import ReadInput, TextInput, encode
from whyformer.inputs.images import ImageInput, Picture
from whyformer.inputs.input_types import read
from whyformer.inputs.units import Span
from whyformer.inputs.windows import CUT, Windows
from whyformer.metrics.case import Annotation, RationaleWords, answer_tokens
from whyformer.models.load import Subject
from whyformer.models.memory import Limits
from whyformer.perturb import LONGEST_SEARCH
from whyformer.perturb.engine import dense_batches


@dataclass(frozen=True)
class Item:
    """An example as the model takes it, with what people annotated.

    An image is sent to other processes as it is stored, and read there: `ready`.
    """

    row: int
    encoded: ReadInput
    annotation: Annotation
    content: str  # a hash of the example
    windows: tuple[TextInput, ...] = ()  # of a context or document that does not fit
    answer: Span | None = None  # the characters of the gold answer
    stored: Example | None = None  # of an image

    def __getstate__(self) -> dict[str, Any]:
        if self.stored is None:
            return self.__dict__
        return {**self.__dict__, "encoded": None, "annotation": None}

    def ready(self, subject: Subject) -> "Item":
        """The item with its image, read again where it came from another process."""
        read_already = self.__dict__["encoded"] is not None
        return self if read_already or self.stored is None else _image_item(subject, self.stored)

    @property
    def text(self) -> TextInput:
        """The example, which is a text."""
        assert isinstance(self.encoded, TextInput)
        return self.encoded

    @property
    def units(self) -> int:
        """How many units can be ranked."""
        return sum(not unit.special for unit in self.encoded.units)

    @property
    def searchable(self) -> bool:
        """Whether the text is short enough for a search of the best order; in an image, cells are searched."""
        return isinstance(self.encoded, ImageInput) or self.units <= LONGEST_SEARCH

    def in_window(self, window: TextInput) -> "Item":
        """The example with one window of its context; an answer that stands outside of it is missed."""
        tokens = None if self.answer is None else answer_tokens(window, self.answer)
        whole = self.annotation.answer
        length = None if whole is None else whole[1] - whole[0] + 1
        return replace(self, encoded=window, annotation=replace(self.annotation, answer=tokens, answer_length=length))


def item_of(subject: Subject, example: Example, windows: Windows = CUT) -> Item:
    """An example, encoded; `BadInput` says what is wrong with it.

    A long context is read in windows, and so is a long document if `windows` are merged.
    """
    if subject.takes_images:
        return _image_item(subject, example)
    if example.image is not None:
        raise BadInput(f"it is an image, and {type(subject.model).__name__} reads texts")
    whole = subject.task == "answer" or windows.merge
    encoded = encode(subject, example.text, whole=whole)
    parts = windows.parts(subject, encoded) if whole else (encoded,)
    gold = None if example.label is None else label_index(example.label, subject.labels)
    first = example.answers[0].span if example.answers else None
    answer = None if first is None else answer_tokens(encoded, first)
    annotation = Annotation(
        gold, answer, _rationale(example), unanswered=example.answers is not None and answer is None
    )
    tensors = {name: numbers.tolist() for name, numbers in encoded.tensors.items()}
    seen = [tensors, [unit.special for unit in encoded.units]]  # what is cut off depends on the tokenizer
    if len(parts) > 1:
        seen.append([part.window.places.tolist() for part in parts if part.window is not None])
    content = hashed([example.text, gold, first, _marked(example), seen])
    return Item(example.row, encoded, annotation, content, parts if len(parts) > 1 else (), first)


def _image_item(subject: Subject, example: Example) -> Item:
    if example.image is None:
        raise BadInput(f"it has no image, and {type(subject.model).__name__} reads images")
    encoded = read(subject, example.image)
    assert isinstance(encoded, ImageInput)
    assert encoded.picture is not None
    gold = None if example.label is None else label_index(example.label, subject.labels)
    mask = None if example.mask is None else seen_mask(example.mask.open(), encoded.picture)
    content = hashed([example.content, gold, encoded.key.hex()])
    light = replace(encoded, picture=None)  # nobody looks at it here
    return Item(example.row, light, Annotation(gold, mask=mask), content, stored=example)


OTHER_SHAPE = 0.05  # how far the ratio of a mask's sides may be from that of its image


def seen_mask(mask: NDArray[np.uint8], picture: Picture) -> NDArray[np.uint8]:
    """The part of a mask that the model sees, as large as what it sees; the nearest label of each pixel."""
    height, width = mask.shape
    if mask.shape == picture.size and picture.region == WHOLE:
        return mask
    if picture.pixels.shape[:2] == picture.size and picture.region == WHOLE:  # as of a plain function
        raise BadInput(
            f"its mask is {height} × {width} (height × width), and which part of the image the model sees is not "
            f"known: its image processor does not say; give masks of the size that it makes, "
            f"{picture.size[0]} × {picture.size[1]}"
        )
    shown = picture.pixels.shape
    if abs(height * shown[1] - width * shown[0]) > OTHER_SHAPE * height * shown[1]:
        raise BadInput(
            f"its mask is {height} × {width} (height × width), of another shape than the image, {shown[0]} × "
            f"{shown[1]} as it is shown: save masks of upright images, as an image that its EXIF data turn is read"
        )
    left, top, right, bottom = picture.region
    box = (left * width, top * height, right * width, bottom * height)
    seen = Image.fromarray(mask).resize(picture.size[::-1], Image.Resampling.NEAREST, box=box)
    return np.asarray(seen)


def batches(items: Sequence[Item], limits: Limits, ceiling: int) -> Iterator[list[Item]]:
    """Items of nearly one length, or images of one size, most tokens first; those with a ceiling stand alone."""
    sizes: dict[tuple[int, ...], list[Item]] = {}
    for item in items:
        size = tuple(item.encoded.pixels.shape) if isinstance(item.encoded, ImageInput) else ()
        sizes.setdefault(size, []).append(item)
    for alike in sizes.values():
        yield from _batches(alike, limits, ceiling)


def _batches(items: Sequence[Item], limits: Limits, ceiling: int) -> Iterator[list[Item]]:
    for searched in (True, False):
        of_kind = [item for item in items if (item.row < ceiling and item.searchable) is searched]
        lengths = [len(item.encoded.units) for item in of_kind]
        cut = dense_batches(of_kind, lengths, limits.traced_tokens, limits.texts, limits.traced_call)
        yield from sorted(cut, key=lambda batch: -len(batch) * len(batch[0].encoded.units))


def _rationale(example: Example) -> RationaleWords | None:
    if example.rationale is None:
        return None
    units = [(n, unit) for n, unit in enumerate(example.rationale.units) if unit.span]
    marked = example.rationale.marked
    return RationaleWords(
        tuple(unit.span for _, unit in units if unit.span),
        frozenset(place for place, (n, _) in enumerate(units) if marked[n]),
        tuple(unit.part or 0 for _, unit in units),
    )


def _marked(example: Example) -> Any:
    rationale = example.rationale
    return rationale and [[[unit.span, unit.part] for unit in rationale.units], rationale.spans]


def hashed(facts: Any) -> str:
    """A hash of plain data."""
    return _hashed(as_json(facts))


def hashed_json(several: Sequence[str]) -> str:
    """The hash of a list of plain data, of which each is JSON already."""
    return _hashed(f"[{', '.join(several)}]")


def as_json(facts: Any) -> str:
    """Plain data as it is hashed."""
    return json.dumps(facts, sort_keys=True)


def _hashed(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
