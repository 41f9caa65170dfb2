"""Runner: the one engine that runs a model on inputs with units hidden, each once, in dense batches."""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from whyformer.errors import BadOption, UnsupportedModel
from whyformer.inputs.hiding import Hide
from whyformer.inputs.input import Flags, Numbers, TensorInput, present
from whyformer.models.borrow import borrowed, lock_of
from whyformer.models.limits import limits_of, may_pad
from whyformer.models.loading import device_of, input_embeddings, unwrapped
from whyformer.models.state import State
from whyformer.perturb.batches import dense_batches, in_turns
from whyformer.perturb.dropping import dropping
from whyformer.perturb.flights import Flights
from whyformer.perturb.out_of_memory import in_halves
from whyformer.perturb.prefixes import Behind, Prefixes
from whyformer.progress import report
from whyformer.recorder.captures import PADDED
from whyformer.recorder.embeddings import TokenEmbeddings
from whyformer.recorder.masking import masks
from whyformer.tasks.classes import Classes
from whyformer.tasks.score import classes_of
from whyformer.tasks.task import call_of, output_of

UNSEEN = "the embeddings of single tokens were not seen, and tokens are replaced there"

FEW = 512  # rows for which torch wakes no other threads, which would take longer than their probabilities

Read = Callable[[Any], Tensor]  # from what a model returns to the numbers that are kept, [batch, outputs]


@dataclass
class Counts:
    """What the engine did: inputs that were asked for, inputs and tokens that were run, padding among those tokens.

    `reused` are the tokens that were not run again, because another input begins with them too.
    """

    requested: int = 0
    run: int = 0
    tokens: int = 0
    padding: int = 0
    batches: int = 0
    reused: int = 0

    def add(self, other: "Counts") -> None:
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
        read: Read,
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
        self.counts = Counts()
        self._flights, self._lock = Flights(self.device), lock_of(self.model)
        self._steps: Iterator[None] | None = None  # of what is being launched
        self._state: State | None = None  # of the model, as long as nothing was exchanged in it
        self._known: dict[bytes, Numbers] = {}  # outputs by the key of their input
        self._waiting: dict[bytes, TensorInput] = {}
        self._launched: set[bytes] = set()  # those that wait for what is on its way
        self._planned = 0  # inputs that were asked about, and will be again
        self._planning = False
        self._made: dict[tuple[bytes, Hide], dict[bytes, TensorInput]] = defaultdict(dict)  # by what is hidden

    def without(self, whole: TensorInput, gone: Flags, hide: Hide) -> list[TensorInput]:
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


def _class_logits(task: Classes, model: str, output: Any) -> Tensor:
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
