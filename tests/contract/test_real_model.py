"""The bundled model: half precision, and explanations that tell what matters."""

import statistics
from functools import cache

import pytest
import scipy
import torch

from whyformer import Explainer, Explanation

pytestmark = pytest.mark.slow

SENTENCES = [
    "a gorgeous, witty, seductive film that never once bores",
    "the plot is thin, the jokes are stale, and the ending insults everyone who stayed",
    "slow to start, but the last half hour is unforgettable",
    "two hours of my life that i will never get back",
    "she gives the performance of the year in a film that hardly deserves it",
    "not bad at all, though hardly the masterpiece it was promised to be",
    "an honest, funny and moving portrait of a family falling apart",
    "every scene is louder than the one before and none of them matters",
    "if you liked the first one, you will probably hate what they did to it",
    "charming in places, dull in others, and far too long",
    "the children in the audience laughed; their parents slept",
    "a small miracle of a movie",
]


@cache
def explanations(dtype: str, method: str) -> list[Explanation]:
    return list(Explainer.load("sentiment", dtype=dtype).explain(SENTENCES, method, check=0))


@pytest.mark.long
@pytest.mark.parametrize(("dtype", "least"), [("bfloat16", 0.95), ("float16", 0.98)])
@pytest.mark.parametrize("method", ["attcat", "rollout", "input_x_gradient"])
def test_half_precision_ranks_units_as_float32_does(method: str, dtype: str, least: float) -> None:
    pairs = zip(explanations("float32", method), explanations(dtype, method), strict=True)
    found = [
        scipy.stats.spearmanr(full.scores[full.ranked], half.scores[full.ranked]).statistic for full, half in pairs
    ]
    assert statistics.median(found) >= least


def test_deleting_the_highest_units_matters_more_than_deleting_the_lowest() -> None:
    explainer = Explainer.load("sentiment")

    def probability(e: Explanation, hidden: list[int]) -> float:
        ids = explainer.subject.tokenizer(e.texts[0])["input_ids"]
        kept = torch.tensor([[t for i, t in enumerate(ids) if i not in hidden]])
        with torch.no_grad():
            return float(explainer.subject.model(kept).logits.softmax(-1)[0, e.target.index])

    drops = []
    for e in explanations("float32", "attcat"):
        count = max(1, len(e.ranked) // 5)
        drops.append((probability(e, e.ranked[:count]), probability(e, e.ranked[-count:])))
    highest, lowest = (statistics.mean(column) for column in zip(*drops, strict=True))
    assert highest < lowest - 0.2


def test_a_list_is_explained_as_its_texts_are() -> None:
    explainer = Explainer.load("sentiment")
    for together in explanations("float32", "attcat")[:4]:
        alone = explainer.explain(together.texts[0], "attcat")
        assert abs(alone.scores - together.scores).max() <= 1e-4 * abs(alone.scores).max()
        assert alone.prediction.label == together.prediction.label
