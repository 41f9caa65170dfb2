"""The surface that ties it together: Explainer, attribute."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, overload

import torch
from torch import Tensor, nn

import whyformer.methods
import whyformer.metrics  # noqa: F401  (registers the metrics)
from whyformer.errors import BadInput, BadOption, UnsupportedModel, WhyformerError
from whyformer.explanation import AnswerSpan, Comparison, Explanation, Label, Predicted
from whyformer.inputs import NO_ANSWER, Batch, Encoded, Text, asked, batch_of, collate, encode
from whyformer.load import Subject, Task, load, subject_of
from whyformer.prediction import Prediction
from whyformer.recorder import Target, plain_target
from whyformer.recorder.outputs import ANSWER_LENGTH
from whyformer.registry import Method, Scores, method_named
from whyformer.registry import methods as registered_methods
from whyformer.show.progress import with_progress

Targets = list[Any] | None  # one for each example; None for what the model says

AUTO = "attcat"
GIVES = {
    "classes": "the logits of classes",
    "answer": "the start and end of an answer",
    "token": "logits at every position",
}


@dataclass(frozen=True)
class Run:
    """One run of the model: what it said of each example, and what of that is explained."""

    prediction: Prediction
    said: list[Predicted]
    targets: list[Label]
    versus: list[Label] | None


class Explainer:
    """Explains the predictions of one model.

    explainer = Explainer.load("sentiment")          # a bundled model, a hub id, or a folder
    explainer = Explainer(model, tokenizer)          # objects in hand, or a pipeline alone
    explanation = explainer.explain("a gorgeous, witty film")
    explanation = explainer.explain(question="Who won?", context="The Broncos won.")
    """

    def __init__(self, model: Any, tokenizer: Any = None):
        self.subject: Subject = model if isinstance(model, Subject) else subject_of(model, tokenizer)

    @classmethod
    def load(cls, name: str | Path = "sentiment", **options: Any) -> "Explainer":
        """Load a bundled model, a folder or a hub id.

        Options: `device`, `dtype`, `revision`, `allow_pickle`, `trust_remote_code`.
        """
        return cls(load(name, **options))

    @overload
    def explain(self, text: Text, method: str = ..., **options: Any) -> Explanation: ...

    @overload
    def explain(self, text: list[Text], method: str = ..., **options: Any) -> list[Explanation]: ...

    @overload
    def explain(self, *, question: str, context: str, **options: Any) -> Explanation: ...

    @overload
    def explain(self, *, question: list[str], context: list[str], **options: Any) -> list[Explanation]: ...

    def explain(
        self,
        text: Text | list[Text] | None = None,
        method: str = "auto",
        *,
        question: str | list[str] | None = None,
        context: str | list[str] | None = None,
        target: Target = None,
        versus: Target = None,
        batch_size: int = 16,
        **options: Any,
    ) -> Explanation | list[Explanation]:
        """Explain one text or pair, or a list of them: list in, list out, in order.

        A model that answers questions takes a question and its context, or a list of each. Without a target what the
        model says is explained: of a classifier a class, of a question the best answer in the context, or none. A
        target is a class by name or index; an answer by its text (where it first stands in the context), or as
        `(start, end)`: its first and last token. `versus` explains the difference of two. In a list, `target` may be a
        list too. Options of the method are keywords.
        """
        given: dict[str, Any] = {"texts": text, "question": question, "context": context}
        single = not isinstance(text if question is None else question, list)
        if single:
            given = {name: [one] for name, one in given.items() if one is not None}
        options = {**options, "batch_size": batch_size, "progress": not single}
        found = list(self.stream(**given, method=method, target=target, versus=versus, **options))
        return found[0] if single else found

    def stream(
        self,
        texts: Sequence[Text] | None = None,
        method: str = "auto",
        *,
        question: list[str] | None = None,
        context: list[str] | None = None,
        target: Target = None,
        versus: Target = None,
        batch_size: int = 16,
        progress: bool = False,
        **options: Any,
    ) -> Iterator[Explanation]:
        """Explain texts one batch after the other, so that what is done is never lost."""
        texts = self._given(texts, question, context)
        chosen = method_named(AUTO if method == "auto" else method)
        checked = chosen.checked(options)
        if not isinstance(batch_size, int) or batch_size < 1:
            raise BadInput(f"batch_size must be at least 1; found {batch_size!r}")
        targets, against = (_each(t, self.subject.task, len(texts)) for t in (target, versus))
        starts: Iterable[int] = range(0, len(texts), batch_size)
        if progress and len(texts) > batch_size:
            starts = with_progress(range(0, len(texts), batch_size), chosen.name)
        for start in starts:
            part = slice(start, start + batch_size)
            run = self._run(texts[part], targets and targets[part], against and against[part], chosen.relevance)
            yield from self._explanations(run, chosen, checked)

    def compare(
        self,
        text: Text | None = None,
        methods: Sequence[str] | str = "all",
        *,
        question: str | None = None,
        context: str | None = None,
        target: Target = None,
        versus: Target = None,
    ) -> Comparison:
        """Explain one text, or one question and its context, by several methods, from one forward pass.

        With `"all"`, a method that refuses this model or text is listed in `refused` with its reason.
        """
        names = list(registered_methods()) if methods == "all" else methods
        chosen = [method_named(n) for n in ([names] if isinstance(names, str) else names)]
        if not chosen:
            raise BadOption("a comparison needs at least one method")
        targets, against = (_each(t, self.subject.task, 1) for t in (target, versus))
        relevance = any(method.relevance for method in chosen)
        run = self._run([self._given(text, question, context)], targets, against, relevance)
        done: list[Explanation] = []
        refused: list[tuple[str, str]] = []
        for method in chosen:
            try:
                done += self._explanations(run, method, {})
            except WhyformerError as error:
                if methods != "all":
                    raise
                refused.append((method.name, str(error)))
        return Comparison(tuple(done), tuple(refused))

    def _given(self, text: Any, question: Any, context: Any) -> Any:
        """The texts or pairs that are meant, if this model takes them."""
        answers = self.subject.task == "answer"
        if question is None and context is None:
            if answers:
                raise BadInput("this model answers questions: give question= and context= (--question and --context)")
            if text is None:
                raise BadInput("there is nothing to explain: a text or a pair (text, text) is needed")
            return text
        if not answers:
            raise BadInput("this model answers no questions, it classifies texts: give a text or a pair")
        if text is not None:
            raise BadInput("a question and its context stand alone: leave the text out")
        return asked(question, context)

    def _run(self, texts: Sequence[Text], target: Targets, versus: Targets, relevance: bool) -> Run:
        """Run the model once; what is wrong with a target is said here, whatever the method."""
        batch = collate(self.subject, [encode(self.subject, text) for text in texts])
        prediction = Prediction(self.subject.model, batch, relevance=relevance)
        task = self.subject.task
        found = prediction.trace.outputs.task
        if found != task:
            raise UnsupportedModel(
                f"{type(self.subject.model).__name__} gives {GIVES[found]}, not {GIVES[task]}: a sequence classifier "
                "or question-answering model (…ForQuestionAnswering) is needed; on tensors use whyformer.attribute"
            )
        return (_answers if task == "answer" else _classes)(prediction, target, versus)

    def _explanations(self, run: Run, method: Method, options: dict[str, Any]) -> Iterator[Explanation]:
        scores = method(run.prediction, **options)
        for row, example in enumerate(run.prediction.batch.examples):
            yield self._explanation(run, method, options, scores, row, example)

    def _explanation(
        self, run: Run, method: Method, options: dict[str, Any], scores: Scores, row: int, example: Encoded
    ) -> Explanation:
        length = len(example.units)
        layers = scores.layers
        diagnostics = _of_row(scores.diagnostics, row)
        if example.dropped:
            diagnostics["dropped_tokens"] = example.dropped
        return Explanation(
            units=example.units,
            scores=scores.total[row, :length].double().cpu().numpy(),
            layers=None if layers is None else layers[:, row, :length].double().cpu().numpy(),
            prediction=run.said[row],
            target=run.targets[row],
            versus=None if run.versus is None else run.versus[row],
            method=method.name,
            signed=method.signed,
            texts=example.texts,
            options=options,
            diagnostics=diagnostics,
            provenance=self.subject.provenance,
        )


def attribute(
    model: nn.Module,
    inputs: Mapping[str, Tensor],
    method: str = "auto",
    *,
    target: Target = None,
    versus: Target = None,
    **options: Any,
) -> Tensor:
    """Scores for ready tensors, [batch, units]; no tokenizer needed.

    `inputs` is the mapping of tensors that the model's forward takes.
    """
    chosen = method_named(AUTO if method == "auto" else method)
    batch: Batch = batch_of(model, inputs)
    return chosen(Prediction(model, batch, target, versus, relevance=chosen.relevance), **options).total


def _each(target: Target, task: Task, count: int) -> Targets:
    """One target for each text. A tuple, or two positions in a list, is one answer; of classes it holds several."""
    given = plain_target(target)
    if given is None:
        return None
    if task == "classes" and isinstance(given, tuple):
        given = list(given)
    if task == "answer" and isinstance(given, list) and len(given) == 2 and all(isinstance(g, int) for g in given):
        given = tuple(given)
    each = given if isinstance(given, list) else [given] * count
    if len(each) != count:
        raise BadInput(f"{len(each)} targets for {count} texts: give one, or one for each")
    return each


def _of_row(diagnostics: dict[str, Any], row: int) -> dict[str, Any]:
    """What a method reports for one example: of tensors [batch, …] its entry."""
    found: dict[str, Any] = {}
    for name, value in diagnostics.items():
        if isinstance(value, dict):
            found[name] = _of_row(value, row)
        else:
            found[name] = value[row].tolist() if isinstance(value, Tensor) else value
    return found


def _classes(prediction: Prediction, target: Targets, versus: Targets) -> Run:
    """What a classifier said: of each example a class."""
    chosen = prediction.towards(target, versus)
    rows = range(len(prediction.batch.examples))
    return Run(
        chosen,
        [_predicted_class(prediction, row) for row in rows],
        [_class(prediction, int(index)) for index in chosen.target],
        None if chosen.versus is None else [_class(prediction, int(index)) for index in chosen.versus],
    )


def _class(prediction: Prediction, index: int) -> Label:
    labels = prediction.labels
    return Label(index, labels[index] if index < len(labels) else str(index))


def _predicted_class(prediction: Prediction, row: int) -> Predicted:
    logits = prediction.trace.logits[row].detach().double().cpu()
    problem = getattr(getattr(prediction.model, "config", None), "problem_type", None)
    if len(logits) == 1 and problem != "multi_label_classification":
        probabilities = None
    elif problem == "multi_label_classification":
        probabilities = tuple(torch.sigmoid(logits).tolist())
    else:
        probabilities = tuple(torch.softmax(logits, -1).tolist())
    index = int(prediction.predicted[row])
    probability = None if probabilities is None else probabilities[index]
    names = tuple(_class(prediction, i).name for i in range(len(logits)))
    return Predicted(names[index], index, probability, tuple(logits.tolist()), probabilities, names)


def _answers(prediction: Prediction, target: Targets, versus: Targets) -> Run:
    """What a question-answering model said: of each example where the answer starts and ends."""
    examples = prediction.batch.examples
    logits = prediction.trace.logits.detach().double().cpu()  # [batch, 2, units]
    best = [_best_answer(row[:, : len(e.units)], e) for row, e in zip(logits, examples, strict=True)]
    given = best if target is None else [b if t is None else t for b, t in zip(best, target, strict=True)]
    chosen = [e.answer(t) for e, t in zip(examples, given, strict=True)]
    against = None if versus is None else [e.answer(t) for e, t in zip(examples, versus, strict=True)]
    return Run(
        prediction.towards(chosen, against),
        [_predicted_answer(*found) for found in zip(logits, examples, best, strict=True)],
        [_answer(*found) for found in zip(examples, chosen, strict=True)],
        None if against is None else [_answer(*found) for found in zip(examples, against, strict=True)],
    )


def _best_answer(logits: Tensor, example: Encoded) -> tuple[int, int]:
    """The best span in the context, at most `ANSWER_LENGTH` tokens long, or no answer where that scores higher."""
    context, none = example.context, example.no_answer
    start, end = logits[:, context]
    both = start[:, None] + end
    allowed = torch.ones_like(both).triu().tril(ANSWER_LENGTH - 1).bool()
    both = both.masked_fill(~allowed, -torch.inf)
    if none is not None and logits[:, none].sum() > both.max():
        return none, none
    first, last = divmod(int(both.argmax()), len(context))
    return context[first], context[last]


def _answer(example: Encoded, answer: tuple[int, int]) -> Label:
    characters = example.characters(*answer)
    if answer[0] == example.no_answer:
        name = NO_ANSWER
    elif characters is None:
        name = " ".join(unit.text for unit in example.units[answer[0] : answer[1] + 1])
    else:
        name = example.texts[1][slice(*characters)]
    return Label(None, name, AnswerSpan(answer, characters))


def _predicted_answer(logits: Tensor, example: Encoded, answer: tuple[int, int]) -> Predicted:
    label = _answer(example, answer)
    places = torch.tensor(answer)[:, None]
    outputs = logits.gather(1, places).squeeze(1)
    shares = logits[:, : len(example.units)].softmax(-1).gather(1, places).squeeze(1)
    numbers = tuple(outputs.tolist()), tuple(shares.tolist())
    return Predicted(label.name, None, float(shares.prod()), *numbers, ("start", "end"), label.span)
