"""Effort: what `method="auto"` means in one pass and in steps, on every surface."""

from typing import Any

import pytest

import whyformer
from tests.helpers import families
from tests.helpers.cases import TEXTS, subject
from whyformer import BadOption, Explainer
from whyformer.cli import main
from whyformer.methods import default as auto_module
from whyformer.methods.default import AUTO, EFFORT, auto_method, methods_for
from whyformer.tolerance import close

LONG = TEXTS[2]
EFFORTS = {"fast": AUTO, "balanced": f"stepwise(of={AUTO})", "best": f"stepwise(of={AUTO}, steps=10)"}


def command(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stop:
        main(list(arguments))
    said = capsys.readouterr()
    return int(stop.value.code or 0), said.out, said.err


@pytest.mark.parametrize(("effort", "label"), EFFORTS.items())
def test_auto_is_the_method_that_wins_in_general(effort: Any, label: str) -> None:
    assert auto_method(subject(), effort).label == auto_method(None, effort).label == label
    e = Explainer(subject()).explain(LONG, effort=effort)
    expected = Explainer(subject()).explain(LONG, label)
    assert close(e.scores, expected.scores)
    assert e.method == label.partition("(")[0]


def test_the_default_is_one_constant(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert auto_method().label == EFFORTS[EFFORT]
    assert Explainer(subject()).explain(LONG).method == EFFORTS[EFFORT].partition("(")[0]
    for effort, label in EFFORTS.items():
        monkeypatch.setattr(auto_module, "EFFORT", effort)
        name = label.partition("(")[0]
        assert auto_method().label == label
        assert Explainer(subject()).explain(LONG).method == name
        assert methods_for(None, "rollout,auto")[1].label == label


@pytest.mark.parametrize("method", ["attcat", "stepwise", "attcat(states=inputs)"])
@pytest.mark.parametrize("effort", ["fast", "best"])
def test_effort_is_for_auto(method: str, effort: Any) -> None:
    explainer = Explainer(subject())
    with pytest.raises(BadOption) as refusal:
        explainer.explain(LONG, method, effort=effort)
    assert f"effort={effort!r} is for `auto`, which is not among the methods ({method})" in str(refusal.value)
    with pytest.raises(BadOption, match="is for `auto`"):
        list(explainer.stream([LONG], method, effort=effort))
    with pytest.raises(BadOption, match="is for `auto`"):
        explainer.compare(LONG, [method, "rollout"], effort=effort)
    with pytest.raises(BadOption, match=r"among the methods \(fast\): name auto"):
        explainer.compare(LONG, "fast", effort=effort)
    with pytest.raises(BadOption, match="is for `auto`"):
        whyformer.attribute(families.build("bert"), families.batch(), method, effort=effort)


@pytest.mark.parametrize("effort", ["high", "", "FAST", 3])
def test_an_effort_that_does_not_exist(effort: Any) -> None:
    with pytest.raises(BadOption, match=r"effort (takes fast \| balanced \| best|is one of fast, balanced, best)"):
        Explainer(subject()).explain(LONG, effort=effort)
    with pytest.raises(BadOption, match=r"effort (takes fast \| balanced \| best|is one of fast, balanced, best)"):
        Explainer(subject()).explain(LONG, "attcat", effort=effort)


def test_options_go_to_what_auto_means() -> None:
    explainer = Explainer(subject())
    e = explainer.explain(LONG, effort="balanced", hide="mask", steps=2)
    assert e.options == {"of": AUTO, "hide": "mask", "steps": 2}
    assert e.diagnostics["evaluations"] == 3
    with pytest.raises(BadOption, match="layer_lrp has no option 'hide'"):
        explainer.explain(LONG, effort="fast", hide="mask")


def test_streams_and_comparisons() -> None:
    explainer = Explainer(subject())
    found = list(explainer.stream(TEXTS, effort="best", batch_size=2))
    assert [e.method for e in found] == ["stepwise"] * len(TEXTS)
    assert {e.options["steps"] for e in found} == {10}
    pair = explainer.compare(LONG, "auto,rollout", effort="balanced")
    assert [e.method for e in pair] == ["stepwise", "rollout"]


def test_ready_tensors() -> None:
    model, inputs = families.build("bert"), families.batch()
    for effort, label in EFFORTS.items():
        found = whyformer.attribute(model, inputs, target=1, effort=effort)  # type: ignore[arg-type]
        assert close(found, whyformer.attribute(model, inputs, label, target=1))


@pytest.mark.parametrize(("effort", "label"), [*EFFORTS.items(), (None, EFFORTS[EFFORT])])
def test_the_command_line(effort: str | None, label: str, capsys: pytest.CaptureFixture[str]) -> None:
    more = [] if effort is None else ["--effort", effort]
    code, out, _ = command(capsys, "explain", "a gorgeous, witty film", *more)
    assert code == 0
    assert f"\nmethod {label} · model sentiment\n" in out
    code, out, _ = command(capsys, "compare", "a gorgeous, witty film", "--methods", "auto,rollout", *more)
    assert code == 0
    assert f"\n{label} " in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["explain", "a film", "--effort", "high"], "effort is one of fast, balanced, best; found 'high'"),
        (["explain", "a film", "--method", "attcat", "--effort", "best"], "effort='best' is for `auto`"),
        (["explain", "a film", "--effort", "fast", "--hide", "mask"], "layer_lrp has no option 'hide'"),
        (
            ["compare", "a film", "--methods", "fast", "--effort", "best"],
            "effort='best' is for `auto`, which is not among the methods (fast): name auto",
        ),
        (["compare", "a film", "--methods", "rollout", "--effort", "best"], "effort='best' is for `auto`"),
    ],
)
def test_what_is_wrong_on_the_command_line(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = command(capsys, *arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1


def test_words_are_hidden_as_they_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    for more, units in ((["--words"], "word"), ([], None), (["--words", "--units", "token"], "token")):
        _, out, _ = command(capsys, "explain", "unwatchable, mawkish drivel", "--method", "stepwise", *more)
        assert ("units=word" in out) == (units == "word")
        assert ("units=token" in out) == (units == "token")
