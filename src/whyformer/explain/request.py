"""Questions: which outputs of which texts are to be explained, and the run of the model that they are asked about."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from whyformer.errors import BadInput, BadOption
from whyformer.inputs.batch import ReadInput
from whyformer.prediction import Prediction
from whyformer.recorder import Needs
from whyformer.tasks.targets import Label, Predicted, plain_target
from whyformer.tasks.task import ALL_OTHERS, Asked, Chosen, ExampleOutputs, Explains, Task, explained_as
from whyformer.tasks.token_classification import ALL

TargetPair = tuple[Chosen, Chosen | None]  # an output, and what it is set against


@dataclass(frozen=True)
class Questions:
    """What people ask of texts: of a single one any number of outputs, of several texts one or more of each.

    `lists` has what was given as a list, by its name in `Asked`: for a single text one entry for each of its outputs,
    for several texts one for each text. `same` is for all.
    """

    single: bool
    same: Asked
    lists: dict[str, list[Any]]

    @classmethod
    def of(
        cls,
        task: Task,
        single: bool,
        *,
        target: Any,
        versus: Any,
        word: Any,
        position: Any,
        explains: Explains | None = None,
    ) -> "Questions":
        """The questions, as `Explainer.explain` takes them."""
        written = {"target": task.several(plain_target(target)), "versus": task.several(plain_target(versus))}
        written |= {"word": _plain(word), "position": _plain(position)}
        lists = {name: value for name, value in written.items() if isinstance(value, list)}
        if single and any(not value for value in lists.values()):
            raise BadInput("0 targets for 1 texts: give one, or several for a list of explanations")
        if single and len({len(value) for value in lists.values()}) > 1:
            counts = " and ".join(f"{len(value)} for {name}" for name, value in lists.items())
            raise BadInput(f"lists of different lengths ({counts}): give as many of each, or one for all")
        same: dict[str, Any] = {name: None if name in lists else value for name, value in written.items()}
        return cls(single, replace(Asked(explains=explains), **same), lists)

    def for_quantity(self, quantity: Explains) -> "Questions":
        """These questions, for a method that explains this quantity by default."""
        return replace(self, same=replace(self.same, quantity=quantity))

    @property
    def several(self) -> bool:
        """Whether several outputs of a text may be asked for."""
        return self.single and (any(len(each) > 1 for each in self.lists.values()) or self.same.word == ALL)

    @property
    def at_the_end(self) -> bool:
        """Whether nothing is asked about a position: of a language model, the token behind the last one is meant."""
        targets = [self.same.target, self.same.versus, *self.lists.get("target", ()), *self.lists.get("versus", ())]
        placed = (
            self.same.position is not None or self.same.word is not None or {"position", "word"} & self.lists.keys()
        )
        return not placed and not any(isinstance(target, tuple) for target in targets)

    def check(self, count: int | None) -> None:
        """Raise if there is not one for each text, where that is how many there are."""
        for value in () if self.single or count is None else self.lists.values():
            if len(value) != count:
                raise BadInput(f"{len(value)} targets for {count} texts: give one, or one for each")

    def of_text(self, number: int) -> list[Asked]:
        """What is asked of one text."""
        if not self.single and any(len(value) <= number for value in self.lists.values()):
            short = min(len(value) for value in self.lists.values())
            raise BadInput(f"{short} targets for {number + 1} texts or more: give one, or one for each")
        if not self.single:
            return [replace(self.same, **{name: value[number] for name, value in self.lists.items()})]
        count = max((len(value) for value in self.lists.values()), default=1)
        return [replace(self.same, **{name: value[n] for name, value in self.lists.items()}) for n in range(count)]


def _plain(place: Any) -> Any:
    """A number or array of torch or numpy as plain numbers."""
    return place.tolist() if hasattr(place, "tolist") else place


@dataclass(frozen=True)
class ExplainedOutput:
    """One output that is explained: of which text, in which turn, and what people read of it."""

    turn: int
    row: int
    example: ReadInput
    predicted: Predicted
    target: Label
    versus: Label | None
    other: tuple[int, ReadInput] | None = None  # the row of `versus`, where that is not the row of the target
    explains: Explains = "logit"
    number: int | None = None  # which of all texts it is of; a single one has none

    @property
    def rows(self) -> tuple[int, ...]:
        """The rows of the run that its explanation is made of."""
        return (self.row,) if self.other is None else (self.row, self.other[0])


@dataclass(frozen=True)
class ExplainedRun:
    """A run of the model on a batch, turned towards what is explained: once, or where texts have several outputs more.

    `questions` has them in order of the texts; `asked` is what they were made of, for each text.
    """

    turns: tuple[Prediction, ...]
    questions: tuple[ExplainedOutput, ...]
    asked: tuple[tuple[Asked, ...], ...] = ()

    def for_quantity(self, quantity: Explains) -> "ExplainedRun":
        """This run, for a method that explains this quantity by default."""
        if not self.asked or all(one.quantity == quantity for of_text in self.asked for one in of_text):
            return self
        asked = [[replace(one, quantity=quantity) for one in of_text] for of_text in self.asked]
        numbers = [question.number for question in self.questions]
        return explained_run(self.turns[0], asked, numbers[: len(asked)])

    def narrowed(self, needs: Needs) -> "ExplainedRun":
        """The same, with the model run once more on those rows alone that are asked about: no other is explained."""
        rows = sorted({row for question in self.questions for row in question.rows})
        places = {row: place for place, row in enumerate(rows)}
        questions = []
        for question in self.questions:
            other = None if question.other is None else (places[question.other[0]], question.other[1])
            questions.append(replace(question, row=places[question.row], other=other))
        whole = self.turns[0]
        turn = Prediction(whole.model, whole.batch.rows(rows), needs=needs)
        return ExplainedRun((turn,), tuple(questions))


def explained_run(
    prediction: Prediction,
    asked: Sequence[Sequence[Asked]],
    numbers: Sequence[int | None],
    rows: Sequence[int] | None = None,
) -> ExplainedRun:
    """What is asked of each text of a prediction, as turns of it that explain one output of each text at a time.

    `numbers` says which of all texts each is, for errors; `rows` how many rows each has, where its outputs are those of
    several.
    """
    outputs, batch = prediction.outputs, prediction.batch
    prediction.task.check(outputs, prediction.model)
    if rows is not None:
        return _run_by_rows(prediction, asked, numbers, rows)
    near = outputs.near()
    texts = [ExampleOutputs(near, row, example, batch.tokenizer) for row, example in enumerate(batch.examples)]
    pairs = [_pairs(*question) for question in zip(texts, asked, numbers, strict=True)]
    every = [versus for of_text in pairs for _, versus in of_text]
    if len({versus is not None for versus in every}) > 1:
        raise BadOption("versus: give one for every text, or leave it out")
    against = next(iter(every), None)
    turns = [
        _turned(prediction, [_of_turn(of, each, turn, against) for of, each in zip(texts, pairs, strict=True)])
        for turn in range(max(map(len, pairs)))
    ]
    questions = [
        ExplainedOutput(
            turn,
            of.row,
            of.example,
            *labels_of_output(of, chosen, versus),
            explains=explained_as(versus),
            number=number,
        )
        for of, each, number in zip(texts, pairs, numbers, strict=True)
        for turn, (chosen, versus) in enumerate(each)
    ]
    return ExplainedRun(tuple(turns), tuple(questions), tuple(map(tuple, asked)))


def _run_by_rows(
    prediction: Prediction, asked: Sequence[Sequence[Asked]], numbers: Sequence[int | None], rows: Sequence[int]
) -> ExplainedRun:
    """One turn explains every row; an output of a text is that of one of its rows."""
    batch = prediction.batch
    questions, first = [], 0
    for count, each, number in zip(rows, asked, numbers, strict=True):
        examples = batch.examples[first : first + count]
        of = ExampleOutputs(prediction.outputs, first, examples[0], batch.tokenizer, examples)
        for chosen, versus in _pairs(of, each, number):
            assert isinstance(chosen, int)
            assert versus is None or isinstance(versus, int)
            other = None if versus is None else (first + versus, examples[versus])
            labels = labels_of_output(of, chosen, versus)
            questions.append(ExplainedOutput(0, first + chosen, examples[chosen], *labels, other, number=number))
        first += count
    return ExplainedRun((prediction,), tuple(questions))


def labels_of_output(
    of: ExampleOutputs, chosen: Chosen, versus: Chosen | None
) -> tuple[Predicted, Label, Label | None]:
    """What people read of an output: what the model said, what is explained, and what that is set against."""
    task = of.outputs.task
    against = None if versus is None or versus == ALL_OTHERS else task.label(of, versus, beside=chosen)
    return task.predicted(of, chosen, versus), task.label(of, chosen), against


def _pairs(of: ExampleOutputs, asked: Sequence[Asked], number: int | None) -> list[TargetPair]:
    """The outputs of one text that are explained."""
    with numbering(number):
        return [pair for one in asked for pair in asked_pairs(of, one)]


def asked_pairs(of: ExampleOutputs, asked: Asked) -> list[TargetPair]:
    """The outputs of one text that a question is about, each with what it is set against."""
    versus = of.outputs.explained(asked.explains, asked.versus, asked.quantity)
    pairs = of.outputs.task.questions(of, asked)
    return pairs if asked.versus is not None or versus is None else [(chosen, ALL_OTHERS) for chosen, _ in pairs]


@contextmanager
def numbering(number: int | None, kind: str = "text") -> Iterator[None]:
    """What is wrong with one of several texts or images is said with its number; a single one has none."""
    try:
        yield
    except BadInput as error:
        raise error if number is None else BadInput(f"{kind} {number} (counted from 0): {error}") from error


def _of_turn(of: ExampleOutputs, pairs: Sequence[TargetPair], turn: int, against: Chosen | None) -> TargetPair:
    """The output of a text that is explained in a turn, or a placeholder if the text has fewer outputs.

    `against` is what an output of some text is set against, if any is.
    """
    if pairs:
        return pairs[turn if turn < len(pairs) else 0]
    task = of.outputs.task
    chosen = task.any_in(of)
    return chosen, task.runner_up_in(of, chosen) if against not in (None, ALL_OTHERS) else against


def _turned(prediction: Prediction, pairs: Sequence[TargetPair]) -> Prediction:
    """The prediction of one output of each text."""
    against = [versus for _, versus in pairs if versus is not None]
    turned = prediction.towards([chosen for chosen, _ in pairs], against or None)
    _ = turned.versus  # what is wrong with it is said, whatever the method
    return turned
