"""Prediction: a model, a batch and the outputs to be explained; what every method is given."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from whyformer.errors import BadOption, UnsupportedModel
from whyformer.inputs.encoding import Batch
from whyformer.inputs.images import ImageInput, Patches
from whyformer.inputs.tensors import CONTENT
from whyformer.models.loading import labels_of, text_config
from whyformer.recorder import Book, Edit, Layers, Trace, record
from whyformer.recorder.lrp.books import book_named, gradient_book
from whyformer.recorder.run import expanded
from whyformer.tasks.targets import Target
from whyformer.tasks.task import Task

Queries = Literal["reader", "mean", "all"]
SHADES = 100  # steps of 1 that are told apart where an image is known again


@dataclass(frozen=True)
class Relevances:
    """What one relevance pass gave.

    `state` is at the embedding output, or at the first layer's output if the pass was not `whole`; `absorbed` is what
    parameters above it took, [batch].
    """

    attention: tuple[Tensor, ...]
    absorbed: Tensor
    state: Tensor | None
    pixels: Tensor | None
    embeddings: Tensor | None
    whole: bool


@dataclass(frozen=True)
class Gradients:
    """Gradients of the explained outputs: at each layer's attention, and at each hidden state."""

    attention: tuple[Tensor, ...]
    hidden: tuple[Tensor, ...]


class _Run:
    """The run of a model on a batch, which all predictions of it share; recorded when it is first asked for."""

    def __init__(self, model: nn.Module, tensors: Mapping[str, Tensor], relevance: bool, trace: Trace | None):
        self.model, self.tensors, self.relevance = model, tensors, relevance
        self.recorded = trace

    @property
    def trace(self) -> Trace:
        """The one forward pass."""
        if self.recorded is None:
            self.recorded = record(self.model, self.tensors, relevance=self.relevance)
        return self.recorded

    @property
    def traced(self) -> Trace:
        """The forward pass with its sites; run again, once for all, if nobody had said that relevance was to come."""
        if self.recorded is None or not self.recorded.sites:
            self.recorded, self.relevance = record(self.model, self.tensors), True
        return self.recorded


class Prediction:
    """Runs its model once, when first asked, and shares that run among all methods and targets.

    Tensors for methods are at least float32, so that a product of half-precision numbers keeps its digits. A `trace`,
    `padding` or `run` that is known already is used, and `chosen` holds the tensors `target` and `versus` themselves.
    """

    def __init__(
        self,
        model: nn.Module,
        batch: Batch,
        target: Target = None,
        versus: Target = None,
        *,
        chosen: tuple[Tensor, Tensor | None] | None = None,
        padding: Tensor | None = None,
        trace: Trace | None = None,
        relevance: bool = False,
        run: _Run | None = None,
    ):
        self.model = model
        self.batch = replace(batch, tensors=expanded(batch.tensors))
        self.labels = labels_of(model)
        self._target = target
        self._versus = versus
        self._chosen = chosen
        self._padding = padding
        self._by_book: WeakKeyDictionary[Book, Relevances] = WeakKeyDictionary()
        self._by_gradient_book: WeakKeyDictionary[Book, Gradients] = WeakKeyDictionary()
        self._run = _Run(model, self.batch.tensors, relevance, trace) if run is None else run

    @property
    def trace(self) -> Trace:
        """The one forward pass."""
        return self._run.trace

    @property
    def task(self) -> Task:
        """What the model says."""
        return self.trace.outputs.task

    @property
    def traced(self) -> Trace:
        """The trace with its sites, for relevance.

        It is recorded anew, once, if nobody had said that this was to come: `relevance=True` here, or in `@method`.
        """
        return self._run.traced

    def towards(self, target: Target, versus: Target = None) -> "Prediction":
        """The same run, another output to be explained."""
        return Prediction(self.model, self.batch, target, versus, run=self._run)

    def of_classes(self, target: Target) -> "Prediction":
        """The same run, the same explained of other classes."""
        return self.towards(target, self._versus)

    def settled(self) -> "Prediction":
        """What was said, and what of it is explained, without the graph: small enough to be kept."""
        kept = replace(self.trace.outputs, logits=self.trace.logits.detach())
        trace = Trace(kept, UnsupportedModel("the graph of this run was let go"), None)
        if self.patches is not None:
            trace.patches = self.patches
        return Prediction(self.model, self.batch, chosen=(self.target, self.versus), padding=self.padding, trace=trace)

    @cached_property
    def predicted(self) -> Tensor:
        """The predicted class of each example, [batch]; of answers and tokens as `target`."""
        return self.trace.outputs.predicted

    @cached_property
    def target(self) -> Tensor:
        """The explained class of each example, [batch].

        For an answer [batch, 2]: its start and its end, -1 where that is left out. For a language model [batch, 2]:
        the token and the position that it is said at.
        """
        return self.trace.outputs.chosen(self._target) if self._chosen is None else self._chosen[0]

    @cached_property
    def versus(self) -> Tensor | None:
        """The class that the target is set against, [batch], if there is one."""
        if self._chosen is not None:
            return self._chosen[1]
        return None if self._versus is None else self.trace.outputs.set_against(self.target, self._versus)

    def said_at(self, row: int) -> list[int]:
        """The positions at which the explained outputs of an example are said; none for a class."""
        targets = [target for target in (self.target, self.versus) if target is not None]
        return [place for t in targets for place in self.task.positions(t)[row].tolist() if place >= 0]

    @cached_property
    def padding(self) -> Tensor:
        """Positions that are padding, [batch, units]."""
        if self._padding is not None:
            return self._padding
        has_layers = isinstance(self.trace.layers, Layers)
        read = self.reader if has_layers else torch.zeros_like(self.trace.outputs.attended, dtype=torch.float32)
        return self.batch.padding(read, getattr(text_config(self.model), "pad_token_id", None))

    @property
    def patches(self) -> Patches | None:
        """Of images, which unit each pixel belongs to; None for texts."""
        image = next(iter(self.batch.examples), None)
        if isinstance(image, ImageInput):
            return image.patches
        return self.trace.patches if self.batch.is_images else None

    @cached_property
    def real(self) -> Tensor:
        """1 where a position is no padding, [batch, units]."""
        return (~self.padding).to(torch.promote_types(self.trace.logits.dtype, torch.float32))

    @cached_property
    def reader(self) -> Tensor:
        """How the head reads the last layer, [batch, units]: shares that add up to 1."""
        return self.trace.read_for(self.target)

    @property
    def parts(self) -> tuple["Prediction", ...]:
        """The predictions that are explained one by one and added up: the start and the end of an answer, or this."""
        targets = self.task.single(self.target)
        against = [None] * len(targets) if self.versus is None else self.task.single(self.versus)
        return (self,) if len(targets) == 1 else tuple(map(self._part, targets, against))

    def _part(self, target: Tensor, versus: Tensor | None) -> "Prediction":
        return Prediction(self.model, self.batch, chosen=(target, versus), padding=self.padding, run=self._run)

    def read(self, rows: Tensor) -> Tensor:
        """The reader's row of [batch, queries, keys] (or with heads in between), as a mean where it reads several."""
        return torch.einsum("bq,b...qk->b...k", self.reader.to(rows.dtype), rows)

    def over_queries(self, rows: Tensor, queries: Queries) -> Tensor:
        """One row of [batch, queries, keys]: the reader's, the mean of those that are no padding, or of all."""
        if queries == "reader":
            return self.read(rows)
        if queries == "all":
            return rows.mean(-2)
        shares = self.real / self.real.sum(-1, keepdim=True)
        return torch.einsum("bq,b...qk->b...k", shares.to(rows.dtype), rows)

    @cached_property
    def attention(self) -> tuple[Tensor, ...]:
        """Attention probabilities of each layer, [batch, heads, queries, keys]."""
        return tuple(_precise(a.detach()) for a in self.trace.attention)

    @cached_property
    def hidden(self) -> tuple[Tensor, ...]:
        """The embedding output, then the output of each layer, [batch, units, width]."""
        return tuple(_precise(h.detach()) for h in self.trace.hidden)

    @cached_property
    def embeddings(self) -> Tensor:
        """The token embeddings, before positions and norm, [batch, units, width]."""
        return _precise(self._embedding_leaf().detach())

    @property
    def attention_gradients(self) -> tuple[Tensor, ...]:
        """Gradient of the explained outputs with respect to each layer's attention."""
        count = len(self.attention)
        return self._gradients[:count]

    @property
    def hidden_gradients(self) -> tuple[Tensor, ...]:
        """Gradient of the explained outputs with respect to each hidden state."""
        first, count = len(self.attention), len(self.hidden)
        return self._gradients[first : first + count]

    @property
    def embedding_gradients(self) -> Tensor:
        """Gradient of the explained outputs with respect to the token embeddings."""
        self._embedding_leaf()
        return self._gradients[-1]

    @cached_property
    def _gradients(self) -> tuple[Tensor, ...]:
        """One backward pass for all of them."""
        trace = self.trace
        of = () if trace.embeddings is None else (trace.embeddings,)
        if isinstance(trace.layers, Layers):
            of = (*trace.attention, *trace.hidden, *of)
        return tuple(_precise(g) for g in trace.gradient(of, self.target, self.versus))

    def gradients(self, book: str | Book | None = None) -> "Gradients":
        """Gradients at all maps and states: torch's own, or those of a rule book which carries one.

        One backward pass gives them all; that of a book is kept as long as the book lives.
        """
        if book is None:
            return Gradients(self.attention_gradients, self.hidden_gradients)
        chosen = gradient_book(book)
        gradients = self._by_gradient_book.get(chosen)
        if gradients is None:
            maps, states = self.traced.attention, self.traced.hidden
            carried = self.traced.carried((*maps, *states), chosen, self.target, self.versus)
            precise = tuple(map(_precise, carried))
            gradients = Gradients(precise[: len(maps)], precise[len(maps) :])
            self._by_gradient_book[chosen] = gradients
        return gradients

    def attention_relevances(self, book: str | Book) -> tuple[Tensor, ...]:
        """Relevance of the explained outputs at each layer's attention, under a rule book."""
        return self.relevances(book, whole=False).attention

    def embedding_relevances(self, book: str | Book) -> Tensor:
        """Relevance of the explained outputs at the embedding output, under a rule book."""
        _ = self.trace.hidden  # raises if there are no layers
        state = self.relevances(book).state
        assert state is not None
        return state

    def token_relevances(self, book: str | Book) -> Tensor:
        """Relevance of the explained outputs at the token embeddings, before positions and norm."""
        self._embedding_leaf()
        embeddings = self.relevances(book).embeddings
        assert embeddings is not None
        return embeddings

    def pixel_relevances(self, book: str | Book) -> Tensor:
        """Relevance of the explained outputs at the pixels of images, [batch, channels, height, width]."""
        pixels = self.relevances(book).pixels
        assert pixels is not None
        return pixels

    def relevances(self, book: str | Book, *, whole: bool = True) -> "Relevances":
        """What one backward pass under a rule book gives; another one is run only if more is asked for.

        Unless `whole`, it stops at the first layer's attention: nothing below is needed for the maps. It is kept
        as long as the book lives.
        """
        if not whole:
            _ = self.trace.attention
        chosen = book_named(book)
        relevances = self._by_book.get(chosen)
        if relevances is None or (whole and not relevances.whole):
            relevances = self._by_book[chosen] = self._pass(chosen, whole)
        return relevances

    def _pass(self, book: Book, whole: bool) -> "Relevances":
        trace, layers = self.traced, self.trace.layers
        maps = trace.attention if isinstance(layers, Layers) else ()
        state = layers.hidden[0 if whole else 1] if isinstance(layers, Layers) else None
        above = layers.calls[min(1, len(layers.calls) - 1)] if isinstance(layers, Layers) and not whole else -1
        taking = [a for a, call in zip(trace.absorbers, trace.absorber_calls, strict=True) if call > above]
        from_value = book.starts_from == "value" and whole
        ends = [state, trace.pixels if whole else None, trace.embeddings if from_value else None]
        of = [*maps, *taking, *(end for end in ends if end is not None)]
        relevances = iter(trace.relevance(tuple(of), book, self.target, self.versus))
        attention = tuple(_precise(next(relevances)) for _ in maps)
        absorbed = torch.zeros_like(self.real[:, 0])
        for _ in taking:
            absorbed = absorbed + next(relevances).reshape(len(absorbed), -1).sum(1)
        at_state, pixels, embeddings = (None if end is None else _precise(next(relevances)) for end in ends)
        return Relevances(attention, absorbed, at_state, pixels, embeddings, whole)

    def loss(self, logits: Tensor) -> Tensor:
        """Cross-entropy of the explained class, [batch]."""
        return self.task.loss(logits, self.target, self.versus)

    def edited(self, edit: Edit) -> "Prediction":
        """The same input and outputs, run anew with other embeddings."""
        layers = self.trace.layers
        first = layers.calls[0] if isinstance(layers, Layers) else -1
        trace = record(self.model, self.batch.tensors, relevance=False, edit=edit, first_layer=first)
        return Prediction(self.model, self.batch, chosen=(self.target, self.versus), padding=self.padding, trace=trace)

    def generators(self, seed: int) -> list[torch.Generator]:
        """A random stream for each example; it depends on the seed and on the example's own tokens alone."""
        content = next(self.batch.tensors[name] for name in CONTENT if name in self.batch.tensors)
        if self.batch.is_images:
            content = (content.double() * SHADES).round()  # an image that was saved is the same but for rounding
        if content.is_floating_point():
            content = content.to(torch.float32)
        streams = []
        for row, padding in zip(content.cpu(), self.padding.cpu(), strict=True):
            tokens = row if self.batch.masked is None else row[~padding]
            digest = hashlib.blake2b(tokens.contiguous().numpy().tobytes() + str(seed).encode(), digest_size=7)
            streams.append(torch.Generator().manual_seed(int.from_bytes(digest.digest())))
        return streams

    def _embedding_leaf(self) -> Tensor:
        if self.trace.embeddings is None:
            raise BadOption("the model's token embeddings were not seen; use at='embedding_output'")
        return self.trace.embeddings


def _precise(tensor: Tensor) -> Tensor:
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))
