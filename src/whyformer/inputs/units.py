"""Units: the tokens, words or patches that get a score, and how tokens join into words."""

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from whyformer.errors import UnknownWord, nearest, shown

Span = tuple[int, int]
Box = tuple[int, int, int, int]  # of pixels: left, top, right, bottom

_IDEOGRAPHS = ((0x3040, 0x30FF), (0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF), (0x20000, 0x3FFFF))
_JOINER = "\u200d"  # makes one sign of two
_APOSTROPHES = "'’"


@dataclass(frozen=True)
class Unit:
    """One token, word or patch of an input.

    `text` is what a person reads: the slice `span` of the original text number `part` (0, or 1 for the second of a
    pair). A special token has no span. `piece` is the tokenizer's own spelling of a token. `unknown`: the tokenizer
    does not know it, so the model sees the same token for it as for any other unknown one. A patch has the `box` of its
    pixels in the image that the model sees.
    """

    text: str
    kind: Literal["token", "word", "patch"] = "token"
    span: Span | None = None
    part: int | None = None
    special: bool = False
    piece: str | None = None
    unknown: bool = field(default=False, compare=False)
    box: Box | None = None


def join_words(units: Sequence[Unit], texts: Sequence[str]) -> list[tuple[Unit, list[int]]]:
    """The words of the texts, each with the positions of its tokens; special tokens belong to none.

    A word is a run of letters and digits (apostrophes inside it included), a punctuation mark or sign, or an
    ideograph, each with its accents. The tokens that overlap it in the original text belong to it, so every tokenizer
    gives the same words; a token that overlaps several words joins them. Words never reach from one text into the
    other. A token that lies in no word, such as a line break, goes to the next word of its text, or else the last, so
    that no score is lost.
    """
    words: list[tuple[Unit, list[int]]] = []
    for part, text in enumerate(texts):
        positions = [i for i, u in enumerate(units) if not u.special and u.part == part]
        for span, members in _groups(text, {i: units[i].span for i in positions}):
            unknown = any(units[i].unknown for i in members)
            words.append((Unit(text[slice(*span)].strip(), "word", span, part, unknown=unknown), members))
    unplaced = [i for i, u in enumerate(units) if not u.special and u.part is None]
    for i in unplaced:
        unit = units[i]  # a patch of an image that stands beside the text stays what it is
        words.append((unit if unit.box is not None else Unit(unit.text, "word", unknown=unit.unknown), [i]))
    return words


def _groups(text: str, spans: dict[int, Span | None]) -> list[tuple[Span, list[int]]]:
    """Groups of positions with the span that each covers, in order of the text."""
    groups: list[tuple[Span, list[int]]] = []
    words = split_words(text, _reach(text, [span for span in spans.values() if span]))
    waiting: list[int] = []
    number = 0
    for position, span in spans.items():
        while span is not None and number < len(words) and words[number][1] <= span[0]:
            number += 1
        touched = []
        ahead = number
        while span is not None and ahead < len(words) and words[ahead][0] < span[1]:
            touched.append(words[ahead])
            ahead += 1
        if not touched:
            waiting.append(position)
        elif groups and groups[-1][0][1] > touched[0][0]:
            (start, end), members = groups[-1]
            groups[-1] = (start, max(end, touched[-1][1])), [*members, *waiting, position]
            waiting = []
        else:
            groups.append(((touched[0][0], touched[-1][1]), [*waiting, position]))
            waiting = []
    if waiting and groups:
        groups[-1] = groups[-1][0], [*groups[-1][1], *waiting]
    elif waiting:
        groups.append(((0, len(text)), waiting))
    return groups


def _reach(text: str, spans: Sequence[Span]) -> Span:
    """From where to where a text has to be read for the words that spans touch: of a very long text, little."""
    start, end = min((a for a, _ in spans), default=0), max((b for _, b in spans), default=0)
    while start > 0 and not text[start - 1].isspace():
        start -= 1
    while end < len(text) and not text[end].isspace():
        end += 1
    return start, end


def occurrences(word: str, words: Sequence[str]) -> list[int]:
    """Where a word stands among those of a text: as it is written, or else in letters of either case."""
    same = [number for number, other in enumerate(words) if other == word]
    same = same or [number for number, other in enumerate(words) if other.casefold() == word.casefold()]
    if not same:
        raise UnknownWord(f"there is no word {shown(word)} in this text; {nearest(word, words)}")
    return same


def split_words(text: str, within: Span | None = None) -> list[Span]:
    """The spans of the words of a text, or of a part of it that begins and ends with whole words."""
    words: list[Span] = []
    for position in range(*(within or (0, len(text)))):
        character = text[position]
        if character.isspace():
            continue
        start, end = words[-1] if words else (0, -1)
        if end == position and _continues(text, start, position):
            words[-1] = start, position + 1
        else:
            words.append((position, position + 1))
    return words


def _continues(text: str, start: int, position: int) -> bool:
    """Whether a character goes on with the word that began at `start` and reaches up to it."""
    character, before = text[position], text[position - 1]
    if _is_mark(character) or before == _JOINER:
        return True
    if not _is_letter(text[start]):
        return False
    if character in _APOSTROPHES:
        return position + 1 < len(text) and _is_letter(text[position + 1])
    return _is_letter(character)


def _is_mark(character: str) -> bool:
    """Accents, vowel signs, variation selectors, skin tones: what is nothing without the character before it."""
    return (
        character == _JOINER or unicodedata.category(character)[0] == "M" or "\U0001f3fb" <= character <= "\U0001f3ff"
    )


def _is_letter(character: str) -> bool:
    """A letter or digit that forms words with its neighbours."""
    code = ord(character)
    return (character.isalnum() or character == "_") and not any(low <= code <= high for low, high in _IDEOGRAPHS)


def trim(span: Span, text: str) -> Span:
    """The span without white space at its ends, unless it is nothing but white space."""
    piece = text[slice(*span)]
    if not piece.strip():
        return span
    return span[0] + len(piece) - len(piece.lstrip()), span[1] - len(piece) + len(piece.rstrip())


def search_spans(pieces: Sequence[str], text: str, backwards: bool = False) -> list[Span | None]:
    """Where each piece stands in the text, for tokenizers that do not tell: found one after the other.

    `backwards`: from the last one on, where the beginning of the text was cut off.
    """
    if backwards:
        mirrored = search_spans([piece[::-1] for piece in reversed(pieces)], text[::-1])
        return [span and (len(text) - span[1], len(text) - span[0]) for span in reversed(mirrored)]
    origins = [i for i, character in enumerate(text) for _ in character.casefold()]  # ß folds to ss
    folded = "".join(character.casefold() for character in text)
    spans: list[Span | None] = []
    start = 0
    for piece in pieces:
        wanted = piece.strip().casefold()
        place = folded.find(wanted, start) if wanted else -1
        if place < 0:
            spans.append(None)
            continue
        start = place + len(wanted)
        spans.append((origins[place], origins[start - 1] + 1))
    return spans
