"""Stepwise, re-derived one text at a time with plain loops, and by hand from scores that are known."""

import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch
import transformers as hf
from torch import Tensor

import whyformer
from tests.helpers import families
from tests.helpers.cases import KINDS, PAIR, TEXTS, predicted, subject
from whyformer import BadInput, BadOption, Explainer, UnsupportedModel
from whyformer.inputs.batch import batch_of
from whyformer.methods.method import METHODS, Method, Scores
from whyformer.prediction import Prediction

LONG = TEXTS[2]
TARGET = 2


def stepwise(prediction: Prediction, **options: Any) -> Scores:
    return whyformer.list_methods()["stepwise"](prediction, **options)


class Literal:
    """One text, its numbers as the tokenizer gives them, and the steps taken one by one."""

    def __init__(self, text: Any, kind: str, target: int, versus: int | None, hide: str, units: str):
        self.own, self.target, self.versus, self.hide = subject(kind), target, versus, hide
        texts = (text,) if isinstance(text, str) else text
        given = self.own.tokenizer(*texts, return_special_tokens_mask=True, return_offsets_mapping=True)
        self.names = [n for n in ("input_ids", "attention_mask", "token_type_ids") if n in given]
        if "bert" not in type(self.own.model).__name__.lower():
            self.names = [n for n in self.names if n != "token_type_ids"]
        self.numbers = {name: given[name] for name in self.names}
        self.special, parts = given["special_tokens_mask"], given.sequence_ids()
        places = [p for p, special in enumerate(self.special) if not special]
        self.units = [[p] for p in places]
        if units == "word":
            self.units = []
            for p in places:
                start = given["offset_mapping"][p][0]
                text = texts[parts[p]]
                joined = start > 0 and text[start - 1].isalnum() and text[start].isalnum()
                if joined:
                    self.units[-1].append(p)
                else:
                    self.units.append([p])

    def inputs(self, gone: Sequence[int]) -> tuple[dict[str, Tensor], list[int]]:
        """What the model is given without some places, and which places those are."""
        length = len(self.special)
        rows = {name: list(row) for name, row in self.numbers.items()}
        kept = [p for p in range(length) if p not in gone] if self.hide == "delete" else list(range(length))
        tokenizer = self.own.tokenizer
        for p in gone if self.hide != "delete" else ():
            rows["input_ids"][p] = tokenizer.pad_token_id if "pad" in self.hide else tokenizer.mask_token_id
            if self.hide in ("pad", "mask_unattended"):
                rows["attention_mask"][p] = 0
        found = {name: torch.tensor([[row[p] for p in kept]]) for name, row in rows.items()}
        if not kept:
            found = {"input_ids": torch.tensor([[tokenizer.bos_token_id]]), "attention_mask": torch.ones(1, 1).long()}
        return found, kept

    def output(self, gone: Sequence[int]) -> float:
        with torch.no_grad():
            logits = self.own.model(**self.inputs(gone)[0]).logits[0]
        return float(logits[self.target] - (0 if self.versus is None else logits[self.versus]))

    def probability(self, gone: Sequence[int]) -> float:
        with torch.no_grad():
            logits = self.own.model(**self.inputs(gone)[0]).logits[0]
        return float(logits.softmax(-1)[self.target])

    def relevance(self, gone: Sequence[int], of: str, options: dict[str, Any]) -> dict[int, float]:
        """The score of each place that is left."""
        inputs, kept = self.inputs(gone)
        asked = {"target": self.target, **({"explains": "logit"} if self.versus is None else {"versus": self.versus})}
        scores = whyformer.attribute(self.own.model, inputs, of, **asked, **options)[0].tolist()
        return dict(zip(kept, scores, strict=True))

    def walk(self, steps: int, of: str, options: dict[str, Any]) -> dict[str, Any]:
        """The order of the units with their scores, and what was said after each step."""
        count, gone = len(self.units), []
        order: list[tuple[int, float, int]] = []
        outputs = [self.output([])] + [math.nan] * steps
        probabilities = [self.probability([])] + [math.nan] * steps
        for step in range(1, steps + 1):
            hidden = math.floor(step * count / steps + 0.5)
            if hidden == len(order):
                continue
            scores = self.relevance(gone, of, options)
            left = [n for n in range(count) if n not in [unit for unit, _, _ in order]]
            strength = {n: sum(scores[p] for p in self.units[n]) for n in left}
            while len(order) < hidden:
                best = left[0]
                for n in left:
                    if strength[n] > strength[best]:
                        best = n
                left.remove(best)
                order.append((best, strength[best], step))
                gone = gone + self.units[best]
            outputs[step], probabilities[step] = self.output(gone), self.probability(gone)
        return {"order": order, "outputs": outputs, "probabilities": probabilities}

    def scores(self, found: dict[str, Any], report: str) -> list[float]:
        values = [0.0] * len(self.special)
        order, outputs = found["order"], found["outputs"]
        if report == "order":
            for rank, (unit, _, _) in enumerate(order):
                for place in self.units[unit]:
                    values[place] = (len(order) - rank) / len(order)
            return values
        before = outputs[0]
        for step in sorted({step for _, _, step in order}):
            members = [(unit, score) for unit, score, own in order if own == step]
            total = sum(abs(score) for _, score in members)
            for unit, score in members:
                share = abs(score) / total if total else 1 / len(members)
                for place in self.units[unit]:
                    values[place] = (before - outputs[step]) * share / len(self.units[unit])
            before = outputs[step]
        return values


def outputs(scores: Scores) -> Tensor:
    """What was explained after each step, [batch, steps + 1]; of an answer the sum of both ends."""
    assert scores.seen is not None
    by_part = [[[math.nan if o is None else o for o in part.outputs] for part in parts] for parts in scores.seen]
    return torch.tensor(by_part, dtype=torch.float64).sum(1)


def assert_is_what_loops_find(text: Any, kind: str = "bert", versus: int | None = None, **options: Any) -> None:
    given = {"of": "layer_lrp", "steps": 3, "hide": "delete", "units": "token", "report": "order"} | options
    own = subject(kind)
    asked = {"explains": "logit"} if versus is None else {"versus": versus}
    e = Explainer(own).explain(text, "stepwise", target=TARGET, **asked, **options)
    literal = Literal(text, kind, TARGET, versus, given["hide"], given["units"])
    inner = {"attcat(states=inputs)": ("attcat", {"states": "inputs"})}.get(given["of"], (given["of"], {}))
    found = literal.walk(given["steps"], *inner)
    assert e.scores.tolist() == pytest.approx(literal.scores(found, given["report"]), abs=1e-10)
    said = [math.nan if value is None else value for value in e.seen[0].outputs]
    assert said == pytest.approx(found["outputs"], abs=1e-10, nan_ok=True)
    shares = [math.nan if value is None else value for value in e.seen[0].probability]
    assert shares == pytest.approx(found["probabilities"], abs=1e-10, nan_ok=True)
    assert e.diagnostics["evaluations"] == len({step for _, _, step in found["order"]}) + 1
    hidden_in = {place: step for unit, _, step in found["order"] for place in literal.units[unit]}
    assert list(e.seen[0].hidden_in) == [hidden_in.get(place, 0) for place in range(len(literal.special))]
    if whyformer.list_methods()[inner[0]].signed:
        signs = {p: (score > 0) - (score < 0) for unit, score, _ in found["order"] for p in literal.units[unit]}
        assert e.signs.tolist() == [signs.get(place, 0) for place in range(len(literal.special))]
    else:
        assert e.signs is None
    assert e.signed is (given["report"] == "drop")


@pytest.mark.parametrize("report", ["order", "drop"])
@pytest.mark.parametrize("units", ["token", "word"])
@pytest.mark.parametrize("hide", ["delete", "mask", "mask_unattended", "pad", "pad_attended"])
@pytest.mark.parametrize("text", [LONG, PAIR], ids=["text", "pair"])
def test_it_is_what_loops_find(text: Any, hide: str, units: str, report: str) -> None:
    assert_is_what_loops_find(text, hide=hide, units=units, report=report, steps=4)


@pytest.mark.parametrize("report", ["order", "drop"])
@pytest.mark.parametrize("steps", [1, 2, 7, 10, 40])
def test_any_number_of_steps(steps: int, report: str) -> None:
    for text in (TEXTS[0], "film", "a bad"):  # 40 steps are more than units, and so are 2 for one unit
        assert_is_what_loops_find(text, steps=steps, report=report)


@pytest.mark.parametrize(
    "of", ["attcat(states=inputs)", "cp_lrp", "layer_lrp", "transformer_attribution", "rollout", "gae"]
)
def test_of_any_method(of: str) -> None:
    assert_is_what_loops_find(LONG, of=of)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "bert_without_mask"])
@pytest.mark.parametrize("report", ["order", "drop"])
def test_any_kind_of_model(kind: str, report: str) -> None:
    """GPT-2 and Llama have no special token at the end, GPT-2 none at all: there the last step leaves BOS alone."""
    assert_is_what_loops_find(TEXTS[0], kind, report=report)


@pytest.mark.parametrize("report", ["order", "drop"])
def test_one_class_rather_than_another(report: str) -> None:
    assert_is_what_loops_find(LONG, versus=0, report=report)


@pytest.mark.parametrize("of", ["attn_lrp", "rollout", "random"])
@pytest.mark.parametrize("text", [LONG, PAIR], ids=["text", "pair"])
def test_one_step_has_the_order_of_the_method_itself(text: Any, of: str) -> None:
    explainer = Explainer(subject())
    e, one_pass = explainer.explain(text, "stepwise", of=of, steps=1), explainer.explain(text, of)
    assert e.ranked == one_pass.ranked
    count = len(e.ranked)
    assert [e.scores[i] for i in e.ranked] == pytest.approx([(count - n) / count for n in range(count)])


@pytest.mark.parametrize("steps", [2, 5])
@pytest.mark.parametrize("hide", ["delete", "mask"])
@pytest.mark.parametrize("units", ["token", "word"])
def test_drops_add_up_to_what_is_lost(units: str, hide: str, steps: int) -> None:
    prediction = predicted([*TEXTS, PAIR], target=TARGET)
    scores = stepwise(prediction, report="drop", units=units, hide=hide, steps=steps)
    said = outputs(scores)
    last = torch.stack([row[~row.isnan()][-1] for row in said])
    torch.testing.assert_close(scores.total.sum(1), said[:, 0] - last, rtol=0, atol=1e-10)
    torch.testing.assert_close(said[:, 0], prediction.trace.logits[:, TARGET].detach(), rtol=0, atol=1e-12)


def test_orders_are_strict_and_between_0_and_1() -> None:
    scores = stepwise(predicted(TEXTS)).total
    for row, length in zip(scores, (6, 3, 15, 3), strict=True):
        own = sorted(row[row > 0].tolist(), reverse=True)
        assert len(own) >= length
        assert own == pytest.approx([(len(own) - n) / len(own) for n in range(len(own))])


# By hand: a method whose scores are known for every state of the text.


@pytest.fixture
def by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    def told(prediction: Prediction) -> Tensor:
        """Of the tokens 11 … 16: the lowest first; once 11 is gone the highest first, and 15 speaks against."""
        ids = prediction.batch.tensors["input_ids"].double()
        whole = (ids == 11).any(1, keepdim=True)
        return torch.where(whole, 20 - ids, torch.where(ids == 15, -ids, ids))

    made = Method("told", told, "test", signed=True, class_specific=True, paper="-")
    monkeypatch.setattr(METHODS, "known", {**METHODS.known, "told": made})


@pytest.mark.usefixtures("by_hand")
@pytest.mark.parametrize(
    ("steps", "order"),
    [
        (1, [11, 12, 13, 14, 15, 16]),
        (2, [11, 12, 13, 16, 14, 15]),
        (3, [11, 12, 16, 14, 13, 15]),
        (4, [11, 12, 16, 14, 13, 15]),  # 1.5, 3, 4.5, 6: half up
        (6, [11, 16, 14, 13, 12, 15]),
        (100, [11, 16, 14, 13, 12, 15]),
    ],
)
def test_the_order_by_hand(steps: int, order: list[int]) -> None:
    inputs = {
        "input_ids": torch.tensor([[1, 14, 12, 16, 11, 13, 15, 2]]),
        "attention_mask": torch.ones(1, 8, dtype=torch.long),
        "special_tokens_mask": torch.tensor([[1, 0, 0, 0, 0, 0, 0, 1]]),
    }
    model = families.build("bert")
    found = stepwise(Prediction(model, batch_of(model, inputs), 1), of="told", steps=steps)
    ids = inputs["input_ids"][0].tolist()
    ranks = {n: (6 - rank) / 6 for rank, n in enumerate(order)}
    assert found.total[0].tolist() == pytest.approx([ranks.get(n, 0.0) for n in ids])
    against = 15 if steps > 1 else None
    signs = [0 if n in (1, 2) else -1 if n == against else 1 for n in ids]
    assert found.signs[0].tolist() == signs


@pytest.mark.usefixtures("by_hand")
def test_ties_go_in_order_of_position_and_share_equally(monkeypatch: pytest.MonkeyPatch) -> None:
    nothing = Method("nothing", lambda p: torch.zeros_like(p.real), "test", True, True, "-")
    monkeypatch.setitem(METHODS.known, "nothing", nothing)
    e = Explainer(subject()).explain(TEXTS[0], "stepwise", of="nothing", steps=2)
    assert e.ranked == sorted(e.ranked)
    dropped = Explainer(subject()).explain(TEXTS[0], "stepwise", of="nothing", steps=2, report="drop")
    said = dropped.seen[0].outputs
    half = len(dropped.ranked) // 2
    places = sorted(dropped.ranked)
    assert dropped.scores[places[:half]].tolist() == pytest.approx([(said[0] - said[1]) / half] * half)
    assert dropped.scores[places[half:]].tolist() == pytest.approx([(said[1] - said[2]) / half] * half)
    assert dropped.signs.tolist() == [0] * len(dropped.units)


# Answers and next tokens: the output is said at a position, which moves when tokens are deleted.


def build(kind: Any) -> Any:
    torch.manual_seed(3)
    name = "llama" if "Llama" in kind.__name__ else "bert"
    model = kind(families.CONFIGS[name]())
    for parameter in model.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.3)
    return model.double().eval()


def test_the_start_of_an_answer_moves_with_what_is_deleted() -> None:
    model, inputs = build(hf.BertForQuestionAnswering), families.batch((9,))
    start = 5
    found = stepwise(Prediction(model, batch_of(model, inputs), (start, None)), steps=4)
    ids, left, order = inputs["input_ids"][0].tolist(), list(range(9)), []
    for step in range(1, 5):
        given = {"input_ids": torch.tensor([[ids[p] for p in left]])}
        scores = whyformer.attribute(model, given, "layer_lrp", target=(left.index(start), None))[0].tolist()
        with torch.no_grad():
            logit = float(model(**given).start_logits[0, left.index(start)])
        assert float(outputs(found)[0, step - 1]) == pytest.approx(logit, abs=1e-10)
        ranked = sorted((n for n, p in enumerate(left) if p != start), key=lambda n: -scores[n])
        gone = [left[n] for n in ranked[: math.floor(step * 8 / 4 + 0.5) - len(order)]]
        order += gone
        left = [p for p in left if p not in gone]
    assert left == [start]
    expected = [0.0] * 9
    for rank, place in enumerate(order):
        expected[place] = (8 - rank) / 8
    assert found.total[0].tolist() == pytest.approx(expected)
    assert found.seen[0][0].probabilities is None


def test_a_token_in_its_place_leaves_an_answer_where_it_is() -> None:
    model, inputs = build(hf.BertForQuestionAnswering), families.batch((9,))
    found = stepwise(Prediction(model, batch_of(model, inputs), (5, None)), steps=3, hide="pad_attended")
    assert bool((found.total > 0).all())  # the answer's own token has its turn too
    with torch.no_grad():
        nothing = model(torch.zeros_like(inputs["input_ids"])).start_logits[0, 5]
    assert float(outputs(found)[0, -1]) == pytest.approx(float(nothing), abs=1e-10)


def test_the_scores_of_an_answer_are_the_sum_of_both_ends() -> None:
    model, inputs = build(hf.BertForQuestionAnswering), families.batch()
    given = {"report": "drop", "steps": 3}
    both = stepwise(Prediction(model, batch_of(model, inputs), (2, 4)), **given)
    said = outputs(both)
    torch.testing.assert_close(both.total.sum(1), said[:, 0] - said[:, -1], rtol=0, atol=1e-10)
    assert both.diagnostics["evaluations"].tolist() == [8, 8, 8]


def test_what_stands_behind_a_next_token_is_not_hidden() -> None:
    model, inputs = build(hf.LlamaForCausalLM), families.batch((9,))
    found = stepwise(Prediction(model, batch_of(model, inputs), (7, 5)), steps=2)
    assert found.total[0, 5:].tolist() == [0, 0, 0, 0]
    cut = {name: tensor[:, :6] for name, tensor in inputs.items()}
    short = stepwise(Prediction(model, batch_of(model, cut), 7), steps=2)
    torch.testing.assert_close(found.total[0, :6], short.total[0], rtol=0, atol=1e-12)


# What is refused


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"of": "stepwise"}, "stepwise cannot be made of itself"),
        ({"of": "stepwise(steps=2)"}, "stepwise cannot be made of itself"),
        ({"of": "rollot"}, "there is no method 'rollot'; did you mean 'rollout'"),
        ({"of": "attcat(state=inputs)"}, "attcat has no option 'state'"),
        ({"of": "rollout", "report": "drop"}, "rollout does not know the target"),
        ({"steps": 0}, "option steps takes a whole number from 1 to 10000; found 0"),
        ({"hide": "mask", "kind": "gpt2"}, None),  # the unknown token stands in
    ],
)
def test_what_is_refused_by_name(options: dict[str, Any], message: str | None) -> None:
    kind = options.pop("kind", "bert") if message is None else "bert"
    explainer = Explainer(subject(kind))
    if message is None:
        assert explainer.explain(LONG, "stepwise", **options).scores.any()
        return
    with pytest.raises(BadOption, match=message.replace("(", r"\(").replace(")", r"\)")):
        explainer.explain(LONG, "stepwise", **options)


def test_words_need_texts() -> None:
    with pytest.raises(BadInput, match="words need texts"):
        whyformer.attribute(families.build("bert"), families.batch(), "stepwise", units="word")


def test_a_mask_needs_a_tokenizer_that_has_one() -> None:
    with pytest.raises(BadOption, match="has no mask or unknown token"):
        whyformer.attribute(families.build("bert"), families.batch(), "stepwise", hide="mask")


def test_patches_of_an_image_are_hidden_step_by_step() -> None:
    model = hf.ViTForImageClassification(
        hf.ViTConfig(
            hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8, image_size=8, patch_size=4
        )
    )
    torch.manual_seed(0)
    pixels = torch.randn(2, 3, 8, 8)
    found = whyformer.attribute(model, {"pixel_values": pixels}, "stepwise", of="rollout", steps=2)
    for image, scores in zip(pixels[:, None], found, strict=True):
        first = whyformer.attribute(model, {"pixel_values": image}, "rollout")[0, 1:]
        gone = first.argsort(descending=True)[:2]
        covered = image.clone()
        for patch in gone.tolist():
            row, column = divmod(patch, 2)
            covered[0, :, 4 * row : 4 * row + 4, 4 * column : 4 * column + 4] = image.mean((2, 3))[0][:, None, None]
        then = whyformer.attribute(model, {"pixel_values": covered}, "rollout")[0, 1:]
        left = [patch for patch in then.argsort(descending=True).tolist() if patch not in gone.tolist()]
        assert scores[1:].argsort(descending=True).tolist() == [*gone.tolist(), *left]
        assert scores[0] == 0  # [CLS] has no pixels


def test_a_model_that_does_not_run_on_what_is_left_is_named() -> None:
    sizes = {"d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2}
    more = {"decoder_attention_heads": 2, "encoder_ffn_dim": 16, "decoder_ffn_dim": 16, "vocab_size": 60}
    model = hf.BartForSequenceClassification(hf.BartConfig(**sizes, **more)).double().eval()
    ids = torch.tensor([[0, 5, 6, 7, 8, 2]])
    mask = torch.ones_like(ids)
    with pytest.raises(UnsupportedModel, match=r"does not run on a text with units hidden .*special_tokens_mask"):
        whyformer.attribute(model, {"input_ids": ids, "attention_mask": mask}, "stepwise", of="input_x_gradient")
    special = torch.tensor([[1, 0, 0, 0, 0, 1]])
    given = {"input_ids": ids, "attention_mask": mask, "special_tokens_mask": special}
    scores = whyformer.attribute(model, given, "stepwise", of="input_x_gradient")
    assert sorted(scores[0].tolist()) == [0, 0, 0.25, 0.5, 0.75, 1]
