"""Two engines for the books that carry a gradient: rules that act while a model runs, and the sites of a run."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from whyformer.errors import UncoveredOperation, UnsupportedModel
from whyformer.recorder import Trace, record
from whyformer.recorder.lrp.forward_rules import NotWhileRunning
from whyformer.recorder.lrp.rule_sets import GRADIENT_BOOKS, Book
from whyformer.tolerance import ROUNDING, arithmetic, distance

ASKING = (
    "whyformer.recorder.recording",
    "whyformer.recorder.recording",
    "whyformer.recorder.needs",
)  # whether rules can act


def relevances(trace: Trace, book: Book, target: Any) -> dict[str, Tensor]:
    """The relevance of units under a book where they enter the model, and its first layer, if there is a rule."""
    places: dict[str, Tensor | None] = {"inputs": trace.pixels if trace.embeddings is None else trace.embeddings}
    places["states"] = trace.hidden[0] if trace.has_layers else None
    reached = {}
    for name, tensor in places.items():
        try:
            if tensor is not None:
                reached[name] = trace.relevance(tensor, book, target).flatten(2).sum(-1)
        except UncoveredOperation:
            continue
    return reached


def gaps(model: Any, inputs: dict[str, Tensor], target: Any, *, maps: bool = False) -> dict[str, float | str]:
    """By book and place, how far the engines are apart, or why the rules cannot act while this model runs.

    A place that neither engine reaches is left out. Padding is not compared.
    """
    apart: dict[str, float | str] = {}
    attended = inputs["attention_mask"].flatten(0, -2).bool() if "attention_mask" in inputs else None
    by_sites = record(model, inputs)
    for name, book in GRADIENT_BOOKS.items():
        expected = relevances(by_sites, book, target)
        try:
            reached = relevances(record(model, inputs, book=book, maps=maps), book, target)
        except NotWhileRunning as reason:
            apart[name] = str(reason)
            continue
        for place in expected.keys() ^ reached.keys():
            apart[f"{name} {place}"] = f"reached by {'sites' if place in expected else 'rules while running'} alone"
        for place in expected.keys() & reached.keys():
            one, other = reached[place], expected[place]
            if attended is not None and attended.shape == one.shape:
                one, other = one * attended, other * attended
            apart[f"{name} {place}"] = distance(one, other)
    return apart


def apart(model: Any, inputs: dict[str, Tensor], target: Any, *, maps: bool = False) -> dict[str, float | str]:
    """The gaps between the engines that exceed rounding."""
    allowed = ROUNDING[arithmetic(lambda: model(**inputs))]
    found = gaps(model, inputs, target, maps=maps)
    return {place: gap for place, gap in found.items() if isinstance(gap, str) or not gap <= allowed}


def refusal_of(call: Callable[[], object]) -> str:
    """The refusal of a call; empty if it is not refused."""
    try:
        call()
    except UnsupportedModel as refusal:
        return f"{type(refusal).__name__}: {refusal}"
    return ""


@contextmanager
def sites_alone() -> Iterator[None]:
    """No rule acts while a model runs in here: whatever is asked of a book, the sites of a run give it."""
    with pytest.MonkeyPatch.context() as patch:
        for module in ASKING:
            patch.setattr(f"{module}.acts_while_running", lambda book: False)
        yield


class Sine(nn.Module):
    """A function that no book has a rule for."""

    def forward(self, x: Tensor) -> Tensor:
        """Its sine."""
        return torch.sin(x)


class Layer(nn.Module):
    """Fused attention, a residual connection, and a function behind it."""

    def __init__(self, function: nn.Module) -> None:
        super().__init__()
        self.qkv = nn.Linear(8, 24)
        self.function = function

    def forward(self, states: Tensor) -> Tensor:
        """The states behind the layer."""
        query, key, value = (t.unsqueeze(1) for t in self.qkv(states).chunk(3, -1))
        context = nn.functional.scaled_dot_product_attention(query, key, value).squeeze(1)
        return self.function(context + states)  # type: ignore[no-any-return]


class Classifier(nn.Module):
    """Two layers in float64, with a function of one's choice below them and one above the last attention."""

    def __init__(self, below: nn.Module | None = None, above: nn.Module | None = None) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding = nn.Embedding(20, 8)
        self.below = below or nn.Identity()
        self.layers = nn.ModuleList([Layer(nn.Identity()), Layer(above or nn.Identity())])
        self.head = nn.Linear(8, 2)
        self.double().eval()

    def get_input_embeddings(self) -> nn.Module:
        """The table of tokens."""
        return self.embedding

    def forward(self, input_ids: Tensor) -> tuple[Tensor]:
        """The logits, read at the first unit."""
        states = self.below(self.embedding(input_ids))
        for layer in self.layers:
            states = layer(states)
        return (self.head(states[:, 0]),)
