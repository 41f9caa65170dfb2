"""Where the strongest attention of each head falls: on which token, on which word."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from whyformer.errors import UnsupportedModel
from whyformer.inputs.batch import Batch
from whyformer.methods.head_mask import DIRECTIONS, RELATIONS
from whyformer.models.load import Subject
from whyformer.recorder import record
from whyformer_papers.heads.sentences import Aligned


def attention_maps(subject: Subject, batch: Batch) -> list[Tensor]:
    """The attention maps [batch, heads, queries, keys] of each layer.

    Nothing is kept for a backward pass, unless the recorder needs one to tell examples from units or heads: where there
    are as many of the one as of the other.
    """
    try:
        with torch.autograd.graph.saved_tensors_hooks(lambda _: None, _no_backward):
            trace = record(subject.model, batch.tensors, relevance=False)
        maps = [layer.detach() for layer in trace.attention]
    except UnsupportedModel as error:
        if not isinstance(error.__cause__, _NothingKept):
            raise
        maps = [layer.detach() for layer in record(subject.model, batch.tensors, relevance=False).attention]
    if len({layer.shape[1] for layer in maps}) > 1:
        heads = [layer.shape[1] for layer in maps]
        raise UnsupportedModel(f"the layers have different numbers of heads ({heads}); a head mask is layers × heads")
    return maps


class _NothingKept(AssertionError):
    """A backward pass was asked for."""


def _no_backward(_: Any) -> NoReturn:
    raise _NothingKept("nothing was kept for a backward pass")


def strongest(maps: Tensor, counted: Tensor) -> Tensor:
    """For each head and query the key with the highest attention among those that count, [batch, heads, queries].

    Attention to the others is overwritten by -1 in place, since maps are large and it is not needed any more.
    """
    return maps.masked_fill_(~counted[:, None, None], -1).argmax(-1)


def word_keys(maps: Tensor, words: Tensor) -> Tensor:
    """For each head and word the word that gets most of its attention, tokens joined, [batch, heads, words].

    `words` numbers each token's word, [batch, units], -1 for none.
    """
    precise = torch.promote_types(maps.dtype, torch.float32)
    numbers = torch.arange(int(words.max()) + 1, device=words.device)
    belongs = (words[:, :, None] == numbers).to(precise)  # [batch, units, words]
    queries = _summed(maps.to(precise).mT, belongs).mT  # [batch, heads, words, keys]
    return _summed(queries, belongs).argmax(-1)


def _summed(maps: Tensor, belongs: Tensor) -> Tensor:
    """Maps [batch, heads, …, units] with the tokens of each word summed up, as one product for each example."""
    summed: Tensor = maps.flatten(1, 2) @ belongs
    return summed.reshape(*maps.shape[:3], -1)


def first_keys(keys: Tensor, words: Tensor) -> Tensor:
    """For each head and word the word of the key of its first token, [batch, heads, words]."""
    numbers = torch.arange(int(words.max()) + 1, device=words.device)
    first = (words[:, :, None] == numbers).int().argmax(1)  # [batch, words]
    chosen = keys.gather(2, first[:, None].expand(-1, keys.shape[1], -1))
    return words[:, None].expand(-1, keys.shape[1], -1).gather(2, chosen)


@dataclass(frozen=True)
class Arcs:
    """The arcs of a batch, each an entry of four tensors."""

    rows: Tensor
    dependents: Tensor
    heads: Tensor
    relations: Tensor

    @classmethod
    def of(cls, sentences: Sequence[Aligned], device: torch.device) -> "Arcs":
        """The arcs of aligned sentences, which are the rows of the batch."""
        table = [
            (row, a.dependent, a.head, a.relation) for row, sentence in enumerate(sentences) for a in sentence.arcs
        ]
        return cls(*torch.tensor(table, dtype=torch.long, device=device).reshape(-1, 4).unbind(1))

    def hits(self, keys: Tensor) -> Tensor:
        """How often the key [batch, heads, words] of one word is the other word: [directions, heads, relations]."""
        counts = torch.zeros(len(DIRECTIONS), len(RELATIONS), keys.shape[1], dtype=torch.long, device=keys.device)
        for way, (asked, other) in enumerate(((self.dependents, self.heads), (self.heads, self.dependents))):
            counts[way].index_add_(0, self.relations, (keys[self.rows, :, asked] == other[:, None]).long())
        return counts.mT


def count_offsets(keys: Sequence[Tensor], counted: Tensor) -> NDArray[np.int64]:
    """How often each offset of a key from its query occurs, [layers, heads, 2 reach + 1]."""
    units = counted.shape[1]
    stacked = torch.stack(list(keys))  # [layers, batch, heads, queries]
    layers, _, heads, _ = stacked.shape
    places = stacked - torch.arange(units, device=stacked.device) + units - 1
    numbers = torch.arange(layers * heads, device=stacked.device).view(layers, 1, heads, 1)
    places = places + numbers * (2 * units - 1)
    chosen = places[counted[None, :, None].expand_as(places)]
    counts = chosen.bincount(minlength=layers * heads * (2 * units - 1)).view(layers, heads, -1)
    return np.asarray(counts.cpu().numpy())
