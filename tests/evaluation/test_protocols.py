"""Explaining as the authors' code does: what is taken out of attention, while metrics hide in the whole text."""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import whyformer
from tests.helpers import cases
from tests.helpers.evaluated import answering
from whyformer.datasets import Dataset, open_dataset
from whyformer.errors import BadInput, BadOption
from whyformer.evaluation.evaluate import evaluate
from whyformer.evaluation.protocols import as_explained, without_segments
from whyformer.inputs.batch import collate, encode
from whyformer.metrics.case import Case
from whyformer.metrics.faithfulness import _authors_steps
from whyformer.metrics.metric import metric_named
from whyformer.perturb import Outcomes
from whyformer.prediction import Prediction

ROWS = [("the film is fine and like all actors", 0), ("a bad film", 1), ("it is not like a film", 0)]
TURNED = "film all it actors like"  # which is of another class without its separators
METRIC = "comprehensiveness(fractions=0.5, target=gold)"
SPECIAL = {"attcat": ("[CLS]", "[SEP]"), "mask_lrp": ("[SEP]",)}


@pytest.mark.parametrize("protocol", ["attcat", "mask_lrp"])
def test_what_is_taken_out_of_attention(protocol: str) -> None:
    subject = cases.subject()
    batch = collate(subject, [encode(subject, ("a film", "it is fine")), encode(subject, ("film", "fine"))])
    explained = as_explained(batch, protocol)  # type: ignore[arg-type]
    tokens = [subject.tokenizer.convert_ids_to_tokens(row) for row in batch.tensors["input_ids"].tolist()]
    for row, names in enumerate(tokens):
        before = batch.tensors["attention_mask"][row].tolist()
        expected = [0 if name in SPECIAL[protocol] else seen for name, seen in zip(names, before, strict=True)]
        assert explained.tensors["attention_mask"][row].tolist() == expected
        assert explained.masked is not None
        assert explained.masked[row].tolist() == [not seen for seen in expected]
    assert batch.tensors["attention_mask"].sum() > explained.tensors["attention_mask"].sum(), "the batch stays"
    assert torch.equal(explained.tensors["input_ids"], batch.tensors["input_ids"])


def drop(text: str, target: int, protocol: str | None) -> float:
    """How far the class falls when the higher half is deleted, by scores of the text as the protocol explains it."""
    subject = cases.subject()
    batch = collate(subject, [encode(subject, text)])
    explained = batch if protocol is None else as_explained(batch, protocol)  # type: ignore[arg-type]
    inputs = {**explained.tensors, "special_tokens_mask": batch.special}
    scores = whyformer.attribute(subject.model, inputs, "attcat", states="inputs", target=target)[0]
    inner = range(1, len(scores) - 1)
    top = sorted(inner, key=lambda place: -scores[place])[: math.ceil(len(inner) / 2)]
    ids = batch.tensors["input_ids"][0].tolist()
    left = torch.tensor([[token for place, token in enumerate(ids) if place not in top]])
    with torch.no_grad():
        whole, without = (
            subject.model(input_ids=tokens).logits.double().softmax(-1)[0, target]
            for tokens in (batch.tensors["input_ids"], left)
        )
    return float(whole - without)


@pytest.mark.parametrize("protocol", [None, "attcat", "mask_lrp"])
def test_scores_are_of_that_run_and_metrics_of_the_whole_text(protocol: str | None) -> None:
    table = evaluate(cases.subject(), ROWS, "attcat(states=inputs)", METRIC, protocol=protocol, progress=False)
    numbers = table.series["attcat(states=inputs)", METRIC].values
    assert list(numbers) == pytest.approx([drop(text, gold, protocol) for text, gold in ROWS], abs=1e-6)


@pytest.mark.parametrize("protocol", ["attcat", "mask_lrp"])
def test_the_class_that_is_explained_is_that_of_the_whole_text(protocol: str) -> None:
    subject, metric = cases.subject(), "comprehensiveness(fractions=0.5)"
    batch = collate(subject, [encode(subject, TURNED)])
    with torch.no_grad():
        whole, explained = (
            int(subject.model(**one.tensors).logits.argmax())
            for one in (batch, as_explained(batch, protocol))  # type: ignore[arg-type]
        )
    assert whole != explained
    table = evaluate(subject, [TURNED], "attcat(states=inputs)", metric, protocol=protocol, progress=False)
    numbers = table.series["attcat(states=inputs)", metric].values
    assert list(numbers) == pytest.approx([drop(TURNED, whole, protocol)], abs=1e-6)


def test_the_model_is_run_without_segments() -> None:
    subject = cases.subject()
    pair = (*cases.PAIR, 0)
    text = without_segments(encode(subject, cases.PAIR))
    assert not text.tensors["token_type_ids"].any()
    assert encode(subject, cases.PAIR).tensors["token_type_ids"].any(), "the encoded text stays as it was"
    rows = [{"premise": pair[0], "hypothesis": pair[1], "label": pair[2]}]
    by_protocol = {
        name: evaluate(subject, rows, "raw_attention", "aopc(fractions=1.0)", protocol=name, progress=False)
        for name in (None, "mask_lrp")
    }
    empty = torch.tensor([[subject.tokenizer.cls_token_id, *[subject.tokenizer.sep_token_id] * 2]])
    for name, table in by_protocol.items():
        kinds = {} if name else {"token_type_ids": torch.tensor([[0, 0, 1]])}
        whole = collate(subject, [text if name else encode(subject, cases.PAIR)]).tensors
        with torch.no_grad():
            before = subject.model(**whole).logits.softmax(-1)[0]
            after = subject.model(input_ids=empty, **kinds).logits.softmax(-1)[0]
        index = int(before.argmax())
        assert table["raw_attention", "aopc(fractions=1.0)"].mean == pytest.approx(float(before[index] - after[index]))


def test_the_gold_class_has_to_be_probable(tmp_path: Path) -> None:
    subject = cases.subject()
    rows = tmp_path / "rows.jsonl"
    texts = [text for text, _ in ROWS]
    with torch.no_grad():
        shares = [subject.model(**collate(subject, [encode(subject, t)]).tensors).logits.softmax(-1)[0] for t in texts]
    gold = [int(share.argmax()) if number else int(share.argmin()) for number, share in enumerate(shares)]
    rows.write_text("\n".join(json.dumps({"text": t, "label": g}) for t, g in zip(texts, gold, strict=True)))
    data = open_dataset(rows)
    picky = Dataset(data.source, data.columns, name="rows", choice=replace(data.choice, min_probability=0.34))
    plain = evaluate(subject, picky, "raw_attention", "aopc", progress=False)
    assert not plain.skipped
    authors = evaluate(subject, picky, "raw_attention", "aopc", protocol="attcat", progress=False)
    assert authors.skipped == {0: "the gold class is less probable than 0.34"}


def test_special_tokens_of_pairs_are_hidden_by_a_slip() -> None:
    subject = cases.subject()
    text = encode(subject, cases.PAIR)
    prediction = Prediction(subject.model, collate(subject, [text]))
    scores = torch.linspace(9, 1, len(text.units), dtype=torch.float64)[None].clone()
    scores[0, 0] = 100  # which counts as 0: the first special token is hidden last but one
    scores[0, 3] = -1
    case = Case(prediction, scores, Outcomes(subject.model))
    steps, kept = (
        [set(np.flatnonzero(gone).tolist()) for gone in _authors_steps(case, "predicted", special)[0]]
        for special in (True, False)
    )
    order = sorted(range(len(text.units)), key=lambda place: -(0 if place == 0 else float(scores[0, place])))
    counts = sorted({round(share * len(order)) for share in np.linspace(0, 1, 10)})[1:]
    assert steps == [set(order[:-1][:count]) for count in counts]
    separators = {place for place, unit in enumerate(text.units) if unit.special and place}
    assert separators <= steps[-1]
    assert not separators & kept[-1]
    with pytest.raises(BadOption, match="special_tokens=true is of protocol='attcat'"):
        metric_named("aopc")(case, special_tokens=True)


def test_each_protocol_has_its_own_journal(tmp_path: Path) -> None:
    subject = cases.subject()
    evaluate(subject, ROWS, "attcat", METRIC, out=tmp_path, progress=False)
    with pytest.raises((BadInput, BadOption), match="another"):
        evaluate(subject, ROWS, "attcat", METRIC, out=tmp_path, protocol="attcat", progress=False)


def test_protocols_that_are_not_known_or_not_for_the_model() -> None:
    with pytest.raises(BadOption, match="protocol 'attact' is not known; did you mean 'attcat'"):
        evaluate(cases.subject(), ROWS, "attcat", METRIC, protocol="attact")
    with pytest.raises(BadOption, match="protocol='attcat' is for models that classify"):
        evaluate(answering(), [("the film?", "it is fine")], "attcat", "precision_at_k", protocol="attcat")
    with pytest.raises(BadOption, match=r"protocol='attcat' cuts what does not fit.*leave windows='merge' out"):
        evaluate(cases.subject(), ROWS, "attcat", "kendall_tau", protocol="attcat", windows="merge")
