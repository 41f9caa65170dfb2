"""The ways to hide units by name: one registry for `hide=` and `baseline=`, open to others."""

import math
from typing import Annotated

from whyformer.errors import BadOption
from whyformer.inputs.hiding import Cover, Delete, Drop, Fill, Hide, Zero
from whyformer.registry.names import Registry
from whyformer.registry.options import Names, Spelling

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
