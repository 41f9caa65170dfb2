"""decoded_grad_cam, re-derived with loops over positions and tokens from the stock models."""

import copy
import json
import math
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as hf
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

import whyformer
from tests.helpers import cases, families
from whyformer import Explainer, attribute
from whyformer.errors import BadInput, BadOption
from whyformer.inputs.batch import batch_of
from whyformer.methods import logit_lens
from whyformer.methods.method import Scores
from whyformer.models.load import BUNDLED
from whyformer.prediction import Prediction
from whyformer.testing import check_method
from whyformer.tolerance import close

LAYERS = 2
METHOD = "decoded_grad_cam"
TEXTS = ["the film is a fine film, the film", "a bad film", ("the film is fine", "a bad film is not fine")]


def randomised(model: Any) -> Any:
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    return model.double().eval()


@cache
def language_model() -> Any:
    torch.manual_seed(11)
    config = families.CONFIGS["bert"]()
    config.update({"vocab_size": len(cases.wordpiece()), "max_position_embeddings": 128})
    return randomised(hf.BertForMaskedLM(config))


@pytest.fixture(scope="module")
def lm_head(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("lm")
    language_model().save_pretrained(folder)
    cases.wordpiece().save_pretrained(folder)
    return str(folder)


class Literal:
    """One text through the stock classifier, one number at a time; attention is that of the recorder."""

    def __init__(self, text: Any, target: int):
        given = (text,) if isinstance(text, str) else text
        inputs = cases.wordpiece()(*given, return_tensors="pt", return_special_tokens_mask=True)
        self.special = inputs.pop("special_tokens_mask")[0].bool().tolist()
        self.ids = inputs["input_ids"][0].tolist()
        model = copy.deepcopy(cases.subject().model)  # asked for hidden states, a model keeps hooks
        said = model(**inputs, output_hidden_states=True)
        self.gradients = torch.autograd.grad(said.logits[0, target], said.hidden_states)
        self.hidden = tuple(states.detach() for states in said.hidden_states)
        trace = whyformer.record(model, inputs)
        self.attention = tuple(maps.detach() for maps in trace.attention)
        self.map_gradients = trace.gradient(trace.attention, target)

    def alpha(self, layer: int, score: str, position: int) -> float:
        hidden, gradient = self.hidden[layer][0, position], self.gradients[layer][0, position]
        product = sum(float(h) * float(g) for h, g in zip(hidden, gradient, strict=True))
        if score == "grad_cam":
            return max(0.0, product)
        if score == "saliency":
            return math.sqrt(sum(float(g) ** 2 for g in gradient))
        maps, gradients = self.attention[layer - 1][0], self.map_gradients[layer - 1][0]
        heads, count = len(maps), len(self.ids)
        if score == "raw_attention":
            return sum(float(maps[h, 0, position]) for h in range(heads)) / heads
        received, weighted = 0.0, 0.0
        for h in range(heads):
            for query in range(count):
                received += float(maps[h, query, position]) / heads / count
                weighted += float(maps[h, query, position]) * max(0.0, float(gradients[h, query, position])) / heads
        return weighted if score == "att_grads" else max(0.0, product * received)

    def scores(
        self, layer: int, score: str = "grad_cam", top: int | None = None, special_positions: bool = True
    ) -> list[float]:
        tokens: list[int] = []
        for token, special in zip(self.ids, self.special, strict=True):
            if not special and token not in tokens:
                tokens.append(token)
        totals = dict.fromkeys(tokens, 0.0)
        for position, special in enumerate(self.special):
            if special and not special_positions:
                continue
            shares = self.shares(layer, position)
            best = sorted(tokens, key=lambda token: -shares[token])[: len(tokens) if top is None else top]
            for token in best:
                totals[token] += shares[token] * self.alpha(layer, score, position)
        return [0.0 if s else totals[t] for t, s in zip(self.ids, self.special, strict=True)]

    def shares(self, layer: int, position: int) -> list[float]:
        """How likely each token of the vocabulary is in a position."""
        with torch.no_grad():
            logits = language_model().cls(self.hidden[layer][0, position]).tolist()
        powers = [math.exp(logit) for logit in logits]
        return [power / sum(powers) for power in powers]


@cache
def literal(number: int, target: int = 1) -> Literal:
    return Literal(TEXTS[number], target)


def found(lm_head: str, target: int = 1, **options: Any) -> Scores:
    """All texts in one batch: of three lengths, and one is a pair."""
    return whyformer.list_methods()[METHOD](cases.predicted(TEXTS, target=target), lm_head=lm_head, **options)


def assert_as_derived(scores: Tensor, target: int = 1, **options: Any) -> None:
    for number, row in enumerate(scores):
        expected = literal(number, target).scores(**options)
        torch.testing.assert_close(row[: len(expected)].tolist(), expected, rtol=1e-9, atol=1e-13)
        assert not row[len(expected) :].any()  # padding
    assert scores.any()


# The definition


@pytest.mark.parametrize("special_positions", [True, False])
@pytest.mark.parametrize("top", [None, 1, 2, 100])
@pytest.mark.parametrize("layer", range(LAYERS + 1))
def test_every_layer(lm_head: str, layer: int, top: int | None, special_positions: bool) -> None:
    options: dict[str, Any] = {"layer": layer, "top": top, "special_positions": special_positions}
    if layer == LAYERS and not special_positions:  # the head reads [CLS] alone
        assert not found(lm_head, **options).total.any()
        return
    assert_as_derived(found(lm_head, **options).total, **options)


@pytest.mark.parametrize("score", ["saliency", "attcat", "att_grads", "raw_attention"])
def test_every_score(lm_head: str, score: Any) -> None:
    assert_as_derived(found(lm_head, score=score, layer=1).total, layer=1, score=score)
    if score == "saliency":
        assert_as_derived(found(lm_head, score=score, layer=0).total, layer=0, score=score)


def test_another_class_and_the_difference_of_two(lm_head: str) -> None:
    assert_as_derived(found(lm_head, target=2, layer=1).total, target=2, layer=1)
    given = cases.predicted(TEXTS).towards(2, 0)
    both = whyformer.list_methods()[METHOD](given, lm_head=lm_head, layer=1, score="saliency").total
    alone = [found(lm_head, target=t, layer=1, score="saliency").total for t in (2, 0)]
    assert torch.allclose(both, alone[0] - alone[1])


def test_repeated_tokens_share_a_score(lm_head: str) -> None:
    scores = found(lm_head, layer=1).total[0]
    by_token: dict[int, set[float]] = {}
    own = literal(0)
    for token, special, score in zip(own.ids, own.special, scores.tolist(), strict=False):
        if not special:
            by_token.setdefault(token, set()).add(score)
    assert any(own.ids.count(token) > 1 for token in by_token)
    assert all(len(values) == 1 for values in by_token.values())


def test_the_middle_layer_is_the_default_and_layers_count_from_the_last(lm_head: str) -> None:
    assert close(found(lm_head).total, found(lm_head, layer=1).total)
    assert close(found(lm_head, layer=-2).total, found(lm_head, layer=1).total)
    assert found(lm_head, layer=-2).diagnostics == {"decoded": {"layer": 1}}


def test_all_layers_at_once(lm_head: str) -> None:
    every = found(lm_head, layers="all", top=2)
    assert every.layers is not None
    assert len(every.layers) == LAYERS + 1
    for layer, scores in enumerate(every.layers):
        assert close(scores, found(lm_head, layer=layer, top=2).total)
    torch.testing.assert_close(every.total, every.layers[0] + every.layers[1] + every.layers[2])
    by_attention = found(lm_head, layers="all", score="attcat")
    assert by_attention.layers is not None
    assert not by_attention.layers[0].any()
    assert close(by_attention.layers[1], found(lm_head, layer=1, score="attcat").total)


@pytest.mark.parametrize("layer", range(LAYERS + 1))
def test_without_decoding(layer: int) -> None:
    given = cases.predicted(TEXTS, target=1)
    scores = whyformer.list_methods()[METHOD](given, layer=layer, decode=False).total
    for number, row in enumerate(scores):
        own = literal(number)
        expected = [own.alpha(layer, "grad_cam", position) for position in range(len(own.ids))]
        torch.testing.assert_close(row[: len(expected)].tolist(), expected, rtol=1e-9, atol=1e-13)
    cam = whyformer.list_methods()["cam"](given, layer=layer).total
    torch.testing.assert_close(scores, cam.clamp(min=0))


def test_tensors_alone_do_not_say_which_tokens_are_special(lm_head: str) -> None:
    inputs = cases.wordpiece()(TEXTS[0], return_tensors="pt", return_special_tokens_mask=True)
    model = cases.subject().model
    expected = literal(0).scores(1)
    marked = attribute(model, inputs, METHOD, target=1, layer=1, lm_head=lm_head)[0]
    torch.testing.assert_close(marked.tolist(), expected, rtol=1e-9, atol=1e-13)
    special = inputs.pop("special_tokens_mask")[0].bool()
    plain = attribute(model, inputs, METHOD, target=1, layer=1, lm_head=lm_head)[0]
    assert (plain[special] > 0).all()
    torch.testing.assert_close(plain[~special], marked[~special])
    with pytest.raises(BadOption, match="special_tokens_mask"):
        attribute(model, inputs, METHOD, target=1, layer=1, lm_head=lm_head, special_positions=False)


# Slices of the vocabulary


def test_slices_change_nothing(lm_head: str, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = found(lm_head, layers="all", vocabulary=4)
    monkeypatch.setattr(logit_lens, "AT_ONCE", 100)
    sliced = found(lm_head, layers="all", vocabulary=4)
    torch.testing.assert_close(sliced.values, whole.values, rtol=1e-12, atol=1e-15)
    parts = zip(sliced.diagnostics["decoded"]["vocabulary"], whole.diagnostics["decoded"]["vocabulary"], strict=True)
    assert all(torch.equal(one, other) for one, other in parts)


class Largest(TorchDispatchMode):
    """The most numbers in one tensor that was made; views are none."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = function(*args, **(kwargs or {}))
        held = {id(given.untyped_storage()) for given in args if isinstance(given, Tensor)}
        for tensor in made if isinstance(made, (tuple, list)) else (made,):
            if isinstance(tensor, Tensor) and id(tensor.untyped_storage()) not in held and not tensor._is_view():
                self.numbers = max(self.numbers, tensor.numel())
        return made


@pytest.mark.parametrize("options", [{}, {"layers": "all"}, {"vocabulary": 3}, {"top": 2}], ids=str)
def test_no_tensor_is_larger_than_a_slice(
    options: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a large vocabulary: neither the logits nor a copy of the weights are ever whole."""
    words, positions = 20_000, 21
    config = families.CONFIGS["bert"]()
    config.update({"vocab_size": words, "hidden_size": 8, "num_attention_heads": 2})
    hf.BertForMaskedLM(config).save_pretrained(tmp_path)
    model = hf.BertForSequenceClassification(config).eval()
    prediction = Prediction(model, batch_of(model, families.batch(lengths=(9, 5, 7))), 0)
    assert int(prediction.real.sum()) == positions
    _ = prediction.hidden_gradients
    monkeypatch.setattr(logit_lens, "AT_ONCE", 4_000)
    run = whyformer.list_methods()[METHOD]
    run(prediction, lm_head=str(tmp_path))  # the head is read now
    with Largest() as seen:
        run(prediction, lm_head=str(tmp_path), **options)
    assert 3_900 < seen.numbers <= 4_000
    monkeypatch.setattr(logit_lens, "AT_ONCE", 10**9)
    with Largest() as seen:
        run(prediction, lm_head=str(tmp_path), **options)
    assert seen.numbers == words * positions


# What is reported


def test_the_matrix(lm_head: str) -> None:
    report = found(lm_head, layer=1, matrix=True).diagnostics["decoded"]
    for number, text in enumerate(TEXTS):
        own = literal(number)
        kept = [t for t, s in zip(own.ids, own.special, strict=True) if not s]
        tokens = report["tokens"][number].tolist()
        assert tokens == sorted(set(kept)), text
        for row, token in enumerate(tokens):
            shares = [own.shares(1, position)[token] for position in range(len(own.ids))]
            torch.testing.assert_close(report["D"][number][row].tolist(), shares, rtol=1e-9, atol=1e-13)
        assert report["D"][number].shape == (len(tokens), len(own.ids))


def test_the_matrix_holds_what_counts(lm_head: str) -> None:
    thinned = found(lm_head, layer=1, matrix=True, top=2).diagnostics["decoded"]["D"]
    whole = found(lm_head, layer=1, matrix=True).diagnostics["decoded"]["D"]
    for few, every in zip(thinned, whole, strict=True):
        assert torch.equal((few > 0).sum(0), (every > 0).sum(0).clamp(max=2))
        assert close(few[few > 0], every[few > 0])
        assert int((few > 0).sum(0).max()) <= 2
    assert max(int((few > 0).sum(0).max()) for few in thinned) == 2


def test_the_most_likely_tokens_of_the_vocabulary(lm_head: str) -> None:
    report = found(lm_head, layers="all", vocabulary=3).diagnostics["decoded"]
    assert report["layer"] == [0, 1, 2]
    for number in range(len(TEXTS)):
        own = literal(number)
        assert report["vocabulary"][number].shape == (LAYERS + 1, len(own.ids), 3)
        for layer in range(LAYERS + 1):
            for position in range(len(own.ids)):
                shares = own.shares(layer, position)
                best = sorted(range(len(shares)), key=lambda token: -shares[token])[:3]
                assert report["vocabulary"][number][layer, position].tolist() == best
                expected = [shares[token] for token in best]
                assert report["probabilities"][number][layer, position].tolist() == pytest.approx(expected)


@pytest.mark.parametrize("layers", [None, "all"])
def test_a_report_does_not_depend_on_the_batch(layers: Any, lm_head: str) -> None:
    explainer = Explainer(cases.subject())
    options = {"layers": layers, "lm_head": lm_head, "matrix": True, "vocabulary": 2}
    together = explainer.explain(list(TEXTS), METHOD, **options)
    assert len({len(one.units) for one in together}) > 1
    for text, one in zip(TEXTS, together, strict=True):
        own = explainer.explain(text, METHOD, **options).diagnostics["decoded"]  # type: ignore[attr-defined]
        for name, value in one.diagnostics["decoded"].items():
            torch.testing.assert_close(torch.tensor(value), torch.tensor(own[name]), rtol=1e-9, atol=1e-12)


def test_an_explanation_is_saved_with_its_report(lm_head: str, tmp_path: Path) -> None:
    explainer = Explainer(cases.subject())
    own = explainer.explain(TEXTS[0], METHOD, layers="all", lm_head=lm_head, matrix=True, vocabulary=2)
    again = whyformer.Explanation.load(own.save(tmp_path / "e.json"))  # type: ignore[attr-defined]
    assert again.diagnostics == own.diagnostics  # type: ignore[attr-defined]
    assert len(own.diagnostics["decoded"]["D"]) == LAYERS + 1  # type: ignore[attr-defined]
    assert own.layers is not None  # type: ignore[attr-defined]
    assert own.layers.shape == (LAYERS + 1, len(own.units))  # type: ignore[attr-defined]
    plain = explainer.explain(TEXTS[0], METHOD, lm_head=lm_head)
    assert plain.diagnostics == {"decoded": {"layer": 1}}  # type: ignore[attr-defined]


# Families


@pytest.mark.parametrize("family", ["bert", "distilbert", "albert", "electra", "modernbert", "mistral"])
def test_the_contract_is_kept(family: str, tmp_path: Path) -> None:
    config = families.CONFIGS[family]()
    causal = family == "mistral"
    torch.manual_seed(3)
    auto = hf.AutoModelForCausalLM if causal else hf.AutoModelForMaskedLM
    randomised(auto.from_config(config)).save_pretrained(tmp_path)
    run, model = whyformer.list_methods()[METHOD], families.build(family)
    options: dict[str, Any] = {"layers": "all", "top": 2} if family == "albert" else {}
    assert not check_method(run, model, families.batch(), lm_head=str(tmp_path), **options)


def test_a_causal_classifier_decodes_by_itself() -> None:
    model = families.build("gpt2")
    assert not check_method(whyformer.list_methods()[METHOD], model, families.batch())
    scores = attribute(model, families.batch(), METHOD, target=1)
    prediction = Prediction(model, batch_of(model, families.batch()), 1)
    body, ids = model.transformer, families.batch()["input_ids"]
    hidden, gradients = prediction.hidden[1], prediction.hidden_gradients[1]
    with torch.no_grad():
        shares = (body.ln_f(hidden) @ body.wte.weight.T).softmax(-1)
    for example, length in enumerate((9, 5, 7)):
        for place in range(length):
            expected = 0.0
            for position in range(length):
                alpha = max(0.0, float((hidden[example, position] * gradients[example, position]).sum()))
                expected += float(shares[example, position, ids[example, place]]) * alpha
            assert scores[example, place].item() == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_a_language_model_decodes_by_its_own_head(family: str, tmp_path: Path) -> None:
    torch.manual_seed(4)
    model = randomised(hf.AutoModelForCausalLM.from_config(families.CONFIGS[family]()))
    model.save_pretrained(tmp_path)
    given = families.batch(lengths=(6, 6))
    own = attribute(model, given, METHOD, target=7, layer=1)
    assert own.any()
    assert close(own, attribute(model, given, METHOD, target=7, layer=1, lm_head=str(tmp_path)), torch.float32)


def test_answers_are_decoded_start_and_end(lm_head: str) -> None:
    config = hf.BertConfig.from_dict({**cases.subject().model.config.to_dict(), "num_labels": 2})
    torch.manual_seed(9)
    model = randomised(hf.BertForQuestionAnswering(config))
    given = dict(cases.wordpiece()("a film", "the film is fine", return_tensors="pt", return_special_tokens_mask=True))
    options: dict[str, Any] = {"layer": 1, "lm_head": lm_head}
    both = attribute(model, given, METHOD, target=(4, 6), **options)
    parts = [attribute(model, given, METHOD, target=t, **options) for t in ((4, None), (None, 6))]
    torch.testing.assert_close(both, parts[0] + parts[1])
    with pytest.raises(BadOption, match="start and the end of an answer"):
        attribute(model, given, METHOD, target=(4, 6), **options, matrix=True)


def test_the_bundled_model_comes_with_a_layer() -> None:
    explainer = Explainer.load("sentiment", dtype="float64")
    held = json.loads((BUNDLED / "sentiment" / "layer.json").read_text())
    own = explainer.explain("a gorgeous, witty film", METHOD)
    assert own.diagnostics["decoded"]["layer"] == held["layer"] == 5
    by_layer = {
        layer: explainer.explain("a gorgeous, witty film", METHOD, layer=layer).scores for layer in (5, "best", 3)
    }
    assert close(by_layer[5], own.scores)
    assert close(by_layer["best"], own.scores)
    assert not close(by_layer[3], own.scores)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_near(dtype: torch.dtype) -> None:
    text, options = "a gorgeous, witty, seductive film", {"layer": 3}
    precise = Explainer.load("sentiment").explain(text, METHOD, **options)
    rough = Explainer.load("sentiment", dtype=dtype).explain(text, METHOD, **options)
    assert abs(rough.scores - precise.scores).max() < 0.05 * precise.scores.max()


def test_a_positive_text_says_positive_words_at_the_end() -> None:
    """What [CLS] of the bundled model's last layer decodes to: words of its own for either class."""
    explainer = Explainer.load("sentiment")
    words = {"POSITIVE": ("beautiful", "wonderful", "brilliant"), "NEGATIVE": ("awful", "worst", "boring")}
    for text, label in (("a gorgeous, witty film", "POSITIVE"), ("a dull and lifeless mess", "NEGATIVE")):
        own = explainer.explain(text, METHOD, layer=6, vocabulary=12_000).diagnostics["decoded"]
        at_first = dict(zip(own["vocabulary"][0], own["probabilities"][0], strict=True))
        sums = {
            name: sum(at_first[i] for i in explainer.subject.tokenizer.convert_tokens_to_ids(list(some)))
            for name, some in words.items()
        }
        assert sums[label] > 3 * min(sums.values())


# Errors


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"layer": 3}, r"layer 3 does not exist: there are 0 … 2"),
        ({"layer": -4}, r"layer -4 does not exist"),
        ({"top": 0}, r"top is how many tokens count in each position, at least 1; found 0"),
        ({"top": -1}, r"at least 1; found -1"),
        ({"vocabulary": -1}, r"vocabulary is how many tokens .*found -1"),
        ({"layer": 0, "score": "attcat"}, r"score='attcat' weighs attention, and layer 0 is the embedding output"),
        ({"layers": "all", "layer": 1}, r"layers='all' takes every layer: leave layer=1 out"),
        ({"layer": "best"}, r"layer='best' is replaced by a number"),
        ({"layer": "last"}, r"option layer takes a whole number \| best \| none"),
        ({"decode": False}, r"decode=False decodes nothing: leave lm_head out"),
    ],
    ids=str,
)
def test_options_that_are_refused(lm_head: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(BadOption, match=message):
        found(lm_head, **options)


@pytest.mark.parametrize("name", ["top", "vocabulary", "matrix"])
def test_nothing_is_decoded_without_decoding(name: str) -> None:
    with pytest.raises(BadOption, match=f"leave {name} out"):
        attribute(
            families.build("bert"), families.batch(), METHOD, decode=False, **{name: 1 if name != "matrix" else True}
        )


def test_no_head() -> None:
    with pytest.raises(BadOption, match="comes with none: give the pretrained checkpoint"):
        attribute(families.build("bert"), families.batch(), METHOD)


def test_no_tokens(lm_head: str) -> None:
    model = cases.subject().model
    embedded = model.get_input_embeddings()(torch.tensor([[2, 9, 3]])).detach()
    with pytest.raises(BadInput, match="no input_ids"):
        attribute(model, {"inputs_embeds": embedded}, METHOD, lm_head=lm_head)
    assert attribute(model, {"inputs_embeds": embedded}, METHOD, decode=False).any()
