"""Tokens join into words, whatever the text and wherever it was cut."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whyformer.inputs.units import Span, Unit, join_words, search_spans, trim

CHARACTERS = st.one_of(
    st.sampled_from("abcXYZ019 _'’.,!?-é\n\t  日本のカ가🙂👍🏽\u200d\u0301ß"),
    st.characters(exclude_categories=["Cs"]),
)
TEXTS = st.text(CHARACTERS, min_size=1, max_size=25)
SPECIAL = Unit("[SEP]", special=True)
quick = settings(max_examples=200, deadline=None, derandomize=True)


@st.composite
def cuts(draw: st.DrawFn, text: str, plain: bool = False) -> list[Span]:
    """The text cut into spans as tokenizers cut it; if not plain, some share a character (bytes), some are empty."""
    ends = sorted({*draw(st.lists(st.integers(1, len(text)), max_size=len(text))), len(text)})
    spans: list[Span] = []
    for start, end in pairwise([0, *ends]):
        odd = None if plain else draw(st.sampled_from([None, None, "empty", "shared"]))
        if odd == "empty":
            spans.append((start, start))
        spans.append((start - 1 if odd == "shared" and start else start, end))
    return spans


@st.composite
def inputs(draw: st.DrawFn) -> tuple[list[Unit], list[str]]:
    """One text or two, with special tokens around them, and now and then a token whose place is not known."""
    texts = draw(st.lists(TEXTS, min_size=1, max_size=2))
    units = [SPECIAL] * draw(st.booleans())
    for part, text in enumerate(texts):
        for span in draw(cuts(text)):
            known = draw(st.integers(0, 9)) > 0
            units.append(Unit(text[slice(*span)], "token", span if known else None, part))
        units += [SPECIAL] * draw(st.integers(0, 2))
    return units, texts


@quick
@given(inputs())
def test_every_token_is_in_one_word_and_in_order(given: tuple[list[Unit], list[str]]) -> None:
    units, texts = given
    members = [position for _, positions in join_words(units, texts) for position in positions]
    assert members == [i for i, unit in enumerate(units) if not unit.special]


@quick
@given(inputs())
def test_words_stay_in_their_text(given: tuple[list[Unit], list[str]]) -> None:
    units, texts = given
    words = join_words(units, texts)
    assert all(units[i].part == word.part for word, members in words for i in members)
    for part, text in enumerate(texts):
        spans = [word.span or (0, 0) for word, _ in words if word.part == part]
        assert all(before[1] <= after[0] for before, after in pairwise(spans))
        assert [word.text for word, _ in words if word.part == part] == [text[slice(*s)].strip() for s in spans]
    assert all(word.kind == "word" and not word.special and members for word, members in words)


@quick
@given(inputs())
def test_a_token_lies_inside_its_word(given: tuple[list[Unit], list[str]]) -> None:
    units, texts = given
    for word, members in join_words(units, texts):
        for unit in (units[i] for i in members if units[i].span and units[i].text.strip()):
            start, end = trim(unit.span or (0, 0), texts[unit.part or 0])
            assert word.span is not None
            assert word.span[0] <= start <= end <= word.span[1]


@quick
@given(st.data())
def test_a_cut_can_join_words_but_not_break_them(data: st.DataObject) -> None:
    text = data.draw(TEXTS.filter(str.strip))
    letters = [Unit(c, "token", (i, i + 1), 0) for i, c in enumerate(text)]
    tokens = [Unit(text[slice(*span)], "token", span, 0) for span in data.draw(cuts(text))]
    finest = [word.span or (0, 0) for word, _ in join_words(letters, [text])]
    found = [word.span or (0, 0) for word, _ in join_words(tokens, [text])]
    for start, end in finest:
        assert sum(a <= start and end <= b for a, b in found) == 1
    assert "".join(text[slice(*span)] for span in finest) == "".join(text.split())


@quick
@given(st.data())
def test_trim_takes_off_blanks_and_nothing_else(data: st.DataObject) -> None:
    text = data.draw(TEXTS)
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, len(text)))
    found = trim((start, end), text)
    piece = text[start:end]
    assert text[slice(*found)] == (piece.strip() or piece)
    assert start <= found[0] <= found[1] <= end
    if not piece.strip():
        assert found == (start, end)


@quick
@given(st.data())
def test_pieces_are_found_where_they_were_cut(data: st.DataObject) -> None:
    """Capitals may be lost; a tokenizer that folds characters to other lengths is another matter (see below)."""
    plain = CHARACTERS.filter(lambda c: len(c.casefold()) == 1)
    text = data.draw(st.text(plain, min_size=1, max_size=25))
    cut = data.draw(cuts(text, plain=True))
    change = data.draw(st.sampled_from([str, str.lower, str.casefold]))
    spans = search_spans([change(text[slice(*span)]) for span in cut], text)
    assert spans == [trim(span, text) if text[slice(*span)].strip() else None for span in cut]


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("Die Straße", ["Die", "Stra", "ße"]),
        ("Die Straße", ["die", "stra", "ße"]),
        ("In İzmir", ["In", "İ", "zmir"]),
        ("ﬁnal Cut", ["ﬁnal", "Cut"]),
    ],
)
def test_pieces_are_found_beside_letters_that_fold_to_two(text: str, pieces: list[str]) -> None:
    spans = search_spans(pieces, text)
    assert None not in spans
    assert [text[slice(*span)].lower() for span in spans if span] == [piece.lower() for piece in pieces]


def test_a_piece_that_is_not_there_does_not_lose_the_others() -> None:
    assert search_spans(["a", "[UNK]", "film", " "], "a ЖЖЖ film") == [(0, 1), None, (6, 10), None]


def test_the_same_piece_twice_is_found_twice() -> None:
    assert search_spans(["no", "No", "no"], "no no NO") == [(0, 2), (3, 5), (6, 8)]
