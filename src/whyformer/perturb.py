"""Hiding units of a text, and what the model then says: collected, without duplicates, and run in dense batches."""

import inspect
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from whyformer.errors import BadInput, BadOption, UnsupportedModel
from whyformer.load import text_config
from whyformer.prediction import Prediction
from whyformer.recorder.run import evaluating, with_padding_id
from whyformer.recorder.trace import RECORDING

Hide = Literal["delete", "mask", "mask_unattended", "pad", "pad_attended"]
Positions = Sequence[int]
Numbers = NDArray[np.int64]

TAKEN = ("input_ids", "attention_mask", "token_type_ids")
TOKENS_PER_BATCH = {"cpu": 4096, "cuda": 65536}
PADDING = 0.05  # of a batch's tokens, at most
LONGEST_SEARCH = 64  # units


@dataclass(frozen=True, eq=False)
class Row:
    """One text as the model takes it, without padding: for each name a number at every position."""

    tensors: Mapping[str, Numbers]

    def __len__(self) -> int:
        return len(self.tensors["input_ids"])

    @cached_property
    def key(self) -> bytes:
        """The tensors themselves; rows of one model with the same key are the same."""
        return b"".join(self.tensors[name].tobytes() for name in TAKEN if name in self.tensors)


def rows_of(prediction: Prediction) -> tuple[Row, ...]:
    """The texts of a prediction's batch, each without its padding."""
    tensors = prediction.batch.tensors
    odd = sorted(set(tensors) - set(TAKEN))
    if "input_ids" not in tensors or odd:
        raise BadInput(f"units are hidden in texts given as {', '.join(TAKEN)}; found {', '.join(odd) or 'none'}")
    ids = tensors["input_ids"]
    given = {"attention_mask": torch.ones_like(ids), **tensors}
    arrays = {name: given[name].cpu().numpy().astype(np.int64) for name in TAKEN if name in given}
    if any(array.shape != tuple(ids.shape) for array in arrays.values()):
        raise BadInput("units are hidden in texts whose tensors have one number for each token, [batch, units]")
    real = (~prediction.padding).cpu().numpy()
    return tuple(Row({name: array[n][real[n]] for name, array in arrays.items()}) for n in range(len(ids)))


@dataclass(frozen=True)
class Fillers:
    """The tokens that stand where a unit was: `mask`, `pad`, and `alone` where nothing is left. None if there is none.

    `mask` is the tokenizer's mask token, else its unknown token; `alone` its BOS, else EOS, else padding token.
    """

    mask: int | None
    pad: int | None
    alone: int | None

    @classmethod
    def of(cls, model: nn.Module, tokenizer: Any = None) -> "Fillers":
        """Those of a model and its tokenizer; of the model's configuration alone where there is no tokenizer."""
        config = text_config(model)
        owners = (config,) if tokenizer is None else (tokenizer,)
        pad = _token(("pad_token_id",), config, tokenizer)
        alone = _token(("bos_token_id", "eos_token_id"), *owners)
        mask = _token(("mask_token_id", "unk_token_id"), *owners)
        return cls(mask, pad, pad if alone is None else alone)

    def instead(self, hide: Hide) -> int:
        """The token that takes the place of a hidden one."""
        found, what = (self.pad, "padding") if hide.startswith("pad") else (self.mask, "mask or unknown")
        if found is None:
            raise BadOption(f"hide={hide!r} is not possible: the tokenizer has no {what} token; use hide='delete'")
        return found


def _token(names: Sequence[str], *owners: Any) -> int | None:
    found = (getattr(owner, name, None) for name in names for owner in owners)
    return next((int(token) for token in found if isinstance(token, int)), None)


def hidden(row: Row, positions: Positions, hide: Hide, fillers: Fillers) -> Row:
    """The text without some of its tokens.

    `delete` takes them out; `mask` and `pad_attended` put a mask or padding token in their place; `mask_unattended` and
    `pad` also take that place out of attention. Where nothing is left to attend to, there is one token, attended to.
    """
    if not len(positions):
        return row
    where = np.zeros(len(row), dtype=bool)
    where[list(positions)] = True
    if hide == "delete":
        tensors = {name: array[~where] for name, array in row.tensors.items()}
    else:
        filled = np.where(where, fillers.instead(hide), row.tensors["input_ids"])
        attended = row.tensors["attention_mask"]
        if hide in ("pad", "mask_unattended"):
            attended = np.where(where, 0, attended)
        tensors = {**row.tensors, "input_ids": filled, "attention_mask": attended}
    return Row(tensors) if tensors["attention_mask"].any() else _alone(row, fillers)


def _alone(row: Row, fillers: Fillers) -> Row:
    if fillers.alone is None:
        raise BadOption("hiding leaves nothing to run, and the tokenizer has no BOS, EOS or padding token")
    one = {"input_ids": fillers.alone, "attention_mask": 1, "token_type_ids": 0}
    return Row({name: np.array([one[name]], dtype=np.int64) for name in row.tensors})


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
        self.model = getattr(model, "_orig_mod", model)  # a compiled model runs as the model it was made from
        self.fillers = Fillers.of(self.model, tokenizer)
        self.device = next(self.model.parameters()).device
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
            for row, probabilities in zip(batch, self._run(batch), strict=True):
                self._known[row.key] = probabilities
            done += len(batch)
            if self.progress is not None:
                self.progress(done, len(rows))
        self._waiting.clear()

    def forget(self) -> None:
        """Drop all results and questions, so that memory does not grow from chunk to chunk."""
        self._known.clear()
        self._waiting.clear()
        self._planned.clear()

    def _run(self, rows: Sequence[Row]) -> Tensor:
        length = max(len(row) for row in rows)
        inputs = {name: self._padded(rows, name, length) for name in rows[0].tensors}
        self.counts.run += len(rows)
        self.counts.batches += 1
        self.counts.tokens += length * len(rows)
        self.counts.padding += length * len(rows) - sum(len(row) for row in rows)
        return probabilities(self.model, inputs).cpu()

    def _padded(self, rows: Sequence[Row], name: str, length: int) -> Tensor:
        filled = np.full((len(rows), length), (self.fillers.pad or 0) if name == "input_ids" else 0, dtype=np.int64)
        for target, row in zip(filled, rows, strict=True):
            target[: len(row)] = row.tensors[name]
        return torch.from_numpy(filled).to(self.device)


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
    config = getattr(model, "config", None)
    labels_are_free = getattr(config, "problem_type", None) == "multi_label_classification"
    given: dict[str, Any] = dict(inputs)
    if getattr(config, "return_dict", True) is False:
        given["return_dict"] = True
    if "use_cache" in inspect.signature(model.forward).parameters:
        given["use_cache"] = False
    padding = with_padding_id(model, given, len(given["input_ids"]))
    with RECORDING, torch.no_grad(), evaluating(model.modules()), padding as padded:
        logits = getattr(model(**padded), "logits", None)
    if not isinstance(logits, Tensor) or logits.dim() != 2 or (logits.shape[1] == 1 and not labels_are_free):
        raise UnsupportedModel(f"{type(model).__name__} gives no probabilities of classes: a classifier is needed")
    if not bool(torch.isfinite(logits).all()):
        raise UnsupportedModel(f"{type(model).__name__} returns logits that are not numbers once units are hidden")
    return logits.double().sigmoid() if labels_are_free else logits.double().softmax(-1)


@dataclass(frozen=True)
class Search:
    """A text to be searched: its row, its units as positions, and the class whose probability is to fall."""

    row: Row
    units: Sequence[Positions]
    target: int


@dataclass(frozen=True)
class _Path:
    """The units hidden so far, in order, and the sum of the probabilities on the way."""

    order: tuple[int, ...]
    total: float


def best_orders(
    outcomes: Outcomes, searches: Sequence[Search], classes: int, *, hide: Hide = "delete", beam: int = 1
) -> list[list[int]]:
    """An order of hiding that makes the probability fall fast: of each text the numbers of its units.

    One unit at a time, the unit whose hiding lowers the probability most; with a `beam`, that many orders are followed,
    those with the lowest sum of probabilities so far. What it finds is a lower bound of the best (Zhou & Shah 2023).
    Texts go on side by side, so that the engine can batch them.
    """
    longest = max((len(search.units) for search in searches), default=0)
    if longest > LONGEST_SEARCH:
        raise BadInput(f"a text of {longest} units is too long to be searched: at most {LONGEST_SEARCH}")
    if beam < 1:
        raise BadOption(f"beam must be at least 1; found {beam}")
    paths = [[_Path((), 0.0)] for _ in searches]
    for step in range(longest):
        going = [n for n, search in enumerate(searches) if step < len(search.units)]
        grown = {n: _grown(paths[n], len(searches[n].units)) for n in going}
        rows = [_without(searches[n], path, hide, outcomes.fillers) for n in going for path in grown[n]]
        said = iter(outcomes.of(rows, classes))
        for n in going:
            found = [_Path(p.order, p.total + float(next(said)[searches[n].target])) for p in grown[n]]
            paths[n] = sorted(found, key=lambda path: path.total)[:beam]
    return [list(found[0].order) for found in paths]


def _grown(paths: Sequence[_Path], units: int) -> list[_Path]:
    """The paths, each one unit longer; of those that hide the same units, the one with the lowest sum so far."""
    best: dict[frozenset[int], _Path] = {}
    for path in paths:
        for unit in range(units):
            grown = _Path((*path.order, unit), path.total)
            same = best.get(frozenset(grown.order))
            if unit not in path.order and (same is None or same.total > path.total):
                best[frozenset(grown.order)] = grown
    return list(best.values())


def _without(search: Search, path: _Path, hide: Hide, fillers: Fillers) -> Row:
    return hidden(search.row, [p for unit in path.order for p in search.units[unit]], hide, fillers)


def count_of(share: float, units: int, up: bool = False) -> int:
    """A share of the units as a count: the nearest, half up; or the next higher."""
    exact = round(share * units, 9)  # 0.7 * 45 is 31.5, whatever binary fractions say
    return math.ceil(exact) if up else math.floor(exact + 0.5)
