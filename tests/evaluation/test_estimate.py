"""What the ceiling will take is said before it begins, and how far it is where nobody watches."""

import pytest

from tests.helpers import cases, evaluated
from whyformer import Explainer
from whyformer.datasets import Example
from whyformer.evaluation import evaluate
from whyformer.evaluation.evaluate import searched_inputs
from whyformer.perturb import ORDERS

METRICS = "aopc"
TEXTS = evaluated.texts(6)


def told(capsys: pytest.CaptureFixture[str], **options: object) -> str:
    explainer = Explainer(cases.subject())
    explainer.evaluate(TEXTS, "rollout", metrics=METRICS, **options)
    return capsys.readouterr().err


def test_a_search_asks_about_one_unit_less_at_each_step() -> None:
    assert searched_inputs(4, beam=1, ways=1) == 4 + 3 + 2 + 1 + 4 * ORDERS
    assert searched_inputs(4, beam=3, ways=2) == 6 * (4 + 3 + 2 + 1) + 4 * ORDERS


def test_dear_work_is_announced(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert "ceiling" not in told(capsys, ceiling=True)
    monkeypatch.setattr(evaluate, "seconds_per_input", lambda plan, item: 1.0)
    units = [len(cases.subject().tokenizer(text)["input_ids"]) - 2 for text in TEXTS]
    total = sum(searched_inputs(count, 1, 1) for count in units)
    said = told(capsys, ceiling=True)
    assert f"the ceiling asks the model about up to {total:,} shortened texts, which takes about " in said
    assert said.count("ceiling asks") == 1
    assert "the ceiling" in told(capsys, ceiling=2, rows_per_chunk=2)
    assert "ceiling" not in told(capsys, ceiling=True, progress=False)
    assert "ceiling" not in told(capsys)


def test_the_time_is_measured() -> None:
    from whyformer.evaluation.plan import EvaluationPlan
    from whyformer.methods.method import method_specs
    from whyformer.metrics.metric import metric_specs

    plan = EvaluationPlan(cases.subject(), method_specs("rollout"), metric_specs("aopc"))
    for text in ("fine", TEXTS[0]):
        (item,) = plan.pending(0, 1, [Example(0, text)], {}, ()).items
        assert 0 < evaluate.seconds_per_input(plan, item) < 10
