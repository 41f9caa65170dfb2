"""Ways in which a table could say something that is not so."""

import copy
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.helpers import cases, evaluated, families
from whyformer import Explainer
from whyformer.datasets import label_index, open_dataset
from whyformer.errors import BadInput, BadOption
from whyformer.evaluation.evaluate import evaluate
from whyformer.evaluation.plan import EvaluationPlan
from whyformer.evaluation.recommend import recommend
from whyformer.inputs.batch import collate, encode
from whyformer.methods.default import AUTO
from whyformer.methods.method import method_named, method_specs
from whyformer.metrics import Case
from whyformer.metrics.metric import metric_specs
from whyformer.models.load import Subject, subject_of
from whyformer.perturb import Outcomes
from whyformer.prediction import Prediction

FALL = evaluated.FALL
QUIET = {"progress": False}


@pytest.fixture(autouse=True)
def _alone() -> Iterator[None]:
    with evaluated.own_registry():
        yield


@pytest.fixture
def subject() -> Subject:
    return cases.subject()


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return evaluated.data(tmp_path, 8)


def picky(prediction: Prediction) -> torch.Tensor:
    """Refuses texts of more than eight tokens."""
    if prediction.padding.shape[1] > 8:
        raise BadInput("too long")
    return evaluated.leave_one_out(prediction)


def test_only_what_was_asked_for_is_recommended(subject: Subject, data: Path, tmp_path: Path) -> None:
    evaluated.registered(evaluated.leave_one_out)
    evaluate(subject, data, "leave_one_out,random", FALL, out=tmp_path / "run", **QUIET)
    found = recommend(subject, data, "attcat,rollout", FALL, out=tmp_path / "run", **QUIET)
    assert found.winner in ("attcat", "rollout", "random")
    assert "leave_one_out" not in found.sentence


def test_a_method_that_refuses_most_texts_is_not_the_best(subject: Subject, tmp_path: Path) -> None:
    evaluated.registered(picky)
    table = evaluate(subject, evaluated.data(tmp_path, 20, seed=5), "picky,random,attcat", FALL, **QUIET)
    refusing = table["picky", FALL]
    assert refusing is not None
    assert 0 < refusing.n < 18
    assert table.best(FALL) != "picky"
    found = recommend(subject, evaluated.data(tmp_path, 20, seed=5), "picky", FALL, **QUIET)
    assert found.winner != "picky"


def test_chance_orders_words_by_chance(subject: Subject) -> None:
    """A word of eight pieces is not always the first, as it would be by the sum of its pieces."""
    prediction = Prediction(subject.model, collate(subject, [encode(subject, "the film zzzzzzzz is bad")]))
    outcomes = Outcomes(subject.model)
    for combine in ("sum", "max"):
        first = []
        for seed in range(20):
            case = Case(prediction, method_named("random")(prediction, seed=seed).total, outcomes)
            first.append(len(case.shuffled("word", combine).ranked("predicted", "word", combine)[0][0]))
        assert 0 < sum(length == 8 for length in first) < 12


def test_the_ceiling_is_the_order_that_was_searched(subject: Subject, data: Path) -> None:
    metrics = ["aopc(units=word)", "aopc(combine=max, units=word)"]
    table = evaluate(subject, data, "random", metrics, ceiling=True, **QUIET)
    both = [table["ceiling", label] for label in table.metrics]
    assert both[0] is not None
    assert both[1] is not None
    assert both[0].mean == pytest.approx(both[1].mean, abs=1e-12)


def test_a_smaller_window_is_not_taken_for_the_same(subject: Subject, data: Path, tmp_path: Path) -> None:
    tokenizer = copy.deepcopy(subject.tokenizer)
    tokenizer.model_max_length = 6
    cut = evaluate(subject_of(subject.model, tokenizer), data, "random", FALL, out=tmp_path / "run", **QUIET)
    assert any("cut at the model's window" in line for line in cut.footer)
    with pytest.raises(BadOption, match="measured in another way"):
        evaluate(subject, data, "random", FALL, out=tmp_path / "run", **QUIET)


def test_a_training_step_makes_another_model(data: Path, tmp_path: Path) -> None:
    model = copy.deepcopy(families.build("bert"))  # that one is shared by all tests
    explainer = Explainer(model, cases.subject().tokenizer)
    before = explainer.subject.fingerprint
    with torch.no_grad():
        next(model.parameters()).mul_(-3)
    assert explainer.subject.fingerprint != before


def test_what_one_text_gives_does_not_refuse_the_others(subject: Subject, data: Path) -> None:
    def overflowing(prediction: Prediction) -> torch.Tensor:
        """No number for texts of more than eight tokens."""
        scores = evaluated.in_order(prediction).clone()
        scores[(~prediction.padding).sum(1) > 8, 0] = torch.nan
        return scores

    evaluated.registered(overflowing)
    together, alone = (
        evaluate(subject, data, "overflowing", FALL, rows_per_chunk=size, **QUIET)["overflowing", FALL]
        for size in (8, 1)
    )
    assert together is not None
    assert evaluated.alike(together, alone)
    assert together.n > 0 < together.refused


def test_options_of_a_file_are_not_for_an_open_data_set(subject: Subject, data: Path) -> None:
    opened = open_dataset(data, labels=subject.labels)
    with pytest.raises(BadOption, match="limit= is for a file"):
        evaluate(subject, opened, "random", FALL, limit=2, **QUIET)
    with pytest.raises(BadOption, match="limit= is for a file"):
        recommend(subject, opened, "random", FALL, limit=2, **QUIET)


def test_numbers_that_are_names_of_classes() -> None:
    assert label_index("1", ["1", "2", "3"]) == 0
    with pytest.raises(BadInput, match="give names"):
        label_index(1, ["1", "2", "3"])
    assert label_index(1, ["0", "1"]) == 1


def test_another_beam_is_refused_before_anything_is_written(subject: Subject, data: Path, tmp_path: Path) -> None:
    journal = tmp_path / "run" / "journal.jsonl"
    evaluate(subject, data, "random", FALL, out=tmp_path / "run", ceiling=True, **QUIET)
    kept = journal.read_bytes()
    with pytest.raises(BadOption, match="measured in another way"):
        evaluate(subject, data, "random", FALL, out=tmp_path / "run", ceiling=True, beam=2, **QUIET)
    assert journal.read_bytes() == kept


def test_probabilities_of_zero(subject: Subject, data: Path, tmp_path: Path) -> None:
    model = copy.deepcopy(subject.model)
    with torch.no_grad():
        model.classifier.weight.mul_(1e5)
    table = evaluate(subject_of(model, subject.tokenizer), data, "random", "log_odds", out=tmp_path / "run", **QUIET)
    cell = table["random", "log_odds"]
    assert cell is not None
    assert cell.n == 8
    assert cell.mean > -800


def test_a_class_that_a_method_refuses(subject: Subject, data: Path) -> None:
    def one_sided(prediction: Prediction) -> torch.Tensor:
        """Explains what was predicted and nothing else."""
        if not torch.equal(prediction.target, prediction.predicted):
            raise BadInput("only what was predicted")
        return evaluated.in_order(prediction)

    evaluated.registered(one_sided, class_specific=True)
    table = evaluate(subject, data, "one_sided,attcat", f"kendall_tau,{FALL}", **QUIET)
    refused, other = table["one_sided", "kendall_tau"], table["attcat", "kendall_tau"]
    assert refused is not None
    assert refused.refused == 8
    assert other is not None
    assert other.n == 8
    against = evaluate(subject, data, "attcat", "kendall_tau(against=0)", **QUIET)["attcat", "kendall_tau(against=0)"]
    assert against is not None
    assert against.n + against.left_out == 8


def test_a_correlation_recommends_nothing(subject: Subject, data: Path) -> None:
    with pytest.raises(BadOption, match="does not say how good"):
        recommend(subject, data, "attcat", "kendall_tau", **QUIET)


def test_auto_is_a_name_like_others(subject: Subject, data: Path) -> None:
    assert evaluate(subject, data, "auto,random", FALL, **QUIET).methods == (AUTO, "random")
    explainer = Explainer(subject)
    assert explainer.explain("the film", "attcat(states=inputs)").options == {"states": "inputs"}
    assert [e.method for e in explainer.compare("the film", "auto,rollout")] == [AUTO, "rollout"]


def test_all_metrics_are_those_that_fit(subject: Subject, data: Path) -> None:
    found = evaluate(subject, data, "random,attcat", "all", **QUIET).metrics
    assert "aopc" in found
    assert not {"precision_at_k", "token_f1"} & set(found)


@pytest.mark.parametrize("option", ["rows_per_chunk", "tokens_per_batch"])
def test_sizes_are_at_least_one(subject: Subject, data: Path, option: str) -> None:
    with pytest.raises(BadOption, match=f"{option} takes a whole number from 1 on"):
        evaluate(subject, data, "random", FALL, **{option: 0}, **QUIET)


def test_a_padding_token_that_is_missing_is_said_of_the_metric() -> None:
    of = EvaluationPlan(cases.subject("gpt2"), method_specs("random"), metric_specs("log_odds"))
    with pytest.raises(BadOption, match="log_odds: hide='pad_attended' is not possible"):
        evaluated.chunk_of(of, evaluated.examples(["the film is fine"], [0]))
