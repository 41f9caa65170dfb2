"""Explainer: the front door, which ties everything together for one model."""

import sys
import warnings
from collections.abc import Iterable, Iterator, Sequence, Sized
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, overload

import numpy as np
from numpy.typing import NDArray
from PIL.Image import Image
from torch import Tensor

import whyformer.methods
import whyformer.metrics  # noqa: F401  (registers the metrics)
from whyformer.datasets import Data, Dataset
from whyformer.datasets.columns import ColumnNames
from whyformer.datasets.dataset import OnError
from whyformer.errors import BadInput, BadOption, CompletenessWarning, UnsupportedModel, WhyformerError, listed, shown
from whyformer.evaluation.cost import SECONDS, CostTable, measure_costs
from whyformer.evaluation.evaluate import Table, evaluate
from whyformer.evaluation.recommend import Recommendation, recommend
from whyformer.explain.check import checked_run
from whyformer.explain.explanation import Comparison, Explanation, Trust
from whyformer.explain.explanations import Explanations
from whyformer.explain.inputs import TableOfTexts, check_windows, in_windows, merged_outputs, shown_units, without_bad
from whyformer.explain.request import ExplainedOutput, ExplainedRun, Questions, explained_run, numbering
from whyformer.explain.similarity import Similarities, explained_similarity
from whyformer.explain.trust import trust_of
from whyformer.images import images_of
from whyformer.inputs.batch import DROPPED, ReadInput, TextInput, collate, encode, warn_of_truncated
from whyformer.inputs.images import ImageInput
from whyformer.inputs.input_types import kind_of, read
from whyformer.inputs.text import Text
from whyformer.inputs.windows import CUT, Mode, Windows
from whyformer.methods.default import Effort, methods_for, with_layer, with_options
from whyformer.methods.method import FAST, SHORT, Method, MethodSpec, PerExample, Scores, means_several
from whyformer.models.auto_classes import HEADS
from whyformer.models.load import Subject, load, subject_of
from whyformer.models.memory import may_pad
from whyformer.perturb.probe import probe
from whyformer.prediction import Prediction
from whyformer.progress import bar, counting, listening, part
from whyformer.recorder import Needs
from whyformer.recorder.capture.captures import capturing
from whyformer.recorder.needs import Memory
from whyformer.registry.options import Count, validated
from whyformer.registry.specs import Written, names_of
from whyformer.storage.files import named_path
from whyformer.tasks import Task, task_of
from whyformer.tasks.regression import classes_of
from whyformer.tasks.similarity import NEEDED
from whyformer.tasks.targets import Target
from whyformer.tasks.task import Explains

LABELS = 12  # as many are listed of a model
BATCH = 16  # texts in one run of the model
MOST_GROWTH = 10  # times what was sent, above which relevance is said to have grown


@dataclass(frozen=True)
class _Work:
    """What is done with each batch of texts: what is asked of them, how it is explained, how many words are checked."""

    asked: Questions
    spec: MethodSpec
    windows: Windows
    size: int
    check: int | None
    needs: Needs


class Explainer:
    """Explains the predictions of one model.

    explainer = Explainer.load("sentiment")          # a bundled model, a hub id, or a folder
    explainer = Explainer(model, tokenizer)          # objects in hand, or a pipeline alone
    explanation = explainer.explain("a gorgeous, witty film")
    explanation = explainer.explain(question="Who won?", context="The Broncos won.")

    explainer = Explainer(model, image_processor)    # or a function from images to tensors, with labels=[…]
    explanation = explainer.explain("cat.jpg")       # a file, a PIL image, an array or a tensor
    explanation = explainer.explain("cat.jpg", text="a cat")     # of CLIP, SigLIP …: why the two go together
    """

    @validated
    def __init__(self, model: Any, tokenizer: Any = None, *, labels: Sequence[str] | None = None):
        self.subject: Subject = model if isinstance(model, Subject) else subject_of(model, tokenizer, labels)

    @classmethod
    def load(cls, name: str | Path = "sentiment", **options: Any) -> "Explainer":
        """Load a bundled model, a folder or a hub id.

        Options: `device`, `dtype`, `revision`, `allow_pickle`, `trust_remote_code`.
        """
        return cls(load(name, **options))

    @overload
    def explain(self, input: Text | Path | Image, /, method: str | MethodSpec = ..., **options: Any) -> Explanation: ...

    @overload
    def explain(
        self, input: Tensor | NDArray[Any], /, method: str | MethodSpec = ..., **options: Any
    ) -> Explanation | Explanations: ...

    @overload
    def explain(
        self, input: Iterable[Text | Path | Image] | Dataset, /, method: str | MethodSpec = ..., **options: Any
    ) -> Explanations: ...

    @overload
    def explain(
        self, input: None = ..., /, method: str | MethodSpec = ..., *, text: Text, **options: Any
    ) -> Explanation: ...

    @overload
    def explain(
        self, input: None = ..., /, method: str | MethodSpec = ..., *, question: str, context: str, **options: Any
    ) -> Explanation: ...

    @overload
    def explain(
        self,
        input: None = ...,
        /,
        method: str | MethodSpec = ...,
        *,
        question: Iterable[str],
        context: Iterable[str],
        **options: Any,
    ) -> Explanations: ...

    @validated
    def explain(
        self,
        input: Any = None,
        /,
        method: str | MethodSpec = "auto",
        *,
        text: Text | Iterable[Text] | None = None,
        question: str | Iterable[str] | None = None,
        context: str | Iterable[str] | None = None,
        choices: Sequence[str] | None = None,
        target: Target = None,
        versus: Target = None,
        explains: Explains | None = None,
        word: Any = None,
        position: Any = None,
        windows: Mode = "cut",
        window_size: int | None = None,
        overlap: int | None = None,
        effort: Effort | None = None,
        check: Annotated[int | None, Count(0)] = None,
        memory: Memory = "usual",
        capture: bool = True,
        batch_size: Annotated[int, Count(1)] = BATCH,
        columns: ColumnNames | None = None,
        on_error: OnError = "refuse",
        progress: bool = True,
        **options: Any,
    ) -> Explanation | Explanations:
        """Explain one text, pair or image, or many: a list in, `Explanations` out, in order.

        A generator, a column (of pandas, numpy, datasets …) or a table is as good as a list. The columns of a table are
        found by their names, or named: `columns={"text": "body", "label": "y"}`. With `on_error="skip"` bad rows are
        left out and listed in `skipped`.
        A tuple of two texts is a pair. A model that answers questions takes a question and its context, or a list of
        each. An image is a file, a PIL image, or an array or tensor: of uint8 its pixels, of fractions the model's own
        `pixel_values`. `docs/tasks.md` shows every kind of model.

        Without a target what the model says is explained: of a classifier a class, of a question the best answer in
        the context, or none, of a language model the next token. A target is a class by index or name, of which the
        beginning will do; an answer by its text (where it first stands in the context), or as `(start, end)`: its first
        and last token; a token by its text or id. `versus` explains the difference of two; `"runner_up"` is the most
        probable one beside the target. `explains="log_odds"` sets a class against all others together, in place of
        its `"logit"` alone, and is the default for texts of more than two classes. `word` says which word's label is
        explained, `position` which mask or token.
        Of one text several targets, or words, in a list give a list; in a list of texts there is one for each.
        Options of the method are keywords.

        The context of a question may be longer than the model's window: it is read in windows that share `overlap`
        tokens (by default 128, or half a window where that is less), and that of the best answer is explained. Of
        other texts what does not fit is cut off; with `windows="merge"` a classifier's logits are the mean over all
        windows, each of which is explained, and a token in several gets the mean of its scores. `window_size` makes
        windows smaller than the model's.

        `method="auto"` is the default for this kind of model, with an effort: `"fast"` in one pass, `"balanced"` in 3
        and `"best"` in 10 steps of `stepwise`.

        The three strongest words, or regions of an image, are hidden one at a time, and `checked` has the outputs
        without them. `check` is another number of words, 0 for none. Without it, texts of more than 128 units are not
        checked, and `diagnostics["unchecked"]` says so.
        `memory="low"` runs layers again instead of keeping what they computed, for prompts that would not fit. On a GPU
        what is asked again of inputs of one shape is captured and replayed without Python, unless `capture=False`.
        """
        if self.task.compares:
            beside = {"question": question, "context": context, "choices": choices, "versus": versus}
            beside |= {"explains": explains}
            beside |= {"word": word, "position": position, "window_size": window_size, "overlap": overlap}
            beside |= {"windows": None if windows == "cut" else windows}
            beside |= {"memory": None if memory == "usual" else memory, "columns": columns}
            beside |= {"on_error": None if on_error == "refuse" else on_error}
            beside |= {"batch_size": None if batch_size == BATCH else batch_size}
            spec = with_options(self.method(method, effort), self.subject.model, options)
            with capturing(capture):
                several = self._similarity(input, text, spec, target, check, beside)
            return several if isinstance(several, Explanation) else Explanations(tuple(several))
        asked_about = self._one_of(input, text)
        table = TableOfTexts.of(asked_about, columns, on_error, self.subject.labels)
        if table is not None and self.task.name == "answer":
            asked_about, (question, context) = None, table.questions()
        elif table is not None:
            asked_about = list(table.inputs()) if table.data.format == "memory" else table.inputs()
        texts, single = self._inputs(asked_about, question, context, choices)
        asked = Questions.of(
            self.task, single, target=target, versus=versus, explains=explains, word=word, position=position
        )
        long = Windows.of(window_size, overlap, windows)
        skipped: dict[int, str] | None = {} if on_error == "skip" and not single else None
        options |= {"effort": effort, "batch_size": batch_size, "progress": progress, "check": check, "memory": memory}
        options |= {"skipped": skipped, "capture": capture}
        explanations = list(self._stream(texts, method, asked, long, **options))
        if single and not asked.several:
            return explanations[0][1]
        many = Explanations.of(explanations, table, skipped or {})
        if len(set(many.rows)) > 1:  # a text alone is warned of as it is read
            warn_of_truncated(dropped_in(zip(many.rows, many, strict=True)), len(set(many.rows)))
        return many

    @validated
    def stream(
        self,
        input: Text | Iterable[Text] | None = None,
        /,
        method: str | MethodSpec = "auto",
        *,
        text: Text | Iterable[Text] | None = None,
        question: str | Iterable[str] | None = None,
        context: str | Iterable[str] | None = None,
        choices: Sequence[str] | None = None,
        target: Target = None,
        versus: Target = None,
        explains: Explains | None = None,
        word: Any = None,
        position: Any = None,
        windows: Mode = "cut",
        window_size: int | None = None,
        overlap: int | None = None,
        effort: Effort | None = None,
        check: Annotated[int | None, Count(0)] = None,
        memory: Memory = "usual",
        capture: bool = True,
        batch_size: Annotated[int, Count(1)] = BATCH,
        progress: bool = False,
        **options: Any,
    ) -> Iterator[Explanation]:
        """Explain texts one batch after the other, so that what is done is never lost.

        A generator is read as it goes, a batch at a time. `check` as in `explain`.
        """
        texts, single = self._inputs(self._one_of(input, text), question, context, choices)
        asked = Questions.of(
            self.task, single, target=target, versus=versus, explains=explains, word=word, position=position
        )
        long = Windows.of(window_size, overlap, windows)
        options |= {"effort": effort, "batch_size": batch_size, "progress": progress, "check": check, "memory": memory}
        options["capture"] = capture
        number, dropped = -1, dict[int, int]()
        for number, explanation in self._stream(texts, method, asked, long, **options):
            dropped |= dropped_in([(number, explanation)])
            yield explanation
        if number > 0:  # a text alone is warned of as it is read
            warn_of_truncated(dropped, number + 1)

    def _stream(
        self,
        texts: Iterable[Text],
        method: str | MethodSpec,
        asked: Questions,
        windows: Windows,
        *,
        effort: Effort | None,
        check: int | None,
        memory: Memory,
        capture: bool,
        batch_size: int,
        progress: bool,
        skipped: dict[int, str] | None = None,
        **options: Any,
    ) -> Iterator[tuple[int, Explanation]]:
        """Explanations, each with the number of its text; what is wrong with a text goes to `skipped`, or is raised."""
        spec = with_options(self.method(method, effort), self.subject.model, options)
        size, count = min(batch_size, sys.maxsize), len(texts) if isinstance(texts, Sized) else None
        asked.check(count)
        check_windows(self.subject, self.task, windows)
        if windows.merge and memory != "usual":
            raise BadOption(f"memory={memory!r} is for texts in one piece: leave it or windows='merge' out")
        if windows.merge and check:
            raise BadOption(f"check={check}: words of merged windows are not checked: leave it or windows='merge' out")
        asked = asked.for_quantity(spec.quantity)
        probe(self.subject)
        size = size if may_pad(self.subject.model) else 1
        work = partial(
            self._batch,
            _Work(asked, spec, windows, size, check, spec.needs.within(memory, spec.label)),
        )
        rest, done = iter(texts), 0
        with bar(spec.of.name, count) if progress and count is not None else nullcontext() as listener:
            while batch := list(islice(rest, size)):
                with capturing(capture), listening(listener), part(done // size, -(-(count or 0) // size)):
                    explanations = without_bad(work, batch, done, skipped)
                done += len(batch)
                yield from explanations
        asked.check(done)

    def _batch(self, work: "_Work", texts: Sequence[Text], first: int) -> list[tuple[int, Explanation]]:
        """Explanations of a few texts, each with the number of its text; `first` is that of the first one."""
        if work.windows.merge:
            return self._merged(texts, work.asked, work.spec, work.windows, work.size, first)
        run = self._run(texts, work.asked, work.needs, work.windows, first)
        numbers = [first if question.number is None else question.number for question in run.questions]
        explanations = self._explanations(run, work.spec.of, dict(work.spec.options))
        return list(zip(numbers, checked_run(explanations, run, work.check), strict=True))

    @validated
    def compare(
        self,
        input: Text | None = None,
        /,
        methods: Written = SHORT,
        *,
        text: Text | None = None,
        question: str | None = None,
        context: str | None = None,
        choices: Sequence[str] | None = None,
        target: Target = None,
        versus: Target = None,
        explains: Explains | None = None,
        word: Any = None,
        position: Any = None,
        windows: Mode = "cut",
        window_size: int | None = None,
        overlap: int | None = None,
        effort: Effort | None = None,
        check: Annotated[int, Count(0)] = 0,
        capture: bool = True,
    ) -> Comparison:
        """Explain one text, or one question and its context, by several methods, from one forward pass.

        By default, `"short"`: `auto`, `attn_lrp`, `transformer_attribution`, `attcat` and `random`. `effort` is for
        `auto` among them; `check` and `capture` as in `explain`. With `"short"`, `"fast"` or `"all"`, those that
        agree most with the others come first, and a method that refuses this model or text is listed in `refused` with
        its reason.
        """
        if windows == "merge" and check:
            raise BadOption(f"check={check}: words of merged windows are not checked: leave it or windows='merge' out")
        chosen, is_several = self._specs(methods, effort), means_several(names_of(methods))
        needs = Needs.of_all([spec.needs for spec in chosen])
        texts, single = self._inputs(self._one_of(input, text), question, context, choices)
        if not single:
            one = "an image is" if self.subject.takes_images else "a text or a pair is"
            needed = "one question and its context are" if self.task.name == "answer" else one
            raise BadInput(f"{needed} needed to compare methods, found several: call compare for each")
        asked = Questions.of(
            self.task, True, target=target, versus=versus, explains=explains, word=word, position=position
        )
        if asked.several:
            raise BadInput("one output is needed to compare methods, found several: call compare for each")
        probe(self.subject)
        one_text, long = list(texts), Windows.of(window_size, overlap, windows)
        check_windows(self.subject, self.task, long)
        done: list[Explanation] = []
        refused: list[tuple[str, str]] = []
        with counting("compare"), capturing(capture):
            run = None if long.merge else self._run(one_text, asked.for_quantity(chosen[0].quantity), needs, long)
            for number, spec in enumerate(chosen):
                try:
                    with part(number, len(chosen)):
                        if run is None:
                            done += [e for _, e in self._merged(one_text, asked, spec, long, size=1)]
                        else:
                            turned = run.for_quantity(spec.quantity)
                            each = self._explanations(turned, spec.of, dict(spec.options))
                            done += checked_run(each, turned, check)
                except WhyformerError as error:
                    if not is_several:
                        raise
                    refused.append((spec.label, str(error)))
        compared = Comparison(tuple(done), tuple(refused))
        return compared.by_agreement() if is_several else compared

    @validated
    def evaluate(self, data: Dataset | Data, methods: Written = SHORT, **options: Any) -> Table:
        """How good the explanations of methods are on a data set; options as `evaluation.evaluate`."""
        return evaluate(self.subject, data, methods, **options)

    @validated
    def recommend(self, data: Dataset | Data, methods: Written = FAST, **options: Any) -> Recommendation:
        """Which method to believe on texts of one's own; options as `whyformer.evaluation.recommend.recommend`."""
        return recommend(self.subject, data, methods, **options)

    @validated
    def cost(
        self,
        methods: Written = FAST,
        *,
        tokens: int | Sequence[int] | None = None,
        batch: int = 1,
        seconds: float = SECONDS,
    ) -> CostTable:
        """Measure time and memory of methods on this model, and of its own forward and backward pass.

        `tokens` are the lengths of the texts, 512 by default; images have the model's own size. `seconds` limits the
        whole measurement. A row says why its method was not measured: refused, out of memory or time limit.
        """
        specs = self._specs(methods, None)
        return measure_costs(self.subject, specs, tokens=tokens, batch=batch, seconds=seconds)

    @validated
    def trust(self, explanations: Iterable[Explanation], *, capture: bool = True) -> list[Trust]:
        """How far to believe explanations of this model, measured together: what they share is run once.

        `capture` as in `explain`.
        """
        several = [explanations] if isinstance(explanations, Explanation) else explanations
        each = list(several) if isinstance(several, Iterable) and not isinstance(several, str | bytes) else [several]
        for one in each:
            if not isinstance(one, Explanation):
                raise BadInput(f"trust is measured of explanations, as explain gives them; found {shown(one)}")
        with counting("trust"), capturing(capture):
            return trust_of(each, self.subject)

    @validated
    def method(self, name: str | MethodSpec = "auto", effort: Effort | None = None) -> MethodSpec:
        """The method of that name, or `name(option=value)`. `auto` is the default for this kind of model."""
        return self._specs([name], effort)[0]

    def _specs(self, names: Written, effort: Effort | None) -> tuple[MethodSpec, ...]:
        specs = methods_for(self.subject, names, effort)
        return tuple(with_layer(spec, self.subject.model) for spec in specs)

    def __repr__(self) -> str:
        facts = self._facts
        return f"<Explainer of {facts['model']}: {facts['it']}; {facts['by default']}, {facts['runs on']}>"

    def _repr_html_(self) -> str:
        from whyformer.show.html import facts_card

        return facts_card(f"Explainer of {self._facts['model']}", self._facts)

    @property
    def _facts(self) -> dict[str, str]:
        """What people want to know of it: the model, what it does, and what is done by default."""
        origin = self.subject.provenance
        revision = f" at {origin['revision']}" if origin["revision"] else ""
        return {
            "model": f"{origin['model']}{revision}",
            "class": type(self.subject.model).__name__,
            "it": self.task.does,
            "labels": listed(self.task.labels, LABELS),
            "by default": self.method().label,
            "runs on": f"{origin['device']} in {origin['dtype']}",
        }

    @property
    def task(self) -> Task:
        """What the model says."""
        return task_of(self.subject.model) or classes_of(self.subject.model)

    def _one_of(self, first: Any, text: Any) -> Any:
        """What is explained: what is given first, or as `text=`."""
        if self.subject.takes_images and first is not None and text is not None and not self.task.compares:
            raise BadInput("this model classifies images, and reads no text beside one: leave text= out")
        return first if text is None else text

    def _inputs(self, text: Any, question: Any, context: Any, choices: Any) -> tuple[Iterable[Any], bool]:
        """The texts or pairs that are meant, if this model takes them; and whether it is a single one."""
        if self.task.compares:
            raise BadInput(f"{NEEDED}, and explain() alone takes such models")
        if isinstance(text, Dataset):
            text = (example.input for example in text)
        if self.subject.takes_images:
            beside = {"question": question, "context": context, "choices": choices}
            if asked := next((name for name, value in beside.items() if value is not None), None):
                raise BadInput(f"this model classifies images: leave {asked}= out")
            return images_of(text)
        if isinstance(text, str) and (path := named_path(text)) is not None and path.is_file():
            raise BadInput(f"{text!r} is a file, not a text: read it with whyformer.open_dataset({text!r})")
        alone = kind_of(text) is not None
        texts, single = self.task.inputs([text] if alone else text, question, context, choices)
        return texts, single or alone

    def _similarity(
        self, images: Any, texts: Any, spec: MethodSpec, target: Target, check: int | None, beside: dict[str, Any]
    ) -> Explanation | list[Explanation]:
        """Why images go with a text, on both sides."""

        def explain(subject: Subject, one: Any, of: Target) -> Explanation:
            explanation = Explainer(subject).explain(one, spec.label, target=of, check=check)
            assert isinstance(explanation, Explanation)
            return explanation

        return explained_similarity(Similarities(self.subject, texts, explain), images, target, beside)

    def _run(
        self, texts: Sequence[Text], asked: Questions, needs: Needs, windows: Windows = CUT, first: int = 0
    ) -> ExplainedRun:
        """Run the model once; what is wrong with a target is said here, whatever the method.

        `first` is the number of the first text among all.
        """
        numbers = [first + n if first or len(texts) > 1 else None for n in range(len(texts))]
        expected = self.task
        rows = [expected.rows(text) for text in texts]
        whole = expected.name == "answer"
        numbered = [(row, number) for number, each in zip(numbers, rows, strict=True) for row in each]
        each = [asked.of_text(first + n) for n in range(len(texts))]
        examples: Sequence[ReadInput]
        if whole:
            contexts = [self._whole(row, number) for row, number in numbered]
            examples, each, numbers = in_windows(self.subject, windows, contexts, each, numbers)
        else:
            examples = [self._encoded(row, number) for row, number in numbered]
        batch = collate(self.subject, examples)
        once = needs.once and not asked.several
        recorded = Needs(maps=False) if expected.by_rows else replace(needs, last=asked.at_the_end, once=once)
        prediction = Prediction(self.subject.model, batch, needs=recorded)
        task = prediction.task
        if task.name != expected.name:
            raise UnsupportedModel(
                f"{type(self.subject.model).__name__} gives {task.gives}, not {expected.gives}: a sequence classifier "
                f"is needed, or a model …For{', …For'.join([*HEADS][1:])}; on tensors use whyformer.attribute"
            )
        if not task.by_rows:
            return explained_run(prediction, each, numbers)
        return explained_run(prediction, each, numbers, [len(of_text) for of_text in rows]).narrowed(needs)

    def _encoded(self, text: Any, number: int | None) -> ReadInput:
        """One text or image as the model takes it."""
        with numbering(number, "image" if self.subject.takes_images else "text"):
            encoded = read(self.subject, text)
        encoded.warn(alone=number is None)
        return encoded

    def _whole(self, text: Text, number: int | None) -> TextInput:
        """One text, all of it, whether it fits or not."""
        with numbering(number):
            encoded = encode(self.subject, text, whole=True)
        encoded.warn(alone=number is None)
        return encoded

    def _merged(
        self, texts: Sequence[Text], asked: Questions, spec: MethodSpec, windows: Windows, size: int, first: int = 0
    ) -> list[tuple[int, Explanation]]:
        """Explain texts by all their windows, `size` of which are run at a time."""
        explanations = []
        for number, text in enumerate(texts):
            with part(number, len(texts)):
                whole = self._whole(text, first + number if first or len(texts) > 1 else None)
                parts = windows.parts(self.subject, whole)
                each = asked.of_text(first + number)
                for output, scores in merged_outputs(self.subject, self.task, whole, parts, each, spec, size):
                    explanation = self._explanation(output, spec.of, dict(spec.options), scores)
                    explanations.append((first + number, explanation))
        return explanations

    def _explanations(self, run: ExplainedRun, method: Method, options: dict[str, Any]) -> list[Explanation]:
        scores = []
        for number, turn in enumerate(run.turns):
            with part(number, len(run.turns)):
                scores.append(method(turn, **options))
        explanations = [self._explanation(one, method, options, scores[one.turn]) for one in run.questions]
        _warn_if_relevance_grew(explanations)
        return explanations

    def _explanation(
        self, question: ExplainedOutput, method: Method, options: dict[str, Any], scores: Scores
    ) -> Explanation:
        example, row = question.example, question.row
        length, (units, texts, shown, layers) = len(example.units), shown_units(question, scores)
        diagnostics = _of_row(scores.diagnostics, row)
        pixels = diagnostics.pop("pixels", None)
        if example.dropped:
            diagnostics[DROPPED] = example.dropped
            diagnostics |= {} if example.counted else {"dropped_at_least": True}
        if example.window is not None:
            diagnostics["window"] = {"number": example.window.number, "count": example.window.count}
        return Explanation(
            units=units,
            scores=shown,
            layers=layers,
            prediction=question.predicted,
            target=question.target,
            versus=question.versus,
            explains=question.explains,
            predicts_at=question.target.place.token if self.task.causal and question.target.place else None,
            method=method.name,
            signed=bool(scores.signed),
            ranks=scores.ranks,
            signs=None if scores.signs is None else scores.signs[row, :length].cpu().numpy(),
            seen=() if scores.seen is None else tuple(seen.cut(length) for seen in scores.seen[row]),
            texts=texts,
            image=example.picture if isinstance(example, ImageInput) else None,
            pixels=None if pixels is None else np.array(pixels),
            options=options,
            diagnostics=diagnostics,
            provenance=self.subject.provenance,
            subject=self.subject,
        )


def _warn_if_relevance_grew(explanations: Sequence[Explanation]) -> None:
    """Warn if the relevance that arrived adds up to far more than what was sent. The text is the same for every input,
    so that Python shows it once.
    """
    for explanation in explanations:
        sums = explanation.conservation
        if sums is None:
            continue
        gap = abs(sums["sum"] + sums["absorbed"] - sums["expected"])
        if not gap <= MOST_GROWTH * max(1, abs(sums["expected"])):
            warnings.warn(
                f"{explanation.method}: on its way to the inputs the relevance grew to more than {MOST_GROWTH} times "
                "what was sent (e.conservation has the numbers), so the scores say little about the output; attn_lrp, "
                "or lrp(book=z_plus), keeps the sum",
                CompletenessWarning,
                stacklevel=2,
            )
            return


def dropped_in(numbered: Iterable[tuple[int, Explanation]]) -> dict[int, int]:
    """How many tokens of each text did not fit, by its number."""
    return {number: e.diagnostics[DROPPED] for number, e in numbered if DROPPED in e.diagnostics}


def _of_row(diagnostics: dict[str, Any], row: int) -> dict[str, Any]:
    """What a method reports for one example: of tensors [batch, …] and of `PerExample` the entry of that row."""
    reported: dict[str, Any] = {}
    for name, value in diagnostics.items():
        if isinstance(value, dict):
            reported[name] = _of_row(value, row)
        else:
            reported[name] = _without_nan(value[row].tolist()) if isinstance(value, Tensor | PerExample) else value
    return reported


def _without_nan(value: Any) -> Any:
    """Numbers in nested lists, with None for NaN, which JSON does not have."""
    if isinstance(value, list):
        return [_without_nan(one) for one in value]
    return None if value != value else value
