"""Explanation and Comparison as they are given to people: they show themselves, and say how far to believe them."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from whyformer.escapes import visible
from whyformer.progress import counting
from whyformer.registry.options import validated
from whyformer.results.explanation import ComparisonData, ExplanationData
from whyformer.results.saved import COMPARISON, EXPLANATION
from whyformer.results.trust import TrustData
from whyformer.show.colors import Scale
from whyformer.show.layout import one_line
from whyformer.show.render import Renderable, text_of
from whyformer.storage.files import write

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class _Drawn(Renderable):
    """What one explanation and a comparison of several have in common."""

    @validated
    def to_html(self, path: str | Path, scale: Scale | None = None, tokens: bool = False) -> Path:
        """Write a page that needs nothing else: no network, no other file. `scale` and `tokens` are as in `figure`."""
        return write(path, text_of(self, "html", scale=scale, tokens=tokens))

    @validated
    def figure(self: Any, scale: Scale | None = None, tokens: bool = False, layers: bool = False) -> "Figure":
        """A matplotlib figure: the scores of each word, or token; with `layers`, of each layer where there are layers.

        A comparison has one row per method, as in AttCAT's Figure 5. Colors are relative to the largest score of the
        row (`scale="row"`: the default for methods, whose scores have different units) or of all rows
        (`scale="shared"`: the default for layers). For an image there is the picture beside its heat, and a comparison
        has one picture per method.
        """
        from whyformer.show.figures import figure

        return figure(self, scale, tokens, layers)

    def __repr__(self: Any) -> str:
        return one_line(self)

    def _repr_html_(self: Any) -> str:
        from whyformer.show.html import fragment

        return fragment(self if isinstance(self, ComparisonData) else [self])


@dataclass(frozen=True, repr=False)
class Trust(Renderable, TrustData):
    """How far the probability of `target` falls while units are deleted, as `aopc`, on average over 0, 10, …, 100 %.

    Of the explanation's own order, highest score first; of random orders; and of the best order that greedy search
    finds, the `ceiling`, which texts of more than 64 units do not have, and outputs that are no class (`output`).
    `too_short`: there are so few orders that nothing can be told. `evaluations` counts the inputs that the model was
    run on, for this and all that was measured together with it.
    """

    def __repr__(self) -> str:
        return f"<Trust: {visible(self.sentence)}>"

    def _repr_html_(self) -> str:
        from whyformer.show.html import trust_fragment

        return trust_fragment(self)


@dataclass(frozen=True, eq=False, repr=False)
class Explanation(_Drawn, ExplanationData):
    """Why a model gave an output: one score for each unit of the input.

    `scores` has a number for every unit, special tokens included; `top`, `words` and pictures leave those out.
    `layers` holds the scores of each layer, [layers, units], where the method gives them; they add up to `scores`.
    `ranks`: the scores tell an order alone. `signs`: above 0 where a unit spoke for the target and below 0 where
    against it, if the scores do not tell. `seen`: what the method saw while it hid tokens, one for each part of the
    target; it is of tokens, also where the units are words.
    Of an image, `image` is what people see, units are patches with a `box`, and `heat` is the scores as a map; `pixels`
    has the scores of a method that gives every pixel one.
    `checked` is what the model says without the strongest words or regions, each hidden alone; None if nobody asked.
    `explains` is what of the target is explained: its `logit`, less that of `versus` if there is one, or its
    `log_odds` beside all other classes together.
    `predicts_at` is the position of the unit after which a next token is predicted. It cannot be deleted, and lists of
    reasons and pictures leave it out.
    `e["gorgeous"]` is the score of a word, and `e.share("gorgeous")` how much of all it is. Two explanations are equal
    if they explain the same and their scores differ by rounding alone; `e.agreement(f)` says how far they agree.
    `subject` is the model behind it, neither saved nor pickled; `trusted` is what `trust` found, once it was asked.
    """

    _trust_kind = Trust

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read what `save` wrote as JSON."""
        return cls._of(EXPLANATION.read(path))

    def trust(self, explainer: Any = None) -> Trust:
        """How far to believe it: how it does beside random orders and the best order found. It is measured once.

        An explanation that was loaded needs the explainer of its model.
        """
        from whyformer.explain.trust import trust_of

        with counting("trust"):
            return trust_of([self], explainer)[0]


@dataclass(frozen=True, eq=False, repr=False)
class Comparison(_Drawn, ComparisonData[Explanation]):
    """Explanations of one input by several methods; `refused` names those that could not, and why."""

    @classmethod
    @validated
    def load(cls, path: str | Path) -> Self:
        """Read what `save` wrote as JSON."""
        saved = COMPARISON.read(path)
        return cls(tuple(map(Explanation._of, saved["explanations"])), tuple(saved["refused"].items()))


@validated
def image_grid(rows: Sequence[Sequence[Explanation]], scale: Scale = "row") -> "Figure":
    """A matplotlib figure of explained images in rows and columns, behind the input of each row.

    What all of a column have in common, the method or the target, stands above it, and what all of a row have in
    common at its left. Colours are beside the largest score of each picture, or of all (`scale="shared"`).
    """
    from whyformer.show.figures import image_grid as drawn

    return drawn(rows, scale)
