"""The surface that ties it together: Explainer, attribute."""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import nullcontext
from itertools import islice
from pathlib import Path
from typing import Any, SupportsIndex, overload

from torch import Tensor, nn

import whyformer.methods
import whyformer.metrics  # noqa: F401  (registers the metrics)
from whyformer.datasets import Data, Dataset
from whyformer.errors import BadInput, UnsupportedModel, WhyformerError, shown
from whyformer.evaluation.evaluate import evaluate
from whyformer.evaluation.recommend import Recommendation, recommend
from whyformer.explain.trust import trust_of
from whyformer.inputs.encoding import Batch, Encoded, batch_of, collate, encode
from whyformer.inputs.texts import Text, asked, texts_of
from whyformer.methods.default import Effort, methods_for
from whyformer.methods.registry import Method, PerExample, Scores
from whyformer.methods.specs import EVERY, FAST, MethodSpec
from whyformer.models.loading import Subject, Task, load, subject_of
from whyformer.prediction import Prediction
from whyformer.progress import counting, part_of
from whyformer.recorder import Target, plain_target
from whyformer.registry.specs import Written
from whyformer.results.explanation import Comparison, Explanation
from whyformer.results.said import Said, Targets, said_of
from whyformer.results.table import Table
from whyformer.results.trust import Trust

PER_UNIT = ("sign", "step")  # diagnostics with a number for each unit
GIVES = {
    "classes": "the logits of classes",
    "answer": "the start and end of an answer",
    "token": "logits at every position",
}


class Explainer:
    """Explains the predictions of one model.

    explainer = Explainer.load("sentiment")          # a bundled model, a hub id, or a folder
    explainer = Explainer(model, tokenizer)          # objects in hand, or a pipeline alone
    explanation = explainer.explain("a gorgeous, witty film")
    explanation = explainer.explain(question="Who won?", context="The Broncos won.")
    """

    def __init__(self, model: Any, tokenizer: Any = None, *, choices: bool = True):
        self.choices = choices  # whether `auto` looks for a method recorded for this model
        self.subject: Subject = model if isinstance(model, Subject) else subject_of(model, tokenizer)

    @classmethod
    def load(cls, name: str | Path = "sentiment", *, choices: bool = True, **options: Any) -> "Explainer":
        """Load a bundled model, a folder or a hub id.

        Options: `device`, `dtype`, `revision`, `allow_pickle`, `trust_remote_code`. With `choices=False`, `auto` does
        not look for a method that `recommend` recorded for this model.
        """
        return cls(load(name, **options), choices=choices)

    @overload
    def explain(self, text: Text, method: str = ..., **options: Any) -> Explanation: ...

    @overload
    def explain(self, text: Iterable[Text], method: str = ..., **options: Any) -> list[Explanation]: ...

    @overload
    def explain(self, *, question: str, context: str, **options: Any) -> Explanation: ...

    @overload
    def explain(self, *, question: Iterable[str], context: Iterable[str], **options: Any) -> list[Explanation]: ...

    def explain(
        self,
        text: Text | Iterable[Text] | None = None,
        method: str = "auto",
        *,
        question: str | Iterable[str] | None = None,
        context: str | Iterable[str] | None = None,
        target: Target = None,
        versus: Target = None,
        effort: Effort | None = None,
        batch_size: int = 16,
        **options: Any,
    ) -> Explanation | list[Explanation]:
        """Explain one text or pair, or a list of them: list in, list out, in order.

        A generator, a column (of pandas, numpy, datasets …) or a table with one column of texts is as good as a list.
        A tuple of two texts is a pair. A model that answers questions takes a question and its context, or a list of
        each.

        Without a target what the model says is explained: of a classifier a class, of a question the best answer in
        the context, or none. A target is a class by index or name, of which the beginning will do; an answer by its
        text (where it first stands in the context), or as `(start, end)`: its first and last token. `versus`
        explains the difference of two. In a list, `target` may be a list too. Options of the method are keywords.

        `method="auto"` is the method recorded for this model, or else the one that wins in general, with an effort:
        `"fast"` in one pass, `"balanced"` in 3 and `"best"` in 10 steps of `stepwise`.
        """
        texts, single = self._given(text, question, context)
        options = {**options, "effort": effort, "batch_size": batch_size, "progress": True}
        found = list(self._stream(texts, method, target, versus, **options))
        return found[0] if single else found

    def stream(
        self,
        texts: Text | Iterable[Text] | None = None,
        method: str = "auto",
        *,
        question: str | Iterable[str] | None = None,
        context: str | Iterable[str] | None = None,
        target: Target = None,
        versus: Target = None,
        effort: Effort | None = None,
        batch_size: int = 16,
        progress: bool = False,
        **options: Any,
    ) -> Iterator[Explanation]:
        """Explain texts one batch after the other, so that what is done is never lost.

        A generator is read as it goes, a batch at a time.
        """
        texts, _ = self._given(texts, question, context)
        options = {**options, "effort": effort, "batch_size": batch_size, "progress": progress}
        yield from self._stream(texts, method, target, versus, **options)

    def _stream(
        self,
        texts: Iterable[Text],
        method: str,
        target: Target,
        versus: Target,
        *,
        effort: Effort | None,
        batch_size: int,
        progress: bool,
        **options: Any,
    ) -> Iterator[Explanation]:
        spec = self.method(method, effort)
        chosen, checked = spec.of, {**spec.options, **spec.of.checked(options)}
        size, count = _size(batch_size), len(texts) if isinstance(texts, Sized) else None
        targets, against = (_each(t, self.subject.task, count) for t in (target, versus))
        rest, done = iter(texts), 0
        with counting(chosen.name) if progress else nullcontext(_quiet) as tell:
            while batch := list(islice(rest, size)):
                part = slice(done, done + len(batch))
                run = self._run(batch, _of(targets, part), _of(against, part), chosen.relevance, done)
                if count is not None:
                    run.prediction.progress = part_of(tell, done // size, -(-count // size))
                    run.prediction.report(0, 1)
                done += len(batch)
                yield from self._explanations(run, chosen, checked)
        for each in (targets, against):
            if isinstance(each, list) and len(each) != done:
                raise BadInput(f"{len(each)} targets for {done} texts: give one, or one for each")

    def compare(
        self,
        text: Text | None = None,
        methods: Sequence[str] | str = FAST,
        *,
        question: str | None = None,
        context: str | None = None,
        target: Target = None,
        versus: Target = None,
        effort: Effort | None = None,
    ) -> Comparison:
        """Explain one text, or one question and its context, by several methods, from one forward pass.

        `effort` is for `auto` among them. With `"all"`, a method that refuses this model or text is listed in `refused`
        with its reason.
        """
        chosen = self._specs(methods, effort)
        targets, against = (_each(t, self.subject.task, 1) for t in (target, versus))
        relevance = any(spec.of.relevance for spec in chosen)
        texts, single = self._given(text, question, context)
        if not single:
            one = "one question and its context are" if self.subject.task == "answer" else "a text or a pair is"
            raise BadInput(f"{one} needed to compare methods, found several: call compare for each")
        run = self._run(list(texts), _of(targets, slice(1)), _of(against, slice(1)), relevance)
        done: list[Explanation] = []
        refused: list[tuple[str, str]] = []
        with counting("compare") as tell:
            for number, spec in enumerate(chosen):
                run.prediction.progress = part_of(tell, number, len(chosen))
                run.prediction.report(0, 1)
                try:
                    done += self._explanations(run, spec.of, dict(spec.options))
                except WhyformerError as error:
                    if methods not in EVERY:
                        raise
                    refused.append((spec.label, str(error)))
        return Comparison(tuple(done), tuple(refused))

    def evaluate(self, data: Dataset | Data, methods: Written = FAST, **options: Any) -> Table:
        """How good the explanations of methods are on a data set; options as `evaluation.evaluate`."""
        return evaluate(self.subject, data, methods, **options)

    def recommend(self, data: Dataset | Data, methods: Written = FAST, **options: Any) -> Recommendation:
        """Which method to believe on texts of one's own; options as `whyformer.evaluation.recommend.recommend`."""
        return recommend(self.subject, data, methods, **options)

    def trust(self, explanations: Iterable[Explanation]) -> list[Trust]:
        """How far to believe explanations of this model, measured together: what they share is run once."""
        several = [explanations] if isinstance(explanations, Explanation) else explanations
        each = list(several) if isinstance(several, Iterable) else [several]
        for one in each:
            if not isinstance(one, Explanation):
                raise BadInput(f"trust is measured of explanations, as explain gives them; found {shown(one)}")
        with counting("trust") as progress:
            return trust_of(each, self.subject, progress)

    def method(self, name: str = "auto", effort: Effort | None = None) -> MethodSpec:
        """The method of that name, or `name(option=value)`; `auto`: the one recorded for this model, else the best."""
        return self._specs([name], effort)[0]

    def _specs(self, names: Written, effort: Effort | None) -> tuple[MethodSpec, ...]:
        return methods_for(self.subject if self.choices else None, names, effort)

    def _given(self, text: Any, question: Any, context: Any) -> tuple[Iterable[Any], bool]:
        """The texts or pairs that are meant, if this model takes them; and whether it is a single one."""
        answers = self.subject.task == "answer"
        if question is None and context is None:
            if answers:
                raise BadInput("this model answers questions: give question= and context= (--question and --context)")
            if text is None:
                raise BadInput("there is nothing to explain: a text or a pair (text, text) is needed")
            if isinstance(text, Dataset):
                return (example.text for example in text), False
            several = texts_of(text)
            return ([text], True) if several is None else (several, False)
        if not answers:
            raise BadInput("this model answers no questions, it classifies texts: give a text or a pair")
        if text is not None:
            raise BadInput("a question and its context stand alone: leave the text out")
        pairs = asked(question, context)
        return (pairs, False) if isinstance(pairs, list) else ([pairs], True)

    def _run(self, texts: Sequence[Text], target: Targets, versus: Targets, relevance: bool, first: int = 0) -> Said:
        """Run the model once; what is wrong with a target is said here, whatever the method.

        `first` is the number of the first text among all.
        """
        examples = [self._encoded(text, first + n if first or len(texts) > 1 else None) for n, text in enumerate(texts)]
        batch = collate(self.subject, examples)
        prediction = Prediction(self.subject.model, batch, relevance=relevance)
        task = self.subject.task
        found = prediction.trace.outputs.task
        if found != task:
            raise UnsupportedModel(
                f"{type(self.subject.model).__name__} gives {GIVES[found]}, not {GIVES[task]}: a sequence classifier "
                "or question-answering model (…ForQuestionAnswering) is needed; on tensors use whyformer.attribute"
            )
        return said_of(prediction, task, target, versus)

    def _encoded(self, text: Text, number: int | None) -> Encoded:
        """One text as the model takes it; what is wrong with one of several texts is said with its number."""
        try:
            encoded = encode(self.subject, text)
        except BadInput as error:
            raise error if number is None else BadInput(f"text {number} (counted from 0): {error}") from error
        encoded.warn()
        return encoded

    def _explanations(self, run: Said, method: Method, options: dict[str, Any]) -> Iterator[Explanation]:
        scores = method(run.prediction, **options)
        for row, example in enumerate(run.prediction.batch.examples):
            yield self._explanation(run, method, options, scores, row, example)

    def _explanation(
        self, run: Said, method: Method, options: dict[str, Any], scores: Scores, row: int, example: Encoded
    ) -> Explanation:
        length = len(example.units)
        layers = scores.layers
        diagnostics = _of_row(scores.diagnostics, row)
        diagnostics |= {name: diagnostics[name][:length] for name in PER_UNIT if name in diagnostics}
        if example.dropped:
            diagnostics["dropped_tokens"] = example.dropped
            diagnostics |= {} if example.counted else {"dropped_at_least": True}
        return Explanation(
            units=example.units,
            scores=scores.total[row, :length].double().cpu().numpy(),
            layers=None if layers is None else layers[:, row, :length].double().cpu().numpy(),
            prediction=run.said[row],
            target=run.targets[row],
            versus=None if run.versus is None else run.versus[row],
            method=method.name,
            signed=bool(scores.signed),
            texts=example.texts,
            options=options,
            diagnostics=diagnostics,
            provenance=self.subject.provenance,
            subject=self.subject,
        )


def attribute(
    model: nn.Module,
    inputs: Mapping[str, Tensor],
    method: str = "auto",
    *,
    target: Target = None,
    versus: Target = None,
    effort: Effort | None = None,
    **options: Any,
) -> Tensor:
    """Scores for ready tensors, [batch, units]; no tokenizer needed.

    `inputs` is the mapping of tensors that the model's forward takes. `method` and `effort` are as in
    `Explainer.explain`; what is recorded for a model is not looked at.
    """
    spec = methods_for(None, [method], effort)[0]
    batch: Batch = batch_of(model, inputs)
    prediction = Prediction(model, batch, target, versus, relevance=spec.of.relevance)
    _ = prediction.versus  # what is wrong with it is said, whatever the method
    return spec.of(prediction, **{**spec.options, **options}).total


def _quiet(done: int, total: int) -> None:
    """For those whom nobody is watching."""


def _size(batch_size: Any) -> int:
    """A batch size as a plain number that `islice` takes."""
    if isinstance(batch_size, bool) or not isinstance(batch_size, SupportsIndex) or batch_size.__index__() < 1:
        raise BadInput(f"batch_size must be at least 1, and a whole number; found {shown(batch_size)}")
    return min(batch_size.__index__(), sys.maxsize)


def _each(target: Target, task: Task, count: int | None) -> Any:
    """The targets of `count` texts, if that is known: a list with one for each, or one for all.

    A tuple, or two positions in a list, is one answer; of classes it holds several.
    """
    given = plain_target(target)
    if task == "classes" and isinstance(given, tuple):
        given = list(given)
    if task == "answer" and isinstance(given, list) and len(given) == 2 and all(isinstance(g, int) for g in given):
        given = tuple(given)
    if isinstance(given, list) and count not in (None, len(given)):
        raise BadInput(f"{len(given)} targets for {count} texts: give one, or one for each")
    return given


def _of(target: Any, part: slice) -> Targets:
    """The targets of some of the texts."""
    if target is None or not isinstance(target, list):
        return None if target is None else [target] * (part.stop - (part.start or 0))
    if len(target) < part.stop:
        raise BadInput(f"{len(target)} targets for {part.stop} texts or more: give one, or one for each")
    return target[part]


def _of_row(diagnostics: dict[str, Any], row: int) -> dict[str, Any]:
    """What a method reports for one example: of tensors [batch, …] its entry, with None where there is no number.

    So it is of `PerExample`.
    """
    found: dict[str, Any] = {}
    for name, value in diagnostics.items():
        if isinstance(value, dict):
            found[name] = _of_row(value, row)
        else:
            found[name] = _numbers(value[row].tolist()) if isinstance(value, Tensor | PerExample) else value
    return found


def _numbers(value: Any) -> Any:
    if isinstance(value, list):
        return [_numbers(one) for one in value]
    return None if value != value else value  # NaN, which JSON does not have
