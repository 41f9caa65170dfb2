"""Ways to hide units of an input, and the registry of their names for `hide=` and `baseline=`."""

import math
from abc import ABC, abstractmethod
from typing import Annotated, ClassVar

import numpy as np

from whyformer.arrays import BoolArray
from whyformer.errors import BadOption
from whyformer.inputs.images import ImageInput
from whyformer.inputs.input import WORDS, Places, TensorInput
from whyformer.registry.names import Registry
from whyformer.registry.options import Names, Spelling


class Hide(ABC):
    """A way to hide units; its `name` is what `hide=` and `baseline=` take, its docstring's first line is listed.

    `shortens`: the units are taken out, so that those behind them move. `attended`: what stands in their place is
    attended to. `embeds`: that has an embedding (`stand_in`), so that the embedding alone can be exchanged, and a path
    can begin there.
    """

    name: str
    shortens: ClassVar[bool] = False
    attended: bool = True
    embeds: ClassVar[bool] = False

    @abstractmethod
    def apply(self, whole: TensorInput, places: Places) -> TensorInput:
        """The input with the units at these places hidden, made by its `deleted`, `filled` or `exchanged`."""

    def apply_each(self, whole: TensorInput, gone: BoolArray) -> list[TensorInput]:
        """The input with other units hidden in each, [inputs, units]: by default by `apply`, with places in order."""
        return [self.apply(whole, np.flatnonzero(of_one).tolist()) for of_one in gone]

    def stand_in(self, whole: TensorInput) -> int | None:
        """The token whose embedding takes the place of a unit; None for zeros, or a blank patch of an image."""
        raise BadOption(
            f"baseline={self.name!r} is not possible here: nothing that has an embedding takes the place of a unit; "
            "use baseline='zero'"
        )

    def exchange(self, whole: TensorInput, places: Places) -> TensorInput:
        """The input with the embeddings of these units exchanged for that of `stand_in`."""
        return whole.exchanged(places, self.stand_in(whole))


class Delete(Hide):
    """The units are taken out; patches, without which an image has a hole, get its mean colour."""

    name = "delete"
    shortens = True

    def apply(self, whole: TensorInput, places: Places) -> TensorInput:
        """The tokens that are left."""
        return whole.hidden(places, "mean") if isinstance(whole, ImageInput) else whole.deleted(places)

    def apply_each(self, whole: TensorInput, gone: BoolArray) -> list[TensorInput]:
        """The same of many."""
        if isinstance(whole, ImageInput) or type(self).apply is not Delete.apply:
            return super().apply_each(whole, gone)
        return whole.each_deleted(gone)


class Fill(Hide):
    """A token takes the place of the units."""

    embeds = True

    def __init__(self, name: str, token: str, otherwise: str | None = None, *, attended: bool = True):
        self.name, self.token, self.otherwise, self.attended = name, token, otherwise, attended
        self._words = " or ".join(WORDS[one] for one in self._tokens)
        self.__doc__ = f"The {self._words} token takes the place of the units{'' if attended else ', not attended to'}."

    @property
    def _tokens(self) -> tuple[str, ...]:
        return (self.token,) if self.otherwise is None else (self.token, self.otherwise)

    def apply(self, whole: TensorInput, places: Places) -> TensorInput:
        """The tokens with others in these places."""
        return whole.filled(places, self._filler(whole), self.attended)

    def apply_each(self, whole: TensorInput, gone: BoolArray) -> list[TensorInput]:
        """The same of many."""
        if type(self).apply is not Fill.apply:
            return super().apply_each(whole, gone)
        return whole.each_filled(gone, self._filler(whole), self.attended)

    def _filler(self, whole: TensorInput) -> int:
        if isinstance(whole, ImageInput):
            raise BadOption(f"hide={self.name!r} is for texts: patches are hidden by 'mean', 'black', 'blur' or 'zero'")
        token = whole.fillers.first(self._tokens)
        if token is None:
            raise BadOption(
                f"hide={self.name!r} is not possible: the vocabulary has no {self._words} token; use hide='delete'"
            )
        return token

    def stand_in(self, whole: TensorInput) -> int | None:
        """The token itself, without another in its stead; an image is padded with zeros."""
        asked = f"baseline={self.name!r}"
        if "pixel_values" in whole.tensors and self.token == "pad":
            return None
        if "input_ids" not in whole.tensors:
            names = ", ".join(whole.tensors)
            raise BadOption(
                f"{asked} is not possible: the input has no tokens, it is given as {names}; use baseline='zero'"
            )
        return whole.fillers.baseline(self.token, asked)


class Zero(Hide):
    """Zeros take the place of the units' embeddings, or blank patches that of an image's."""

    name = "zero"
    embeds = True

    def apply(self, whole: TensorInput, places: Places) -> TensorInput:
        """The same tokens, with other embeddings."""
        return self.exchange(whole, places)

    def stand_in(self, whole: TensorInput) -> int | None:
        """No token."""
        return None


class Cover(Hide):
    """Something else is seen in place of the patches of an image."""

    embeds = True

    def __init__(self, name: str, seen: str):
        self.name = name
        self.__doc__ = f"{seen} in place of the patches of an image."

    def apply(self, whole: TensorInput, places: Places) -> TensorInput:
        """The image with these patches covered."""
        if not isinstance(whole, ImageInput):
            raise BadOption(f"hide={self.name!r} is for images: units of texts are hidden by 'delete', 'mask' or 'pad'")
        return whole.hidden(places, self.name)

    def exchange(self, whole: TensorInput, places: Places) -> TensorInput:
        """The same: what covers a patch has an embedding of its own."""
        return self.apply(whole, places)


class Drop(Hide):
    """The patches of an image are taken out behind their positions: the model goes on with the other units."""

    name = "drop"

    def apply(self, whole: TensorInput, places: Places) -> TensorInput:
        """The image, and which units its layers are not given."""
        if not isinstance(whole, ImageInput):
            raise BadOption(f"hide={self.name!r} is for images: units of texts are hidden by 'delete', 'mask' or 'pad'")
        return whole.without_units(places)


HIDES: Registry[Hide] = Registry("way to hide", "hides")

HideName = Annotated[str, Names(HIDES, "apply")]  # what an option `hide=` takes
HideNameOrNone = Annotated[str | None, Names(HIDES, "apply")]
# What `baseline=` takes. What stands in a unit's place was always attended to there, also when it was called `pad`.
Baseline = Annotated[
    str, Names(HIDES, "apply"), Spelling(former={"pad": "pad_attended"}, in_keys={"pad_attended": "pad"})
]


def register_hide(hide: Hide) -> Hide:
    """Make a way to hide known by its name, to every option `hide=` and `baseline=`."""
    if not isinstance(hide, Hide):
        raise BadOption(f"a way to hide is an object of a subclass of whyformer.inputs.hiding.Hide; found {hide!r}")
    name = getattr(hide, "name", None)
    if not isinstance(name, str) or not name.isidentifier():
        raise BadOption(f"a way to hide has a name, a word of letters, digits and _; found {name!r}")
    if HIDES.known.get(name) is not hide:
        HIDES.add(name, hide, type(hide).__module__)
    return hide


for _hide in (
    Delete(),
    Fill("mask", "mask", "unk"),
    Fill("mask_unattended", "mask", "unk", attended=False),
    Fill("pad", "pad", attended=False),
    Fill("pad_attended", "pad"),
    Fill("unk", "unk"),
    Zero(),
    Cover("black", "Black"),
    Cover("mean", "The image's mean colour"),
    Cover("blur", "The image, blurred,"),
    Drop(),
):
    register_hide(_hide)


def hide_named(hide: str | Hide) -> Hide:
    """The way to hide of that name, or an error with the nearest one."""
    return hide if isinstance(hide, Hide) else HIDES.named(hide)


def count_of(share: float, units: int, up: bool = False) -> int:
    """A share of the units as a count: the nearest, half up; or the next higher."""
    exact = round(share * units, 9)  # 0.7 * 45 is 31.5, whatever binary fractions say
    return math.ceil(exact) if up else math.floor(exact + 0.5)
