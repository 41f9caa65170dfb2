"""Metrics with their options, as they are written: `comprehensiveness(hide=pad)`, `all`."""

from dataclasses import dataclass
from typing import Any

from whyformer.metrics.registry import METRICS, Measured, Metric, list_metrics
from whyformer.registry.specs import Spec, Written, distinct, names_of, read_spec


@dataclass(frozen=True)
class MetricSpec(Spec[Metric]):
    """A metric with its options."""

    def __call__(self, case: Any) -> Measured:
        """Measure the explanations of a case (`whyformer.metrics.Case`)."""
        return self.of(case, **self.options)


def metric_specs(written: Written) -> tuple[MetricSpec, ...]:
    """The metrics named, `all` for every one."""
    named = names_of(written)
    named = list(list_metrics()) if named == ["all"] else named
    return distinct([MetricSpec(*read_spec(name, METRICS)) for name in named])
