"""Where an example lies in a tensor: asked of the graph, because sizes may be equal by chance.

The gradient of one example's outputs is 0 at the numbers of all others. So a backward pass from one example tells for
any tensor which of its numbers are that example's, however the model lays them out.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor
from torch.autograd.graph import Node

from whyformer.recorder.lrp.sites import Layout, Site


def any_of(logits: Tensor) -> Tensor:
    """A sum of the logits in which no two directions cancel, [batch]."""
    directions = torch.linspace(1, 2, logits.shape[-1], device=logits.device).to(logits.dtype)
    return (logits * directions).sum(-1)


def layout_of(gradient: Tensor, example: int, batch: int) -> Layout | None:
    """The layout that fits where the gradient of one example is; None if it cannot be told.

    That is so if several fit, and where examples mix, as in a batch norm: there, the gradient is everywhere.
    """
    here, rows = gradient.ne(0), gradient.shape[0] // batch
    total = int(here.sum())
    inside: dict[Layout, int] = {}
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


def layouts(logits: Tensor, tensors: Sequence[Tensor]) -> list[Layout | None]:
    """The layout of each tensor of the graph below the logits [batch, …]; None where it cannot be told."""
    batch = len(logits)
    known: list[Layout | None] = [None] * len(tensors)
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
    known: dict[Node, Layout] = {}
    for example in (batch - 1, 0):
        if waiting.keys() - known.keys():
            with _noting(waiting.values(), partial(_settle, known, example, batch)):
                torch.autograd.grad(_one(logits, example), leaf, retain_graph=True, allow_unused=True)
    return [replace(site, layout=known[site.node]) if site.node in known else site for site in listed]


def _is_plain(shape: torch.Size, batch: int) -> bool:
    """Whether the sizes tell that examples come first."""
    return shape[0] == batch and (len(shape) < 2 or shape[1] != batch)


def _settle(known: dict[Node, Layout], example: int, batch: int, site: Site, gradient: Tensor) -> None:
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
