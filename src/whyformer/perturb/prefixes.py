"""Prefixes: the tokens that inputs of a causal model begin with alike are run once, and then only what follows them.

A position of a causal model sees what stands before it, so that inputs which differ from place p on have the same keys
and values before p. Whether that is true of a model is not taken on trust: `Prefixes.checked` runs an input both ways.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from whyformer.inputs.input import TensorInput, together
from whyformer.models.cache import known
from whyformer.models.lend import parameters_of
from whyformer.models.load import text_config
from whyformer.tolerance import close

CALL = 1 / 64  # what a call costs beside its tokens, as a share of the tokens that a device runs at once
FURTHER = 2  # a model is checked again on inputs that are longer by this factor than any on which it was
REFUSED = 0
PRECISE = torch.float32  # what stands before is the same up to its rounding, whatever the dtype of the model

CHECKED = "longest input with a correct prefix"

KeyValues = Sequence[tuple[Tensor, Tensor]]  # keys and values of each layer, [batch, heads, units, width]
ModelCall = Callable[..., Any]  # runs the model: inputs, their tensors, further arguments → what it returns


class Prefix:
    """The keys and values of the first tokens of an input, of which a run may take fewer."""

    def __init__(self, layers: KeyValues):
        self.layers = layers

    def cache(self, start: int) -> Any:
        """What a model of transformers takes as the past of a batch: the first `start` tokens, for every row."""
        from transformers import DynamicCache

        cache = DynamicCache()
        cache.layers = [_fixed_layer(keys[:, :, :start], values[:, :, :start]) for keys, values in self.layers]
        return cache

    def drop(self) -> None:
        """Free the memory; what is still to be run is run whole."""
        self.layers = ()

    def __bool__(self) -> bool:
        return bool(self.layers)


class Behind(NamedTuple):
    """Inputs that are run together, behind their first `start` tokens; whole without a prefix."""

    inputs: list[TensorInput]
    start: int = 0
    prefix: Prefix | None = None

    def part(self, inputs: Sequence[TensorInput]) -> "Behind":
        """The same with some of its inputs; whole if the prefix had to be dropped."""
        return Behind(list(inputs), self.start, self.prefix) if self.prefix else Behind(list(inputs))

    @property
    def sections(self) -> list[TensorInput]:
        """What of each input is run."""
        return [section(one, self.start, len(one)) for one in self.inputs] if self.start else self.inputs

    def tensors(self, device: torch.device) -> dict[str, Tensor]:
        """What the model is given for what is run; the mask is that of the whole inputs."""
        tensors = together(self.sections, device)
        if self.start and "attention_mask" in tensors:
            before = torch.from_numpy(np.asarray(self.inputs[0].tensors["attention_mask"][: self.start]))
            mask = tensors["attention_mask"]
            tensors["attention_mask"] = torch.cat((before.to(mask).expand(len(mask), -1), mask), 1)
        return tensors

    def past(self) -> dict[str, Any]:
        """The model's arguments that stand for the first tokens."""
        return {"past_key_values": self.prefix.cache(self.start), "use_cache": True} if self.prefix else {}


@dataclass(frozen=True)
class PrefixPlan:
    """How inputs that begin alike are run: the beginning of `source` once, and batches behind some of it."""

    source: TensorInput
    batches: tuple[Behind, ...]

    @property
    def length(self) -> int:
        """How many tokens are run once."""
        return max(batch.start for batch in self.batches)

    def cost(self, call: float) -> float:
        """What it costs, in tokens; `call` is the cost of each call beside its tokens."""
        return self.length + call + sum(_size(batch.inputs, batch.start) + call for batch in self.batches)


class Prefixes:
    """What an engine asks before it runs inputs: which of them share a beginning that need not be run again.

    `call` runs the model. `kept` is the one position at which the model speaks, where an output has positions; it is
    always run. A batch holds as many inputs as if they were run whole: at most `most`, and as many tokens as `budget`.
    """

    def __init__(self, model: nn.Module, call: ModelCall, *, kept: int | None, budget: int, most: int | None):
        self.model, self.call, self.kept = model, call, kept
        self.budget, self.most = budget, most

    def plans(self, inputs: Sequence[TensorInput]) -> tuple[list[PrefixPlan], list[TensorInput]]:
        """The plans that cost less than whole runs, and the inputs that are left to be run whole."""
        if known(self.model).get(CHECKED) == REFUSED or not takes_a_past(self.model):
            return [], list(inputs)
        plans, left = [], [one for one in inputs if not _is_text(one)]
        for alike in _families(filter(_is_text, inputs)):
            starts = [min(shared(one), self._last_start(one)) for one in alike]
            plan = self._plan(alike, starts) if any(starts) else None
            if plan is None:
                left += alike
            else:
                plans.append(plan)
                left += [one for one, start in zip(alike, starts, strict=True) if not start]
        return plans, left

    def prefix(self, plan: PrefixPlan) -> Prefix | None:
        """The keys and values that a plan reuses; None if it is to be run whole after all, which costs more."""
        try:
            return self._run(plan.source, plan.length) if self.checked(plan) else None
        except torch.OutOfMemoryError:
            return None

    def checked(self, plan: PrefixPlan) -> bool:
        """Whether the model says the same behind a prefix as of whole inputs: tried once, and again on longer ones."""
        facts, length = known(self.model), len(plan.source)
        longest = facts.get(CHECKED)
        if longest is None or REFUSED < longest * FURTHER < length:
            try:
                longest = length if self._is_right(plan) else REFUSED
            except torch.OutOfMemoryError:
                raise
            except Exception:  # noqa: BLE001 - code of others, which may not take a past: then inputs are run whole
                longest = REFUSED
            facts[CHECKED] = longest
        return bool(longest != REFUSED)

    def _is_right(self, plan: PrefixPlan) -> bool:
        """Run an input and its beginning, whole and behind half of that, and compare."""
        start = max(1, plan.length // 2)
        both = [plan.source, section(plan.source, 0, max(start + 1, plan.length))]
        whole = self._called(Behind(both), use_cache=True)
        layers = plain_layers(whole.past_key_values, 2)
        if layers is None or not all(_independent(states, start) for layer in layers for states in layer):
            return False
        behind = self._called(Behind(both, start, self._run(plan.source, start)))
        return bool(torch.isfinite(whole.logits).all()) and close(behind.logits, whole.logits, PRECISE)

    def _run(self, source: TensorInput, length: int) -> Prefix | None:
        """The keys and values of the first tokens of an input, if they are plain tensors."""
        beginning = section(source, 0, length, exchanged=False)
        output = self._called(Behind([beginning]), kept=0, use_cache=True)
        layers = plain_layers(output.past_key_values, 1)
        return None if layers is None else Prefix(layers)

    def _called(self, batch: Behind, *, kept: int | None = None, **more: Any) -> Any:
        return self.call(batch, self.kept if kept is None else kept, **batch.past(), **more)

    def _plan(self, inputs: Sequence[TensorInput], starts: Sequence[int]) -> PrefixPlan | None:
        """How to run inputs that begin alike, if that costs less than whole runs."""
        rows = sorted(zip(starts, inputs, strict=True), key=lambda row: (row[0], -len(row[1])))
        rows = [row for row in rows if row[0]]
        call = CALL * self.budget
        batches = tuple(_cut(rows, self.budget, self.most or len(rows), call))
        plan = PrefixPlan(rows[-1][1], batches)
        return plan if plan.cost(call) < sum(len(one) for _, one in rows) else None

    def _last_start(self, one: TensorInput) -> int:
        """Where the run has to start at the latest.

        Classifiers read the last token that is not their padding token and is attended to, so that one is run; and
        there is no padding before the start, because some models give it no position.
        """
        ids, padding = np.asarray(one.tensors["input_ids"]), getattr(text_config(self.model), "pad_token_id", None)
        real = np.asarray(one.tensors.get("attention_mask", np.ones(len(ids)))).astype(bool) & (ids != padding)
        last = min(int(np.flatnonzero(real).max(initial=0)), int(np.flatnonzero(~real).min(initial=len(ids))))
        return last if self.kept is None else min(last, self.kept)


@contextmanager
def running_whole(model: nn.Module) -> Iterator[None]:
    """In it, inputs of a model are run whole, as those of models that cannot reuse anything."""
    facts = known(model)
    before = facts.get(CHECKED)
    facts[CHECKED] = REFUSED
    try:
        yield
    finally:
        facts[CHECKED] = before


def takes_a_past(model: nn.Module) -> bool:
    """Whether a model can be given keys and values, and those of a token do not depend on how long the text is."""
    names = parameters_of(model)
    if "past_key_values" not in names or "use_cache" not in names:
        return False
    written = getattr(getattr(model, "config", None), "is_encoder_decoder", False)
    return not written and not any(_depends_on_length(module) for module in model.modules())


def _depends_on_length(module: nn.Module) -> bool:
    """Whether a module turns keys by angles that change once a text is long."""
    kinds = getattr(module, "rope_type", "")
    several = kinds.values() if isinstance(kinds, Mapping) else [kinds]
    return any("dynamic" in str(kind) or "longrope" in str(kind) for kind in several)


def plain_layers(cache: Any, rows: int) -> KeyValues | None:
    """The keys and values in what a model returns; None if they are not whole tensors, as those of sliding windows."""
    from transformers.cache_utils import DynamicCache, DynamicLayer

    stored: list[Any] = list(cache.layers) if type(cache) is DynamicCache else []
    if not stored or any(type(layer) is not DynamicLayer or not layer.is_initialized for layer in stored):
        return None
    layers = [(layer.keys, layer.values) for layer in stored]
    shapes = {(states.dim(), len(states), states.shape[-2]) for layer in layers for states in layer}
    return layers if len(shapes) == 1 and shapes.pop()[:2] == (4, rows) else None


def _fixed_layer(keys: Tensor, values: Tensor) -> Any:
    """A layer of a cache that lets a run look at keys and values [1, heads, units, width], and keeps nothing of it."""
    from transformers.cache_utils import DynamicLayer

    layer: Any = DynamicLayer()
    layer.lazy_initialization(keys, values)
    layer.keys, layer.values = keys, values
    layer.update = partial(_behind, keys, values)
    return layer


def _behind(
    keys: Tensor, values: Tensor, new_keys: Tensor, new_values: Tensor, *_: Any, **__: Any
) -> tuple[Tensor, Tensor]:
    """All keys and values that a batch sees: those of the prefix before its own."""
    rows = len(new_keys)
    return (
        torch.cat((keys.expand(rows, -1, -1, -1), new_keys), -2),
        torch.cat((values.expand(rows, -1, -1, -1), new_values), -2),
    )


def _independent(states: Tensor, start: int) -> bool:
    """Whether two rows that begin alike, [2, heads, units, width], have the same states there."""
    return close(states[0, :, :start].float(), states[1, :, :start].float(), PRECISE)


def section(one: TensorInput, first: int, last: int, *, exchanged: bool = True) -> TensorInput:
    """Some neighbouring tokens of an input, with what is said of each."""
    gone = None if one.gone is None or not exchanged else one.gone[first:last]
    tensors = {name: values[first:last] for name, values in one.tensors.items()}
    return TensorInput(tensors, fillers=one.fillers, gone=gone, instead=one.instead)


def shared(one: TensorInput) -> int:
    """How many tokens an input has in common with the whole one that units of it were hidden in, from the first on."""
    whole = one if one.whole is None else one.whole
    same = np.ones(min(len(one), len(whole)), dtype=bool)
    if one.gone is not None:
        same &= ~one.gone[: len(same)]
    for name, values in one.tensors.items():
        ones = np.ones(len(whole), dtype=np.int64) if name == "attention_mask" else None
        others = whole.tensors.get(name, ones)
        if others is None:
            return 0
        if values is not others:
            differs = np.asarray(values)[: len(same)] != np.asarray(others)[: len(same)]
            same &= ~differs.reshape(len(same), -1).any(1)
    return len(same) if same.all() else int(same.argmin())


def _families(inputs: Iterable[TensorInput]) -> list[list[TensorInput]]:
    """Inputs by the whole one that units of them were hidden in."""
    families: dict[Hashable, list[TensorInput]] = defaultdict(list)
    for one in inputs:
        whole = one if one.whole is None else one.whole
        families[id(whole), frozenset(one.tensors)].append(one)
    return list(families.values())


def _is_text(one: TensorInput) -> bool:
    """Whether an input is made of tokens, and of what is said of each."""
    arrays = [values for values in one.tensors.values() if not isinstance(values, Tensor)]
    return len(arrays) == len(one.tensors) and "input_ids" in one.tensors and {len(a) for a in arrays} == {len(one)}


def _cut(rows: Sequence[tuple[int, TensorInput]], budget: int, most: int, spare: float) -> Iterator[Behind]:
    """Inputs with where each may start, the longest to run first, cut where a batch is full or runs much in vain."""
    start, batch, needed = 0, list[TensorInput](), 0
    for first, one in rows:
        longer = [*batch, one]
        full = len(longer) > most or len(longer) * max(map(len, longer)) > budget
        if batch and (full or _size(longer, start) - needed - (len(one) - first) > spare):
            yield Behind(batch, start)
            batch = []
        if not batch:
            start, longer, needed = first, [one], 0
        batch, needed = longer, needed + len(one) - first
    if batch:
        yield Behind(batch, start)


def _size(inputs: Sequence[TensorInput], start: int) -> int:
    """How many tokens are run for a batch, padding among them."""
    return len(inputs) * (max(map(len, inputs)) - start)
