"""Task: what a model says. One subclass for each kind of output; everything else asks it."""

import itertools
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import SimpleNamespace
from typing import Any, ClassVar, Literal, Self, get_args

import torch
from torch import Tensor, nn

from whyformer.errors import BadInput, BadOption, nearest, shown
from whyformer.inputs.batch import ReadInput, TextInput
from whyformer.inputs.tensors import CONTENT, accepts, first_argument, of_transformers
from whyformer.inputs.text import Text, texts_of
from whyformer.models.auto_classes import HEADS, task_name
from whyformer.models.load import labels_of
from whyformer.number_checks import refuse_if
from whyformer.registry.names import Registry
from whyformer.tasks.targets import Label, Predicted, Settled, Target, plain_target

Chosen = int | tuple[int, ...]  # an output of one example, as plain numbers; -1 for a part that is left out
RUNNER_UP = "runner_up"  # the most probable output beside the target
ALL_OTHERS = -2  # in place of the class that a target is set against: all others, so that its log-odds are explained

Explains = Literal["logit", "log_odds"]
FEW_NUMBERS = 2**22  # that are copied from a device at once


def explained_as(versus: Chosen | None) -> Explains:
    """What of a target is explained that is set against an output, if any."""
    return "log_odds" if versus == ALL_OTHERS else "logit"


@dataclass(frozen=True)
class ModelOutputs:
    """A model's logits, in the graph, and the task that knows what they mean."""

    logits: Tensor
    task: "Task"
    attended: Tensor  # [batch, units]: what is no padding
    of_images: bool = False  # whether pixels were among what the model was given
    kept: tuple[int, ...] | None = None  # the positions that have logits, in order, if not all do

    def rows_at(self, positions: Tensor) -> Tensor:
        """Where among the logits those of positions are."""
        if self.kept is None:
            return positions
        kept = torch.tensor(self.kept, device=positions.device)
        rows = torch.searchsorted(kept, positions.contiguous()).clamp(max=len(kept) - 1)
        refuse_if(
            (kept[rows] != positions).any(),
            BadOption(f"this run kept the outputs at the positions {list(self.kept)} alone"),
        )
        return rows

    def in_rows(self, chosen: Tensor) -> Tensor:
        """Targets, with rows of the logits in place of positions where only some of these have logits."""
        if self.kept is None:
            return chosen
        return torch.cat((chosen[:, :1], self.rows_at(chosen[:, 1:])), 1)

    def near(self) -> "ModelOutputs":
        """The same without the graph, on the CPU if they are few: whoever asks of each example waits for them once."""
        if self.logits.device.type == "cpu" or self.logits.numel() > FEW_NUMBERS:
            return self
        return replace(self, logits=self.logits.detach().cpu(), attended=self.attended.cpu())

    def default_quantity(self, quantity: Explains) -> Explains:
        """The quantity that a method explains here, given the one that it declares.

        Log-odds only where the task has them by default: texts of more than two classes, and next tokens.
        """
        fits = self.task.log_odds_by_default(self.logits.shape[-1]) and not self.of_images
        return quantity if fits else "logit"

    @property
    def predicted(self) -> Tensor:
        """The predicted targets, as `chosen` gives them."""
        return self.task.best(self)

    def chosen(self, target: Target) -> Tensor:
        """A target for each example: [batch], or [batch, numbers] with -1 for a part left out.

        A tuple is one target, a list holds one for each example.
        """
        if isinstance(target, Settled):
            return target.numbers
        written = plain_target(target)
        if written is None:
            return self.predicted
        batch = len(self.logits)
        written = self.task.several(written)
        each = written if isinstance(written, list) else [written] * batch
        if len(each) != batch:
            raise BadOption(f"{len(each)} targets for {batch} examples: give one, or one for each")
        chosen = [self.task.parsed(one, self, row) for row, one in enumerate(each)]
        self.task.check_alike(chosen, target)
        return torch.tensor(chosen, device=self.logits.device)

    def set_against(self, chosen: Tensor, versus: Target) -> Tensor:
        """What the chosen outputs are set against, in the same form: of every example another output."""
        if isinstance(versus, str) and versus == RUNNER_UP:
            return self.task.runners_up(self, chosen)
        against = self.against(versus)
        if are_all_others(against):
            self.explained("log_odds", None)
            return against
        self.task.check_against(chosen, against)
        same = (against == chosen).reshape(len(chosen), -1).all(1).nonzero().flatten().tolist()
        if same:
            example = f" of example {same[0]}" if len(chosen) > 1 else ""
            raise BadOption(
                f"target and versus{example} are the same, {self.task.called(chosen[same[0]].tolist())}, so there is "
                "nothing to explain: give another, or leave versus out"
            )
        return against

    def against(self, versus: Target) -> Tensor:
        """Outputs that others are set against, as `chosen` gives them; of all other classes none in particular."""
        if isinstance(versus, Settled):
            return versus.numbers
        written = plain_target(versus)
        if written and isinstance(written, list) and all(one in (ALL_OTHERS, ()) for one in written):
            return torch.empty(len(written), 0, dtype=torch.long, device=self.logits.device)
        return self.chosen(versus)

    def explained(self, explains: Explains | None, versus: Target, quantity: Explains = "logit") -> Target:
        """What targets are set against so that this is explained: `versus`, all other classes, or nothing.

        Without `explains`, it is the `quantity` that the method declares, where the task has it by default.
        """
        if explains is not None and explains not in get_args(Explains):
            raise BadOption(f"explains={shown(explains)} is not known; {nearest(str(explains), get_args(Explains))}")
        misfit = self.task.log_odds_misfit(self.logits.shape[-1])
        if explains == "log_odds" and misfit:
            raise BadOption(
                f"explains='log_odds' is for models that predict one of several classes or tokens; {misfit}"
            )
        if explains == "log_odds" and versus is not None:
            raise BadOption("explains='log_odds' sets the target against all other classes: leave it or versus out")
        if versus is not None or (explains or self.default_quantity(quantity)) == "logit":
            return versus
        return [ALL_OTHERS] * len(self.logits)


def are_all_others(against: Tensor | None) -> bool:
    """Whether targets are set against all other classes, of which none in particular is named: [batch, 0]."""
    return against is not None and against.dim() == 2 and against.shape[1] == 0


@dataclass(frozen=True)
class Asked:
    """What of an example a person wants explained; None where nothing was said.

    `quantity` is what the method explains unless `explains` is given.
    """

    target: Any = None
    versus: Any = None
    word: Any = None
    position: Any = None
    explains: Explains | None = None
    quantity: Explains = "logit"


@dataclass(frozen=True)
class ExampleOutputs:
    """What a model gave for one text of a batch: the outputs, and the text as the model saw it.

    Where the text has several rows, `row` is the first of them, and `examples` are what the model saw in each.
    """

    outputs: ModelOutputs
    row: int
    example: ReadInput
    tokenizer: Any = None
    examples: tuple[ReadInput, ...] = ()

    @property
    def text(self) -> TextInput:
        """The text, for tasks that no image is asked about."""
        assert isinstance(self.example, TextInput)
        return self.example

    @property
    def of_rows(self) -> Tensor:
        """The first logit of each row that the text has, in float64, without the graph."""
        return self.outputs.logits[self.row : self.row + len(self.examples), 0].detach().double().cpu()

    @property
    def logits(self) -> Tensor:
        """The logits of this example, in float64, without the graph; padding is still among them."""
        return self.outputs.logits[self.row].detach().double().cpu()

    def at(self, position: int) -> Tensor:
        """The logits of one position, where there are some at each."""
        row = int(self.outputs.rows_at(torch.tensor(position)))
        return self.outputs.logits[self.row, row].detach().double().cpu()


@dataclass(frozen=True)
class Task(ABC):
    """What a model says: how it is read from the model's output, how a target is written, and what it is called.

    A task belongs to one model: `labels` are the names of its classes, where it has any. Tensors of targets are
    [batch] or [batch, numbers], as `parsed` gives them for one example.
    """

    labels: tuple[str, ...] = ()

    name: ClassVar[str]
    head: ClassVar[str | None] = None  # of transformers' AutoModelFor<head>, the models that have this task
    gives: ClassVar[str]  # what such a model returns, and
    does: ClassVar[str]  # does, for errors
    form: ClassVar[Literal["classes", "answer", "token"]] = "classes"
    takes: ClassVar[frozenset[str]] = frozenset()  # which of `word` and `position` it understands
    in_parts: ClassVar[bool] = False  # whether an output is the sum of several logits, explained one by one
    causal: ClassVar[bool] = False  # whether a position sees only what stands before it
    by_rows: ClassVar[bool] = False  # whether a text has several rows, and its outputs are one of each
    compares: ClassVar[bool] = False  # whether an output is of two inputs, each explained with the other held fixed

    @classmethod
    def of(cls, model: nn.Module) -> Self:
        """The task of a model."""
        return cls(labels_of(model))

    @classmethod
    def fits(cls, model: nn.Module) -> bool:
        """Whether a model has this task rather than the usual one of its head, if it is not that itself."""
        return False

    def arguments(self, tensors: Mapping[str, Any]) -> dict[str, Any]:
        """How a batch of texts, [batch, units] each, is handed to the model's forward."""
        return dict(tensors)

    @abstractmethod
    def logits(self, output: Any) -> Tensor | None:
        """The numbers that can be explained, in a model's output; None if they are not there."""

    def check(self, outputs: ModelOutputs, model: nn.Module) -> None:
        """Raise where a model's outputs are not what people can be told about: by default they are."""
        return

    # What it is given

    def inputs(self, text: Any, question: Any, context: Any, choices: Any) -> tuple[Iterable[Any], bool]:
        """The texts or pairs that a person means, if the model takes them; and whether it is a single one."""
        if question is not None or context is not None:
            raise BadInput(f"this model answers no questions, it {self.does}: give a text or a pair")
        if choices is not None:
            raise BadInput(f"this model chooses from no choices, it {self.does}: leave choices= out")
        if text is None:
            raise BadInput("there is nothing to explain: a text or a pair (text, text) is needed")
        several = texts_of(text)
        return ([text], True) if several is None else (several, False)

    def rows(self, text: Any) -> list[Text]:
        """The texts or pairs that the model reads for one of the `inputs`: by default that one."""
        return [text]

    # Which number is explained

    @abstractmethod
    def best(self, outputs: ModelOutputs) -> Tensor:
        """The predicted target of each example."""

    @abstractmethod
    def parsed(self, target: Any, outputs: ModelOutputs, row: int) -> Chosen:
        """A target as plain numbers, for one example of ready tensors."""

    def several(self, target: Any) -> Any:
        """A plain target, with a list where it means one for each example, and a tuple where it is one."""
        return target

    def check_alike(self, chosen: Sequence[Chosen], target: Target) -> None:
        """Raise if targets cannot be explained together: by default they can."""
        return

    def check_against(self, chosen: Tensor, against: Tensor) -> None:
        """Raise if targets cannot be set against others: by default they can."""
        return

    @abstractmethod
    def runners_up(self, outputs: ModelOutputs, chosen: Tensor) -> Tensor:
        """The most probable output beside the chosen one, of each example."""

    @abstractmethod
    def parts(self, logits: Tensor, chosen: Tensor) -> list[Tensor]:
        """The explained numbers, each [batch] as an index of the flattened logits; their sum is the output."""

    def output(self, logits: Tensor, chosen: Tensor, versus: Tensor | None = None) -> Tensor:
        """The explained outputs of logits [batch, …]: the target's, its distance from that of `versus`, or log-odds.

        Targets of one example serve for a batch of its copies.
        """
        if are_all_others(versus):
            return self.log_odds(logits, chosen)
        flat = logits.flatten(1)
        signed = [(1, part) for part in self.parts(logits, chosen)]
        signed += [] if versus is None else [(-1, part) for part in self.parts(logits, versus)]
        outputs = [sign * flat.gather(1, part.expand(len(flat))[:, None]).squeeze(1) for sign, part in signed]
        return torch.stack(outputs).sum(0)

    def starts(self, logits: Tensor, chosen: Tensor, versus: Tensor | None) -> Iterator[Tensor]:
        """What each backward pass from logits starts from: 1 at a part of the target, -1 at that part of `versus`.

        For log-odds, 1 at the target, and at each other output minus its share among the others.
        """
        if are_all_others(versus):
            yield self.log_odds_start(logits.detach(), chosen)
            return
        flat = logits.detach().flatten(1)
        against = [] if versus is None else self.parts(logits, versus)
        for part, other in itertools.zip_longest(self.parts(logits, chosen), against):
            start = torch.zeros_like(flat).scatter_(1, part[:, None], 1)
            if other is not None:
                start.scatter_add_(1, other[:, None], torch.full_like(flat[:, :1], -1))
            yield start.view_as(logits)

    def log_odds_misfit(self, classes: int) -> str | None:
        """Why the log-odds of an output are not explained, if they are not: by default there are no classes."""
        return f"this one {self.does}: leave it out"

    def log_odds_by_default(self, classes: int) -> bool:
        """Whether a method that declares log-odds explains them here unless it is asked for something else."""
        return False

    def log_odds(self, logits: Tensor, chosen: Tensor) -> Tensor:
        """`log(p / (1 - p))` of the chosen outputs, [batch], in the graph of the logits."""
        raise BadOption(self.log_odds_misfit(logits.shape[-1]))

    def log_odds_start(self, logits: Tensor, chosen: Tensor) -> Tensor:
        """The derivative of `log_odds` at the logits, in their shape."""
        raise BadOption(self.log_odds_misfit(logits.shape[-1]))

    def single(self, chosen: Tensor) -> list[Tensor]:
        """The targets that are explained one by one and added up: by default the target itself."""
        return [chosen]

    def positions(self, chosen: Tensor) -> Tensor:
        """The positions at which the outputs are said, [batch, positions]; none for a class, -1 for a part left out."""
        return chosen.new_zeros((len(chosen), 0))

    def moved(self, chosen: Tensor, places: Sequence[Mapping[int, int]]) -> Tensor:
        """The same targets in other rows; `places` has the new position of each old one, for each example."""
        return chosen

    def read_by(self, logits: Tensor, chosen: Tensor) -> Tensor:
        """The logits [batch, numbers] that are asked where the head reads: by default all."""
        return logits

    # How probable it is

    def probabilities(self, logits: Tensor) -> Tensor | None:
        """The probabilities that logits mean, in float64 and of the same shape; None where they mean none."""
        return None

    def odds(self, outputs: ModelOutputs, chosen: Tensor) -> Tensor | None:
        """The log-odds of the chosen outputs, [batch] in float64; None where they have no probability."""
        return None

    def loss(self, logits: Tensor, chosen: Tensor, versus: Tensor | None) -> Tensor:
        """Cross-entropy of the explained output, [batch]."""
        raise BadOption("the loss is that of a classifier: explain the logit")

    # What people write and read

    def questions(self, of: ExampleOutputs, asked: Asked) -> list[tuple[Chosen, Chosen | None]]:
        """The outputs of one text that are to be explained, each with the one it is set against, if any."""
        self.refuse_places(asked)
        chosen = self.best_in(of) if asked.target is None else self.written(asked.target, of)
        return [(chosen, self.against(of, chosen, asked.versus))]

    def against(self, of: ExampleOutputs, chosen: Chosen, versus: Any) -> Chosen | None:
        """What one output of a text is set against."""
        if versus is None:
            return None
        return self.runner_up_in(of, chosen) if versus == RUNNER_UP else self.written(versus, of)

    def any_in(self, of: ExampleOutputs) -> Chosen:
        """Some output of a text of which nothing is to be explained, while others of its batch are explained."""
        return self.best_in(of)

    def refuse_places(self, asked: Asked) -> None:
        """Raise for a word or position where the task has none."""
        for name in ("word", "position"):
            if name not in self.takes and getattr(asked, name) is not None:
                raise BadOption(
                    f"{name}={shown(getattr(asked, name))} means nothing to a model that {self.does}: leave it out"
                )

    def best_in(self, of: ExampleOutputs) -> Chosen:
        """What the model predicts for one text."""
        return _plain(self.best(of.outputs)[of.row])

    def written(self, target: Any, of: ExampleOutputs) -> Chosen:
        """A target of one text as a person writes it."""
        return self.parsed(target, of.outputs, of.row)

    def runner_up_in(self, of: ExampleOutputs, chosen: Chosen) -> Chosen:
        """The most probable output of one text beside the chosen one."""
        rows = torch.tensor([chosen] * len(of.outputs.logits), device=of.outputs.logits.device)
        return _plain(self.runners_up(of.outputs, rows)[of.row])

    def called(self, chosen: Any) -> str:
        """An output in an error."""
        return str(chosen)

    @abstractmethod
    def label(self, of: ExampleOutputs, chosen: Chosen, beside: Chosen | None = None) -> Label:
        """What people read for an output, `beside` another one that it is set against."""

    @abstractmethod
    def predicted(self, of: ExampleOutputs, chosen: Chosen, versus: Chosen | None) -> Predicted:
        """What people read of the model's prediction, where the chosen output is explained."""


def log_odds(logits: Tensor, chosen: Tensor) -> Tensor:
    """`log(p / (1 - p))`, [batch], of one of the outputs [batch, outputs] of which one is true.

    The others are added up, so that 1 - p keeps its digits where p is all but 1.
    """
    at = chosen.expand(len(logits))[:, None]
    return logits.gather(1, at).squeeze(1) - others_than(logits, chosen).logsumexp(-1)


def log_odds_start(logits: Tensor, chosen: Tensor) -> Tensor:
    """The derivative of `log_odds` at the logits [batch, outputs]."""
    at = chosen.expand(len(logits))[:, None]
    return -others_than(logits, chosen).softmax(-1).scatter(1, at, -1)


def others_than(logits: Tensor, chosen: Tensor) -> Tensor:
    """The logits [batch, outputs] with -inf in place of the chosen one."""
    return logits.scatter(1, chosen.expand(len(logits))[:, None], -torch.inf)


TASKS: Registry[type[Task]] = Registry("task", "tasks")


def register(task: type[Task]) -> type[Task]:
    """Make a task known by its name, and to models of its head; a decorator of its class."""
    if TASKS.known.get(task.name) is not task:
        TASKS.add(task.name, task, task.__module__)
    if task.head is not None and task.head not in HEADS.known:
        HEADS.add(task.head, task.name, task.__module__)
    return task


def task_of(model: nn.Module) -> Task | None:
    """The task of a model, by its class; None where that does not tell."""
    name = task_name(model)
    return None if name is None or name not in TASKS else _of(TASKS[name], model)


def arguments_of(model: nn.Module, tensors: Mapping[str, Any]) -> dict[str, Any]:
    """How a batch of rows is handed to a model's forward."""
    task, first = task_of(model), first_argument(model)
    if first is not None and not of_transformers(model):  # those of timm call pixels x
        renamed = {name: first.name for name in CONTENT if not accepts(model, name)}
        tensors = {renamed.get(name, name): tensor for name, tensor in tensors.items()}
    return dict(tensors) if task is None else task.arguments(tensors)


def call_of(model: nn.Module, tensors: Mapping[str, Any]) -> "partial[Any]":
    """The call of a model on a batch of rows: by the names of its arguments, or in order where it has none."""
    arguments, first = arguments_of(model, tensors), first_argument(model)
    if first is not None and first.kind in (first.POSITIONAL_ONLY, first.VAR_POSITIONAL) and first.name in arguments:
        return partial(model, arguments.pop(first.name), **arguments)
    return partial(model, **arguments)


def output_of(model: nn.Module, output: Any) -> Any:
    """What a model returned, with attributes as transformers has them, if it is not of those."""
    if of_transformers(model) or hasattr(output, "logits"):
        return output
    if isinstance(output, dict):
        return SimpleNamespace(**output)
    classifies = (task_name(model) or "classes") == "classes"  # of an answer, the first would be one of two
    return output[0] if isinstance(output, tuple) and output and classifies else output


def said_by(model: nn.Module, output: Any) -> tuple[Tensor, Task] | None:
    """A model's logits and what they mean: by its class, or else by their form; None if there are none."""
    first = task_of(model)
    forms = [_of(TASKS[name], model) for name in ("answer", "classes", "token")]
    for task in forms if first is None else [first, *forms]:
        logits = task.logits(output)
        if logits is not None:
            return logits, task
    return None


def _of(usual: type[Task], model: nn.Module) -> Task:
    """The task of a model: the usual one of its head, or another that fits."""
    others = (task for task in TASKS.values() if task.head == usual.head and task.fits(model))
    return next(others, usual).of(model)


def _plain(chosen: Tensor) -> Chosen:
    numbers = chosen.tolist()
    return tuple(numbers) if isinstance(numbers, list) else int(numbers)
