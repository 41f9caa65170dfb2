"""Ways to hide as objects: one registry for `hide=` and `baseline=`, what each can do, and one from outside."""

from typing import Any

import numpy as np
import pytest
import torch
import transformers as hf

import whyformer
from tests.helpers import families
from tests.helpers.cases import TEXTS, case, predicted, subject
from whyformer import BadInput, BadOption, Explainer
from whyformer.inputs.batch import batch_of
from whyformer.inputs.hiding import Hide
from whyformer.inputs.input import Places, TensorInput
from whyformer.methods.method import method_named
from whyformer.metrics.metric import metric_named, metric_specs
from whyformer.perturb import HIDES, hide_named, register_hide
from whyformer.perturb.out_of_memory import in_halves
from whyformer.prediction import Prediction

TEXT = "the film is bad"


class Neighbour(Hide):
    """The token before a unit takes its place."""

    name = "neighbour"

    def apply(self, whole: TensorInput, places: Places) -> TensorInput:
        """One place after the other."""
        for place in places:
            whole = whole.filled([place], int(whole.tensors["input_ids"][place - 1]))
        return whole


@pytest.fixture
def neighbour(monkeypatch: pytest.MonkeyPatch) -> Hide:
    monkeypatch.setattr(HIDES, "known", dict(HIDES))
    return register_hide(Neighbour())


def without(inputs: dict[str, torch.Tensor], *places: int) -> torch.Tensor:
    """What the model gives once the neighbour stands in some places."""
    ids = inputs["input_ids"].clone()
    for place in places:
        ids[0, place] = ids[0, place - 1]
    with torch.no_grad():
        return subject().model(**{**inputs, "input_ids": ids}).logits[0]  # type: ignore[no-any-return]


def test_a_metric_takes_a_way_to_hide_from_outside(neighbour: Hide) -> None:
    one = case([TEXT])
    inputs = dict(subject().tokenizer(TEXT, return_tensors="pt"))
    first = one.ranked("predicted")[0][0][0]
    target = int(one.prediction.predicted)
    whole, after = (without(inputs, *gone).softmax(-1)[target] for gone in ((), (first,)))
    spec = metric_specs("comprehensiveness(hide=neighbour, fractions=0.01)")[0]
    assert spec.label == "comprehensiveness(fractions=0.01, hide=neighbour)"
    assert float(spec(one).values) == pytest.approx(float(whole - after), abs=1e-9)
    itself = metric_named("comprehensiveness")(one, hide=neighbour, fractions=[0.01])
    assert itself.values.tolist() == spec(one).values.tolist()


def test_its_code_determines_numbers(neighbour: Hide) -> None:
    """So it stands in the key of each, while the ways of this package do not."""
    ours, other = (metric_specs(f"comprehensiveness(hide={hide})")[0].facts for hide in ("mask", "neighbour"))
    assert "code" in other
    assert "code" not in ours


def test_a_baseline_method_takes_it(neighbour: Hide) -> None:
    prediction = predicted([TEXT], target=1)
    scores = method_named("occlusion")(prediction, window=1, baseline="neighbour").total[0]
    inputs = dict(subject().tokenizer(TEXT, return_tensors="pt"))
    places = range(1, inputs["input_ids"].shape[1] - 1)
    expected = [float(without(inputs)[1] - without(inputs, place)[1]) for place in places]
    assert scores[1:-1].tolist() == pytest.approx(expected, abs=1e-6)


def test_stepwise_takes_it(neighbour: Hide) -> None:
    found = Explainer(subject()).explain(TEXT, "stepwise", hide="neighbour", steps=2, target=1, explains="logit")
    inputs = dict(subject().tokenizer(TEXT, return_tensors="pt"))
    (seen,) = found.seen
    gone = [place for place, step in enumerate(seen.hidden_in) if step == 1]
    assert seen.hide == "neighbour"
    order = sorted(gone, key=lambda place: -found.scores[place])
    assert seen.outputs[1] == pytest.approx(float(without(inputs, *order)[1]), abs=1e-9)


def test_a_path_cannot_begin_at_it(neighbour: Hide) -> None:
    with pytest.raises(BadOption, match=r"baseline='neighbour' is not possible: a path begins at embeddings"):
        method_named("integrated_gradients")(predicted([TEXT]), baseline="neighbour")


def test_what_cannot_be_registered(neighbour: Hide) -> None:
    with pytest.raises((BadOption, ValueError), match="'neighbour' already"):
        register_hide(Neighbour())
    with pytest.raises(BadOption, match="an object of a subclass of"):
        register_hide(Neighbour)  # type: ignore[arg-type]
    with pytest.raises(BadOption, match="there is no way to hide 'neighbours'; did you mean 'neighbour'"):
        hide_named("neighbours")


def test_options_list_the_names(neighbour: Hide) -> None:
    for function, name in ((metric_named("aopc"), "hide"), (method_named("lime"), "baseline")):
        takes = function.options[name].takes
        assert {"delete", "mask", "pad_attended", "zero", "neighbour"} <= set(takes.split(" | "))
        with pytest.raises(BadOption, match=f"option {name} takes .*; found 'gone'"):
            function.checked({name: "gone"})
        assert function.options[name].parsed("neighbour") == "neighbour"
    assert metric_named("aopc").options["hide"].parsed("none") is None


def test_an_old_spelling_is_the_same_baseline() -> None:
    occlusion = method_named("occlusion")
    assert occlusion.checked({"baseline": "pad"}) == {"baseline": "pad_attended"}
    prediction = predicted([TEXT])
    old, new = (occlusion(prediction, baseline=name).total for name in ("pad", "pad_attended"))
    assert torch.equal(old, new)


def test_occlusion_by_deletion() -> None:
    prediction = predicted([TEXT, TEXTS[0]], target=1)
    scores = method_named("occlusion")(prediction, window=1, baseline="delete").total
    for row, whole in enumerate(prediction.inputs):
        for (place,) in whole.groups("token"):
            left = {n: torch.from_numpy(np.delete(a, place))[None] for n, a in whole.tensors.items()}
            with torch.no_grad():
                after = subject().model(**left).logits[0, 1]
            expected = float(prediction.trace.logits[row, 1].detach() - after)
            assert float(scores[row, place]) == pytest.approx(expected, abs=1e-6)


def test_a_position_is_not_deleted() -> None:
    model = hf.LlamaForCausalLM(families.CONFIGS["llama"]()).double().eval()
    with pytest.raises(BadOption, match=r"baseline='delete' is not possible: the output is said at a position"):
        whyformer.attribute(model, families.batch((5,)), "occlusion", target=7, baseline="delete")


@pytest.mark.parametrize("kind", ["bert", "gpt2"])
def test_a_metric_hides_by_zero_embeddings(kind: str) -> None:
    one = case(TEXTS, kind)
    steps = [[[], places[:1], places[:2]] for places in one.rankable]
    model = subject(kind).model
    table = model.get_input_embeddings()
    for whole, own, shares in zip(one.inputs, steps, one.probabilities(steps, "zero"), strict=True):
        for places, found in zip(own, shares, strict=True):
            inputs = {name: torch.from_numpy(numbers)[None] for name, numbers in whole.tensors.items()}
            embedded = table(inputs.pop("input_ids")).detach().clone()
            embedded[0, list(places)] = 0
            with torch.no_grad():
                expected = model(inputs_embeds=embedded, **inputs).logits[0].softmax(-1)
            assert torch.allclose(found, expected, atol=1e-9)


def test_stepwise_does_not_exchange_embeddings() -> None:
    with pytest.raises(BadOption, match=r"hide='zero' is not possible: it exchanges embeddings"):
        method_named("stepwise")(predicted([TEXT]), hide="zero")


def test_units_are_hidden_once() -> None:
    (whole,) = predicted([TEXT]).inputs
    zero = whole.without([1], hide_named("zero"))
    for name in ("zero", "delete"):
        with pytest.raises(BadOption, match="hidden already"):
            zero.without([2], hide_named(name))


def test_groups_of_texts_and_of_tensors() -> None:
    text, ready = predicted(["the actors"]), dict(subject().tokenizer("the actors", return_tensors="pt"))
    (own,) = text.inputs
    assert own.source == ("the actors",)
    assert (own.groups("token"), own.groups("word")) == ([[1], [2], [3]], [[1], [2, 3]])
    left = own.without([1], hide_named("delete"))
    assert [unit.text for unit in left.units] == [unit.text for n, unit in enumerate(own.units) if n != 1]
    assert left.groups("word") == [[1, 2]]
    (tensors,) = Prediction(subject().model, batch_of(subject().model, ready)).inputs
    assert tensors.key == own.key
    assert tensors.groups("token") == [[place] for place in range(5)]
    with pytest.raises(BadInput, match="words need texts"):
        tensors.groups("word")


def test_short_memory_halves_what_is_tried() -> None:
    tried: list[list[int]] = []

    def work(items: list[int]) -> None:
        tried.append(items)
        if len(items) > 2:
            raise torch.OutOfMemoryError("says the test")

    in_halves(work, list(range(5)))
    assert tried == [[0, 1, 2, 3, 4], [0, 1], [2, 3, 4], [2], [3, 4]]


@pytest.mark.parametrize("error", [torch.OutOfMemoryError, ValueError])
def test_what_halving_does_not_mend_is_raised(error: Any) -> None:
    def work(_: list[int]) -> None:
        raise error("says the test")

    with pytest.raises(error, match="says the test"):
        in_halves(work, [0] if error is torch.OutOfMemoryError else [0, 1])
