"""Checks that anyone can run: what every method promises, and what a model is to lean on or to ignore.

    from whyformer.testing import check_method
    assert not check_method(my_method, model, inputs)

The model should be small and in float64, the inputs a batch of several lengths, padded on the right.

    from whyformer.testing import assert_ignores, assert_leans_on
    assert_leans_on(explainer.explain("a gorgeous film"), "gorgeous", share=0.3)
    assert_ignores(explainer, "thursday", texts=texts, effect=0.1)
"""

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from whyformer.errors import BadInput, BadOption, MissingExtra, UnknownWord, UnsupportedModel, WhyformerError, shown
from whyformer.explain.explainer import Explainer
from whyformer.explain.explanation import Explanation
from whyformer.inputs.batch import batch_of, collate, encode
from whyformer.inputs.text import Text, texts_of
from whyformer.inputs.units import occurrences
from whyformer.methods.method import Method
from whyformer.metrics.faithfulness import flat
from whyformer.perturb import Hidden, hide_named, hideable, outcomes_of, outcomes_without
from whyformer.prediction import Prediction
from whyformer.results import checked
from whyformer.show.layout import between
from whyformer.tolerance import ROUNDING, arithmetic, distance

CLOSE_IN_FLOAT32 = 1e-3  # of the peak
EXTRA_PADDING = 3
MUCH, LITTLE = 0.2, 0.05  # shares of a word that a model leans on, or ignores

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
        looked_at = (first, second, self.score(target=0, versus=1)) if self.method.signed else ()
        if looked_at and not any(bool((scores < 0).any()) for scores in looked_at):
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


def assert_leans_on(
    explained: Explainer | Explanation | Iterable[Explanation],
    word: str,
    *,
    texts: Text | Iterable[Text] | None = None,
    share: float | None = None,
    effect: float | None = None,
) -> None:
    """Raise an AssertionError unless a model leans on a word, in every text that has it.

    By explanations: the word has at least this `share` of all magnitudes, by default a fifth. Or by the model itself,
    where an `Explainer` is given, and `texts`: without the word the log-odds of what it predicts change by at least
    `effect`, by default 0.1. With an explainer and a `share`, texts are explained first.
    """
    each, limit = _felt(explained, word, texts, share, effect, MUCH)
    if short := [one for one in each if one.amount < limit]:
        worst = min(short, key=lambda one: one.amount)
        raise AssertionError(
            f"the model does not lean on {word!r}: {worst.told}, less than {worst.written(limit)}"
            f"{_how_often(short, each)}"
        )


def assert_ignores(
    explained: Explainer | Explanation | Iterable[Explanation],
    word: str,
    *,
    texts: Text | Iterable[Text] | None = None,
    share: float | None = None,
    effect: float | None = None,
) -> None:
    """Raise an AssertionError unless a model ignores a word, in every text that has it.

    As `assert_leans_on`, the other way round: the share is at most 0.05, or the effect at most 0.1, unless others are
    given.
    """
    each, limit = _felt(explained, word, texts, share, effect, LITTLE)
    if much := [one for one in each if one.amount > limit]:
        worst = max(much, key=lambda one: one.amount)
        raise AssertionError(
            f"the model does not ignore {word!r}: {worst.told}, more than {worst.written(limit)}"
            f"{_how_often(much, each)}"
        )


@dataclass(frozen=True)
class _Felt:
    """How much a word matters in one text, and the same for people."""

    amount: float
    told: str
    percent: bool

    def written(self, amount: float) -> str:
        """An amount of this kind."""
        return f"{100 * amount:.3g} %" if self.percent else f"{amount:.3g}"


def _how_often(failed: list[_Felt], every: list[_Felt]) -> str:
    return f"; so in {len(failed)} of {len(every)} texts" if len(every) > 1 else ""


def _felt(
    explained: Any, word: str, texts: Any, share: float | None, effect: float | None, usual: float
) -> tuple[list[_Felt], float]:
    """How much a word matters in each text that has it, and how much is asked for."""
    asks = isinstance(explained, Explainer)
    if share is not None and effect is not None:
        raise BadOption("give share= or effect=, not both: they are different numbers")
    if asks != (texts is not None) or (effect is not None and not asks):
        raise BadOption("give explanations and share=, or an Explainer and texts=: effects are measured by the model")
    if asks and share is None:
        effects = _of_each(_one_or_several(texts), lambda text: _effect(explained, text, word), word)
        return effects, checked.LITTLE if effect is None else effect
    several = explained.explain(_one_or_several(texts)) if asks else explained
    several = [several] if isinstance(several, Explanation) else list(several)
    return _of_each(several, lambda e: _share(e, word), word), usual if share is None else share


def _one_or_several(texts: Any) -> list[Any]:
    several = texts_of(texts)
    return [texts] if several is None else list(several)


def _of_each(each: Iterable[Any], felt: Callable[[Any], _Felt], word: str) -> list[_Felt]:
    """What is felt of the word in each that has it; one that does not is passed over, unless none has it."""
    having, missing = [], None
    for one in each:
        try:
            having.append(felt(one))
        except UnknownWord as error:
            missing = missing or error
    if not having:
        raise missing or BadInput(f"there is no text that could have the word {shown(word)}")
    return having


def _share(explanation: Any, word: str) -> _Felt:
    if not isinstance(explanation, Explanation):
        raise BadInput(f"explanations, or an Explainer and texts=, are needed; found {shown(explanation)}")
    share = explanation.share(word)
    return _Felt(share, f"it has {100 * share:.3g} % of all that matters in {explanation!r}", percent=True)


def _effect(explainer: Explainer, text: Text, word: str) -> _Felt:
    """How far the log-odds of the prediction move when the word is deleted wherever it stands."""
    subject, task = explainer.subject, explainer.task
    if subject.task != "classes" or subject.takes_images:
        raise UnsupportedModel(f"effects are those of models that classify texts; this one {task.does}: use share=")
    encoded = encode(subject, text)
    prediction = Prediction(subject.model, collate(subject, [encoded]))
    whole = outcomes_of(prediction)[0]
    if whole.log_odds is None:
        raise UnsupportedModel("an effect is that on the log-odds of a class, and this model gives none: use share=")
    (hidden,) = hideable(prediction, "word", hide_named("delete"))
    words = encoded.words
    places = flat([words[number][1] for number in occurrences(word, [unit.text for unit, _ in words])])
    (without,) = outcomes_without(prediction, [Hidden(hidden, places)], hide_named("delete"))
    moved = abs(whole.log_odds - (without.log_odds or 0.0))
    name = task.called(int(prediction.target[0]))
    falls = between(whole.probability or 0.0, without.probability or 0.0)
    told = f"without it the log-odds of {name} move by {moved:.3g} ({falls}) in {shown(text)}"
    return _Felt(moved, told, percent=False)


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
