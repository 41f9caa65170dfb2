"""Runs: what a model computed on one batch, recorded when it is first asked for."""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from whyformer.recorder.lrp.books import Book
from whyformer.recorder.lrp.running import Tap, acts_while_running
from whyformer.recorder.masking import masks
from whyformer.recorder.needs import Needs
from whyformer.recorder.run import recorded_somehow
from whyformer.recorder.trace import Trace

if TYPE_CHECKING:
    from whyformer.recorder.captures import Replay


class Runs:
    """The runs of a model on a batch, which all predictions of it share; each is recorded when it is first asked for.

    The numbers of `tensors` were checked by whoever made the batch. `needs` is what was known beforehand. A run serves
    whatever needs no more than it recorded. `edited` has the change of the embeddings in every run, if there is one.
    Of texts that are `padded`, no run has to look whether they are.
    """

    def __init__(
        self,
        model: nn.Module,
        tensors: Mapping[str, Tensor],
        needs: Needs,
        trace: Trace | None = None,
        edited: Mapping[str, Any] | None = None,
        *,
        padded: bool = False,
    ):
        self.model, self.tensors, self.needs = model, tensors, needs
        self.traces: list[Trace] = [] if trace is None else [trace]
        self.edited = dict(edited or {})
        self.padded = padded
        self.replay: Replay | None = None  # in place of a run that only has to tell what the model says
        self.may_be_replayed = trace is None and not self.edited

    @property
    def trace(self) -> Trace:
        """Any run, for what all have: outputs, states, embeddings."""
        return self.traces[0] if self.traces else self._record(self.needs)

    @property
    def _unspent(self) -> list[Trace]:
        """The runs that can still be differentiated."""
        return [trace for trace in self.traces if not trace.spent]

    @property
    def unspent(self) -> Trace:
        """Any run that can still be differentiated; that which was known to be needed, if there is none yet."""
        if not self.traces:
            self._record(self.needs)
        return next(iter(self._unspent), None) or self.plain

    @property
    def plain(self) -> Trace:
        """A run whose gradients are torch's own."""
        plain = next((t for t in self._unspent if t.book is None), None)
        return self._record(self.needs.without_book()) if plain is None else plain

    @property
    def opened(self) -> Trace:
        """A run whose gradients are torch's own, with attention maps."""
        opened = next((t for t in self._unspent if t.book is None and t.cannot_be_opened_further), None)
        return self._record(replace(self.needs.without_book(), maps=True)) if opened is None else opened

    @property
    def with_maps(self) -> Trace:
        """Any run with attention maps."""
        return next((t for t in self.traces if t.is_opened), None) or self.opened

    def tapped(self, tap: Tap, book: Book) -> Trace | None:
        """A run with a tap under a book, if that is what was known to be asked for and can be had."""
        if self.needs.tap is not tap or self.needs.book != book:
            return None
        tapped = next((t for t in self._unspent if t.at_maps is not None), None) or self._record(self.needs)
        return tapped if tapped.at_maps is not None and tapped.has_layers and tapped.reach != "nowhere" else None

    @property
    def traced(self) -> Trace:
        """The run with sites."""
        traced = next((t for t in self.traces if t.sites), None)
        return self._record(Needs(sites=True, last=self.needs.last)) if traced is None else traced

    def under(self, book: Book, *, maps: bool = False, at_inputs: bool = False, biases: bool = False) -> Trace:
        """A run whose gradients are those of a book, down to the inputs if asked; or else the one with sites."""
        if not acts_while_running(book) or any(t.sites for t in self.traces):
            return self.traced
        reaching = ("inputs",) if at_inputs else ("inputs", "states")
        of_book = [t for t in self._unspent if t.book == book and (t.at_biases is not None or not biases)]
        recorded_under = next((t for t in of_book if t.cannot_be_opened_further or not maps), None)
        if recorded_under is None:
            recorded_under = self._record(
                Needs(maps, book=book, biases=biases, last=self.needs.last, low=self.needs.low)
            )
        return recorded_under if recorded_under.sites or recorded_under.reach in reaching else self.traced

    def _record(self, needs: Needs) -> Trace:
        """Record a run; one with sites if a book's rules cannot follow the model while it runs."""
        with masks(needed=self.padded or None):
            trace = recorded_somehow(self.model, self.tensors, needs, checked=True, **self.edited)
        self.traces.append(trace)
        return trace
