"""Specs: methods and metrics with their options, as they are written and as they are labelled."""

import pytest
import torch

import whyformer
from tests.helpers import cases
from whyformer.errors import BadOption
from whyformer.methods.method import MethodSpec, method_named, method_specs
from whyformer.metrics.metric import metric_named, metric_specs


@pytest.mark.parametrize(
    ("written", "labels"),
    [
        ("rollout", ["rollout"]),
        ("rollout,attcat", ["rollout", "attcat"]),
        (" rollout ,  attcat , ", ["rollout", "attcat"]),
        (["rollout", "attcat(states=inputs)"], ["rollout", "attcat(states=inputs)"]),
        ("attcat( states = inputs )", ["attcat(states=inputs)"]),
        ("attcat()", ["attcat"]),
        ("random(seed=3),random,random(seed=4)", ["random(seed=3)", "random", "random(seed=4)"]),
        ("random,random(seed=0)", ["random"]),  # the default, and so the same
        (
            "smooth_grad(seed=1, samples=4),saliency",
            ["smooth_grad(samples=4, seed=1)", "saliency"],  # in order of their names
        ),
        ("rollout(row_normalised=false)", ["rollout(row_normalised=false)"]),
    ],
)
def test_methods_as_they_are_written(written: str | list[str], labels: list[str]) -> None:
    assert [spec.label for spec in method_specs(written)] == labels


@pytest.mark.parametrize(
    ("written", "options", "label"),
    [
        ("aopc", {}, "aopc"),
        ("aopc(fractions=0.1,0.5)", {"fractions": [0.1, 0.5]}, "aopc(fractions=0.1,0.5)"),
        ("aopc(fractions=0.1,0.5,hide=mask)", {"fractions": [0.1, 0.5], "hide": "mask"}, None),
        ("aopc(hide=mask, fractions=1)", {"fractions": [1.0], "hide": "mask"}, "aopc(fractions=1.0, hide=mask)"),
        ("aopc(absolute=true)", {"absolute": True}, "aopc(absolute=true)"),
        ("aopc(hide=none)", {"hide": None}, "aopc"),
        ("precision_at_k(k=5)", {"k": 5}, "precision_at_k(k=5)"),
        ("precision_at_k(k=5,10)", {"k": [5, 10]}, "precision_at_k(k=5,10)"),
        ("kendall_tau(protocol=attcat)", {"protocol": "attcat"}, "kendall_tau(protocol=attcat)"),
    ],
)
def test_metrics_as_they_are_written(written: str, options: dict[str, object], label: str | None) -> None:
    (spec,) = metric_specs(written)
    assert dict(spec.options) == options
    assert label is None or spec.label == label
    (again,) = metric_specs([spec.label])
    assert (again.label, again.facts) == (spec.label, spec.facts)


def test_a_comma_divides_specs_outside_brackets_only() -> None:
    found = metric_specs("aopc(fractions=0,0.5,1),log_odds(hide=pad),kendall_tau")
    assert [spec.label for spec in found] == ["aopc(fractions=0.0,0.5,1.0)", "log_odds(hide=pad)", "kendall_tau"]


def test_all_means_everything_that_is_registered() -> None:
    assert [spec.label for spec in method_specs("all")] == list(whyformer.list_methods())
    assert [spec.label for spec in metric_specs("all")] == list(whyformer.list_metrics())


def test_facts_hold_the_defaults_too() -> None:
    plain, given = method_specs("random,random(seed=7)")
    assert plain.facts == {"name": "random", "options": {"seed": 0}}
    assert given.facts == {"name": "random", "options": {"seed": 7}}
    assert MethodSpec(method_named("random")).facts == plain.facts
    added = {"special_tokens"}  # later than the journals that must stay valid: a default adds nothing to the facts
    assert metric_specs("aopc")[0].facts["options"].keys() == metric_named("aopc").options.keys() - added
    (chosen,) = metric_specs("aopc(protocol=attcat, special_tokens=true)")
    assert chosen.facts["options"].keys() == metric_named("aopc").options.keys()


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("", "nothing is named"),
        (" , ", "nothing is named"),
        ([], "nothing is named"),
        ("rollot", "there is no method 'rollot'; did you mean 'rollout'"),
        ("rollout(", "is not written as name or name"),
        ("rollout)", "is not written as name or name"),
        ("random(seed=1)x", "is not written as name or name"),
        ("random(3)", "an option is written as name=value; found '3'"),
        ("random(seed=x)", "option --seed takes a whole number; found 'x'"),
        ("random(sed=1)", "random has no option 'sed'"),
        ("attcat(states=moon)", "option --states takes"),
        ("(seed=1)", "there is no method ''"),
        ("aopc", "there is no method 'aopc'"),
    ],
)
def test_what_is_wrong_is_said(written: str | list[str], message: str) -> None:
    with pytest.raises(BadOption) as refusal:
        method_specs(written)
    assert message in str(refusal.value)


def test_a_method_is_no_metric() -> None:
    with pytest.raises(BadOption, match="there is no metric 'rollout'"):
        metric_specs("rollout")


def test_a_spec_calls_with_its_options() -> None:
    prediction = cases.predicted(cases.TEXTS)
    plain, given = (spec(prediction).total for spec in method_specs("random,random(seed=3)"))
    assert torch.equal(given, method_named("random")(prediction, seed=3).total)
    assert not torch.equal(given, plain)
