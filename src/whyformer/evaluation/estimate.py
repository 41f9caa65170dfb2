"""What dear work is to come, said before it begins: how often the model is asked, and about how long that takes."""

import time

from whyformer.evaluation.examples import Item
from whyformer.evaluation.plan import PendingChunk, Plan
from whyformer.evaluation.references import Way
from whyformer.inputs.encoding import collate
from whyformer.perturb import ORDERS, Outcomes, hide_named
from whyformer.prediction import Prediction
from whyformer.progress import duration, listening
from whyformer.results.table import CEILING

SHORT = 10.0  # seconds; work that takes less is not announced


def searched_inputs(units: int, beam: int, ways: int) -> int:
    """How many shortened texts the searches for the best order ask about, at most, and the random orders beside it."""
    return ways * beam * units * (units + 1) // 2 + ORDERS * units


def ceiling_estimate(plan: Plan, first: PendingChunk, rows: int) -> str | None:
    """What the ceiling of so many rows will take, judged by the texts of the first chunk; None if that is little."""
    ways = {
        Way.of(metric, images=plan.subject.takes_images)
        for metric in plan.metrics
        if metric.of.ceiling and any((CEILING, metric.label) in missing for missing in first.missing.values())
    }
    searched = [item for item in first.items if item.searchable and item.row < plan.settings.ceiling]
    if not ways or not searched or plan.subject.takes_images:
        return None
    each = [searched_inputs(item.units, plan.settings.beam, len(ways)) for item in searched]
    total = sum(each) / len(first.items) * min(rows, plan.settings.ceiling)
    seconds = total * seconds_per_input(plan, sorted(searched, key=lambda item: item.units)[len(searched) // 2])
    if seconds < SHORT:
        return None
    return (
        f"the ceiling asks the model about up to {total:,.0f} shortened texts, which takes about {duration(seconds)}; "
        "ceiling=N (--ceiling-rows N) searches the first N rows alone"
    )


def seconds_per_input(plan: Plan, item: Item) -> float:
    """How long the model takes for one of many shortened texts, measured on halves of a text."""
    prediction = Prediction(plan.subject.model, collate(plan.subject, [item.text]))
    (whole,) = prediction.inputs
    halves = [whole.without([*range(first, len(whole), 2)][:-1], hide_named("delete")) for first in (0, 1)]
    shorter = [halves[0].without([place], hide_named("delete")) for place in range(len(halves[0]))]
    engine = Outcomes(plan.subject.model, tokens_per_batch=plan.settings.tokens_per_batch)
    with listening(None):
        engine.of(halves[1:], classes := prediction.outputs.logits.shape[-1])  # the first run is slower
        start = time.perf_counter()
        engine.of(shorter, classes)
        return (time.perf_counter() - start) / len(shorter)
