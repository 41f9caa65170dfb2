"""Methods by name: the decorator `@method`, `Scores`, and specs such as `attcat(states=inputs)`, `all` or `fast`.

Importing any module of this package registers all methods of Whyformer.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal

import torch
from torch import Tensor

from whyformer.errors import BadOption, UnsupportedModel
from whyformer.methods.replaying import captured, replayed
from whyformer.number_checks import gathered, refuse_if
from whyformer.perturb.hiding_steps import Seen
from whyformer.prediction import Prediction
from whyformer.recorder import MAPS, Book, Layers, Needs, differentiating
from whyformer.recorder.lrp.rule_sets import GRADIENT_BOOKS, PLAIN, gradient_book
from whyformer.recorder.recording import check_finite
from whyformer.registry.names import Registry
from whyformer.registry.options import Added, MethodName, Names, Spelling
from whyformer.registry.specs import Registered, Spec, Written, distinct, keyword_only, names_of, read_spec, register
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


FAST = "fast"  # every method that runs the model once, forward and backward
SHORT = "short"  # five methods, the default where methods are compared
EVERY = ("all", FAST, SHORT)
BESIDE_AUTO = ("attn_lrp", "transformer_attribution", "attcat", "random")  # the other methods of `short`
USUAL = "auto"  # in place of a method that another one is made of: the one that wins in general on a model


@dataclass(frozen=True)
class MethodSpec(Spec[Method]):
    """A method with its options."""

    def __call__(self, prediction: Prediction) -> Scores:
        """The scores with these options."""
        return self.of(prediction, **self.options)

    @property
    def facts(self) -> dict[str, Any]:
        """What determines a number: the facts of the method, and of the method that it is made of."""
        facts = super().facts | ({} if self.quantity == "logit" else {"quantity": self.quantity})
        return facts if self.made_of is None else facts | {"made_of": self.made_of.facts}

    @property
    def of_option(self) -> str | None:
        """The name of the option that says which method this one is made of, if it is made of one."""
        return next((name for name, option in self.of.options.items() if MethodName in option.kinds), None)

    @property
    def made_of(self) -> "MethodSpec | None":
        """The method that this one is made of: what an option of type `MethodName` names, if that is one already."""
        if self.of_option is None or self.is_made_of_usual:
            return None
        option = self.of.options[self.of_option]
        spec = method_specs([self.options.get(option.name, option.default)])[0]
        if spec.of.name == self.of.name:
            raise BadOption(
                f"{self.of.name} cannot be made of itself: give {option.name}= a method that explains in one pass"
            )
        return spec

    @property
    def is_made_of_usual(self) -> bool:
        """Whether it is made of the method that wins in general: which that is, depends on the model."""
        name = self.of_option
        return name is not None and self.options.get(name, self.of.options[name].default) == USUAL

    def made_of_label(self, label: str) -> "MethodSpec":
        """The same method, made of the one that is written as `label`."""
        return self if self.of_option is None else MethodSpec(self.of, {**self.options, self.of_option: label})

    @property
    def needs(self) -> Needs:
        """What a run has to record for it: of a method made of another, that is what the other needs."""
        return self.of.needs_for(self.options) if self.made_of is None else self.made_of.needs

    @property
    def quantity(self) -> Explains:
        """The quantity it explains by default: that of the method that it is made of."""
        return self.of.quantity if self.made_of is None else self.made_of.quantity

    @property
    def signed(self) -> bool:
        """Whether its scores may have signs: of a method that has none otherwise, those that report a drop do."""
        return self.of.signed or self.options.get("report") == "drop"

    @property
    def class_specific(self) -> bool:
        """Whether its scores depend on the class: not if those of the method that it is made of do not."""
        return self.of.class_specific and (self.made_of is None or self.made_of.class_specific)


def means_several(names: Sequence[str]) -> bool:
    """True for the one name of a group of methods: `all`, `fast` or `short`."""
    return len(names) == 1 and names[0] in EVERY


def method_specs(written: Written) -> tuple[MethodSpec, ...]:
    """The methods named, with options in brackets; `all`, `fast` for those of one pass, `short` for five."""
    meant = [name for part in names_of(written) for name in _meant(part)]
    return distinct([_spec(*read_spec(name, METHODS)) for name in meant])


def _meant(word: str) -> list[str]:
    """The methods that a word for several stands for, or the one that is named."""
    if word not in EVERY:
        return [word]
    if word == SHORT:
        return ["layer_lrp", *BESIDE_AUTO]
    return [name for name, method in list_methods().items() if word == "all" or method.passes == "one"]


def _spec(method: Method, options: Mapping[str, Any]) -> MethodSpec:
    spec = MethodSpec(method, options)
    made_of = spec.made_of  # raises if it cannot be made of that
    return spec if made_of is None or spec.of_option not in options else spec.made_of_label(made_of.label)


EmbeddingPoint = Literal["token_embeddings", "embedding_output"]
Anywhere = Literal[EmbeddingPoint, "pixels"]
AtInput = Annotated[Anywhere | None, Spelling(in_keys={None: "token_embeddings"})]
AtStates = Annotated[Literal["embedding_output", "pixels"] | None, Added()]
AtRelevance = Annotated[  # a spelling of its own, until there was one for all
    Anywhere | None,
    Spelling(
        former={"embeddings": "token_embeddings"}, in_keys=dict.fromkeys((None, "token_embeddings"), "embeddings")
    ),
]
OfGradient = Annotated[str, Names(GRADIENT_BOOKS, "rule_of")]
GradientBook = Annotated[str | None, Names(GRADIENT_BOOKS, "rule_of"), Added()]  # None: torch's own derivatives

# A sum this small beside its terms is rounding, or the small constant in a norm, which shows more in small numbers.
CANCELLED: dict[Anywhere, float] = {"token_embeddings": 1e-3, "embedding_output": 2e-5, "pixels": 1e-3}


def gradient_or_book(book: str | None) -> Book:
    """Return the rule book of that name, or else the book of torch's own derivatives."""
    return PLAIN if book is None else gradient_book(book)


def place_of(prediction: Prediction, at: Anywhere | None) -> Anywhere:
    """The place that is asked for.

    By default it is the token embeddings; of an image the embedding output, or the pixels where a model has no layers
    whose states are those of patches.
    """
    trace = prediction.trace
    if at == "pixels" and trace.pixels is None:
        raise BadOption("at='pixels' is for images, and this input has no pixel_values: leave `at` out")
    if at is not None:
        return at
    if trace.embeddings is not None:
        return "token_embeddings"
    return "embedding_output" if isinstance(trace.layers, Layers) else "pixels"


def of_pixels(prediction: Prediction, values: Tensor, report: dict[str, Any] | None = None) -> Scores:
    """Numbers of pixels [batch, channels, height, width], added up over channels, and then over each patch.

    The map of pixels, [batch, height, width], is reported. Units that are no patch, as `[CLS]`, score 0.
    """
    pixels = values.sum(1)
    return Scores(prediction.trace.patches.sums(pixels), {**(report or {}), "pixels": pixels})


def check_cancelled(
    prediction: Prediction, scores: Tensor, terms: Tensor, advice: str, at: Anywhere = "embedding_output"
) -> None:
    """Raise if sums [batch, units] are nothing beside their terms, for an example.

    `terms` are the sums of the terms' sizes. A norm does not feel the length of its input, so a vector that goes
    through a norm alone has a product of 0 with its gradient, but for the small constant in the norm: to rank such
    numbers means nothing. From the embedding output on, the position that the head reads may have a signal all the
    same, so the others are looked at, if they have a gradient.
    """
    asked = ~prediction.padding
    if at == "embedding_output":
        unread = asked & (prediction.reader == 0) & (terms > 0)
        asked = torch.where(unread.any(-1, keepdim=True), unread, asked)
    largest, size = ((values.abs() * asked).amax(-1) for values in (scores, terms))
    refuse_if(
        (largest < CANCELLED[at] * size).any(),
        UnsupportedModel(
            "vectors times their gradients cancel to almost nothing: this model normalises them before anything else, "
            f"so their length has no effect, and what is left is the small constant in a norm; {advice}"
        ),
    )


def summed(prediction: Prediction, products: Tensor, advice: str, at: EmbeddingPoint = "embedding_output") -> Tensor:
    """Products [batch, units, width] summed over width, if they do not cancel."""
    scores = products.sum(-1)
    check_cancelled(prediction, scores, products.abs().sum(-1), advice, at)
    return scores
