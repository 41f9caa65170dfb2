"""CLIP, SigLIP and their kin: the similarity of an image and a text, explained on both sides."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import transformers as hf
from torch import Tensor, nn

import whyformer
from tests.helpers import dual
from whyformer import BadInput, Explainer, Explanation, Explanations, UnsupportedModel
from whyformer.errors import BadOption
from whyformer.models.cache import known
from whyformer.models.load import Subject
from whyformer.tasks.similarity import ImageSide, TextSide
from whyformer.testing import state
from whyformer.tolerance import close

TEXTS = ["a photo of a cat", "a dog on the red mat", "the blue cat"]


def explainer(name: str = "clip") -> Explainer:
    return Explainer(dual.subject(name))


def sides(explanation: Explanation) -> tuple[np.ndarray, np.ndarray]:
    """The scores of the patches, special ones included, and those of the tokens."""
    first = next(n for n, unit in enumerate(explanation.units) if unit.kind == "token")
    return explanation.scores[:first], explanation.scores[first:]


@pytest.mark.parametrize("name", dual.MODELS)
def test_the_similarities_are_the_models_own(name: str) -> None:
    before = str(state(dual.build(name)))
    explanation = explainer(name).explain(dual.photo(), text=TEXTS, method="rollout")
    expected = dual.stock(name, dual.photo(), TEXTS)
    assert torch.allclose(torch.tensor(explanation.prediction.logits).float(), expected, rtol=1e-4, atol=1e-4)
    assert explanation.target.name == TEXTS[int(expected.argmax())] == explanation.prediction.label
    assert explanation.texts == (explanation.target.name,)
    shares = expected.double().sigmoid() if name == "siglip" else expected.double().softmax(-1)
    assert np.allclose(explanation.prediction.probabilities, shares, atol=1e-4)
    assert str(state(dual.build(name))) == before


@pytest.mark.parametrize("name", dual.MODELS)
def test_units_are_patches_and_then_tokens(name: str) -> None:
    explanation = explainer(name).explain(dual.photo(), text=TEXTS[1], method="rollout")
    patches = [unit for unit in explanation.units if unit.box is not None]
    tokens = [unit.text for unit in explanation.units if unit.kind == "token" and not unit.special]
    assert len(patches) == 16
    assert tokens == TEXTS[1].split()
    assert explanation.image.size == (dual.SIDE, dual.SIDE)
    seen, read = sides(explanation)
    assert seen.sum() == pytest.approx(1, abs=1e-4)  # each side adds up by itself
    assert read.sum() == pytest.approx(1, abs=1e-4)
    assert len(read) == (dual.WINDOW if name == "siglip" else len(tokens) + 2)


def test_one_text_has_a_similarity_and_no_probability_but_for_a_sigmoid() -> None:
    assert explainer("clip").explain(dual.photo(), text=TEXTS[0], method="rollout").prediction.probability is None
    siglip = explainer("siglip").explain(dual.photo(), text=TEXTS[0], method="rollout")
    expected = float(dual.stock("siglip", dual.photo(), TEXTS[:1]).double().sigmoid())
    assert siglip.prediction.probability == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("target", [1, TEXTS[1], "a dog"])
def test_a_target_is_one_of_the_texts(target: Any) -> None:
    explanation = explainer().explain(dual.photo(), text=TEXTS, method="rollout", target=target)
    assert explanation.target.name == TEXTS[1]
    assert explanation.texts == (TEXTS[1],)


@pytest.mark.parametrize("name", ["clip", "siglip"])
def test_gradients_of_a_side_are_those_of_the_whole_model(name: str) -> None:
    """At the embeddings of the text, and at the states that enter the layers of the image."""
    subject = dual.subject(name, torch.float64)
    model, image, text = subject.model, dual.photo(), TEXTS[1]
    explanation = Explainer(subject).explain(image, text=text, method="input_x_gradient(at=embedding_output)")
    states: dict[str, Tensor] = {}

    def keep(side: str, layer: nn.Module) -> Any:
        def hook(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            states[side] = args[0] if args else kwargs["hidden_states"]
            states[side].retain_grad()

        return layer.register_forward_pre_hook(hook, with_kwargs=True)

    hooks = [keep("image", model.vision_model.encoder.layers[0]), keep("text", model.text_model.encoder.layers[0])]
    full = {"padding": "max_length", "max_length": dual.WINDOW} if name == "siglip" else {}
    ids = subject.tokenizer(text, return_tensors="pt", **full)["input_ids"]
    pixels = subject.processor(image)["pixel_values"].double()
    try:
        model(input_ids=ids, pixel_values=pixels).logits_per_image[0, 0].backward()
    finally:
        for hook in hooks:
            hook.remove()
        model.zero_grad()
    for scores, side in zip(sides(explanation), ("image", "text"), strict=True):
        expected = (states[side] * states[side].grad).sum(-1)[0].detach().numpy()
        assert np.allclose(scores, expected, atol=1e-6)


@pytest.mark.parametrize("method", ["attn_lrp", "cp_lrp", "transformer_attribution", "alti", "occlusion", "auto"])
@pytest.mark.parametrize("name", ["clip", "siglip", "altclip"])
def test_methods_run_on_both_sides(name: str, method: str) -> None:
    explanation = explainer(name).explain(dual.photo(), text=TEXTS[:2], method=method, target=0)
    assert np.isfinite(explanation.scores).all()
    assert all(np.abs(scores).max() > 0 for scores in sides(explanation))


def test_what_a_method_says_of_each_side_is_kept() -> None:
    explanation = explainer().explain(dual.photo(), text=TEXTS[1], method="cp_lrp")
    assert explanation.diagnostics.keys() == {"image", "text"}
    assert explanation.diagnostics["text"] == alone("cp_lrp").diagnostics


def alone(method: str) -> Explanation:
    """The text side by itself."""
    subject = dual.subject("clip")
    image = ImageSide(subject.model).embedded(subject.processor(dual.photo()))
    side = TextSide(subject.model).against(image)
    return Explainer(side, subject.tokenizer, labels=["it"]).explain(TEXTS[1], method)


def test_several_images() -> None:
    images = [dual.photo(seed) for seed in range(2)]
    together = explainer().explain(images, text=TEXTS, method="rollout", target=1)
    assert isinstance(together, Explanations)
    for image, one in zip(images, together, strict=True):
        alone = explainer().explain(image, text=TEXTS, method="rollout", target=1)
        assert np.allclose(one.scores, alone.scores, atol=1e-5)


def test_patches_are_found_once_for_a_model(monkeypatch: pytest.MonkeyPatch) -> None:
    from whyformer.images import reading

    explainer().explain(dual.photo(), text=TEXTS[0], method="rollout")
    monkeypatch.setattr(reading, "record", None)
    explainer().explain(dual.photo(1), text=TEXTS[1], method="rollout")


def test_it_is_saved_and_shown(tmp_path: Path) -> None:
    explanation = explainer().explain(dual.photo(), text=TEXTS[1], method="rollout")
    explanation.save(tmp_path / "similarity.json")
    loaded = Explanation.load(tmp_path / "similarity.json")
    assert np.allclose(loaded.scores, explanation.scores)
    assert loaded.texts == (TEXTS[1],)
    assert loaded.image is not None
    assert loaded.heat.shape == (dual.SIDE, dual.SIDE)
    by_word = explanation.by_word()
    assert [unit.text for unit in by_word.units if unit.kind == "word"] == TEXTS[1].split()
    assert sum(unit.box is not None for unit in by_word.units) == 16
    assert explanation.save(tmp_path / "similarity.html").exists()


def test_a_processor_brings_tokenizer_and_image_processor() -> None:
    processor = hf.CLIPProcessor.__new__(hf.CLIPProcessor)
    processor.image_processor, processor.tokenizer = dual.subject("clip").processor, dual.tokenizer()
    both = Explainer(dual.build("clip"), processor)
    explanation = both.explain(dual.photo(), text=TEXTS, method="rollout")
    expected = explainer().explain(dual.photo(), text=TEXTS, method="rollout")
    assert np.allclose(explanation.scores, expected.scores, atol=1e-5)


def test_a_pipeline_brings_both_readers() -> None:
    subject = dual.subject("clip")
    pipeline = SimpleNamespace(
        task="zero-shot-image-classification",
        model=subject.model,
        tokenizer=subject.tokenizer,
        image_processor=subject.processor,
    )
    explanation = Explainer(pipeline).explain(dual.photo(), text=TEXTS, method="rollout")
    expected = explainer().explain(dual.photo(), text=TEXTS, method="rollout")
    assert np.allclose(explanation.scores, expected.scores, atol=1e-5)


def test_a_saved_model_is_loaded(tmp_path: Path) -> None:
    subject = dual.subject("siglip")
    subject.model.save_pretrained(tmp_path)
    subject.tokenizer.save_pretrained(tmp_path)
    hf.SiglipImageProcessorPil(size={"height": dual.SIDE, "width": dual.SIDE}, resample=2).save_pretrained(tmp_path)
    loaded = Explainer.load(tmp_path)
    assert loaded.task.name == "similarity"
    explanation = loaded.explain(dual.photo(), text=TEXTS, method="rollout")
    expected = dual.stock("siglip", dual.photo(), TEXTS)
    assert torch.allclose(torch.tensor(explanation.prediction.logits).float(), expected, rtol=1e-4, atol=1e-4)


# What is refused


@pytest.mark.parametrize("text", [None, "", [], [""], 3, ["a cat", None]])
def test_a_text_is_needed(text: Any) -> None:
    with pytest.raises(BadInput, match="compares images with texts"):
        explainer().explain(dual.photo(), text=text, method="rollout")


def test_an_image_is_needed() -> None:
    with pytest.raises(BadInput, match="nothing to explain: an image"):
        explainer().explain(text="a cat", method="rollout")


def test_texts_are_different_ones() -> None:
    with pytest.raises(BadInput, match="found one twice"):
        explainer().explain(dual.photo(), text=["a cat", "a cat"], method="rollout")


@pytest.mark.parametrize("name", ["versus", "word", "position", "question", "choices", "overlap"])
def test_what_means_nothing_here_is_refused(name: str) -> None:
    with pytest.raises(BadOption, match=f"{name} means nothing to a model that compares"):
        explainer().explain(dual.photo(), text=TEXTS, method="rollout", **{name: 1})


def test_a_target_that_is_no_text_is_refused() -> None:
    with pytest.raises(BadOption, match="horse"):
        explainer().explain(dual.photo(), text=TEXTS, method="rollout", target="a horse")


def test_both_readers_are_needed() -> None:
    subject = dual.subject("clip")
    alone = Explainer(Subject(subject.model, None, (), "clip", processor=subject.processor))
    with pytest.raises(BadInput, match="both a tokenizer and an image processor"):
        alone.explain(dual.photo(), text="a cat", method="rollout")


def test_comparing_streaming_and_trust_are_refused_by_name() -> None:
    with pytest.raises(BadInput, match="compares images with texts"):
        explainer().compare(dual.photo())
    with pytest.raises(BadInput, match="compares images with texts"):
        list(explainer().stream([dual.photo()]))
    explanation = explainer().explain(dual.photo(), text="a cat", method="rollout")
    with pytest.raises(whyformer.WhyformerError):
        explanation.trust()
    with pytest.raises(whyformer.WhyformerError):
        explainer().evaluate([("a cat", 0)], ["rollout"])


class Unlike(nn.Module):
    """Its similarity is no cosine."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = dual.build("clip")
        self.config = self.inner.config
        self.logit_scale = self.inner.logit_scale

    def get_image_features(self, **inputs: Any) -> Any:
        return self.inner.get_image_features(**inputs)

    def get_text_features(self, **inputs: Any) -> Any:
        return self.inner.get_text_features(**inputs)

    def forward(self, input_ids: Tensor, pixel_values: Tensor, attention_mask: Tensor | None = None) -> Any:
        output = self.inner(input_ids=input_ids, pixel_values=pixel_values, attention_mask=attention_mask)
        output.logits_per_image = output.logits_per_image * 2
        return output


def test_another_similarity_than_a_cosine_is_refused() -> None:
    subject = dual.subject("clip")
    unlike = Explainer(Subject(Unlike(), subject.tokenizer, (), "unlike", processor=subject.processor))
    with pytest.raises(UnsupportedModel, match="Unlike does not compare"):
        unlike.explain(dual.photo(), text="a cat", method="rollout")


def test_a_model_without_features_is_refused() -> None:
    for side in (ImageSide, TextSide):
        with pytest.raises(UnsupportedModel, match="Linear has no get_"):
            side(nn.Linear(2, 2))


def test_the_check_runs_the_whole_model_once() -> None:
    known(dual.subject("clip").model, weights=True).clear()
    model, runs = dual.subject("clip").model, []
    hook = model.register_forward_hook(lambda *_: runs.append(1))
    try:
        for seed in range(2):
            explainer().explain(dual.photo(seed), text=TEXTS, method="rollout")
    finally:
        hook.remove()
    assert len(runs) == 1


def test_sides_have_embeddings_of_length_one() -> None:
    side = ImageSide(dual.build("clip"))
    embedded = side.embedded(dual.subject("clip").processor(dual.photo()))
    assert close(embedded.norm(dim=-1), torch.ones(1))
