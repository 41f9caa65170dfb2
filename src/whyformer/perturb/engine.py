"""The engine: runs a model on inputs with units hidden, each distinct input once, in dense batches.

`Runner` plans the batches, so that padding and calls cost the least, and lets a GPU compute while Python goes on.
`Copies` is the explained output of one example as a function of which units are there. `effects` and `remains` say what
any task predicts without some units. For a long context, the window that holds the answer is found first.
"""

import itertools
import math
from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import islice
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from whyformer.arrays import BoolArray
from whyformer.async_copy import Landing
from whyformer.caching import cached_property
from whyformer.errors import BadInput, BadOption, UnsupportedModel
from whyformer.inputs.batch import Batch, TextInput
from whyformer.inputs.hiding import Hide, hide_named
from whyformer.inputs.images import ImageInput, Patches
from whyformer.inputs.input import Fillers, Kind, Numbers, Places, TensorInput, present, together
from whyformer.models.lend import borrowed, lock_of, parameters_of
from whyformer.models.load import device_of, input_embeddings, text_config, unwrapped
from whyformer.models.memory import limits_of, may_pad
from whyformer.models.snapshot import State
from whyformer.perturb.drop_patches import dropping
from whyformer.perturb.out_of_memory import in_halves
from whyformer.perturb.prefixes import Behind, Prefixes
from whyformer.prediction import Prediction
from whyformer.progress import report
from whyformer.recorder import Needs
from whyformer.recorder.capture.captures import PADDED
from whyformer.recorder.capture.mask_hints import masks
from whyformer.recorder.function_mode import TokenEmbeddings
from whyformer.tasks.classification import Classification
from whyformer.tasks.question_answering import Answers, best_span, best_window, null_scores
from whyformer.tasks.regression import classes_of
from whyformer.tasks.task import ModelOutputs, Task, call_of, output_of

T = TypeVar("T")


def dense_batches(items: Sequence[T], lengths: Sequence[int], budget: int, most: int, call: int) -> list[list[T]]:
    """Items of these lengths in batches, those of the longest ones first.

    A batch has at most `budget` tokens, padding among them, and at most so many items. Items of one length stay
    together; neighbouring lengths share batches where their padding costs less than another call, which costs as much
    as `call` tokens beside its own.
    """
    by_length = defaultdict[int, list[T]](list)
    for item, length in zip(items, lengths, strict=True):
        by_length[length].append(item)
    longest_first = sorted(by_length, reverse=True)
    ends = _batch_ends([(length, len(by_length[length])) for length in longest_first], budget, most, call)
    batches: list[list[T]] = []
    first = 0
    while first < len(ends):
        together = list(itertools.chain(*(by_length[length] for length in longest_first[first : ends[first]])))
        calls = math.ceil(len(together) / _fitting(longest_first[first], budget, most))
        size = math.ceil(len(together) / calls)
        batches += [together[start : start + size] for start in range(0, len(together), size)]
        first = ends[first]
    return batches


def in_turns(batches: Sequence[list[TensorInput]]) -> list[list[TensorInput]]:
    """Large and small batches in turns: whichever a GPU is given, together they take it about as long.

    The largest comes first: if memory is short, that is mostly seen at once.
    """
    left = deque(sorted(batches, key=lambda batch: (len(batch) * len(batch[0]), len(batch[0]))))
    return [left.popleft() if number % 2 else left.pop() for number in range(len(left))]


def _batch_ends(by_length: Sequence[tuple[int, int]], budget: int, most: int, call: int) -> list[int]:
    """For each length, where the lengths end that it shares batches with, if it is the longest of them.

    They are given with how many items have them. The cheapest way to cut the shortest lengths is known before that of
    longer ones is looked for.
    """
    costs, ends = [0] * (len(by_length) + 1), [0] * len(by_length)
    for first in reversed(range(len(by_length))):
        longest, _ = by_length[first]
        rows, padding, ways = 0, 0, list[tuple[int, int]]()
        for end, (length, count) in enumerate(by_length[first:], first + 1):
            rows += count
            padding += count * (longest - length)
            if padding > call * (end - first - 1):  # each length by itself would cost less
                break
            calls = math.ceil(rows / _fitting(longest, budget, most))
            ways.append((padding + calls * call + costs[end], end))
        costs[first], ends[first] = min(ways)
    return ends


def _fitting(longest: int, budget: int, most: int) -> int:
    """How many items fit in a batch: one at least."""
    return max(1, min(most, budget // longest))


@dataclass(frozen=True, eq=False)
class Hideable:
    """One text of a batch and the units of it that may be hidden.

    A *place* is counted in the text without padding, a *position* in the padded batch. `number` says which of the batch
    it is, `positions` where its places stand there, and `units` which places each unit has.
    """

    number: int
    input: TensorInput
    positions: Numbers
    units: tuple[Places, ...]

    def places_left(self, gone: Places, hide: Hide) -> list[int]:
        """The places that are still there once some are hidden: what stands in their stead counts."""
        if not hide.shortens or isinstance(self.input, ImageInput):
            return list(range(len(self.input)))
        away = set(gone)
        return [place for place in range(len(self.input)) if place not in away]


def hideable(prediction: Prediction, units: Kind, hide: Hide) -> tuple[Hideable, ...]:
    """The texts of a prediction, each with the units that may be hidden: tokens that are not special, or words.

    An output that is said at a position, as an answer or the next token, needs that position: the unit there stays,
    unless a token that is attended to takes its place. What stands behind it in a causal model cannot matter to it,
    and stays too.
    """
    texts = []
    for number, (one, padding) in enumerate(zip(prediction.inputs, prediction.padding.cpu().numpy(), strict=True)):
        positions = np.flatnonzero(~padding)
        kept = _needed(prediction, number, positions, hide)
        groups = tuple(group for group in one.groups(units) if not kept.intersection(group))
        texts.append(Hideable(number, one, positions, groups))
    return tuple(texts)


def remains(
    prediction: Prediction,
    texts: Sequence[Hideable],
    gone: Sequence[Places],
    hide: Hide,
    *,
    needs: Needs | None = None,
) -> Prediction:
    """The prediction of the same outputs for some of its texts, each with the places hidden that are gone."""
    rows = [text.input.without(away, hide) for text, away in zip(texts, gone, strict=True)]
    if any(row.gone is not None for row in rows):
        raise BadOption(
            f"hide={hide.name!r} is not possible: it exchanges embeddings, and what is left is explained from its "
            "tokens; use hide='mask' or 'delete'"
        )
    left = [text.places_left(away, hide) for text, away in zip(texts, gone, strict=True)]
    batch, padding = _batch_of(prediction, rows)
    versus = None if prediction.versus is None else _moved(prediction, prediction.versus, texts, left)
    return Prediction(
        prediction.model,
        batch,
        chosen=(_moved(prediction, prediction.target, texts, left), versus),
        padding=padding if hide.attended else None,
        needs=needs,
    )


def _batch_of(prediction: Prediction, rows: Sequence[TensorInput]) -> tuple[Batch, Tensor]:
    """What is left of some examples of a prediction as one batch, and which positions are padding."""
    device, whole = prediction.padding.device, prediction.batch
    tensors = together(rows, device)
    if whole.is_images:
        images = tuple(row.settled(device) for row in rows if isinstance(row, ImageInput)) if whole.examples else ()
        first = [0] * len(rows)  # images have the same special units, and no padding
        return replace(whole.rows(first), tensors=tensors, examples=images), prediction.padding[first]
    shape = tuple(tensors["input_ids"].shape)
    special, padding = np.zeros(shape, dtype=bool), np.ones(shape, dtype=bool)
    for n, row in enumerate(rows):
        padding[n, : len(row)] = False
        if row.special is not None:  # not so where one token stands for nothing
            special[n, : len(row)] = row.special
    examples = tuple(row for row in rows if isinstance(row, TextInput))
    batch = Batch(
        tensors,
        tensors["attention_mask"].eq(0),
        None if whole.special is None else torch.from_numpy(special).to(device),
        examples if len(examples) == len(rows) else (),
        whole.tokenizer,
    )
    return batch, torch.from_numpy(padding).to(device)


def _needed(prediction: Prediction, number: int, positions: Numbers, hide: Hide) -> set[int]:
    """The places that are never hidden, because the explained output is said there or before."""
    order, said_at = positions.tolist(), prediction.said_at(number)
    stays = said_at if hide.shortens or not hide.attended else []
    behind = [p for p in order if prediction.task.causal and said_at and p > max(said_at)]
    return {order.index(p) for p in (*stays, *behind)}


def _moved(prediction: Prediction, target: Tensor, texts: Sequence[Hideable], left: Sequence[list[int]]) -> Tensor:
    """The target of each text, with its positions as they are counted in what is left."""
    places = [
        {int(position): place for place, position in enumerate(text.positions[remaining])}
        for text, remaining in zip(texts, left, strict=True)
    ]
    return prediction.task.moved(target[[text.number for text in texts]], places)


@dataclass(frozen=True)
class Outcome:
    """What was said of one input: the explained output, and of the target its probability and its log-odds.

    The log-odds of a target that is set against another output are those of the two alone. Without a probability there
    are no log-odds.
    """

    output: float
    probability: float | None = None
    log_odds: float | None = None


@dataclass(frozen=True)
class Hidden:
    """Some places of a text that are hidden."""

    text: Hideable
    places: Places


def outcomes_of(prediction: Prediction) -> list[Outcome]:
    """What is said of each whole input."""
    return _outcomes(replace(prediction.outputs, attended=~prediction.padding), prediction)


def outcomes_without(prediction: Prediction, hidden: Sequence[Hidden], hide: Hide) -> list[Outcome]:
    """What is said once units are hidden, a few inputs at a time, by the plain model without a graph."""
    done: list[Outcome] = []

    def run(some: Sequence[Hidden]) -> None:
        texts, places = [one.text for one in some], [one.places for one in some]
        done.extend(_run(prediction.task, remains(prediction, texts, places, hide)))

    for batch in _batches(prediction, hidden):
        in_halves(run, batch)
    return done


def _run(task: Task, left: Prediction) -> list[Outcome]:
    """What the plain model says of what is left, which nobody records."""
    model, tensors = unwrapped(left.model), left.batch.tensors
    with torch.no_grad(), borrowed(model, tensors) as (lent, arguments):
        logits = task.logits(output_of(lent, call_of(lent, arguments)()))
    if logits is None or not bool(torch.isfinite(logits).all()):
        raise UnsupportedModel(f"{type(model).__name__} returns logits that are not numbers once units are hidden")
    mask = tensors.get("attention_mask", logits.new_ones(len(logits), 1))
    return _outcomes(ModelOutputs(logits, task, mask.bool()), left)


def _outcomes(outputs: ModelOutputs, of: Prediction) -> list[Outcome]:
    """For the targets of a prediction."""
    task, target, versus = outputs.task, of.target, of.versus
    rows = outputs.in_rows(target), None if versus is None else outputs.in_rows(versus)
    explained = task.output(outputs.logits.detach(), *rows).double().tolist()
    odds = task.odds(outputs, target)
    if odds is None:
        return [Outcome(output) for output in explained]
    of_two = odds if versus is None else task.output(outputs.logits.detach().double(), *rows)
    shares = odds.sigmoid().tolist()
    return [Outcome(*numbers) for numbers in zip(explained, shares, of_two.tolist(), strict=True)]


def _batches(prediction: Prediction, hidden: Sequence[Hidden]) -> Iterator[Sequence[Hidden]]:
    """As many as the device runs at once."""
    logits, units = prediction.outputs.logits, prediction.padding.shape[1]
    limits = limits_of(logits.device)
    most = limits.tokens // units
    if prediction.task.form == "token":
        most = min(most, limits.logits // (units * logits.shape[-1]))
    most = most if may_pad(prediction.model) else 1
    for start in range(0, len(hidden), max(1, most)):
        yield hidden[start : start + max(1, most)]


AHEAD = {"cuda": 4}  # batches that a type of device has to do: it works on while Python reads the next examples
ENOUGH = {"cuda": 2**18}  # tokens: while there are fewer in all, twice as many batches may be on their way
STREAMS = 2  # that take turns


class Flight(NamedTuple):
    """Inputs, and their outputs, which land on the CPU."""

    inputs: Sequence[TensorInput]
    landing: Landing

    @property
    def tokens(self) -> int:
        """About how many there are, if the first input is as long as others."""
        return len(self.inputs) * len(self.inputs[0])

    @property
    def is_over(self) -> bool:
        """Whether the outputs are there."""
        return self.landing.is_over

    @property
    def outputs(self) -> Tensor:
        """The outputs, once they are there."""
        return self.landing.tensors[0]


class Flights:
    """The batches of one engine that are on their way, in order: at most `AHEAD`, or twice as many small ones.

    Models of transformers look at masks on the CPU, unless they are told that there is padding, and wait for whatever
    their stream has to do before. So streams take turns. Inputs are kept until their outputs are there: no memory is
    given to others that a stream still reads.
    """

    def __init__(self, device: torch.device):
        self.device = device
        self._most, self._enough = AHEAD.get(device.type, 0), ENOUGH.get(device.type, 0)
        self._flying: deque[Flight] = deque()
        self._launched = 0
        self._streams = _streams(device)

    @property
    def run_ahead(self) -> bool:
        """Whether Python goes on before a batch is computed."""
        return self._most > 0

    @property
    def count(self) -> int:
        """How many batches are on their way."""
        return len(self._flying)

    @property
    def has_room(self) -> bool:
        """Whether the device could do with something more."""
        return self._may_fly(len(self._flying) + 1)

    def begin(self) -> None:
        """What was asked of the device before, as changes to weights, is done before what is launched from now on."""
        for stream in self._streams:
            stream.wait_stream(torch.cuda.current_stream(self.device))

    def join(self) -> None:
        """What was launched aside is done before what is launched from now on, and not aside."""
        for stream in self._streams:
            torch.cuda.current_stream(self.device).wait_stream(stream)

    def launch(self, inputs: Sequence[TensorInput], run: Callable[[], Tensor], *, aside: bool) -> None:
        """Compute the outputs of inputs; `aside`, on one of the streams that take turns, or else in line."""
        with self._stream() if aside else nullcontext():
            self._flying.append(Flight(inputs, Landing(run().double())))

    def arrived(self, most: int | None = None) -> Iterator[Flight]:
        """Those whose outputs are there; it is waited until at most so many, or as many as may be, are on their way."""
        while self._flying and (self._are_more_than(most) or self._flying[0].is_over):
            flight = self._flying.popleft()
            flight.landing.wait()
            yield flight

    def forget(self) -> None:
        """Let go of those that are on their way."""
        for _ in self.arrived(0):
            pass

    def _are_more_than(self, most: int | None) -> bool:
        count = len(self._flying)
        return not self._may_fly(count) if most is None else count > most

    def _may_fly(self, count: int) -> bool:
        """Whether so many may be on their way."""
        if self._most < count <= 2 * self._most:
            return sum(flight.tokens for flight in islice(self._flying, count - 1)) < self._enough
        return count <= self._most

    def _stream(self) -> AbstractContextManager[object]:
        if not self._streams:
            return nullcontext()
        self._launched += 1
        return torch.cuda.stream(self._streams[self._launched % len(self._streams)])


@lru_cache
def _streams(device: torch.device) -> tuple[torch.cuda.Stream, ...]:
    """Those that take turns, the same for all engines: torch keeps memory for each stream."""
    return tuple(torch.cuda.Stream(device) for _ in range(STREAMS)) if device.type == "cuda" else ()


UNSEEN = "the embeddings of single tokens were not seen, and tokens are replaced there"

FEW = 512  # rows for which torch wakes no other threads, which would take longer than their probabilities

ReadOutput = Callable[[Any], Tensor]  # from what a model returns to the numbers that are kept, [batch, outputs]


@dataclass
class RunCounts:
    """What the engine did: inputs that were asked for, inputs and tokens that were run, padding among those tokens.

    `reused` are the tokens that were not run again, because another input begins with them too.
    """

    requested: int = 0
    run: int = 0
    tokens: int = 0
    padding: int = 0
    batches: int = 0
    reused: int = 0

    def add(self, other: "RunCounts") -> None:
        """Count what another engine did."""
        for name, count in vars(other).items():
            setattr(self, name, getattr(self, name) + count)


class Runner:
    """Inputs in, logits out: each different input is run once.

        with runner.planning():
            ask(runner)            # notes what is asked; the answers are placeholders
        runner.advance()           # if there is something else to do: a GPU begins
        runner.run()               # everything at once, without duplicates, sorted by length
        ask(runner)                # the answers

    An input that was not planned is run when it is asked for. Results are kept until `forget`. `read` takes from what
    the model returns the numbers that are wanted. `kept` is the one position at which a model that speaks at all of
    them has to, if it can be told; `most` is how many inputs a batch may hold. `reuse`: `read` looks at no position but
    that, so that a causal model need not run again what inputs begin with alike. What is done is reported after every
    batch: of the inputs that wait, or of those that are `expected` in all, not at all if these are 0. `elsewhere`
    counts those that others run.
    """

    def __init__(
        self,
        model: nn.Module,
        read: ReadOutput,
        *,
        kept: int | None = None,
        reuse: bool = False,
        tokens_per_batch: int | None = None,
        most: int | None = None,
        expected: int | None = None,
    ):
        self.model = unwrapped(model)
        self.device = device_of(self.model)
        self.budget = tokens_per_batch or limits_of(self.device).tokens
        self.read, self.kept, self.most = read, kept, most
        reuse = reuse and may_pad(self.model)
        self.prefixes = Prefixes(self.model, self._call, kept=kept, budget=self.budget, most=most) if reuse else None
        self.expected, self.elsewhere = expected, 0
        self.counts = RunCounts()
        self._flights, self._lock = Flights(self.device), lock_of(self.model)
        self._steps: Iterator[None] | None = None  # of what is being launched
        self._state: State | None = None  # of the model, as long as nothing was exchanged in it
        self._known: dict[bytes, Numbers] = {}  # outputs by the key of their input
        self._waiting: dict[bytes, TensorInput] = {}
        self._launched: set[bytes] = set()  # those that wait for what is on its way
        self._planned = 0  # inputs that were asked about, and will be again
        self._planning = False
        self._made: dict[tuple[bytes, Hide], dict[bytes, TensorInput]] = defaultdict(dict)  # by what is hidden

    def without(self, whole: TensorInput, gone: BoolArray, hide: Hide) -> list[TensorInput]:
        """An input with other units hidden in each, [inputs, units]: what is hidden in two of them is hidden once."""
        made, units, flags = self._made[whole.key, hide], len(whole), gone.tobytes()
        keys = [flags[start : start + units] for start in range(0, len(flags), units)]
        if missing := [key for key in dict.fromkeys(keys) if key not in made]:
            some = np.frombuffer(b"".join(missing), dtype=bool).reshape(len(missing), units)
            made.update(zip(missing, whole.without_each(some, hide), strict=True))
        return [made[key] for key in keys]

    @contextmanager
    def planning(self) -> Iterator[None]:
        """Within it, questions are only noted."""
        self._planning = True
        try:
            yield
        finally:
            self._planning = False

    def logits(self, inputs: Sequence[TensorInput], outputs: int) -> Tensor:
        """The outputs for each input, [inputs, outputs] in float64; while planning, zeros."""
        keys = [one.key for one in inputs]
        for key, one in zip(keys, inputs, strict=True):
            if key not in self._known:
                self._waiting.setdefault(key, one)
        if self._planning:
            self.counts.requested += len(inputs)
            self._planned += len(inputs)
            return torch.zeros(len(inputs), outputs, dtype=torch.float64)
        self._run_until_known(keys)
        counted = min(self._planned, len(inputs))
        self._planned -= counted
        self.counts.requested += len(inputs) - counted
        known = [self._known[key] for key in keys]
        return torch.from_numpy(np.array(known)) if known else torch.zeros(0, outputs, dtype=torch.float64)

    def run(self) -> None:
        """Run what is waiting, or the rest of it."""
        while self._waiting:
            self._go_on()

    def _run_until_known(self, keys: Sequence[bytes]) -> None:
        """Run as much of what is waiting as it takes to know these outputs; a GPU goes on with the rest."""
        while any(key not in self._known for key in keys):
            self._go_on()

    def _go_on(self) -> None:
        """Launch the next batch, and take what is there; behind the last batch, the first on its way is waited for."""
        try:
            if self._steps is None and self.waiting:
                self._steps = self._launching()
            if self._steps is not None and next(self._steps, self) is self:  # all of it is on its way
                self._steps = None
            self._learn(None if self._steps or self.waiting else self._flights.count - 1)
        except BaseException:
            self._stop()
            raise

    def advance(self) -> None:
        """Launch what is waiting, as far as a GPU has room: it works while Python does something else.

        On other devices nothing is done before `run`.
        """
        self._learn()
        while self._flights.has_room:
            if self._steps is None and self.waiting:
                self._steps = self._launching()
            if self._steps is None:
                return
            if next(self._steps, self) is self:  # all of it is on its way
                self._steps = None

    @property
    def waiting(self) -> int:
        """The number of inputs that are neither known nor on their way."""
        return len(self._waiting) - len(self._launched)

    def _learn(self, most: int | None = None) -> None:
        """Take what is there; it is waited until at most so many batches are on their way."""
        for flight in self._flights.arrived(most):
            self._launched.difference_update(one.key for one in flight.inputs)
            if not bool(torch.isfinite(flight.outputs).all()):
                raise UnsupportedModel(
                    f"{type(self.model).__name__} returns logits that are not numbers once units are hidden"
                )
            for one, outputs in zip(flight.inputs, flight.outputs.numpy(), strict=True):
                self._known[one.key] = outputs
                self._waiting.pop(one.key, None)

    def _stop(self) -> None:
        """Let go of what is being run."""
        self._steps = None
        self._flights.forget()
        self._launched.clear()

    def _launching(self) -> Iterator[None]:
        """Launch what is waiting, a batch at a time."""
        with self._lock:
            if self._state is not None and not self._state.holds():
                self._state = None
            self._flights.begin()
            if self._state is None and self._flights.run_ahead:
                self._state = State(self.model)
        kinds: dict[Hashable, list[TensorInput]] = defaultdict(list)
        for key, one in self._waiting.items():
            if key not in self._launched:
                kinds[one.kind].append(one)
        done, total = 0, sum(map(len, kinds.values()))
        for alike in kinds.values():
            for batch in self._batches(alike):
                in_halves(partial(self._launch_part, batch), batch.inputs)
                done += len(batch.inputs)
                self.report(done, total)
                yield

    def report(self, done: int, total: int) -> None:
        """Report what is done of the inputs that are expected in all, or of those that waited."""
        if self.expected is None:
            report(done, total)
        elif self.expected:
            report(min(self.counts.run + self.elsewhere, self.expected), self.expected)

    def know(self, inputs: Sequence[TensorInput], logits: Tensor) -> None:
        """Take the outputs for inputs, [inputs, outputs] in float64, from whoever ran the same model on them."""
        for one, outputs in zip(inputs, logits.numpy(), strict=True):
            self._known.setdefault(one.key, outputs)

    def forget(self) -> None:
        """Drop all results and questions, so that memory does not grow from chunk to chunk."""
        self._stop()
        self._known.clear()
        self._waiting.clear()
        self._planned = 0
        self._made.clear()

    def _batches(self, inputs: Sequence[TensorInput]) -> Iterator[Behind]:
        """Inputs of one kind as they are run: behind what some begin with alike, the others whole."""
        plans, left = ([], list(inputs)) if self.prefixes is None else self.prefixes.plans(inputs)
        for plan in plans:
            prefix = None if self.prefixes is None else self.prefixes.prefix(plan)
            if prefix is None:
                left += [one for batch in plan.batches for one in batch.inputs]
                continue
            self.counts.batches += 1
            self.counts.tokens += plan.length
            for batch in plan.batches:
                yield batch._replace(prefix=prefix)
        call = limits_of(self.device).call if may_pad(self.model) else 0
        lengths = list(map(len, left))
        for group in in_turns(dense_batches(left, lengths, self.budget, self.most or len(left), call)):
            yield Behind(group)

    def _launch_part(self, batch: Behind, inputs: Sequence[TensorInput]) -> None:
        """Launch some inputs of a batch."""
        self._launch(batch.part(inputs))
        self._launched.update(one.key for one in inputs)

    def _launch(self, batch: Behind) -> None:
        """Have a batch computed: aside, if neither its inputs nor anything in the model was made on another stream."""
        made_here = batch.prefix is None and not any(isinstance(v, Tensor) for v in batch.inputs[0].tensors.values())
        aside = made_here and self._lies_still()
        self._flights.launch(batch.inputs, partial(self._run, batch), aside=aside)
        if aside:
            self._lies_still()

    def _lies_still(self) -> bool:
        """Whether runs leave the model as it was; others are one after the other, for they may read what one left."""
        with self._lock:
            if self._state is not None and not self._state.holds():
                self._state = None
                self._flights.join()
            return self._state is not None

    def _run(self, batch: Behind) -> Tensor:
        outputs = self._outputs(batch)
        if outputs is None:  # one input behind a prefix that takes the memory which it would need
            batch = batch.part(batch.inputs)
            outputs = self._outputs(batch)
        assert outputs is not None
        rows, length = len(batch.inputs), max(map(len, batch.inputs))
        self.counts.run += rows
        self.counts.batches += 1
        self.counts.tokens += rows * (length - batch.start)
        self.counts.padding += rows * length - sum(map(len, batch.inputs))
        self.counts.reused += rows * batch.start
        return outputs

    def _outputs(self, batch: Behind) -> Tensor | None:
        """What is kept of the outputs of a batch; None, and no prefix any more, where memory is short for one input."""
        try:
            return self.read(self._call(batch, self.kept, **batch.past()))
        except torch.OutOfMemoryError:
            if batch.prefix is None or len(batch.inputs) > 1:
                raise
            batch.prefix.drop()
            return None

    def _call(self, batch: Behind, kept: int | None, **more: Any) -> Any:
        """What the plain model returns, without a graph; it speaks at the position that is kept alone."""
        if kept is not None:
            more["logits_to_keep"] = torch.tensor([kept - batch.start], device=self.device)
        sections = batch.sections
        dropped = dropping(self.model, sections)
        with (
            torch.no_grad(),
            masks(needed=self._needs_masks(batch)),
            borrowed(self.model, batch.tensors(self.device), **more) as (model, arguments),
            exchanging(model, sections, arguments.get("input_ids")),
            dropped,
        ):
            return output_of(model, call_of(model, arguments)())

    def _needs_masks(self, batch: Behind) -> bool | None:
        """Whether anything of a batch is masked, if that is known here: a GPU would be waited for."""
        if len({len(one) for one in batch.sections}) > 1:
            return True
        given = [one.tensors.get("attention_mask") for one in batch.inputs]
        own = [mask for mask in given if isinstance(mask, np.ndarray)]
        if not self._flights.run_ahead or batch.start or len(own) < len(given):
            return None
        is_masked = not bool(np.concatenate(own).all())
        has_others = not batch.inputs[0].tensors.keys() <= PADDED  # which may mask something too, or tell texts apart
        return None if has_others and not is_masked else is_masked


class Outcomes(Runner):
    """The engine for classifiers: probabilities of classes."""

    def __init__(self, model: nn.Module, *, tokens_per_batch: int | None = None):
        plain = unwrapped(model)
        self.task = classes_of(plain)
        read = partial(_class_logits, self.task, type(plain).__name__)
        super().__init__(plain, read, reuse=True, tokens_per_batch=tokens_per_batch)

    def of(self, inputs: Sequence[TensorInput], classes: int) -> Tensor:
        """The probabilities for each input, [inputs, classes]; while planning, equal ones."""
        logits = self.logits(inputs, classes)
        if self._planning:
            return self._shares(logits[:1]).expand_as(logits)
        return torch.cat([self._shares(few) for few in logits.split(FEW)]) if len(logits) else logits

    def _shares(self, logits: Tensor) -> Tensor:
        shares = self.task.probabilities(logits)
        assert shares is not None  # `_class_logits` refuses what has none
        return shares

    def know(self, inputs: Sequence[TensorInput], shares: Tensor) -> None:
        """Take the probabilities of inputs, [inputs, classes], from whoever ran the same model on them."""
        super().know(inputs, shares.logit() if self.task.multi_label else shares.log())


def _class_logits(task: Classification, model: str, output: Any) -> Tensor:
    logits = task.logits(output)
    if logits is None or task.probabilities(logits) is None:
        raise UnsupportedModel(f"{model} gives no probabilities of classes: a classifier is needed")
    return logits


def exchanging(model: nn.Module, inputs: Sequence[TensorInput], ids: Tensor | None) -> AbstractContextManager[Any]:
    """In it, the model looks up another token's embedding, or zeros, for those tokens `ids` that are gone."""
    there = None if ids is None else present(inputs, ids.device)
    if ids is None or there is None:
        return nullcontext()
    return _Exchanging(model, ids, there, next(one.instead for one in inputs if one.gone is not None))


class _Exchanging(TorchFunctionMode):
    """In it, a model looks up another token's embedding, or zeros, for tokens that are not there."""

    def __init__(self, model: nn.Module, ids: Tensor, there: Tensor, instead: int | None):
        super().__init__()
        weight = getattr(input_embeddings(model), "weight", None)
        self.present, self.instead = there, instead
        self.tokens = TokenEmbeddings(weight, ids, self._exchanged)

    def _exchanged(self, values: Tensor) -> Tensor:
        if values.shape[:2] != self.present.shape:
            raise BadOption(f"{UNSEEN}: they are looked up in the shape {tuple(values.shape)}")
        weight = self.tokens.weight
        other = torch.zeros_like(values[0, 0]) if self.instead is None or weight is None else weight[self.instead]
        return torch.where(self.present[:, :, None], values, other.to(values))

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        super().__exit__(kind, error, trace)  # type: ignore[no-untyped-call]
        if kind is None and self.tokens.leaf is None:
            raise BadOption(f"{UNSEEN}: they were not looked up")

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if func is not F.embedding:
            return result
        named = dict(zip(("input", "weight"), args, strict=False)) | (kwargs or {})
        return self.tokens.looked_up(named["weight"], named["input"], result)


WITH_GRADIENTS = 4  # a run that keeps a graph takes this many times the memory
LEEWAY = {torch.float64: 1e-8, torch.float32: 1e-4}  # between two runs of one text, as a share of its largest logit
ROUGH = 0.05  # in half precision, or where matrices are multiplied with less than float32


class Copies:
    """One example of a prediction, alone and without padding, and the explained output when units are hidden.

    `positions` says where its units stand in the batch; what a causal model cannot see from where it speaks is left
    out. `free` marks the units that may be hidden: all but special tokens. Where what takes their place has an
    embedding and is attended to, the embedding alone is exchanged: the model is told the same token ids, so neither
    positions nor what the head reads move. `evaluations` counts the copies that were run; each different one is run
    once.
    """

    def __init__(self, prediction: Prediction, row: int, hide: Hide, fillers: Fillers):
        self.model: nn.Module = unwrapped(prediction.model)
        self.hide, self.task = hide, prediction.task
        self.positions = _positions(prediction, row)
        self.patches = prediction.patches
        places = {position: place for place, position in enumerate(self.positions.tolist())}
        target, versus = prediction.target, prediction.versus
        self._said_at = {places[position] for position in prediction.said_at(row)}
        self.target = self.task.moved(target[row : row + 1], [places])
        self.versus = None if versus is None else self.task.moved(versus[row : row + 1], [places])
        self.units = len(self.positions)
        where, count = self.positions.numpy(), prediction.padding.shape[1]
        self.exchanges = hide.embeds and hide.attended
        self.input = prediction.batch.alone(
            row, where, count, fillers, patches=self.patches, attended=not self.exchanges
        )
        if hide.shortens and self._said_at:
            raise BadOption(
                f"baseline={hide.name!r} is not possible: the output is said at a position, which would move; use "
                "baseline='mask'"
            )
        self.free = _free(prediction, row, self.positions, self.patches)
        self.dtype = torch.promote_types(prediction.outputs.logits.dtype, torch.float32)
        self.device = prediction.outputs.logits.device
        self.vocabulary = prediction.outputs.logits.shape[-1] if self.task.form == "token" else 0
        kept = self._kept
        self.runner = Runner(
            self.model,
            partial(_explained, self.task, self.target, self.versus, kept),
            kept=kept,
            reuse=kept is not None or not self._said_at,
            most=self.at_once(whole_vocabulary=kept is None),
            expected=0,
        )
        if self.positions.tolist() != list(range(self.units)):
            self._keep_places(prediction, row)

    @property
    def evaluations(self) -> int:
        """How many copies were run."""
        return self.runner.counts.run + self.runner.elsewhere

    def ran(self, count: int) -> None:
        """Count copies that were run elsewhere, with their gradients."""
        self.runner.elsewhere += count
        self.runner.report(count, count)

    def _keep_places(self, prediction: Prediction, row: int) -> None:
        """Units that stood behind padding are told their old positions where these matter; raise if that is not all."""
        logits = prediction.outputs.logits[row].detach()
        exact = logits.dtype == torch.float64 or torch.get_float32_matmul_precision() == "highest"
        leeway = LEEWAY.get(logits.dtype, ROUGH) if exact else ROUGH
        due = float(prediction.trace.output(*prediction.asked)[row].detach())
        everything, within = torch.ones(1, self.units), leeway * float(logits.abs().max())
        output = float(self.outputs(everything))
        if abs(output - due) > within and "position_ids" in self._takes and "position_ids" not in self.input.tensors:
            self.input = replace(self.input, tensors={**self.input.tensors, "position_ids": self.positions.numpy()})
            self.runner.forget()
            output = float(self.outputs(everything))
        if abs(output - due) > within:
            raise BadInput(
                f"this method runs a text without its padding, and {type(self.model).__name__} then says {output:.6g} "
                f"instead of {due:.6g}: padding stands before or inside the text; pad on the right, or give texts one "
                "by one"
            )

    def seed(self, seed: int) -> int:
        """The seed of this example's own random stream: it depends on `seed` and on its tokens alone."""
        nothing = torch.zeros(1, self.units, dtype=torch.bool)
        alone = Prediction(self.model, Batch(self.copies(1), None, None), padding=nothing)
        return alone.generators(seed)[0].initial_seed()

    def at_once(self, *, gradients: bool = False, whole_vocabulary: bool = False) -> int:
        """How many copies are run together."""
        fitting = limits_of(self.device).tokens // (WITH_GRADIENTS if gradients else 1) // self.units
        if self.vocabulary and whole_vocabulary:
            fitting = min(fitting, limits_of(self.device).logits // (self.units * self.vocabulary))
        nameless = "input_ids" not in self.input.tensors and getattr(text_config(self.model), "pad_token_id", 0) is None
        return 1 if nameless and "inputs_embeds" in self.input.tensors else max(1, fitting)  # GPT-2 asks for padding

    def outputs(self, present: Tensor) -> Tensor:
        """The explained output, [copies], for copies with these units there, [copies, units] of zeros and ones."""
        gone = ((present.cpu() <= 0.5) & self.free).numpy()
        inputs = [self.without(np.flatnonzero(row).tolist()) for row in gone]
        return self.runner.logits(inputs, 1)[:, 0].to(self.dtype)

    def of_free(self, present: Tensor) -> Tensor:
        """The explained output, [copies], for copies with these of the free units there, [copies, free]."""
        rows = torch.ones(len(present), self.units, dtype=torch.float32)
        rows[:, self.free] = present.cpu().float()
        return self.outputs(rows)

    def without(self, places: list[int]) -> TensorInput:
        """A copy with the units at some places hidden."""
        return self.hide.exchange(self.input, places) if self.exchanges else self.input.without(places, self.hide)

    def copies(self, count: int) -> dict[str, Tensor]:
        """What the model is given for the example, so many times."""
        return together([self.input] * count, self.device)

    @cached_property
    def _takes(self) -> frozenset[str]:
        """The names of what the model's forward takes."""
        return frozenset(parameters_of(self.model))

    @cached_property
    def _kept(self) -> int | None:
        """The one position at which a model with a vocabulary at every position has to speak, if it can be told."""
        alone = self.task.form == "token" and len(self._said_at) == 1 and "logits_to_keep" in self._takes
        return next(iter(self._said_at)) if alone else None


def _explained(task: Task, target: Tensor, versus: Tensor | None, kept: int | None, output: Any) -> Tensor:
    """The explained output, [copies, 1], of what a model returns; `kept` is the one position that it kept."""
    logits = task.logits(output)
    assert logits is not None  # the same model gave some for the whole example
    if kept is not None and logits.shape[1] == 1:
        target, versus = task.moved(target, [{kept: 0}]), None if versus is None else task.moved(versus, [{kept: 0}])
    return task.output(logits, target, versus)[:, None]


def copies_of(prediction: Prediction, baseline: str | Hide, *, on_path: bool = False) -> Iterator[Copies]:
    """The examples of a prediction, one after the other; `on_path`: paths begin where units are hidden."""
    hide, fillers = hide_named(baseline), Fillers.of(prediction.model, prediction.batch.tokenizer)
    if on_path and not (hide.embeds and hide.attended):
        raise BadOption(
            f"baseline={hide.name!r} is not possible: a path begins at embeddings that take the place of the units, "
            "and there are none that are attended to; use baseline='zero', 'pad_attended', 'mask' or 'unk'"
        )
    return (Copies(prediction, row, hide, fillers) for row in range(len(prediction.padding)))


def _positions(prediction: Prediction, row: int) -> Tensor:
    """The positions of an example that are no padding, up to where a causal model speaks."""
    real = (~prediction.padding[row]).nonzero().flatten().cpu()
    last = max(prediction.said_at(row), default=len(prediction.padding[row]))
    later = real[real > last]
    if not len(later) or prediction.trace.embeddings is None:
        return real
    unseen = not bool(prediction.embedding_gradients[row, later.to(prediction.padding.device)].any())
    return real[real <= last] if unseen else real


def _free(prediction: Prediction, row: int, positions: Tensor, patches: Patches | None) -> Tensor:
    """Which units may be hidden, [units]."""
    free = torch.ones(len(positions), dtype=torch.bool) if patches is None else torch.from_numpy(patches.free).clone()
    if prediction.batch.special is not None:
        free &= ~prediction.batch.special[row].cpu().bool()[positions]
    return free


class WindowRunner(Runner):
    """The engine for windows of contexts: where in each the answer may start and end."""

    def __init__(self, model: nn.Module, windows: Sequence[TextInput], *, tokens_per_batch: int | None = None):
        self.width = max(map(len, windows), default=0)
        read = partial(_start_and_end, self.width, type(model).__name__)
        super().__init__(model, read, tokens_per_batch=tokens_per_batch)
        with self.planning():
            self._ends_of(windows)

    def explained(self, windows: Sequence[TextInput], target: Any = None) -> TextInput:
        """Of the windows of one context, the one that is explained: that of the best answer, or of a target."""
        if len(windows) == 1:
            return windows[0]
        whole = self._ends_of(windows).view(len(windows), 2, self.width)
        logits = [both[:, : len(window)] for both, window in zip(whole, windows, strict=True)]
        number = best_window(logits, windows, target)
        chosen, nothing = windows[number], null_scores(logits, windows)
        assert chosen.window is not None
        answered = target is None and (not nothing or min(nothing) <= best_span(logits[number], chosen))
        return replace(chosen, window=replace(chosen.window, answered=answered))

    def _ends_of(self, windows: Sequence[TextInput]) -> Tensor:
        return self.logits([attended(window) for window in windows], 2 * self.width)


def attended(whole: TextInput) -> TextInput:
    """A text whose tokens are all attended to, for the engine to pad."""
    return replace(whole, tensors={**whole.tensors, "attention_mask": np.ones(len(whole), dtype=np.int64)})


def _start_and_end(width: int, name: str, output: Any) -> Tensor:
    """The logits of start and end, [batch, 2 * width], with zeros for padding."""
    logits = Answers().logits(output)
    if logits is None:
        raise UnsupportedModel(f"{name} gives no start and end of an answer")
    return F.pad(logits, (0, width - logits.shape[-1])).flatten(1)
