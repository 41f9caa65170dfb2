"""Rule books: which rule governs which kind of function.

The book is a closed world. A relevance pass may go through a site that the book has a rule for, and through functions
that only move numbers about; anything else raises `UncoveredOperation`.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal

from torch import Tensor
from torch.autograd.graph import Node, get_gradient_edge

from whyformer.errors import BadOption, UncoveredOperation, nearest
from whyformer.recorder.lrp import rules
from whyformer.recorder.lrp.sites import Rule, Site


@dataclass(frozen=True)
class Book:
    """Rules by the kind of site; None keeps the derivative, and "inside" looks into a module that is seen as one.

    A book carries relevance, from 1 or from the value of the explained output; or a modified gradient, whose product
    with a value is the value's relevance, so that it amounts to a start from the output's value. The first operand of
    the kinds in `held` is a constant: what lies below it needs no rule.
    """

    name: str
    rules: Mapping[str, Rule | Literal["inside"] | None]
    carries: Literal["relevance", "gradient"] = "relevance"
    held: frozenset[str] = frozenset({"scaled"})
    starts_from: Literal["one", "value"] = "one"

    def opened(self, sites: Iterable[Site]) -> list[Site]:
        """The sites, with those inside a module where this book looks into it."""
        found: list[Site] = []
        for site in sites:
            found += self.opened(site.inside) if self.rules.get(site.kind) == "inside" else [site]
        return found

    @property
    def adds_per_example(self) -> bool:
        """Whether a rule adds up each example's relevance, so that it must be known where an example lies."""
        return self.rules.get("add") is rules.add_normalised

    def rule_of(self, site: Site) -> Rule | None:
        """The rule for a site; one without lies below a constant (`check_closed` has seen to it), and gets nothing."""
        rule = self.rules.get(site.kind)
        assert rule != "inside"
        return rule


_UNCHANGED = dict.fromkeys(("norm", "norm_module", "activation", "exponential", "softmax", "scaling"), rules.unchanged)
_BY_RELEVANCE: dict[str, Rule | None] = {
    **_UNCHANGED,
    "scaled": rules.scaled,
    "attend": rules.matmul_halved,
    "matmul": rules.matmul_halved,
    "product": rules.product_halved,
    "gated": rules.product_halved,
    "sum": rules.sum_by_size,
    "add_constant": None,  # its derivative leaves relevance unchanged
    "pixels": rules.pixels,
}
_BY_GRADIENT: dict[str, Rule | Literal["inside"] | None] = {
    **dict.fromkeys(("linear", "linear_map", "pixels", "add", "add_constant", "sum", "softmax", "scaling"), None),
    "norm": rules.norm_held,
    "norm_module": "inside",
    "activation": rules.ratio,
    "scaled": rules.first_held,
    **dict.fromkeys(("attend", "matmul", "product", "gated"), rules.halved),
}

Z_PLUS = Book(
    "z_plus",
    {
        **_BY_RELEVANCE,
        "linear": rules.linear_positive,
        "linear_map": rules.map_positive,
        "add": rules.add_normalised,
    },
)
ALPHA_BETA = Book(
    "alpha_beta",
    {**_BY_RELEVANCE, "linear": rules.linear_two_sided, "linear_map": rules.map_two_sided, "add": rules.add},
)
EQ4 = Book(
    "eq4",
    {
        **_BY_RELEVANCE,
        "linear": rules.linear_excitatory,
        "linear_map": rules.map_excitatory,
        "add": rules.add_normalised,
    },
)
EPSILON = Book(
    "epsilon",
    {
        **_BY_RELEVANCE,
        **dict.fromkeys(("linear", "linear_map", "pixels", "sum"), rules.epsilon),
        **dict.fromkeys(("attend", "matmul"), rules.matmul_epsilon),
        **dict.fromkeys(("add", "add_constant"), rules.add_epsilon),
        "softmax": rules.softmax_taylor,
        "norm": rules.norm_epsilon,
        "norm_module": "inside",
    },
    starts_from="value",
)
ATTN = Book("attn", _BY_GRADIENT, "gradient", starts_from="value")
CONSERVATIVE = Book(
    "conservative",
    {
        **{
            kind: rule for kind, rule in _BY_GRADIENT.items() if kind != "softmax"
        },  # one that is reached is no constant
        "attend": rules.first_held,
        "gated": rules.first_held,
    },
    "gradient",
    frozenset({"scaled", "attend", "gated"}),
    "value",
)

BOOKS = {book.name: book for book in (Z_PLUS, ALPHA_BETA, EQ4, EPSILON, CONSERVATIVE, ATTN)}

# Nodes of torch's graph that move numbers without changing them; relevance goes where the number came from.
_SHAPES = frozenset({"Alias", "AsStrided", "Expand", "Permute", "ReshapeAlias", "Squeeze", "T", "Transpose"})
_VIEWS = frozenset({"Unsqueeze", "UnsafeView", "View", "ViewAsComplex", "ViewAsReal", "Clone", "ToCopy"})
_COPIES = frozenset({"ConstantPadNd", "Im2Col", "IndexPut", "Repeat", "Roll", "Unfold"})
_PARTS = frozenset(
    {"Cat", "Index", "IndexSelect", "Gather", "Select", "Slice", "Split", "SplitWithSizes", "Stack", "Unbind"}
)
_CHOICES = frozenset({"MaskedFill", "Where", "CopyBackwards", "CopySlices", "BackwardHookFunction"})
ROUTING = _SHAPES | _VIEWS | _COPIES | _PARTS | _CHOICES


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
    by_node = {site.node: site for site in book.opened(sites)}
    for node in _between(logits.grad_fn, {get_gradient_edge(t).node for t in of}, by_node, book.held):
        site = by_node.get(node)
        if site is not None and site.kind not in book.rules:
            raise UncoveredOperation(f"the rule book {book.name} has no rule for {site.kind} ({site.path})")
        if site is None and not moves(node):
            where = _above(node, by_node)
            raise UncoveredOperation(f"the rule book {book.name} has no rule for {_function(node.name())} ({where})")


def _between(start: Node | None, ends: set[Node], by_node: Mapping[Node, Site], held: Collection[str]) -> list[Node]:
    """The nodes above any of `ends`, on the ways down from `start`; a site is one step."""
    leads: dict[Node, bool] = {}  # whether an end lies below
    below: dict[Node, list[Node]] = {}
    stack = [start] if start is not None else []
    while stack:
        node = stack[-1]
        if node not in below:
            below[node] = _below(node, by_node, held)
            unknown = [b for b in below[node] if b not in below]
            if unknown:
                stack += unknown
                continue
        stack.pop()
        leads[node] = any(b in ends or leads.get(b, False) for b in below[node])
    return [node for node, lead in leads.items() if lead]


def _below(node: Node, by_node: Mapping[Node, Site], held: Collection[str]) -> list[Node]:
    site = by_node.get(node)
    if site is None:
        return [following for following, _ in node.next_functions if following is not None]
    sources = site.sources[1:] if site.kind in held else site.sources
    return [source for source in sources if source is not None]


def _above(node: Node, by_node: Mapping[Node, Site]) -> str:
    """In which module a node lies that is no site: where the nearest site above it is."""
    for site in by_node.values():
        waiting, seen = [source for source in site.sources if source is not None], set()
        while waiting:
            here = waiting.pop()
            if here is node:
                return site.path
            if here not in by_node and here not in seen:
                seen.add(here)
                waiting += [following for following, _ in here.next_functions if following is not None]
    return "above all layers"


@cache
def _function(name: str) -> str:
    return name.rpartition(":")[2].rstrip("01").removesuffix("Backward")


def moves(node: Node) -> bool:
    """Whether a node only moves numbers about."""
    function = _function(node.name())
    if function != "Add":
        return function in ROUTING
    inputs = sum(following is not None for following, _ in node.next_functions)
    return inputs == 1 and bool(node._saved_alpha == 1)  # type: ignore[attr-defined]
