"""Head statistics: literal re-derivations with loops, hand-made attention with known answers, and invariances."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
import transformers as hf
from torch import Tensor

from tests.helpers import cases, families
from whyformer import BadInput, BadOption, UnsupportedModel, record
from whyformer.inputs.batch import Batch, collate, encode
from whyformer.inputs.units import Unit
from whyformer.methods.head_mask import DIRECTIONS, RELATIONS, HeadMask
from whyformer.models.load import Subject, subject_of
from whyformer.progress import listening
from whyformer.tolerance import close
from whyformer_papers.heads import Sentence, head_statistics, positional_statistics
from whyformer_papers.heads import statistics as module
from whyformer_papers.heads.sentences import align, relation_of
from whyformer_papers.heads.strongest import attention_maps
from whyformer_papers.heads.treebank import sentences

TREEBANK = """\
# text = the actors like a fine film, and it is not bad.
1	the	_	_	_	_	2	det	_	_
2	actors	_	_	_	_	3	nsubj	_	_
3	like	_	_	_	_	0	root	_	_
3.1	like	_	_	_	_	_	_	_	_
4	a	_	_	_	_	6	det	_	_
5	fine	_	_	_	_	6	amod	_	_
6	film	_	_	_	_	3	obj	_	SpaceAfter=No
7	,	_	_	_	_	11	punct	_	_
8	and	_	_	_	_	11	cc	_	_
9	it	_	_	_	_	12	nsubj	_	_
10	is	_	_	_	_	12	cop	_	_
11	not	_	_	_	_	12	advmod	_	_
12	bad	_	_	_	_	3	conj	_	SpaceAfter=No
13	.	_	_	_	_	3	punct	_	_

1	we	_	_	_	_	4	nsubj	_	_
2-3	don't	_	_	_	_	_	_	_	_
2	do	_	_	_	_	4	aux	_	_
3	n't	_	_	_	_	4	advmod	_	_
4	act	_	_	_	_	0	root	_	SpaceAfter=No
5	.	_	_	_	_	4	punct	_	_

# text = films del acting like it badly
1	films	_	_	_	_	5	nsubj:pass	_	_
2-3	del	_	_	_	_	_	_	_	_
2	de	_	_	_	_	4	case	_	_
3	el	_	_	_	_	2	amod	_	_
4	acting	_	_	_	_	2	nsubj	_	_
5	like	_	_	_	_	0	root	_	_
6	it	_	_	_	_	5	obj	_	_
7	badly	_	_	_	_	5	advmod	_	_
"""
CUT = Sentence("the film is bad", ((0, 3), (4, 6), (6, 8), (9, 11), (12, 15)), ((1, 2, "amod"), (2, 4, "nsubj")))
PARSED = [*sentences(TREEBANK.splitlines()), CUT, Sentence("fine film", ((0, 4), (5, 9)), ((0, 1, "amod"),))]
KINDS = ["bert", "roberta", "gpt2", "llama"]


def counted_literally(subject: Subject, parsed: list[Sentence], special: bool, pieces: str, subtypes: bool) -> Any:
    """Offsets of each head, hits of each direction, head and relation, arcs: one text at a time, in loops."""
    offsets: dict[tuple[int, int], Counter[int]] = {}
    hits: Counter[tuple[str, int, int, str]] = Counter()
    arcs: dict[str, Counter[int]] = {relation: Counter() for relation in RELATIONS}
    for sentence in parsed:
        encoded = encode(subject, sentence.text)
        maps = record(subject.model, collate(subject, [encoded]).tensors).attention
        places = [n for n, unit in enumerate(encoded.units) if special or not unit.special]
        tokens = [n for n, unit in enumerate(encoded.units) if not unit.special and unit.span]
        groups = joined_literally(sentence, {n: encoded.units[n].span for n in tokens})
        keys = [sorted(group) for _, group in groups]
        if special:
            keys += [[n] for n in places if not any(n in group for group in keys)]
        for layer, layer_maps in enumerate(maps):
            for head, attention in enumerate(layer_maps[0].tolist()):
                counter = offsets.setdefault((layer, head), Counter())
                best = {q: max(places, key=lambda k, row=attention[q]: row[k]) for q in places}
                counter.update(best[q] - q for q in places)
                for dependent, governor, label in sentence.relations:
                    relation = relation_of(label, subtypes=subtypes)
                    ours = [next((g for words, g in groups if w in words), None) for w in (dependent, governor)]
                    if relation is None or None in ours or ours[0] == ours[1]:
                        continue
                    if (layer, head) == (0, 0):
                        arcs[relation][dependent - governor] += 1
                    for direction, (asked, other) in zip(DIRECTIONS, (ours, ours[::-1]), strict=True):
                        if pieces == "first":
                            hit = best[min(asked)] in other
                        else:
                            sums = [sum(attention[q][k] for q in asked for k in key) for key in keys]
                            hit = keys[int(np.argmax(sums))] == sorted(other)
                        hits[direction, layer, head, relation] += hit
    return offsets, hits, arcs


def joined_literally(sentence: Sentence, spans: dict[int, Any]) -> list[tuple[set[int], set[int]]]:
    """Words that share tokens, and their tokens."""
    groups = []
    for word, (start, end) in enumerate(sentence.words):
        groups.append(({word}, {n for n, (a, b) in spans.items() if a < end and start < b}))
    groups = [g for g in groups if g[1]]
    merged = True
    while merged:
        merged = False
        for one in groups:
            other = next((g for g in groups if g is not one and g[1] & one[1]), None)
            if other is not None:
                groups.remove(other)
                one[0].update(other[0])
                one[1].update(other[1])
                merged = True
                break
    return sorted(groups, key=lambda g: min(g[1]))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("special", "pieces", "subtypes"),
    [(False, "joined", False), (True, "joined", True), (False, "first", True), (True, "first", False)],
)
def test_the_counts_are_those_of_the_definition(kind: str, special: bool, pieces: Any, subtypes: bool) -> None:
    subject = cases.subject(kind)
    offsets, hits, arcs = counted_literally(subject, PARSED, special, pieces, subtypes)
    mask = head_statistics(subject, PARSED, special_tokens=special, pieces=pieces, subtypes=subtypes, batch_size=3)
    found = mask.statistics
    assert found is not None
    assert found.sentences == len(PARSED)
    assert found.queries == sum(offsets[0, 0].values())
    assert [dict(c) for c in found.arcs] == [dict(arcs[r]) for r in RELATIONS]
    for (layer, head), counter in offsets.items():
        others = {i: n for i, n in counter.items() if i}
        assert found.offset_hits[layer, head] == max(others.values())
        assert others[int(found.offsets[layer, head])] == max(others.values())
        for d, direction in enumerate(DIRECTIONS):
            for k, relation in enumerate(RELATIONS):
                assert found.hits[d, layer, head, k] == hits[direction, layer, head, relation]
    assert found.hits.sum() > 0
    lost = sum(align(s, encode(subject, s.text).units, subtypes=subtypes).lost for s in PARSED)
    assert mask.provenance["arcs_left_out"] == lost > 0


def attending(subject: Subject, batch: Batch, aims: list[dict[str, Any]]) -> list[Tensor]:
    """One layer of heads, each with its own aim: a function of (units, query) that gives weights of keys."""
    units = batch.tensors["input_ids"].shape[1]
    maps = torch.full((len(batch.examples), len(aims), units, units), 0.01, dtype=torch.float64)
    for row, example in enumerate(batch.examples):
        for head, aim in enumerate(aims):
            for query in range(units):
                for key, weight in aim(example, query).items():
                    maps[row, head, query, key] = weight
    maps[batch.masked[:, None, None].expand_as(maps)] = 5.0  # what is padding must not count, however strong it is
    return [maps]


def test_known_heads_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Heads: the token before; subject → verb; verb → object; itself; two pieces together; [CLS], then the next."""
    subject = cases.subject("bert")
    parsed = [
        sentence("actors like films", {("actors", "like"): "nsubj", ("films", "like"): "obj"}),
        sentence("actors not at all like the fine films", {("actors", "like"): "nsubj", ("films", "like"): "obj"}),
        sentence("it is bad, actors like", {("actors", "like"): "nsubj", ("it", "bad"): "nsubj"}),
        sentence("like films and actors", {("films", "like"): "obj"}),
    ]
    by_text = {p.text: p for p in parsed}

    def place(example: Any, n: int) -> list[int]:
        span = by_text[example.texts[0]].words[n]
        return [i for i, u in enumerate(example.units) if u.span and u.span[0] < span[1] and span[0] < u.span[1]]

    def along(label: str, forward: bool, weights: tuple[float, float] = (0.9, 0.0)) -> Any:
        def aim(example: Any, query: int) -> dict[int, float]:
            for dependent, head, found in by_text[example.texts[0]].relations:
                asked, other = (dependent, head) if forward else (head, dependent)
                if found == label and query in place(example, asked):
                    return dict(zip(place(example, other), weights, strict=False))
            return {query: 0.5}

        return aim

    aims: list[Any] = [
        lambda e, q: {max(0, q - 1): 0.9},
        along("nsubj", True),
        along("obj", False),
        lambda e, q: {q: 0.9},
        lambda e, q: along("obj", False, (0.3, 0.3))(e, q) | {e_like(e): 0.4},
        lambda e, q: {0: 0.9, min(q + 1, len(e.units) - 2): 0.1},
    ]

    def e_like(example: Any) -> int:
        return next(
            i for i, u in enumerate(example.units) if u.span and example.texts[0][u.span[0] :].startswith("like")
        )

    monkeypatch.setattr(module, "attention_maps", lambda subject, batch: attending(subject, batch, aims))
    mask = head_statistics(subject, parsed)
    assert mask.positional.tolist() == [[True, False, False, False, False, True]]
    found = {relation: np.flatnonzero(flags[0]).tolist() for relation, flags in mask.by_relation.items()}
    assert found == {"nsubj": [1], "dobj": [2, 4], "amod": [], "advmod": []}
    assert mask.kept.tolist() == [[True, True, True, False, True, True]]
    assert mask.statistics is not None
    assert mask.statistics.offsets[0, 0] == -1
    assert mask.alpha[0, 1, 0] == mask.alpha[0, 2, 1] == 1
    assert mask.chosen[0, 1, 0] == 0
    assert mask.chosen[0, 2, 1] == 1
    assert not head_statistics(subject, parsed, direction="head_to_dependent").by_relation["nsubj"].any()
    assert not head_statistics(subject, parsed, direction="dependent_to_head").by_relation["dobj"].any()
    alone = head_statistics(subject, parsed, pieces="first").by_relation["dobj"]
    assert np.flatnonzero(alone[0]).tolist() == [2]
    with_special = head_statistics(subject, parsed, special_tokens=True)
    assert with_special.positional.tolist() == [[True, False, False, False, False, False]]
    assert not with_special.alpha[0, 5].any()


def sentence(text: str, relations: dict[tuple[str, str], str]) -> Sentence:
    words = text.replace(",", " ,").split()
    spans, start = [], 0
    for word in words:
        start = text.index(word, start)
        spans.append((start, start + len(word)))
        start += len(word)
    return Sentence(text, tuple(spans), tuple((words.index(d), words.index(h), r) for (d, h), r in relations.items()))


@pytest.mark.parametrize("kind", ["bert", "gpt2"])
def test_batches_and_padding_do_not_matter(kind: str) -> None:
    subject = cases.subject(kind)
    masks = [head_statistics(subject, PARSED, batch_size=size) for size in (1, 2, 32)]
    first, *others = [mask.statistics.to_data() for mask in masks if mask.statistics]
    assert all(other == first for other in others)
    assert len({mask.provenance["corpus"]["digest"] for mask in masks}) == 1
    assert head_statistics(subject, PARSED[:2]).provenance["corpus"] != masks[0].provenance["corpus"]


@pytest.mark.parametrize("count", [4, 5])
def test_as_many_texts_as_heads_or_units(count: int) -> None:
    """The recorder then asks by a backward pass where the examples are."""
    texts = ["the film is", "film is the", "is the film", "the the film", "film film is"][:count]  # of 5 units, 4 heads
    subject = cases.subject("bert")
    together, alone = (positional_statistics(subject, texts, batch_size=size) for size in (count, 1))
    assert together.statistics is not None
    assert alone.statistics is not None
    assert together.statistics.to_data() == alone.statistics.to_data()


def test_texts_without_a_parse_give_positional_heads() -> None:
    subject = cases.subject("bert")
    parsed = head_statistics(subject, PARSED, positional=0.05)
    plain = positional_statistics(subject, [s.text for s in PARSED], positional=0.05)
    assert plain.statistics is not None
    assert parsed.statistics is not None
    assert (plain.statistics.offset_hits == parsed.statistics.offset_hits).all()
    assert (plain.kept == parsed.positional).all()
    assert plain.kept.any()
    assert not plain.syntactic.any()
    with pytest.raises(BadInput, match="without a parse"):
        plain.only("syntactic")
    assert positional_statistics(subject, [cases.PAIR]).statistics.queries == 7  # type: ignore[union-attr]


def test_models_for_questions_and_language_models_read_sentences() -> None:
    for kind, made in (("bert", hf.AutoModelForQuestionAnswering), ("gpt2", hf.AutoModelForCausalLM)):
        tokenizer = cases.KINDS[kind]()
        config = families.CONFIGS[kind]()
        config.vocab_size = len(tokenizer)
        subject = subject_of(made.from_config(config).eval(), tokenizer)
        mask = head_statistics(subject, PARSED)
        assert mask.shape == (2, 4)
        assert mask.provenance["fingerprint"] == subject.fingerprint


def test_what_does_not_fit_into_the_window_is_counted() -> None:
    text = "the film is bad " * 60
    long = Sentence(text, ((0, 3), (4, 8), (len(text) - 4, len(text) - 1)), ((0, 1, "amod"), (1, 2, "nsubj")))
    mask = head_statistics(cases.subject("bert"), [long, PARSED[-1]])
    assert mask.provenance["truncated"] == 1
    assert mask.provenance["arcs_left_out"] == 1
    assert mask.statistics is not None
    assert mask.statistics.arc_counts.tolist() == [0, 0, 2, 0]


def test_tokens_are_aligned_by_span() -> None:
    units = [
        Unit("[CLS]", special=True),
        *(Unit("", span=s) for s in ((0, 3), (3, 5), (5, 8), (8, 9), (9, 9))),
        Unit(""),
    ]
    words = ((0, 5), (5, 6), (6, 8), (8, 9), (9, 11))
    found = align(Sentence("x" * 11, words, ((1, 2, "obj"), (0, 2, "obj"), (4, 0, "amod"), (0, 3, "det"))), units)
    assert found.words == (-1, 0, 0, 1, 2, -1, -1)
    assert [(a.dependent, a.head, a.offset, RELATIONS[a.relation]) for a in found.arcs] == [(0, 1, -2, "dobj")]
    assert found.lost == 2


def test_an_interruption_keeps_what_was_counted() -> None:
    subject = cases.subject("bert")
    told: list[tuple[int, int]] = []

    def interrupt(done: int, total: int) -> None:
        told.append((done, total))
        if done == 2:
            raise KeyboardInterrupt

    with listening(interrupt):
        mask = head_statistics(subject, PARSED, batch_size=1)
    assert told == [(1, 5), (2, 5)]
    assert mask.provenance["interrupted"]
    assert mask.provenance["sentences"] == 2
    shortest = sorted(PARSED, key=lambda s: len(encode(subject, s.text).units))[:2]
    whole = head_statistics(subject, shortest)
    assert not whole.provenance["interrupted"]
    assert whole.statistics is not None
    assert mask.statistics is not None
    assert mask.statistics.to_data() == whole.statistics.to_data()
    assert mask.provenance["corpus"]["digest"] == whole.provenance["corpus"]["digest"]

    def at_once() -> Iterator[Sentence]:
        raise KeyboardInterrupt
        yield

    with pytest.raises(KeyboardInterrupt):
        head_statistics(subject, at_once())


def test_limits_and_options() -> None:
    subject = cases.subject("bert")
    told: list[tuple[int, int]] = []
    with listening(lambda *seen: told.append(seen)):
        mask = head_statistics(subject, iter(PARSED), limit=2)
        assert mask.provenance["sentences"] == 2
        assert told == [(2, 2)]
        positional_statistics(subject, iter(["a film"] * 3))
    assert told[1:] == [(3, 3)]
    wrong: list[dict[str, Any]] = [
        *(
            {"direction": "up"},
            {"pieces": "last"},
            {"positional": 2.0},
            {"syntactic": -1.0},
            {"limit": 0},
            {"batch_size": 0},
        )
    ]
    for options in wrong:
        with pytest.raises(BadOption):
            head_statistics(subject, PARSED, **options)
    with pytest.raises(BadInput, match="the corpus is empty"):
        head_statistics(subject, [])


def test_layers_with_different_numbers_of_heads_have_no_mask(monkeypatch: pytest.MonkeyPatch) -> None:
    class Uneven:
        attention = (torch.zeros(1, 2, 3, 3), torch.zeros(1, 3, 3, 3))

    monkeypatch.setattr("whyformer_papers.heads.strongest.record", lambda *_, **__: Uneven)
    with pytest.raises(UnsupportedModel, match="different numbers of heads"):
        head_statistics(cases.subject("bert"), PARSED)


@pytest.mark.parametrize("family", ["bert", "deberta_v2"])
def test_maps_are_those_of_the_recorder_without_a_graph(family: str) -> None:
    model, inputs = families.build(family), families.batch()
    subject = Subject(model, None, (), family)
    maps = attention_maps(subject, Batch(inputs, None, None))
    recorded = record(model, inputs).attention
    assert len(maps) == len(recorded) == 2
    assert not any(layer.requires_grad for layer in maps)
    assert all(close(layer, other) for layer, other in zip(maps, recorded, strict=True))


def test_the_result_says_where_it_comes_from() -> None:
    mask = head_statistics(cases.subject("bert"), PARSED)
    assert isinstance(mask, HeadMask)
    assert mask.provenance["options"] == {"special_tokens": False, "pieces": "joined", "subtypes": False}
    assert {"model", "packages", "fingerprint", "corpus", "sentences"} <= set(mask.provenance)
