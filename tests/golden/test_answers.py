"""The authors' own numbers on models that answer questions."""

import pytest
import torch

import whyformer
from tests.helpers.golden import assert_close, goldens, inputs, model, stored

CASES = ("bert_qa", "roberta_qa", "distilbert_qa", "gpt2_qa")
QUESTIONS = ("x0", "x1", "x2")
MAPS = ("x0", "x1")  # the stored attention maps and states
ATTCAT = ("attcat.generate_cat", "masklrp.AttCAT")
COUNTS = {  # per case: attention, its gradient, AttCAT by its authors, AttCAT by those of Mask-LRP
    "bert_qa": (2, 4, 6, 6),
    "roberta_qa": (2, 4, 6, 6),
    "distilbert_qa": (2, 0, 6, 0),
    "gpt2_qa": (2, 4, 0, 6),
}


def targets(case: str, name: str) -> dict[str, tuple[int | None, int | None]]:
    """The most likely start and the most likely end, whichever comes first, each alone."""
    start, end = goldens(case)[f"{name}.answer_index"].tolist()
    return {"start": (start, None), "end": (None, end)}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", QUESTIONS)
def test_attcat(case: str, name: str) -> None:
    for part, target in targets(case, name).items():
        for golden in ATTCAT:
            if f"{name}.{part}.{golden}" in goldens(case):
                options = {"states": "inputs", "attention_query": "all"}
                scores = whyformer.attribute(model(case), inputs(case, name), "attcat", target=target, **options)[0]
                assert_close(scores, goldens(case)[f"{name}.{part}.{golden}"], 1e-9)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", QUESTIONS)
def test_start_and_end_are_added_up(case: str, name: str) -> None:
    options = {"states": "inputs", "attention_query": "all"}
    target = tuple(goldens(case)[f"{name}.answer_index"].tolist())
    scores = whyformer.attribute(model(case), inputs(case, name), "attcat", target=target, **options)[0]
    golden = next(g for g in ATTCAT if f"{name}.start.{g}" in goldens(case))
    assert_close(scores, sum(goldens(case)[f"{name}.{part}.{golden}"] for part in ("start", "end")), 1e-9)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", QUESTIONS)
def test_trace(case: str, name: str) -> None:
    golden = goldens(case)
    trace = whyformer.record(model(case), inputs(case, name))
    both = torch.stack((golden[f"{name}.hf.start_logits"], golden[f"{name}.hf.end_logits"]), 1)
    assert_close(trace.logits, both, 1e-10)
    assert trace.logits.argmax(-1).tolist() == [golden[f"{name}.answer_index"].tolist()]
    if name not in MAPS:
        return
    attention = golden.get(f"{name}.attn", golden.get(f"{name}.hf.attn"))
    assert attention is not None
    assert_close(torch.cat(trace.attention), attention, 1e-10)
    last = -1 if case == "gpt2_qa" else None  # after the final norm there
    assert_close(torch.cat(trace.hidden)[:last], golden[f"{name}.hf.hidden_states"][:last], 1e-10)
    for part, target in targets(case, name).items():
        if f"{name}.{part}.attn_grad" in golden:
            gradients = torch.cat(trace.gradient(trace.attention, target))
            assert_close(gradients, golden[f"{name}.{part}.attn_grad"], 1e-9)


@pytest.mark.parametrize("case", CASES)
def test_every_golden_is_used(case: str) -> None:
    kinds = ("hf.attn" if case == "distilbert_qa" else "attn", "attn_grad", *ATTCAT)
    counted = dict(zip(kinds, COUNTS[case], strict=True)) | {"hf.hidden_states": 2}
    counted |= dict.fromkeys(("input_ids", "attention_mask", "answer_index", "hf.start_logits", "hf.end_logits"), 3)
    assert {name: len(stored(case, name)) for name in counted} == counted
    assert len(goldens(case)) == sum(counted.values())
