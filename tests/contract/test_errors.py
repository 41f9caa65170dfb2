"""Whatever goes wrong is said in an exception of this package, of the right class."""

import inspect
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers as hf
from safetensors.torch import load_file, save_file
from torch import nn

import whyformer
from tests.helpers import families
from whyformer import BadInput, BadOption, Explainer, NoAttention, UnsupportedModel, WhyformerError, errors
from whyformer.errors import nearest
from whyformer.models.load import BUNDLED
from whyformer.tolerance import close

TEXT = "a gorgeous, witty film"
Case = tuple[Callable[[Explainer], Any], type[WhyformerError], str]


@pytest.fixture(scope="module")
def sentiment() -> Explainer:
    return Explainer.load("sentiment")


def test_the_tree_in_the_docstring_is_the_tree_of_the_classes() -> None:
    drawn: dict[str, str] = {}
    branch: list[str] = []
    for line in (errors.__doc__ or "").splitlines():
        found = re.match(r"((?: [ │]{3}| [├└]─ |[ │]{4})*)([A-Z][A-Za-z]+)(?:  |$)", line)
        if found:
            branch = [*branch[: len(found[1]) // 4], found[2]]
            drawn[found[2]] = branch[-2] if len(branch) > 1 else "Exception"
    classes = [c for _, c in inspect.getmembers(errors, inspect.isclass) if issubclass(c, Exception)]
    real = {c.__name__: c.__base__.__name__ for c in classes if c.__module__ == errors.__name__ and c.__base__}
    assert real.pop("WhyformerWarning") == "UserWarning"
    assert drawn.pop("WhyformerWarning") == "Exception"
    assert drawn == real
    assert set(real) <= set(whyformer.__all__)


TEXTS_AND_OPTIONS: dict[str, Case] = {
    "empty text": (lambda e: e.explain(""), BadInput, "the text is empty"),
    "blank text": (lambda e: e.explain(" \n\t"), BadInput, "the text is empty"),
    "blank half of a pair": (lambda e: e.explain((TEXT, " ")), BadInput, "a text of the pair is empty"),
    "empty text in a list": (lambda e: e.explain([TEXT, ""]), BadInput, "the text is empty"),
    "no text": (lambda e: e.explain(None), BadInput, "a text or a pair"),
    "three texts": (lambda e: e.explain((TEXT, TEXT, TEXT)), BadInput, "a text or a pair"),
    "several texts to compare": (lambda e: e.compare([TEXT, TEXT]), BadInput, "a text or a pair"),
    "half a character": (lambda e: e.explain("a \ud83d film"), BadInput, "text"),
    "target name": (lambda e: e.explain(TEXT, target="neutral"), BadOption, "'neutral'.*NEGATIVE, POSITIVE"),
    "target index": (lambda e: e.explain(TEXT, target=2), BadOption, "target 2.*0 = NEGATIVE, 1 = POSITIVE"),
    "negative target": (lambda e: e.explain(TEXT, target=-1), BadOption, "target -1"),
    "target like a number": (lambda e: e.explain(TEXT, target="²"), BadOption, "²"),
    "target with two signs": (lambda e: e.explain(TEXT, target="--1"), BadOption, "--1"),
    "target between classes": (lambda e: e.explain(TEXT, target=0.5), BadOption, "0.5"),
    "targets between classes": (lambda e: e.explain([TEXT], target=[0.5]), BadOption, "0.5"),
    "target in a comparison": (lambda e: e.compare(TEXT, target="neutral"), BadOption, "'neutral'"),
    "versus": (lambda e: e.explain(TEXT, versus="neutral"), BadOption, "'neutral'"),
    "too many targets": (lambda e: e.explain([TEXT], target=[0, 1]), WhyformerError, "2 targets for 1"),
    "method": (lambda e: e.explain(TEXT, "atcat"), BadOption, "did you mean 'attcat'"),
    "method in a comparison": (lambda e: e.compare(TEXT, ["rolout"]), BadOption, "did you mean 'rollout'"),
    "option": (lambda e: e.explain(TEXT, "attcat", samples=3), BadOption, "attcat has no option 'samples'"),
    "option value": (lambda e: e.explain(TEXT, "attcat", states="middle"), BadOption, "states takes outputs | inputs"),
    "option type": (lambda e: e.explain(TEXT, "random", seed="0"), BadOption, "seed takes a whole number"),
    "no boolean for a number": (lambda e: e.explain(TEXT, "random", seed=True), BadOption, "seed takes a whole"),
    "layer": (lambda e: e.explain(TEXT, "cam", layer=7), BadOption, "layer 7 does not exist"),
    "no layers": (lambda e: e.explain(TEXT, "raw_attention", layer=[]), BadOption, "layer takes"),
    "no samples": (lambda e: e.explain(TEXT, "smooth_grad", samples=0), BadOption, "a whole number from 1 to 10000"),
    "loss of two classes": (lambda e: e.explain(TEXT, "saliency", of="loss", versus=0), BadOption, "`versus`"),
    "batch size": (lambda e: e.explain([TEXT], batch_size=0), BadOption, "batch_size takes a whole number from 1 on"),
    "too long for flow": (lambda e: e.explain("a " * 200, "attention_flow"), BadInput, "slow=True"),
    "top": (lambda e: e.explain(TEXT).top(by="size"), BadOption, r"by takes score \| magnitude; found 'size'"),
    "words": (
        lambda e: e.explain(TEXT).words(combine="mean"),
        BadOption,
        r"combine takes sum \| max",
    ),
    "page": (lambda e: e.explain(TEXT).to_html("/no/such/folder/x"), BadInput, "could not write '/no/such/folder/x'"),
    "save": (lambda e: e.explain(TEXT).save("/no/such/folder/x"), BadInput, "could not write '/no/such/folder/x'"),
    "no model": (lambda _: Explainer("bert-base"), BadInput, "found str; to load one by name use Explainer.load"),
    "no tokenizer": (lambda e: Explainer(e.subject.model), BadInput, "a tokenizer, or an image processor, is needed"),
    "no tensors": (
        lambda e: whyformer.attribute(e.subject.model, {}),
        BadInput,
        "`input_ids`, `inputs_embeds` or `pixel_values`",
    ),
    "dtype": (lambda _: Explainer.load(dtype="int8"), BadOption, "'int8' is not known"),
    "device": (lambda _: Explainer.load(device="nonsense"), BadOption, "nonsense"),
    "folder": (lambda _: Explainer.load("/no/such/folder"), BadInput, "there is no folder '/no/such/folder'"),
    "hub id": (lambda _: Explainer.load("no-such-model"), BadInput, "could not load 'no-such-model'"),
}


@pytest.mark.parametrize("name", TEXTS_AND_OPTIONS)
def test_what_is_wrong_with_a_call(sentiment: Explainer, name: str) -> None:
    call, kind, message = TEXTS_AND_OPTIONS[name]
    with pytest.raises(kind, match=message):
        call(sentiment)


@pytest.mark.parametrize("target", [np.int64(0), torch.tensor(0), torch.tensor([0]), [0], "0", "negative"], ids=repr)
def test_a_target_may_be_any_kind_of_number(sentiment: Explainer, target: Any) -> None:
    assert sentiment.explain(TEXT, target=target).target.name == "NEGATIVE"


def test_several_layers_may_be_a_tuple(sentiment: Explainer) -> None:
    """The check of options lets tuples pass for lists."""
    pair, both = (sentiment.explain(TEXT, "raw_attention", layer=layers) for layers in ((0, 1), [0, 1]))
    assert close(pair.scores, both.scores, torch.float32)


def test_a_comparison_by_no_method_can_be_shown_or_is_refused(sentiment: Explainer) -> None:
    try:
        found = sentiment.compare(TEXT, [])
    except WhyformerError:
        return
    assert "POSITIVE" in str(found) or str(found) == ""


# Checkpoints


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "good"
    torch.manual_seed(0)
    config = hf.BertConfig(
        vocab_size=12000, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
    )
    hf.BertForSequenceClassification(config).save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(BUNDLED / "sentiment" / name, folder)
    return folder


def configure(folder: Path, **changes: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def weigh(folder: Path, change: Callable[[dict[str, torch.Tensor]], Any]) -> None:
    weights = load_file(folder / "model.safetensors")
    change(weights)
    save_file(weights, folder / "model.safetensors", {"format": "pt"})


def as_pickle(folder: Path) -> None:
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()


def as_pickle_beside_others(folder: Path) -> None:
    shutil.copy(folder / "model.safetensors", folder / "adapter.safetensors")
    as_pickle(folder)


def with_code(folder: Path) -> None:
    configure(folder, model_type="homemade", auto_map={"AutoConfig": "homemade.Config"})
    (folder / "homemade.py").write_text("raise SystemExit('the code was run')")


CHECKPOINTS: dict[str, tuple[Callable[[Path], Any], type[WhyformerError], str]] = {
    "no config": (lambda f: (f / "config.json").unlink(), BadInput, "no config.json"),
    "no weights": (lambda f: (f / "model.safetensors").unlink(), BadInput, "no weights"),
    "no tokenizer": (lambda f: (f / "tokenizer.json").unlink(), BadInput, "no tokenizer"),
    "no JSON": (lambda f: (f / "config.json").write_text("{"), BadInput, "config.json' is not JSON"),
    "unknown type": (lambda f: configure(f, model_type="homemade"), BadInput, "does not recognize"),
    "torn": (lambda f: (f / "model.safetensors").write_bytes(b"torn"), BadInput, "could not load"),
    "misfit": (lambda f: configure(f, intermediate_size=8), WhyformerError, "could not load|not complete"),
    "pickle": (as_pickle, UnsupportedModel, "only in pickle files.*allow_pickle"),
    "pickle beside others": (as_pickle_beside_others, UnsupportedModel, "only in pickle files.*allow_pickle"),
    "code": (with_code, UnsupportedModel, "its own code.*trust_remote_code"),
    "pretraining": (
        lambda f: configure(f, architectures=["BertForPreTraining"]),
        UnsupportedModel,
        "BertForPreTraining",
    ),
    "no class": (lambda f: configure(f, architectures=None), UnsupportedModel, "does not say its class"),
    "headless": (
        lambda f: weigh(f, lambda w: w.pop("classifier.weight")),
        UnsupportedModel,
        "classifier.weight would be random",
    ),
    "NaN": (
        lambda f: weigh(f, lambda w: w["classifier.bias"].fill_(float("nan"))),
        UnsupportedModel,
        "logits that are not numbers",
    ),
}


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_what_is_wrong_with_a_checkpoint(good: Path, tmp_path: Path, name: str) -> None:
    spoil, kind, message = CHECKPOINTS[name]
    folder = shutil.copytree(good, tmp_path / "model")
    Explainer.load(folder)
    spoil(folder)
    with pytest.raises(kind, match=message):
        Explainer.load(folder).explain(TEXT)


def test_pickle_and_code_are_run_if_asked_for(good: Path, tmp_path: Path) -> None:
    expected = Explainer.load(good).explain(TEXT).scores
    pickled, code = (shutil.copytree(good, tmp_path / name) for name in ("pickle", "code"))
    as_pickle(pickled)
    assert close(Explainer.load(pickled, allow_pickle=True).explain(TEXT).scores, expected, torch.float32)
    with_code(code)
    with pytest.raises(SystemExit, match="the code was run"):
        Explainer.load(code, trust_remote_code=True)


# Models


def test_a_model_without_attention(sentiment: Explainer) -> None:
    config = hf.FNetConfig(
        vocab_size=12000, hidden_size=16, num_hidden_layers=1, intermediate_size=16, use_tpu_fourier_optimizations=False
    )
    explainer = Explainer(hf.FNetForSequenceClassification(config), sentiment.subject.tokenizer)
    with (
        pytest.warns(whyformer.PaddingWarning),  # it mixes all positions, padding too
        pytest.raises(NoAttention, match="FNetForSequenceClassification was run and no attention was seen"),
    ):
        explainer.explain(TEXT, "attcat")


def test_a_model_that_is_no_classifier() -> None:
    torch.manual_seed(0)
    model = hf.BertForTokenClassification(families.CONFIGS["bert"]())
    with pytest.raises(BadOption, match=r"give a target \(index, position\)"):
        whyformer.attribute(model, families.batch())
    assert whyformer.attribute(model, families.batch(), target=(1, 2)).shape == (3, 9)


def test_inputs_of_two_batch_sizes() -> None:
    inputs = families.batch()
    with pytest.raises(BadInput, match="give one for each"):
        whyformer.attribute(families.build("bert"), {**inputs, "attention_mask": inputs["attention_mask"][:2]})


def test_an_error_of_the_model_itself_is_not_hidden(sentiment: Explainer) -> None:
    class Broken(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(1))

        def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> Any:
            raise ZeroDivisionError("by the model")

    with pytest.raises(ZeroDivisionError, match="by the model"):
        Explainer(Broken(), sentiment.subject.tokenizer).explain(TEXT)


# Files


def rewritten(**changes: Any) -> Callable[[dict[str, Any]], Any]:
    return lambda data: {k: v for k, v in {**data, **changes}.items() if v != "gone"}


FILES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "nothing": lambda _: {},
    "a list": lambda data: [data],
    "a number": lambda _: 3,
    "text": lambda _: "explanation",
    "another schema": rewritten(schema="other/explanation"),
    "another version": rewritten(schema_version=3),
    "no version": rewritten(schema_version="gone"),
    "no units": rewritten(units="gone"),
    "no target": rewritten(target="gone"),
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_holds_no_explanation(sentiment: Explainer, tmp_path: Path, name: str) -> None:
    path = tmp_path / "saved.json"
    path.write_text(json.dumps(FILES[name](sentiment.explain(TEXT).to_dict())))
    with pytest.raises(BadInput):
        whyformer.Explanation.load(path)


def test_a_file_that_holds_no_comparison(sentiment: Explainer, tmp_path: Path) -> None:
    path = sentiment.explain(TEXT).save(tmp_path / "one.json")
    with pytest.raises(BadInput):
        whyformer.Comparison.load(path)


@pytest.mark.parametrize("kind", [whyformer.Explanation, whyformer.Comparison])
def test_a_file_that_is_no_json(tmp_path: Path, kind: Any) -> None:
    with pytest.raises(BadInput, match="could not read"):
        kind.load(tmp_path / "missing.json")
    for content in (b"{", b"", b"\xff\xfe"):
        (tmp_path / "x.json").write_bytes(content)
        with pytest.raises(BadInput, match="is not JSON"):
            kind.load(tmp_path / "x.json")


# Methods


def test_a_method_needs_a_name_and_a_docstring_of_its_own() -> None:
    register = whyformer.method(family="test", signed=False, class_specific=False, paper="-")
    before = whyformer.list_methods()

    def attcat(prediction: Any) -> Any:
        """Has the name of another."""

    def undescribed(prediction: Any) -> Any:
        return None

    with pytest.raises(ValueError, match=r"a method 'attcat' already, in whyformer\.methods\.attcat"):
        register(attcat)
    with pytest.raises(ValueError, match="'undescribed' needs a docstring"):
        register(undescribed)
    assert whyformer.list_methods() == before


@pytest.mark.parametrize(
    ("name", "known", "expected"),
    [
        ("rolout", ["attcat", "rollout"], "did you mean 'rollout'? known: attcat, rollout"),
        ("xyz", ["b", "a"], "known: a, b"),
        ("xyz", [], "known: none"),
    ],
)
def test_the_nearest_name_is_suggested(name: str, known: list[str], expected: str) -> None:
    assert nearest(name, known) == expected


def test_what_is_wrong_with_tensors(sentiment: Explainer) -> None:
    for ids, message in (
        (torch.tensor([2, 5, 3]), "shape"),
        (torch.tensor([[2, 99_999, 3]]), "0 … 11999"),
        (torch.tensor([[2.0, 5.0, 3.0]]), "whole numbers"),
    ):
        with pytest.raises(BadInput, match=message):
            whyformer.attribute(sentiment.subject.model, {"input_ids": ids})


@pytest.mark.parametrize("method", [None, 3, ["attcat"]])
def test_a_method_that_is_no_name(sentiment: Explainer, method: object) -> None:
    with pytest.raises(BadOption, match="by its name"):
        sentiment.explain(TEXT, method)


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(BadInput, match="but a file"):
        Explainer.load(tmp_path / "config.json")


def test_the_nearest_name_is_found_whatever_its_capitals(sentiment: Explainer) -> None:
    with pytest.raises(BadOption, match="did you mean 'POSITIVE'"):
        sentiment.explain(TEXT, target="positve")


def test_a_seed_may_be_any_whole_number(sentiment: Explainer) -> None:
    first, again, other = (sentiment.explain(TEXT, "random", seed=s).scores.tolist() for s in (2**80, 2**80, -1))
    assert first == again != other


def test_a_part_of_a_name_finds_the_names_that_contain_it() -> None:
    with pytest.raises(whyformer.BadOption, match=r"did you mean .*shap.*known: .*kernel_shap"):
        whyformer.Explainer.load("sentiment").explain("fine", "shap")
