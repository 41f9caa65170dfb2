"""Prediction: a model, a batch and the outputs to be explained; what every method is given."""

import hashlib
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal
from weakref import WeakKeyDictionary

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from whyformer.caching import cached_property
from whyformer.errors import BadOption, UnsupportedModel
from whyformer.inputs.batch import Batch
from whyformer.inputs.images import ImageInput, Patches
from whyformer.inputs.input import Fillers, TensorInput
from whyformer.inputs.tensors import CONTENT
from whyformer.models.load import text_config
from whyformer.recorder import Book, Edit, Layers, Needs, Trace
from whyformer.recorder.capture.captures import Replay, replay_of
from whyformer.recorder.in_turn import AtMap, in_turn
from whyformer.recorder.lrp.forward_rules import Tap
from whyformer.recorder.lrp.rule_sets import PLAIN, book_named, gradient_book
from whyformer.recorder.recording import RecordedRuns, expanded
from whyformer.tasks.targets import Settled, Target
from whyformer.tasks.task import ModelOutputs, Task

Queries = Literal["reader", "mean", "all"]
Weight = Literal["gradient", "attention", "none"]
LARGE_MAPS = 2**24  # numbers in the maps of all heads and layers; fewer are faster at once
SHADES = 100  # steps of 1 that are told apart where an image is known again


@dataclass(frozen=True)
class Relevances:
    """What one relevance pass gave.

    `state` is at the embedding output, or if the pass was not `whole` at the first layer's output, or at the last one's
    input; `absorbed` is what parameters above it took, [batch].
    """

    attention: tuple[Tensor, ...]
    absorbed: Tensor
    state: Tensor | None
    pixels: Tensor | None
    embeddings: Tensor | None
    whole: bool


@dataclass(frozen=True)
class Gradients:
    """Gradients of a prediction's explained outputs, torch's own or those of a rule book."""

    of: "Prediction"
    book: Book | None

    @property
    def attention(self) -> tuple[Tensor, ...]:
        """At each layer's attention."""
        return self.of.gradients_in_layers(self.book, maps=True)[0]

    @property
    def hidden(self) -> tuple[Tensor, ...]:
        """At each hidden state."""
        return self.of.gradients_in_layers(self.book)[1]


class Prediction:
    """Runs its model once, when first asked, and shares that run among all methods and targets.

    `needs` says what the run has to record (`relevance` stands for sites); what was not said before is recorded in
    another run when it is asked for. Tensors for methods are at least float32, so that a product of half-precision
    numbers keeps its digits. A `trace`, `padding` or `run` that is known already is used, and
    `chosen` holds the tensors `target` and `versus` themselves.
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
        needs: Needs | None = None,
        run: RecordedRuns | None = None,
    ):
        self.model = model
        tensors = expanded(batch.tensors)
        self.batch = batch if tensors is batch.tensors else replace(batch, tensors=tensors)
        self._padded = padding is None and batch.is_padded  # asked before the model runs: a GPU need not wait then
        self._target = target
        self._versus = versus
        self._chosen = chosen
        self._padding = padding
        self._by_book: WeakKeyDictionary[Book, Relevances] = WeakKeyDictionary()
        self._gradients: dict[tuple[int, Book | None], tuple[tuple[Tensor, ...], ...]] = {}
        if needs is None:
            needs = Needs(maps=trace is None or trace.is_opened or relevance, sites=relevance)
        padded = batch.is_known_to_be_padded
        self._run = run or RecordedRuns(model, self.batch.tensors, needs, trace, padded=padded)

    @property
    def needs(self) -> Needs:
        """What was known beforehand of what its runs have to record."""
        return self._run.needs

    @property
    def trace(self) -> Trace:
        """The run, for what every run has: outputs, states, embeddings."""
        return self._run.trace

    @property
    def plain(self) -> Trace:
        """A run whose gradients are torch's own."""
        return self._run.plain

    @property
    def opened(self) -> Trace:
        """A run whose gradients are torch's own, with attention maps."""
        return self._run.opened

    @property
    def outputs(self) -> ModelOutputs:
        """What the model said."""
        replay = self.replay
        return self.trace.outputs if replay is None else replay.outputs

    @property
    def replay(self) -> Replay | None:
        """This batch in a captured run, if there is one for such batches and the model is what it was then."""
        run = self._run
        if run.may_be_replayed:
            run.may_be_replayed = False
            run.replay = replay_of(self.model, self.batch, run.needs)
        return run.replay

    @property
    def is_plain(self) -> bool:
        """Whether it is a run of the model as it is, on the batch as it is."""
        return not self._run.edited

    def know_padding(self, padding: Tensor) -> None:
        """Take the positions that are padding from whoever knows them."""
        self._padding = padding

    @property
    def task(self) -> Task:
        """What kind of thing the model says."""
        return self.outputs.task

    @property
    def traced(self) -> Trace:
        """The trace with its sites, for relevance.

        It is recorded anew, once, unless it was announced: by `relevance=True` here, or by `RELEVANCE` in `@method`.
        """
        return self._run.traced

    def under(self, book: Book, *, biases: bool = False) -> Trace:
        """A run whose `carried` and `relevance` under a book that carries a gradient are there for the states.

        With `biases`, what arrives at them is there too.
        """
        return self._run.under(book, biases=biases)

    def towards(self, target: Target, versus: Target = None) -> "Prediction":
        """The same run, another output to be explained."""
        return Prediction(self.model, self.batch, target, versus, run=self._run)

    def set_against(self, versus: Target) -> "Prediction":
        """This run and target, set against another output, or against all others."""
        return self.towards(self._target, versus)

    def of_classes(self, target: Target) -> "Prediction":
        """The same run, the same explained of other classes."""
        return self.towards(target, self._versus)

    def settled(self) -> "Prediction":
        """What was said, and what of it is explained, without the graph: small enough to be kept."""
        kept = replace(self.outputs, logits=self.outputs.logits.detach())
        trace = Trace(kept, UnsupportedModel("the graph of this run was let go"), None)
        if self.patches is not None:
            trace.patches = self.patches
        chosen = self.target, self.versus
        settled = Prediction(self.model, self.batch, chosen=chosen, padding=self.padding, trace=trace)
        settled.inputs = self.inputs
        return settled

    @cached_property
    def inputs(self) -> tuple[TensorInput, ...]:
        """The examples, each without its padding."""
        fillers = Fillers.of(self.model, self.batch.tokenizer)
        return self.batch.inputs(self.padding, fillers, self.patches)

    @cached_property
    def predicted(self) -> Tensor:
        """The predicted class of each example, [batch]; of answers and tokens as `target`."""
        return self.outputs.predicted

    @cached_property
    def target(self) -> Tensor:
        """The explained class of each example, [batch].

        For an answer [batch, 2]: its start and its end, -1 where that is left out. For a language model [batch, 2]:
        the token and the position that it is said at.
        """
        with torch.inference_mode(False):  # a graph is made with it, whatever mode the caller is in
            return self.outputs.chosen(self._target) if self._chosen is None else self._chosen[0]

    @cached_property
    def versus(self) -> Tensor | None:
        """The class that the target is set against, [batch], if there is one."""
        if self._chosen is not None:
            return self._chosen[1]
        with torch.inference_mode(False):
            return None if self._versus is None else self.outputs.set_against(self.target, self._versus)

    @property
    def asked(self) -> tuple[Settled, Settled | None]:
        """`target` and `versus`, as a trace takes them without another look."""
        return Settled(self.target), None if self.versus is None else Settled(self.versus)

    @property
    def output(self) -> Tensor:
        """The explained outputs, [batch], without the graph."""
        return self.task.output(self.outputs.logits.detach(), *self.rows)

    @property
    def rows(self) -> tuple[Tensor, Tensor | None]:
        """`target` and `versus`, with rows of the logits in place of positions."""
        outputs = self.outputs
        return outputs.in_rows(self.target), None if self.versus is None else outputs.in_rows(self.versus)

    def said_at(self, row: int) -> list[int]:
        """The positions at which the explained outputs of an example are said; none for a class."""
        targets = [target for target in (self.target, self.versus) if target is not None]
        return [place for t in targets for place in self.task.positions(t)[row].tolist() if place >= 0]

    @cached_property
    def padding(self) -> Tensor:
        """Positions that are padding, [batch, units]."""
        if self._padding is not None:
            return self._padding
        if not self._padded:
            return torch.zeros_like(self.outputs.attended)
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

    @property
    def known_patches(self) -> Patches | None:
        """The same, if somebody asked for them."""
        image = next(iter(self.batch.examples), None)
        return image.patches if isinstance(image, ImageInput) else self._run.trace.__dict__.get("patches")

    @cached_property
    def real(self) -> Tensor:
        """1 where a position is no padding, [batch, units]."""
        return (~self.padding).to(torch.promote_types(self.outputs.logits.dtype, torch.float32))

    @cached_property
    def reader(self) -> Tensor:
        """How the head reads the last layer, [batch, units]: shares that add up to 1."""
        return self._run.unspent.read_for(self.asked[0])

    @property
    def parts(self) -> tuple["Prediction", ...]:
        """The predictions that are explained one by one and added up: the start and the end of an answer, or this."""
        targets = self.task.single(self.target)
        against = [None] * len(targets) if self.versus is None else self.task.single(self.versus)
        return (self,) if len(targets) == 1 else tuple(map(self._part, targets, against))

    def each_output(self) -> tuple["Prediction", "Prediction"]:
        """The prediction of the target alone, and that of what it is set against."""
        assert self.versus is not None
        return self._part(self.target, None), self._part(self.versus, None)

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
        return tuple(_precise(a.detach()) for a in self._run.with_maps.attention)

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
        return self.gradients().attention

    @property
    def hidden_gradients(self) -> tuple[Tensor, ...]:
        """Gradient of the explained outputs with respect to each hidden state."""
        return self.gradients().hidden

    @property
    def embedding_gradients(self) -> Tensor:
        """Gradient of the explained outputs with respect to the token embeddings."""
        self._embedding_leaf()
        (gradient,) = self._gradients_at(None)[2]
        return gradient

    def gradients(self, book: str | Book | None = None) -> Gradients:
        """Gradients at maps and states: torch's own, or those of a rule book which carries one."""
        return Gradients(self, None if book is None else gradient_book(book))

    def gradients_in_layers(self, book: Book | None, *, maps: bool = False) -> tuple[tuple[Tensor, ...], ...]:
        """At the maps, if they are asked for or open, and at the states; raises if the model has no layers."""
        _ = self.trace.hidden
        return self._gradients_at(book, maps=maps)

    def _gradients_at(self, book: Book | None, *, maps: bool = False) -> tuple[tuple[Tensor, ...], ...]:
        """At the maps, if they are asked for or open, at the states, and without a book at the embeddings.

        One backward pass gives them all.
        """
        maps = maps or self._run.needs.maps
        trace = (self._run.opened if maps else self._run.plain) if book is None else self._run.under(book, maps=maps)
        key = id(trace), book
        if key not in self._gradients:
            layers = trace.hidden if book is not None or isinstance(trace.layers, Layers) else ()
            of = trace.attention if trace.is_opened else (), layers, _present(None if book else trace.embeddings)
            flat = tuple(itertools.chain(*of))
            asked = self.asked
            if book is None:
                lowest = [place for place, t in enumerate(flat) if t is trace.embeddings or (layers and t is layers[0])]
                gradients = trace.gradient(flat, *asked, required=lowest)
            else:
                gradients = trace.carried(flat, book, *asked)
            rest = iter(map(_precise, gradients))
            self._gradients[key] = tuple(tuple(itertools.islice(rest, len(each))) for each in of)
        return self._gradients[key]

    def at_maps(self, tap: Tap, book: str | Book | None) -> tuple[Tensor, ...]:
        """What is made of each layer's attention and its gradient, as `gradients(book)` has it.

        A method that declares its `tap` has no more of the maps kept than that.
        """
        chosen = PLAIN if book is None else gradient_book(book)
        run = self._run.tapped(tap, chosen)
        if run is not None:
            return tuple(map(_precise, run.tapped(*self.asked)))
        return tuple(tap(a, g) for a, g in zip(self.attention, self.gradients(book).attention, strict=True))

    def weighted_relevances(self, book: str | Book, weight: Weight = "gradient") -> "tuple[list[Tensor], Relevances]":
        """`E_h (w ⊙ R)⁺` of each layer's relevance under a book, [batch, queries, keys]; and what else the pass gave.

        `weight` is the gradient of the attention, the attention itself, or nothing. Large maps of a method that
        declares `in_turn` are taken one layer after the other, so that they are never held all at once.
        """
        chosen = book_named(book)
        turns = in_turn(self.traced, chosen, *self.asked) if self._are_maps_large else None
        if turns is not None:
            return self._in_turn(turns, weight)
        relevances = self.relevances(chosen, whole=False)
        weights = {"gradient": lambda: self.attention_gradients, "attention": lambda: self.attention}
        by_layer = weights[weight]() if weight in weights else [None] * len(relevances.attention)
        return [_weighted(r, w) for r, w in zip(relevances.attention, by_layer, strict=True)], relevances

    @property
    def _are_maps_large(self) -> bool:
        if not self.needs.in_turn or not self.traced.is_opened:
            return False
        return sum(attention.numel() for attention in self.traced.attention) > LARGE_MAPS

    def _in_turn(self, turns: Iterator[AtMap], weight: Weight) -> "tuple[list[Tensor], Relevances]":
        maps: list[Tensor] = []
        for at in turns:
            weights = {"gradient": at.gradient, "attention": self.traced.attention[at.layer].detach()}
            maps.insert(0, _weighted(at.relevance, weights.get(weight)))
        absorbed = torch.zeros_like(self.real[:, 0])
        for taken in at.absorbed:
            absorbed = absorbed + taken.reshape(len(absorbed), -1).sum(1)
        return maps, Relevances((), absorbed, _precise(at.state), None, None, False)

    def last_relevances(self, book: str | Book) -> "Relevances":
        """What a pass under a rule book gives that goes through the last layer alone: its attention, and its input."""
        _ = self.trace.hidden  # raises if there are no layers
        return self._pass(book_named(book), False, last=True)

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
            _ = self.trace.hidden  # raises if there are no layers
        chosen = book_named(book)
        relevances = self._by_book.get(chosen)
        if relevances is None or (whole and not relevances.whole):
            relevances = self._by_book[chosen] = self._pass(chosen, whole)
        return relevances

    def _pass(self, book: Book, whole: bool, *, last: bool = False) -> "Relevances":
        trace = self._run.under(book, at_inputs=True) if whole and book.carries == "gradient" else self.traced
        if trace.book is not None:
            return self._balanced_pass(trace, book)
        layers, state, above = trace.layers, None, -1
        maps: tuple[Tensor, ...] = ()
        if isinstance(layers, Layers):
            below = 0 if whole else len(layers.calls) - 1 if last else 1  # the layers that are not gone through whole
            maps, state = trace.attention[-1:] if last else trace.attention, layers.hidden[below]
            above = -1 if whole else layers.calls[min(below, len(layers.calls) - 1)]
        taking = [a for a, call in zip(trace.absorbers, trace.absorber_calls, strict=True) if call > above]
        from_value = book.starts_from == "value" and whole
        ends = [state, trace.pixels if whole else None, trace.embeddings if from_value else None]
        of = [*maps, *taking, *(end for end in ends if end is not None)]
        relevances = iter(trace.relevance(tuple(of), book, *self.asked))
        attention = tuple(_precise(next(relevances)) for _ in maps)
        absorbed = torch.zeros_like(self.real[:, 0])
        for _ in taking:
            absorbed = absorbed + next(relevances).reshape(len(absorbed), -1).sum(1)
        at_state, pixels, embeddings = (None if end is None else _precise(next(relevances)) for end in ends)
        return Relevances(attention, absorbed, at_state, pixels, embeddings, whole)

    def _balanced_pass(self, trace: Trace, book: Book) -> "Relevances":
        """The same of a run under the book: its own gradient is that of the book."""
        state = trace.hidden[0] if isinstance(trace.layers, Layers) else None
        ends = [state, trace.pixels, trace.embeddings]
        of = tuple(end for end in ends if end is not None)
        relevances = iter(trace.relevance(of, book, *self.asked))
        at_state, pixels, embeddings = (None if end is None else _precise(next(relevances)) for end in ends)
        return Relevances((), torch.zeros_like(self.real[:, 0]), at_state, pixels, embeddings, True)

    def loss(self, logits: Tensor) -> Tensor:
        """Cross-entropy of the explained class, [batch]."""
        return self.task.loss(logits, self.target, self.versus)

    def edited(self, edit: Edit) -> "Prediction":
        """The same input and outputs, run anew with other embeddings."""
        layers = self.trace.layers
        first = layers.calls[0] if isinstance(layers, Layers) else -1
        run = RecordedRuns(
            self.model, self.batch.tensors, Needs(maps=False), edited={"edit": edit, "first_layer": first}
        )
        return Prediction(self.model, self.batch, chosen=(self.target, self.versus), padding=self.padding, run=run)

    def generators(self, seed: int) -> list[torch.Generator]:
        """A random stream for each example; it depends on the seed and on the example's own tokens alone."""
        name = next(name for name in CONTENT if name in self.batch.tensors)
        content = self.batch.by_token[name] if name in self.batch.by_token else self._plain_content(name)
        streams = []
        for row, padding in zip(content, self.padding.cpu().numpy(), strict=True):
            tokens = row if self.batch.masked is None else row[~padding]
            digest = hashlib.blake2b(tokens.tobytes() + str(seed).encode(), digest_size=7)
            streams.append(torch.Generator().manual_seed(int.from_bytes(digest.digest())))
        return streams

    def _plain_content(self, name: str) -> NDArray[Any]:
        """What is not a token: an image that was saved is the same but for rounding."""
        content = self.batch.tensors[name]
        if self.batch.is_images:
            content = (content.double() * SHADES).round()
        return (content.to(torch.float32) if content.is_floating_point() else content).cpu().numpy()

    def _embedding_leaf(self) -> Tensor:
        if self.trace.embeddings is None:
            raise BadOption("the model's token embeddings were not seen; use at='embedding_output'")
        return self.trace.embeddings


def _weighted(relevance: Tensor, weight: Tensor | None) -> Tensor:
    """`E_h (w ⊙ R)⁺`, [batch, queries, keys]."""
    return (relevance if weight is None else weight * relevance).clamp(min=0).mean(1)


def _present(tensor: Tensor | None) -> tuple[Tensor, ...]:
    return () if tensor is None else (tensor,)


def _precise(tensor: Tensor) -> Tensor:
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))
