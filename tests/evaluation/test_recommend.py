"""recommend: the best method on your own texts, and the line that uses it."""

import copy
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.helpers import cases, evaluated
from tests.helpers.evaluated import leave_one_out, registered
from whyformer.datasets import open_dataset
from whyformer.errors import BadInput, BadOption
from whyformer.evaluation.recommend import Recommendation, recommend
from whyformer.methods.default import AUTO, auto_method
from whyformer.models.load import Subject
from whyformer.prediction import Prediction

FALL = "comprehensiveness(fractions=0.01)"  # without one unit: nothing is better than leaving each out once


@pytest.fixture(autouse=True)
def own_registry() -> Iterator[None]:
    with evaluated.own_registry():
        registered(leave_one_out, class_specific=True)
        yield


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return evaluated.data(tmp_path, 30)


def chosen(data: Path, methods: str = "leave_one_out,rollout", metric: str = FALL, **options: object) -> Recommendation:
    given = {"of": cases.subject(), "progress": False} | options
    return recommend(given.pop("of"), data, methods, metric, **given)


def changed(factor: float, own: Subject | None = None) -> Subject:
    """The same shape, with another head."""
    own = cases.subject() if own is None else own
    model = copy.deepcopy(own.model)
    with torch.no_grad():
        model.classifier.weight.mul_(factor)
        model.classifier.bias.mul_(factor)
    return replace(own, model=model)


# The winner


def test_the_winner_is_the_best_and_auto_stays_what_it_is(data: Path) -> None:
    own = cases.subject()
    found = chosen(data)
    assert found.table.methods == ("leave_one_out", "rollout", "random")
    means = {method: found.table[method, FALL].mean for method in found.table.methods}
    assert found.winner == max(means, key=lambda name: means[name]) == "leave_one_out"
    assert found.better_than_random
    assert auto_method(own).label == AUTO


def test_the_line_to_paste_names_the_winner(data: Path) -> None:
    line = "In Python: explain(text, 'leave_one_out'). In a terminal: --method 'leave_one_out'."
    assert str(chosen(data)).splitlines()[-1] == line


def test_the_sentence_has_the_winner_and_its_numbers(data: Path) -> None:
    found = chosen(data, "leave_one_out,random(seed=4)")
    cell = found.table["leave_one_out", FALL]
    assert found.sentence == f"Use leave_one_out: {FALL} {cell.mean:.3f} [{cell.low:.3f}, {cell.high:.3f}], 30 texts."


def test_the_sentence_has_those_that_cannot_be_told_apart(data: Path) -> None:
    def the_same(prediction: Prediction) -> torch.Tensor:
        """The same once more."""
        return leave_one_out(prediction)

    registered(the_same, class_specific=True)
    found = chosen(data, "leave_one_out,rollout,the_same")
    assert found.winner == "leave_one_out"
    assert found.sentence.endswith("30 texts; the_same cannot be told apart from it.")


def test_lower_is_better_where_the_metric_says_so(data: Path) -> None:
    metric = "log_odds(fractions=0.1, hide=delete)"
    found = chosen(data, metric=metric)
    means = {method: found.table[method, metric].mean for method in found.table.methods}
    assert found.winner == min(means, key=lambda name: means[name])
    gap = found.table.compare(metric, found.winner, "random")
    assert found.better_than_random is (gap.high < 0)
    assert found.better_than_random


def test_random_is_always_among_them_and_counted_once(data: Path) -> None:
    assert chosen(data, "leave_one_out").table.methods == ("leave_one_out", "random")
    found = chosen(data, "random,leave_one_out")
    assert found.table.methods == ("leave_one_out", "random"), "the best first"
    assert str(found).startswith(f"{found.table}\n\n{found.sentence}\n")
    assert repr(found) == f"<Recommendation: {found.sentence}>"
    rows = ", ".join(found.table.methods)
    assert repr(found.table) == f"<Table of {rows} by {found.metric}, 30 examples>"


def test_a_winner_that_is_not_better_than_random_is_not_recommended(data: Path) -> None:
    constant = changed(1e-30)
    found = chosen(data, of=constant)
    assert not found.better_than_random
    assert found.sentence == f"No method is reliably better than a random order here ({FALL}, 30 texts)."
    assert "In Python" not in str(found)


def test_a_winner_that_may_be_luck_is_not_recommended(data: Path) -> None:
    """The interval of its paired difference to `random` includes 0, though its mean is the best."""
    found = chosen(data, "random(seed=1),random(seed=2),random(seed=3)")
    assert found.winner != "random"
    own, other = (found.table.series[method, FALL].values for method in (found.winner, "random"))
    assert own.mean() > other.mean()
    draws = np.random.default_rng(0).integers(30, size=(1000, 30))
    assert np.quantile((own - other)[draws].mean(1), 0.025) < 0
    assert not found.better_than_random


def test_where_random_wins_it_is_not_recommended(data: Path) -> None:
    def worst(prediction: Prediction) -> torch.Tensor:
        """The opposite of what matters."""
        return -leave_one_out(prediction)

    registered(worst, class_specific=True)
    found = chosen(data, "worst")
    assert (found.winner, found.better_than_random) == ("random", False)
    assert "No method is reliably better" in found.sentence


def test_one_text_is_no_evidence(data: Path) -> None:
    assert not chosen(data, limit=1).better_than_random


def test_a_sample_of_the_texts_is_enough(data: Path) -> None:
    assert chosen(data).table["rollout", FALL].n == 30
    first, drawn = chosen(data, limit=8).table, chosen(data, sample=8).table
    assert first["rollout", FALL].n == drawn["rollout", FALL].n == 8
    keys = [tuple(table.series["rollout", FALL].rows) for table in (first, drawn)]
    assert keys[0] != keys[1]


def test_options_of_the_winner_survive(data: Path) -> None:
    def shifted(prediction: Prediction, *, backwards: bool = True, sizes: list[int] | None = None) -> torch.Tensor:
        """Good with options only."""
        assert sizes is None or sizes == [1, 2]
        return leave_one_out(prediction) * (-1 if backwards else 1)

    registered(shifted, class_specific=True)
    found = chosen(data, "shifted,shifted(backwards=false, sizes=1,2),rollout")
    assert found.winner == "shifted(backwards=false, sizes=1,2)"
    assert str(found).endswith(f"--method '{found.winner}'.")


def test_methods_that_refuse_do_not_win(data: Path) -> None:
    def unable(prediction: Prediction) -> torch.Tensor:
        """Explains nothing."""
        raise BadInput("not today")

    registered(unable)
    assert chosen(data, "unable,leave_one_out").winner == "leave_one_out"


def test_a_method_that_refuses_some_texts_does_not_win_by_the_others(data: Path) -> None:
    def choosy(prediction: Prediction) -> torch.Tensor:
        """The best, of short texts only."""
        if int(prediction.real.sum(1).max()) > 10:
            raise BadInput("too long")
        return leave_one_out(prediction)

    registered(choosy, class_specific=True)
    found = chosen(data, "choosy")
    own, other = (found.table[method, FALL] for method in ("choosy", "random"))
    assert (own.n + own.refused, other.n) == (30, 30)
    assert own.refused > 0
    assert own.mean > other.mean
    assert (found.winner, found.better_than_random) == ("random", False)
    assert chosen(data, "choosy,leave_one_out").winner == "leave_one_out"


def test_metrics_of_a_corpus_cannot_rank_text_by_text(data: Path) -> None:
    with pytest.raises(BadOption, match="token_overlap has no number for each example"):
        chosen(data, metric="token_overlap")


def test_metrics_that_random_does_not_have_are_refused(data: Path) -> None:
    with pytest.raises(BadOption, match="kendall_tau"):
        chosen(data, "leave_one_out,attcat", "kendall_tau")


def test_a_folder_is_resumed_and_data_may_be_open_already(data: Path, tmp_path: Path) -> None:
    opened = open_dataset(data, labels=cases.subject().labels, limit=10)
    found = recommend(cases.subject(), opened, "leave_one_out", FALL, out=tmp_path / "out", progress=False)
    assert found.table["random", FALL].n == 10
    before = evaluated.files(tmp_path / "out")
    recommend(cases.subject(), opened, "leave_one_out", FALL, out=tmp_path / "out", progress=False)
    assert evaluated.files(tmp_path / "out") == before
