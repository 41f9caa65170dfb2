"""What once went wrong around stepwise: words by the sum of ranks, keys without the layer, parts added up."""

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as hf

import whyformer
from tests.helpers import families
from tests.helpers.cases import TEXTS, subject
from whyformer import Explainer
from whyformer.errors import BadOption
from whyformer.evaluation.recommend import recommend
from whyformer.inputs.batch import batch_of
from whyformer.methods import default
from whyformer.methods.default import methods_for
from whyformer.methods.method import method_specs
from whyformer.prediction import Prediction

LONG_WORDS = "an unbelievably overwrought, charmless, unfunny snoozefest, yet gorgeous"


@pytest.mark.slow
def test_tokens_and_words_stand_in_the_order_in_which_words_went() -> None:
    explainer = Explainer.load("sentiment")
    e = explainer.explain(LONG_WORDS, "stepwise", steps=10, units="word")
    spans = [(word.unit.span or (0, 0)) for word in e.words()]
    starts = [unit.span[0] for unit in e.units if unit.span]
    assert max(sum(start <= own < end for own in starts) for start, end in spans) > 2  # a word of many pieces
    words = sorted(e.words(), key=lambda word: -(word.score or 0))
    count = len(words)
    assert [word.score for word in words] == pytest.approx([(count - rank) / count for rank in range(count)])
    first, top = words[0].unit.span or (0, 0), e.top(1)[0].unit.span or (0, 0)
    assert first[0] <= top[0] < first[1]
    merged = e.by_word()
    assert merged.signs is not None
    assert len(merged.signs) == len(merged.units)
    assert merged.seen == e.seen  # of tokens
    by_step = [e.seen[0].hidden_in[i] for i in e.ranked]
    assert by_step == sorted(by_step)


def test_word_metrics_take_the_highest_token_of_ranks() -> None:
    own = subject()
    e = Explainer(own).explain(TEXTS[2], "stepwise", steps=5)
    tokens = {word.text: word.score for word in e.words("max")}
    assert {word.text: word.score for word in e.words()} == tokens
    signed = Explainer(own).explain(TEXTS[2], "attn_lrp")
    assert [w.score for w in signed.words()] == [w.score for w in signed.words("sum")]


def test_keys_know_the_layer_that_is_best_inside_another_method(monkeypatch: pytest.MonkeyPatch) -> None:
    own = subject()
    written = ["stepwise(of=decoded_grad_cam(layer=best, decode=false, score=saliency))"]
    facts = []
    for layer in (1, 2):
        monkeypatch.setattr(default, "best_layer", lambda _, layer=layer: layer)
        found = methods_for(own, written)[0]
        facts.append(found.facts)
        assert f"layer={layer}" in found.label
    assert facts[0] != facts[1]


def test_one_method_is_one_row_however_it_is_written() -> None:
    written = [
        "stepwise(of=attn_lrp())",
        "stepwise(of=attcat( states = inputs ))",
        "stepwise(of=attcat(states=inputs))",
    ]
    assert [spec.label for spec in method_specs(written)] == [
        "stepwise(of=attn_lrp)",
        "stepwise(of=attcat(states=inputs))",
    ]


def test_all_methods_can_be_named_beside_others() -> None:
    fast = [name for name, method in whyformer.list_methods().items() if method.passes == "one"]
    assert [spec.label for spec in method_specs("fast,stepwise,rollout")] == [*fast, "stepwise"]


def test_a_method_made_of_one_without_classes_has_none() -> None:
    rollout, attn = method_specs(["stepwise(of=rollout)", "stepwise(of=attn_lrp)"])
    assert not rollout.class_specific
    assert attn.class_specific


def test_steps_and_signs_of_an_answer_are_told_by_part() -> None:
    torch.manual_seed(0)
    config = hf.BertConfig(
        vocab_size=99, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=37
    )
    model = hf.BertForQuestionAnswering(config).double().eval()
    inputs = {"input_ids": torch.arange(5, 13)[None]}
    prediction = Prediction(model, batch_of(model, inputs), (3, 5))
    found = whyformer.list_methods()["stepwise"](prediction, steps=3)
    assert found.seen is not None
    assert found.signs is not None
    start, end = found.seen[0]
    assert [max(start.hidden_in), max(end.hidden_in)] == [3, 3]
    assert len(start.hidden_in) == len(end.hidden_in) == 8
    assert start.outputs != end.outputs
    assert found.signs.shape == (1, 8)
    assert set(found.signs.flatten().tolist()) <= {-2, -1, 0, 1, 2}  # those of both, added up


def test_signs_are_told_only_where_scores_had_some() -> None:
    model, inputs = families.build("bert"), families.batch()
    prediction = Prediction(model, batch_of(model, inputs), 1)
    steps: Any = whyformer.list_methods()["stepwise"]
    of = "integrated_gradients(protocol=allennlp, steps=2)"
    assert steps(prediction, of=of, steps=2).signs is None
    assert steps(prediction, of="attn_lrp", steps=2).signs is not None


def test_layers_are_ranked_only_for_methods_that_read_a_layer() -> None:
    with pytest.raises(BadOption, match="layers are ranked for one method that has the option layer; found 'attcat'"):
        recommend(subject(), "texts.csv", "attcat", layers=True)


@pytest.mark.long
@pytest.mark.slow
def test_recommend_measures_more_effort(tmp_path: Path) -> None:
    good = ("gorgeous", "witty", "delightful", "brilliant", "moving", "superb")
    bad = ("dull", "lifeless", "awful", "tedious", "clumsy", "terrible")
    texts = [f"the film that we saw there is a {word} one" for word in (*good, *bad)]
    (tmp_path / "texts.jsonl").write_text("".join(f'{{"text": "{text}"}}\n' for text in texts), encoding="utf-8")
    own = Explainer.load("sentiment").subject
    found = recommend(own, tmp_path / "texts.jsonl", "attn_lrp,rollout", effort="balanced")
    assert (found.winner, found.stepped) == ("attn_lrp", "stepwise(of=attn_lrp)")
    assert found.gain is not None
    assert found.gain.n == len(texts)
    assert f"stepwise(of=attn_lrp) is better by {found.gain.mean:+.3f}" in found.sentence
