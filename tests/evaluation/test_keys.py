"""What is in the key of a number: options with their files, and the code of methods that are not of the package."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from inspect import signature
from pathlib import Path
from typing import Any

import pytest
import torch

import whyformer
from tests.helpers import evaluated
from whyformer.errors import BadOption
from whyformer.evaluation.examples import hashed
from whyformer.methods.method import RESERVED, method, method_specs
from whyformer.metrics.metric import metric, metric_specs
from whyformer.prediction import Prediction
from whyformer.registry.options import MethodName
from whyformer.registry.specs import code_of

FACTS = {"family": "own", "signed": True, "class_specific": True, "paper": "–"}
FACTOR = 2
FORMER = {  # of numbers that were defined otherwise: nothing may be taken for them
    "kernel_shap": {"801682291446a826621c73581bda4b2f"},
    "lime": {"34e4160f7d9aa4d5dfc78e34f7f8d40a"},
    "smooth_grad(protocol=allennlp)": {"cf830fba1b2f11c6f6d2bae8133afe5a"},
    "stepwise": {"b5b2b5d4844aff6e20ee4d75fbe5efeb"},
    "stepwise(of=layer_lrp)": {"b5b2b5d4844aff6e20ee4d75fbe5efeb"},
    "token_f1": {"e8d80a8599e822e40bcd6444cc8ef5a4"},
    "token_f1(k=5)": {"74574d8b9fbb862347fe4f9cd85d5cec"},
}
KEYS = {  # of the journals that earlier versions wrote, but for those of `FORMER`
    "alti": "6ff6db0acec7652347ad093226c52ee0",
    "att_grads": "f1e13e0cd00f48a857f2b4416619815b",
    "attcat": "dd2bf799f64c8f7ddf73482559d63e0e",
    "attention_flow": "e8adb8bdca774cf9c871b450e172dcb4",
    "attn_lrp": "aae7f67c4452abfe2eb29e6b87ee30fc",
    "cam": "fb4bb79d78ac96a784f90c8465910bb4",
    "cat": "34a95fec669feea907929004108d0f53",
    "cp_lrp": "cb5deb3f8f434e3b0e960ab96b2bc343",
    "decoded_grad_cam": "aa894e7f39ebd80c38baf5cfc2680421",
    "deep_lift_shap": "4a99c0759e3bd26fbc3f13611409be5c",
    "gae": "1bfdce4e967d1961e67d9a91f1ea3a83",
    "grad_cam": "9961097643ecf440f9be3015bfff3f12",
    "gradient_shap": "6990c55cbca9613b109a33d27a8a068c",
    "grads": "42eedcec000b1076d6f3a4f5c8985b57",
    "input_x_gradient": "6adca287d6a7d6915f3eee31537ee96a",
    "integrated_gradients": "46392cfcbb1533bf217f10ea304d171b",
    "kernel_shap": "f30b71378152fede76146b5642e3305d",
    "lime": "ee759b9b64950d695a32200dbd1e430a",
    "lrp": "4644e65dfae4a5e3d491e12ff0ec1c6b",
    "mask_lrp": "9835be8bce8050793c92cefe1bdfe2dd",
    "occlusion": "43df103813229ae8196447c55fdcdedc",
    "partial_lrp": "aec9dd859ae1491139e4a0cd286bd3c9",
    "random": "8b8077799cdd8af9523224d8da88e9e8",
    "raw_attention": "93a2959caa58fe1ba1fc45a6bc97362c",
    "rollout": "7575157617b65b9e45720350fa9ded2f",
    "saliency": "5c6766e0f7600ec748431884e5b37a91",
    "shapley_value_sampling": "867da603d752fdb0bc0bd42444823edd",
    "smooth_grad": "a34623a2b1915ab7d0bb7ba91871e38b",
    "stepwise(of=attn_lrp)": "b5b2b5d4844aff6e20ee4d75fbe5efeb",
    "transformer_attribution": "ae56a98e8bd1d52d82b3df4b4b86bec3",
    "aopc": "ac23be2c5d13a1de11518ac47c37ebc3",
    "comprehensiveness": "1f62cdbd0bf1c48f68170cd6006aca2c",
    "hiding_game": "4409a32ed30aeb5c54470f92c3bc6b54",
    "kendall_tau": "991c51b9625fbbc63408d639d9884f12",
    "log_odds": "570344f243fa9fc8bbc98e8a8886371d",
    "precision_at_k": "035bec0e93dd428abb79ef8cdffea838",
    "revealing_game": "f553428d602c838aaefe70abd708f600",
    "sufficiency": "073eac191c3e058064f138742ea79637",
    "token_f1": "64f7e712633f66b44466e8d73701d9b1",
    "token_overlap": "f56dddec892d8107bd4a6c5517ef29dc",
    "token_overlap(units=word, once=false)": "f56dddec892d8107bd4a6c5517ef29dc",
    "attn_lrp(at=embedding_output)": "f77d6c8c3d993ccdab0af1fc8e4285ae",
    "attn_lrp(at=embeddings)": "aae7f67c4452abfe2eb29e6b87ee30fc",
    "cp_lrp(at=embeddings)": "cb5deb3f8f434e3b0e960ab96b2bc343",
    "attn_lrp(form=epsilon)": "04d63418f365424c5517a341ee5faf3c",
    "input_x_gradient(at=token_embeddings)": "6adca287d6a7d6915f3eee31537ee96a",
    "input_x_gradient(at=embedding_output)": "18e536c2b61a800227233072fd8b6c77",
    "integrated_gradients(steps=25, at=embedding_output)": "22c0f32c901a269789c8571ab9dfcd88",
    "integrated_gradients(at=token_embeddings)": "46392cfcbb1533bf217f10ea304d171b",
    "gradient_shap(at=token_embeddings)": "63bb0e9d1d0ca727afc2cd830c3546a8",
    "integrated_gradients(protocol=allennlp)": "cc6ce6b595290e593d4f6bb420f4a70b",
    "mask_lrp(head_mask=random, rate=0.5)": "ccc7a652ab5824ac6670ae4e7d7b1172",
    "mask_lrp(head_mask=off)": "66f44262bc926352233423729f71cc7b",
    "stepwise(of=attcat(states=inputs), steps=10)": "beaf1b0a0b85a78c2ba34c145753a641",
    "stepwise(of=attn_lrp(at=embeddings))": "b5b2b5d4844aff6e20ee4d75fbe5efeb",
    "smooth_grad(protocol=allennlp)": "9c0a427ac687c5f81c2e8d4b9e3a9e55",
    "smooth_grad(samples=4)": "7f16afe27e6a977fe1db1b081f818da8",
    "decoded_grad_cam(layer=2)": "27c58e3c0c52bb36fb5739e8a1393a52",
    "aopc(hide=mask)": "5b954b0dd3b4f7cf5fbd9da43420d6fe",
    "token_f1(window=inside)": "7ae7846f1f8212871ecc317b7c43dfbb",
    "token_f1(k=5)": "d7e79f5b35e29170fdde54f31ee48b4c",
}


@pytest.fixture(autouse=True)
def own_registry() -> Iterator[None]:
    with evaluated.own_registry():
        yield


def spec_of(written: str) -> Any:
    named = metric_specs if written.partition("(")[0] in whyformer.list_metrics() else method_specs
    return named([written])[0]


def test_the_keys_of_journals_stay() -> None:
    assert {written: hashed(spec_of(written).facts) for written in KEYS} == KEYS


def test_a_number_that_is_defined_otherwise_has_another_key() -> None:
    assert not [written for written in FORMER if hashed(spec_of(written).facts) in FORMER[written]]


def test_an_option_that_came_later_changes_no_key_by_its_default() -> None:
    facts = [spec_of(written).facts["options"] for written in ("rollout", "rollout(query=reader)")]
    assert facts == [{"first_layer": 0, "row_normalised": True}] * 2
    assert spec_of("rollout(query=mean)").facts["options"] == {**facts[0], "query": "mean"}


# Code of one's own


def scaled(factor: float) -> Callable[..., Any]:
    def mine(prediction: Prediction) -> torch.Tensor:
        """Mine."""
        return factor * prediction.real

    return mine


def helped(prediction: Prediction) -> torch.Tensor:
    """Calls a function of this module, in code inside it."""
    return torch.stack([helper(prediction.real) for _ in range(1)])[0]


def helper(values: torch.Tensor) -> torch.Tensor:
    return values + FACTOR


def other_helper(values: torch.Tensor) -> torch.Tensor:
    return values - FACTOR


def test_code_is_hashed_with_what_it_closes_over() -> None:
    plain = code_of(scaled(1.0))
    assert plain is not None
    assert plain == code_of(scaled(1.0))
    assert plain != code_of(scaled(-1.0))
    assert plain != code_of(helped)
    assert code_of(scaled(torch.ones(2))) != code_of(scaled(torch.zeros(2)))  # type: ignore[arg-type]


def test_helpers_and_constants_of_the_same_module_count(monkeypatch: pytest.MonkeyPatch) -> None:
    before = code_of(helped)
    with monkeypatch.context() as patched:
        patched.setitem(globals(), "helper", other_helper)
        assert code_of(helped) != before
    with monkeypatch.context() as patched:
        patched.setitem(globals(), "FACTOR", 3)
        assert code_of(helped) != before
    assert code_of(helped) == before


def test_what_changes_from_call_to_call_does_not_count() -> None:
    calls: list[int] = []

    def counting(prediction: Prediction) -> torch.Tensor:
        """Counts its calls."""
        calls.append(1)
        return prediction.real

    before = code_of(counting)
    calls.append(1)
    assert code_of(counting) == before


@pytest.mark.long
def test_code_has_one_hash_in_all_processes() -> None:
    """Text is hashed by another seed in each, so sets come in another order."""
    mine = "def mine(x): return x in {'one', 'two', 'three', 'four', 'five', 'six'}"
    program = f"{mine}\nfrom whyformer.registry.specs import code_of\nprint(code_of(mine))"
    scope: dict[str, Any] = {"__name__": "__main__"}
    exec(mine, scope)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == code_of(scope["mine"])


def test_a_method_of_the_package_has_no_code_in_its_key() -> None:
    assert "code" not in method_specs("attcat")[0].facts
    method(**FACTS)(scaled(1.0))
    own = method_specs("mine")[0].facts
    assert own["code"] == code_of(scaled(1.0))
    assert method_specs("stepwise(of=mine)")[0].facts["made_of"] == own


def test_a_metric_holds_the_code_that_reduces_it() -> None:
    def reducing(sign: int) -> Callable[..., float]:
        return lambda records: sign * float(len(records))

    found = []
    for sign in (1, -1):
        with evaluated.own_registry():

            @metric(
                family="own", higher_is_better=True, bounds=(0, 1), level="corpus", reduce=reducing(sign), paper="–"
            )
            def counted(case: Any) -> torch.Tensor:
                """How many there are."""
                return torch.zeros(len(case))

            found.append(metric_specs("counted")[0].facts["code"])
    assert found[0] != found[1]


def test_numbers_of_changed_code_are_not_taken_from_the_journal(tmp_path: Path) -> None:
    data = evaluated.data(tmp_path, 4)
    for factor in (1.0, 1.0):
        with evaluated.own_registry():
            method(**FACTS)(scaled(factor))
            evaluated.run(data, tmp_path / "out", "mine")
    with evaluated.own_registry():
        method(**FACTS)(scaled(-1.0))
        with pytest.raises(BadOption, match="other code of a method"):
            evaluated.run(data, tmp_path / "out", "mine")


# Files


def test_a_file_that_happens_to_have_the_name_of_a_value_changes_no_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = ["comprehensiveness(hide=delete)", "mask_lrp(head_mask=random, rate=0.5)", "attcat(states=inputs)"]
    before = [spec_of(one).facts for one in written]
    for name in ("delete", "random", "inputs"):
        (tmp_path / name).write_text("something")
    monkeypatch.chdir(tmp_path)
    assert [spec_of(one).facts for one in written] == before


@pytest.mark.parametrize("written", ["mask_lrp(head_mask={})", "decoded_grad_cam(lm_head={})", "reading(weights={})"])
def test_files_that_are_options_are_in_the_key(written: str, tmp_path: Path) -> None:
    @method(**FACTS)
    def reading(prediction: Prediction, *, weights: Path | None = None) -> torch.Tensor:
        """Reads a file."""
        return prediction.real

    file = tmp_path / "file"
    assert "files" not in spec_of(written.format(file)).facts
    keys = []
    for content in ("one", "two"):
        file.write_text(content)
        keys.append(spec_of(written.format(file)).facts["files"])
    assert keys[0] != keys[1]


def test_a_function_is_given_the_path_and_an_explanation_the_text(tmp_path: Path) -> None:
    given: list[Any] = []

    @method(**FACTS)
    def reading(prediction: Prediction, *, weights: Path | None = None) -> torch.Tensor:
        """Reads a file."""
        given.append(weights)
        return prediction.real

    explainer = whyformer.Explainer.load("sentiment")
    for weights in (tmp_path, str(tmp_path)):
        found = explainer.explain("a fine film", "reading", weights=weights)
        assert found.options == {"weights": str(tmp_path)}
    assert given == [tmp_path, tmp_path]
    assert all(isinstance(one, Path) for one in given)


# Names


def test_an_option_of_is_a_method_only_if_it_says_so() -> None:
    @method(**FACTS)
    def part(prediction: Prediction, *, of: str = "whole") -> torch.Tensor:
        """Takes any text."""
        return prediction.real

    @method(**FACTS)
    def twice(prediction: Prediction, *, by: MethodName = MethodName("rollout")) -> torch.Tensor:  # noqa: B008
        """Is made of another method."""
        return prediction.real

    assert method_specs("part(of=half)")[0].made_of is None
    assert method_specs("part(of=half)")[0].label == "part(of=half)"
    made_of = method_specs("twice(by=attcat( states = inputs ))")[0]
    assert made_of.label == "twice(by=attcat(states=inputs))"
    assert made_of.facts["made_of"]["name"] == "attcat"
    assert not method_specs("twice")[0].class_specific  # as rollout
    with pytest.raises(BadOption, match="there is no method 'nothing'"):
        method_specs("twice(by=nothing)")
    with pytest.raises(BadOption, match="cannot be made of itself: give by="):
        method_specs("twice(by=twice)")


@pytest.mark.parametrize("name", ["batch_size", "target", "text", "options", "method", "word", "choices"])
def test_names_of_parameters_are_reserved(name: str) -> None:
    assert name in RESERVED
    scope: dict[str, Any] = {"method": method, "FACTS": FACTS}
    code = f'@method(**FACTS)\ndef mine(prediction, *, {name}: int = 1):\n    """Mine."""\n'
    with pytest.raises(BadOption, match=f"cannot have an option '{name}'.*rename it"):
        exec(code, scope)
    assert "mine" not in whyformer.list_methods()


def test_every_parameter_and_flag_that_is_no_option_of_a_method_is_reserved() -> None:
    from whyformer.cli.explain import explain

    options = {name for one in whyformer.list_methods().values() for name in one.options}
    command = explain.__wrapped__  # type: ignore[attr-defined]  # without the options of methods
    functions = (whyformer.Explainer.explain, whyformer.Explainer.stream, whyformer.attribute, command)
    parameters = {name for function in functions for name in signature(function).parameters}
    assert parameters - options - RESERVED == {"self"}


def test_no_method_of_the_package_has_a_reserved_name() -> None:
    assert not [m.name for m in whyformer.list_methods().values() if RESERVED & m.options.keys()]


def test_a_metric_with_a_ceiling_says_how_it_ranks_and_hides() -> None:
    with pytest.raises(BadOption, match=r"target, hide, units, combine.*missing: hide, units, combine"):

        @metric(family="own", higher_is_better=True, bounds=(0, 1), hides=True, ceiling=True, paper="–")
        def mine(case: Any, *, target: str = "predicted") -> torch.Tensor:
            """Mine."""
            return torch.zeros(len(case))

    assert "mine" not in whyformer.list_metrics()
