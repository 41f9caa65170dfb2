"""Methods by name: what each declares about itself, and what it computes.

Importing any module of this package registers all methods of Whyformer.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from torch import Tensor

from whyformer.checks import gathered, refuse_if
from whyformer.errors import BadOption, UnsupportedModel
from whyformer.methods.replaying import captured, replayed
from whyformer.perturb.seen import Seen
from whyformer.prediction import Prediction
from whyformer.recorder import MAPS, Needs, differentiating
from whyformer.recorder.run import check_finite
from whyformer.registry.names import Registry
from whyformer.registry.specs import Registered, keyword_only, register
from whyformer.tasks.task import Explains, are_all_others

RESERVED = frozenset(  # parameters of `Explainer.explain` and `attribute`, and flags of `whyformer explain`
    (
        *("input", "inputs", "text", "texts", "pair", "question", "context", "context_file", "file", "choices"),
        *("model", "method", "methods", "target", "versus", "word", "words", "position", "options", "effort"),
        *("batch_size", "progress", "trust", "html", "json", "device", "dtype", "allow_pickle", "trust_remote_code"),
        *("debug", "help", "asked", "loading", "choice", "column", "on_error", "as_json", "revision"),
        *("windows", "window_size", "overlap", "image", "out", "check", "tokens", "explains", "columns", "data"),
        *("label", "limit", "sample", "split", "memory", "capture"),
    )
)


class PerExample(tuple[Tensor, ...]):
    """A diagnostic whose shape differs from example to example: a tensor for each, [examples]."""


@dataclass(frozen=True)
class Scores:
    """What a method computed: [batch, units], or [layers, batch, units] where the layers are to be summed.

    `signed` says whether scores below zero speak against the target, where an option decides it; otherwise it is what
    the method declares. `ranks`: the values tell an order alone, so that of a word its highest token counts, not the
    sum. `signs` [batch, units]: above 0 where a unit spoke for the target and below 0 where against it, if the values
    do not tell. `seen`: of each example, what the method saw while it hid units; one for each part of the target.
    """

    values: Tensor
    diagnostics: dict[str, Any] = field(default_factory=dict)
    signed: bool | None = None
    ranks: bool = False
    signs: Tensor | None = None
    seen: tuple[tuple[Seen, ...], ...] | None = None

    @property
    def layers(self) -> Tensor | None:
        """The scores of each layer, if the method gives them."""
        return self.values if self.values.dim() == 3 else None

    @property
    def total(self) -> Tensor:
        """The scores, [batch, units]."""
        return self.values.sum(0) if self.values.dim() == 3 else self.values


Passes = Literal["one", "many"]


@dataclass(frozen=True)
class Method(Registered):
    """A registered method: the function and what it declares.

    * `signed`: scores below zero speak against the target.
    * `class_specific`: the scores depend on the target.
    * `quantity`: what it explains of a target unless it is asked for something else. A method of a paper explains the
      logit.
    * `single_output`: it keeps the positive part of what it finds for one output, or divides by the sum of it. With
      `versus`, its scores are those of the target minus those of the other output.
    * `passes`: whether it runs the model once or often.
    * `images_only`: it is not for texts, and neither `all` nor `fast` means it there.
    * `needs`: what its run has to record (`recorder.needs`), or a function that returns it for the method's options.
    """

    signed: bool
    class_specific: bool
    paper: str
    needs: Needs | Callable[..., Needs] = MAPS
    passes: Passes = "one"
    images_only: bool = False
    quantity: Explains = "logit"
    single_output: bool = False

    def needs_for(self, options: Mapping[str, Any]) -> Needs:
        """Return what a run has to record for these options."""
        return self.needs if isinstance(self.needs, Needs) else self.needs(**self.arguments(options))

    def __call__(self, prediction: Prediction, **options: Any) -> Scores:
        """Score a prediction. Padding scores exactly 0, and a score that is no number is an error.

        The start and the end of an answer are scored one by one, and added up.
        """
        arguments = self.arguments(options)
        if self.images_only and not prediction.batch.is_images:
            raise UnsupportedModel(f"{self.name} is for images, and {type(prediction.model).__name__} reads texts")
        again = replayed(self, arguments, prediction)
        if again is not None:
            return again
        with gathered():
            scores = self.scored(prediction, arguments)
        refused = captured(self, arguments, prediction, scores)
        if refused is None:
            return scores
        return replace(scores, diagnostics={**scores.diagnostics, "capture": f"not captured: {refused}"})

    def scored(self, prediction: Prediction, arguments: Mapping[str, Any]) -> Scores:
        """The same, given all its options; what is wrong with numbers is told to whoever gathers checks."""
        padding = prediction.padding  # first: where the head reads is asked of the graph, which may be gone then
        with differentiating():
            scores = _added([self._of_part(part, arguments) for part in prediction.parts])
        expected = tuple(padding.shape)
        if tuple(scores.values.shape[-2:]) != expected or scores.values.dim() not in (2, 3):
            raise TypeError(f"{self.name} returned scores of shape {tuple(scores.values.shape)}, not {expected}")
        values = scores.values.detach().masked_fill(padding, 0)
        check_finite(prediction.outputs.logits, type(prediction.model).__name__)
        refuse_if(
            ~torch.isfinite(values).all(),
            UnsupportedModel(
                f"{self.name} gave scores that are not numbers on this model in {prediction.outputs.logits.dtype}; "
                "load it in float32"
            ),
        )
        return replace(scores, values=values, signed=self.signed if scores.signed is None else scores.signed)

    def _of_part(self, part: Prediction, arguments: Mapping[str, Any]) -> Scores:
        """The scores of one part of the target. A method of single outputs subtracts those of the other output."""
        if not self.single_output or part.versus is None or are_all_others(part.versus):
            found = self.function(part, **arguments)
            if not isinstance(found, Scores | Tensor):
                raise TypeError(f"{self.name} returned {type(found).__name__}, not a tensor [batch, units] or Scores")
            return found if isinstance(found, Scores) else Scores(found)
        one, other = (self._of_part(each, arguments) for each in part.each_output())
        diagnostics = {**one.diagnostics, **({"versus": other.diagnostics} if other.diagnostics else {})}
        return replace(one, values=one.values - other.values, diagnostics=diagnostics, signed=True)


METHODS: Registry[Method] = Registry("method", "methods")


def method(
    *,
    family: str,
    signed: bool,
    class_specific: bool,
    paper: str,
    needs: Needs | Callable[..., Needs] = MAPS,
    passes: Passes = "one",
    images_only: bool = False,
    quantity: Explains = "logit",
    single_output: bool = False,
) -> Callable[[Callable[..., Scores | Tensor]], Callable[..., Scores | Tensor]]:
    """Register a function as the method of its name."""

    def registered(function: Callable[..., Scores | Tensor]) -> Callable[..., Scores | Tensor]:
        facts = family, signed, class_specific, paper, needs, passes, images_only, quantity, single_output
        made = Method(function.__name__, function, *facts)
        if taken := sorted(RESERVED & keyword_only(function)):
            raise BadOption(
                f"method {made.name!r} cannot have an option {taken[0]!r}: explain has a parameter of that name, and "
                f"the method would not get it; rename it. Reserved are {', '.join(sorted(RESERVED))}"
            )
        return register(METHODS, made)

    return registered


def list_methods() -> dict[str, Method]:
    """All methods by name."""
    return METHODS.listed()


def method_named(name: str) -> Method:
    """The method of that name, or an error with the nearest one."""
    return METHODS.named(name)


def _added(parts: list[Scores]) -> Scores:
    """The sum; what the parts report is added up too where it is a number, and listed where it is not."""
    if len(parts) == 1:
        return parts[0]
    signs = [part.signs for part in parts if part.signs is not None]
    seen = [part.seen for part in parts if part.seen is not None]
    return replace(
        parts[0],
        values=torch.stack([part.values for part in parts]).sum(0),
        diagnostics=_joined([part.diagnostics for part in parts]),
        signs=torch.stack(signs).sum(0) if signs else None,
        seen=tuple(sum(of_example, ()) for of_example in zip(*seen, strict=True)) if seen else None,
    )


def _joined(reports: list[dict[str, Any]]) -> dict[str, Any]:
    joined: dict[str, Any] = {}
    for name, first in reports[0].items():
        values = [report[name] for report in reports]
        if isinstance(first, dict):
            joined[name] = _joined(values)
        else:
            joined[name] = torch.stack(values).sum(0) if isinstance(first, Tensor) else values
    return joined
