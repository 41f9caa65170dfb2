"""Rule books: which rule governs which kind of function.

The book is a closed world. A relevance pass may go through a site that the book has a rule for, and through functions
that only move numbers about; anything else raises `UncoveredOperation`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor
from torch.autograd.graph import Node

from whyformer.errors import BadOption, UncoveredOperation, nearest
from whyformer.recorder import rules
from whyformer.recorder.sites import Rule, Site


@dataclass(frozen=True)
class Book:
    """Rules by the kind of site."""

    name: str
    rules: Mapping[str, Rule]

    def rule_of(self, site: Site) -> Rule:
        """The rule for a site."""
        return self.rules[site.kind]


_SHARED: dict[str, Rule] = {
    "unchanged": rules.unchanged,
    "matmul": rules.matmul_halved,
    "product": rules.product_halved,
    "sum": rules.sum_by_size,
}

Z_PLUS = Book("z_plus", {**_SHARED, "linear": rules.linear_positive, "add": rules.add_normalised})
ALPHA_BETA = Book("alpha_beta", {**_SHARED, "linear": rules.linear_two_sided, "add": rules.add})
EQ4 = Book("eq4", {**_SHARED, "linear": rules.linear_excitatory, "add": rules.add_normalised})

BOOKS = {book.name: book for book in (Z_PLUS, ALPHA_BETA, EQ4)}

# Nodes of torch's graph that move numbers without changing them; relevance goes where the number came from.
_SHAPES = frozenset({"Alias", "AsStrided", "Expand", "Permute", "ReshapeAlias", "Squeeze", "T", "Transpose"})
_VIEWS = frozenset({"Unsqueeze", "UnsafeView", "View", "Clone", "ToCopy"})
_PARTS = frozenset(
    {"Cat", "Index", "IndexSelect", "Gather", "Select", "Slice", "Split", "SplitWithSizes", "Stack", "Unbind"}
)
_CHOICES = frozenset({"MaskedFill", "Where", "CopyBackwards", "CopySlices", "BackwardHookFunction"})
ROUTING = _SHAPES | _VIEWS | _PARTS | _CHOICES


def book_named(book: str | Book) -> Book:
    """The book of that name."""
    if isinstance(book, Book):
        return book
    if book not in BOOKS:
        raise BadOption(f"there is no rule book {book!r}; {nearest(book, BOOKS)}")
    return BOOKS[book]


def check_closed(logits: Tensor, of: Sequence[Tensor], sites: Sequence[Site], book: Book) -> None:
    """Raise `UncoveredOperation` if a relevance pass from the logits would meet a function without a rule.

    The graph itself is walked, so that a function which the recorder did not see cannot slip through.
    """
    by_node = {site.node: site for site in sites}
    for node in _between(logits.grad_fn, {t.grad_fn for t in of}, by_node):
        site = by_node.get(node)
        if site is not None and site.kind not in book.rules:
            raise UncoveredOperation(f"the rule book {book.name} has no rule for {site.kind} ({site.path})")
        if site is None and not _moves(node):
            raise UncoveredOperation(f"the rule book {book.name} has no rule for {_function(node)}")


def _between(start: Node | None, ends: set[Node | None], by_node: Mapping[Node, Site]) -> list[Node]:
    """The nodes above any of `ends`, on the ways down from `start`; a site is one step."""
    leads: dict[Node, bool] = {}  # whether an end lies below
    stack = [start] if start is not None else []
    while stack:
        node = stack[-1]
        below = _below(node, by_node)
        unknown = [b for b in below if b not in leads]
        if unknown and node not in leads:
            leads.setdefault(node, False)
            stack += unknown
            continue
        stack.pop()
        leads[node] = any(b in ends or leads.get(b, False) for b in below)
    return [node for node, lead in leads.items() if lead]


def _below(node: Node, by_node: Mapping[Node, Site]) -> list[Node]:
    site = by_node.get(node)
    found = site.sources if site is not None else tuple(following for following, _ in node.next_functions)
    return [f for f in found if f is not None]


def _function(node: Node) -> str:
    return node.name().rpartition(":")[2].rstrip("01").removesuffix("Backward")


def _moves(node: Node) -> bool:
    inputs = sum(following is not None for following, _ in node.next_functions)
    plain_sum = _function(node) == "Add" and inputs == 1 and node._saved_alpha == 1  # type: ignore[attr-defined]
    return _function(node) in ROUTING or plain_sum
