"""The plan of an evaluation: which numbers of a chunk are missing, each with the key that says what determines it."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from typing import Any
from typing import Protocol as Form

from whyformer.datasets import Dataset, Example
from whyformer.errors import BadInput, BadOption
from whyformer.evaluation.examples import Item, as_json, hashed, hashed_json, item_of
from whyformer.evaluation.protocols import without_segments
from whyformer.inputs.windows import CUT, Windows
from whyformer.methods.method import MethodSpec
from whyformer.metrics.faithfulness import MetricProtocol
from whyformer.metrics.metric import NEEDS, MetricSpec, list_metrics
from whyformer.models.load import Subject
from whyformer.models.memory import CPU, limits_of
from whyformer.perturb import ORDERS
from whyformer.results.evaluation import CEILING, CHANCE, MethodMetric
from whyformer.results.explanations import KEPT, KEPT_VERSION
from whyformer.tasks.regression import Regression
from whyformer.tasks.task import TASKS, Explains

FEWEST_CHUNKS = {"local": 2, "ray": 8}  # of data that has enough rows: workers share them


@dataclass(frozen=True)
class PendingChunk:
    """A chunk that is to be measured: its items, the pairs that are missing of each row, and the rows left out."""

    start: int
    stop: int
    items: tuple[Item, ...]
    missing: Mapping[int, Sequence[MethodMetric]]
    left_out: Mapping[int, str]


class KnownKeys(Form):
    """The keys of what was measured before."""

    def __len__(self) -> int: ...

    def __contains__(self, key: object, /) -> bool: ...


@dataclass(frozen=True)
class EvaluationSettings:
    """What is measured beside methods and metrics.

    The rows before `ceiling` get the ceiling and the chance. Texts of fewer than `min_tokens` tokens, and texts whose
    predicted class is less probable than `min_probability`, are left out. Contexts that do not fit are
    read in `windows`, and documents too if these are merged. `keep_scores`: the scores themselves are journalled too.
    With a `protocol`, the model is run and explained as in the authors' code, and the gold class has to be as probable
    as that. `explains` and `versus` are what is explained of each predicted class. Without them, each method explains
    the quantity it declares, as in `Explainer.explain`.
    """

    ceiling: int = 0
    beam: int = 1
    min_tokens: int | None = None
    min_probability: float | None = None
    skip_bad_rows: bool = False
    tokens_per_batch: int | None = None
    windows: Windows = CUT
    keep_scores: bool = False
    protocol: MetricProtocol | None = None
    explains: Explains | None = None
    versus: str | None = None
    capture: bool = True  # whether what is done again on a GPU is captured

    @classmethod
    def of(cls, data: Dataset, **settings: Any) -> "EvaluationSettings":
        """What a data set says of the rows to leave out, and other settings."""
        choice, skip = data.choice, data.on_error == "skip"
        return cls(min_tokens=choice.min_tokens, min_probability=choice.min_probability, skip_bad_rows=skip, **settings)


@dataclass(frozen=True)
class EvaluationPlan:
    """What is measured of every example: one number for each method and each metric that goes with it."""

    subject: Subject
    methods: tuple[MethodSpec, ...]
    metrics: tuple[MetricSpec, ...]
    settings: EvaluationSettings = field(default_factory=EvaluationSettings)

    def __post_init__(self) -> None:
        self._check_images()
        self._check_windows()
        for metric in self.metrics:
            if Regression.fits(self.subject.model):
                raise BadOption(f"{metric.of.name} is for models that classify; this one is of regression")
            does = TASKS[self.subject.task].does
            if "answer" not in metric.of.needs and self.subject.task != "classes":
                raise BadOption(f"{metric.of.name} is for models that classify; this one {does}")
            if "answer" in metric.of.needs and self.subject.task != "answer":
                raise BadOption(f"{metric.of.name} is for models that answer questions; this one {does}")
            if not any(label == metric.label for _, label in self.pairs):
                needed = " and ".join(NEEDS[need] for need in sorted(metric.of.needs & {"classes", "signs"}))
                raise BadOption(f"{metric.of.name} needs {needed}; none is named")

    def _check_images(self) -> None:
        """Raise for what is not defined for images, or for texts, before anything is run."""
        images = self.subject.takes_images
        for metric in self.metrics:
            if misfit := metric.of.misfit(images):
                fitting = [m.name for m in list_metrics().values() if not (m.misfit(images) or m.needs)]
                raise BadOption(f"{misfit}: measure {', '.join(fitting)}")
        if not images:
            return
        if self.settings.windows.merge:
            raise BadOption("windows='merge' is for texts that do not fit: a model sees an image as a whole")
        if self.settings.protocol is not None:
            raise BadOption(f"protocol={self.settings.protocol!r} is for texts: leave it out")
        if self.settings.keep_scores:
            raise BadOption("keep_scores keeps texts with their scores, and images are not kept: leave it out")

    def _check_windows(self) -> None:
        """Raise for what is not defined for documents in windows, before anything is run."""
        if not self.settings.windows.merge:
            return
        if self.subject.task != "classes":
            does = TASKS[self.subject.task].does
            raise BadOption(f"windows='merge' is for models that give one output for a text; this one {does}")
        if hiding := [metric.label for metric in self.metrics if metric.of.hides]:
            every = [m for m in list_metrics().values() if not m.misfit(images=False)]
            others = [m.name for m in every if not m.hides and "answer" not in m.needs]
            raise BadOption(
                f"{hiding[0]} hides units, which is not defined for documents in windows: leave windows='merge' out, "
                f"or measure {', '.join(others)}"
            )

    @cached_property
    def pairs(self) -> list[MethodMetric]:
        """The methods and metrics that go together, by their labels; and the methods whose scores are kept."""
        pairs = [
            (method.label, metric.label)
            for method in self.methods
            for metric in self.metrics
            if (method.class_specific or "classes" not in metric.of.needs)
            and (method.signed or "signs" not in metric.of.needs)
        ]
        if self.settings.ceiling:
            pairs += [(way, metric.label) for way in (CHANCE, CEILING) for metric in self.metrics if metric.of.ceiling]
        if self.settings.keep_scores:
            pairs += [(method.label, KEPT) for method in self.methods]
        return pairs

    @cached_property
    def facts(self) -> dict[str, Any]:
        """What determines every number, beside the example, the method and the metric."""
        usual, asked = EvaluationSettings(), self.settings
        unusual = {
            name: value
            for name in ("protocol", "explains", "versus")
            if (value := getattr(asked, name)) != getattr(usual, name)
        }
        packages = self.subject.provenance["packages"]
        return {"model": self.subject.fingerprint, "device": self.subject.device.type, **packages, **unusual}

    def rows_at_once(self, data: Dataset, engine: str) -> int:
        """How many rows are journalled together: fewer where each takes long, or where chunks would be too few."""
        size = limits_of(self.subject.device, self.subject.model).rows
        if self.settings.ceiling or any(method.of.passes == "many" for method in self.methods):
            size = max(CPU.rows, size // 4)
        fewest = FEWEST_CHUNKS.get(engine, 1)
        while size > CPU.rows and len(list(islice(data.chunks(size), fewest))) < fewest:
            size = max(CPU.rows, size // 2)
        return size

    def keys(self, item: Item) -> dict[MethodMetric, str]:
        """The hash of everything that determines the number of each pair."""
        about = [as_json(fact) for fact in (self._key, item.row, item.content)]
        written = self._written
        return {pair: hashed_json([*about, *(written[label] for label in pair)]) for pair in self.pairs_of(item)}

    def pairs_of(self, item: Item) -> list[MethodMetric]:
        """The pairs that are measured of an item."""
        beyond = item.row >= self.settings.ceiling
        return [pair for pair in self.pairs if not (beyond and pair[0] in (CEILING, CHANCE))]

    def _missing(self, item: Item, known: KnownKeys) -> list[MethodMetric]:
        """Those of which there is no number yet."""
        if not len(known):
            return self.pairs_of(item)
        return [pair for pair, key in self.keys(item).items() if key not in known]

    def chunks(
        self, data: Dataset, ranges: Iterable[tuple[int, int]], known: KnownKeys = (), *, labels: bool = True
    ) -> Iterator[PendingChunk]:
        """What is missing of each chunk of a data set, as rows from … to before …; without labels, they are ignored."""
        for start, stop in ranges:
            examples = [example if labels else replace(example, label=None) for example in data.rows(start, stop)]
            skipped = {bad.row: bad.reason for bad in data.skipped if start <= bad.row < stop}
            yield self.pending(start, stop, examples, skipped, known)

    def pending(
        self, start: int, stop: int, examples: Sequence[Example], skipped: Mapping[int, str], known: KnownKeys
    ) -> PendingChunk:
        """What is missing of some rows, given the keys that are known."""
        left_out = dict(skipped)
        items = tuple(self._items(examples, left_out))
        missing = {item.row: self._missing(item, known) for item in items}
        return PendingChunk(start, stop, items, missing, left_out)

    @cached_property
    def _key(self) -> str:
        return hashed(self.facts)

    @cached_property
    def _written(self) -> dict[str, str]:
        return {label: as_json(facts) for label, facts in self._facts_of.items()}

    @cached_property
    def _facts_of(self) -> dict[str, Any]:
        ways = {CHANCE: {"name": CHANCE, "orders": ORDERS}, CEILING: {"name": CEILING, "beam": self.settings.beam}}
        metrics = {m.label: m.facts for m in self.metrics}
        kept = {KEPT: {"name": KEPT, "version": KEPT_VERSION}}
        return {method.label: method.facts for method in self.methods} | metrics | ways | kept

    def _items(self, examples: Sequence[Example], left_out: dict[int, str]) -> Iterator[Item]:
        for example in examples:
            try:
                item = item_of(self.subject, example, self.settings.windows)
                self._check_gold(item)
                if self.settings.protocol is not None:
                    item = replace(item, encoded=without_segments(item.text))
            except BadInput as error:
                if not self.settings.skip_bad_rows:
                    advice = "on_error='skip' (--on-error skip) leaves such rows out"
                    raise BadInput(f"row {example.row} (counted from 0): {error}; {advice}") from error
                left_out[example.row] = str(error)
                continue
            min_tokens = self.settings.min_tokens
            if min_tokens is not None and len(item.encoded.units) < min_tokens:
                left_out[example.row] = f"fewer than {min_tokens} tokens"
            else:
                yield item

    def _check_gold(self, item: Item) -> None:
        if item.annotation.gold is None and self._of_gold:
            raise BadInput(f"{self._of_gold[0]} needs the gold label, and there is none")

    @cached_property
    def _of_gold(self) -> list[str]:
        """The metrics that need gold labels."""
        needing = [m for m in self.metrics if "gold" in m.of.needs or m.facts["options"].get("target") == "gold"]
        return [metric.of.name for metric in needing]
