"""What AttCAT's and Mask-LRP's own metric code gave: the texts with tokens hidden, and the numbers, in float32."""

from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
import transformers as hf
from torch import Tensor

from tests.helpers.golden import DATA, goldens
from whyformer.inputs.batch import batch_of
from whyformer.metrics import Annotation, Case, faithfulness
from whyformer.metrics.metric import metric_named
from whyformer.perturb import Outcomes, hide_named
from whyformer.prediction import Prediction

STORED = goldens("metrics_bert_cls")
SCORES = goldens("bert_cls")
NAMES = ("x1", "x2", "x5", "x6")
CLOSE = 1e-5  # numbers of float32, some of them logarithms
HIDES = {"truncated": "delete", "replaced": "pad_attended"}
every_text = pytest.mark.parametrize("name", NAMES)
every_hide = pytest.mark.parametrize("kind", HIDES)


@cache
def model() -> Any:
    return hf.AutoModelForSequenceClassification.from_pretrained(DATA / "bert_cls", dtype=torch.float32)


def attcat(name: str, index: int, tied: bool = False) -> Tensor:
    """The scores. The two special tokens of x5 score 0; the authors' sort, which is not stable, put the last first."""
    scores = SCORES[f"{name}.c{index}.attcat.generate_TransCAM"].reshape(1, -1).clone()
    if name == "x5" and not tied:
        scores[0, 0] -= 1e-15
    return scores


def case(name: str) -> Case:
    """Class 0 always, and no attention mask, as the numbers were made."""
    ids = SCORES[f"{name}.input_ids"]
    inputs = {"input_ids": ids, "special_tokens_mask": (ids == 101) | (ids == 102)}
    prediction = Prediction(model(), batch_of(model(), inputs), target=0)
    scores = {index: attcat(name, index) for index in range(3)}
    return Case(prediction, scores[0], Outcomes(model()), [Annotation(gold=0)], lambda c: scores[int(c[0])])


def measured(metric: str, name: str, **options: Any) -> Any:
    return metric_named(metric)(case(name), target="gold", **options)


@every_text
@every_hide
def test_hidden_tokens(name: str, kind: str) -> None:
    one = case(name)
    order = np.argsort(-one.scores[0].numpy(), kind="stable")
    assert order.tolist() == STORED[f"{name}.order"].tolist()
    steps = faithfulness._authors_steps(one, "gold", False)[0]
    assert len(steps) == len(STORED[f"{name}.ks"])
    for count, gone in zip(STORED[f"{name}.ks"].tolist(), steps, strict=True):
        row = one.inputs[0].without(np.flatnonzero(gone).tolist(), hide_named(HIDES[kind]))
        assert row.tensors["input_ids"].tolist() == STORED[f"{name}.k{count}.{kind}_ids"][0].tolist()


@every_text
@every_hide
def test_probabilities(name: str, kind: str) -> None:
    found = measured("aopc", name, protocol="mask_lrp", hide=HIDES[kind], min_tokens=0)
    expected = STORED[f"{name}.p0"] - STORED[f"{name}.p_{kind}"]
    assert (found.curve[0] - expected).abs().max() < CLOSE


@every_hide
@pytest.mark.parametrize(("metric", "stored"), [("aopc", "aopc"), ("log_odds", "logodds")])
def test_attcat(metric: str, stored: str, kind: str) -> None:
    values = [measured(metric, name, protocol="attcat", hide=HIDES[kind]).values for name in NAMES]
    assert abs(torch.cat(values).mean() - STORED[f"attcat.{stored}_{kind}"]) < CLOSE


@pytest.mark.parametrize(("metric", "stored"), [("aopc", "aopc"), ("log_odds", "logodds")])
def test_mask_lrp(metric: str, stored: str) -> None:
    curves = [measured(metric, name, protocol="mask_lrp", min_tokens=0).curve for name in NAMES]
    assert (torch.cat(curves).mean(0) - STORED[f"masklrp.{stored}_per_k"]).abs().max() < CLOSE


def test_the_protocols_leave_short_texts_out() -> None:
    assert measured("aopc", "x1", protocol="mask_lrp").values.isnan().all()
    assert not measured("aopc", "x1", protocol="attcat").values.isnan().any()
    assert measured("aopc", "x1", protocol="attcat", min_tokens=12).values.isnan().all()
    assert measured("aopc", "x1", protocol="attcat", min_probability=0.3).values.isnan().all()


@every_text
def test_kendall(name: str) -> None:
    values = measured("kendall_tau", name, against=1, protocol="attcat").values
    assert abs(values - STORED[f"{name}.kendall_c0_c1"]) < 1e-6
    of_scores = metric_named("kendall_tau")(everywhere(name), target="gold", against=1).values
    assert abs(of_scores - STORED[f"{name}.kendall_on_scores"]) < 1e-6


def everywhere(name: str) -> Case:
    """The same text with its special tokens ranked too."""
    scores = {index: attcat(name, index, tied=True) for index in range(3)}
    prediction = Prediction(model(), batch_of(model(), {"input_ids": SCORES[f"{name}.input_ids"]}), target=0)
    return Case(prediction, scores[0], Outcomes(model()), [Annotation(gold=0)], lambda c: scores[int(c[0])])


def test_kendall_mean() -> None:
    values = [measured("kendall_tau", name, against=1, protocol="attcat").values for name in NAMES]
    assert abs(torch.cat(values).mean() - STORED["attcat.kendall_mean"]) < 1e-6


def test_precision_at_20() -> None:
    scores = torch.stack([STORED[f"p20.{n}.attribution"] for n in range(5)])
    spans = [tuple(STORED[f"p20.{n}.span"].tolist()) for n in range(5)]
    batch = batch_of(model(), {"input_ids": torch.full((5, 60), 110)})
    annotations = [Annotation(answer=span) for span in spans]
    one = Case(Prediction(model(), batch), scores, Outcomes(model()), annotations)
    precision = metric_named("precision_at_k")
    found = precision(one, k=20)
    stored = torch.stack([STORED[f"p20.{n}.count_perfect"] for n in range(5)]).double()
    assert found.values.tolist() == stored[:, 0].tolist()
    assert found.diagnostics["length"].tolist() == stored[:, 1].tolist()
    assert abs(precision.reduced(found.records) - STORED["p20.attcat_mean_count"]) < 1e-6
    assert abs(precision.reduced(found.records, measure="ratio") - STORED["p20.masklrp_ratio_of_means"]) < 1e-6
