"""Windows: a text that is longer than a model takes, in parts that overlap."""

from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from whyformer.errors import BadInput, BadOption, shown
from whyformer.inputs.batch import TextInput, Window, window_of
from whyformer.models.load import Subject

OVERLAP = 128  # tokens that a window shares with the next, if it holds twice as many of the text

Mode = Literal["cut", "merge"]


@dataclass(frozen=True)
class Windows:
    """How long texts are read: in windows of `size` tokens that share `overlap` tokens of the text with the next.

    By default a window is the model's own, and the overlap is 128, or half of what a window holds of the text where
    that is less. `merge` says that a document is explained by all its windows; else what does not fit is cut off.
    """

    size: int | None = None
    overlap: int | None = None
    merge: bool = False

    @classmethod
    def of(cls, window_size: Any = None, overlap: Any = None, windows: Any = "cut") -> "Windows":
        """As people ask for them."""
        if windows not in get_args(Mode):
            raise BadOption(f"windows={shown(windows)}: give 'cut' or 'merge'")
        for name, number, least in (("window_size", window_size, 1), ("overlap", overlap, 0)):
            if number is not None and (isinstance(number, bool) or not isinstance(number, int) or number < least):
                raise BadOption(f"{name}={shown(number)}: a number of tokens, at least {least}, is needed")
        return cls(window_size, overlap, windows == "merge")

    def parts(self, subject: Subject, whole: TextInput) -> tuple[TextInput, ...]:
        """The windows of a text; itself if it fits.

        Special tokens stand in each of them, and of a pair the shorter text, or the question, does too.
        """
        most = window_of(subject)
        if self.size is not None and self.size > most:
            raise BadOption(f"window_size={self.size}, but the model's window holds {most} tokens")
        size = most if self.size is None else self.size
        if len(whole) <= size:
            return (whole,)
        long = np.array(self._long(whole, answers=subject.task == "answer"))
        others = np.setdiff1d(np.arange(len(whole)), long)
        room, overlap = self._room(size, len(whole), len(long))
        starts = range(0, max(1, len(long) - overlap), room - overlap)
        windows = []
        for number, start in enumerate(starts):
            places = np.sort(np.concatenate([others, long[start : start + room]]))
            windows.append(whole.part(Window(number, len(starts), places)))
        return tuple(windows)

    def _long(self, whole: TextInput, *, answers: bool) -> list[int]:
        """The places of the text that is cut: the context of a question, or the longer text of a pair."""
        texts = [[n for n, unit in enumerate(whole.units) if unit.part == part] for part in range(len(whole.texts))]
        return texts[1] if answers else max(texts, key=len)

    def _room(self, size: int, tokens: int, long: int) -> tuple[int, int]:
        """How many tokens of the long text a window holds, and how many of these it shares with the next."""
        room = size - (tokens - long)
        if room < 1:
            raise BadInput(
                f"a window holds {size} tokens, and {tokens - long} of them are special tokens and the other text: "
                "nothing is left of the long one; shorten the other"
            )
        overlap = min(OVERLAP, room // 2) if self.overlap is None else self.overlap
        if overlap >= room:
            raise BadOption(f"overlap={overlap}: a window holds {room} tokens of the text, so it must be less")
        return room, overlap


CUT = Windows()  # what does not fit is cut off
