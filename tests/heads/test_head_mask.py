"""HeadMask: what follows from statistics, masks made from masks, files."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from whyformer import BadInput, BadOption
from whyformer.methods.head_mask import HeadMask, HeadStatistics, Thresholds


def statistics() -> HeadStatistics:
    """Three blocks of two heads, 10 queries; nsubj: 10 arcs, the best offset has 5; dobj: 4 arcs at one offset."""
    hits = np.zeros((2, 3, 2, 4), dtype=np.int64)
    hits[0, 0, 0, 0] = 6  # just the threshold: 0.5 + 0.1
    hits[0, 1, 1, 0] = 7
    hits[1, 2, 0, 0] = 9
    hits[:, 2, 1, 1] = 4  # always right, but so is the best offset
    return HeadStatistics(
        offsets=np.array([[-1, 1], [2, -1], [1, 1]]),
        offset_hits=np.array([[8, 9], [10, 0], [3, 8]]),
        queries=10,
        hits=hits,
        arcs=({-1: 5, -2: 3, 4: 2}, {1: 4}, {}, {}),
        sentences=3,
    )


def test_thresholds_have_to_be_exceeded() -> None:
    mask = HeadMask.of(statistics())
    assert mask.positional.tolist() == [[False, True], [True, False], [False, False]]
    assert mask.syntactic.tolist() == [[False, False], [False, True], [True, False]]
    assert mask.kept.tolist() == [[False, True], [True, True], [True, False]]
    assert (mask.by_relation["nsubj"] == mask.syntactic).all()
    assert not any(mask.by_relation[relation].any() for relation in ("dobj", "amod", "advmod"))
    assert mask.statistics is not None
    assert mask.statistics.best_guess.tolist() == [0.5, 1, 0, 0]
    assert mask.alpha[:, :, 0].tolist() == [[0.6, 0], [0, 0.7], [0.9, 0]]
    assert mask.chosen[:, :, 0].tolist() == [[0, 0], [0, 0], [1, 0]]
    forward = HeadMask.of(statistics(), direction="dependent_to_head")
    assert forward.syntactic.tolist() == [[False, False], [False, True], [False, False]]
    lower = HeadMask.of(statistics(), thresholds=Thresholds(0.75, 0.05))
    assert lower.kept.tolist() == [[True, True], [True, True], [True, True]]


def test_masks_of_one_kind() -> None:
    mask = HeadMask.of(statistics())
    assert (mask.only("positional").kept == mask.positional).all()
    assert (mask.only("syntactic").kept == mask.syntactic).all()
    assert (mask.only("nsubj").kept == mask.by_relation["nsubj"]).all()
    assert (mask.only("positional").union.kept == mask.kept).all()
    assert mask.only("positional").provenance["made"] == [{"only": "positional"}]
    with pytest.raises(BadOption, match="did you mean 'syntactic'"):
        mask.only("syntax")


def test_random_masks_keep_as_many() -> None:
    mask = HeadMask(np.eye(6, 12))
    drawn = [mask.random(seed) for seed in range(5)]
    assert {int(m.kept.sum()) for m in drawn} == {6}
    assert {m.rate for m in drawn} == {mask.rate} == {6 / 72}
    assert len({m.digest for m in drawn}) == 5
    assert mask.random(3).digest == drawn[3].digest
    assert drawn[3].provenance["made"] == [{"random": {"seed": 3}}]


def test_corruption_switches_zeros_on() -> None:
    mask = HeadMask(np.eye(6, 12))
    before = mask.kept
    for tenth in range(11):
        corrupted = mask.corrupted(tenth / 10, 0)
        assert corrupted.kept.sum() == 6 + int(66 * tenth / 10 + 0.5)
        assert (corrupted.kept >= before).all()
        before = corrupted.kept
    assert before.all()
    assert mask.corrupted(0.5, 0).digest != mask.corrupted(0.5, 1).digest
    assert mask.corrupted(0.0, 0).digest == mask.digest
    for rate in (-0.1, 1.1, float("nan")):
        with pytest.raises(BadOption, match="rate of corruption"):
            mask.corrupted(rate, 0)


def test_masks_from_plain_numbers() -> None:
    for given in (
        [[1, 0, 1]],
        np.array([[True, False, True]]),
        torch.tensor([[1.0, 0.0, 1.0]]),
        torch.eye(3)[:1] + torch.eye(3)[2:],
    ):
        mask = HeadMask(given)  # type: ignore[arg-type]
        assert mask.kept.tolist() == [[True, False, True]]
        assert torch.equal(mask.tensor(), torch.tensor([[1.0, 0.0, 1.0]]))
        assert repr(mask) == "HeadMask(1 × 3 heads, 2 kept (67%))"
        with pytest.raises(ValueError, match="read-only"):
            mask.kept[0, 0] = False
        with pytest.raises(BadInput, match="has no statistics"):
            mask.only("positional")
    assert mask.tensor(torch.float64).dtype == torch.float64
    wrong: list[Any] = [[1, 0], [[0.5, 1]], [[2, 1]], [], [["a"]], [[float("nan")]]]
    for given in wrong:
        with pytest.raises(BadInput, match="zeros and ones"):
            HeadMask(given)
    with pytest.raises(BadInput, match="with statistics of heads"):
        HeadMask(np.ones((2, 2)), statistics())
    with pytest.raises(BadOption, match="direction 'up'"):
        HeadMask(np.ones((3, 2)), direction="up")  # type: ignore[arg-type]


def test_the_repr_counts_the_kinds() -> None:
    assert repr(HeadMask.of(statistics())) == (
        "HeadMask(3 × 2 heads, 4 kept (67%); 2 positional, 2 syntactic (nsubj 2, dobj 0, amod 0, advmod 0))"
    )


def test_files(tmp_path: Path) -> None:
    origin = {"model": "a", "corpus": {"treebank": "é.conllu"}}
    mask = HeadMask.of(statistics(), direction="dependent_to_head", thresholds=Thresholds(0.7, 0.2), provenance=origin)
    made = mask.corrupted(0.5, 1)
    again = HeadMask.load(made.save(tmp_path / "heads.json"))
    assert again.digest == made.digest
    assert (again.direction, again.thresholds, again.provenance) == (made.direction, made.thresholds, made.provenance)
    assert again.statistics is not None
    assert again.statistics.to_data() == statistics().to_data()
    assert again.statistics.arcs == statistics().arcs
    assert (again.alpha == mask.alpha).all()
    assert (again.union.kept == mask.kept).all()
    bare = HeadMask.load(HeadMask(np.eye(3)).save(tmp_path / "bare.json"))
    assert bare.statistics is None
    assert (bare.kept == np.eye(3)).all()
    with pytest.raises(BadInput, match="could not write"):
        mask.save(tmp_path / "none" / "heads.json")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda c: "{", "is not JSON"),
        (lambda c: [], "is no head mask"),
        (lambda c: c | {"schema": "other"}, "is no head mask .*'other'"),
        (lambda c: c | {"version": 2}, "version 2; this program reads version 1"),
        (lambda c: {k: v for k, v in c.items() if k != "kept"}, "not complete: 'kept' is missing"),
        (lambda c: c | {"kept": [[1, 0], [1]]}, "not complete"),
        (lambda c: c | {"kept": [[1]]}, "with statistics of heads"),
        (lambda c: c | {"thresholds": {"other": 1}}, "not complete"),
        (lambda c: c | {"statistics": {}}, "not complete: 'statistics.sentences' is missing"),
        (lambda c: c | {"statistics": c["statistics"] | {"offset_hits": [[1]]}}, "head statistics of shapes"),
    ],
)
def test_files_that_are_no_masks(tmp_path: Path, change: Callable[[Any], Any], reason: str) -> None:
    path = HeadMask.of(statistics()).save(tmp_path / "heads.json")
    changed = change(json.loads(path.read_text()))
    path.write_text(changed if isinstance(changed, str) else json.dumps(changed))
    with pytest.raises(BadInput, match=reason):
        HeadMask.load(path)
    with pytest.raises(BadInput, match="could not read"):
        HeadMask.load(tmp_path / "none.json")
