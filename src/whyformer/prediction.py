"""Prediction: a model, a batch and the outputs to be explained; what every method is given."""

import hashlib
import re
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any, Literal, SupportsIndex

import torch
from torch import Tensor, nn

from whyformer.errors import BadOption, nearest
from whyformer.inputs import Batch
from whyformer.load import labels_of, text_config
from whyformer.recorder import Edit, Trace, record

Queries = Literal["reader", "mean", "all"]
TargetLike = int | str | Sequence[int | str] | Tensor | None


class Prediction:
    """Runs its model once, when first asked, and shares that run among all methods and targets.

    Tensors for methods are at least float32, so that a product of half-precision numbers keeps its digits.
    """

    def __init__(
        self,
        model: nn.Module,
        batch: Batch,
        target: TargetLike = None,
        versus: TargetLike = None,
        *,
        trace: Trace | None = None,
        relevance: bool = False,
    ):
        self.relevance = relevance  # whether a method that needs relevance is to come
        self.model = model
        self.batch = batch
        self.labels = labels_of(model)
        self._target = target
        self._versus = versus
        self._by_book: dict[str, tuple[Tensor, ...]] = {}
        if trace is not None:
            self.trace = trace

    @cached_property
    def trace(self) -> Trace:
        """The one forward pass."""
        return record(self.model, self.batch.tensors, relevance=self.relevance)

    def towards(self, target: TargetLike, versus: TargetLike = None) -> "Prediction":
        """The same run, another output to be explained."""
        return Prediction(self.model, self.batch, target, versus, trace=self.trace, relevance=self.relevance)

    @cached_property
    def predicted(self) -> Tensor:
        """The predicted class of each example, [batch]."""
        return self.trace.logits.argmax(-1)

    @cached_property
    def target(self) -> Tensor:
        """The explained class of each example, [batch]."""
        return self._classes(self._target)

    @cached_property
    def versus(self) -> Tensor | None:
        """The class that the target is set against, [batch], if there is one."""
        return None if self._versus is None else self._classes(self._versus)

    @cached_property
    def padding(self) -> Tensor:
        """Positions that are padding, [batch, units]."""
        return self.batch.padding(self.reader, getattr(text_config(self.model), "pad_token_id", None))

    @cached_property
    def real(self) -> Tensor:
        """1 where a position is no padding, [batch, units]."""
        return (~self.padding).to(self.reader.dtype)

    @property
    def reader(self) -> Tensor:
        """How the head reads the last layer, [batch, units]: shares that add up to 1."""
        return self.trace.reader

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
        return self._gradients[: len(self.attention)]

    @property
    def hidden_gradients(self) -> tuple[Tensor, ...]:
        """Gradient of the explained outputs with respect to each hidden state."""
        return self._gradients[len(self.attention) : len(self.attention) + len(self.hidden)]

    @property
    def embedding_gradients(self) -> Tensor:
        """Gradient of the explained outputs with respect to the token embeddings."""
        self._embedding_leaf()
        return self._gradients[-1]

    @cached_property
    def _gradients(self) -> tuple[Tensor, ...]:
        """One backward pass for all of them."""
        trace = self.trace
        of = (*trace.attention, *trace.hidden, *(() if trace.embeddings is None else (trace.embeddings,)))
        return tuple(_precise(g) for g in trace.gradient(of, self.target, self.versus))

    def attention_relevances(self, book: str) -> tuple[Tensor, ...]:
        """Relevance of the explained outputs at each layer's attention, under a rule book."""
        return self._relevances(book)[:-1]

    def embedding_relevances(self, book: str) -> Tensor:
        """Relevance of the explained outputs at the embedding output, under a rule book."""
        return self._relevances(book)[-1]

    def _relevances(self, book: str) -> tuple[Tensor, ...]:
        """One backward pass for all of them, for each book."""
        if not self.trace.sites:  # nobody said that relevance was to come
            self.trace = record(self.model, self.batch.tensors)
        if book not in self._by_book:
            of = (*self.trace.attention, self.trace.hidden[0])
            found = self.trace.relevance(of, book, self.target, self.versus)
            self._by_book[book] = tuple(_precise(r) for r in found)
        return self._by_book[book]

    def loss(self, logits: Tensor) -> Tensor:
        """Cross-entropy of the explained class, [batch]."""
        if self.versus is not None:
            raise BadOption("the loss explains one class: leave `versus` out, or explain the logit")
        if logits.shape[-1] == 1:
            raise BadOption("a model with one output has no cross-entropy: explain the logit")
        if getattr(getattr(self.model, "config", None), "problem_type", None) == "multi_label_classification":
            return -nn.functional.logsigmoid(logits.gather(1, self.target[:, None]).squeeze(1))
        return nn.functional.cross_entropy(logits, self.target, reduction="none")

    def edited(self, edit: Edit) -> "Prediction":
        """The same input and outputs, run anew with other embeddings."""
        target, versus = self.target, self.versus
        first_layer = self.trace.first_layer_call
        trace = record(self.model, self.batch.tensors, relevance=False, edit=edit, first_layer=first_layer)
        again = Prediction(self.model, self.batch, target, versus, trace=trace)
        again.padding = self.padding
        return again

    def generators(self, seed: int) -> list[torch.Generator]:
        """A random stream for each example; it depends on the seed and on the example's own tokens alone."""
        content = self.batch.tensors.get("input_ids")
        if content is None:
            content = self.batch.tensors["inputs_embeds"].to(torch.float32)
        streams = []
        for row, padding in zip(content.cpu(), self.padding.cpu(), strict=True):
            digest = hashlib.blake2b(row[~padding].contiguous().numpy().tobytes() + str(seed).encode(), digest_size=7)
            streams.append(torch.Generator().manual_seed(int.from_bytes(digest.digest())))
        return streams

    def _embedding_leaf(self) -> Tensor:
        if self.trace.embeddings is None:
            raise BadOption("the model's token embeddings were not seen; use at='embedding_output'")
        return self.trace.embeddings

    def _classes(self, target: TargetLike) -> Tensor:
        given = plain_target(target)
        if given is None:
            return self.predicted
        if isinstance(given, (int, str)):
            indices = torch.tensor(class_index(given, self.labels, self.trace.logits.shape[-1]))
            return indices.expand(len(self.predicted)).to(self.predicted.device)
        if len(given) != len(self.predicted):
            raise BadOption(f"{len(given)} targets for {len(self.predicted)} examples: give one, or one for each")
        indices = torch.tensor([class_index(t, self.labels, self.trace.logits.shape[-1]) for t in given])
        return indices.to(self.predicted.device)


def plain_target(target: TargetLike) -> int | str | list[int | str] | None:
    """A target given as any kind of number, array or sequence, as plain numbers and names."""
    if target is None or isinstance(target, str):
        return target
    if hasattr(target, "tolist"):  # of torch and numpy
        target = target.tolist()
    if isinstance(target, Iterable):
        return [_plain_number(t) for t in target]
    return _plain_number(target)


def _plain_number(target: Any) -> int | str:
    if isinstance(target, str):
        return target
    if isinstance(target, bool) or not isinstance(target, SupportsIndex):
        raise BadOption(f"target {target!r} is no class: give its name or its index")
    return target.__index__()


def class_index(target: int | str, labels: Sequence[str], classes: int) -> int:
    """The index of a class given by name (capitals do not matter) or index."""
    names = list(labels) if len(labels) == classes else [str(i) for i in range(classes)]
    if isinstance(target, str):
        exact = [i for i, name in enumerate(names) if name == target]
        alike = exact or [i for i, name in enumerate(names) if name.casefold() == target.casefold()]
        if len(alike) == 1:
            return alike[0]
        if not re.fullmatch("-?[0-9]+", target):
            raise BadOption(f"target {target!r} is no label of this model; {nearest(target, names)}")
    if not 0 <= int(target) < classes:
        listed = ", ".join(f"{i} = {name}" for i, name in enumerate(names))
        raise BadOption(f"target {target} is no class of this model; it has {listed}")
    return int(target)


def _precise(tensor: Tensor) -> Tensor:
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))
