"""The surface that ties it together: Explainer, attribute."""

import importlib.metadata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, overload

import torch
from torch import Tensor, nn

import whyformer.methods  # noqa: F401  (registers the methods)
from whyformer.errors import BadInput, BadOption, WhyformerError
from whyformer.explanation import Comparison, Explanation, Label, Predicted
from whyformer.inputs import Batch, Encoded, Text, batch_of, collate, encode
from whyformer.load import Subject, load, subject_of
from whyformer.prediction import Prediction
from whyformer.recorder import Target, plain_target
from whyformer.registry import Method, Scores, method_named
from whyformer.registry import methods as registered_methods

AUTO = "attcat"


class Explainer:
    """Explains the predictions of one model.

    explainer = Explainer.load("sentiment")          # a bundled model, a hub id, or a folder
    explainer = Explainer(model, tokenizer)          # objects in hand, or a pipeline alone
    explanation = explainer.explain("a gorgeous, witty film")
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

    def explain(
        self,
        text: Text | list[Text],
        method: str = "auto",
        *,
        target: Target = None,
        versus: Target = None,
        batch_size: int = 16,
        **options: Any,
    ) -> Explanation | list[Explanation]:
        """Explain one text or pair, or a list of them: list in, list out, in order.

        Without a target each text's predicted class is explained; `versus` explains the difference of two classes.
        In a list, `target` may be a list too. Options of the method are keywords.
        """
        if not isinstance(text, list):
            return next(self.stream([text], method, target=target, versus=versus, **options))
        return list(
            self.stream(text, method, target=target, versus=versus, batch_size=batch_size, progress=True, **options)
        )

    def stream(
        self,
        texts: Sequence[Text],
        method: str = "auto",
        *,
        target: Target = None,
        versus: Target = None,
        batch_size: int = 16,
        progress: bool = False,
        **options: Any,
    ) -> Iterator[Explanation]:
        """Explain texts one batch after the other, so that what is done is never lost."""
        chosen = method_named(AUTO if method == "auto" else method)
        checked = chosen.checked(options)
        if not isinstance(batch_size, int) or batch_size < 1:
            raise BadInput(f"batch_size must be at least 1; found {batch_size!r}")
        starts: Iterable[int] = range(0, len(texts), batch_size)
        if progress and len(texts) > batch_size:
            starts = _with_progress(range(0, len(texts), batch_size), f"{chosen.name}")
        for start in starts:
            chunk = texts[start : start + batch_size]
            batch = collate(self.subject, [encode(self.subject, text) for text in chunk])
            picked = [_for_rows(t, start, len(chunk), len(texts)) for t in (target, versus)]
            prediction = Prediction(self.subject.model, batch, *picked, relevance=chosen.relevance)
            yield from self._explanations(prediction, chosen, checked)

    def compare(
        self,
        text: Text,
        methods: Sequence[str] | str = "all",
        *,
        target: Target = None,
        versus: Target = None,
    ) -> Comparison:
        """Explain one text by several methods, from one forward pass.

        With `"all"`, a method that refuses this model or text is listed in `refused` with its reason.
        """
        names = list(registered_methods()) if methods == "all" else methods
        chosen = [method_named(n) for n in ([names] if isinstance(names, str) else names)]
        if not chosen:
            raise BadOption("a comparison needs at least one method")
        batch = collate(self.subject, [encode(self.subject, text)])
        relevance = any(method.relevance for method in chosen)
        prediction = Prediction(self.subject.model, batch, target, versus, relevance=relevance)
        _ = prediction.target, prediction.versus  # what is wrong for every method is no refusal of one
        done: list[Explanation] = []
        refused: list[tuple[str, str]] = []
        for method in chosen:
            try:
                done += self._explanations(prediction, method, {})
            except WhyformerError as error:
                if methods != "all":
                    raise
                refused.append((method.name, str(error)))
        return Comparison(tuple(done), tuple(refused))

    def _explanations(self, prediction: Prediction, method: Method, options: dict[str, Any]) -> Iterator[Explanation]:
        scores = method(prediction, **options)
        for row, example in enumerate(prediction.batch.examples):
            yield self._explanation(prediction, method, options, scores, row, example)

    def _explanation(
        self,
        prediction: Prediction,
        method: Method,
        options: dict[str, Any],
        scores: Scores,
        row: int,
        example: Encoded,
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
            prediction=_predicted(prediction, row),
            target=_label(prediction, int(prediction.target[row])),
            versus=None if prediction.versus is None else _label(prediction, int(prediction.versus[row])),
            method=method.name,
            signed=method.signed,
            texts=example.texts,
            options=options,
            diagnostics=diagnostics,
            provenance=self._provenance(),
        )

    def _provenance(self) -> dict[str, Any]:
        packages = {name: importlib.metadata.version(name) for name in ("whyformer", "torch", "transformers")}
        parameter = next(self.subject.model.parameters())
        return {
            "model": self.subject.name,
            "revision": self.subject.revision,
            "dtype": str(parameter.dtype).removeprefix("torch."),
            "device": str(parameter.device),
            "packages": packages,
        }


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


def _for_rows(target: Target, start: int, count: int, total: int) -> Target:
    """The targets of a part of the texts, where one is given for each."""
    given = plain_target(target)
    if not isinstance(given, list):
        return target
    if len(given) != total:
        raise BadInput(f"{len(given)} targets for {total} texts: give one, or one for each")
    chunk: list[Any] = given[start : start + count]
    return chunk


def _of_row(diagnostics: dict[str, Any], row: int) -> dict[str, Any]:
    """What a method reports for one example: of tensors [batch, …] its entry."""
    found: dict[str, Any] = {}
    for name, value in diagnostics.items():
        if isinstance(value, dict):
            found[name] = _of_row(value, row)
        else:
            found[name] = value[row].tolist() if isinstance(value, Tensor) else value
    return found


def _label(prediction: Prediction, index: int) -> Label:
    labels = prediction.labels
    return Label(index, labels[index] if index < len(labels) else str(index))


def _predicted(prediction: Prediction, row: int) -> Predicted:
    logits = prediction.trace.logits[row].detach().double().cpu()
    problem = getattr(getattr(prediction.model, "config", None), "problem_type", None)
    if len(logits) == 1 and problem != "multi_label_classification":
        probabilities = None
    elif problem == "multi_label_classification":
        probabilities = tuple(torch.sigmoid(logits).tolist())
    else:
        probabilities = tuple(torch.softmax(logits, -1).tolist())
    label = _label(prediction, int(prediction.predicted[row]))
    probability = None if probabilities is None else probabilities[label.index]
    names = tuple(_label(prediction, i).name for i in range(len(logits)))
    return Predicted(label.name, label.index, probability, tuple(logits.tolist()), probabilities, names)


def _with_progress(starts: range, description: str) -> Iterator[int]:
    """A progress bar on standard error, where a person is watching; it stays away from fast jobs."""
    import sys
    import time

    from rich.console import Console
    from rich.progress import track

    begun = time.monotonic()
    waiting = iter(starts)
    for number, start in enumerate(waiting):
        yield start
        remaining = len(starts) - number - 1
        if remaining and (time.monotonic() - begun) / (number + 1) * len(starts) > 2:
            rest = starts[number + 1 :]
            console = Console(file=sys.stderr)
            yield from track(rest, description, console=console, transient=True, disable=not sys.stderr.isatty())
            return
