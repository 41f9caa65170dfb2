"""What every method promises, as a check that anyone can run on a method of their own.

    from whyformer.testing import check_method
    assert not check_method(my_method, model, inputs)

The model should be small and in float64, the inputs a batch of several lengths, padded on the right.
"""

import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
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

    def broken(name: str, clause: Callable[..., Iterator[str]]) -> list[Violation]:
        try:
            found = next(clause(method, copy.deepcopy(model), inputs, options), None)
        except MissingExtra:  # says nothing about the method
            raise
        except (WhyformerError, TypeError) as error:
            found = f"{type(error).__name__}: {error}"
        return [Violation(name, found)] if found else []

    if violations := broken("runs", _runs):
        return violations
    allowed = ROUNDING[arithmetic(lambda: Prediction(copy.deepcopy(model), batch_of(model, inputs), 0).trace)]
    clauses: dict[str, Callable[..., Iterator[str]]] = {
        "alone": partial(_alone, allowed),
        "padded": partial(_padded, allowed),
        "deterministic": partial(_deterministic, allowed),
        "given back": _given_back,
        "given back after an error": _given_back_after_error,
        "facts": partial(_facts, allowed),
        "precision": partial(_precision, in_float32),
    }
    return [violation for name, clause in clauses.items() for violation in broken(name, clause)]


def _score(
    method: Method,
    model: nn.Module,
    inputs: Inputs,
    options: dict[str, Any],
    target: int = 0,
    versus: int | None = None,
) -> Tensor:
    return method(Prediction(model, batch_of(model, inputs), target, versus), **options).total


def _runs(method: Method, model: nn.Module, inputs: Inputs, options: dict[str, Any]) -> Iterator[str]:
    """Right shape, every score a number."""
    _score(method, model, inputs, options)
    yield from ()


def _alone(allowed: float, method: Method, model: nn.Module, inputs: Inputs, options: dict[str, Any]) -> Iterator[str]:
    """An example scores the same alone as in a batch."""
    scores = _score(method, model, inputs, options)
    for row in range(len(scores)):
        length = int(inputs["attention_mask"][row].sum())
        single = {name: tensor[row : row + 1, :length] for name, tensor in inputs.items()}
        expected = _score(method, model, single, options)[0]
        yield from _distance(scores[row, :length], expected, allowed, f"example {row} alone and in a batch")


def _padded(allowed: float, method: Method, model: nn.Module, inputs: Inputs, options: dict[str, Any]) -> Iterator[str]:
    """More padding changes nothing, and padding scores exactly 0."""
    padding = getattr(getattr(model, "config", None), "pad_token_id", None) or 0
    fill = {"input_ids": padding}
    wider = {n: nn.functional.pad(t, (0, EXTRA_PADDING), value=fill.get(n, 0)) for n, t in inputs.items()}
    scores, expected = _score(method, model, wider, options), _score(method, model, inputs, options)
    if bool(scores[wider["attention_mask"] == 0].ne(0).any()):
        yield "padding has a score"
    yield from _distance(scores[:, :-EXTRA_PADDING], expected, allowed, "with more padding")


def _deterministic(
    allowed: float, method: Method, model: nn.Module, inputs: Inputs, options: dict[str, Any]
) -> Iterator[str]:
    """The same call gives the same scores."""
    first = _score(method, model, inputs, options)
    torch.rand(7)
    yield from _distance(_score(method, model, inputs, options), first, allowed, "in two calls")


def _given_back(method: Method, model: nn.Module, inputs: Inputs, options: dict[str, Any]) -> Iterator[str]:
    """The model is as it was."""
    before = state(model.train())
    _score(method, model, inputs, options)
    yield from _differences(before, state(model))


def _given_back_after_error(method: Method, model: nn.Module, inputs: Inputs, options: dict[str, Any]) -> Iterator[str]:
    """The model is as it was, also after its forward raised."""
    last = list(model.modules())[-1]

    def fail(*_: Any) -> None:
        raise ArithmeticError

    handle = last.register_forward_hook(fail)
    before = state(model.train())
    try:
        _score(method, model, inputs, options)
        yield "an error inside the model was swallowed"
    except ArithmeticError:
        yield from _differences(before, state(model))
    finally:
        handle.remove()


def _facts(allowed: float, method: Method, model: nn.Module, inputs: Inputs, options: dict[str, Any]) -> Iterator[str]:
    """What the method declares about itself is true."""
    first, second = (_score(method, model, inputs, options, target) for target in (0, 1))
    if not method.signed and bool((first < 0).any()):
        yield "declared as not signed, but a score is negative"
    if method.signed and not bool((_score(method, model, inputs, options, 0, versus=1) < 0).any()):
        yield "declared as signed, but not even between two classes a score is negative"
    same = distance(second, first) <= allowed
    if method.class_specific and same:
        yield "declared as class-specific, but two classes have the same scores"
    if not method.class_specific and not same:
        yield "declared as not class-specific, but two classes have different scores"


def _precision(
    allowed: float, method: Method, model: nn.Module, inputs: Inputs, options: dict[str, Any]
) -> Iterator[str]:
    """Float32 is close to float64."""
    single = copy.deepcopy(model).float()
    scores, expected = (_score(method, m, inputs, options).double() for m in (single, model))
    yield from _distance(scores, expected, allowed, "in float32 and float64")


def _distance(scores: Tensor, expected: Tensor, allowed: float, what: str) -> Iterator[str]:
    apart = distance(scores, expected)
    if not apart <= allowed:
        yield f"{what} the scores differ by {apart:.1e} of the peak"


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
