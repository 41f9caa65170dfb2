"""Case: what a metric is given: explained predictions, what people said of them, what the model says without units."""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from whyformer.arrays import BoolArray, FloatArray
from whyformer.caching import cached_property
from whyformer.errors import BadInput, BadOption
from whyformer.inputs.batch import TextInput
from whyformer.inputs.hiding import Hide
from whyformer.inputs.images import ImageInput, upsampled
from whyformer.inputs.input import Kind, Places, TensorInput, flags_of
from whyformer.inputs.units import Span
from whyformer.methods.method import Scores
from whyformer.metrics.metric import Measured, Metric
from whyformer.perturb import Outcomes, Search, best_orders, hide_named
from whyformer.prediction import Prediction

Units = Kind
Groups = Literal["token", "word", "cell"]  # a cell holds patches that are hidden together
Combine = Literal["sum", "max"]
TargetClass = Literal["predicted", "gold", "explained"]
HiddenPerStep = (
    Sequence[Places] | BoolArray
)  # what is hidden of one example, each time something else: places, or [steps, units]
LARGEST_ODDS = 700.0  # beyond it a probability in float64 is 0 or 1
PIXELS = "pixels"  # where a method reports the scores of pixels
V = TypeVar("V")


@dataclass(frozen=True)
class RationaleWords:
    """The words of a text as a data set counts them, by their characters, and the numbers of those in evidence.

    `parts` says of each word in which text of a pair it stands; without it, all stand in the first.
    """

    words: tuple[Span, ...]
    evidence: frozenset[int]
    parts: tuple[int, ...] = ()


@dataclass(frozen=True)
class Annotation:
    """What people said of one example: its label, the first and last token of the answer, why it has that label.

    A question may have been found to have no answer, or one that was cut off: `unanswered`. Of a long context one
    window is explained: `answer_length` is how many tokens of the answer the whole has, in that window or not. The
    `mask` of an image is as large as what the model sees: 1 where what it shows is, 0 elsewhere, 255 not labelled.
    """

    gold: int | None = None
    answer: tuple[int, int] | None = None
    rationale: RationaleWords | None = None
    unanswered: bool = False
    answer_length: int | None = None
    mask: NDArray[np.uint8] | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True, eq=False)
class Case:
    """A batch of predictions with the scores of one method, [batch, units].

    `scores_for` gives the method's scores for other classes, one per example; None for a method that is the same for
    all. Padding and special tokens are never ranked. `ranks`: only the order of the scores means something, so a word
    has that of its highest token, whatever a metric says. `signed`: scores below zero speak against the class. `pixels`
    are the scores of an image's pixels, [batch, height, width], of a method that has some.
    """

    prediction: Prediction
    scores: Tensor
    outcomes: Outcomes
    annotations: Sequence[Annotation] = ()
    scores_for: Callable[[Tensor], Tensor | Scores] | None = None
    ranks: bool = False
    pixels: Tensor | None = None
    signed: bool = True
    _other: dict[tuple[int, ...], Scores] = field(default_factory=dict, repr=False)
    _orders: dict[tuple[str, ...], list[NDArray[np.intp]]] = field(default_factory=dict, init=False, repr=False)
    _planned: dict[Hashable, Any] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        expected = tuple(self.prediction.padding.shape)
        if tuple(self.scores.shape) != expected:
            raise BadInput(f"a case needs scores of shape {expected}; found {tuple(self.scores.shape)}")
        if self.annotations and len(self.annotations) != len(self):
            raise BadInput(f"{len(self.annotations)} annotations for {len(self)} examples: give one for each")

    def __len__(self) -> int:
        return len(self.scores)

    @property
    def given(self) -> dict[str, bool]:
        """What of `registry.NEEDS` is there. A question without an answer has one that is nowhere."""
        annotations = self.annotations
        return {
            "gold": bool(annotations) and all(a.gold is not None for a in annotations),
            "answer": any(a.answer is not None or a.unanswered or a.answer_length for a in annotations),
            "rationale": any(a.rationale is not None for a in annotations),
            "classes": self.scores_for is not None,
            "signs": self.signed and not self.ranks,
            "mask": any(a.mask is not None for a in annotations),
            "images": self.prediction.batch.is_images,
        }

    @property
    def inputs(self) -> tuple[TensorInput, ...]:
        """The examples without their padding."""
        return self.prediction.inputs

    @cached_property
    def real(self) -> list[list[int]]:
        """The positions of each example that are no padding."""
        return [np.flatnonzero(~row).tolist() for row in self.prediction.padding.cpu().numpy()]

    @cached_property
    def rankable(self) -> list[list[int]]:
        """The places of each example's units that are ranked, counted without padding: those that are not special."""
        return [[place for (place,) in groups] for groups in self.units("token")]

    @property
    def classes(self) -> int:
        """How many classes the model tells apart."""
        if self.prediction.task.name != "classes":
            raise BadInput("this metric is for models that classify")
        return int(self.prediction.outputs.logits.shape[-1])

    def chosen(self, target: TargetClass) -> Tensor:
        """A class for each example, [batch]: the predicted, the gold or the explained one."""
        if target == "gold":
            if not self.given["gold"]:
                raise BadInput("target='gold' needs the gold label of each example, which is not given")
            gold = torch.tensor([a.gold for a in self.annotations])
            if wrong := [int(label) for label in gold if not 0 <= label < self.classes]:
                raise BadInput(f"gold label {wrong[0]} is no class of this model: it has 0 … {self.classes - 1}")
            return gold
        return (self.prediction.predicted if target == "predicted" else self.prediction.target).cpu()

    @property
    def right(self) -> list[int]:
        """The class that is right for each example: the gold one, or the predicted one where there is none."""
        predicted = self.chosen("predicted").tolist()
        if not self.annotations:
            return [int(index) for index in predicted]
        return [int(p) if a.gold is None else a.gold for p, a in zip(predicted, self.annotations, strict=True)]

    def scores_of(self, classes: Tensor) -> list[FloatArray]:
        """The scores of each example for a class, without padding."""
        return self.without_padding(self._scored(classes).total)

    def _scored(self, classes: Tensor) -> Scores:
        """What the method gives for a class of each example."""
        if self.scores_for is None or torch.equal(classes, self.chosen("explained")):
            return Scores(self.scores, {} if self.pixels is None else {PIXELS: self.pixels})
        key = tuple(classes.tolist())
        if key not in self._other:
            scores = self.scores_for(classes)
            made = scores if isinstance(scores, Scores) else Scores(scores)
            self._other[key] = Scores(
                made.total, {PIXELS: made.diagnostics[PIXELS]} if PIXELS in made.diagnostics else {}
            )
        return self._other[key]

    @property
    def images(self) -> tuple[ImageInput, ...]:
        """The examples, which are images of one size."""
        images = tuple(one for one in self.inputs if isinstance(one, ImageInput))
        if len(images) != len(self):
            raise BadInput("maps are those of images: this metric is not for texts")
        return images

    def maps(self, target: TargetClass) -> Tensor:
        """The scores for a class as images, [batch, height, width]: those of pixels, or of patches, upsampled.

        Upsampling is bilinear (Chefer et al. 2021, section 3.4). Signs stay as the method gives them.
        """
        scored, patches = self._scored(self.chosen(target)), self.images[0].patches
        if (pixels := scored.diagnostics.get(PIXELS)) is not None:
            return cast(Tensor, pixels.detach().double())
        grid = scored.total.detach().double()[:, torch.from_numpy(patches.grid).to(scored.total.device)]
        height, width = patches.owner.shape
        return upsampled(grid, (height, width), patches.within)

    def settled(self, prediction: Prediction) -> "Case":
        """The same case, small enough to be kept until it is asked the same again: a prediction without its graph."""
        settled = replace(self, prediction=prediction, scores_for=None if self.scores_for is None else _let_go)
        settled._orders.update(self._orders)
        settled._planned.update(self._planned)
        return settled

    def planned(self, key: Hashable, make: Callable[[], V]) -> V:
        """What a metric made of this case when it was first called: it need not be made again for the answers."""
        if key not in self._planned:
            self._planned[key] = make()
        return cast(V, self._planned[key])

    def without_padding(self, scores: Tensor) -> list[FloatArray]:
        """Scores [batch, units] of each example, without padding."""
        rows = scores.detach().cpu().double().numpy()
        return [row[real] for row, real in zip(rows, self.real, strict=True)]

    def units(self, units: Groups = "token") -> list[list[list[int]]]:
        """The places of each example that are ranked and hidden as one: tokens, or those of each word or cell."""
        if units == "cell":
            return [image.patches.cells() for image in self.images]
        return [one.groups(units) for one in self.inputs]

    @property
    def examples(self) -> tuple[TextInput, ...]:
        """The encoded texts; ready tensors have none."""
        texts = tuple(one for one in self.prediction.batch.examples if isinstance(one, TextInput))
        if not texts:
            raise BadInput("words need texts: ready tensors have tokens only (units='token')")
        return texts

    def ranked(self, target: TargetClass, units: Units = "token", combine: Combine = "sum") -> list[list[list[int]]]:
        """The units of each example, highest score first, ties in order of position."""
        orders = zip(self.units(units), self._order(target, units, combine), strict=True)
        return [[groups[unit] for unit in order.tolist()] for groups, order in orders]

    def turns(
        self, target: TargetClass, units: Units = "token", combine: Combine = "sum"
    ) -> list[tuple[NDArray[np.intp], int]]:
        """When the turn of each place comes, [units], that of the highest score first; and how many turns there are.

        That is the turn of a place that is never ranked.
        """
        turns = []
        texts = zip(self.inputs, self.units(units), self._order(target, units, combine), strict=True)
        for one, groups, order in texts:
            turn_of_place = np.full(len(one), len(groups))
            sizes = [len(groups[unit]) for unit in order] if units == "word" else 1
            places = [place for unit in order.tolist() for place in groups[unit]]
            turn_of_place[places] = np.arange(len(groups)).repeat(sizes)
            turns.append((turn_of_place, len(groups)))
        return turns

    def _order(self, target: TargetClass, units: Units, combine: Combine) -> list[NDArray[np.intp]]:
        """The numbers of each example's units, highest score first."""
        key = target, units, combine
        if key not in self._orders:
            by_example = self._unit_scores(target, units, combine)
            self._orders[key] = [np.argsort(-scores, kind="stable") for scores in by_example]
        return self._orders[key]

    def _unit_scores(self, target: TargetClass, units: Units, combine: Combine) -> Iterator[FloatArray]:
        """The scores of each example's units."""
        reduce = np.sum if combine == "sum" and not self.ranks else np.max
        for groups, row in zip(self.units(units), self.scores_of(self.chosen(target)), strict=True):
            if units == "token":
                yield row[[place for (place,) in groups]]
            else:
                yield np.array([float(reduce(row[group])) for group in groups])

    def probabilities(self, without: Sequence[HiddenPerStep], hide: str | Hide) -> list[Tensor]:
        """What the model says of each example with these places hidden: [steps, classes] for each."""
        return self.answers(self.without(without, hide))

    def log_odds(self, without: Sequence[HiddenPerStep], hide: str | Hide, classes: Tensor) -> list[Tensor]:
        """The log-odds of a class of each example with these places hidden: [steps] for each.

        They are those of the logits, since of a probability near 1 too few digits are left; at most `LARGEST_ODDS`.
        """
        inputs = self.without(without, hide)
        logits = self.outcomes.logits([one for steps in inputs for one in steps], self.classes)
        odds = [
            self.outcomes.task.log_odds(of_steps, index.expand(len(of_steps)))
            for of_steps, index in zip(logits.split([len(steps) for steps in inputs]), classes, strict=True)
        ]
        return [one.clamp(-LARGEST_ODDS, LARGEST_ODDS) for one in odds]

    def without(self, without: Sequence[HiddenPerStep], hide: str | Hide) -> list[list[TensorInput]]:
        """Each example with these places hidden."""
        way, inputs = hide_named(hide), []
        for one, steps in zip(self.inputs, without, strict=True):
            are_places = not isinstance(steps, np.ndarray) or steps.dtype != bool
            gone = flags_of(list(steps), len(one)) if are_places else np.asarray(steps)
            inputs.append(self.outcomes.without(one, gone, way))
        return inputs

    def without_pixels(self, covered: Sequence[Sequence[BoolArray]], hide: str) -> list[Tensor]:
        """What the model says of each image with these pixels hidden, [height, width]: [steps, classes] for each."""
        fill = "mean" if hide == "delete" else hide
        images = zip(self.images, covered, strict=True)
        return self.answers([[image.without_pixels(flags, fill) for flags in steps] for image, steps in images])

    def answers(self, inputs: Sequence[Sequence[TensorInput]]) -> list[Tensor]:
        """What the model says of several inputs for each example, [inputs, classes] for each."""
        flat = [one for steps in inputs for one in steps]
        return list(self.outcomes.of(flat, self.classes).split([len(steps) for steps in inputs]))

    def best(
        self,
        target: TargetClass | Literal["right"] = "predicted",
        *,
        hide: str | Hide = "delete",
        units: Groups = "token",
        combine: Combine = "sum",
        beam: int = 1,
        keeping: bool = False,
        engine: Outcomes | None = None,
    ) -> "Case":
        """The ceiling: the same case with scores that rank units in the best order that a search finds.

        With `keeping`, the lowest units are hidden first, and the probability is to stay. An `engine` of its own
        forgets what is not asked again.
        """
        classes = self.right if target == "right" else self.chosen(target).tolist()
        searches = list(map(Search, self.inputs, self.units(units), classes))
        ways: dict[str, Any] = {"hide": hide, "beam": beam, "keeping": keeping, "forgetting": engine is not None}
        orders = best_orders(engine or self.outcomes, searches, self.classes, **ways)
        return self.ordered([order[::-1] for order in orders] if keeping else orders, units, combine)

    def ordered(self, orders: Sequence[Sequence[int]], units: Groups = "token", combine: Combine = "sum") -> "Case":
        """The same case with scores that rank the units of each example in an order, given by their numbers."""
        scores = torch.zeros(self.scores.shape, dtype=torch.float64)
        for example, (order, groups, real) in enumerate(zip(orders, self.units(units), self.real, strict=True)):
            for rank, unit in enumerate(order):
                share = len(groups[unit]) if combine == "sum" else 1
                scores[example, [real[place] for place in groups[unit]]] = (len(order) - rank) / share
        pixels = self._by_owner(scores) if units == "cell" else None
        return replace(self, scores=scores, scores_for=None, ranks=False, pixels=pixels, _other={})

    def _by_owner(self, scores: Tensor) -> Tensor:
        """The scores of patches as images of hard edges, [batch, height, width]; 0 where there is no patch."""
        owner = torch.from_numpy(self.images[0].patches.owner)
        return scores[:, owner.clamp_min(0)].masked_fill(owner < 0, 0.0)

    def shuffled(self, units: Groups = "token", combine: Combine = "sum") -> "Case":
        """The same case with units ranked by the score of their first token, so that a word's length does not matter.

        Random scores so make a random order of words.
        """
        orders = [
            sorted(range(len(groups)), key=lambda unit, groups=groups, row=row: -row[groups[unit][0]])  # type: ignore[misc]
            for groups, row in zip(self.units(units), self.without_padding(self.scores), strict=True)
        ]
        return self.ordered(orders, units, combine)


def _let_go(classes: Tensor) -> Tensor:
    raise AssertionError(f"the scores for {classes.tolist()} were not asked for while there was a graph")


def answer_tokens(example: TextInput, characters: Span) -> tuple[int, int] | None:
    """The first and last token of an answer that stands at these characters of the context; None if it was cut off."""
    start, end = characters
    spans = {i: example.units[i].span for i in example.context}
    inside = [i for i, span in spans.items() if span and span[0] < end and start < span[1]]
    return (inside[0], inside[-1]) if inside else None


PlannedMetric = tuple[Metric, Case, Mapping[str, Any]]


def measure(questions: Sequence[PlannedMetric]) -> list[Measured]:
    """Measure several cases by several metrics; all that they ask of the model is run at once.

    A metric that hides units is called twice: first only to note what it asks, then with the answers.
    """
    engines = {id(case.outcomes): case.outcomes for _, case, _ in questions}
    for metric, case, options in questions:
        if metric.hides:
            with case.outcomes.planning():
                metric(case, **options)
    for outcomes in engines.values():
        outcomes.run()
    return [metric(case, **options) for metric, case, options in questions]


def refuse_together(protocol: str | None, **options: Any) -> None:
    """Raise if an option is given beside a protocol that fixes it."""
    stated = [name for name, value in options.items() if value is not None]
    if protocol is not None and stated:
        raise BadOption(f"protocol={protocol!r} fixes {stated[0]}: leave it out")
