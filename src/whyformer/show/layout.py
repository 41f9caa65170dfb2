"""How an explained text is laid out, whatever it is drawn on."""

from collections.abc import Iterator

from whyformer.explanation import Explanation


def runs(explanation: Explanation) -> Iterator[tuple[str, int | None]]:
    """The original text cut into pieces, each with the position of its unit; what lies between units has none.

    A line break stands between the two texts of a pair. Units without a span are set apart by spaces.
    """
    shown = [(i, u) for i, u in enumerate(explanation.units) if not u.special]
    part, end = (shown[0][1].part or 0 if shown else 0), 0
    for number, (position, unit) in enumerate(shown):
        if unit.part is not None and unit.part != part:
            yield _between(explanation, part, end, None) + "\n", None
            part, end = unit.part, 0
        if unit.span is None:
            yield (" " if number else ""), None
            yield unit.text, position
            continue
        start = max(unit.span[0], end)
        yield _between(explanation, part, end, start), None
        yield explanation.texts[part][start : max(start, unit.span[1])], position
        end = max(start, unit.span[1])
    yield _between(explanation, part, end, None), None


def _between(explanation: Explanation, part: int, start: int, stop: int | None) -> str:
    return explanation.texts[part][start:stop] if part < len(explanation.texts) else ""


def question(explanation: Explanation) -> str:
    """What is explained, as people would ask it."""
    against = f" rather than {explanation.versus.name}" if explanation.versus else ""
    return f"why {explanation.target.name}{against}?"


def percent(probability: float | None) -> str:
    """A probability for people."""
    return "" if probability is None else f"{100 * probability:.1f} %"


def called(explanation: Explanation) -> str:
    """The method with the options it was given."""
    options = ", ".join(f"{name}={value}" for name, value in explanation.options.items())
    return f"{explanation.method}({options})" if options else explanation.method


def note(explanation: Explanation) -> str | None:
    """What the reader must know about the input, if anything."""
    dropped = explanation.diagnostics.get("dropped_tokens")
    return f"{dropped} tokens did not fit into the model's window and were dropped" if dropped else None
