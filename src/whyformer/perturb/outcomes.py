"""Outcomes: the engine that knows what a classifier says of texts with units hidden, each run once in dense batches."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from whyformer.errors import UnsupportedModel
from whyformer.models.borrow import borrowed
from whyformer.models.loading import device_of, unwrapped
from whyformer.perturb.hiding import Fillers, Row, padded
from whyformer.tasks.score import is_regression

TOKENS_PER_BATCH = {"cpu": 4096, "cuda": 65536}
PADDING = 0.05  # of a batch's tokens, at most


@dataclass
class Counts:
    """What the engine did: rows that were asked for, rows and tokens that were run, padding among those tokens."""

    requested: int = 0
    run: int = 0
    tokens: int = 0
    padding: int = 0
    batches: int = 0

    @property
    def padding_share(self) -> float:
        """The share of the tokens run that is padding."""
        return self.padding / self.tokens if self.tokens else 0.0


class Outcomes:
    """What a classifier says of rows: probabilities, each row run once.

        with outcomes.planning():
            ask(outcomes)            # notes what is asked; the answers are placeholders
        outcomes.run()               # everything at once, without duplicates, sorted by length
        ask(outcomes)                # the answers

    A row that was not planned is run when it is asked for. Results are kept until `forget`. `progress` is called with
    the rows done and the rows to be done after every batch.
    """

    def __init__(
        self,
        model: nn.Module,
        tokenizer: Any = None,
        *,
        tokens_per_batch: int | None = None,
        progress: Callable[[int, int], None] | None = None,
    ):
        self.model = unwrapped(model)
        self.fillers = Fillers.of(self.model, tokenizer)
        self.device = device_of(self.model)
        self.budget = tokens_per_batch or TOKENS_PER_BATCH.get(self.device.type, TOKENS_PER_BATCH["cpu"])
        self.progress = progress
        self.counts = Counts()
        self._known: dict[bytes, Tensor] = {}
        self._waiting: dict[bytes, Row] = {}
        self._planned: Counter[bytes] = Counter()
        self._planning = False

    @contextmanager
    def planning(self) -> Iterator[None]:
        """Within it, questions are only noted."""
        self._planning = True
        try:
            yield
        finally:
            self._planning = False

    def of(self, rows: Sequence[Row], classes: int) -> Tensor:
        """The probabilities of each row, [rows, classes]; while planning, equal ones."""
        keys = [row.key for row in rows]
        for key, row in zip(keys, rows, strict=True):
            if key not in self._known:
                self._waiting.setdefault(key, row)
        if self._planning:
            self.counts.requested += len(rows)
            self._planned.update(keys)
            return torch.full((len(rows), classes), 1 / classes, dtype=torch.float64)
        if any(key not in self._known for key in keys):
            self.run()
        for key in keys:
            if self._planned[key]:
                self._planned[key] -= 1
            else:
                self.counts.requested += 1
        return torch.stack([self._known[key] for key in keys]) if keys else torch.zeros(0, classes, dtype=torch.float64)

    def run(self) -> None:
        """Run what is waiting."""
        rows = sorted(self._waiting.values(), key=len, reverse=True)  # the largest first: if memory is short, at once
        done = 0
        for batch in _batches(rows, self.budget):
            self._answer(batch)
            done += len(batch)
            if self.progress is not None:
                self.progress(done, len(rows))
        self._waiting.clear()

    def know(self, rows: Sequence[Row], said: Tensor) -> None:
        """Take the probabilities of rows, [rows, classes] in float64, from whoever ran the same model on them."""
        for row, shares in zip(rows, said, strict=True):
            self._known.setdefault(row.key, shares)

    def forget(self) -> None:
        """Drop all results and questions, so that memory does not grow from chunk to chunk."""
        self._known.clear()
        self._waiting.clear()
        self._planned.clear()

    def _answer(self, rows: Sequence[Row]) -> None:
        """Run a batch; where memory does not suffice, in halves."""

        def run() -> None:
            self._known.update(zip((row.key for row in rows), self._run(rows), strict=True))

        if not fits_in_memory(run, len(rows)):
            self._answer(rows[: len(rows) // 2])
            self._answer(rows[len(rows) // 2 :])

    def _run(self, rows: Sequence[Row]) -> Tensor:
        inputs = padded(rows, self.fillers, self.device)
        length = inputs["input_ids"].shape[1]
        said = probabilities(self.model, inputs).cpu()
        self.counts.run += len(rows)
        self.counts.batches += 1
        self.counts.tokens += length * len(rows)
        self.counts.padding += length * len(rows) - sum(len(row) for row in rows)
        return said


def fits_in_memory(run: Callable[[], None], count: int) -> bool:
    """Run something on a batch of examples; False if the device's memory does not suffice, but could for fewer."""
    try:
        run()
    except torch.OutOfMemoryError:
        if count == 1:
            raise
    else:
        return True
    torch.cuda.empty_cache()  # out of the handler, where nothing holds on to the run any more
    return False


def _batches(rows: Sequence[Row], budget: int) -> Iterator[list[Row]]:
    """Rows, longest first, cut where a batch is full or the next row would need too much padding."""
    batch: list[Row] = []
    real = 0
    for row in rows:
        size = (len(batch) + 1) * len(batch[0] if batch else row)
        if batch and (size > budget or size - real - len(row) > PADDING * size):
            yield batch
            batch, real = [], 0
        batch.append(row)
        real += len(row)
    if batch:
        yield batch


def probabilities(model: nn.Module, inputs: Mapping[str, Tensor]) -> Tensor:
    """What a classifier says, [batch, classes] in float64: softmax, or sigmoid of labels that go together."""
    with torch.no_grad(), borrowed(model, inputs) as (plain, arguments):
        logits = getattr(plain(**arguments), "logits", None)
    if not isinstance(logits, Tensor) or (found := shares_of(model, logits)) is None:
        raise UnsupportedModel(f"{type(model).__name__} gives no probabilities of classes: a classifier is needed")
    if not bool(torch.isfinite(logits).all()):
        raise UnsupportedModel(f"{type(model).__name__} returns logits that are not numbers once units are hidden")
    return found


def shares_of(model: nn.Module, logits: Tensor) -> Tensor | None:
    """The probabilities that logits mean, [batch, classes] in float64; None where they are no logits of classes."""
    config = getattr(model, "config", None)
    labels_are_free = getattr(config, "problem_type", None) == "multi_label_classification"
    if logits.dim() != 2 or is_regression(model) or (logits.shape[1] == 1 and not labels_are_free):
        return None
    return logits.double().sigmoid() if labels_are_free else logits.double().softmax(-1)
