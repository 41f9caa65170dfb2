"""Rule books: which rule governs which kind of function.

The book is a closed world. A relevance pass may go through a site that the book has a rule for, and through functions
that only move numbers about; anything else raises `UncoveredOperation`.
"""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, Literal

from torch import Tensor
from torch.autograd.graph import Node, get_gradient_edge

from whyformer.errors import BadOption, UncoveredOperation, UnsupportedModel, nearest
from whyformer.models.errors import NO_GRADIENT
from whyformer.recorder.lrp import rules
from whyformer.recorder.lrp.sites import Rule, Site, nodes_below


@dataclass(frozen=True)
class BySite:
    """A rule for each site of a kind: `choose` is given the site, and may ask for its `path`, as `encoder.layer.3`."""

    choose: Callable[[Site], Rule | Literal["inside"] | None]


@dataclass(frozen=True)
class Book:
    """Rules by the kind of site; None keeps the derivative, and "inside" looks into a module that is seen as one.

    A book is a value: two with equal fields are one. `z_plus`, `epsilon` … are names of some (`BOOKS`).

    A book carries relevance, from 1 or from the value of the explained output; or a modified gradient, whose product
    with a value is the value's relevance, so that it amounts to a start from the output's value. The first operand of
    the kinds in `held` is a constant: what lies below it needs no rule.
    """

    name: str
    rules: Mapping[str, Rule | BySite | Literal["inside"] | None]
    carries: Literal["relevance", "gradient"] = "relevance"
    held: frozenset[str] = frozenset({"scaled"})
    starts_from: Literal["one", "value"] = "one"

    def __hash__(self) -> int:
        return hash((self.name, self.carries, self.held, self.starts_from, frozenset(self.rules)))

    def before(self, kind: str, change: Callable[[Site, Tensor], Tensor]) -> "Book":
        """The same book, with what arrives at sites of a kind changed before their rule is applied."""
        if kind not in self.rules:
            raise BadOption(f"the rule book {self.name} has no rule for {kind!r}; {nearest(kind, self.rules)}")

        def changed(site: Site) -> Rule | Literal["inside"]:
            rule = self.ruling(site) or rules.derivative
            return rule if rule == "inside" else lambda site, relevance: rule(site, change(site, relevance))

        return replace(self, rules={**self.rules, kind: BySite(changed)})

    def opened(self, sites: Iterable[Site]) -> list[Site]:
        """The sites, with those inside a module where this book looks into it."""
        opened: list[Site] = []
        for site in sites:
            opened += self.opened(site.inside) if self.ruling(site) == "inside" else [site]
        return opened

    def ruling(self, site: Site) -> Rule | Literal["inside"] | None:
        """What the book says of a site: the rule, to look inside, or nothing."""
        rule = self.rules.get(site.kind)
        return rule.choose(site) if isinstance(rule, BySite) else rule

    @property
    def adds_per_example(self) -> bool:
        """Whether a rule may add up each example's relevance, so that it must be known where an example lies."""
        return self.rules.get("add") not in (None, rules.add, rules.add_epsilon)

    @property
    def normalises(self) -> bool:
        """Whether a rule divides by the sum of an example's relevance, which must then not be 0."""
        return self.rules.get("add") is rules.add_normalised

    def rule_of(self, site: Site) -> Rule | None:
        """The rule for a site; one without lies below a constant (`check_closed` has seen to it), and gets nothing."""
        rule = self.ruling(site)
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


def _by_relevance(name: str, linear: Rule, linear_map: Rule, add: Rule) -> Book:
    """The books that differ in what linear layers and sums do."""
    return Book(name, {**_BY_RELEVANCE, "linear": linear, "linear_map": linear_map, "add": add})


Z_PLUS = _by_relevance("z_plus", rules.linear_positive, rules.map_positive, rules.add_normalised)
ALPHA_BETA = _by_relevance("alpha_beta", rules.linear_two_sided, rules.map_two_sided, rules.add)
EQ4 = _by_relevance("eq4", rules.linear_excitatory, rules.map_excitatory, rules.add)
EQ4_NORMALISED = replace(EQ4, name="eq4_normalised", rules={**EQ4.rules, "add": rules.add_normalised})
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
        # attention is held constant, so a softmax that relevance reaches is another one, and has no rule
        **{kind: rule for kind, rule in _BY_GRADIENT.items() if kind != "softmax"},
        "attend": rules.first_held,
        "gated": rules.first_held,
    },
    "gradient",
    frozenset({"scaled", "attend", "gated"}),
    "value",
)


@cache
def _with(rule: Callable[..., Any], **parameters: float) -> Rule:
    """A rule with its parameters; the same ones give the same rule, and so equal books."""
    return partial(rule, **parameters)


def epsilon(stabiliser: float) -> Book:
    """The book `epsilon` with a stabiliser of another size, `z + ε sign(z)`, at linear maps (Bach et al. 2015, Eq. 58).

    A large one takes relevance away from what adds little to a result, and with it noise.
    """
    linear = _with(rules.epsilon_signed, stabiliser=_parameter("epsilon", stabiliser))
    kinds = dict.fromkeys(("linear", "linear_map", "pixels", "sum"), linear)
    return replace(EPSILON, name=f"epsilon({stabiliser:g})", rules={**EPSILON.rules, **kinds})


def gamma(strength: float, pixels: float | None = None) -> Book:
    """The book `epsilon` with the γ rule at linear maps, as AttnLRP takes it for images (Achtibat et al. 2024).

    What agrees with the sign of a result counts 1 + γ times; biases take nothing. `pixels` is the γ of what looks at
    the pixels of an image, if that is another one.
    """
    return with_gamma(EPSILON, strength, pixels, name=f"gamma({_gammas(strength, pixels)})")


def with_gamma(book: Book, strength: float, pixels: float | None = None, *, name: str | None = None) -> Book:
    """A book with the γ rule at its linear maps; in one that carries a gradient, biases take their share."""
    carries_gradient = book.carries == "gradient"
    linear = rules.linear_gamma_gradient if carries_gradient else rules.linear_gamma
    mapped = rules.map_gamma_gradient if carries_gradient else rules.map_gamma
    of_maps = {"gamma": _parameter("gamma", strength)}
    of_pixels = of_maps if pixels is None else {"gamma": _parameter("gamma", pixels)}
    kinds = {"linear": _with(linear, **of_maps), "linear_map": _with(mapped, **of_maps)}
    kinds["pixels"] = _with(mapped, **of_pixels)
    made = f"{book.name}, gamma({_gammas(strength, pixels)})" if name is None else name
    return replace(book, name=made, rules={**book.rules, **kinds})


def _gammas(strength: float, pixels: float | None) -> str:
    return f"{strength:g}" if pixels is None else f"{strength:g}, pixels {pixels:g}"


def _parameter(book: str, value: float) -> float:
    if not 0 <= value < math.inf:
        raise BadOption(f"the parameter of the rule book {book} is a number of 0 or more, found {value!r}")
    return float(value)


PLAIN = Book("plain", dict.fromkeys(("linear", "norm", "attend")), "gradient", frozenset())  # torch's own derivatives
BOOKS = {book.name: book for book in (Z_PLUS, ALPHA_BETA, EQ4, EQ4_NORMALISED, EPSILON, CONSERVATIVE, ATTN)}

GRADIENT_BOOKS = {name: book for name, book in BOOKS.items() if book.carries == "gradient"}

# Nodes of torch's graph that move numbers without changing them; relevance goes where the number came from.
_SHAPES = frozenset({"Alias", "AsStrided", "Expand", "Permute", "ReshapeAlias", "Squeeze", "T", "Transpose"})
_VIEWS = frozenset({"Unsqueeze", "UnsafeView", "View", "ViewAsComplex", "ViewAsReal", "Clone", "ToCopy"})
_COPIES = frozenset({"ConstantPadNd", "Im2Col", "IndexPut", "Repeat", "Roll", "Unfold"})
_PARTS = frozenset(
    {"Cat", "Index", "IndexSelect", "Gather", "Select", "Slice", "Split", "SplitWithSizes", "Stack", "Unbind"}
)
_CHOICES = frozenset(
    {"Max", "MaxPool2DWithIndices", "MaskedFill", "Where", "CopyBackwards", "CopySlices", "BackwardHookFunction"}
)
ROUTING = _SHAPES | _VIEWS | _COPIES | _PARTS | _CHOICES


def book_named(book: str | Book) -> Book:
    """The book of that name."""
    if isinstance(book, Book):
        return book
    if book not in BOOKS:
        raise BadOption(f"there is no rule book {book!r}; {nearest(book, BOOKS)}")
    return BOOKS[book]


def gradient_book(book: str | Book) -> Book:
    """The book of that name, if it carries a gradient."""
    chosen = book_named(book)
    if chosen.carries != "gradient":
        raise BadOption(
            f"the rule book {chosen.name} carries relevance, not a gradient; {', '.join(GRADIENT_BOOKS)} carry one"
        )
    return chosen


def check_closed(logits: Tensor, of: Sequence[Tensor], sites: Sequence[Site], book: Book) -> None:
    """Raise `UncoveredOperation` if a relevance pass from the logits would meet a function without a rule.

    The graph itself is walked, so that a function which the recorder did not see cannot slip through.
    """
    by_node = {site.node: site for site in book.opened(sites)}
    for node in _between(logits.grad_fn, {get_gradient_edge(t).node for t in of}, by_node, book.held):
        site = by_node.get(node)
        if site is not None and site.kind not in book.rules:
            raise UncoveredOperation(f"the rule book {book.name} has no rule for {site.kind} ({site.path})")
        if site is None and "WarnNotImplemented" in node.name():  # torch's own: no derivative is known
            raise UnsupportedModel(f"the model cannot be explained: {NO_GRADIENT}")
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
        if node in nodes_below(site.sources, through=lambda below: below not in by_node):
            return site.path
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
