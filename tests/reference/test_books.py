"""Rule books as values: with parameters, by site, with a gate; made outside the package."""

import gc
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from tests.helpers import families
from whyformer.errors import BadOption
from whyformer.inputs.batch import batch_of
from whyformer.prediction import Prediction
from whyformer.recorder import BOOKS, Book, BySite
from whyformer.recorder.lrp import rule_sets, rules
from whyformer.recorder.lrp.sites import Finish, Rule, Site


def predicted(family: str = "bert") -> Prediction:
    model = families.build(family)
    return Prediction(model, batch_of(model, families.batch()), 1, relevance=True)


def numbers(prediction: Prediction, book: str | Book) -> Tensor:
    return prediction.embedding_relevances(book)


def test_nothing_comes_of_a_sum_of_nothing() -> None:
    x, weight, relevance = torch.zeros(2, 5).double(), torch.ones(4, 5).double(), torch.ones(2, 4).double()
    site = Site("linear", (x, weight, None), x @ weight.T, (), None, "", len(x))  # type: ignore[arg-type]
    for book in (rule_sets.epsilon(0), rule_sets.gamma(0.5)):
        sent, finish = book.rules["linear"](site, relevance)  # type: ignore[misc,operator]
        assert torch.equal(finish(0, sent @ weight), x)


def test_the_parameters_go_over_into_the_books_without() -> None:
    prediction = predicted()
    plain = numbers(prediction, "epsilon")
    assert (numbers(prediction, rule_sets.epsilon(1e-9)) - plain).abs().max() <= 1e-5 * plain.abs().max()
    assert (numbers(prediction, rule_sets.epsilon(0.1)) - plain).abs().max() > 1e-2 * plain.abs().max()
    assert (numbers(prediction, rule_sets.gamma(0.1)) - plain).abs().max() > 1e-2 * plain.abs().max()


@pytest.mark.parametrize("family", ["bert", "llama", "gpt2", "deberta_v2"])
def test_books_with_a_parameter_explain_many_families(family: str) -> None:
    prediction = predicted(family)
    for book in (rule_sets.epsilon(0.01), rule_sets.gamma(0.25)):
        assert bool(torch.isfinite(numbers(prediction, book)).all())


@pytest.mark.parametrize("make", [rule_sets.epsilon, rule_sets.gamma])
@pytest.mark.parametrize("value", [-1, float("nan"), float("inf")])
def test_a_bad_parameter_is_refused(make: object, value: float) -> None:
    with pytest.raises(BadOption, match="a number of 0 or more, found"):
        make(value)  # type: ignore[operator]


def test_books_are_compared_by_value_and_their_passes_kept() -> None:
    assert rule_sets.gamma(0.25) == rule_sets.gamma(0.25) != rule_sets.gamma(0.5)
    assert replace(BOOKS["z_plus"]) == BOOKS["z_plus"]
    prediction, gamma = predicted(), rule_sets.gamma(0.25)
    assert prediction.relevances(gamma) is prediction.relevances(rule_sets.gamma(0.25))
    assert prediction.relevances("z_plus") is prediction.relevances(replace(BOOKS["z_plus"]))
    del gamma
    gc.collect()
    assert len(prediction._by_book) == 1


def test_a_rule_for_each_site_from_outside() -> None:
    """Layers of one book above, and of another below: each gets what its own rule makes of what arrives."""
    seen: dict[str, str] = {}

    def halved_below(site: Site, relevance: Tensor) -> tuple[Tensor, Finish]:
        seen[site.path] = "halved"
        sent, finish = rules.linear_positive(site, relevance)
        return sent, lambda position, back: finish(position, back) / 2

    def chosen(site: Site) -> Rule:
        seen.setdefault(site.path, "z_plus")
        return halved_below if ".layer.0" in site.path else rules.linear_positive

    z_plus, prediction = BOOKS["z_plus"], predicted()
    book = replace(z_plus, name="by layer", rules={**z_plus.rules, "linear": BySite(chosen)})
    mixed, plain = prediction.relevances(book), prediction.relevances("z_plus")
    assert seen["bert.encoder.layer.0"] == "halved"
    assert seen["bert.encoder.layer.1"] == "z_plus"
    torch.testing.assert_close(mixed.attention[1], plain.attention[1])  # above, nothing changes
    assert (mixed.attention[0] - plain.attention[0]).abs().max() > 1e-3 * plain.attention[0].abs().max()


def test_a_rule_of_one_kind_of_each_site_is_that_rule() -> None:
    prediction, z_plus = predicted(), BOOKS["z_plus"]
    same = replace(z_plus, rules={kind: BySite(lambda _, r=rule: r) for kind, rule in z_plus.rules.items()})
    torch.testing.assert_close(numbers(prediction, same), numbers(prediction, "z_plus"))
    epsilon = BOOKS["epsilon"]
    opened = replace(epsilon, rules={kind: BySite(lambda _, r=rule: r) for kind, rule in epsilon.rules.items()})
    llama = predicted("llama")  # its norms are looked into
    torch.testing.assert_close(numbers(llama, opened), numbers(llama, "epsilon"))


@pytest.mark.parametrize("book", ["z_plus", "attn"])
def test_what_arrives_is_changed_before_the_rule(book: str) -> None:
    prediction, arrived = predicted(), []

    def doubled(site: Site, relevance: Tensor) -> Tensor:
        arrived.append(site.path)
        return 2 * relevance

    changed = BOOKS[book].before("activation", doubled)
    found, plain = numbers(prediction, changed), numbers(prediction, book)
    assert {path.rpartition(".layer.")[2] for path in arrived} >= {"0", "1"}
    assert (found - plain).abs().max() > 1e-3 * plain.abs().max()
    same = BOOKS[book].before("activation", lambda _, relevance: relevance)
    torch.testing.assert_close(numbers(prediction, same), plain)
    with pytest.raises(BadOption, match="has no rule for 'activations'; did you mean"):
        BOOKS[book].before("activations", doubled)


def test_a_change_before_the_derivative() -> None:
    """The book `attn` keeps the derivative of linear maps: nothing arrives, nothing leaves."""
    prediction = predicted()
    closed = BOOKS["attn"].before("linear", lambda _, gradient: torch.zeros_like(gradient))
    assert not numbers(prediction, closed).any()


def test_eq4_differs_from_its_normalised_form_by_additions_alone() -> None:
    plain, normalised = BOOKS["eq4"], BOOKS["eq4_normalised"]
    assert {kind for kind in plain.rules if plain.rules[kind] is not normalised.rules[kind]} == {"add"}
    assert (plain.rules["add"], normalised.rules["add"]) == (rules.add, rules.add_normalised)
    prediction = predicted()
    assert (numbers(prediction, plain) - numbers(prediction, normalised)).abs().max() > 1e-6
