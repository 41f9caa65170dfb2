"""What every method promises, as a check that anyone can run on a method of their own.

    from whyformer.testing import check_method
    assert not check_method(my_method, model, inputs)

The model should be small and in float64, the inputs a batch of several lengths, padded on the right.
"""

import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from whyformer.errors import MissingExtra, WhyformerError
from whyformer.inputs.encoding import batch_of
from whyformer.methods.registry import Method
from whyformer.prediction import Prediction
from whyformer.rounding import ROUNDING, arithmetic, distance

CLOSE_IN_FLOAT32 = 1e-3  # of the peak
EXTRA_PADDING = 3

Inputs = Mapping[str, Tensor]

_GLOBAL_HOOKS = (nn.modules.module._global_forward_hooks, nn.modules.module._global_forward_pre_hooks)


@dataclass(frozen=True)
class Violation:
    """A promise that a method broke."""

    clause: str
    found: str


def check_method(
    method: Method, model: nn.Module, inputs: Inputs, *, in_float32: float = CLOSE_IN_FLOAT32, **options: Any
) -> list[Violation]:
    """The promises that a method breaks on this model and batch; none for a good method.

    Scores are the same if they differ by no more than the rounding of the model's own arithmetic. `in_float32` is how
    far float32 may be from float64, as a share of the peak.
    """

    def broken(name: str, clause: Callable[[_Trial], Iterator[str]], allowed: float = 0.0) -> list[Violation]:
        try:
            violation = next(clause(_Trial(method, copy.deepcopy(model), inputs, options, allowed)), None)
        except MissingExtra:  # says nothing about the method
            raise
        except (WhyformerError, TypeError) as error:
            violation = f"{type(error).__name__}: {error}"
        return [Violation(name, violation)] if violation else []

    if violations := broken("runs", _Trial.runs):
        return violations
    rounding = ROUNDING[arithmetic(lambda: Prediction(copy.deepcopy(model), batch_of(model, inputs), 0).trace)]
    return [
        *broken("alone", _Trial.alone, rounding),
        *broken("padded", _Trial.padded, rounding),
        *broken("deterministic", _Trial.deterministic, rounding),
        *broken("given back", _Trial.given_back),
        *broken("given back after an error", _Trial.given_back_after_error),
        *broken("facts", _Trial.facts, rounding),
        *broken("precision", _Trial.precision, in_float32),
    ]


@dataclass(frozen=True, eq=False)
class _Trial:
    """A method on a copy of a model; each clause yields how it is broken. `allowed`: how far scores may be apart."""

    method: Method
    model: nn.Module
    inputs: Inputs
    options: dict[str, Any]
    allowed: float

    def score(self, inputs: Inputs | None = None, target: int = 0, versus: int | None = None) -> Tensor:
        """The scores of the batch, or of other inputs."""
        batch = batch_of(self.model, self.inputs if inputs is None else inputs)
        return self.method(Prediction(self.model, batch, target, versus), **self.options).total

    def apart(self, scores: Tensor, expected: Tensor, what: str) -> Iterator[str]:
        """That scores differ, if they do."""
        apart = distance(scores, expected)
        if not apart <= self.allowed:
            yield f"{what} the scores differ by {apart:.1e} of the peak"

    def runs(self) -> Iterator[str]:
        """Right shape, every score a number."""
        self.score()
        yield from ()

    def alone(self) -> Iterator[str]:
        """An example scores the same alone as in a batch."""
        scores = self.score()
        for row in range(len(scores)):
            length = int(self.inputs["attention_mask"][row].sum())
            single = {name: tensor[row : row + 1, :length] for name, tensor in self.inputs.items()}
            yield from self.apart(scores[row, :length], self.score(single)[0], f"example {row} alone and in a batch")

    def padded(self) -> Iterator[str]:
        """More padding changes nothing, and padding scores exactly 0."""
        fill = {"input_ids": getattr(getattr(self.model, "config", None), "pad_token_id", None) or 0}
        wider = {n: nn.functional.pad(t, (0, EXTRA_PADDING), value=fill.get(n, 0)) for n, t in self.inputs.items()}
        scores = self.score(wider)
        if bool(scores[wider["attention_mask"] == 0].ne(0).any()):
            yield "padding has a score"
        yield from self.apart(scores[:, :-EXTRA_PADDING], self.score(), "with more padding")

    def deterministic(self) -> Iterator[str]:
        """The same call gives the same scores."""
        first = self.score()
        torch.rand(7)
        yield from self.apart(self.score(), first, "in two calls")

    def given_back(self) -> Iterator[str]:
        """The model is as it was."""
        before = state(self.model.train())
        self.score()
        yield from _differences(before, state(self.model))

    def given_back_after_error(self) -> Iterator[str]:
        """The model is as it was, also after its forward raised."""

        def fail(*_: Any) -> None:
            raise ArithmeticError

        handle = list(self.model.modules())[-1].register_forward_hook(fail)
        before = state(self.model.train())
        try:
            self.score()
            yield "an error inside the model was swallowed"
        except ArithmeticError:
            yield from _differences(before, state(self.model))
        finally:
            handle.remove()

    def facts(self) -> Iterator[str]:
        """What the method declares about itself is true."""
        first, second = self.score(target=0), self.score(target=1)
        if not self.method.signed and bool((first < 0).any()):
            yield "declared as not signed, but a score is negative"
        if self.method.signed and not bool((self.score(target=0, versus=1) < 0).any()):
            yield "declared as signed, but not even between two classes a score is negative"
        same = distance(second, first) <= self.allowed
        if self.method.class_specific and same:
            yield "declared as class-specific, but two classes have the same scores"
        if not self.method.class_specific and not same:
            yield "declared as not class-specific, but two classes have different scores"

    def precision(self) -> Iterator[str]:
        """Float32 is close to float64."""
        single = replace(self, model=copy.deepcopy(self.model).float())
        yield from self.apart(single.score().double(), self.score().double(), "in float32 and float64")


def state(model: nn.Module) -> dict[str, Any]:
    """Everything about a model that an explanation must not change."""
    config = getattr(model, "config", None)
    return {
        "weights": {name: tensor.clone() for name, tensor in model.state_dict(keep_vars=False).items()},
        "requires_grad": {name: p.requires_grad for name, p in model.named_parameters()},
        "gradients": {name: p.grad is not None for name, p in model.named_parameters()},
        "training": {name: m.training for name, m in model.named_modules()},
        "hooks": {name: _hooks(m) for name, m in model.named_modules()},
        "global hooks": {"all": sum(len(hooks) for hooks in _GLOBAL_HOOKS)},
        "config": {} if config is None else {k: str(v) for k, v in config.to_dict().items()},
    }


def _hooks(module: nn.Module) -> int:
    return sum(len(value) for name, value in vars(module).items() if name.endswith("_hooks") and value is not None)


def _differences(before: dict[str, Any], after: dict[str, Any]) -> Iterator[str]:
    for what, values in before.items():
        same: Callable[[Any, Any], bool] = torch.equal if what == "weights" else lambda a, b: a == b
        changed = [n for n, v in values.items() if n not in after[what] or not same(v, after[what][n])]
        if changed or len(values) != len(after[what]):
            yield f"the model's {what} changed: {', '.join(changed[:3])}"
