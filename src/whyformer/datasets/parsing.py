"""From a record, as a file holds it, to an Example."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from decimal import Decimal
from itertools import accumulate
from typing import Any

from whyformer.datasets.columns import Columns
from whyformer.datasets.dataset import Answer, Example, Rationale, Unusable, label_index
from whyformer.datasets.source import RowFields
from whyformer.errors import BadInput, shown
from whyformer.inputs.batch import Text
from whyformer.inputs.units import Span, Unit, search_spans
from whyformer.storage.files import LONGEST_TEXT

_LONGEST_META = 200  # characters
_LONGEST_INDEX = 18  # digits; more cannot be the index of a class


def example(row: int, record: RowFields, columns: Columns, labels: Sequence[str] | None) -> Example:
    """The Example of a record; `Unusable` says why there is none."""
    tokens = _tokens(record, columns)
    text = _text(record, columns, tokens)
    label, unreadable = _label_if_any(record, columns, labels)
    return Example(
        row,
        text,
        label,
        _rationale(record, columns, text, tokens),
        _answers(record, columns, text),
        {name: value for name, value in record.items() if name not in columns.used and _short(value)},
        unreadable_label=unreadable,
    )


def _short(value: Any) -> bool:
    return (isinstance(value, int | float) and value == value) or (
        isinstance(value, str) and len(value) <= _LONGEST_META
    )


def _value(record: RowFields, name: str) -> Any:
    value = record.get(name)
    if value is None:
        raise Unusable(f"no value for {name!r}")
    return value.tolist() if hasattr(value, "tolist") else value  # an array that might have been an image


def _text(record: RowFields, columns: Columns, tokens: list[str] | None) -> Text:
    if not columns.text and tokens is None:  # an image
        return ""
    if not columns.text:
        return _checked(" ".join(tokens or []), str(columns.tokens))
    texts = [_checked(_value(record, name), name) for name in columns.text]
    return texts[0] if len(texts) == 1 else (texts[0], texts[1])


def _checked(text: Any, name: str) -> str:
    if not isinstance(text, str):
        raise Unusable(f"{name!r} is {type(text).__name__}, not text")
    if not text.strip():
        raise Unusable(f"{name!r} is empty")
    if len(text) > LONGEST_TEXT:
        raise Unusable(f"{name!r} has {len(text):,} characters, more than the {LONGEST_TEXT:,} of the longest text")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise Unusable(f"{name!r} is not valid UTF-8; a file has to be saved as UTF-8") from None
    return text


def _tokens(record: RowFields, columns: Columns) -> list[str] | None:
    if columns.tokens is None:
        return None
    tokens = _value(record, columns.tokens)
    if not isinstance(tokens, list) or not all(isinstance(token, str) for token in tokens):
        raise Unusable(f"{columns.tokens!r} is not a list of words")
    if not any(token.strip() for token in tokens):
        raise Unusable(f"{columns.tokens!r} is empty")
    return tokens


def _label_if_any(
    record: RowFields, columns: Columns, labels: Sequence[str] | None
) -> tuple[int | str | None, str | None]:
    """The label, and why it cannot be read. A label that cannot be read is None, if none is needed."""
    try:
        return _label(record, columns, labels), None
    except Unusable as error:
        if columns.needs_label:
            raise
        return None, None if _is_missing(record.get(str(columns.label))) else str(error)


def _is_missing(label: Any) -> bool:
    """True for a missing label in a file or table: nothing, an empty text, NaN, or a list of these."""
    if isinstance(label, list):
        return all(map(_is_missing, label))
    return (
        label is None or (isinstance(label, str) and not label.strip()) or (isinstance(label, float) and label != label)
    )


def _label(record: RowFields, columns: Columns, labels: Sequence[str] | None) -> int | str | None:
    """The label, an index if it is a number or `labels` are given; None for −1, which stands for no gold label."""
    if columns.label is None:
        return None
    value = _value(record, columns.label)
    value = value.get("label") if isinstance(value, Mapping) else value  # HateXplain's `annotators`
    label = _plain_label(_vote(value) if isinstance(value, list) else value, labels)
    if labels is None or label is None:
        return label
    try:
        return label_index(label, labels)
    except (BadInput, ValueError) as error:  # a number of very many digits
        raise Unusable(str(error)) from None


def _plain_label(value: Any, labels: Sequence[str] | None) -> int | str | None:
    if isinstance(value, str) and not value.strip():
        raise Unusable("the label is empty")
    if isinstance(value, str) and value not in (labels or ()):
        number = re.fullmatch(r"\s*(-?\d+)(\.0+)?\s*", value, re.ASCII)
        if number and len(number[1]) > _LONGEST_INDEX:
            raise Unusable(f"the label is a number of {len(number[1]):,} digits, too large for an index")
        value = int(number[1]) if number else value
    if isinstance(value, bool) or (isinstance(value, float | Decimal) and value % 1 == 0):
        value = int(value)
    if not isinstance(value, int | str):
        raise Unusable(f"the label is {shown(value)}, neither a name nor an index")
    if isinstance(value, int) and abs(value) >= 10**_LONGEST_INDEX:
        raise Unusable(f"the label is {shown(value)}, too large for an index")
    return None if value == -1 else value


def _vote(labels: list[Any]) -> Any:
    """What most annotators say."""
    if not all(isinstance(label, str | int | float) for label in labels):
        raise Unusable(f"the label is {shown(labels)}, and not one name or index for each annotator")
    ranked = Counter(labels).most_common(2)
    if not ranked or (len(ranked) == 2 and ranked[0][1] == ranked[1][1]):
        raise Unusable(f"the annotators do not agree on a label: {shown(labels)}")
    return ranked[0][0]


def _rationale(record: RowFields, columns: Columns, text: Text, tokens: list[str] | None) -> Rationale | None:
    if columns.rationale is not None and tokens is not None:
        units = _placed(tokens, text, made=not columns.text)
        return Rationale(units, runs(_marks(_value(record, columns.rationale), len(tokens))))
    if not columns.evidences:
        return None
    units = _document(text, columns)
    if len(columns.evidences) == 2:
        starts, ends = (_value(record, name) for name in columns.evidences)
        if not isinstance(starts, list) or not isinstance(ends, list) or len(starts) != len(ends):
            raise Unusable(f"{' and '.join(map(repr, columns.evidences))} are not two lists of the same length")
        return Rationale(units, checked_spans(list(zip(starts, ends, strict=True)), len(units)))
    return Rationale(units, _evidence_spans(_value(record, columns.evidences[0]), [unit.text for unit in units]))


def _document(text: Text, columns: Columns) -> tuple[Unit, ...]:
    """The words that a rationale may mark: all, but not those of a query or question about the second text."""
    if isinstance(text, str):
        return words(text)
    asked = columns.text[0].casefold().startswith(("query", "question"))
    return words(text[1], 1) if asked else (*words(text[0]), *words(text[1], 1))


def _placed(tokens: list[str], text: Text, *, made: bool) -> tuple[Unit, ...]:
    """The tokens as units, where they stand in the text: joined by spaces, or else searched for."""
    if made or not isinstance(text, str):
        starts = accumulate((len(token) + 1 for token in tokens), initial=0)
        spans: list[Span | None] = [(s, s + len(token)) for s, token in zip(starts, tokens, strict=False)]
    else:
        spans = search_spans(tokens, text)
    return tuple(Unit(token, "word", span, 0) for token, span in zip(tokens, spans, strict=True))


def _marks(value: Any, length: int) -> list[bool]:
    """Which tokens are marked, by at least half of those who marked any."""
    votes = value if isinstance(value, list) and all(isinstance(v, list) for v in value) else [value]
    for vote in votes:
        if not isinstance(vote, list) or len(vote) != length or any(v not in (0, 1) for v in vote):
            raise Unusable(f"the rationale is not one 0 or 1 for each of the {length} tokens")
    return [bool(votes) and 2 * sum(column) >= len(votes) for column in zip(*votes, strict=True)] or [False] * length


def runs(marks: Sequence[bool]) -> tuple[Span, ...]:
    """The runs of marked positions, each from its first to before its last."""
    edges = [i for i, (a, b) in enumerate(zip([False, *marks], [*marks, False], strict=True)) if a != b]
    return tuple(zip(edges[::2], edges[1::2], strict=True))


def words(text: str, part: int = 0) -> tuple[Unit, ...]:
    """The words between white space, as ERASER splits its documents."""
    return tuple(Unit(match[0], "word", match.span(), part) for match in re.finditer(r"\S+", text))


def checked_spans(spans: Sequence[tuple[Any, Any]], length: int) -> tuple[Span, ...]:
    """Spans of positions, sorted; one outside the text is refused. Those that mark nothing are left out."""
    checked = set()
    for span in spans:
        place = " … ".join(map(shown, span))
        if any(isinstance(end, bool) or not isinstance(end, int | float) or end % 1 for end in span):  # NaN too
            raise Unusable(f"the rationale {place} does not begin and end at a token: two whole numbers are needed")
        start, end = span
        if not 0 <= start <= end <= length:
            raise Unusable(f"the rationale {place} is outside the {length} tokens of the text")
        checked.add((int(start), int(end)))
    return tuple(sorted((start, end) for start, end in checked if start < end))


def _evidence_spans(evidences: Any, tokens: list[str]) -> tuple[Span, ...]:
    """Where the texts of a rationale stand, in tokens."""
    if not isinstance(evidences, list) or not all(isinstance(text, str) for text in evidences):
        raise Unusable("the evidences are not a list of texts")
    spans = set()
    for text in evidences:
        wanted = text.split()
        if not wanted:  # ERASER has some that mark nothing
            continue
        starts = [i for i in range(len(tokens)) if tokens[i : i + len(wanted)] == wanted]
        if not starts:
            raise Unusable(f"the evidence {text[:60]!r} does not stand in the text")
        spans.add((starts[0], starts[0] + len(wanted)))
    return tuple(sorted(spans))


def _answers(record: RowFields, columns: Columns, text: Text) -> tuple[Answer, ...] | None:
    if columns.answers is None:
        return None
    value = _value(record, columns.answers)
    if not isinstance(value, Mapping) or not {"text", "answer_start"} <= set(value):
        raise Unusable(f"{columns.answers!r} is not {{text: […], answer_start: […]}}")
    texts, starts = value["text"], value["answer_start"]
    if not isinstance(texts, list) or not isinstance(starts, list) or len(texts) != len(starts):
        raise Unusable(f"{columns.answers!r} does not have one start for each text")
    return tuple(_answer(answer, start, text[1]) for answer, start in zip(texts, starts, strict=True))


def _answer(answer: Any, start: Any, context: str) -> Answer:
    if not isinstance(answer, str) or isinstance(start, bool) or not isinstance(start, int):
        raise Unusable(f"the answer {shown(answer)} at {shown(start)} is not a text with its first character's number")
    if not answer.strip():
        raise Unusable("an answer is empty; a question without an answer has an empty list of them")
    if start < 0 or not context.startswith(answer, start):
        raise Unusable(f"the answer {shown(answer)} does not stand at character {shown(start)} of the context")
    return Answer(answer, start)
