"""Needs: what a run has to record, so that it records no more.

A method declares one of three presets, or a `Needs` of its own:

* `MAPS`, the default: attention maps too, for which fused attention is opened.
* `GRADIENT`: only outputs, states between the layers, and embeddings.
* `RELEVANCE`: relevance under any rule book.

If a method has an option `book`, `with_book(GRADIENT)` or `with_book(MAPS)` makes the rules of that book act during the
run.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, Literal, get_args

from whyformer.errors import BadOption, shown
from whyformer.recorder.lrp.forward_rules import Tap, acts_while_running
from whyformer.recorder.lrp.rule_sets import Book, gradient_book

Memory = Literal["usual", "low"]


@dataclass(frozen=True)
class Needs:
    """What is asked of a run beside the outputs, the states between the layers and the embeddings.

    * `maps`: attention maps and the values that they weigh, for which fused attention is opened.
    * `sites`: relevance under any rule book, for which attention is opened too.
    * `book`: a book that carries a gradient, whose rules act while the model runs: the run's gradient is the book's.
    * `biases`: under that book, what arrives at every bias.
    * `last`: of a language model the outputs behind the last token alone, where the model can tell these alone.
    * `tap`: what is made of each attention map and its gradient under that book, so that no more of them is kept.
    * `once`: one backward pass under that book is all, so that it frees memory on its way, as a plain one does.
    * `low`: layers are run again in that pass, so that only the states between them are kept.
    * `in_turn`: of the sites, relevance at the maps of one layer after the other is all that is asked.
    """

    maps: bool = True
    sites: bool = False
    book: Book | None = None
    biases: bool = False
    last: bool = False
    tap: Tap | None = None
    once: bool = False
    low: bool = False
    in_turn: bool = False

    @property
    def opened(self) -> bool:
        """Whether fused attention is computed step by step."""
        return self.maps or self.sites or self.tap is not None

    def __or__(self, other: "Needs") -> "Needs":
        """What a run records for two: sites serve all books, and a run is under a book only if both want one."""
        sites = self.sites or other.sites
        both = self.book is not None and other.book is not None and not sites
        biases, last = both and (self.biases or other.biases), self.last and other.last
        low = both and self.low and other.low
        maps = any((self.maps, other.maps, self.tap, other.tap))
        return Needs(maps, sites, self.book if both else None, biases, last, low=low)

    def within(self, memory: Memory, method: str) -> "Needs":
        """The same in as little memory as is asked for; raises where a method cannot do with that."""
        if memory not in get_args(Memory):
            raise BadOption(f"memory is {' or '.join(map(repr, get_args(Memory)))}; found {shown(memory)}")
        if memory == "low" and (self.book is None or self.maps or self.sites):
            raise BadOption(
                f"memory='low' keeps no attention maps, and not what relevance needs at every function; {method} needs "
                "them: use attn_lrp, cp_lrp, layer_lrp, gae, att_grads or full_grad, or cat and cam with a book"
            )
        return replace(self, low=memory == "low")

    def under(self, book: Book | None) -> "Needs":
        """Return the needs of gradients under a book. Where its rules cannot act during a run, they need sites."""
        if book is None:
            return Needs(self.maps)
        if not acts_while_running(book):
            return Needs(self.maps, sites=True)
        return replace(self, book=book, maps=self.maps and self.tap is None)

    def without_book(self) -> "Needs":
        """The same for a run whose gradient is torch's own."""
        return replace(self, book=None, biases=False, tap=None, once=False, low=False, in_turn=False)

    @classmethod
    def of_all(cls, several: Sequence["Needs"]) -> "Needs":
        """What a run records for several; nothing but the outputs and states for none."""
        return reduce(cls.__or__, several) if several else cls(maps=False)


MAPS = Needs()
GRADIENT = Needs(maps=False)
RELEVANCE = Needs(sites=True)


def with_book(needs: Needs, default: Book | None = None) -> Callable[..., Needs]:
    """Return a function from a method's options to its needs: under the book that its option `book` names."""

    def of_options(book: str | None = None, **_: Any) -> Needs:
        return needs.under(default if book is None else gradient_book(book))

    return of_options
