"""Models and data that would be explained wrongly are refused, or a warning names them."""

import copy
import decimal
import json
import warnings
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
import transformers as hf
from tokenizers import processors
from torch import Tensor, nn

import whyformer
from tests.helpers import cases, dual, evaluated, families, token_outputs
from whyformer import BadInput, BadOption, Explainer, UnsupportedModel
from whyformer.models import cache, memory
from whyformer.perturb import probe
from whyformer.tolerance import close

TEXT = cases.TEXTS[2]
GRADIENTS = (
    "input_x_gradient",
    "saliency",
    "smooth_grad",
    "attcat",
    "cat",
    "grads",
    "integrated_gradients",
    "deep_lift_shap",
)


class Cut(nn.Module):
    """A classifier whose states no gradient passes, as the layers of a quantised model."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = families.build("bert")
        self.config, self.main_input_name = self.inner.config, "input_ids"

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Any:
        output = self.inner(input_ids=input_ids, attention_mask=attention_mask)
        output.logits = output.logits.detach() + 0 * output.logits.new_ones(1, requires_grad=True)
        return output


class Noisy(hf.BertForSequenceClassification):
    """Gives other logits each time."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        output = super().forward(*args, **kwargs)
        output.logits = output.logits + torch.randn_like(output.logits)
        return output


class Mean(hf.BertForSequenceClassification):
    """Reads the mean over all positions, padding too."""

    def forward(self, input_ids: Any = None, attention_mask: Any = None, token_type_ids: Any = None, **_: Any) -> Any:
        given = {"input_ids": input_ids, "attention_mask": attention_mask, "token_type_ids": token_type_ids}
        states = self.bert(**given).last_hidden_state
        return hf.modeling_outputs.SequenceClassifierOutput(logits=self.classifier(states.mean(1)))


def own(kind: type[hf.PreTrainedModel]) -> Explainer:
    tokenizer = cases.wordpiece()
    torch.manual_seed(5)
    config = families.CONFIGS["bert"]()
    config.vocab_size, config.max_position_embeddings = len(tokenizer), 64
    return Explainer(kind(config).double().eval(), tokenizer)


@pytest.mark.parametrize("method", GRADIENTS)
def test_a_model_that_lets_no_gradient_through_is_refused(method: str) -> None:
    with pytest.raises(UnsupportedModel, match=r"gradient|do not depend"):
        whyformer.attribute(Cut(), families.batch(), method, target=1)


QUANTISED = ("auto", "saliency", "input_x_gradient", "integrated_gradients", "saliency(of=loss)", "deep_lift_shap")


@pytest.mark.parametrize("method", QUANTISED)
@pytest.mark.filterwarnings("ignore")
def test_a_dynamically_quantised_model_is_refused(method: str) -> None:
    if "fbgemm" not in torch.backends.quantized.supported_engines:
        pytest.skip("this machine has no kernels for quantised layers")
    subject = Explainer.load("sentiment").subject
    quantised = torch.ao.quantization.quantize_dynamic(copy.deepcopy(subject.model), {nn.Linear}, dtype=torch.qint8)
    with pytest.raises(UnsupportedModel, match="no gradient passes it"):
        Explainer(quantised, subject.tokenizer).explain("a gorgeous film", method, check=0)


class WithoutGraph(hf.BertForSequenceClassification):
    """Runs under no_grad, as a model that is served."""

    @torch.no_grad()
    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return super().forward(*args, **kwargs)


@pytest.mark.parametrize("method", ["auto", "input_x_gradient", "attcat", "lrp", "rollout", "integrated_gradients"])
def test_a_forward_under_no_grad_is_refused_with_the_reason(method: str) -> None:
    with pytest.raises(UnsupportedModel, match=r"no gradient passes it.*torch\.no_grad.*occlusion"):
        own(WithoutGraph).explain(TEXT, method, check=0)
    assert own(WithoutGraph).explain(TEXT, "occlusion").checked is not None


COMPILED = {
    "model": lambda model: model.compile(backend="eager"),
    "layer": lambda model: model.bert.encoder.layer[0].compile(backend="eager"),
    "forward": lambda model: setattr(model, "forward", torch.compile(model.forward, backend="eager")),
}


@pytest.mark.slow
@pytest.mark.parametrize("part", COMPILED)
def test_a_model_compiled_in_place_is_explained_as_before(part: str) -> None:
    explainer = own(hf.BertForSequenceClassification)
    before = explainer.explain(TEXT, check=0)
    COMPILED[part](explainer.subject.model)
    assert explainer.explain(TEXT, check=0) == before
    assert torch._dynamo.eval_frame._stance.stance == "default"


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
@pytest.mark.parametrize("method", ["lime", "kernel_shap", "occlusion"])
def test_the_callers_default_dtype_changes_no_more_than_rounding(method: str, dtype: torch.dtype) -> None:
    explainer = Explainer.load("sentiment")
    before = explainer.explain("a gorgeous film", method, check=0)
    torch.set_default_dtype(dtype)
    try:
        after = explainer.explain("a gorgeous film", method, check=0)
        assert after.scores == pytest.approx(before.scores, abs=torch.finfo(dtype).eps * abs(before.scores).max())
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("kind", ["bart", "t5"])
def test_a_classifier_that_counts_end_tokens_is_run_one_text_at_a_time(kind: str) -> None:
    backend = cases.byte_level(["<s>", "</s>", "<unk>"])
    backend.post_processor = processors.RobertaProcessing(("</s>", 1), ("<s>", 0), add_prefix_space=False)
    special = {"pad_token": "</s>", "eos_token": "</s>", "bos_token": "<s>", "unk_token": "<unk>"}
    tokenizer = hf.PreTrainedTokenizerFast(tokenizer_object=backend, **special)
    ids = {"vocab_size": len(tokenizer), "eos_token_id": 1, "pad_token_id": 1, "decoder_start_token_id": 1}
    torch.manual_seed(0)
    if kind == "bart":
        size = {"encoder_layers": 2, "decoder_layers": 2, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48}
        heads = {"encoder_attention_heads": 4, "decoder_attention_heads": 4}
        config: Any = hf.BartConfig(**ids, **size, **heads, d_model=32, max_position_embeddings=128, bos_token_id=0)
        model: Any = hf.BartForSequenceClassification(config)
    else:
        config = hf.T5Config(**ids, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4)
        model = hf.T5ForSequenceClassification(config)
    explainer = Explainer(model.double().eval(), tokenizer)
    with pytest.warns(whyformer.PaddingWarning, match="cannot be run on texts of different lengths"):
        alone = explainer.explain(TEXT, "input_x_gradient")
    assert alone.checked is not None
    assert explainer.explain([TEXT, "a"], "input_x_gradient")[0] == alone


def test_a_model_that_does_not_repeat_itself_is_noticed_once() -> None:
    explainer = own(Noisy)
    with pytest.warns(whyformer.RandomnessWarning, match="other logits when the same input is run again"):
        explainer.explain(TEXT, "attcat", check=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        explainer.explain(TEXT, "attcat", check=0)


def test_a_model_that_looks_at_padding_is_noticed_and_run_one_text_at_a_time(tmp_path: Path) -> None:
    explainer = own(Mean)
    with pytest.warns(whyformer.PaddingWarning, match="one at a time"):
        together = explainer.explain([TEXT, "a", cases.TEXTS[0]], "attcat")
    assert not memory.may_pad(explainer.subject.model)
    for text, one in zip([TEXT, "a", cases.TEXTS[0]], together, strict=True):
        alone = explainer.explain(text, "attcat")
        assert alone.scores == pytest.approx(one.scores, abs=1e-9)
        assert one.checked is not None
        words = [unit.span for unit in one.units if unit.span]
        for effect in one.checked.effects:
            places = [one.units[place].span for place in effect.units]
            assert set(places) <= set(words)
            left = [token for place, token in enumerate(explainer.subject.tokenizer(text)["input_ids"])]
            kept = [token for place, token in enumerate(left) if place not in effect.units]
            with torch.no_grad():
                shares = explainer.subject.model(input_ids=torch.tensor([kept])).logits.softmax(-1)[0]
            assert effect.probability == pytest.approx(float(shares[one.target.index or 0]), abs=1e-9)
    path = evaluated.written(tmp_path / "texts.csv", [(text, 0) for text in evaluated.texts(6)])
    table = explainer.evaluate(str(path), ["attcat"], metrics=["aopc"], progress=False)
    apart = []
    for row, text in enumerate(evaluated.texts(6)):
        alone_at = evaluated.written(tmp_path / f"{row}.csv", [(text, 0)])
        apart.append(
            explainer.evaluate(str(alone_at), ["attcat"], metrics=["aopc"], progress=False)["attcat", "aopc"].mean
        )
    assert table["attcat", "aopc"].mean == pytest.approx(sum(apart) / len(apart), abs=1e-9)


@pytest.fixture
def tried_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "_BY_STRUCTURE", type(cache._BY_STRUCTURE)())


@pytest.mark.usefixtures("tried_anew")
@pytest.mark.parametrize(
    "make", [lambda: cases.subject(), lambda: token_outputs.explainer("next_token", "gpt2").subject]
)
def test_usual_models_are_tried_without_a_word(make: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        probe.probe(make())
    assert memory.may_pad(make().model)


def test_labels_that_cannot_be_read_are_counted_and_named() -> None:
    labels = [decimal.Decimal(1), 1.5, None, "", {"a": 1}, float("nan")]
    table = pd.DataFrame(
        {"text": [f"a film {n}" for n in range(len(labels))], "label": pd.Series(labels, dtype=object)}
    )
    explainer = Explainer(cases.subject())
    with pytest.warns(whyformer.LabelWarning, match="2 labels cannot be read.*row 1: the label is 1.5.*row 4"):
        found = explainer.explain(table, "attcat", check=0)
    assert found.to_pandas()["label"].tolist()[1:] == [""] * 5
    assert found.to_pandas()["label"].tolist()[0] == explainer.subject.labels[1]


@pytest.mark.parametrize("where", ["config.json", "tokenizer_config.json"])
def test_a_folder_with_code_of_its_own_is_refused(where: str, tmp_path: Path) -> None:
    subject = cases.subject()
    subject.model.save_pretrained(tmp_path)
    subject.tokenizer.save_pretrained(tmp_path)
    path = tmp_path / where
    auto = {"AutoModelForSequenceClassification": "mine.Negated"}
    auto = auto if where == "config.json" else {"AutoTokenizer": ["mine.Slow", None]}  # type: ignore[dict-item]
    path.write_text(json.dumps(json.loads(path.read_text()) | {"auto_map": auto}))
    Explainer.load(tmp_path)  # the code is not there
    (tmp_path / "mine.py").write_text("raise SystemExit('this ran')\n")
    with pytest.raises(UnsupportedModel, match=f"code of its own.*auto_map in {where}.*trust_remote_code"):
        Explainer.load(tmp_path)


def test_the_names_of_one_explainer_are_its_own() -> None:
    subject = cases.subject(labels=2)
    first, named = (Explainer(subject.model, subject.tokenizer, labels=names) for names in (None, ["bad", "good"]))
    later = Explainer(subject.model, subject.tokenizer)
    assert {named.explain(TEXT, check=0).prediction.label} <= {"bad", "good"}
    for one in (first, later):
        assert one.explain(TEXT, check=0).prediction.label.startswith("LABEL_")
    assert named.explain(TEXT, "attcat", target="good").scores == pytest.approx(
        first.explain(TEXT, "attcat", target=1).scores
    )


@pytest.mark.parametrize("value", [1, torch.tensor([2]), "all"])
def test_positions_of_logits_given_by_hand_are_refused(value: Any) -> None:
    explainer = token_outputs.explainer("next_token", "gpt2")
    inputs = {**explainer.subject.tokenizer("the film is", return_tensors="pt"), "logits_to_keep": value}
    for ask in (whyformer.attribute, whyformer.record):
        with pytest.raises(BadInput, match="logits_to_keep is set by Whyformer"):
            ask(explainer.subject.model, inputs)


def test_what_merged_windows_do_not_do_is_refused() -> None:
    explainer, text = Explainer(cases.subject()), " ".join(cases.TEXTS * 9)
    for call in (explainer.explain, lambda *given, **options: explainer.compare(given[0], ["attcat"], **options)):
        with pytest.raises(BadOption, match="words of merged windows are not checked"):
            call(text, windows="merge", check=3)
    for method in ("saliency(of=loss)", "saliency(protocol=allennlp)"):
        with pytest.raises(BadOption, match="explains the loss of a single window"):
            explainer.explain(text, method, windows="merge")


@pytest.mark.parametrize("asked", [{"on_error": "skip"}, {"columns": {"text": "a"}}, {"batch_size": 3}])
def test_what_means_nothing_to_a_model_of_similarity_is_refused(asked: dict[str, Any]) -> None:
    with pytest.raises(BadOption, match=f"{next(iter(asked))} means nothing"):
        Explainer(dual.subject("clip")).explain(dual.photo(), text=["a cat"], **asked)
    for size in (-5, "many"):
        with pytest.raises(BadOption, match="batch_size"):
            Explainer(dual.subject("clip")).explain(dual.photo(), text=["a cat"], batch_size=size)


def test_a_method_is_given_as_it_comes_too() -> None:
    explainer = Explainer(cases.subject())
    spec = explainer.method("attcat(states=inputs)")
    one, other = (explainer.explain(TEXT, method, check=0) for method in (spec, "attcat(states=inputs)"))
    assert close(torch.from_numpy(one.scores), torch.from_numpy(other.scores))
