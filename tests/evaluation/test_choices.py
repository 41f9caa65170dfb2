"""recommend and choices: the winner on one's own texts, the file that keeps it, and what `auto` means then."""

import copy
import json
import os
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.helpers import cases, evaluated
from tests.helpers.evaluated import leave_one_out, registered
from whyformer import Explainer
from whyformer.datasets import open_dataset
from whyformer.errors import BadInput, BadOption
from whyformer.evaluation.recommend import Recommendation, recommend
from whyformer.methods.default import AUTO, auto_method
from whyformer.methods.recorded import Choice, choices_file, forget, record, recorded
from whyformer.models.loading import Subject, load
from whyformer.prediction import Prediction
from whyformer.rounding import close

FALL = "comprehensiveness(fractions=0.01)"  # without one unit: nothing is better than leaving each out once
CHOICE = Choice("attcat(states=inputs)", "aopc", 0.3, 0.2, 0.4, 50, "reviews.csv")


@pytest.fixture(autouse=True)
def own_registry() -> Iterator[None]:
    with evaluated.own_registry():
        registered(leave_one_out, class_specific=True)
        yield


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No test writes to the home folder."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("WHYFORMER_CACHE", str(folder))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "another"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return folder / "choices.json"


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


def test_the_winner_is_recorded_and_used(data: Path, cache: Path) -> None:
    own = cases.subject()
    assert recorded(own) is None
    assert auto_method(own).label == AUTO
    found = chosen(data)
    assert found.table.methods == ("leave_one_out", "rollout", "random")
    means = {method: found.table[method, FALL].mean for method in found.table.methods}
    assert found.winner == max(means, key=lambda name: means[name]) == "leave_one_out"
    assert found.better_than_random
    assert found.recorded == cache
    kept = recorded(own)
    cell = found.table["leave_one_out", FALL]
    assert kept == Choice("leave_one_out", FALL, cell.mean, cell.low, cell.high, 30, str(data))
    assert auto_method(own).label == "leave_one_out"
    assert auto_method().label == AUTO
    assert {path.name for path in cache.parent.iterdir()} == {"choices.json", "choices.lock"}  # no draft is left


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
    assert recorded(cases.subject()).metric == metric


def test_random_is_always_among_them_and_counted_once(data: Path) -> None:
    assert chosen(data, "leave_one_out", cache=False).table.methods == ("leave_one_out", "random")
    found = chosen(data, "random,leave_one_out", cache=False)
    assert found.table.methods == ("leave_one_out", "random"), "the best first"
    assert str(found) == f"{found.table}\n\n{found.sentence}"
    assert repr(found) == f"<Recommendation: {found.sentence}>"
    rows = ", ".join(found.table.methods)
    assert repr(found.table) == f"<Table of {rows} by {found.metric}, 30 examples>"


def test_nothing_is_recorded_unless_it_may_be(data: Path, cache: Path) -> None:
    found = chosen(data, cache=False)
    assert found.better_than_random
    assert found.recorded is None
    assert not cache.parent.exists()
    assert recorded(cases.subject()) is None


def test_a_winner_that_is_not_better_than_random_is_not_recorded(data: Path, cache: Path) -> None:
    constant = changed(1e-30)
    found = chosen(data, of=constant)
    assert not found.better_than_random
    assert found.recorded is None
    assert not cache.exists()
    assert found.sentence == f"No method is reliably better than a random order here ({FALL}, 30 texts)."
    assert auto_method(constant).label == AUTO


def test_a_winner_that_may_be_luck_is_not_recorded(data: Path, cache: Path) -> None:
    """The interval of its paired difference to `random` includes 0, though its mean is the best."""
    found = chosen(data, "random(seed=1),random(seed=2),random(seed=3)")
    assert found.winner != "random"
    own, other = (found.table.series[method, FALL].values for method in (found.winner, "random"))
    assert own.mean() > other.mean()
    draws = np.random.default_rng(0).integers(30, size=(1000, 30))
    assert np.quantile((own - other)[draws].mean(1), 0.025) < 0
    assert not found.better_than_random
    assert not cache.exists()


def test_where_random_wins_it_is_not_recorded(data: Path, cache: Path) -> None:
    def worst(prediction: Prediction) -> torch.Tensor:
        """The opposite of what matters."""
        return -leave_one_out(prediction)

    registered(worst, class_specific=True)
    found = chosen(data, "worst")
    assert (found.winner, found.better_than_random, found.recorded) == ("random", False, None)
    assert "No method is reliably better" in found.sentence
    assert not cache.exists()


def test_one_text_is_no_evidence(data: Path, cache: Path) -> None:
    assert not chosen(data, limit=1).better_than_random
    assert not cache.exists()


def test_a_sample_of_the_texts_is_enough(data: Path) -> None:
    assert chosen(data, limit=8, cache=False).table["rollout", FALL].n == 8
    assert chosen(data, limit=None, cache=False).table["rollout", FALL].n == 30


def test_options_of_the_winner_survive(data: Path) -> None:
    def shifted(prediction: Prediction, *, backwards: bool = True, sizes: list[int] | None = None) -> torch.Tensor:
        """Good with options only."""
        assert sizes is None or sizes == [1, 2]
        return leave_one_out(prediction) * (-1 if backwards else 1)

    registered(shifted, class_specific=True)
    found = chosen(data, "shifted,shifted(backwards=false, sizes=1,2),rollout")
    assert found.winner == "shifted(backwards=false, sizes=1,2)"
    spec = auto_method(cases.subject())
    assert spec.label == found.winner
    assert dict(spec.options) == {"backwards": False, "sizes": [1, 2]}


def test_methods_that_refuse_do_not_win(data: Path) -> None:
    def unable(prediction: Prediction) -> torch.Tensor:
        """Explains nothing."""
        raise BadInput("not today")

    registered(unable)
    assert chosen(data, "unable,leave_one_out", cache=False).winner == "leave_one_out"


def test_a_method_that_refuses_some_texts_does_not_win_by_the_others(data: Path, cache: Path) -> None:
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
    assert not cache.exists()
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
    assert recorded(cases.subject()).data == str(data)
    before = evaluated.files(tmp_path / "out")
    recommend(cases.subject(), opened, "leave_one_out", FALL, out=tmp_path / "out", progress=False)
    assert evaluated.files(tmp_path / "out") == before


# The file


def test_where_the_file_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert choices_file() == tmp_path / "cache" / "choices.json"
    monkeypatch.delenv("WHYFORMER_CACHE")
    assert choices_file() == tmp_path / "another" / "whyformer" / "choices.json"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert choices_file() == tmp_path / "home" / ".cache" / "whyformer" / "choices.json"
    assert not (tmp_path / "home").exists()


def test_the_file_can_be_read_by_people(cache: Path) -> None:
    own = cases.subject()
    assert record(own, CHOICE) == cache
    kept = json.loads(cache.read_text())
    assert kept == {
        "schema": "whyformer/choices",
        "schema_version": 1,
        "models": {own.shape: {own.fingerprint: asdict(CHOICE)}},
    }


def test_choices_of_several_models_stand_side_by_side() -> None:
    one, other, third = cases.subject(), changed(2.0), cases.subject(labels=2)
    for n, own in enumerate((one, other, third)):
        record(own, replace(CHOICE, n=n))
    assert [recorded(own).n for own in (one, other, third)] == [0, 1, 2]
    record(other, replace(CHOICE, n=7))
    assert [recorded(own).n for own in (one, other, third)] == [0, 7, 2]
    assert forget(other)
    assert not forget(other)
    assert [recorded(one).n, recorded(other), recorded(third).n] == [0, None, 2]


def test_another_model_of_the_same_shape_does_not_get_the_choice() -> None:
    own, other = cases.subject(), changed(1.0 + 1e-12)
    assert own.shape == other.shape
    record(own, CHOICE)
    assert auto_method(own).label == CHOICE.method
    assert recorded(other) is None
    assert auto_method(other).label == AUTO
    assert auto_method(changed(1.0)).label == CHOICE.method  # the same weights, in another object


def test_a_model_that_is_trained_on_is_another_model() -> None:
    own = changed(1.0)
    record(own, CHOICE)
    with torch.no_grad():
        own.model.classifier.bias[0] += 1e-6
    assert recorded(own) is None


def test_the_choice_is_that_of_a_model_wherever_it_is(tmp_path: Path) -> None:
    own = changed(1.0)
    record(own, CHOICE)
    for name in ("a", "b"):
        own.model.save_pretrained(tmp_path / name)
        own.tokenizer.save_pretrained(tmp_path / name)
        again = load(tmp_path / name)
        assert auto_method(again).label == CHOICE.method


def test_calling_the_tokenizer_does_not_make_it_another_model() -> None:
    own = changed(1.0)
    record(own, CHOICE)
    own.tokenizer(["the film", "a"], padding=True, truncation=True, max_length=3)
    assert recorded(changed(1.0)) == CHOICE


@pytest.mark.parametrize(
    "held",
    [
        b"",
        b"{",
        b"\xff\xfe\x00",
        b"[]",
        b"null",
        b'{"schema": "whyformer/choices", "schema_version": 2, "models": {}}',
        b'{"schema": "whyformer/explanation", "schema_version": 1}',
        b'{"schema": "whyformer/choices", "schema_version": 1}',
        b'{"schema": "whyformer/choices", "schema_version": 1, "models": 3}',
    ],
)
def test_a_damaged_file_is_said(cache: Path, held: bytes) -> None:
    cache.parent.mkdir()
    cache.write_bytes(held)
    for use in (lambda: auto_method(cases.subject()), lambda: record(cases.subject(), CHOICE)):
        with pytest.raises(BadInput, match=r"choices\.json.*remove it"):
            use()
    assert cache.read_bytes() == held


def test_half_a_file_is_said(cache: Path) -> None:
    record(cases.subject(), CHOICE)
    whole = cache.read_bytes()
    cache.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(BadInput, match=r"could not read .*choices\.json.*remove it"):
        recorded(cases.subject())


def test_a_choice_that_is_not_one_is_said(cache: Path) -> None:
    own = cases.subject()
    record(own, CHOICE)
    kept = json.loads(cache.read_text())
    for damaged in ({"method": "attcat"}, {**asdict(CHOICE), "mood": "good"}, "attcat"):
        kept["models"][own.shape][own.fingerprint] = damaged
        cache.write_text(json.dumps(kept))
        with pytest.raises(BadInput, match=r"choices\.json.*remove it"):
            auto_method(own)


def test_a_folder_that_cannot_be_written_to_is_said(cache: Path) -> None:
    cache.parent.write_text("a file where the folder should be")
    with pytest.raises(BadInput, match=r"could not (read|write) .*choices\.json"):
        record(cases.subject(), CHOICE)


def test_a_full_disk_leaves_the_old_choices(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record(cases.subject(), CHOICE)
    before = cache.read_bytes()

    def full(self: Path, target: object) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(BadInput, match=r"could not write .*No space left"):
        record(cases.subject(), replace(CHOICE, n=1))
    assert cache.read_bytes() == before


# What `auto` means to an explainer


def test_an_explainer_uses_the_recorded_method() -> None:
    own = cases.subject()
    explainer = Explainer(own)
    plain = explainer.explain("the film is fine")
    record(own, replace(CHOICE, method="random(seed=3)"))
    used = Explainer(own).explain("the film is fine")
    assert used.method == "random"
    assert list(used.scores) == list(explainer.explain("the film is fine", "random", seed=3).scores)
    assert plain.method == AUTO
    assert forget(own)
    assert close(Explainer(own).explain("the film is fine").scores, plain.scores)
