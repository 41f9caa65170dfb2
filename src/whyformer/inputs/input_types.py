"""Kinds of input: what people may give beside texts, and how it becomes what a model takes."""

from abc import ABC, abstractmethod
from typing import Any, ClassVar

from whyformer.errors import BadInput
from whyformer.inputs.batch import ReadInput, encode
from whyformer.models.load import Subject
from whyformer.registry.names import Registry

INPUTS: Registry["InputKind"] = Registry("kind of input", "inputs")


class InputKind(ABC):
    """A kind of thing that people ask about, as a dialogue: how one is recognised, and read as an input of a model."""

    name: ClassVar[str]

    @abstractmethod
    def takes(self, value: Any) -> bool:
        """Whether a value is one such thing; texts and pairs of texts are never asked about."""

    @abstractmethod
    def encode(self, subject: Subject, value: Any) -> ReadInput:
        """One such thing as the model is given it: its tokens, and the unit that people see behind each."""


def register_input(kind: InputKind) -> InputKind:
    """Make a kind of input known by its name, to whoever explains one."""
    INPUTS.add(kind.name, kind, type(kind).__module__)
    return kind


def kind_of(value: Any) -> InputKind | None:
    """The kind of input that a value is; None for texts and pairs, and for what nobody knows."""
    if value is None or isinstance(value, str | tuple | list):
        return None
    kinds = [kind for kind in INPUTS.values() if kind.takes(value)]
    if len(kinds) > 1:
        names = " and ".join(kind.name for kind in kinds)
        raise BadInput(f"{type(value).__name__} is taken for several kinds of input, {names}: uninstall one of them")
    return kinds[0] if kinds else None


def read(subject: Subject, value: Any) -> ReadInput:
    """What a model is given for a value: a text, a pair, an image, or one of a kind that is registered."""
    kind = INPUTS["image"] if subject.takes_images else kind_of(value)
    return encode(subject, value) if kind is None else kind.encode(subject, value)
