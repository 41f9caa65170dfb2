"""The baselines agree with captum called by hand on the plain model, and with their definitions in loops."""

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import transformers as hf
from torch import Tensor, nn

import whyformer
from tests.helpers import families
from whyformer.inputs.batch import batch_of
from whyformer.methods.method import Scores
from whyformer.prediction import Prediction

TARGET, VERSUS = 2, 0
LENGTHS = (9, 5, 7)
CAPTUM = 1e-6  # captum adds up in float32


@pytest.fixture(scope="module")
def model() -> hf.PreTrainedModel:
    return families.build("bert")


def inputs(lengths: tuple[int, ...] = LENGTHS) -> dict[str, Tensor]:
    """A batch whose first and last real tokens are special."""
    given = families.batch(lengths)
    special = torch.zeros_like(given["input_ids"])
    for row, length in enumerate(lengths):
        special[row, 0] = special[row, length - 1] = 1
    return {**given, "special_tokens_mask": special}


def scores(model: nn.Module, name: str, given: dict[str, Tensor] | None = None, **options: Any) -> Scores:
    given = inputs() if given is None else given
    prediction = Prediction(model, batch_of(model, given), TARGET, VERSUS)
    return whyformer.list_methods()[name](prediction, **options)


class ByHand:
    """One text alone: token ids, the same with padding tokens where a unit may give way, and the plain model."""

    def __init__(self, model: nn.Module, row: int, stand_in: int = families.PAD) -> None:
        alone = families.alone(inputs(), row)
        self.model = model
        self.ids = alone["input_ids"]
        self.special = alone.pop("special_tokens_mask").bool()[0]
        self.baseline = torch.where(self.special, self.ids, stand_in)
        prediction = Prediction(model, batch_of(model, alone))
        self.seed = prediction.generators(0)[0].initial_seed()
        free = (~self.special).nonzero().flatten()
        self.features = torch.zeros_like(self.ids)  # special tokens share the first one's, which changes nothing
        self.features[0, free] = torch.arange(len(free))

    def __call__(self, ids: Tensor) -> Tensor:
        logits = self.model(input_ids=ids.long(), attention_mask=torch.ones_like(ids).long()).logits
        return logits[:, TARGET] - logits[:, VERSUS]

    def embedded(self, embeddings: Tensor) -> Tensor:
        logits = self.model(inputs_embeds=embeddings, attention_mask=torch.ones(embeddings.shape[:2])).logits
        return logits[:, TARGET] - logits[:, VERSUS]

    def said(self, ids: Tensor) -> float:
        with torch.no_grad():
            return float(self(ids))

    def draw(self) -> None:
        torch.manual_seed(self.seed)
        np.random.seed(self.seed % 2**32)

    def words(self, ids: Tensor) -> Tensor:
        return self.model.get_input_embeddings()(ids).detach()


def assert_near(found: Tensor, expected: Tensor, within: float) -> None:
    assert found.shape == expected.shape
    assert (found - expected).abs().max() <= within * expected.abs().max()


# Captum called by hand


def attr() -> Any:
    """Captum, which is slow to import."""
    import captum.attr

    return captum.attr


def occluded(hand: ByHand) -> Tensor:
    return attr().Occlusion(hand).attribute(hand.ids, sliding_window_shapes=(3,), baselines=hand.baseline)


def sampled(hand: ByHand) -> Tensor:
    method = attr().ShapleyValueSampling(hand)
    return method.attribute(hand.ids, baselines=hand.baseline, feature_mask=hand.features, n_samples=3)


def kernel(hand: ByHand) -> Tensor:
    method = attr().KernelShap(hand)
    return method.attribute(hand.ids, baselines=hand.baseline, feature_mask=hand.features, n_samples=8)


def limed(hand: ByHand) -> Tensor:
    """As Thermostat calls it, on token ids; but the linear model is told which tokens are there."""
    from captum._utils.models.linear_model import SkLearnRidge

    def perturbed(ids: Tensor, **_: Any) -> Tensor:
        stays = torch.ones_like(ids).bool()
        stays[0, ~hand.special] = torch.bernoulli(torch.full((1, int((~hand.special).sum())), 0.7))[0].bool()
        return torch.where(stays, ids, hand.baseline)

    method = attr().LimeBase(
        hand,
        interpretable_model=SkLearnRidge(alpha=1.0),
        similarity_func=lambda ids, sample, *_, **__: (ids == sample).double().mean(),
        perturb_func=perturbed,
        perturb_interpretable_space=False,
        from_interp_rep_transform=None,
        to_interp_rep_transform=lambda sample, ids, **_: (sample == ids)[:, ~hand.special],
    )
    found = torch.zeros(1, len(hand.special))
    found[0, ~hand.special] = method.attribute(hand.ids, n_samples=8)[0]
    return found


PERTURBED: dict[str, tuple[Callable[[ByHand], Tensor], dict[str, Any]]] = {
    "occlusion": (occluded, {}),
    "shapley_value_sampling": (sampled, {"samples": 3}),
    "kernel_shap": (kernel, {"samples": 8}),
    "lime": (limed, {"samples": 8}),
}


@pytest.mark.parametrize("name", PERTURBED)
def test_perturbing_agrees_with_captum_on_token_ids(name: str, model: nn.Module) -> None:
    by_captum, options = PERTURBED[name]
    found = scores(model, name, **options).total
    for row, length in enumerate(LENGTHS):
        hand = ByHand(model, row)
        hand.draw()
        expected = by_captum(hand)[0].double().masked_fill(hand.special, 0)
        assert expected.any()
        assert_near(found[row, :length], expected, CAPTUM)
        assert not found[row, :length][hand.special].any()
        assert not found[row, length:].any()


@pytest.mark.parametrize("at", ["token_embeddings", "embedding_output"])
def test_integrated_gradients_agree_with_captum_at_a_layer(at: str, model: Any) -> None:
    found, layer = scores(model, "integrated_gradients", steps=7, at=at), layer_at(model, at)
    for row, length in enumerate(LENGTHS):
        hand = ByHand(model, row)
        expected, delta = (
            attr()
            .LayerIntegratedGradients(hand, layer)
            .attribute(hand.ids, baselines=hand.baseline, n_steps=7, return_convergence_delta=True)
        )
        assert_near(found.total[row, :length], expected[0].sum(-1), 1e-12)
        assert abs(found.diagnostics["delta"][row] - delta[0]) < 1e-12
        assert not found.total[row, :length][hand.special].any()


def test_integrated_gradients_from_zero_agree_with_captum(model: nn.Module) -> None:
    found = scores(model, "integrated_gradients", steps=7, baseline="zero")
    for row, length in enumerate(LENGTHS):
        hand = ByHand(model, row)
        words = hand.words(hand.ids)
        start = words * hand.special[:, None]
        expected = attr().IntegratedGradients(hand.embedded).attribute(words, baselines=start, n_steps=7)
        assert_near(found.total[row, :length], expected[0].sum(-1), 1e-12)


class FromEmbeddings(nn.Module):
    """The plain model with the output of its embeddings, or of its words' embeddings, put in their place."""

    def __init__(self, hand: ByHand, layer: nn.Module) -> None:
        super().__init__()
        self.hand, self.model, self.layer = hand, hand.model, layer

    def forward(self, states: Tensor) -> Tensor:
        handle = self.layer.register_forward_hook(lambda *_: states)
        try:
            return self.hand(self.hand.ids.repeat(len(states), 1))
        finally:
            handle.remove()


def layer_at(model: Any, at: str) -> nn.Module:
    found: nn.Module = model.bert.embeddings if at == "embedding_output" else model.bert.embeddings.word_embeddings
    return found


@pytest.mark.parametrize("at", ["token_embeddings", "embedding_output"])
def test_gradient_shap_agrees_with_captum(at: str, model: Any) -> None:
    found, layer = scores(model, "gradient_shap", at=at), layer_at(model, at)
    for row, length in enumerate(LENGTHS):
        hand = ByHand(model, row)
        with torch.no_grad():
            end, start = layer(hand.ids), layer(hand.baseline)
        hand.draw()
        expected, delta = (
            attr()
            .GradientShap(FromEmbeddings(hand, layer))
            .attribute(end, baselines=start, n_samples=5, return_convergence_delta=True)
        )
        assert_near(found.total[row, :length], expected[0].sum(-1), 1e-12)
        assert abs(found.diagnostics["delta"][row] - delta.mean()) < 1e-12


def test_at_a_layer_captum_draws_points_between_token_ids(model: Any) -> None:
    """What docs/baselines.md says of Thermostat's GradientShap, so `gradient_shap` does not call it."""
    hand, layer = ByHand(model, 0), model.bert.embeddings
    hand.draw()
    found = attr().LayerGradientShap(hand, layer).attribute(hand.ids, baselines=hand.baseline, n_samples=5)
    hand.draw()
    with torch.no_grad():
        distance = layer(hand.ids) - layer(hand.baseline)
    np.random.randint(0, 1, 5)  # which of one baseline
    total = torch.zeros_like(distance)
    for share in np.random.uniform(0, 1, 5).astype(np.float32):
        other = (float(share) * hand.ids + (1 - float(share)) * hand.baseline).long()  # some other tokens
        states = layer(other).detach().requires_grad_()
        total += torch.autograd.grad(FromEmbeddings(hand, layer)(states).sum(), states)[0] * distance / 5
    assert_near(found, total, 1e-12)


@pytest.mark.filterwarnings("ignore:\\s*Setting forward, backward hooks")
@pytest.mark.parametrize("at", ["token_embeddings", "embedding_output"])
def test_deep_lift_shap_agrees_with_captum(at: str, model: Any) -> None:
    found, layer = scores(model, "deep_lift_shap", at=at), layer_at(model, at)
    for row, length in enumerate(LENGTHS):
        hand = ByHand(model, row)
        with torch.no_grad():
            end, start = layer(hand.ids), layer(hand.baseline)
        starts = torch.cat((start, end * hand.special[:, None]))
        expected, delta = (
            attr()
            .DeepLiftShap(FromEmbeddings(hand, layer))
            .attribute(end, baselines=starts, return_convergence_delta=True)
        )
        assert_near(found.total[row, :length], expected[0].sum(-1), 1e-12)
        assert abs(found.diagnostics["delta"][row] - delta.mean()) < 1e-12


# Definitions, in loops


@pytest.mark.parametrize("window", [1, 2, 3, 20])
def test_occlusion_in_loops(window: int, model: nn.Module) -> None:
    found = scores(model, "occlusion", window=window).total
    for row, length in enumerate(LENGTHS):
        hand, size = ByHand(model, row), min(window, length)
        whole = hand.said(hand.ids)
        drops: list[list[float]] = [[] for _ in range(length)]
        for start in range(length - size + 1):
            ids = hand.ids.clone()
            for place in range(start, start + size):
                if not hand.special[place]:
                    ids[0, place] = families.PAD
            drop = whole - hand.said(ids)
            for place in range(start, start + size):
                drops[place].append(drop)
        for place in range(length):
            expected = 0.0 if hand.special[place] else sum(drops[place]) / len(drops[place])
            assert abs(float(found[row, place]) - expected) < CAPTUM


def exact_shapley(hand: ByHand) -> tuple[list[float], list[float]]:
    """Shapley values over all subsets, and the variance of what a unit adds in a random order."""
    free = (~hand.special).nonzero().flatten().tolist()
    said = {}
    for kept in itertools.product([False, True], repeat=len(free)):
        ids = hand.baseline.clone()
        for place, stays in zip(free, kept, strict=True):
            ids[0, place] = hand.ids[0, place] if stays else hand.baseline[0, place]
        said[kept] = hand.said(ids)
    values, variances = [], []
    for unit in range(len(free)):
        value = square = 0.0
        for kept in said:
            if not kept[unit]:
                size = sum(kept)
                weight = math.factorial(size) * math.factorial(len(free) - size - 1) / math.factorial(len(free))
                added = said[(*kept[:unit], True, *kept[unit + 1 :])] - said[kept]
                value, square = value + weight * added, square + weight * added**2
        values.append(value)
        variances.append(square - value**2)
    return values, variances


def test_shapley_values_of_all_subsets(model: nn.Module) -> None:
    samples, given = 1500, inputs((6,))
    found = scores(model, "shapley_value_sampling", given, samples=samples).total[0]
    hand = ByHand(model, 0)
    hand.ids, hand.special = given["input_ids"], given["special_tokens_mask"][0].bool()
    hand.baseline = torch.where(hand.special, hand.ids, families.PAD)
    values, variances = exact_shapley(hand)
    assert min(variances) > 0
    for score, value, variance in zip(found[1:5].tolist(), values, variances, strict=True):
        assert abs(score - value) < 4 * math.sqrt(variance / samples)  # four standard errors of the mean


@pytest.mark.parametrize("name", ["shapley_value_sampling", "kernel_shap"])
def test_shapley_values_add_up(name: str, model: nn.Module) -> None:
    found = scores(model, name, samples=12)
    for row in range(len(LENGTHS)):
        hand = ByHand(model, row)
        due = hand.said(hand.ids) - hand.said(hand.baseline)
        assert abs(due) > 0.1
        assert abs(float(found.total[row].sum()) - due) < 10 * CAPTUM
        assert abs(float(found.diagnostics["delta"][row]) - (float(found.total[row].sum()) - due)) < CAPTUM


@pytest.mark.parametrize("at", ["token_embeddings", "embedding_output"])
def test_integrated_gradients_add_up_the_better_the_more_steps(at: str, model: nn.Module) -> None:
    hands = [ByHand(model, row) for row in range(len(LENGTHS))]
    due = torch.tensor([hand.said(hand.ids) - hand.said(hand.baseline) for hand in hands], dtype=torch.float64)
    gaps = []
    for steps in (2, 8, 64):
        found = scores(model, "integrated_gradients", steps=steps, at=at)
        assert_near(found.total.sum(1) - due, found.diagnostics["delta"], 1e-10 if steps < 64 else math.inf)
        gaps.append(float(found.diagnostics["delta"].abs().max()))
    assert gaps[0] > 10 * gaps[1] > 100 * gaps[2]


def test_the_protocol_of_allennlp_in_loops(model: nn.Module) -> None:
    prediction = Prediction(model, batch_of(model, inputs()), TARGET)
    found = whyformer.list_methods()["integrated_gradients"](prediction, protocol="allennlp")
    assert found.signed is False
    assert found.diagnostics["evaluations"].tolist() == [11, 11, 11]
    for row, length in enumerate(LENGTHS):
        words = ByHand(model, row).words(families.alone(inputs(), row)["input_ids"])
        total = torch.zeros_like(words)
        for step in range(10):
            scaled = (step / 10 * words).requires_grad_()
            logits = model(inputs_embeds=scaled, attention_mask=torch.ones(1, length)).logits
            total += torch.autograd.grad(nn.functional.cross_entropy(logits, torch.tensor([TARGET])), scaled)[0]
        both = zip(words[0], total[0] / 10, strict=True)
        products = [abs(sum(float(a * b) for a, b in zip(*vectors, strict=True))) for vectors in both]
        expected = torch.tensor([p / sum(products) for p in products], dtype=torch.float64)
        assert_near(found.total[row, :length], expected, 1e-6)  # captum's step sizes are float32


# What is explained


@torch.no_grad()
def words_given_way(model: nn.Module, given: dict[str, Tensor], said: Callable[[Any], Tensor]) -> list[float]:
    """What the output of one text loses when each token alone gives way to padding."""
    whole, ids = said(model(**given)), given["input_ids"]
    drops = []
    for place in range(ids.shape[1]):
        changed = ids.clone()
        changed[0, place] = families.PAD
        drops.append(float(whole - said(model(**{**given, "input_ids": changed}))))
    return drops


QUESTIONS = hf.BertConfig(**families._ENCODER)
OUTPUTS: dict[str, tuple[Callable[[], nn.Module], Any, Callable[[Any], Tensor]]] = {
    "answer": (
        lambda: hf.BertForQuestionAnswering(QUESTIONS),
        (1, 3),
        lambda o: o.start_logits[0, 1] + o.end_logits[0, 3],
    ),
    "end of an answer": (
        lambda: hf.BertForQuestionAnswering(QUESTIONS),
        (None, 3),
        lambda o: o.end_logits[0, 3],
    ),
    "next token": (lambda: hf.LlamaForCausalLM(families.CONFIGS["llama"]()), 7, lambda o: o.logits[0, -1, 7]),
    "token in the middle": (
        lambda: hf.LlamaForCausalLM(families.CONFIGS["llama"]()),
        (7, 2),
        lambda o: o.logits[0, 2, 7],
    ),
    "label of a token": (
        lambda: hf.BertForTokenClassification(hf.BertConfig(**families._ENCODER, num_labels=5)),  # type: ignore[call-arg]
        (4, 1),
        lambda o: o.logits[0, 1, 4],
    ),
}


@pytest.mark.parametrize("kind", OUTPUTS)
def test_the_explained_output_of_other_tasks(kind: str) -> None:
    build, target, said = OUTPUTS[kind]
    torch.manual_seed(7)
    model = build().double().eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.25)
    found = whyformer.attribute(model, families.batch(), "occlusion", target=target, window=1)
    for row, length in enumerate(LENGTHS):
        expected = words_given_way(model, families.alone(families.batch(), row), said)
        assert_near(found[row, :length], torch.tensor(expected, dtype=torch.float64), CAPTUM)


def test_other_tensors_of_a_text_stay() -> None:
    model = families.build("bert")
    given = families.batch(token_type_ids=torch.ones_like(families.batch()["input_ids"]))
    found = whyformer.attribute(model, given, "occlusion", target=1, window=1)
    for row, length in enumerate(LENGTHS):
        expected = words_given_way(model, families.alone(given, row), lambda o: o.logits[0, 1])
        assert_near(found[row, :length], torch.tensor(expected, dtype=torch.float64), CAPTUM)
    assert not torch.allclose(found, whyformer.attribute(model, families.batch(), "occlusion", target=1, window=1))


@torch.no_grad()
def test_a_patch_of_an_image_gives_way_to_zeros() -> None:
    torch.manual_seed(7)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
    model = hf.ViTForImageClassification(hf.ViTConfig(**sizes, image_size=16, patch_size=4, num_labels=3)).eval()  # type: ignore[call-arg]
    model = model.double()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.25)
    pixels = torch.randn(2, 3, 16, 16, dtype=torch.float64)
    found = whyformer.attribute(model, {"pixel_values": pixels}, "occlusion", target=1, window=1)
    for row in range(2):
        whole = model(pixel_values=pixels[row : row + 1]).logits[0, 1]
        assert found[row, 0] == 0
        for patch in range(16):
            top, left = 4 * (patch // 4), 4 * (patch % 4)
            blank = pixels[row : row + 1].clone()
            blank[:, :, top : top + 4, left : left + 4] = 0
            drop = float(whole - model(pixel_values=blank).logits[0, 1])
            assert abs(float(found[row, 1 + patch]) - drop) < CAPTUM * float(found[row].abs().max())


@torch.no_grad()
def test_embeddings_without_tokens_give_way_to_zeros() -> None:
    model = families.build("gpt2")  # it knows no padding, and refuses batches of embeddings
    words = model.get_input_embeddings()(families.alone(families.batch(), 0)["input_ids"]).detach()
    given = {"inputs_embeds": words, "attention_mask": torch.ones(1, 9, dtype=torch.long)}
    found = whyformer.attribute(model, given, "occlusion", target=1, window=1, baseline="zero")
    whole = model(**given).logits[0, 1]
    for place in range(9):
        zero = words.clone()
        zero[0, place] = 0
        drop = float(whole - model(**{**given, "inputs_embeds": zero}).logits[0, 1])
        assert abs(float(found[0, place]) - drop) < CAPTUM * float(found.abs().max())


@torch.no_grad()
@pytest.mark.parametrize("family", ["bert", "gpt2", "bloom", "mistral"])
def test_a_zero_embedding_is_that_of_no_token(family: str) -> None:
    model = families.build(family)
    found = whyformer.attribute(model, families.batch(), "occlusion", target=1, window=1, baseline="zero")
    for row, length in enumerate(LENGTHS):
        alone = families.alone(families.batch(), row)
        words = model.get_input_embeddings()(alone["input_ids"]).detach()
        mask = {"attention_mask": alone["attention_mask"]}
        whole = model(inputs_embeds=words, **mask).logits[0, 1]
        for place in range(length):
            zero = words.clone()
            zero[0, place] = 0
            drop = float(whole - model(inputs_embeds=zero, **mask).logits[0, 1])
            assert abs(float(found[row, place]) - drop) < CAPTUM * float(found[row].abs().max())


@torch.no_grad()
@pytest.mark.parametrize("baseline", ["pad", "mask", "unk"])
def test_the_tokenizer_says_which_token_stands_in(baseline: str) -> None:
    explainer = whyformer.Explainer.load("sentiment")
    tokenizer, model = explainer.subject.tokenizer, explainer.subject.model
    found = explainer.explain("a witty film", "occlusion", window=1, baseline=baseline)
    given = tokenizer("a witty film", return_tensors="pt")
    target = model(**given).logits.argmax()
    changed = given["input_ids"].clone()
    changed[0, 2] = getattr(tokenizer, f"{baseline}_token_id")
    drop = model(**given).logits[0, target] - model(**{**given, "input_ids": changed}).logits[0, target]
    assert abs(found.scores[2] - float(drop)) < 1e-5
    assert found.scores[0] == found.scores[-1] == 0
    path = explainer.explain("a witty film", "integrated_gradients", baseline=baseline)
    everything = given["input_ids"].clone()
    everything[0, 1:4] = getattr(tokenizer, f"{baseline}_token_id")
    due = model(**given).logits[0, target] - model(**{**given, "input_ids": everything}).logits[0, target]
    assert abs(path.scores.sum() - float(due)) < 0.02 * abs(float(due))


# The stand-in takes the place of an embedding, and nothing else moves


@torch.no_grad()
def keeping_places(family: str, model: Any, alone: dict[str, Tensor], hidden: list[int]) -> float:
    """The first logit when these tokens give way to padding, with positions and reader as they were."""
    ids = alone["input_ids"].clone()
    ids[0, hidden] = families.PAD
    if family == "roberta":
        positions = torch.arange(1, 1 + ids.shape[1])[None]  # RoBERTa's begin after that of padding, which is 0 here
        return float(model(**{**alone, "input_ids": ids}, position_ids=positions).logits[0, TARGET])
    states = model.model(inputs_embeds=model.model.embed_tokens(ids)).last_hidden_state
    return float(model.score(states[:, -1])[0, TARGET])


@pytest.mark.parametrize("family", ["roberta", "llama", "qwen3"])
def test_padding_in_place_of_a_unit_moves_neither_positions_nor_reader(family: str) -> None:
    model = families.build(family)
    found = whyformer.attribute(model, families.batch(), "occlusion", target=TARGET, window=1)
    moved = 0.0
    for row, length in enumerate(LENGTHS):
        alone = families.alone(families.batch(), row)
        whole = keeping_places(family, model, alone, [])
        expected = [whole - keeping_places(family, model, alone, [place]) for place in range(length)]
        assert_near(found[row, :length], torch.tensor(expected, dtype=torch.float64), CAPTUM)
        by_ids = words_given_way(model, alone, lambda o: o.logits[0, TARGET])
        moved = max(moved, *(abs(a - b) for a, b in zip(by_ids, expected, strict=True)))
    assert moved > 0.01  # what token ids alone would say


@pytest.mark.parametrize("at", ["token_embeddings", "embedding_output"])
@pytest.mark.parametrize("family", ["roberta", "llama"])
def test_a_path_begins_where_padding_took_the_places(family: str, at: str) -> None:
    model = families.build(family)
    prediction = Prediction(model, batch_of(model, families.batch()), TARGET)
    found = whyformer.list_methods()["integrated_gradients"](prediction, steps=200, at=at)
    for row, length in enumerate(LENGTHS):
        alone = families.alone(families.batch(), row)
        ends = [keeping_places(family, model, alone, hidden) for hidden in ([], list(range(length)))]
        due = ends[0] - ends[1]
        assert abs(due) > 0.01
        assert abs(float(found.total[row].sum() - found.diagnostics["delta"][row]) - due) < 1e-10


@torch.no_grad()
@pytest.mark.parametrize("side", ["left", "inside"])
@pytest.mark.parametrize("family", ["bert", "gpt2", "llama"])
def test_units_behind_padding_keep_their_positions(family: str, side: str) -> None:
    model = families.build(family)
    mask = torch.tensor([[0, 0, 1, 1, 1, 1] if side == "left" else [1, 1, 0, 1, 1, 1]])
    ids = torch.tensor([[5, 6, 7, 8, 9, 10]]).masked_fill(mask == 0, families.PAD)
    given = {"input_ids": ids, "attention_mask": mask}
    words = model.get_input_embeddings()(ids)
    whole = model(inputs_embeds=words, attention_mask=mask).logits[0, 1]
    due = float(whole - model(inputs_embeds=words * 0, attention_mask=mask).logits[0, 1])
    assert abs(due) > 0.01
    for name, options in {"shapley_value_sampling": {"samples": 2}, "integrated_gradients": {"steps": 4}}.items():
        prediction = Prediction(model, batch_of(model, given), 1)
        found = whyformer.list_methods()[name](prediction, baseline="zero", **options)
        assert abs(float(found.total.sum() - found.diagnostics["delta"][0]) - due) < CAPTUM * abs(due)
        assert not found.total[prediction.padding].any()  # what BERT reads is none
