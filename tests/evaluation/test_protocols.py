"""Explaining as the authors' code does: what is taken out of attention, while metrics hide in the whole text."""

import math
from pathlib import Path

import pytest
import torch

import whyformer
from tests.helpers import cases
from tests.helpers.evaluated import answering
from whyformer.errors import BadInput, BadOption
from whyformer.evaluation.evaluate import evaluate
from whyformer.evaluation.protocols import as_authors
from whyformer.inputs.encoding import collate, encode

ROWS = [("the film is fine and like all actors", 0), ("a bad film", 1), ("it is not like a film", 0)]
METRIC = "comprehensiveness(fractions=0.5, target=gold)"
SPECIAL = {"attcat": ("[CLS]", "[SEP]"), "mask_lrp": ("[SEP]",)}


@pytest.mark.parametrize("protocol", ["attcat", "mask_lrp"])
def test_what_is_taken_out_of_attention(protocol: str) -> None:
    subject = cases.subject()
    batch = collate(subject, [encode(subject, ("a film", "it is fine")), encode(subject, ("film", "fine"))])
    explained = as_authors(batch, protocol)  # type: ignore[arg-type]
    tokens = [subject.tokenizer.convert_ids_to_tokens(row) for row in batch.tensors["input_ids"].tolist()]
    for row, names in enumerate(tokens):
        before = batch.tensors["attention_mask"][row].tolist()
        expected = [0 if name in SPECIAL[protocol] else seen for name, seen in zip(names, before, strict=True)]
        assert explained.tensors["attention_mask"][row].tolist() == expected
        assert explained.masked is not None
        assert explained.masked[row].tolist() == [not seen for seen in expected]
    segments = explained.tensors["token_type_ids"]
    assert segments.any() == (protocol == "attcat")
    assert batch.tensors["attention_mask"].sum() > explained.tensors["attention_mask"].sum(), "the batch stays"
    assert torch.equal(explained.tensors["input_ids"], batch.tensors["input_ids"])


@pytest.mark.parametrize("protocol", [None, "attcat", "mask_lrp"])
def test_scores_are_of_that_run_and_metrics_of_the_whole_text(protocol: str | None) -> None:
    subject = cases.subject()
    table = evaluate(subject, ROWS, "attcat(states=inputs)", METRIC, protocol=protocol, progress=False)
    numbers = table.series["attcat(states=inputs)", METRIC].values
    expected = []
    for text, gold in ROWS:
        batch = collate(subject, [encode(subject, text)])
        explained = batch if protocol is None else as_authors(batch, protocol)  # type: ignore[arg-type]
        inputs = {**explained.tensors, "special_tokens_mask": batch.special}
        scores = whyformer.attribute(subject.model, inputs, "attcat", states="inputs", target=gold)[0]
        inner = range(1, len(scores) - 1)
        top = sorted(inner, key=lambda place: -scores[place])[: math.ceil(len(inner) / 2)]
        ids = batch.tensors["input_ids"][0].tolist()
        left = torch.tensor([[token for place, token in enumerate(ids) if place not in top]])
        with torch.no_grad():
            whole, without = (
                subject.model(input_ids=given).logits.double().softmax(-1)[0, gold]
                for given in (batch.tensors["input_ids"], left)
            )
        expected.append(float(whole - without))
    assert list(numbers) == pytest.approx(expected, abs=1e-6)


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
