"""Documents: texts that are longer than a model's window, explained by all their windows."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from whyformer.caching import cached_property
from whyformer.errors import BadOption, UnsupportedModel
from whyformer.inputs.batch import TextInput, collate
from whyformer.methods.method import MethodSpec, Scores
from whyformer.models.load import Subject
from whyformer.perturb.engine import Runner, attended
from whyformer.perturb.out_of_memory import in_halves
from whyformer.prediction import Prediction
from whyformer.progress import part
from whyformer.recorder import Needs, Trace
from whyformer.tasks.task import Chosen, ModelOutputs, Task


class Document:
    """A text in windows, whose logits are the mean over them.

    Every window is explained towards the document's output, and a unit has the mean of its scores over the windows in
    which it stands. `size` windows are run at a time; `needs` says what runs have to record.
    """

    def __init__(
        self,
        subject: Subject,
        task: Task,
        whole: TextInput,
        windows: Sequence[TextInput],
        *,
        size: int,
        needs: Needs | None = None,
    ):
        self.subject, self.task, self.whole, self.windows = subject, task, whole, windows
        self.size, self.needs = min(size, len(windows)), None if needs is None else replace(needs, once=False)
        self._whole_run: Prediction | None = None

    @cached_property
    def outputs(self) -> ModelOutputs:
        """What the model says of the document, [1, classes]."""
        engine = Runner(self.subject.model, self._logits)
        logits = engine.logits([attended(window) for window in self.windows], 1).mean(0, keepdim=True)
        outputs = ModelOutputs(logits, self.task, torch.ones(1, len(self.whole), dtype=torch.bool))
        self.task.check(outputs, self.subject.model)
        return outputs

    @cached_property
    def prediction(self) -> Prediction:
        """What was said of the document, as metrics are given it: there is no run of the whole."""
        trace = Trace(self.outputs, UnsupportedModel("a document in windows was not run as a whole"), None)
        nowhere = torch.zeros(1, len(self.whole), dtype=torch.bool)
        batch, chosen = collate(self.subject, [self.whole]), (self.outputs.predicted, None)
        return Prediction(self.subject.model, batch, chosen=chosen, padding=nowhere, trace=trace)

    def scores(self, spec: MethodSpec, pairs: Sequence[tuple[Chosen, Chosen | None]]) -> list[Scores]:
        """The scores for each output, and what that is set against."""
        if spec.options.get("of") == "loss" or spec.options.get("protocol") == "allennlp":
            raise BadOption(
                f"windows='merge' merges logits, and {spec.label} explains the loss of a single window: leave one of "
                "the two out"
            )
        merged = [_Merged(len(self.whole), spec) for _ in pairs]

        def explain(windows: Sequence[TextInput]) -> None:
            found = self._explained(windows, spec, pairs)
            for document, scores in zip(merged, found, strict=True):
                document.add(scores, windows)

        size = self.size
        for number, start in enumerate(starts := range(0, len(self.windows), size)):
            with part(number, len(starts)):
                in_halves(explain, self.windows[start : start + size])
        return [document.scores for document in merged]

    def _explained(
        self, windows: Sequence[TextInput], spec: MethodSpec, pairs: Sequence[tuple[Chosen, Chosen | None]]
    ) -> list[Scores]:
        """Return the scores of some windows for each output. After an error for lack of memory, runs are smaller."""
        count = len(windows)
        try:
            run = self._run(windows)
            return [
                spec(run.towards([chosen] * count, None if versus is None else [versus] * count))
                for chosen, versus in pairs
            ]
        except torch.OutOfMemoryError:
            self.size, self._whole_run = max(1, count // 2), None
            raise

    def _run(self, windows: Sequence[TextInput]) -> Prediction:
        """Run windows. A run of all windows is kept, so that every method shares it."""
        if self._whole_run is not None and len(windows) == len(self.windows):
            return self._whole_run
        run = Prediction(self.subject.model, collate(self.subject, windows), needs=self.needs)
        if len(windows) == len(self.windows):
            self._whole_run = run
        return run

    def _logits(self, output: Any) -> Tensor:
        logits = self.task.logits(output)
        if logits is None:
            raise UnsupportedModel(f"{type(self.subject.model).__name__} does not give {self.task.gives}")
        return logits


class _Merged:
    """The scores of a document, as those of its windows come in."""

    def __init__(self, units: int, spec: MethodSpec):
        self.spec, self.windows = spec, 0
        self.signed: bool | None = None
        self.counts = torch.zeros(units, dtype=torch.float64)
        self.sums: Tensor | None = None  # [units], or [layers, units]

    def add(self, scores: Scores, windows: Sequence[TextInput]) -> None:
        """Take in the scores of some windows."""
        if scores.ranks:
            raise BadOption(
                f"windows='merge' takes means of scores, and {self.spec.label} ranks the units of one window: give "
                "another method"
            )
        values = scores.values.double().cpu()
        if self.sums is None:
            self.signed, self.sums = scores.signed, torch.zeros(*values.shape[:-2], len(self.counts)).double()
        for row, window in enumerate(windows):
            places = torch.arange(len(window)) if window.window is None else torch.from_numpy(window.window.places)
            self.counts[places] += 1
            self.sums[..., places] += values[..., row, : len(window)]
        self.windows += len(windows)

    @property
    def scores(self) -> Scores:
        """The means over the windows."""
        assert self.sums is not None
        return Scores((self.sums / self.counts).unsqueeze(-2), {"windows": self.windows}, self.signed)
