"""Trace: what one forward pass computed, still in the graph, and the backward passes over it."""

import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar, cast

import torch
from torch import Tensor
from torch.autograd.graph import Node, get_gradient_edge

from whyformer.caching import cached_property
from whyformer.errors import BadOption, UncoveredOperation, UnsupportedModel, WhyformerError
from whyformer.inputs.images import Patches
from whyformer.models.errors import NO_GRADIENT, named_failures
from whyformer.models.memory import uncollected
from whyformer.number_checks import refuse_if
from whyformer.recorder.lrp.forward_rules import BiasTerms, Watch
from whyformer.recorder.lrp.rule_sets import PLAIN, Book, book_named, check_closed, gradient_book, moves
from whyformer.recorder.lrp.rules import scratch
from whyformer.recorder.lrp.sites import Site, any_of, governed, placed
from whyformer.recorder.patches import cells, cells_of, found_patches
from whyformer.tasks.targets import Settled, Target
from whyformer.tasks.task import ModelOutputs, are_all_others

Gate = Callable[[int, Site, Tensor], Tensor]  # a layer, its product of attention and values, what arrives there
Tensors = TypeVar("Tensors", Tensor, tuple[Tensor, ...])
Reach = Literal["inputs", "states", "nowhere"]  # to embeddings or pixels, to the states between layers, or to neither


@contextmanager
def differentiating() -> Iterator[None]:
    """A graph is built here, in the model's own precision, whatever mode the caller is in.

    Python's garbage collector waits: a run makes many objects and no cycles, and looking through them all would take
    as long as a quarter of a forward pass.
    """
    with ExitStack() as stack:
        stack.enter_context(uncollected())
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.enable_grad())
        for device in ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",):
            stack.enter_context(torch.autocast(device, enabled=False))
        yield


@dataclass(frozen=True)
class Layers:
    """What a stack of layers computed; see `Trace`."""

    maps: tuple[tuple[Tensor | None, Tensor | None], ...]  # attention with its values; None inside a fused kernel
    hidden: tuple[Tensor, ...]
    calls: tuple[int, ...]  # the number of each layer's call among all that are watched
    paths: tuple[str, ...] = ()  # of their modules


@dataclass
class Trace:
    """One forward pass. Tensors are in the graph; tuples run over the layers, first layer first.

    | name | shape |
    |---|---|
    | `logits` | [batch, classes]; for answers [batch, 2, units], for language models [batch, units, vocabulary] |
    | `attention` | tuple of [batch, heads, queries, keys] |
    | `values` | tuple of [batch, heads, keys, width], repeated where query heads share them |
    | `hidden` | tuple of [batch, units, width]; the embedding output first, then the output of each layer |
    | `embeddings` | [batch, units, width]: the token embeddings, before positions and norm |
    | `pixels` | [batch, channels, height, width] of an image |
    | `absorbers` | parameters above the embedding output that take relevance of their own |
    """

    outputs: ModelOutputs
    layers: "Layers | WhyformerError"  # the error says why there are none
    embeddings: Tensor | None
    pixels: Tensor | None = None
    looked: Tensor | None = field(repr=False, default=None)  # what the first convolution made of the pixels
    absorbers: tuple[Tensor, ...] = ()
    absorber_calls: tuple[int, ...] = field(repr=False, default=())  # how many calls were made before each
    sites: Sequence[Site] = field(repr=False, default=())
    book: Book | None = None  # whose gradients those of this trace are; None: torch's own
    reach: Reach = "inputs"  # how far down they are
    uncovered: str = ""  # why they are no further down: which function has no rule
    once: bool = False  # whether the first backward pass under that book frees the graph
    spent: bool = False  # whether one did
    at_biases: list[BiasTerms] | None = field(repr=False, default=None)  # under that book, of the last backward pass
    at_maps: dict[int, Tensor] | None = field(repr=False, default=None)  # what a tap made of maps in that pass
    pooling: int = 0  # how many attention maps of the head come behind those of the layers
    lock: AbstractContextManager[Any] = field(repr=False, default_factory=threading.RLock)  # for passes over the graph

    def __repr__(self) -> str:
        """Describe the pass in one line. Its tensors are too large to print."""
        layers = f"{len(self.layers.hidden) - 1} layers" if isinstance(self.layers, Layers) else "no layers"
        maps = "with" if self.is_opened else "without"
        book = "" if self.book is None else f", gradients under {self.book.name}"
        return f"Trace(logits {list(self.outputs.logits.shape)}, {layers}, {maps} attention maps{book})"

    @property
    def attention(self) -> tuple[Tensor, ...]:
        """The attention map of each layer."""
        return self._opened(0)

    @property
    def values(self) -> tuple[Tensor, ...]:
        """What each attention map weighs."""
        return self._opened(1)

    @property
    def has_layers(self) -> bool:
        """Whether the model is one stack of layers whose states are those of units."""
        return isinstance(self.layers, Layers)

    @property
    def is_opened(self) -> bool:
        """Whether there are attention maps."""
        return isinstance(self.layers, Layers) and all(attention is not None for attention, _ in self.layers.maps)

    @property
    def cannot_be_opened_further(self) -> bool:
        """Whether there are attention maps, or no layers that could have any."""
        return self.is_opened or not isinstance(self.layers, Layers)

    def _opened(self, part: Literal[0, 1]) -> tuple[Tensor, ...]:
        opened = tuple(pair[part] for pair in self._layers.maps)
        if any(tensor is None for tensor in opened):
            raise BadOption("this trace was recorded with maps=False, so fused attention stayed in its kernel")
        return cast(tuple[Tensor, ...], opened)

    @property
    def hidden(self) -> tuple[Tensor, ...]:
        """The embedding output, and the output of each layer."""
        return self._layers.hidden

    @property
    def _layers(self) -> "Layers":
        if isinstance(self.layers, WhyformerError):
            raise self.layers
        return self.layers

    @cached_property
    @differentiating()
    def patches(self) -> Patches:
        """Of an image, which unit each pixel belongs to: asked of the states that enter the first layer.

        Where there are no layers, the image is cut evenly.
        """
        if self.pixels is None or self.pixels.dim() != 4:
            raise UnsupportedModel(
                "patches are those of images [batch, channels, height, width]; this model is given "
                + ("no images" if self.pixels is None else "images that were cut before")
            )
        if isinstance(self.layers, Layers):
            with self.lock, named_failures("the model", backward=True):
                return found_patches(self.hidden[0], self.pixels)
        if self.looked is None:
            raise UnsupportedModel("how this model cuts its images is not known, so they have no patches")
        return cells(*cells_of(self.looked), tuple(self.pixels.shape[2:]))

    @property
    def logits(self) -> Tensor:
        """What the model said."""
        return self.outputs.logits

    @differentiating()
    def output(self, target: Target = None, versus: Target = None) -> Tensor:
        """The explained outputs, [batch]: the target's logit, its distance from that of `versus`, or its log-odds.

        Without a target it is the predicted one of each example. An answer's is the sum of its two logits.
        """
        return self.outputs.task.output(self.logits, *self._chosen(target, versus))

    def gradient(
        self, of: Tensors, target: Target = None, versus: Target = None, *, required: Collection[int] = ()
    ) -> Tensors:
        """The gradient of each example's explained output with respect to tensors of this trace."""
        return self.gradient_of(self.output(target, versus), of, required=required)

    @differentiating()
    def gradient_of(self, outputs: Tensor, of: Tensors, *, required: Collection[int] = ()) -> Tensors:
        """The gradient of any outputs [batch] computed from `logits`, each example's own.

        It is 0 where no path leads to a tensor. At least one of the tensors at the places `required` must be reached.
        """
        tensors = (of,) if isinstance(of, Tensor) else of
        with self.lock, named_failures("the model", backward=True):
            gradients = torch.autograd.grad(outputs.sum(), tensors, retain_graph=True, allow_unused=True)
        if required and all(gradients[place] is None for place in required):
            raise UnsupportedModel(f"the model cannot be explained: {NO_GRADIENT}")
        filled = _filled(tensors, gradients)
        return filled[0] if isinstance(of, Tensor) else filled

    @differentiating()
    def relevance(
        self, of: Tensors, book: str | Book = "z_plus", target: Target = None, versus: Target = None
    ) -> Tensors:
        """The relevance of each example's explained output at tensors of this trace, under a rule book.

        Another backward pass over the same graph, with the book's rules in place of derivatives. It starts from 1 at
        the target (and -1 at `versus`, or at all others together), or from the logit's own value: `conservative`,
        `attn`, `epsilon`. Raises `UncoveredOperation` before any number is computed if a function has no rule. For an
        answer, start and end are explained one after the other and added up.

        A book that divides by each example's sum of relevance takes `versus` in a pass of its own, and refuses
        log-odds, whose start sums to 0.
        """
        chosen = book_named(book)
        tensors = (of,) if isinstance(of, Tensor) else of
        if chosen.normalises and versus is not None:
            against = self.outputs.against(versus)
            check_start(chosen, against)
            one, other = (self.relevance(tensors, chosen, each) for each in (target, Settled(against)))
            subtracted = tuple(a - b for a, b in zip(one, other, strict=True))
            return subtracted[0] if isinstance(of, Tensor) else subtracted
        if self.book is not None and self.book == chosen:
            carried = self._balanced(tensors, target, versus)
            relevances = tuple(t.detach() * g for t, g in zip(tensors, carried, strict=True))
            return relevances[0] if isinstance(of, Tensor) else relevances
        self._check_sites()
        check_closed(self.logits, tensors, self.sites, chosen)
        if chosen.carries == "relevance" and self.logits.dtype not in (torch.float32, torch.float64):
            raise UnsupportedModel(f"relevance is lost to rounding in {self.logits.dtype}; load the model in float32")
        scale = chosen.carries == "relevance" and chosen.starts_from == "value"
        starts = [start * self.logits.detach() if scale else start for start in self.starts(target, versus)]
        carried = self._passed(tensors, chosen, starts)
        if chosen.carries == "gradient":
            carried = tuple(t.detach() * g for t, g in zip(tensors, carried, strict=True))
        return carried[0] if isinstance(of, Tensor) else carried

    @differentiating()
    def carried(
        self,
        of: Tensors,
        book: str | Book | None,
        target: Target = None,
        versus: Target = None,
        watch: Watch | None = None,
    ) -> Tensors:
        """The gradient that a book carries, at tensors of this trace: that of `relevance` without the product.

        An attention map is a variable of its own here: its gradient is what the product with its values sends to it,
        also where the book holds the map constant or passes on a part of that (LibraGrad, Mehri et al. 2025). None is
        the book of torch's own derivatives. A `watch` notes what arrives on the way.
        """
        chosen = PLAIN if book is None or book == PLAIN else gradient_book(book)
        tensors = (of,) if isinstance(of, Tensor) else of
        if self.book is not None and self.book == chosen and watch is None:
            balanced = self._balanced(tensors, target, versus)
            return balanced[0] if isinstance(of, Tensor) else balanced
        self._check_sites()
        if chosen is not PLAIN:
            check_closed(self.logits, tensors, self.sites, chosen)
        layers = self.attention if self.is_opened else ()
        maps = {id(attention): layer for layer, attention in enumerate(layers)}
        watch = Watch() if watch is None else watch
        watched = watch.over(chosen, self._layer_of if any(id(t) in maps for t in tensors) else {})
        passed = self._passed(tensors, watched, self.starts(target, versus))
        with self.lock:
            carried = tuple(
                watch.at_map(maps[id(t)], t) if id(t) in maps else g for t, g in zip(tensors, passed, strict=True)
            )
        return carried[0] if isinstance(of, Tensor) else carried

    def carried_with_biases(
        self, of: tuple[Tensor, ...], book: Book, target: Target = None, versus: Target = None
    ) -> tuple[tuple[Tensor, ...], list[BiasTerms]]:
        """`carried`, and what arrived at every bias: products summed over width, with the module where it is added."""
        if self.at_biases is not None:
            return self.carried(of, book, target, versus), list(self.at_biases)
        watch = Watch()
        return self.carried(of, None if book == PLAIN else book, target, versus, watch), watch.biases

    @differentiating()
    def tapped(self, target: Target = None, versus: Target = None) -> tuple[Tensor, ...]:
        """What the run's tap makes of each layer's map and its gradient under the run's book: one backward pass."""
        assert self.at_maps is not None
        self.at_maps.clear()
        self._balanced((self.hidden[0],), target, versus)
        count = len(self.hidden) - 1
        if not self.at_maps.keys() >= set(range(count)):
            raise UnsupportedModel("the gradient of an attention map was not seen")
        return tuple(self.at_maps[layer] for layer in range(count))

    def _balanced(self, tensors: tuple[Tensor, ...], target: Target, versus: Target) -> tuple[Tensor, ...]:
        """The gradient of this trace, which is that of its book, where every function above has a rule."""
        between = (
            {id(t) for t in (*self.hidden, *(self.attention if self.is_opened else ()))} if self.has_layers else ()
        )
        below = any(id(t) not in between for t in tensors)
        if self.reach == "nowhere" or (below and self.reach != "inputs"):
            raise UncoveredOperation(self.uncovered)
        starts = self.starts(target, versus)
        if self.at_biases is not None:
            self.at_biases.clear()
        keep = not self.once or self.outputs.task.in_parts  # each part is a pass of its own
        with self.lock, named_failures("the model", backward=True):
            passes = [
                torch.autograd.grad(self.logits, tensors, start, retain_graph=keep, allow_unused=True)
                for start in starts
            ]
        self.spent = not keep
        return _added([_filled(tensors, carried) for carried in passes])

    def _check_sites(self) -> None:
        if not self.sites:
            under = "relevance=False" if self.book is None else f"book={self.book.name!r}"
            raise BadOption(f"this trace was recorded with {under}")

    def _passed(self, tensors: tuple[Tensor, ...], book: Book, starts: Iterable[Tensor]) -> tuple[Tensor, ...]:
        """What arrives at tensors under a book, in a pass from each start, added up."""
        return _added([self._pass(tensors, book, self.sites_for(book), start) for start in starts])

    def sites_for(self, book: Book) -> Sequence[Site]:
        """The sites, with the places of the examples in each if a rule of the book adds up each example's relevance."""
        return self._placed_sites if book.adds_per_example else self.sites

    def _pass(
        self, tensors: tuple[Tensor, ...], book: Book, sites: Sequence[Site], start: Tensor
    ) -> tuple[Tensor, ...]:
        with self.lock, named_failures("the model"), scratch(), governed(book.opened(sites), book.rule_of):
            carried = torch.autograd.grad(self.logits, tensors, start, retain_graph=True, allow_unused=True)
        return _filled(tensors, carried)

    @cached_property
    def _placed_sites(self) -> Sequence[Site]:
        leaf = self.pixels if self.embeddings is None else self.embeddings
        assert leaf is not None
        with self.lock, named_failures("the model"):
            return placed(self.sites, self.logits, leaf)

    def gated(self, book: str | Book, gate: Gate) -> Book:
        """The book, with what arrives at each layer's product of attention and values changed by a gate first."""
        layer_of = self._layer_of

        def changed(site: Site, relevance: Tensor) -> Tensor:
            layer = layer_of.get(site.node)
            return relevance if layer is None else gate(layer, site, relevance)

        return book_named(book).before("attend", changed)

    @cached_property
    def _layer_of(self) -> dict[Node, int]:
        """The layer of each product of attention and values, by its node: the layer whose map is its first factor."""
        maps = {get_gradient_edge(attention).node: layer for layer, attention in enumerate(self.attention)}
        below = {s.node: _layer_below(s.sources[0], maps) for s in self.sites if s.kind == "attend"}
        layers = {node: layer for node, layer in below.items() if layer is not None}
        if unseen := set(range(len(maps))) - set(layers.values()):
            raise UnsupportedModel(f"the values behind the attention of layer {min(unseen)} were not seen")
        return layers

    def starts(self, target: Target, versus: Target) -> Iterator[Tensor]:
        """What each pass starts from."""
        return self.outputs.task.starts(self.logits, *self._chosen(target, versus))

    @differentiating()
    def read_for(self, target: Target = None) -> Tensor:
        """How the head reads the last layer, [batch, units]: 1 at the one position it reads, or equal shares.

        It is found by asking the graph: the head reads the positions of the last layer's output at which some logit
        has a gradient. That is the first one in BERT, the last real token in a causal classifier, all real tokens
        under mean pooling; for an answer its position, for a language model the one that the token is said at.
        """
        read_by = self.outputs.task.read_by(self.logits, self._chosen(target, None)[0])
        return self._read_for_all if read_by is self.logits else self._positions_read(any_of(read_by))

    @cached_property
    @differentiating()
    def _read_for_all(self) -> Tensor:
        return self._positions_read(any_of(self.logits))

    def _positions_read(self, outputs: Tensor) -> Tensor:
        last = self.gradient_of(outputs, self.hidden[-1])
        read = last.ne(0).any(-1).to(torch.promote_types(last.dtype, torch.float32))  # [batch, units]
        refuse_if(
            ~read.any(-1).all(),
            UnsupportedModel(
                "the logits do not depend on the last layer's output, so no position of it can be explained"
            ),
        )
        return read / read.sum(-1, keepdim=True)

    def _chosen(self, target: Target, versus: Target) -> tuple[Tensor, Tensor | None]:
        """What is explained, and what that is set against, as tensors: of positions, the rows of their logits."""
        outputs = self.outputs
        against = None if versus is None else outputs.in_rows(outputs.against(versus))
        return outputs.in_rows(outputs.chosen(target)), against


def check_start(book: Book, against: Tensor | None) -> None:
    """Raise if the log-odds are to be explained under a book that divides by the sum of the start, which is 0."""
    if book.normalises and are_all_others(against):
        raise BadOption(
            f"the rule book {book.name} divides by the sum of the relevance it starts from, and for log-odds that sum "
            "is 0: explain the logit (explains='logit'), or one class rather than another (versus=)"
        )


def _layer_below(node: Node | None, maps: dict[Node, int]) -> int | None:
    """The layer whose attention map arrives at a node, through functions that only move numbers."""
    while node is not None and node not in maps:
        node = node.next_functions[0][0] if moves(node) else None
    return None if node is None else maps[node]


def _added(passes: Sequence[tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
    """What arrived at each tensor in several passes, added up."""
    return tuple(torch.stack(each).sum(0) if len(each) > 1 else each[0] for each in zip(*passes, strict=True))


def _filled(tensors: tuple[Tensor, ...], gradients: tuple[Tensor | None, ...]) -> tuple[Tensor, ...]:
    """Zeros where torch has nothing."""
    return tuple(torch.zeros_like(t) if g is None else g for t, g in zip(tensors, gradients, strict=True))
