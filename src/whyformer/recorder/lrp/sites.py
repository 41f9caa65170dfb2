"""Sites: the places of the graph where relevance flows by a rule instead of the derivative.

While a model is recorded, each function that a rule can govern (`linear`, `add`, `matmul`, `softmax` …) gets its
differentiable operands through an alias. The graph stays the model's own: a gradient is torch's own backward pass over
it. A relevance pass is the same backward pass with hooks at the sites: what arrives at a site's result is exchanged
before the function's own backward runs, and what leaves it towards an operand is exchanged at that operand's alias.

A relevance pass also has to know which part of a tensor belongs to which example. Sizes may be equal by chance, so the
graph is asked: the gradient of one example's outputs is 0 at the numbers of all others.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor
from torch._C._functorch import get_unwrapped, is_functorch_wrapped_tensor
from torch.autograd.graph import Node

from whyformer.errors import UnsupportedModel

# Where the examples are: along the first dimension, each with its heads or units ("first") or the other way round
# ("minor"), or along the second, as in [units, batch, width]; or in another way.
ExampleAxis = Literal["first", "minor", "second", "scattered"]
Finish = Callable[[int, Tensor], Tensor]
Rule = Callable[["Site", Tensor], tuple[Tensor, Finish]]


@dataclass(slots=True)
class Site:
    """One call of a function that a rule governs.

    `kind` is what the rule is chosen by. `operands` are the values that went in, constants included; `sources` the
    graph nodes of their aliases, None for a constant. `batch` is the number of examples, for sums per example.
    `inside` are the sites of a module that is seen as one, for books that look into it.
    """

    kind: str
    operands: tuple[Any, ...]
    result: Tensor | None
    sources: tuple[Node | None, ...]
    node: Node
    path: str
    batch: int
    inside: tuple["Site", ...] = ()
    layout: ExampleAxis = "first"
    last: bool = False  # whether it comes after the last attention, where only the rows that the head reads count
    again: Callable[..., Tensor] | None = None  # what computes the result, where that is too large to be kept
    spared: torch.Size | None = None  # the shape of a result that is not kept, as large

    @property
    def value(self) -> Tensor:
        """The result, for a rule that needs it."""
        if self.result is None and self.again is not None:
            return self.again(*self.operands)
        assert self.result is not None
        return self.result

    def kept_from(self, changed: Tensor) -> "Site":
        """The same site, with copies of the values that share memory with a tensor about to be changed in place."""
        place = _place(changed)

        def kept(value: Any) -> Any:
            shares = isinstance(value, Tensor) and _place(value) == place
            return value.clone() if shares else value

        inside = tuple(site.kept_from(changed) for site in self.inside)
        return replace(self, operands=tuple(map(kept, self.operands)), result=kept(self.result), inside=inside)

    def per_example(self, relevances: Tensor) -> Tensor:
        """Sums over each example, shaped to multiply `relevances` (whose first dimension may fold heads in)."""
        if self.layout == "second" or (self.layout == "first" and relevances.shape[0] == self.batch):
            kept = 1 if self.layout == "second" else 0
            return relevances.sum([d for d in range(relevances.dim()) if d != kept], keepdim=True)
        if relevances.shape[0] % self.batch or self.layout == "scattered":
            shape = tuple(relevances.shape)
            raise UnsupportedModel(
                f"a sum in {self.path} has the shape {shape} for a batch of {self.batch}: pass one text"
            )
        times = relevances.shape[0] // self.batch
        if self.layout == "minor":
            folded = relevances.reshape(times, self.batch, -1).sum((0, 2)).repeat(times)
        else:
            folded = relevances.reshape(self.batch, -1).sum(1).repeat_interleave(times)
        return folded.view(-1, *[1] * (relevances.dim() - 1))

    def by_head(self, relevances: Tensor) -> Tensor:
        """[batch, heads, queries, width] of what arrives at a product of attention and values, heads folded or not."""
        return relevances.reshape(self.batch, -1, *relevances.shape[-2:])


def _place(tensor: Tensor) -> int:
    """Where a tensor's numbers are in memory; inside `torch.vmap`, those that it is made of."""
    while is_functorch_wrapped_tensor(tensor):
        tensor = get_unwrapped(tensor)
    return tensor.untyped_storage().data_ptr()


VALUELESS = "scaling"  # no rule needs its values, so none are kept
SPARED = {"softmax", "add_constant"}  # between the scores of attention and its map; books by relevance pass it as it is
LARGE = 2**20  # numbers


def make_site(
    kind: str,
    function: Callable[..., Tensor],
    operands: Sequence[Tensor],
    path: str,
    batch: int,
    constants: Any = (),
    *,
    sparing: bool = False,
) -> tuple[Tensor, Site | None]:
    """Call a function on aliases of its differentiable operands; the result, and the site if there is one.

    With `sparing`, of large scores of attention none are kept: they are computed again, or no rule needs them.
    """
    aliases = [o.view_as(o) if o.requires_grad else o for o in operands]
    result = function(*aliases)
    if result.grad_fn is None:
        return result, None
    sources = tuple(a.grad_fn if a.requires_grad else None for a in aliases)
    if kind == VALUELESS:
        return result, Site(kind, (), None, sources, result.grad_fn, path, batch)
    node = node_of_result(result)
    if sparing and result.numel() >= LARGE and kind in SPARED:
        return result, Site(kind, (), None, sources, node, path, batch, spared=result.shape)
    values = tuple(a.detach() for a in aliases)
    if sparing and result.numel() >= LARGE and kind == "matmul" and not constants:
        return result, Site(kind, values, None, sources, node, path, batch, again=function, spared=result.shape)
    return result, Site(kind, (*values, *constants), result.detach(), sources, node, path, batch)


def node_of_result(result: Tensor) -> Node:
    """Where relevance arrives. `linear` gives a view; a change in place would go around the node of the view."""
    base, node = result._base, result.grad_fn
    if base is not None and base.grad_fn is not None and base.numel() == result.numel():
        in_order = base.is_contiguous() and result.is_contiguous()
        node = base.grad_fn if in_order else node
    assert node is not None
    return node


def nodes_below(starts: Iterable[Node | None], through: Callable[[Node], bool] = lambda node: True) -> Iterator[Node]:
    """Some nodes of the graph and all below them, each once; the way down leads only `through` nodes that pass."""
    waiting, seen = list(starts), set()
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        yield node
        if through(node):
            waiting += [following for following, _ in node.next_functions]


@contextmanager
def governed(sites: Iterable[Site], rule_of: Callable[[Site], Rule | None]) -> Iterator[None]:
    """Within it, backward passes carry relevance by the rules; a site without one keeps its derivative."""
    with ExitStack() as hooks:
        for site in sites:
            rule = rule_of(site)
            if rule is None:
                continue
            exchange = _Exchange(site, rule)
            hooks.enter_context(site.node.register_prehook(exchange.arrive))
            for position, source in enumerate(site.sources):
                if source is not None:
                    hooks.enter_context(source.register_prehook(exchange.leaver(position)))
        yield


class _Exchange:
    """The hooks of one site in one relevance pass. Within a backward pass torch builds no graph."""

    def __init__(self, site: Site, rule: Rule):
        self.site = site
        self.rule = rule
        self.finish: Finish | None = None
        self.waiting = sum(source is not None for source in site.sources)

    def arrive(self, gradients: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        relevance, result = gradients[0], self.site.result
        shape = self.site.spared if result is None else result.shape
        if shape is None or shape == relevance.shape:
            sent, self.finish = self.rule(self.site, relevance)
            return (sent, *gradients[1:])
        sent, self.finish = self.rule(self.site, relevance.view(shape))
        return (sent.reshape(relevance.shape), *gradients[1:])

    def leaver(self, position: int) -> Callable[[tuple[Tensor, ...]], tuple[Tensor, ...]]:
        def leave(gradients: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            assert self.finish is not None
            relevance = self.finish(position, gradients[0]).to(gradients[0].dtype)
            self.waiting -= 1
            if not self.waiting:
                self.finish = None  # and with it what the rule has computed
            return (relevance,)

        return leave


def any_of(logits: Tensor) -> Tensor:
    """A sum of the logits in which no two directions cancel, [batch]."""
    directions = torch.linspace(1, 2, logits.shape[-1], device=logits.device).to(logits.dtype)
    return (logits * directions).sum(-1)


def layout_of(gradient: Tensor, example: int, batch: int) -> ExampleAxis | None:
    """The layout that fits where the gradient of one example is; None if it cannot be told.

    That is so if several fit, and where examples mix, as in a batch norm: there, the gradient is everywhere.
    """
    here, rows = gradient.ne(0), gradient.shape[0] // batch
    total = int(here.sum())
    inside: dict[ExampleAxis, int] = {}
    if gradient.shape[0] % batch == 0:
        inside["first"] = int(here[example * rows : (example + 1) * rows].sum())
        if rows > 1:
            inside["minor"] = int(here[example::batch].sum())
    if gradient.dim() > 1 and gradient.shape[1] == batch:
        inside["second"] = int(here[:, example].sum())
    fitting = [layout for layout, count in inside.items() if count == total]
    if not fitting and total * batch <= gradient.numel():
        return "scattered"
    return fitting[0] if len(fitting) == 1 else None


def layouts(logits: Tensor, tensors: Sequence[Tensor]) -> list[ExampleAxis | None]:
    """The layout of each tensor of the graph below the logits [batch, …]; None where it cannot be told."""
    batch = len(logits)
    known: list[ExampleAxis | None] = [None] * len(tensors)
    for example in (batch - 1, 0):  # a head that reads the position of the same number tells nothing
        waiting = [n for n, layout in enumerate(known) if layout is None]
        if waiting:
            of = [tensors[n] for n in waiting]
            gradients = torch.autograd.grad(_one(logits, example), of, retain_graph=True, allow_unused=True)
            for n, gradient in zip(waiting, gradients, strict=True):
                known[n] = None if gradient is None else layout_of(gradient, example, batch)
    return known


def placed(sites: Iterable[Site], logits: Tensor, leaf: Tensor) -> list[Site]:
    """The sites, each with its layout; the graph is asked where sizes do not tell.

    Rules that add up an example's relevance need it: those of sums.
    """
    listed, batch = list(sites), len(logits)
    waiting = {s.node: s for s in listed if s.kind == "add" and batch > 1 and not _is_plain(s.value.shape, batch)}
    known: dict[Node, ExampleAxis] = {}
    for example in (batch - 1, 0):
        if waiting.keys() - known.keys():
            with _noting(waiting.values(), partial(_settle, known, example, batch)):
                torch.autograd.grad(_one(logits, example), leaf, retain_graph=True, allow_unused=True)
    return [replace(site, layout=known[site.node]) if site.node in known else site for site in listed]


def _is_plain(shape: torch.Size, batch: int) -> bool:
    """Whether the sizes tell that examples come first."""
    return shape[0] == batch and (len(shape) < 2 or shape[1] != batch)


def _settle(known: dict[Node, ExampleAxis], example: int, batch: int, site: Site, gradient: Tensor) -> None:
    layout = layout_of(gradient.view_as(site.value), example, batch)
    if layout is not None:
        known.setdefault(site.node, layout)


def _one(logits: Tensor, example: int) -> Tensor:
    return any_of(logits[example].flatten())


@contextmanager
def _noting(sites: Iterable[Site], note: Callable[[Site, Tensor], None]) -> Iterator[None]:
    """Within it, `note` is told what arrives at each site in a backward pass."""

    def noted(site: Site, gradients: tuple[Tensor, ...]) -> None:
        note(site, gradients[0])

    with ExitStack() as hooks:
        for site in sites:
            hooks.enter_context(site.node.register_prehook(partial(noted, site)))
        yield
