"""How an explained text is laid out, whatever it is drawn on."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from whyformer.inputs.encoding import places
from whyformer.inputs.images import Picture
from whyformer.inputs.units import Span
from whyformer.results.explanation import ExplanationData
from whyformer.results.trust import Trust
from whyformer.tasks.label import Label, Predicted

UNKNOWN = "⟨?⟩"  # behind a unit that the tokenizer does not know


class Piece(NamedTuple):
    """A piece of the original text, with the position of its unit; what lies between units has none."""

    text: str
    position: int | None = None
    answer: bool = False  # whether it belongs to the explained answer, or is the word whose output is explained


def pieces(explanation: ExplanationData) -> Iterator[Piece]:
    """The original text cut into pieces.

    A line break stands between the two texts of a pair. Units without a span are set apart by spaces. Patches are no
    part of a text.
    """
    shown = [place for place in shown_places(explanation) if explanation.units[place].box is None]
    part, end = (explanation.units[shown[0]].part or 0 if shown else 0), 0
    for number, position in enumerate(shown):
        unit = explanation.units[position]
        if unit.part is not None and unit.part != part:
            yield _piece(explanation, part, end, None)
            yield Piece("\n")
            part, end = unit.part, 0
        if unit.span is None:
            yield Piece(" " if number else "")
            yield Piece(unit.text, position)
            continue
        start = max(unit.span[0], end)
        yield _piece(explanation, part, end, start)
        end = max(start, unit.span[1])
        yield _piece(explanation, part, start, end, position)
    yield _piece(explanation, part, end, None)


def picture_in(explained: ExplanationData | Sequence[ExplanationData]) -> Picture | None:
    """The image that is explained; None for texts."""
    return explained.image if isinstance(explained, ExplanationData) else explained[0].image


def shown_places(explanation: ExplanationData) -> list[int]:
    """Where the units stand that people see: those that are not special."""
    return [place for place, unit in enumerate(explanation.units) if not unit.special]


def _piece(explanation: ExplanationData, part: int, start: int, stop: int | None, position: int | None = None) -> Piece:
    text = explanation.texts[part][start:stop] if part < len(explanation.texts) else ""
    return Piece(text, position, in_answer(explanation, part, (start, start + len(text))))


def answer_of(explanation: ExplanationData) -> Span | None:
    """The characters of the explained answer in the context, if an answer is explained that stands there."""
    return explanation.target.span.characters if explanation.target.span else None


def marked(explanation: ExplanationData) -> str | None:
    """What a mark in the text means: the explained answer, or where the explained output is said; None without."""
    place = explanation.target.place
    if answer_of(explanation):
        return "answer"
    return "here" if place is not None and place.characters else None


def in_answer(explanation: ExplanationData, part: int | None, span: Span | None) -> bool:
    """Whether a place in the text number `part` belongs to what is marked."""
    place = explanation.target.place
    where, marks = (1, answer_of(explanation)) if place is None else (place.part, place.characters)
    if part != where or span is None or marks is None:
        return False
    return span[0] < marks[1] and marks[0] < span[1]


def headline(prediction: Predicted) -> str:
    """What the model said, and how probable it is; of a score, which has no probability, its value."""
    name = named(Label(prediction.index, prediction.label, prediction.span, title=prediction.title))
    is_score = prediction.probability is None and len(prediction.logits) == 1
    amount = f"{prediction.logits[0]:.4g}" if is_score else percent(prediction.probability)
    return f"{'Answer: ' if prediction.span else ''}{name} {amount}".rstrip()


def question(explanation: ExplanationData) -> str:
    """What is explained, as people would ask it."""
    against = f" rather than {named(explanation.versus)}" if explanation.versus else ""
    return f"why {named(explanation.target)}{against}?"


def named(label: Label) -> str:
    """A class by its name, an answer in quotes, what is said at a token with its place."""
    if label.title is not None:
        return label.title
    return f'"{" ".join(label.name.split())}"' if label.span and label.span.characters else label.name


def shares(prediction: Predicted) -> list[tuple[int, str, float]]:
    """The outputs with their probabilities: classes with the highest first; the start and the end of an answer."""
    indices = range(len(prediction.labels)) if prediction.indices is None else prediction.indices
    outputs = list(zip(indices, prediction.labels, prediction.probabilities or (), strict=False))
    return outputs if prediction.span else sorted(outputs, key=lambda output: -output[2])


def percent(probability: float | None) -> str:
    """A probability for people."""
    return "" if probability is None else f"{100 * probability:.1f} %"


def called(explanation: ExplanationData) -> str:
    """The method with the options it was given."""
    options = ", ".join(f"{name}={value}" for name, value in explanation.options.items())
    return f"{explanation.method}({options})" if options else explanation.method


def layer_rows(explanation: ExplanationData) -> list[tuple[str, ExplanationData]]:
    """A row for each layer, named by its number, and one for their sum; one row alone where there are no layers."""
    if explanation.layers is None:
        return [(called(explanation), explanation)]
    layers = [replace(explanation, scores=layer, layers=None, pixels=None) for layer in explanation.layers]
    return [*((f"layer {number}", layer) for number, layer in enumerate(layers)), ("sum", explanation)]


def scale_note(peak: float | None, what: str = "row") -> str:
    """What the colours of several rows may be compared with: those of all rows, up to a peak, or of their own alone."""
    if peak is None:
        return f"each {what} on its own scale"
    return f"all {what}s on one scale: the strongest colour is {peak:.3g}"


def note(explanation: ExplanationData) -> str | None:
    """What the reader must know about the input, if anything."""
    notes = (_dropped(explanation), _windows(explanation), _unknown(explanation), _several(explanation))
    return "; ".join(filter(None, notes)) or None


def _dropped(explanation: ExplanationData) -> str | None:
    dropped = explanation.diagnostics.get("dropped_tokens")
    least = "at least " if explanation.diagnostics.get("dropped_at_least") else ""
    return f"{least}{dropped} tokens did not fit into the model's window and were dropped" if dropped else None


def _windows(explanation: ExplanationData) -> str | None:
    window, merged = explanation.diagnostics.get("window"), explanation.diagnostics.get("windows")
    if window:
        return f"the context is read in {window['count']} windows, and number {window['number'] + 1} is explained"
    return f"the mean over {merged} windows" if merged else None


def _unknown(explanation: ExplanationData) -> str | None:
    return f"{UNKNOWN} unknown to the tokenizer" if any(unit.unknown for unit in explanation.units) else None


def _several(explanation: ExplanationData) -> str | None:
    """Whether the explained answer stands elsewhere in the context too."""
    target = explanation.target
    if target.span is None or target.span == explanation.prediction.span or answer_of(explanation) is None:
        return None
    count = len(places(target.name, explanation.texts[1]))
    start, end = target.span.tokens
    here = f"{named(target)} stands {count} times in the context, and tokens ({start}, {end}) are explained"
    return f"{here}: give (start, end) for another" if count > 1 else None


class Marks(NamedTuple):
    """The characters that stand for the orders of a `Trust`."""

    spread: str  # from the lowest of the random orders to the highest
    chance: str  # their mean
    best: str
    own: str


MARKS = Marks("░", "▓", "┃", "◆")


class Gauge(NamedTuple):
    """Where the orders of a `Trust` lie on a scale from 0 to 1: how far the probability falls on average."""

    spread: tuple[float, float]
    chance: float
    best: float | None
    own: float


def gauge(trust: Trust, among: Sequence[Trust]) -> Gauge:
    """The orders on a scale that shows those of all explanations side by side."""
    ends = [end for t in among for end in (*t.random, t.aopc, t.aopc if t.ceiling is None else t.ceiling)]
    low, width = min(ends), max(ends) - min(ends) or 1.0
    orders = (min(trust.random), max(trust.random), trust.chance, trust.aopc)
    first, last, chance, explained = ((end - low) / width for end in orders)
    return Gauge((first, last), chance, None if trust.ceiling is None else (trust.ceiling - low) / width, explained)


def gauge_key(trust: Trust, name: str | None = None) -> str:
    """What the marks of a gauge mean, with their numbers."""
    random = f"{MARKS.spread} {len(trust.random)} random orders {min(trust.random):.2f} … {max(trust.random):.2f}"
    chance = f"{MARKS.chance} their average {trust.chance:.2f}"
    best = [] if trust.ceiling is None else [f"{MARKS.best} best order found {trust.ceiling:.2f}"]
    return ", ".join([random, chance, *best, f"{MARKS.own} {name or f'this order {trust.aopc:.2f}'}"])


def gauge_title(trust: Trust) -> str:
    """What a gauge measures."""
    done = "patches are covered" if trust.kind == "patch" else f"{trust.kind}s are deleted"
    return f"how far the probability of {trust.target} falls on average while the highest-ranked {done}"


def trust_numbers(trust: Trust) -> str:
    """The two numbers for people: the percentile, and the share of the attainable or why there is none."""
    percentile = f"percentile {trust.percentile:g} among random orders"
    if trust.share is None:
        return f"{percentile} · {'too long to be searched' if trust.ceiling is None else 'nothing to find'}"
    return f"{percentile} · {100 * trust.share:.0f} % of the attainable"


def trusts(explanations: Sequence[ExplanationData]) -> list[Trust]:
    """What was measured of them."""
    return [e.trusted for e in explanations if e.trusted is not None]
