"""The window of a long context in which the answer stands: all windows are run, and one of them is explained."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch.nn.functional as F
from torch import Tensor, nn

from whyformer.errors import UnsupportedModel
from whyformer.inputs.encoding import TextInput
from whyformer.perturb.runner import Runner
from whyformer.tasks.answers import Answers, best_span, best_window, null_scores


class WindowRunner(Runner):
    """The engine for windows of contexts: where in each the answer may start and end."""

    def __init__(self, model: nn.Module, windows: Sequence[TextInput], *, tokens_per_batch: int | None = None):
        self.width = max(map(len, windows), default=0)
        read = partial(_ends, self.width, type(model).__name__)
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


def _ends(width: int, name: str, output: Any) -> Tensor:
    """The logits of start and end, [batch, 2 * width], with zeros for padding."""
    logits = Answers().logits(output)
    if logits is None:
        raise UnsupportedModel(f"{name} gives no start and end of an answer")
    return F.pad(logits, (0, width - logits.shape[-1])).flatten(1)
