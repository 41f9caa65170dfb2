"""Units: the tokens, words or patches that get a score, and how tokens join into words."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Span = tuple[int, int]

_CJK = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uac00-\ud7af"
_WORD = re.compile(rf"[{_CJK}]|[^\W{_CJK}]+(?:['’][^\W{_CJK}]+)*|[^\w\s]")


@dataclass(frozen=True)
class Unit:
    """One token, word or patch of an input.

    `text` is what a person reads: the slice `span` of the original text number `part` (0, or 1 for the second of a
    pair). A special token has no span. `piece` is the tokenizer's own spelling of a token.
    """

    text: str
    kind: Literal["token", "word", "patch"] = "token"
    span: Span | None = None
    part: int | None = None
    special: bool = False
    piece: str | None = None


def join_words(units: Sequence[Unit], texts: Sequence[str]) -> list[tuple[Unit, list[int]]]:
    """The words of the texts, each with the positions of its tokens; special tokens belong to none.

    A word is a run of letters and digits (apostrophes inside it included), a punctuation mark, or an ideograph. The
    tokens that overlap it in the original text belong to it, so every tokenizer gives the same words; a token that
    overlaps several words joins them. Words never reach from one text into the other. A token that lies in no word,
    such as a line break, goes to the next word of its text, or else the last, so that no score is lost.
    """
    words: list[tuple[Unit, list[int]]] = []
    for part, text in enumerate(texts):
        positions = [i for i, u in enumerate(units) if not u.special and u.part == part]
        for span, members in _groups(text, {i: units[i].span for i in positions}):
            words.append((Unit(text[slice(*span)].strip(), "word", span, part), members))
    unplaced = [i for i, u in enumerate(units) if not u.special and u.part is None]
    words += [(Unit(units[i].text, "word"), [i]) for i in unplaced]
    return words


def _groups(text: str, spans: dict[int, Span | None]) -> list[tuple[Span, list[int]]]:
    """Groups of positions with the span that each covers, in order of the text."""
    groups: list[tuple[Span, list[int]]] = []
    words = [match.span() for match in _WORD.finditer(text)]
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


def trim(span: Span, text: str) -> Span:
    """The span without white space at its ends, unless it is nothing but white space."""
    piece = text[slice(*span)]
    if not piece.strip():
        return span
    return span[0] + len(piece) - len(piece.lstrip()), span[1] - len(piece) + len(piece.rstrip())


def search_spans(pieces: Sequence[str], text: str) -> list[Span | None]:
    """Where each piece stands in the text, for tokenizers that do not tell: found one after the other."""
    spans: list[Span | None] = []
    folded, start = text.casefold(), 0
    if len(folded) != len(text):
        folded = text.lower() if len(text.lower()) == len(text) else text
    for piece in pieces:
        wanted = piece.strip().casefold()
        found = folded.find(wanted, start) if wanted else -1
        spans.append((found, found + len(wanted)) if found >= 0 else None)
        start = found + len(wanted) if found >= 0 else start
    return spans
