"""Mask-LRP once more: a tiny BERT's relevance written out step by step, with sums over single heads in loops."""

import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import transformers as hf
from torch import Tensor

import whyformer
from tests.helpers import families
from whyformer.inputs.batch import batch_of
from whyformer.methods.head_mask import RELATIONS, HeadMask, HeadStatistics
from whyformer.models.load import bundled_models
from whyformer.prediction import Prediction
from whyformer.recorder.lrp.head_gate import HeadGate
from whyformer.recorder.lrp.sites import Site, make_site
from whyformer.tolerance import close

TARGET = 2
STABILIZED = 1e-6  # the rules divide by sums plus 1e-9
SOME = [[1, 0, 0, 1], [0, 1, 1, 0]]
KINDS = [[[1, 0, 0, 0], [0, 1, 0, 1]], [[1, 0, 1, 0], [0, 0, 1, 0]]]  # syntactic, then positional; one head is both
FAMILIES = ("bert", "albert", "deberta_v2", "modernbert_mean", "gpt2", "bloom", "mistral", "gemma2")


def divide(a: Tensor, b: Tensor) -> Tensor:
    return torch.where(b == 0, torch.zeros_like(b), a / (b + 1e-9))


def through_linear(x: Tensor, layer: Any, relevance: Tensor) -> Tensor:
    plus, minus = (x.clamp(min=0), layer.weight.clamp(min=0)), (x.clamp(max=0), layer.weight.clamp(max=0))
    shares = divide(relevance, plus[0] @ plus[1].T + minus[0] @ minus[1].T)
    return plus[0] * (shares @ plus[1]) + minus[0] * (shares @ minus[1])


def through_sum(a: Tensor, b: Tensor, relevance: Tensor) -> tuple[Tensor, Tensor]:
    parts = [part * divide(relevance, a + b) for part in (a, b)]
    sizes = [abs(float(part.sum())) for part in parts]
    wanted = [size / sum(sizes) * float(relevance.sum()) for size in sizes]
    return parts[0] * (wanted[0] / float(parts[0].sum())), parts[1] * (wanted[1] / float(parts[1].sum()))


def through_product(a: Tensor, b: Tensor, relevance: Tensor) -> tuple[Tensor, Tensor]:
    """`a @ b`, half to each."""
    shares = divide(relevance, a @ b)
    return a * (shares @ b.T) / 2, b * (a.T @ shares) / 2


class Bert:
    """One text through a BERT classifier in plain steps, with what each step needs on the way back."""

    def __init__(self, model: Any, ids: Tensor) -> None:
        self.model, self.heads = model, model.config.num_attention_heads
        state = model.bert.embeddings(ids)[0].detach().requires_grad_()
        self.attention: list[Tensor] = []
        self.steps: list[dict[str, Tensor]] = []
        for layer in model.bert.encoder.layer:
            state = self._layer(layer, state)
        self.last = state
        self.pooled = torch.tanh(model.bert.pooler.dense(state[0]))
        self.logits = model.classifier(self.pooled)

    def _layer(self, layer: Any, state: Tensor) -> Tensor:
        own = layer.attention.self
        q, k, v = own.query(state), own.key(state), own.value(state)
        split = lambda x: x.view(len(x), self.heads, -1).transpose(0, 1)  # noqa: E731
        scores = split(q) @ split(k).mT / math.sqrt(q.shape[1] // self.heads)
        attention = scores.softmax(-1)
        self.attention.append(attention)
        context = (attention @ split(v)).transpose(0, 1).reshape(q.shape)
        gathered = layer.attention.output.dense(context)
        middle = layer.attention.output.LayerNorm(gathered + state)
        hidden = F.gelu(layer.intermediate.dense(middle))
        written = layer.output.dense(hidden)
        self.steps.append(
            {"state": state, "q": split(q), "k": split(k), "v": split(v), "context": context, "gathered": gathered}
            | {"middle": middle, "hidden": hidden, "written": written}
        )
        result: Tensor = layer.output.LayerNorm(written + middle)
        return result

    @torch.no_grad()
    def relevances(self, mask: Any, kinds: Any = None) -> list[Tensor]:
        """The relevance of each attention map, [heads, queries, keys], through the heads of a mask."""
        start = torch.zeros_like(self.logits)
        start[TARGET] = 1
        pooled = through_linear(self.pooled, self.model.classifier, start)
        relevance = torch.zeros_like(self.last)
        relevance[0] = through_linear(self.last[0], self.model.bert.pooler.dense, pooled)
        maps: list[Tensor] = []
        for number in reversed(range(len(self.steps))):
            layer, s = self.model.bert.encoder.layer[number], self.steps[number]
            written, direct = through_sum(s["written"], s["middle"], relevance)
            hidden = through_linear(s["hidden"], layer.output.dense, written)
            middle = direct + through_linear(s["middle"], layer.intermediate.dense, hidden)
            gathered, residual = through_sum(s["gathered"], s["state"], middle)
            arrived = through_linear(s["context"], layer.attention.output.dense, gathered)
            arrived = arrived.view(len(arrived), self.heads, -1).transpose(0, 1)
            entering = (
                literal_joint(arrived, mask[number]) if kinds is None else literal_separate(arrived, kinds, number)
            )
            found, below = self._attention(s, layer.attention.self, number, entering)
            maps.insert(0, found)
            relevance = residual + below
        return maps

    def _attention(self, s: dict[str, Tensor], own: Any, number: int, entering: Tensor) -> tuple[Tensor, Tensor]:
        maps, parts = [], {"q": [], "k": [], "v": []}  # type: ignore[var-annotated]
        for head in range(self.heads):
            found, v = through_product(self.attention[number][head], s["v"][head], entering[head])
            q, k = through_product(s["q"][head] / math.sqrt(s["q"].shape[-1]), s["k"][head].T, found)
            maps.append(found)
            for name, part in (("q", q), ("k", k.T), ("v", v)):
                parts[name].append(part)
        below = torch.zeros_like(s["state"])
        for name, layer in (("q", own.query), ("k", own.key), ("v", own.value)):
            below += through_linear(s["state"], layer, torch.cat(parts[name], -1))
        return torch.stack(maps), below

    def scores(self, maps: list[Tensor]) -> Tensor:
        gradients = torch.autograd.grad(self.logits[TARGET], self.attention, retain_graph=True)
        row = torch.zeros(len(self.last), dtype=torch.float64)
        row[0] = 1
        for gradient, relevance in reversed(list(zip(gradients, maps, strict=True))):
            mean = torch.zeros_like(gradient[0])
            for head in range(self.heads):
                mean += (gradient[head] * relevance[head]).clamp(min=0) / self.heads
            row = row @ (torch.eye(len(row), dtype=torch.float64) + mean)
        return row


def literal_joint(arrived: Tensor, kept: list[int]) -> Tensor:
    through = sum(float(arrived[head].sum()) for head in range(len(arrived)) if kept[head])
    factor = float(arrived.sum()) / through if through else 0.0
    return torch.stack([arrived[head] * kept[head] * factor for head in range(len(arrived))])


def literal_separate(arrived: Tensor, kinds: Any, number: int) -> Tensor:
    """§4.3 to the letter: a head of both kinds counts twice."""
    sums = [sum(float(arrived[h].sum()) for h in range(len(arrived)) if kind[number][h]) for kind in kinds]
    factors = [math.copysign(1, s) * float(arrived.sum()) / abs(sum(sums)) for s in sums]
    weights = [sum(f * kind[number][h] for f, kind in zip(factors, kinds, strict=True)) for h in range(len(arrived))]
    return torch.stack([arrived[h] * weights[h] for h in range(len(arrived))])


def bert() -> tuple[Any, dict[str, Tensor]]:
    return families.build("bert"), families.alone(families.batch(), 0)


def explained(mask: Any, family: str = "bert", target: int = TARGET, **options: Any) -> Any:
    model = families.build(family)
    prediction = Prediction(model, batch_of(model, families.batch()), target, relevance=True)
    return whyformer.list_methods()["mask_lrp"](prediction, head_mask=mask, **options)


@pytest.mark.parametrize("mask", [SOME, [[1] * 4] * 2, [[1, 1, 0, 1], [0, 0, 0, 1]], [[1, 0, 1, 0], [0] * 4]], ids=str)
def test_scores(mask: Any) -> None:
    model, inputs = bert()
    literal = Bert(model, inputs["input_ids"])
    expected = literal.scores(literal.relevances(mask))
    assert close(whyformer.attribute(model, inputs, "mask_lrp", target=TARGET, head_mask=mask)[0], expected)
    wrong = literal.scores(literal.relevances([mask[1], mask[0]]))
    assert mask[0] == mask[1] or not close(wrong, expected)


def test_scores_with_each_kind_rescaled_to_the_letter() -> None:
    model, inputs = bert()
    literal = Bert(model, inputs["input_ids"])
    expected = literal.scores(literal.relevances(None, KINDS))
    options = {"head_mask": KINDS, "rescale": "separate", "weights": "sum"}
    assert close(whyformer.attribute(model, inputs, "mask_lrp", target=TARGET, **options)[0], expected)


def test_heads_of_both_kinds_count_once_unless_they_are_summed() -> None:
    kinds = torch.tensor(KINDS)
    once, twice = explained(kinds).total, explained(kinds, weights="sum").total
    assert close(once, explained(kinds.any(0)).total)
    assert not torch.allclose(once, twice)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_sum_is_kept_in_every_block_with_a_kept_head(family: str) -> None:
    model = families.build(family)
    prediction = Prediction(model, batch_of(model, families.batch()), TARGET, relevance=True)
    layers = len(prediction.attention)
    mask = torch.tensor([[1, 0, 0, 1], [0, 1, 1, 0], [0, 0, 1, 1]])[:layers]
    gate, sums = HeadGate(mask.double()[None], rescaled=True), {}

    def entering(layer: int, site: Site, relevance: Tensor) -> Tensor:
        passed = gate(layer, site, relevance)
        sums[layer] = [r.reshape(len(prediction.target), -1).sum(1) for r in (relevance, passed)]
        kept = site.by_head(passed).abs().sum((0, 2, 3)) > 0
        assert kept.tolist() == mask[layer].bool().tolist()
        return passed

    found = prediction.relevances(prediction.traced.gated("z_plus", entering))
    assert sorted(sums) == list(range(layers))
    for before, after in sums.values():
        assert (before - after).abs().max() <= STABILIZED
    assert found.state is not None
    assert (found.state.flatten(1).sum(1) + found.absorbed - 1).abs().max() <= STABILIZED


@pytest.mark.parametrize("family", families.ALL)
def test_all_heads_are_transformer_attribution(family: str) -> None:
    model, inputs = families.build(family), families.batch()
    layers = 3 if family == "albert" else 2
    whole = whyformer.attribute(model, inputs, "transformer_attribution", target=TARGET)
    for options in ({"head_mask": torch.ones(layers, 4)}, {"head_mask": "off"}, {"head_mask": [[0, 1, 0, 1]] * layers}):
        found = whyformer.attribute(model, inputs, "mask_lrp", target=TARGET, **options)
        assert close(found, whole, families.arithmetic(family)) == (options["head_mask"] != [[0, 1, 0, 1]] * layers)
    corrupted = {"head_mask": [[0, 1, 0, 1]] * layers, "corrupted": 1.0}
    assert close(
        whyformer.attribute(model, inputs, "mask_lrp", target=TARGET, **corrupted), whole, families.arithmetic(family)
    )


@pytest.mark.parametrize("family", FAMILIES)
def test_masking_heads_of_the_first_block_changes_the_scores(family: str) -> None:
    mask = torch.ones(3 if family == "albert" else 2, 4)
    mask[0, 1:3] = 0
    whole, masked = explained(torch.ones_like(mask), family).total, explained(mask, family).total
    assert not torch.allclose(whole, masked, rtol=1e-3)
    authors = explained(mask, family, variant="authors").total
    assert close(
        authors, explained(torch.ones_like(mask), family, variant="authors").total, families.arithmetic(family)
    )


@pytest.mark.parametrize("variant", ["paper", "authors"])
@pytest.mark.parametrize("family", FAMILIES)
def test_an_example_scores_the_same_alone_as_in_a_batch(family: str, variant: str) -> None:
    mask = [[1, 0, 0, 1], [0, 1, 1, 0], [0, 0, 1, 1]][: 3 if family == "albert" else 2]
    model, inputs = families.build(family), families.batch((9, 5))
    options = {"target": TARGET, "head_mask": mask, "variant": variant}
    together = whyformer.attribute(model, inputs, "mask_lrp", **options)
    for row in range(2):
        single = families.alone(inputs, row)
        alone = whyformer.attribute(model, single, "mask_lrp", **options)[0]
        allowed = 1e-6 if families.arithmetic(family) == torch.float32 else 1e-10
        assert (together[row, : len(alone)] - alone).abs().max() <= allowed * alone.abs().max()


def test_a_block_with_no_kept_head_contributes_nothing_and_says_so() -> None:
    whole, closed = explained([[1] * 4, SOME[1]]), explained([[0] * 4, SOME[1]])
    heads = closed.diagnostics["heads"]
    assert heads["kept"] == [0, 2]
    assert heads["closed_blocks"].tolist() == [1, 1, 1]
    assert not whole.diagnostics["heads"]["closed_blocks"].any()
    model, inputs = bert()
    literal = Bert(model, inputs["input_ids"])
    maps = literal.relevances([[1] * 4, SOME[1]])
    assert close(closed.total[0], literal.scores([torch.zeros_like(maps[0]), maps[1]]))
    sums = maps[0].sum() * 2  # half of what entered went to the values
    assert abs(heads["lost"][0] - sums) <= STABILIZED
    last = explained([[1] * 4, [0] * 4]).diagnostics
    kept = last["conservation"]
    assert (kept["sum"] - kept["expected"]).abs().max() <= STABILIZED
    assert (kept["expected"] - (1 - last["heads"]["lost"])).abs().max() <= 1e-12


def gated(by_head: list[list[float]], weights: Any) -> tuple[Tensor, dict[str, Any]]:
    """Hand-made relevance [batch, heads] through a gate; what passes, [batch, heads], and the report."""
    relevance = torch.tensor(by_head, dtype=torch.float64)[:, :, None, None]
    operands = [torch.ones_like(relevance).requires_grad_() for _ in range(2)]
    _, site = make_site("attend", torch.matmul, operands, "test", len(by_head))
    assert site is not None
    gate = HeadGate(torch.tensor(weights, dtype=torch.float64)[:, None], rescaled=True)
    return gate(0, site, relevance)[:, :, 0, 0], gate.report


def test_odd_factors_are_reported() -> None:
    passed, report = gated([[3, 1, 2], [-1, 1, 3], [0.1, 4, 5], [1, 1, -1], [0, 2, 0]], [[1, 0, 0]])
    expected = [[6, 0, 0], [3, 0, 0], [9.1, 0, 0], [1, 0, 0], [0, 0, 0]]
    torch.testing.assert_close(passed, torch.tensor(expected, dtype=torch.float64))
    assert report["negative_factors"].tolist() == [0, 1, 0, 0, 0]
    assert report["factors_above_10"].tolist() == [0, 0, 1, 0, 0]
    assert report["closed_blocks"].tolist() == [0, 0, 0, 0, 1]
    torch.testing.assert_close(report["lost"], torch.tensor([0, 0, 0, 0, 2.0], dtype=torch.float64))
    assert not report["opposite_signs"].any()


def test_kinds_of_opposite_sign_do_not_conserve_and_are_reported() -> None:
    passed, report = gated([[3, 1, 2], [3, -1, 2]], [[1, 0, 0], [0, 1, 0]])
    torch.testing.assert_close(passed, torch.tensor([[4.5, 1.5, 0], [6, 2, 0]], dtype=torch.float64))
    assert report["opposite_signs"].tolist() == [0, 1]
    torch.testing.assert_close(report["lost"], torch.tensor([0, -4.0], dtype=torch.float64))


def tiny(kind: Any, config: Any) -> Any:
    torch.manual_seed(3)
    return kind.from_config(config).double().eval()


def test_one_kind_of_heads_alone() -> None:
    model, inputs = families.build("bert"), families.batch()
    for number, kind in enumerate(("syntactic", "positional")):
        found = whyformer.attribute(model, inputs, "mask_lrp", head_mask=KINDS, only=kind, target=TARGET)
        alone = whyformer.attribute(model, inputs, "mask_lrp", head_mask=KINDS[number], target=TARGET)
        assert close(found, alone)
    both = whyformer.attribute(model, inputs, "mask_lrp", head_mask=KINDS, target=TARGET)
    assert not torch.allclose(found, both)
    with pytest.raises(whyformer.errors.BadOption, match="tells only which are kept"):
        whyformer.attribute(model, inputs, "mask_lrp", head_mask=SOME, only="syntactic")
    none = [[0] * 4] * 2
    with pytest.raises(whyformer.errors.BadOption, match="no positional ones"):
        whyformer.attribute(model, inputs, "mask_lrp", head_mask=[SOME, none], only="positional")


def test_answers_and_language_models() -> None:
    ids = families.batch((8,))
    answers = tiny(hf.AutoModelForQuestionAnswering, families.CONFIGS["bert"]())
    scores = [
        whyformer.attribute(answers, ids, "mask_lrp", target=[target], head_mask=SOME)
        for target in ((2, 5), (2, None), (None, 5))
    ]
    torch.testing.assert_close(scores[0], scores[1] + scores[2])
    causal = tiny(hf.AutoModelForCausalLM, families.CONFIGS["llama"]())
    some, whole = (whyformer.attribute(causal, ids, "mask_lrp", target=7, head_mask=m) for m in (SOME, "off"))
    assert not torch.allclose(some, whole)
    torch.testing.assert_close(whole, whyformer.attribute(causal, ids, "transformer_attribution", target=7))


def test_random_masks_keep_their_share_and_follow_the_seed() -> None:
    first, again, other = (explained("random", rate=0.5, seed=seed) for seed in (1, 1, 2))
    assert sum(first.diagnostics["heads"]["kept"]) == 4
    assert close(first.total, again.total)
    assert not close(first.total, other.total)
    more = explained(SOME, corrupted=0.5, seed=1).diagnostics["heads"]["kept"]
    assert sum(more) == 4 + 2


def stored() -> HeadMask:
    """A mask of made-up statistics: the heads of `KINDS[0]` find every arc, those of `KINDS[1]` look one word back."""
    syntactic, positional = np.array(KINDS)
    hits = np.zeros((2, 2, 4, len(RELATIONS)), dtype=np.int64)
    hits[0, :, :, 1] = 4 * syntactic
    arcs = ({}, {-1: 2, 1: 2}, {}, {})
    return HeadMask.of(HeadStatistics(-positional, 10 * positional, 10, hits, arcs, 3))


def test_a_mask_made_by_heads_is_read_from_its_file(tmp_path: Path) -> None:
    mask, path = stored(), tmp_path / "heads.json"
    mask.save(path)
    assert mask.kept.tolist() == torch.tensor(KINDS).any(0).tolist()
    for options in ({}, {"weights": "sum"}, {"rescale": "separate"}, {"variant": "authors"}):
        found = explained(path, **options).total
        assert close(found, explained(str(path), **options).total)
        assert close(found, explained(torch.tensor(KINDS), **options).total)
    assert close(explained(path).total, explained(mask.kept).total)
    half = mask.corrupted(0.5, 3)
    assert close(explained(path, corrupted=0.5, seed=3).total, explained(half.tensor()).total)
    mask.only("positional").save(path)
    assert close(explained(path, rescale="separate").total, explained(KINDS[1]).total)
    mask.random(5).save(path)
    assert close(explained(path).total, explained(mask.random(5).kept).total)
    with pytest.raises(whyformer.BadOption, match="which positional"):
        explained(path, weights="sum")


def test_the_mask_of_a_bundled_model_is_its_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, folder = families.build("bert"), tmp_path / "tiny"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    for module in ("whyformer.methods.default", bundled_models.__module__):
        monkeypatch.setattr(sys.modules[module], "BUNDLED", tmp_path)
    monkeypatch.setattr(model.config, "_name_or_path", str(folder))
    with pytest.raises(whyformer.BadOption, match="comes with none"):
        explained(None)
    stored().save(folder / "heads.json")
    assert close(explained(None).total, explained(KINDS).total)
    assert close(explained("random", seed=2).total, explained(stored().random(2).kept).total)


BAD: list[tuple[dict[str, Any], str]] = [
    ({}, "whyformer heads --model"),
    ({"head_mask": "random"}, "rate=0.3"),
    ({"head_mask": "random", "rate": 1.5}, "found 1.5"),
    ({"head_mask": SOME, "rate": 0.5}, "head_mask='random'"),
    ({"head_mask": SOME, "corrupted": 2.0}, "found 2.0"),
    ({"head_mask": ((1,) * 4,) * 3}, "for 3 layers"),
    ({"head_mask": [[1] * 4] * 3}, "for 3 layers of 4 heads, and the model has 2 of 4"),
    ({"head_mask": [[1] * 12] * 2}, "for 2 layers of 12 heads"),
    ({"head_mask": [1, 0]}, "shape"),
    ({"head_mask": [[1, 0], [1]]}, "different lengths"),
    ({"head_mask": [[0.5] * 4] * 2}, "other numbers than 0 and 1"),
    ({"head_mask": SOME, "rescale": "separate"}, "which positional"),
    ({"head_mask": SOME, "weights": "sum"}, "which positional"),
    ({"head_mask": KINDS, "rescale": "separate", "variant": "authors"}, "rescales nothing"),
    ({"head_mask": 3}, "rows of numbers"),
]


@pytest.mark.parametrize(("options", "said"), BAD, ids=str)
def test_a_bad_mask_is_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(whyformer.BadOption, match=said):
        whyformer.attribute(families.build("bert"), families.batch(), "mask_lrp", **options)
