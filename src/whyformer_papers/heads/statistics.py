"""Which relative position, and which syntactic relation, the strongest attention of each head hits."""

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor

from whyformer.errors import BadInput, BadOption, nearest
from whyformer.inputs.batch import Text, TextInput, collate, encode
from whyformer.methods.head_mask import (
    DIRECTION_CHOICES,
    DIRECTIONS,
    POSITIONAL,
    RELATIONS,
    SYNTACTIC,
    DirectionChoice,
    HeadMask,
    HeadStatistics,
    Thresholds,
)
from whyformer.models.load import Subject
from whyformer.progress import report
from whyformer_papers.heads.sentences import Aligned, Sentence, align
from whyformer_papers.heads.strongest import Arcs, attention_maps, count_offsets, first_keys, strongest, word_keys
from whyformer_papers.heads.tally import Tally

Pieces = Literal["joined", "first"]


@dataclass(frozen=True)
class HeadSearch:
    """How heads are looked for: the options of `head_statistics` that bear its names."""

    direction: DirectionChoice = "either"
    pieces: Pieces = "joined"
    special_tokens: bool = False
    subtypes: bool = False

    def __post_init__(self) -> None:
        if self.pieces not in get_args(Pieces):
            raise BadOption(f"pieces {self.pieces!r} is not known; {nearest(self.pieces, get_args(Pieces))}")
        if self.direction not in DIRECTION_CHOICES:
            raise BadOption(f"direction {self.direction!r} is not known; {nearest(self.direction, DIRECTION_CHOICES)}")


AUTHORS_SEARCH = HeadSearch("dependent_to_head", "first", special_tokens=True)  # of Mask-LRP's code

SORTED_AT_ONCE = 16  # batches; texts of one length are run together
USUAL_LENGTH = 128  # tokens; of longer texts fewer are run at once, because maps grow with the square


def head_statistics(
    subject: Subject,
    sentences: Iterable[Sentence],
    *,
    direction: DirectionChoice = "either",
    special_tokens: bool = False,
    pieces: Pieces = "joined",
    subtypes: bool = False,
    positional: float = POSITIONAL,
    syntactic: float = SYNTACTIC,
    batch_size: int = 32,
    limit: int | None = None,
) -> HeadMask:
    """The positional and the syntactic heads of a model, from parsed sentences (Mask-LRP, §4.2).

    For each head and query the key with the highest attention is taken, special tokens and padding left out of both.
    A head is positional if for one offset `i ≠ 0` the share of queries whose key lies there is above `positional`. It
    is syntactic for a relation `k` if `α_k > max_i λ_k^i + syntactic`: `α_k` is the share of arcs for which the word
    with the highest attention is the other word of the arc, `λ_k^i` the share of arcs whose words are `i` words apart.

    | parameter | meaning |
    |---|---|
    | `subject` | the model and its tokenizer, as `load` gives them (`Explainer.subject`) |
    | `sentences` | a `Treebank`, or sentences with their arcs |
    | `direction` | from the dependent to its head, the reverse, or the better of the two for each head and relation |
    | `special_tokens` | keeps special tokens as queries and keys, as the authors do |
    | `pieces` | a word's attention is that of all its tokens together, to all tokens of another (`joined`), or, as in |
    | | the authors' code, that of its first token to the word of the token that gets most (`first`) |
    | `subtypes` | counts `nsubj:pass` as `nsubj`; the authors' code, and so the default, does not |
    | `positional`, `syntactic` | the thresholds |
    | `batch_size`, `limit` | sentences in one run of the model, and in all |

    What is done is reported after each batch (see `whyformer.progress`); a total that is not known is reported as what
    is done. Ctrl-C ends the counting, and the mask is that of what was counted until then.
    """
    HeadSearch(direction, pieces, special_tokens, subtypes)  # which refuses what is not known
    thresholds = Thresholds(positional, syntactic)

    def examples() -> Iterator[_Example]:
        for sentence in sentences:
            encoded = encode(subject, sentence.text, answers=False)
            aligned = align(sentence, encoded.units, subtypes=subtypes)
            yield _Example(encoded, aligned, repr((sentence.words, sentence.relations)))

    options = {"special_tokens": special_tokens, "pieces": pieces, "subtypes": subtypes}
    counting = _Counting(subject, special_tokens, pieces, batch_size, limit)
    statistics, provenance = counting.run(examples(), sentences, options)
    return HeadMask.of(statistics, direction=direction, thresholds=thresholds, provenance=provenance)


def positional_statistics(
    subject: Subject,
    texts: Iterable[Text],
    *,
    special_tokens: bool = False,
    positional: float = POSITIONAL,
    batch_size: int = 32,
    limit: int | None = None,
) -> HeadMask:
    """The positional heads of a model, from texts or pairs of texts without a parse; see `head_statistics`."""
    thresholds = Thresholds(positional)
    examples = (_Example(encode(subject, text, answers=False), None, "") for text in texts)
    counting = _Counting(subject, special_tokens, "first", batch_size, limit)
    statistics, provenance = counting.run(examples, texts, {"special_tokens": special_tokens})
    return HeadMask.of(statistics, thresholds=thresholds, provenance=provenance)


@dataclass(frozen=True)
class _Example:
    encoded: TextInput
    aligned: Aligned | None
    parse: str

    @property
    def digest(self) -> int:
        """A hash of text and parse; those of several examples are added up, whatever their order."""
        content = repr((self.encoded.texts, self.parse)).encode()
        return int.from_bytes(hashlib.blake2b(content, digest_size=16).digest())


@dataclass(frozen=True)
class _Counting:
    """One pass over a corpus."""

    subject: Subject
    special_tokens: bool
    pieces: Pieces
    batch_size: int
    limit: int | None

    def __post_init__(self) -> None:
        if self.batch_size < 1 or (self.limit is not None and self.limit < 1):
            raise BadOption(f"batch_size and limit are at least 1; found {self.batch_size} and {self.limit}")

    def run(
        self, examples: Iterator[_Example], corpus: object, options: Mapping[str, Any]
    ) -> tuple[HeadStatistics, dict[str, Any]]:
        """Count until the corpus or the limit ends, or until Ctrl-C; returns the provenance too."""
        tally: Tally | None = None
        digest, interrupted = 0, False
        total = _length(corpus, self.limit)
        try:
            for batch in _batches(islice(examples, self.limit), self.batch_size):
                added = self._counts(batch)
                seen = digest + sum(example.digest for example in batch)
                tally, digest = added if tally is None else tally + added, seen
                report(tally.sentences, total or tally.sentences)
        except KeyboardInterrupt:
            if tally is None:
                raise
            interrupted = True
        if tally is None:
            raise BadInput("there is no sentence to count: the corpus is empty")
        return tally.statistics(), {
            **self.subject.provenance,
            "fingerprint": self.subject.fingerprint,
            "corpus": {**getattr(corpus, "provenance", {}), "digest": f"{digest % 2**128:032x}"},
            "sentences": tally.sentences,
            "truncated": tally.truncated,
            "arcs_left_out": tally.lost,
            "interrupted": interrupted,
            "options": options,
        }

    def _counts(self, examples: Sequence[_Example]) -> Tally:
        batch = collate(self.subject, [example.encoded for example in examples])
        maps = attention_maps(self.subject, batch)
        counted = batch.tensors["attention_mask"].bool()
        if not self.special_tokens and batch.special is not None:
            counted &= ~batch.special
        keys = [strongest(layer, counted) for layer in maps]
        sentences = [example.aligned for example in examples if example.aligned is not None]
        arcs = Arcs.of(sentences, self.subject.device)
        hits = np.zeros((len(DIRECTIONS), len(maps), maps[0].shape[1], len(RELATIONS)), dtype=np.int64)
        if len(arcs.rows):
            words = self._words(sentences, counted)
            joined = self.pieces == "joined"
            asked = [word_keys(m, words) if joined else first_keys(k, words) for m, k in zip(maps, keys, strict=True)]
            hits = torch.stack([arcs.hits(layer) for layer in asked], 1).cpu().numpy()
        return Tally(
            offsets=count_offsets(keys, counted),
            hits=hits,
            arcs=tuple(
                Counter(arc.offset for s in sentences for arc in s.arcs if arc.relation == k)
                for k in range(len(RELATIONS))
            ),
            queries=int(counted.sum()),
            sentences=len(examples),
            truncated=sum(example.encoded.dropped > 0 for example in examples),
            lost=sum(sentence.lost for sentence in sentences),
        )

    def _words(self, sentences: Sequence[Aligned], counted: Tensor) -> Tensor:
        """The number of each token's word, [batch, units]; tokens that count and lie in none are words themselves."""
        rows = []
        for aligned, row in zip(sentences, counted.tolist(), strict=True):
            words = list(aligned.words) + [-1] * (len(row) - len(aligned.words))
            if self.special_tokens:
                following = iter(range(max(words, default=-1) + 1, len(row) + 1))
                words = [next(following) if w < 0 and real else w for w, real in zip(words, row, strict=True)]
            rows.append(words)
        return torch.tensor(rows, device=counted.device)


def _batches(examples: Iterable[_Example], size: int) -> Iterator[list[_Example]]:
    """Batches of examples of about one length."""
    stream = iter(examples)
    while chunk := list(islice(stream, size * SORTED_AT_ONCE)):
        batch: list[_Example] = []
        for example in sorted(chunk, key=lambda e: len(e.encoded.units)):
            squares = (len(batch) + 1) * len(example.encoded.units) ** 2
            if batch and (len(batch) == size or squares > size * USUAL_LENGTH**2):
                yield batch
                batch = []
            batch.append(example)
        yield batch


def _length(corpus: Any, limit: int | None) -> int | None:
    try:
        total = len(corpus)
    except TypeError:
        return limit
    return total if limit is None else min(total, limit)
