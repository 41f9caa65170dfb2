"""The layout of an explained text in any format: pieces, headlines, names of rows, and results in one line."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

from whyformer.errors import listed
from whyformer.escapes import visible
from whyformer.inputs.batch import places
from whyformer.inputs.images import Picture
from whyformer.inputs.units import Span
from whyformer.results.checked import Effect
from whyformer.results.explanation import BASELINES, ComparisonData, ExplanationData, ScoredUnit, mean_agreements
from whyformer.results.explanations import together_name
from whyformer.results.trust import TrustData
from whyformer.show.colors import Colour, side_colour, strongest, written
from whyformer.tasks.targets import Label, Predicted

R = TypeVar("R", bound=ExplanationData | Sequence[Any])

UNKNOWN = "⟨?⟩"  # behind a unit that the tokenizer does not know
CUT = "✂"  # before what the model did not read
MOST_DIGITS = 2  # behind the point of a percentage that is set beside another


class Piece(NamedTuple):
    """A piece of the original text, with the position of its unit; what lies between units has none."""

    text: str
    position: int | None = None
    answer: bool = False  # whether it belongs to the explained answer, or is the word whose output is explained
    cut: bool = False  # whether the model never saw it


def pieces(explanation: ExplanationData) -> Iterator[Piece]:
    """The original text cut into pieces.

    Each text of a pair is a line that begins with its number. Units without a span are set apart by spaces. Patches
    are no part of a text.
    """
    shown = [place for place in shown_places(explanation) if explanation.units[place].box is None]
    part, end = (explanation.units[shown[0]].part or 0 if shown else 0), 0
    numbered = is_numbered(explanation)
    if numbered and shown:
        yield Piece(f"({part + 1}) ")
    for number, position in enumerate(shown):
        unit = explanation.units[position]
        if unit.part is not None and unit.part != part:
            yield _outside(explanation, part, end, None)
            yield Piece("\n")
            part, end = unit.part, 0
            if numbered:
                yield Piece(f"({part + 1}) ")
        if unit.span is None:
            yield Piece(" " if number else "")
            yield Piece(unit.text, position)
            continue
        start = max(unit.span[0], end)
        yield _piece(explanation, part, end, start) if end else _outside(explanation, part, end, start)
        end = max(start, unit.span[1])
        yield _piece(explanation, part, start, end, position)
    yield _outside(explanation, part, end, None)


def is_numbered(explanation: ExplanationData) -> bool:
    """True for a pair, whose texts are told apart by numbers. A question and its context need none."""
    return len(explanation.texts) > 1 and explanation.target.span is None


def unit_name(explanation: ExplanationData, unit: ScoredUnit) -> str:
    """The text of a unit, with the number of its text in a pair."""
    part = unit.unit.part
    return f"{unit.text} ({part + 1})" if is_numbered(explanation) and part is not None else unit.text


def _outside(explanation: ExplanationData, part: int, start: int, stop: int | None) -> Piece:
    """What stands before the first unit of a text or behind the last: cut off, if the text did not fit."""
    piece, told = _piece(explanation, part, start, stop), explanation.diagnostics
    return piece._replace(cut=bool(piece.text.strip()) and ("dropped_tokens" in told or "window" in told))


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
    return f"{'Answer: ' if prediction.span else ''}{said(prediction)} {amount(prediction)}".rstrip()


def said(prediction: Predicted) -> str:
    """What the model said, by its name."""
    return named(Label(prediction.index, prediction.label, prediction.span, title=prediction.title))


def amount(prediction: Predicted) -> str:
    """How probable what the model said is; of a score its value."""
    is_score = prediction.probability is None and len(prediction.logits) == 1
    return f"{prediction.logits[0]:.4g}" if is_score else percent(prediction.probability)


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


def origin(explanation: ExplanationData) -> str:
    """The method, the model, and the name of the image's file if it has one."""
    image = explanation.image
    of_image = "" if image is None or image.name is None else f" · image {image.name}"
    return f"method {called(explanation)} · model {explanation.provenance.get('model', '')}{of_image}"


def prepared(result: R, tokens: bool = False) -> R:
    """An explanation, or a comparison or list of some, as people are shown them: by words, unless tokens are wanted."""
    if isinstance(result, ExplanationData):
        return result.for_people(tokens)
    if isinstance(result, ComparisonData):
        return replace(result, explanations=tuple(e.for_people(tokens) for e in result))
    return [e.for_people(tokens) for e in result]  # type: ignore[return-value]


class ReasonLine(NamedTuple):
    """A word, patch or region with its score, its colour at its strongest, and what the model says without it."""

    text: str
    score: float
    colour: Colour
    change: str = ""  # from the probability of the whole input to that without it
    remark: str = ""  # where the score and the effect are not of one mind
    effect: Effect | None = None  # if it was hidden


def reasons(explanation: ExplanationData, count: int) -> list[ReasonLine]:
    """What is strongest in an explanation; of an image that was checked, its regions."""
    checked, places = explanation.checked, {id(unit): n for n, unit in enumerate(explanation.units)}
    if checked is not None and explanation.image is not None and not explanation.texts:
        return [
            ReasonLine(f"{numeral(n)} {e.text}", e.score, side_colour(e.direction), *_told(explanation, e), e)
            for n, e in enumerate(checked.effects)
        ]
    listed = []
    for unit, colour in strongest(explanation, count):
        effect = None if checked is None else checked.of(places[id(unit.unit)])
        told = ("", "") if effect is None else _told(explanation, effect)
        listed.append(ReasonLine(unit_name(explanation, unit), unit.score, colour, *told, effect))
    return listed


def numeral(number: int) -> str:
    """What tells the regions of an image apart, in a list and in the picture: ① for the first."""
    return chr(0x2460 + number) if number < 20 else f"({number + 1})"


def _told(explanation: ExplanationData, effect: Effect) -> tuple[str, str]:
    """What hiding a word changed, and whether that is what its score says."""
    change = _change(explanation, effect)
    if not effect.direction:
        return change, "hardly matters alone"
    return change, f"{_side(effect.direction)} it, unlike its score" if _contradicts(explanation, effect) else ""


def _contradicts(explanation: ExplanationData, effect: Effect) -> bool:
    return explanation.checked is not None and explanation.checked.agrees(effect) is False


def _side(direction: float) -> str:
    return "for" if direction > 0 else "against"


def _change(explanation: ExplanationData, effect: Effect) -> str:
    """The output before and after: probabilities, or how far the log-odds moved where probabilities look the same."""
    checked = explanation.checked
    assert checked is not None
    probabilities = checked.probabilities(effect, explanation.versus is not None)
    if probabilities is None:
        return f"{checked.output:.4g} → {effect.output:.4g}"
    if are_alike(*probabilities) and effect.direction:
        return f"{percent(probabilities[1])} (log-odds {-effect.effect:+.2g})"
    return between(*probabilities)


def are_alike(before: float, after: float) -> bool:
    """True if two probabilities are printed with the same digits."""
    return f"{100 * before:.{MOST_DIGITS}f}" == f"{100 * after:.{MOST_DIGITS}f}"


def between(before: float, after: float) -> str:
    """Two probabilities, with as many digits as tell them apart, if that takes few."""
    for digits in range(1, MOST_DIGITS + 1):
        first, last = (f"{100 * share:.{digits}f} %" for share in (before, after))
        if first != last:
            return f"{first} → {last}"
    return f"{percent(before)} → {percent(after)}"


def together_lines(explanation: ExplanationData) -> list[tuple[str, str, str]]:
    """What happens without all checked words whose scores are for the output, and without all that are against it.

    A name, the change, and a remark where the change is not what the scores say.
    """
    checked = explanation.checked
    if checked is None:
        return []
    lines = []
    for effect in checked.together:
        remark = f"{_side(effect.direction)} it, unlike their scores" if _contradicts(explanation, effect) else ""
        name = f"{together_name(explanation, effect)}, together"
        lines.append((name, _change(explanation, effect), remark))
    return lines


def reason_heads(explanation: ExplanationData) -> tuple[str, str]:
    """The headings above the scores of the strongest words, and above the outputs without them."""
    checked = explanation.checked
    if checked is None or not checked.effects:
        return "score", ""
    return "score", f"{'output' if checked.probability is None else measured(explanation)} without it"


def measured(explanation: ExplanationData) -> str:
    """What the probability without a word is of: the target, or the target and what it is set against."""
    versus = "" if explanation.versus is None else f" vs {named(explanation.versus)}"
    return f"{named(explanation.target)}{versus}"


def steps_line(explanation: ExplanationData) -> str | None:
    """How probable the target was after each step of hiding, if the scores are an order and its steps are known."""
    if not explanation.ranks or not explanation.seen:
        return None
    seen = explanation.seen[0]
    if seen.probability is None:
        after = [f"{output:.4g}" for output in seen.outputs if output is not None]
    else:
        after = [percent(share) for share in seen.probability if share is not None]
    what = "words" if explanation.image is None else "patches"
    return f"{named(explanation.target)} after each step, strongest {what} hidden first: {' → '.join(after)}"


def layer_rows(explanation: ExplanationData) -> list[tuple[str, ExplanationData]]:
    """A row for each layer, named by its number, and one for their sum; one row alone where there are no layers."""
    if explanation.layers is None:
        return [(called(explanation), explanation)]
    whole = replace(explanation, checked=None)  # a layer was not checked, and all are shown as the method has them
    layers = [replace(whole, scores=layer, layers=None, pixels=None) for layer in explanation.layers]
    return [*((f"layer {number}", layer) for number, layer in enumerate(layers)), ("sum", whole)]


def scale_note(peak: float | None, what: str = "row") -> str:
    """What the colours of several rows may be compared with: those of all rows, up to a peak, or of their own alone."""
    if peak is None:
        return f"each {what} on its own scale"
    return f"all {what}s on one scale: the strongest colour is {peak:.3g}"


def note(explanation: ExplanationData) -> str | None:
    """What the reader must know about the input, if anything."""
    unchecked = explanation.diagnostics.get("unchecked")
    notes = [_dropped(explanation), _windows(explanation), _unknown(explanation), _several(explanation)]
    notes += [_last_token(explanation)]
    notes += [] if unchecked is None else [f"the strongest words were not checked: {unchecked}"]
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


def _last_token(explanation: ExplanationData) -> str | None:
    if explanation.predicts_at is None:
        return None
    text = " ".join(explanation.units[explanation.predicts_at].text.split())
    called = f" “{text}”" if text else ""
    return f"the unit{called} after which the model predicts cannot be deleted, and is left out"


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


def gauge(trust: TrustData, among: Sequence[TrustData]) -> Gauge:
    """The orders on a scale that shows those of all explanations side by side."""
    ends = [end for t in among for end in (*t.random, t.aopc, t.aopc if t.ceiling is None else t.ceiling)]
    low, width = min(ends), max(ends) - min(ends) or 1.0
    orders = (min(trust.random), max(trust.random), trust.chance, trust.aopc)
    first, last, chance, explained = ((end - low) / width for end in orders)
    return Gauge((first, last), chance, None if trust.ceiling is None else (trust.ceiling - low) / width, explained)


def gauge_key(trust: TrustData, name: str | None = None) -> str:
    """What the marks of a gauge mean, with their numbers."""
    random = f"{MARKS.spread} {len(trust.random)} random orders {min(trust.random):.2f} … {max(trust.random):.2f}"
    chance = f"{MARKS.chance} their average {trust.chance:.2f}"
    best = [] if trust.ceiling is None else [f"{MARKS.best} best order found {trust.ceiling:.2f}"]
    return ", ".join([random, chance, *best, f"{MARKS.own} {name or f'this order {trust.aopc:.2f}'}"])


def gauge_title(trust: TrustData) -> str:
    """What a gauge measures."""
    done = "patches are covered" if trust.kind == "patch" else f"{trust.kind}s are deleted"
    return f"how far the probability of {trust.target} falls on average while the highest-ranked {done}"


def trust_numbers(trust: TrustData) -> str:
    """The two numbers for people: how many random orders do worse, and how far it gets, or why that is not known."""
    if trust.too_short:
        return "too short to judge"
    beaten = f"beats {trust.beaten} of {len(trust.random)} random orders"
    if trust.ceiling is None:
        return f"{beaten} · {'too long to be searched' if trust.output == 'class' else 'best order not searched'}"
    if trust.share is None:
        return f"{beaten} · nothing to find"
    if trust.share < 0:
        return f"{beaten} · below their average"
    return f"{beaten} · {100 * trust.share:.0f} % of the way to the best order found"


def trusts(explanations: Sequence[ExplanationData]) -> list[TrustData]:
    """What was measured of them."""
    return [e.trusted for e in explanations if e.trusted is not None]


E = TypeVar("E", bound=ExplanationData)
AGREEMENT = "agreement: the mean rank correlation with the other methods, by magnitude"


def under_headlines(explanations: Sequence[E]) -> list[list[E]]:
    """The explanations in groups with one headline: of the same model and units, that ask and say the same."""
    groups: dict[object, list[E]] = {}
    for e in explanations:
        origin = tuple(str(e.provenance.get(name)) for name in ("model", "revision"))
        groups.setdefault((*origin, headline(e.prediction), question(e), e.texts, e.units), []).append(e)
    return list(groups.values())


def row_names(explanations: Sequence[ExplanationData]) -> list[str]:
    """What rows are called that stand together: by the method, and where headlines differ by what each is of."""
    if len(under_headlines(explanations)) == 1:
        return [called(e) for e in explanations]
    several = len({e.provenance.get("model") for e in explanations}) > 1
    return [f"{called(e)} · {model_of(e) if several else headline(e.prediction)}" for e in explanations]


def model_of(explanation: ExplanationData) -> str:
    """The name of the model behind it."""
    return str(explanation.provenance.get("model") or "")


def facts_of_rows(explanations: Sequence[ExplanationData]) -> list[str]:
    """Of each row how far it agrees with the others, and whether it is there to be beaten."""
    return [_fact(e, mean) for e, mean in zip(explanations, mean_agreements(explanations), strict=True)]


def _fact(explanation: ExplanationData, mean: float | None) -> str:
    parts = ["a baseline"] if explanation.method in BASELINES else []
    return ", ".join([*parts, *([] if mean is None else [f"agreement {mean:.2f}"])])


LONGEST_TEXT = 60  # characters that are shown of a text
METHODS = 4  # as many are named
STRONGEST = 3  # words


def one_line(result: ExplanationData | ComparisonData[Any]) -> str:
    """What was said of what, why, and by which method."""
    if isinstance(result, ComparisonData):
        told = f"{len(result)} explanations, {_said(result[0])}: {listed([called(e) for e in result], METHODS)}"
    else:
        told = f"{_said(result)}, {question(result)} {called(result)}: {_strongest(result)}"
    return f"<{type(result).__name__}: {visible(told)}>"


def _said(explanation: ExplanationData) -> str:
    text = " | ".join(" ".join(text.split()) for text in explanation.texts)
    text = text if len(text) <= LONGEST_TEXT else f"{text[: LONGEST_TEXT - 1].rstrip()}…"
    image = explanation.image
    things = ([] if image is None else [image.name or "an image"]) + ([f"“{text}”"] if text else [])
    return f"{headline(explanation.prediction)} of {' and '.join(things) or f'{len(explanation.units)} units'}"


def _strongest(explanation: ExplanationData) -> str:
    merged = explanation.by_word() if explanation.texts else explanation
    top = merged.strongest(STRONGEST)
    return ", ".join(f"{unit_name(merged, unit)} {written(merged, unit.score, 3)}" for unit in top) or "no units"
