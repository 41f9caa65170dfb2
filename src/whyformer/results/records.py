"""Records: what was measured, one number each, in chunks that belong together."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Record:
    """One number: what a metric found in a method's explanation of one example.

    `key` is a hash of everything that determines the number. `value` is None where the example is left out; `refused`
    says why the method could not explain it. `curve` has the numbers that were averaged. `detail` is what a metric of
    level `corpus` has to say of the example; of scores that are kept, whose `metric` is `kept.KEPT`, it holds these.
    """

    key: str
    row: int
    method: str
    metric: str
    value: float | None
    curve: tuple[float | None, ...] = ()
    detail: Any = None
    refused: str | None = None


@dataclass(frozen=True)
class Chunk:
    """The records of a fixed set of rows, from `start` to before `stop`, which are journalled together or not at all.

    `metrics` says of each metric, by label, its `name`, all its `options`, `higher_is_better`, `level`, and `at`: where
    its curve is taken. `examples` says of each row what the model said. `skipped` says of each row left out why.
    """

    start: int
    stop: int
    records: tuple[Record, ...]
    metrics: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    examples: tuple[Mapping[str, Any], ...] = ()  # row, units, gold, predicted, probability, kept
    skipped: Mapping[int, str] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)  # what the perturbation engine did
